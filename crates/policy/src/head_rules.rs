//! Rules for requests that can be decided on a head alone, before there is a message to change.
//!
//! Most policies let most requests pass and add a header or two. For these the rules need no map of
//! headers and no exchange: their expressions read the head where it lies, and what they change is
//! lines. As soon as a rule matches that does anything else, [`Policy::start_phase`] decides on the request as
//! if nobody had looked before; nothing that counts or costs has happened until then.

use std::sync::Arc;

use http::HeaderName;
use http::header::{CONTENT_TYPE, COOKIE};

use ginnel_http1::is_same_for_cgi;

use super::action::ActionStep;
use super::document::Policy;
use super::expression::{Expression, FactRead};
use super::facts::{Message, TextFact};
use super::head_change::HeadChange;
use super::head_view::HeadView;
use super::rule::Rule;

/// The module whose rules these are: those of others want to see more than a head.
const MODULE: &str = "policy";

/// What the rules for requests do, one for one, where that can be told of each.
#[derive(Debug)]
pub(super) struct HeadRules(Vec<Option<Arc<HeadChange>>>);

impl HeadRules {
    /// Looks at rules; none where one of them wants to see more than a head.
    pub(super) fn from_rules(rules: &[Rule]) -> Option<Self> {
        let mut changed: Vec<HeaderName> = Vec::new();
        let mut changes = Vec::new();
        for rule in rules {
            let reads = |expression: &Expression| {
                expression
                    .fact_reads()
                    .is_some_and(|reads| reads.iter().all(|read| is_known(read, &changed)))
            };
            if !rule.expressions.iter().all(reads) {
                return None;
            }
            let change = change_of(&rule.actions);
            let is_clear = |change: &HeadChange| {
                !change.changed_names().any(|name| has_changed(name, &changed)) && !is_twice(change)
            };
            // Of a rule that always matches nothing is gained by looking first.
            if !change.as_ref().map_or(!rule.expressions.is_empty(), is_clear) {
                return None;
            }
            changed.extend(change.iter().flat_map(HeadChange::changed_names).cloned());
            changes.push(change.map(Arc::new));
        }
        Some(Self(changes))
    }
}

impl Policy {
    /// Whether the rules let a request pass that has this head, with some changes to it. False says
    /// nothing: only [`Policy::start_phase`] can tell then.
    pub fn passes_head(&self, head: &HeadView<'_>, changes: &mut Vec<Arc<HeadChange>>) -> bool {
        if !self.enabled {
            return true;
        }
        let Some(HeadRules(known)) = &self.head_rules else { return false };
        for (index, (rule, change)) in self.request.iter().zip(known).enumerate() {
            let matches = rule.expressions.iter().try_fold(true, |matches, expression| {
                Some(matches && expression.is_true_of(head)?)
            });
            match (matches, change) {
                (Some(false), _) => {}
                (Some(true), Some(change)) => {
                    change.notes.get_or_init(|| rule.notes(MODULE, index).clone());
                    changes.push(change.clone());
                }
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
        Some(changes.iter().flatten().flat_map(|change| change.changed_names()))
    }
}

/// Whether a head tells what an expression looks at, and no rule before may have changed it.
fn is_known(read: &FactRead<'_>, changed: &[HeaderName]) -> bool {
    match read {
        FactRead::Text(TextFact::RequestHeader(header)) => !has_changed(header.name(), changed),
        FactRead::Text(TextFact::RequestMediaType) => !has_changed(&CONTENT_TYPE, changed),
        FactRead::Text(fact) => fact.is_of_head(),
        FactRead::Number(fact) => fact.is_of_head(),
        FactRead::Header(message, name) => {
            *message == Message::Request && !has_changed(name, changed)
        }
        FactRead::Cookies => !has_changed(&COOKIE, changed),
        FactRead::Query => true,
    }
}

/// What actions change, where they do nothing else.
fn change_of(steps: &[ActionStep]) -> Option<HeadChange> {
    steps.iter().try_fold(HeadChange::default(), |mut whole, step| {
        let HeadChange { added, removed, .. } = step.action.head_change()?;
        whole.added.extend(added);
        whole.removed.extend(removed);
        Some(whole)
    })
}

/// Whether one change adds and removes the same field, so that the order of its actions matters.
fn is_twice(change: &HeadChange) -> bool {
    change.added.iter().any(|(name, _)| has_changed(name, &change.removed))
}

/// Returns true if a field was changed, in any spelling that a change covers.
fn has_changed(name: &HeaderName, changed: &[HeaderName]) -> bool {
    let name = name.as_str().as_bytes();
    changed.iter().any(|known| is_same_for_cgi(known.as_str().as_bytes(), name))
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use chrono::Utc;
    use serde_json::{Value, json};

    use super::*;
    use crate::{Scope, VisitorConnection};

    /// Whether a request for a path passes the rules, and what is added to it.
    fn passed(document: &Value, target: &str) -> Option<Vec<String>> {
        let policy = Policy::compile(document, Scope::HttpTunnel).unwrap();
        let address: SocketAddr = "192.0.2.1:1".parse().unwrap();
        let connection = VisitorConnection {
            client: address,
            server: address,
            region: String::new(),
            started: Utc::now(),
            tls: None,
            lookup: crate::AddressLookup::default(),
        };
        let head = HeadView {
            method: "GET",
            target,
            host: "a.test",
            scheme: "http",
            fields: &[],
            connection: &connection,
            client_ip: "192.0.2.1",
        };
        let mut changes = Vec::new();
        let passed = policy.passes_head(&head, &mut changes);
        let added =
            changes.iter().flat_map(|change| change.changed_names().map(ToString::to_string));
        passed.then(|| added.collect())
    }

    fn rule(expression: &str, kind: &str, config: &Value) -> Value {
        json!({"expressions": [expression], "actions": [{"type": kind, "config": config}]})
    }

    #[test]
    fn rules_that_match_change_the_head_or_leave_it_to_the_engine() {
        let add = rule("req.method == 'GET'", "add-headers", &json!({"headers": {"x-a": "1"}}));
        let deny = rule("req.url.path == '/closed'", "deny", &json!({}));
        let document = json!({"on_http_request": [add, deny]});

        assert_eq!(passed(&document, "/open"), Some(vec!["x-a".to_owned()]));
        assert_eq!(passed(&document, "/closed"), None);
        let failing = rule("req.headers['x-missing'][0] == 'b'", "deny", &json!({}));
        assert_eq!(
            passed(&json!({"on_http_request": [failing]}), "/"),
            None,
            "an expression fails"
        );
    }

    #[test]
    fn a_policy_that_is_switched_off_does_nothing() {
        let add = rule("true", "add-headers", &json!({"headers": {"x-a": "1"}}));
        let deny = json!({"actions": [{"type": "deny"}]});

        for rules in [json!([add]), json!([add, deny])] {
            let document = json!({"enabled": false, "on_http_request": rules});
            assert_eq!(passed(&document, "/"), Some(Vec::new()), "{document}");
        }
    }
}
