//! Backends inside backends.

use std::collections::HashSet;

use super::CHILD;
use crate::service::store::{self, View};
use crate::service::{Refusal, code};

/// How many backends may stand one inside the other (remote API sheet, section 5).
const DEEPEST: usize = 8;

/// Refuses children that would make `id` contain itself, or nest backends too deeply.
pub(super) fn check_nesting(view: &View<'_>, id: &str, children: &[String]) -> Result<(), Refusal> {
    let cycle = || {
        let message = "backends: the backend would contain itself";
        Refusal::new(code::BACKEND_CYCLE, message)
    };
    if children.iter().any(|child| child == id) {
        return Err(cycle());
    }
    let start: HashSet<String> = children.iter().cloned().collect();
    let below = levels(start, |inner| view.references(inner, CHILD))?;
    if below.iter().any(|level| level.contains(id)) {
        return Err(cycle());
    }
    let start = HashSet::from([id.to_owned()]);
    let above = levels(start, |inner| view.referrers(inner, CHILD))?;
    if above.len() + below.len() > DEEPEST {
        let message = format!("backends: more than {DEEPEST} backends stand inside one another");
        return Err(Refusal::new(code::BACKEND_CYCLE, message));
    }
    Ok(())
}

/// The backends at each distance from `start`, `start` itself first. What is reached in several
/// ways is in several levels; there are at most one more of them than are allowed.
fn levels(
    start: HashSet<String>,
    next: impl Fn(&str) -> Result<Vec<String>, store::Error>,
) -> Result<Vec<HashSet<String>>, Refusal> {
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
