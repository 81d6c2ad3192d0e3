//! Backends inside backends.

use std::collections::HashSet;

use ::ginnel_store as store;

use super::{CHILD, check_exists};
use crate::code::ErrorCode;
use crate::handlers::prelude::*;

/// How many children there may be (remote API sheet, sections 5 and 6).
const MAX_CHILDREN: usize = 32;

/// How many backends may stand one inside the other (remote API sheet, section 5).
const DEEPEST: usize = 8;

/// Refuses more children than a backend may have.
pub(super) fn check_count(count: usize, code: ErrorCode) -> Result<()> {
    if count <= MAX_CHILDREN {
        return Ok(());
    }
    Err(Refusal::new(code, format!("backends: has {count} entries, the limit is {MAX_CHILDREN}")))
}

/// Puts these backends into another.
pub(super) fn set_children<'c>(
    change: &Transaction<'_>,
    id: &str,
    children: impl Iterator<Item = &'c String> + Clone,
) -> Result<()> {
    for child in children.clone() {
        check_exists(change, "backends", child)?;
    }
    check_nesting(change, id, children.clone())?;
    change.replace_references(id, CHILD, children.map(String::as_str))?;
    Ok(())
}

/// Refuses children that would make `id` contain itself, or nest backends too deeply.
fn check_nesting<'c>(
    view: &View<'_>,
    id: &str,
    children: impl Iterator<Item = &'c String>,
) -> Result<()> {
    let cycle = || {
        let message = "backends: the backend would contain itself";
        Refusal::new(code::BACKEND_CYCLE, message)
    };
    let start: HashSet<String> = children.cloned().collect();
    if start.contains(id) {
        return Err(cycle());
    }
    let below = collect_levels(start, |inner| view.references(inner, CHILD))?;
    if below.iter().any(|level| level.contains(id)) {
        return Err(cycle());
    }
    let start = HashSet::from([id.to_owned()]);
    let above = collect_levels(start, |inner| view.referrers(inner, CHILD))?;
    if above.len() + below.len() > DEEPEST {
        let message = format!("backends: more than {DEEPEST} backends stand inside one another");
        return Err(Refusal::new(code::BACKEND_CYCLE, message));
    }
    Ok(())
}

/// The backends at each distance from `start`, `start` itself first. What is reached in several
/// ways is in several levels; there are at most one more of them than are allowed.
fn collect_levels(
    start: HashSet<String>,
    next: impl Fn(&str) -> store::StoreResult<Vec<String>>,
) -> Result<Vec<HashSet<String>>> {
    let mut levels = Vec::new();
    let mut level = start;
    while !level.is_empty() && levels.len() <= DEEPEST {
        let mut following = HashSet::new();
        for id in &level {
            following.extend(next(id)?);
        }
        levels.push(std::mem::replace(&mut level, following));
    }
    Ok(levels)
}
