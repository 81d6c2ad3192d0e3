//! Reading documents, links and claims.

use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::StoreError;
use super::database::Database;

use crate::logging::or_debug;

/// How much a result may hold before it is compared with the size of the database.
const UNCHECKED_RESULT_BYTES: u64 = 1 << 20;
/// What a row takes in a file at least, apart from its values.
const MIN_ROW_BYTES: u64 = 4;

/// A resource as the store keeps it.
pub trait Document: Serialize + DeserializeOwned {
    /// The prefix of the identifiers; it names the kind of the document as well.
    const PREFIX: &'static str;

    /// The identifier; identifiers grow with time, so they are the order of creation.
    fn id(&self) -> &str;
}

/// One consistent state of the database.
pub struct View<'connection> {
    database: &'connection Database,
    /// True when the view has opened a transaction, which ends with it.
    reading: bool,
}

impl Drop for View<'_> {
    fn drop(&mut self) {
        if self.reading {
            // A transaction that only reads has nothing to lose.
            or_debug!(execute(self.database, "COMMIT"), "cannot end a read");
        }
    }
}

/// Runs a statement without parameters; it stays prepared.
pub(super) fn execute(database: &Database, sql: &str) -> Result<(), rusqlite::Error> {
    database.start_timeout();
    database.prepare_cached(sql)?.execute(()).map(drop)
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
    pub(super) fn reading(database: &'connection Database) -> Result<Self, StoreError> {
        execute(database, "BEGIN")?;
        Ok(Self { database, reading: true })
    }

    pub(super) fn writing(database: &'connection Database) -> Self {
        Self { database, reading: false }
    }

    /// The connection for one statement, whose time starts now.
    pub(super) fn connection(&self) -> &'connection Connection {
        self.database.start_timeout();
        self.database
    }

    /// The document with this identifier, if there is one of this kind.
    pub fn find<D: Document>(&self, id: &str) -> Result<Option<D>, StoreError> {
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
    pub fn exists(&self, id: &str) -> Result<bool, StoreError> {
        let kind = id.rsplit_once('_').map_or(id, |(prefix, _)| prefix);
        let mut query = self
            .connection()
            .prepare_cached("SELECT 1 FROM resources WHERE kind = ?1 AND id = ?2")?;
        Ok(query.exists((kind, id))?)
    }

    /// At most `limit` documents, newest first, starting after the identifier `before`.
    pub fn page<D: Document>(
        &self,
        before: Option<&str>,
        limit: usize,
    ) -> Result<Vec<D>, StoreError> {
        let mut found: Vec<D> = Vec::new();
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let mut keep = |body: &str| {
            let document: D = serde_json::from_str(body)?;
            // A damaged table may give the same rows for ever to whoever goes on after the last one.
            let last = found.last().map(D::id).or(before);
            if last.is_some_and(|last| document.id() >= last) {
                return Err(StoreError::Inconsistent("documents are out of order"));
            }
            found.push(document);
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
    pub fn referrers(&self, id: &str, role: &str) -> Result<Vec<String>, StoreError> {
        self.texts(
            "SELECT from_id FROM links WHERE to_id = ?1 AND role = ?2 ORDER BY from_id DESC",
            (id, role),
        )
    }

    /// What `id` refers to in this role.
    pub fn references(&self, id: &str, role: &str) -> Result<Vec<String>, StoreError> {
        self.texts("SELECT to_id FROM links WHERE from_id = ?1 AND role = ?2", (id, role))
    }

    /// Who holds a claim, if anyone does.
    pub fn claimant(&self, space: &str, key: &str) -> Result<Option<String>, StoreError> {
        let mut query = self
            .connection()
            .prepare_cached("SELECT owner FROM claims WHERE space = ?1 AND key = ?2")?;
        Ok(query.query_row((space, key), |row| row.get(0)).optional()?)
    }

    /// Who holds the claims whose keys start with `start`, which is not empty.
    pub fn claimants_below(&self, space: &str, start: &str) -> Result<Vec<String>, StoreError> {
        // No key of ours has a character beyond this one.
        let end = format!("{start}\u{10ffff}");
        self.texts(
            "SELECT DISTINCT owner FROM claims WHERE space = ?1 AND key >= ?2 AND key < ?3",
            (space, start, end),
        )
    }

    /// How many claims a space holds.
    pub fn claims(&self, space: &str) -> Result<i64, StoreError> {
        let mut query =
            self.connection().prepare_cached("SELECT count(*) FROM claims WHERE space = ?1")?;
        Ok(query.query_row([space], |row| row.get(0))?)
    }

    /// What the token of an API key or credential is checked against.
    pub fn token(&self, id: &str) -> Result<Option<StoredToken>, StoreError> {
        let mut query =
            self.connection().prepare_cached("SELECT hash, owner_id FROM tokens WHERE id = ?1")?;
        let read =
            |row: &rusqlite::Row<'_>| Ok(StoredToken { hash: row.get(0)?, owner_id: row.get(1)? });
        Ok(query.query_row([id], read).optional()?)
    }

    /// A setting of the database itself.
    pub fn setting(&self, name: &str) -> Result<Option<String>, StoreError> {
        let mut query =
            self.connection().prepare_cached("SELECT value FROM meta WHERE name = ?1")?;
        Ok(query.query_row([name], |row| row.get(0)).optional()?)
    }

    /// Hands over bodies where they lie, without a copy.
    fn bodies(
        &self,
        sql: &str,
        parameters: impl rusqlite::Params,
        keep: &mut dyn FnMut(&str) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let mut query = self.connection().prepare_cached(sql)?;
        let mut rows = query.query(parameters)?;
        while let Some(row) = rows.next()? {
            keep(row.get_ref(0)?.as_str().map_err(rusqlite::Error::from)?)?;
        }
        Ok(())
    }

    /// All rows of a table.
    pub(super) fn rows(&self, table: &str, columns: usize) -> Result<Vec<Vec<Value>>, StoreError> {
        let mut size = ResultSize::of(self);
        let mut query = self.connection().prepare(&format!("SELECT * FROM {table}"))?;
        let mut rows = query.query(())?;
        let mut found = Vec::new();
        while let Some(row) = rows.next()? {
            let row: Vec<Value> = (0..columns).map(|at| row.get(at)).collect::<Result<_, _>>()?;
            size.add(row.iter().map(bytes_of).sum())?;
            found.push(row);
        }
        Ok(found)
    }

    pub(super) fn texts(
        &self,
        sql: &str,
        parameters: impl rusqlite::Params,
    ) -> Result<Vec<String>, StoreError> {
        let mut size = ResultSize::of(self);
        let mut query = self.connection().prepare_cached(sql)?;
        let mut rows = query.query(parameters)?;
        let mut found = Vec::new();
        while let Some(row) = rows.next()? {
            let text: String = row.get(0)?;
            size.add(text.len())?;
            found.push(text);
        }
        Ok(found)
    }

    /// How many bytes the database has.
    fn size(&self) -> Result<u64, StoreError> {
        let number = |sql: &str| -> Result<i64, rusqlite::Error> {
            self.connection().prepare_cached(sql)?.query_row((), |row| row.get(0))
        };
        let size = number("PRAGMA page_count")?.saturating_mul(number("PRAGMA page_size")?);
        Ok(u64::try_from(size).unwrap_or(0))
    }
}

/// How much a result holds; a whole database never gives more than it has bytes.
struct ResultSize<'view> {
    view: &'view View<'view>,
    bytes: u64,
    /// How many bytes there may be; looked up again when there are more.
    limit: u64,
}

impl<'view> ResultSize<'view> {
    fn of(view: &'view View<'view>) -> Self {
        Self { view, bytes: 0, limit: UNCHECKED_RESULT_BYTES }
    }

    fn add(&mut self, bytes: usize) -> Result<(), StoreError> {
        self.bytes += bytes as u64 + MIN_ROW_BYTES;
        if self.bytes > self.limit {
            self.limit = self.view.size()?;
        }
        if self.bytes > self.limit {
            return Err(StoreError::Inconsistent(
                "a table has more rows than the file has room for",
            ));
        }
        Ok(())
    }
}

fn bytes_of(value: &Value) -> usize {
    match value {
        Value::Text(text) => text.len(),
        Value::Blob(bytes) => bytes.len(),
        Value::Null | Value::Integer(_) | Value::Real(_) => 0,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::super::StorageFault;
    use super::*;

    /// A table without an end, as a damaged one may be.
    const ENDLESS: &str = "WITH RECURSIVE endless (text) AS (
        SELECT 'once more' UNION ALL SELECT text FROM endless) SELECT text FROM endless";

    #[test]
    fn a_result_is_no_larger_than_the_database() {
        let database = Database::new(Connection::open_in_memory().unwrap()).unwrap();
        let view = View::reading(&database).unwrap();

        let found = view.texts(ENDLESS, ());

        assert!(matches!(found, Err(StoreError::Inconsistent(_))));
    }

    #[test]
    fn a_statement_ends_in_time() {
        let database = Database::new(Connection::open_in_memory().unwrap()).unwrap();
        database.expire();

        let counted = database.query_row(&format!("SELECT count(*) FROM ({ENDLESS})"), (), |row| {
            row.get::<_, i64>(0)
        });

        assert_eq!(StoreError::from(counted.unwrap_err()).fault(), Some(StorageFault::Timeout));
        let view = View::reading(&database).unwrap();
        assert_eq!(view.texts("SELECT 'in time'", ()).unwrap(), ["in time"]);
    }
}
