//! All documents of a kind.

use crate::service::store::{Document, StoreError, View};

/// How many documents are read at a time.
const PAGE: usize = 500;

/// Hands over all documents of a kind, newest first.
pub(super) fn each<D: Document>(
    view: &View<'_>,
    mut take: impl FnMut(D) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let mut before: Option<String> = None;
    loop {
        let page = view.page::<D>(before.as_deref(), PAGE)?;
        let is_last = page.len() < PAGE;
        before = page.last().map(|document| document.id().to_owned());
        page.into_iter().try_for_each(&mut take)?;
        if is_last {
            return Ok(());
        }
    }
}

/// Adds the identifiers of all documents of a kind, oldest first.
pub(super) fn all<D: Document>(view: &View<'_>, ids: &mut Vec<String>) -> Result<(), StoreError> {
    let first = ids.len();
    each(view, |document: D| {
        ids.push(document.id().to_owned());
        Ok(())
    })?;
    ids[first..].reverse();
    Ok(())
}
