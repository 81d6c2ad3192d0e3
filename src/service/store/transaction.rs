//! Writing documents, links and claims.

use std::cell::RefCell;
use std::ops::Deref;

use super::batch_error::BatchError;
use super::database::Database;
use super::{Document, StoreError, View};
use crate::api::Timestamp;
use crate::api::id::Ids;

/// One change in the making: all of it is kept or nothing.
pub struct Transaction<'connection> {
    view: View<'connection>,
    ids: &'connection Ids,
    /// The documents that were stored or removed.
    changed: RefCell<Vec<String>>,
    /// Why a statement failed, where the storage was the reason.
    failure: RefCell<Option<BatchError>>,
}

impl<'connection> Deref for Transaction<'connection> {
    type Target = View<'connection>;

    fn deref(&self) -> &Self::Target {
        &self.view
    }
}

impl<'connection> Transaction<'connection> {
    pub(super) fn new(database: &'connection Database, ids: &'connection Ids) -> Self {
        let (changed, failure) = (RefCell::default(), RefCell::default());
        Self { view: View::writing(database), ids, changed, failure }
    }

    /// The identifiers of the documents that were stored or removed so far.
    pub fn changed(&self) -> Vec<String> {
        self.changed.borrow().clone()
    }

    /// The identifiers of the documents that were stored or removed.
    pub(super) fn into_changed(self) -> Vec<String> {
        self.changed.into_inner()
    }

    /// Why a statement failed, where the storage was the reason.
    pub(super) fn into_failure(self) -> Option<BatchError> {
        self.failure.into_inner()
    }

    /// A new identifier; larger than all before it, because writes happen one after the other.
    pub fn new_id(&self, prefix: &str) -> Result<String, StoreError> {
        Ok(self.ids.next(prefix)?)
    }

    /// A new token for the owner of `id`.
    pub fn new_token(&self, id: &str) -> Result<String, StoreError> {
        Ok(self.ids.token(id)?)
    }

    /// What time it is.
    pub fn now(&self) -> Timestamp {
        self.ids.now()
    }

    /// Stores a document in place of the one with its identifier, if there is one.
    pub fn put<D: Document>(&self, document: &D) -> Result<(), StoreError> {
        let body = serde_json::to_string(document)?;
        self.execute(
            "INSERT INTO resources (kind, id, body) VALUES (?1, ?2, ?3)
             ON CONFLICT DO UPDATE SET body = excluded.body",
            (D::PREFIX, document.id(), body),
        )?;
        self.changed.borrow_mut().push(document.id().to_owned());
        Ok(())
    }

    /// Removes a document with its links, claims and token; false when there was none.
    pub fn remove<D: Document>(&self, id: &str) -> Result<bool, StoreError> {
        let found =
            self.execute("DELETE FROM resources WHERE kind = ?1 AND id = ?2", (D::PREFIX, id))?;
        if found == 0 {
            return Ok(false);
        }
        self.execute("DELETE FROM links WHERE from_id = ?1", [id])?;
        self.execute("DELETE FROM claims WHERE owner = ?1", [id])?;
        self.execute("DELETE FROM tokens WHERE id = ?1", [id])?;
        self.changed.borrow_mut().push(id.to_owned());
        Ok(true)
    }

    /// Replaces what `from` refers to in this role.
    pub fn link<'a>(
        &self,
        from: &str,
        role: &str,
        to: impl IntoIterator<Item = &'a str>,
    ) -> Result<(), StoreError> {
        self.execute("DELETE FROM links WHERE from_id = ?1 AND role = ?2", (from, role))?;
        for to in to {
            self.execute(
                "INSERT OR IGNORE INTO links (from_id, role, to_id) VALUES (?1, ?2, ?3)",
                (from, role, to),
            )?;
        }
        Ok(())
    }

    /// Claims a key for `owner`; false when another holds it.
    pub fn claim(&self, space: &str, key: &str, owner: &str) -> Result<bool, StoreError> {
        let made = self.execute(
            "INSERT OR IGNORE INTO claims (space, key, owner) VALUES (?1, ?2, ?3)",
            (space, key, owner),
        )?;
        Ok(made == 1 || self.claimant(space, key)?.as_deref() == Some(owner))
    }

    /// Gives up all claims of `owner` in a space.
    pub fn release(&self, space: &str, owner: &str) -> Result<(), StoreError> {
        self.execute("DELETE FROM claims WHERE owner = ?1 AND space = ?2", (owner, space))?;
        Ok(())
    }

    /// Stores what the token of an API key or credential is checked against.
    pub fn put_token(&self, id: &str, hash: &[u8], owner_id: &str) -> Result<(), StoreError> {
        self.execute(
            "INSERT INTO tokens (id, hash, owner_id) VALUES (?1, ?2, ?3)",
            (id, hash, owner_id),
        )?;
        Ok(())
    }

    /// Stores a setting of the database itself.
    pub fn set(&self, name: &str, value: &str) -> Result<(), StoreError> {
        self.execute(
            "INSERT INTO meta (name, value) VALUES (?1, ?2)
             ON CONFLICT DO UPDATE SET value = excluded.value",
            (name, value),
        )?;
        Ok(())
    }

    /// Notes that a document was stored or removed.
    pub(super) fn note_change(&self, id: &str) {
        self.changed.borrow_mut().push(id.to_owned());
    }

    pub(super) fn execute(
        &self,
        sql: &str,
        parameters: impl rusqlite::Params,
    ) -> Result<usize, StoreError> {
        let done = self.connection().prepare_cached(sql).and_then(|mut it| it.execute(parameters));
        done.map_err(StoreError::from).inspect_err(|error| self.note_failure(error))
    }

    fn note_failure(&self, error: &StoreError) {
        if let Some(fault) = error.fault() {
            let problem = error.to_string();
            self.failure.replace(Some(BatchError { fault: Some(fault), problem, file: None }));
        }
    }
}
