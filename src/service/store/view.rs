//! Reading documents, links and claims.

use rusqlite::types::Value;
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
    connection: &'connection Connection,
    /// True when the view has opened a transaction, which ends with it.
    reading: bool,
}

impl Drop for View<'_> {
    fn drop(&mut self) {
        if self.reading {
            // A transaction that only reads has nothing to lose.
            let _ = execute(self.connection, "COMMIT");
        }
    }
}

/// Runs a statement without parameters; it stays prepared.
pub(super) fn execute(connection: &Connection, sql: &str) -> Result<(), rusqlite::Error> {
    connection.prepare_cached(sql)?.execute(()).map(drop)
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
        execute(connection, "BEGIN")?;
        Ok(Self { connection, reading: true })
    }

    pub(super) fn writing(connection: &'connection Connection) -> Self {
        Self { connection, reading: false }
    }

    /// The document with this identifier, if there is one of this kind.
    pub fn find<D: Document>(&self, id: &str) -> Result<Option<D>, Error> {
        let mut found = None;
        self.bodies(
            "SELECT body FROM resources WHERE kind = ?1 AND id = ?2",
            (D::PREFIX, id),
            &mut |body| {
                found = Some(serde_json::from_str(body)?);
                Ok(())
            },
        )?;
        Ok(found)
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
        let mut found = Vec::new();
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let mut keep = |body: &str| {
            found.push(serde_json::from_str(body)?);
            Ok(())
        };
        match before {
            Some(before) => self.bodies(
                "SELECT body FROM resources WHERE kind = ?1 AND id < ?2 ORDER BY id DESC LIMIT ?3",
                (D::PREFIX, before, limit),
                &mut keep,
            ),
            None => self.bodies(
                "SELECT body FROM resources WHERE kind = ?1 ORDER BY id DESC LIMIT ?2",
                (D::PREFIX, limit),
                &mut keep,
            ),
        }?;
        Ok(found)
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

    /// Hands over bodies where they lie, without a copy.
    fn bodies(
        &self,
        sql: &str,
        parameters: impl rusqlite::Params,
        keep: &mut dyn FnMut(&str) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut query = self.connection.prepare_cached(sql)?;
        let mut rows = query.query(parameters)?;
        while let Some(row) = rows.next()? {
            keep(row.get_ref(0)?.as_str().map_err(rusqlite::Error::from)?)?;
        }
        Ok(())
    }

    /// All rows of a table.
    pub(super) fn rows(&self, table: &str, columns: usize) -> Result<Vec<Vec<Value>>, Error> {
        let mut query = self.connection.prepare(&format!("SELECT * FROM {table}"))?;
        let read = |row: &rusqlite::Row<'_>| (0..columns).map(|at| row.get(at)).collect();
        let rows = query.query_map((), read)?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    fn texts(&self, sql: &str, parameters: impl rusqlite::Params) -> Result<Vec<String>, Error> {
        let mut query = self.connection.prepare_cached(sql)?;
        let rows = query.query_map(parameters, |row| row.get(0))?;
        Ok(rows.collect::<Result<_, _>>()?)
    }
}
