//! Writing documents, links and claims.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet};
use std::ops::Deref;

use ginnel_api::Timestamp;
use ginnel_api::id::Ids;

use super::tables::Param::{Bytes, Text};
use super::tables::WriteTables;
use super::{Document, DocumentChange, StoreError, StoreResult, View, schema};

/// One change in the making: all of it is kept or nothing.
pub struct Transaction<'connection> {
    view: View<'connection>,
    pub(super) tables: &'connection dyn WriteTables,
    pub(super) ids: &'connection Ids,
    /// The documents that were stored or removed.
    changed: RefCell<Vec<String>>,
    /// The identifiers of what is new.
    new_ids: RefCell<HashSet<String>>,
    /// What was stored of the documents that were removed.
    removed: RefCell<HashMap<String, String>>,
    /// Whether other nodes should hear of it at once.
    is_urgent: Cell<bool>,
}

impl<'connection> Deref for Transaction<'connection> {
    type Target = View<'connection>;

    fn deref(&self) -> &Self::Target {
        &self.view
    }
}

impl<'connection> Transaction<'connection> {
    pub(super) fn new(tables: &'connection dyn WriteTables, ids: &'connection Ids) -> Self {
        Self {
            view: View::from_tables(tables),
            tables,
            ids,
            changed: RefCell::default(),
            new_ids: RefCell::default(),
            removed: RefCell::default(),
            is_urgent: Cell::new(true),
        }
    }

    /// The identifiers of the documents that were stored or removed so far.
    pub fn changed_ids(&self) -> Vec<String> {
        self.changed.borrow().clone()
    }

    /// What became of these documents, each once and in the order in which they were first changed; without
    /// those that were made and removed again.
    pub fn document_changes(&self) -> Vec<DocumentChange> {
        let (changed, removed) = (self.changed.borrow(), self.removed.borrow());
        let new_ids = self.new_ids.borrow();
        let mut seen = HashSet::new();
        let once = changed.iter().filter(|id| seen.insert(id.as_str()));
        let of = |id: &String| match (new_ids.contains(id), removed.get(id)) {
            (true, Some(_)) => None,
            (true, None) => Some(DocumentChange::Created(id.clone())),
            (false, None) => Some(DocumentChange::Updated(id.clone())),
            (false, Some(body)) => {
                Some(DocumentChange::Removed { id: id.clone(), body: body.clone() })
            }
        };
        once.filter_map(of).collect()
    }

    /// The identifiers of the documents that were stored or removed.
    pub(super) fn into_changed(self) -> Vec<String> {
        self.changed.into_inner()
    }

    /// Has other nodes see this change when they next look, and not at once.
    pub fn defer_notice(&self) {
        self.is_urgent.set(false);
    }

    /// Whether other nodes should hear of it at once.
    pub(super) fn is_urgent(&self) -> bool {
        self.is_urgent.get()
    }

    /// Does something with each of many. An engine may end a change that reads what it has not fetched: this
    /// goes on with the others first, so that what they all read is fetched together.
    ///
    /// # Errors
    /// With the first failure.
    pub fn for_each<T>(
        &self,
        items: &[T],
        mut work: impl FnMut(&T) -> StoreResult<()>,
    ) -> StoreResult<()> {
        let mut is_unfetched = false;
        for item in items {
            match work(item) {
                Err(StoreError::Unfetched) => is_unfetched = true,
                done => done?,
            }
        }
        if is_unfetched { Err(StoreError::Unfetched) } else { Ok(()) }
    }

    /// A new identifier; larger than all before it, because writes happen one after the other.
    pub fn new_id(&self, prefix: &str) -> StoreResult<String> {
        let id = self.ids.next(prefix)?;
        self.tables.record_new_id(&id);
        self.new_ids.borrow_mut().insert(id.clone());
        Ok(id)
    }

    /// A new token for the owner of `id`.
    pub fn new_token(&self, id: &str) -> StoreResult<String> {
        Ok(self.ids.new_token(id)?)
    }

    /// What time it is.
    pub fn now(&self) -> Timestamp {
        self.ids.now()
    }

