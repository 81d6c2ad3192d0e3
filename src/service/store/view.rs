//! Reading documents, links and claims.

use std::ops::Deref;

use rusqlite::{Connection, OptionalExtension};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::Error;

/// A resource as the store keeps it.
pub trait Document: Serialize + DeserializeOwned {
    /// The prefix of the identifiers; it names the kind of the document as well.
    const PREFIX: &'static str;

    /// The identifier; identifiers grow with time, so they are the order of creation.
    fn id(&self) -> &str;
}

/// One consistent state of the database.
pub struct View<'connection> {
    connection: Source<'connection>,
}

/// A connection of one's own for the time being, or the writer's.
enum Source<'connection> {
    Reading(rusqlite::Transaction<'connection>),
    Writing(&'connection Connection),
}

impl Deref for Source<'_> {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        match self {
            Self::Reading(transaction) => transaction,
            Self::Writing(connection) => connection,
        }
    }
}

/// What a token is checked against.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredToken {
    /// SHA-256 of the secret part.
    pub hash: Vec<u8>,
    /// The user or bot that owns the token.
    pub owner_id: String,
}

impl<'connection> View<'connection> {
    pub(super) fn reading(connection: &'connection Connection) -> Result<Self, Error> {
        let transaction = connection.unchecked_transaction()?;
        Ok(Self { connection: Source::Reading(transaction) })
    }

    pub(super) fn writing(connection: &'connection Connection) -> Self {
        Self { connection: Source::Writing(connection) }
    }

    /// The document with this identifier, if there is one of this kind.
    pub fn find<D: Document>(&self, id: &str) -> Result<Option<D>, Error> {
        let body = self.body(D::PREFIX, id)?;
        Ok(body.as_deref().map(serde_json::from_str).transpose()?)
    }

    /// True when a document of the kind that its prefix names has this identifier.
    pub fn exists(&self, id: &str) -> Result<bool, Error> {
        let kind = id.rsplit_once('_').map_or(id, |(prefix, _)| prefix);
        let mut query = self
            .connection
            .prepare_cached("SELECT 1 FROM resources WHERE kind = ?1 AND id = ?2")?;
        Ok(query.exists((kind, id))?)
    }

    /// At most `limit` documents, newest first, starting after the identifier `before`.
    pub fn page<D: Document>(&self, before: Option<&str>, limit: usize) -> Result<Vec<D>, Error> {
        let bodies = self.bodies(D::PREFIX, before, limit)?;
        bodies.iter().map(|body| Ok(serde_json::from_str(body)?)).collect()
    }

    /// Who refers to `id` in this role, newest first.
    pub fn referrers(&self, id: &str, role: &str) -> Result<Vec<String>, Error> {
        self.texts(
            "SELECT from_id FROM links WHERE to_id = ?1 AND role = ?2 ORDER BY from_id DESC",
            (id, role),
        )
    }

    /// What `id` refers to in this role.
    pub fn references(&self, id: &str, role: &str) -> Result<Vec<String>, Error> {
        self.texts("SELECT to_id FROM links WHERE from_id = ?1 AND role = ?2", (id, role))
    }

    /// Who holds a claim, if anyone does.
    pub fn claimant(&self, space: &str, key: &str) -> Result<Option<String>, Error> {
        let mut query = self
            .connection
            .prepare_cached("SELECT owner FROM claims WHERE space = ?1 AND key = ?2")?;
        Ok(query.query_row((space, key), |row| row.get(0)).optional()?)
    }

    /// How many claims a space holds.
    pub fn claims(&self, space: &str) -> Result<i64, Error> {
        let mut query =
            self.connection.prepare_cached("SELECT count(*) FROM claims WHERE space = ?1")?;
        Ok(query.query_row([space], |row| row.get(0))?)
    }

    /// What the token of an API key or credential is checked against.
    pub fn token(&self, id: &str) -> Result<Option<StoredToken>, Error> {
        let mut query =
            self.connection.prepare_cached("SELECT hash, owner_id FROM tokens WHERE id = ?1")?;
        let read =
            |row: &rusqlite::Row<'_>| Ok(StoredToken { hash: row.get(0)?, owner_id: row.get(1)? });
        Ok(query.query_row([id], read).optional()?)
    }

    /// A setting of the database itself.
    pub fn setting(&self, name: &str) -> Result<Option<String>, Error> {
        let mut query = self.connection.prepare_cached("SELECT value FROM meta WHERE name = ?1")?;
        Ok(query.query_row([name], |row| row.get(0)).optional()?)
    }

    fn body(&self, kind: &str, id: &str) -> Result<Option<String>, Error> {
        let mut query = self
            .connection
            .prepare_cached("SELECT body FROM resources WHERE kind = ?1 AND id = ?2")?;
        Ok(query.query_row((kind, id), |row| row.get(0)).optional()?)
    }

    fn bodies(&self, kind: &str, before: Option<&str>, limit: usize) -> Result<Vec<String>, Error> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        match before {
            Some(before) => self.texts(
                "SELECT body FROM resources WHERE kind = ?1 AND id < ?2 ORDER BY id DESC LIMIT ?3",
                (kind, before, limit),
            ),
            None => self.texts(
                "SELECT body FROM resources WHERE kind = ?1 ORDER BY id DESC LIMIT ?2",
                (kind, limit),
            ),
        }
    }

    fn texts(&self, sql: &str, parameters: impl rusqlite::Params) -> Result<Vec<String>, Error> {
        let mut query = self.connection.prepare_cached(sql)?;
        let rows = query.query_map(parameters, |row| row.get(0))?;
        Ok(rows.collect::<Result<_, _>>()?)
    }
}
