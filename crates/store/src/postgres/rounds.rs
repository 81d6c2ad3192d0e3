//! How many rounds of reads a change takes: for the tests of those who make changes.

use std::cell::RefCell;
use std::collections::HashSet;

use ginnel_api::id::Ids;

use super::committer::MAX_ROUNDS;
use super::overlay::{JobEnd, Overlay};
use super::writes::JobTables;
use crate::{StoreResult, Transaction};

/// How many rounds a change takes that finds nothing stored; none where it ends over the connection, one
/// statement after the other, while no other node can write.
pub fn count_rounds<T>(work: impl Fn(&Transaction<'_>) -> StoreResult<T>) -> Option<usize> {
    let (overlay, ids) = (RefCell::new(Overlay::default()), Ids::default());
    for round in 0..MAX_ROUNDS {
        overlay.borrow_mut().begin_job();
        let tables = JobTables::on_overlay(&overlay);
        let is_made = work(&Transaction::new(&tables, &ids)).is_ok();
        let mut unfetched = HashSet::new();
        match overlay.borrow_mut().end_job(is_made, &mut unfetched) {
            JobEnd::Done => return Some(round),
            JobEnd::NeedsQuery => return None,
            JobEnd::Unfetched => {}
        }
        let mut overlay = overlay.borrow_mut();
        unfetched.into_iter().for_each(|lookup| overlay.set_fetched(lookup, Vec::new()));
    }
    None
}
