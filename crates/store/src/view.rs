//! Reading documents, links and claims.

use std::collections::{BTreeSet, HashMap};

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::schema::Table;
use super::select::{self, Select};
use super::tables::{Keep, Param, ReadTables, Value};
use super::{StoreError, StoreResult};
use Param::{Integer, Text};

/// How many documents one statement looks up.
const MAX_FOUND_AT_ONCE: usize = 50;
/// How many documents one statement reads where all of a kind are read.
const PAGE_SIZE: usize = 500;

/// A resource as the store keeps it.
pub trait Document: Serialize + DeserializeOwned {
    /// The prefix of the identifiers; it names the kind of the document as well.
    const PREFIX: &'static str;

    /// The identifier; identifiers grow with time, so they are the order of creation.
    fn id(&self) -> &str;
}

/// One consistent state of the database.
pub struct View<'connection> {
    tables: &'connection dyn ReadTables,
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
    pub(super) fn from_tables(tables: &'connection dyn ReadTables) -> Self {
        Self { tables }
    }

    /// The document with this identifier, if there is one of this kind.
    pub fn find_document<D: Document>(&self, id: &str) -> StoreResult<Option<D>> {
        let mut found = None;
        self.select_rows(&select::DOCUMENT, &[Text(D::PREFIX), Text(id)], &mut |row| {
            found = Some(serde_json::from_str(row.text(0)?)?);
            Ok(())
        })?;
        Ok(found)
    }

    /// The documents with these identifiers, in no order; those that there are.
    pub fn find_documents<D: Document>(&self, ids: &[String]) -> StoreResult<Vec<D>> {
        let mut found = Vec::new();
        let sql = "SELECT body FROM resources WHERE kind = ?1 AND id";
        self.query_in(sql, &[Text(D::PREFIX)], ids, &mut |row| {
            found.push(serde_json::from_str(row.text(0)?)?);
            Ok(())
        })?;
        Ok(found)
    }

    /// Runs a query whose text ends with a column, for the rows where that is one of `ids`.
    fn query_in(
        &self,
        sql: &str,
        first: &[Param<'_>],
        ids: &[String],
        keep: Keep<'_>,
    ) -> StoreResult<()> {
        // As many places as there may be, so that there is one statement to prepare.
        let places = (0..MAX_FOUND_AT_ONCE).map(|at| format!("?{}", first.len() + at + 1));
        let sql = format!("{sql} IN ({})", places.collect::<Vec<_>>().join(", "));
        for chunk in ids.chunks(MAX_FOUND_AT_ONCE) {
            let missing = std::iter::repeat_n(Text(""), MAX_FOUND_AT_ONCE - chunk.len());
            let values = first.iter().copied().chain(chunk.iter().map(|id| Text(id)));
            self.query_rows(&sql, &values.chain(missing).collect::<Vec<_>>(), keep)?;
        }
        Ok(())
    }

    /// True when a document of the kind that its prefix names has this identifier.
    pub fn exists(&self, id: &str) -> StoreResult<bool> {
        let kind = id.rsplit_once('_').map_or(id, |(prefix, _)| prefix);
        self.has_document(kind, id)
    }

    /// At most `limit` documents, newest first, starting after the identifier `before`.
    pub fn document_page<D: Document>(
        &self,
        before: Option<&str>,
        limit: usize,
    ) -> StoreResult<Vec<D>> {
        let mut found: Vec<D> = Vec::new();
        let limit = Integer(i64::try_from(limit).unwrap_or(i64::MAX));
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
            Some(before) => self.query_rows(
                "SELECT body FROM resources WHERE kind = ?1 AND id < ?2 ORDER BY id DESC LIMIT ?3",
                &[Text(D::PREFIX), Text(before), limit],
                &mut |row| keep(row.text(0)?),
            ),
            None => self.query_rows(
                "SELECT body FROM resources WHERE kind = ?1 ORDER BY id DESC LIMIT ?2",
                &[Text(D::PREFIX), limit],
                &mut |row| keep(row.text(0)?),
            ),
        }?;
        Ok(found)
    }

    /// Hands over all documents of a kind, newest first.
    pub fn for_each_document<D: Document>(
        &self,
        mut take: impl FnMut(D) -> StoreResult<()>,
    ) -> StoreResult<()> {
        let mut before: Option<String> = None;
        loop {
            let page = self.document_page::<D>(before.as_deref(), PAGE_SIZE)?;
            let is_last = page.len() < PAGE_SIZE;
            before = page.last().map(|document| document.id().to_owned());
            page.into_iter().try_for_each(&mut take)?;
            if is_last {
                return Ok(());
            }
        }
    }

    /// All documents of a kind, newest first.
    pub fn all_documents<D: Document>(&self) -> StoreResult<Vec<D>> {
        let mut all = Vec::new();
        self.for_each_document(|document| {
            all.push(document);
            Ok(())
        })?;
        Ok(all)
    }

    /// Who refers to `id` in this role, newest first.
    pub fn referrers(&self, id: &str, role: &str) -> StoreResult<Vec<String>> {
        self.select_texts(&select::REFERRERS, &[Text(id), Text(role)])
    }

    /// What `id` refers to in this role.
    pub fn references(&self, id: &str, role: &str) -> StoreResult<Vec<String>> {
        self.select_texts(&select::REFERENCES, &[Text(id), Text(role)])
    }

    /// What those refer to in the role `of_role` who refer to `id` in `role`, each once: one statement where
    /// each is a round trip.
    pub fn references_of_referrers(
        &self,
        id: &str,
        role: &str,
        of_role: &str,
    ) -> StoreResult<BTreeSet<String>> {
        let mut found = BTreeSet::new();
        if self.tables.answers_queries() {
            let sql = "SELECT DISTINCT other.to_id FROM links own
                       JOIN links other ON other.from_id = own.from_id AND other.role = ?3
                       WHERE own.to_id = ?1 AND own.role = ?2";
            self.query_rows(sql, &[Text(id), Text(role), Text(of_role)], &mut |row| {
                found.insert(row.text(0)?.to_owned());
                Ok(())
            })?;
            return Ok(found);
        }
        let mut is_unfetched = false;
        for referrer in self.referrers(id, role)? {
            match self.references(&referrer, of_role) {
                // What all of them refer to is fetched together.
                Err(StoreError::Unfetched) => is_unfetched = true,
                references => found.extend(references?),
            }
        }
        if is_unfetched { Err(StoreError::Unfetched) } else { Ok(found) }
    }

    /// Who holds a claim, if anyone does.
    pub fn claimant(&self, space: &str, key: &str) -> StoreResult<Option<String>> {
        Ok(self.select_texts(&select::CLAIMANT, &[Text(space), Text(key)])?.pop())
    }

    /// Who holds the claims whose keys start with `start`, which is not empty.
    pub fn claimants_below(&self, space: &str, start: &str) -> StoreResult<Vec<String>> {
        // No key of ours has a character beyond this one.
        let end = format!("{start}\u{10ffff}");
        let values = [Text(space), Text(start), Text(&end)];
        let mut owners = self.select_texts(&select::CLAIMANTS_IN_RANGE, &values)?;
        owners.sort();
        owners.dedup();
        Ok(owners)
    }

    /// The keys of the claims before `end`, smallest first.
    pub fn claimed_before(&self, space: &str, end: &str) -> StoreResult<Vec<String>> {
        let mut keys =
            self.select_texts(&select::CLAIMED_IN_RANGE, &[Text(space), Text(""), Text(end)])?;
        keys.sort();
        Ok(keys)
    }

    /// How many claims a space holds.
    pub fn count_claims(&self, space: &str) -> StoreResult<i64> {
        let mut count = 0;
        self.select_rows(&select::CLAIMS, &[Text(space)], &mut |_| {
            count += 1;
            Ok(())
        })?;
        Ok(count)
    }

    /// What the token of an API key or credential is checked against.
    pub fn find_token(&self, id: &str) -> StoreResult<Option<StoredToken>> {
        let mut found = None;
        self.select_rows(&select::TOKEN, &[Text(id)], &mut |row| {
            let (hash, owner_id) = (row.bytes(0)?.to_owned(), row.text(1)?.to_owned());
            found = Some(StoredToken { hash, owner_id });
            Ok(())
        })?;
        Ok(found)
    }

    /// The same of many, by their identifiers; of those that there are.
    pub fn find_tokens(&self, ids: &[String]) -> StoreResult<HashMap<String, StoredToken>> {
        let mut found = HashMap::new();
        let sql = "SELECT id, hash, owner_id FROM tokens WHERE id";
        self.query_in(sql, &[], ids, &mut |row| {
            let (hash, owner_id) = (row.bytes(1)?.to_owned(), row.text(2)?.to_owned());
            found.insert(row.text(0)?.to_owned(), StoredToken { hash, owner_id });
            Ok(())
        })?;
        Ok(found)
    }

    /// A setting of the database itself.
    pub fn find_setting(&self, name: &str) -> StoreResult<Option<String>> {
        Ok(self.select_texts(&select::SETTING, &[Text(name)])?.pop())
    }

    /// What is stored of the document of this kind with this identifier, if there is one.
    pub fn document_body(&self, kind: &str, id: &str) -> StoreResult<Option<String>> {
        Ok(self.select_texts(&select::DOCUMENT, &[Text(kind), Text(id)])?.pop())
    }

    /// True when there is a document of this kind with this identifier.
    pub(super) fn has_document(&self, kind: &str, id: &str) -> StoreResult<bool> {
        let mut found = false;
        self.select_rows(&select::DOCUMENT, &[Text(kind), Text(id)], &mut |_| {
            found = true;
            Ok(())
        })?;
        Ok(found)
    }

    /// All rows of a table.
    pub(super) fn table_rows(&self, table: &Table) -> StoreResult<Vec<Vec<Value>>> {
        let columns = table.column_names().collect::<Vec<_>>();
        let sql = format!("SELECT {} FROM {}", columns.join(", "), table.name);
        let mut found = Vec::new();
        self.query_rows(&sql, &[], &mut |row| {
            let values = (0..columns.len()).filter_map(|at| row.value(at).transpose());
            found.push(values.collect::<Result<_, _>>()?);
            Ok(())
        })?;
        Ok(found)
    }

    pub(super) fn query_rows(
        &self,
        sql: &str,
        values: &[Param<'_>],
        keep: Keep<'_>,
    ) -> StoreResult<()> {
        self.tables.query_rows(sql, values, keep)
    }

    fn select_rows(
        &self,
        select: &'static Select,
        values: &[Param<'_>],
        keep: Keep<'_>,
    ) -> StoreResult<()> {
        self.tables.select_rows(select, values, keep)
    }

    /// The first column of the rows.
    pub(super) fn select_texts(
        &self,
        select: &'static Select,
        values: &[Param<'_>],
    ) -> StoreResult<Vec<String>> {
        let mut found = Vec::new();
        self.select_rows(select, values, &mut |row| {
            found.push(row.text(0)?.to_owned());
            Ok(())
        })?;
        Ok(found)
    }
}
