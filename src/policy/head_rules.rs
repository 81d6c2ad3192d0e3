//! Rules for requests that can be decided on a head alone, before there is a message to change.
//!
//! Most policies let most requests pass and add a header or two. For these the rules need no map of
//! headers and no exchange: their expressions read the head where it lies, and what they change is
//! lines. As soon as a rule matches that does anything else, [`Policy::run`] decides on the request as
//! if nobody had looked before; nothing that counts or costs has happened until then.

use std::sync::Arc;

use http::HeaderName;
use http::header::COOKIE;

use super::action::ActionStep;
use super::document::Policy;
use super::expression::{Expression, FactRead};
use super::facts::{Message, TextFact};
use super::head_change::HeadChange;
use super::head_view::HeadView;
use super::rule::Rule;

/// What the rules for requests do, one for one, where that can be told of each.
#[derive(Debug)]
pub(super) struct HeadRules(Vec<Option<Arc<HeadChange>>>);

impl HeadRules {
    /// Looks at rules; none where one of them wants to see more than a head.
    pub(super) fn of(rules: &[Rule]) -> Option<Self> {
        let mut changed: Vec<HeaderName> = Vec::new();
        let mut changes = Vec::new();
        for rule in rules {
            let reads = |expression: &Expression| {
                expression
                    .reads()
                    .is_some_and(|reads| reads.iter().all(|read| is_known(read, &changed)))
            };
            if !rule.expressions.iter().all(reads) {
                return None;
            }
            let change = change_of(&rule.actions);
            let is_clear = |change: &HeadChange| {
                !change.names().any(|name| changed.contains(name)) && !is_twice(change)
            };
            // Of a rule that always matches nothing is gained by looking first.
            if !change.as_ref().map_or(!rule.expressions.is_empty(), is_clear) {
                return None;
            }
            changed.extend(change.iter().flat_map(HeadChange::names).cloned());
            changes.push(change.map(Arc::new));
        }
        Some(Self(changes))
    }
}

impl Policy {
    /// Whether the rules let a request pass that has this head, with some changes to it. False says
    /// nothing: only [`Policy::run`] can tell then.
    pub fn passes(&self, head: &HeadView<'_>, changes: &mut Vec<Arc<HeadChange>>) -> bool {
        let Some(HeadRules(known)) = &self.head_rules else { return false };
        for (rule, change) in self.request.iter().zip(known) {
            let matches = rule.expressions.iter().try_fold(true, |matches, expression| {
                Some(matches && expression.is_true_of(head)?)
            });
            match (matches, change) {
                (Some(false), _) => {}
                (Some(true), Some(change)) => changes.push(change.clone()),
                // An expression has failed, or there is more to do than to change a head.
                _ => return false,
            }
        }
        true
    }

    /// The names of fields that rules may change before a request has passed by its head; none where
    /// none ever does.
    pub fn head_changes(&self) -> Option<impl Iterator<Item = &HeaderName>> {
        let HeadRules(changes) = self.head_rules.as_ref()?;
        Some(changes.iter().flatten().flat_map(|change| change.names()))
    }
}

/// Whether a head tells what an expression looks at, and no rule before may have changed it.
fn is_known(read: &FactRead<'_>, changed: &[HeaderName]) -> bool {
    match read {
        FactRead::Text(TextFact::RequestHeader(header)) => !changed.contains(header.name()),
        FactRead::Text(fact) => fact.is_of_head(),
        FactRead::Number(fact) => fact.is_of_head(),
        FactRead::Header(message, name) => *message == Message::Request && !changed.contains(name),
        FactRead::Cookies => !changed.contains(&COOKIE),
        FactRead::Query => true,
    }
}

/// What actions change, where they do nothing else.
fn change_of(steps: &[ActionStep]) -> Option<HeadChange> {
    steps.iter().try_fold(HeadChange::default(), |mut whole, step| {
        let HeadChange { added, removed } = step.action.head_change()?;
        whole.added.extend(added);
        whole.removed.extend(removed);
        Some(whole)
    })
}

/// Whether one change adds and removes the same field, so that the order of its actions matters.
fn is_twice(change: &HeadChange) -> bool {
    change.added.iter().any(|(name, _)| change.removed.contains(name))
}