    /// Stores a document in place of the one with its identifier, if there is one.
    pub fn put_document<D: Document>(&self, document: &D) -> StoreResult<()> {
        self.put_document_quietly(document)?;
        self.removed.borrow_mut().remove(document.id());
        self.record_change(document.id());
        Ok(())
    }

    /// As [`Transaction::put_document`], without a notification: for what is changed often, and nobody remembers.
    pub fn put_document_quietly<D: Document>(&self, document: &D) -> StoreResult<()> {
        let body = serde_json::to_string(document)?;
        let row = [Text(D::PREFIX), Text(document.id()), Text(&body)];
        self.tables.put_row(&schema::RESOURCES, &row)
    }

    /// Removes a document with its links, claims and token; false when there was none.
    pub fn remove_document<D: Document>(&self, id: &str) -> StoreResult<bool> {
        let Some(body) = self.document_body(D::PREFIX, id)? else { return Ok(false) };
        self.removed.borrow_mut().insert(id.to_owned(), body);
        self.tables.delete_rows(
            &schema::RESOURCES,
            &["kind", "id"],
            &[Text(D::PREFIX), Text(id)],
        )?;
        self.tables.delete_rows(&schema::LINKS, &["from_id"], &[Text(id)])?;
        self.tables.delete_rows(&schema::CLAIMS, &["owner"], &[Text(id)])?;
        self.tables.delete_rows(&schema::TOKENS, &["id"], &[Text(id)])?;
        self.record_change(id);
        Ok(true)
    }

    /// Replaces what `from` refers to in this role.
    pub fn replace_references<'a>(
        &self,
        from: &str,
        role: &str,
        to: impl IntoIterator<Item = &'a str>,
    ) -> StoreResult<()> {
        self.tables.delete_rows(&schema::LINKS, &["from_id", "role"], &[Text(from), Text(role)])?;
        to.into_iter().try_for_each(|to| {
            self.tables.put_row(&schema::LINKS, &[Text(from), Text(role), Text(to)])
        })
    }

    /// Claims a key for `owner`; false when another holds it.
    pub fn claim_key(&self, space: &str, key: &str, owner: &str) -> StoreResult<bool> {
        if let Some(holder) = self.claimant(space, key)? {
            return Ok(holder == owner);
        }
        self.tables.put_row(&schema::CLAIMS, &[Text(space), Text(key), Text(owner)])?;
        Ok(true)
    }

    /// Claims a key that nobody else can hold, as one with the identifier of its owner in it. Nothing is read:
    /// the key of what is new is another one each time that a change is run again, so that an engine which
    /// fetches what a change has read in vain would never be done with it.
    pub fn claim_own(&self, space: &str, key: &str, owner: &str) -> StoreResult<()> {
        self.tables.put_row(&schema::CLAIMS, &[Text(space), Text(key), Text(owner)])
    }

    /// Gives up all claims of `owner` in a space.
    pub fn release_claims(&self, space: &str, owner: &str) -> StoreResult<()> {
        self.tables.delete_rows(&schema::CLAIMS, &["owner", "space"], &[Text(owner), Text(space)])
    }

    /// Stores what the token of an API key or credential is checked against.
    ///
    /// # Errors
    /// When there is one already, which stays.
    pub fn put_token(&self, id: &str, hash: &[u8], owner_id: &str) -> StoreResult<()> {
        if self.find_token(id)?.is_some() {
            return Err(StoreError::Duplicate("a token"));
        }
        // What it is of is new as well, though its identifier may come with a token that somebody has chosen.
        self.new_ids.borrow_mut().insert(id.to_owned());
        self.tables.put_row(&schema::TOKENS, &[Text(id), Bytes(hash), Text(owner_id)])
    }

    /// Stores a setting of the database itself.
    pub fn store_setting(&self, name: &str, value: &str) -> StoreResult<()> {
        self.tables.put_row(&schema::META, &[Text(name), Text(value)])
    }

    /// Notes that a document was stored or removed.
    pub(super) fn record_change(&self, id: &str) {
        self.changed.borrow_mut().push(id.to_owned());
    }
}
