//! What agents learn of a rule that acted on a request.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::HeaderValue;
use serde::Serialize;

use super::head_change::RuleNotePair;
use super::rule::Rule;

/// How long the JSON of one rule may be; a longer one goes without expressions and name.
const MAX_RULE_BYTES: usize = 1500;

/// A rule as the API of the agent shows it, where it is a `PolicyRule`.
#[derive(Serialize)]
struct RuleNote<'r> {
    module: &'r str,
    index: usize,
    #[serde(skip_serializing_if = "str::is_empty")]
    name: &'r str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    expressions: Vec<&'r str>,
    actions: Vec<&'static str>,
}

impl RuleNotePair {
    /// Of the rule with this number of a module.
    pub(super) fn from_rule(rule: &Rule, module: &str, index: usize) -> Self {
        let expressions = rule.expressions.iter().map(|it| it.source()).collect();
        Self {
            others: encode_note(rule, module, index, Vec::new()),
            owner: encode_note(rule, module, index, expressions),
        }
    }
}

fn encode_note(rule: &Rule, module: &str, index: usize, expressions: Vec<&str>) -> HeaderValue {
    let whole = RuleNote {
        module,
        index,
        name: &rule.name,
        expressions,
        actions: rule.actions.iter().map(|step| step.kind.name).collect(),
    };
    let mut json = note_json(&whole);
    if json.len() > MAX_RULE_BYTES {
        json = self::note_json(&RuleNote { name: "", expressions: Vec::new(), ..whole });
    }
    // The alphabet of base64 is allowed in any header.
    HeaderValue::try_from(STANDARD.encode(json)).unwrap_or(HeaderValue::from_static(""))
}

fn note_json(note: &RuleNote<'_>) -> Vec<u8> {
    // Texts and numbers always make JSON.
    serde_json::to_vec(note).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::{Policy, Scope};

    fn read(rule: Value) -> Value {
        let policy = Policy::compile(&json!({"inbound": [rule]}), Scope::HttpTunnel).unwrap();
        let notes = policy.request[0].notes("policy", 0);
        let [owner, mut others] = [true, false].map(|is_owner| {
            let note = STANDARD.decode(notes.for_agent(is_owner)).unwrap();
            serde_json::from_slice::<Value>(&note).unwrap()
        });
        assert_eq!(others.get("expressions"), None);
        if let Some(expressions) = owner.get("expressions") {
            others["expressions"] = expressions.clone();
            assert_eq!(others, owner);
        }
        owner
    }

    #[test]
    fn a_rule_says_its_name_its_expressions_and_its_actions() {
        let action = json!({"type": "add-headers", "config": {"headers": {"x": "1"}}});
        let (name, expressions) = ("é", ["req.method == 'GET'"]);

        let note = read(json!({"name": name, "expressions": expressions, "actions": [action]}));

        let (module, actions) = ("policy", ["add-headers"]);
        let expected = json!({"module": module, "index": 0, "name": name, "expressions": expressions,
            "actions": actions});
        assert_eq!(note, expected);
    }

    #[test]
    fn a_rule_that_is_long_leaves_out_what_is_long() {
        let action = json!({"type": "remove-headers", "config": {"headers": ["x"]}});
        let expression = format!("req.method == '{}'", "G".repeat(MAX_RULE_BYTES));

        let note = read(json!({"expressions": [expression], "actions": [action]}));

        assert_eq!(note, json!({"module": "policy", "index": 0, "actions": ["remove-headers"]}));
    }
}
