//! Traffic policies that are written in the console: what is wrong with them, line by line, and what they
//! would do with a request.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use ginnel_api::id::{has_prefix, is_id, prefix};
use ginnel_api::remote::ip_policy_rules::IpPolicyRule;
use ginnel_api::yaml_tree::{TextPlace, YamlNode, YamlValue, read_tree};
use ginnel_policy::trial::{Ranges, Report, Traffic, Trial};
use ginnel_policy::{self as policy, Problem, Protocol};

use crate::context::Context;
use crate::references::POLICY_OF_RULE;
use crate::{Refusal, Result, code};

/// What is to be checked.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PolicyDraft {
    /// The document, in JSON or YAML.
    document: String,
    /// What the edge speaks: `https` or `tcp`.
    protocol: String,
    /// A request to try it with.
    traffic: Option<Traffic>,
}

/// What is wrong with a draft, or what it does.
#[derive(Debug, Serialize)]
pub(super) struct CheckedDraft {
    problems: Vec<PlacedProblem>,
    /// The document as the module of an edge stores it, where nothing is wrong with it.
    document: Option<Value>,
    /// What became of the request.
    report: Option<Report>,
    /// What is wrong with the request.
    traffic_problem: Option<String>,
}

/// A problem and where it is in the text; both count from 1.
#[derive(Debug, Serialize)]
struct PlacedProblem {
    #[serde(flatten)]
    problem: Problem,
    line: Option<u64>,
    column: Option<u64>,
}

impl PolicyDraft {
    /// Reads the body of a request.
    pub fn from_body(body: &[u8]) -> Result<Self> {
        let invalid =
            |error: serde_json::Error| Refusal::new(code::INVALID_VALUE, error.to_string());
        serde_json::from_slice(body).map_err(invalid)
    }

    /// Checks it, and tries it.
    pub async fn check_and_simulate(mut self, service: Context) -> Result<CheckedDraft> {
        let protocol = self.protocol.parse::<Protocol>().map_err(|()| {
            let message =
                format!("protocol: {:?} is not one of http, https, tcp, tls", self.protocol);
            Refusal::new(code::INVALID_VALUE, message)
        })?;
        let document = policy::read_document(&self.document).ok();
        if let (Some(traffic), Some(document)) = (&mut self.traffic, &document) {
            traffic.ip_policies = rules_of(&service, document).await?;
        }
        // Large documents take a while.
        let checked =
            ginnel_base::tasks::spawn_blocking(move || self.run_checks(protocol, document)).await;
        checked.map_err(|_| Refusal::new(code::UNEXPECTED, "the policy could not be checked"))
    }

    fn run_checks(self, protocol: Protocol, document: Option<Value>) -> CheckedDraft {
        let mut checked = CheckedDraft {
            problems: Vec::new(),
            document: None,
            report: None,
            traffic_problem: None,
        };
        match Trial::parse(&self.document, protocol, Some(true), None) {
            Ok(mut trial) => {
                checked.document = document.map(policy::as_edge_module);
                match self.traffic.map(|traffic| trial.simulate_traffic(&traffic)).transpose() {
                    Ok(report) => checked.report = report,
                    Err(problem) => checked.traffic_problem = Some(problem.to_string()),
                }
            }
            Err(problems) => checked.problems = locate_problems(&self.document, problems),
        }
        checked
    }
}

/// The rules of the IP policies that a document names.
async fn rules_of(service: &Context, document: &Value) -> Result<BTreeMap<String, Ranges>> {
    let mut ids = BTreeSet::new();
    collect_ip_policies(document, &mut ids);
    let read = service.read(move |view| {
        let mut rules = Vec::new();
        for id in ids {
            let stored: Vec<IpPolicyRule> =
                view.find_documents(&view.referrers(&id, POLICY_OF_RULE)?)?;
            rules.push((id, to_ranges(stored)));
        }
        Ok(rules)
    });
    Ok(read.await?.into_iter().collect())
}

fn to_ranges(rules: Vec<IpPolicyRule>) -> Ranges {
    let mut ranges = Ranges::default();
    for rule in rules {
        let list = match rule.action.as_deref() {
            Some("allow") => &mut ranges.allow,
            _ => &mut ranges.deny,
        };
        list.extend(rule.cidr);
    }
    ranges
}

fn collect_ip_policies(value: &Value, ids: &mut BTreeSet<String>) {
    match value {
        Value::String(text) if is_id(text) && has_prefix(text, prefix::IP_POLICY) => {
            ids.insert(text.clone());
        }
        Value::Array(items) => items.iter().for_each(|item| collect_ip_policies(item, ids)),
        Value::Object(fields) => fields.values().for_each(|item| collect_ip_policies(item, ids)),
        _ => {}
    }
}

/// Finds the lines of problems.
fn locate_problems(text: &str, problems: Vec<Problem>) -> Vec<PlacedProblem> {
    let tree = read_tree(text);
    let place_of = |problem: &Problem| match &tree {
        Ok(root) => Some(find_place(root, &problem.place)),
        Err(error) => error.place,
    };
    let place = |problem: Problem| {
        let place = place_of(&problem).filter(|place| place.line > 0);
        let (line, column) = (place.map(|place| place.line), place.map(|place| place.column));
        PlacedProblem { problem, line, column }
    };
    problems.into_iter().map(place).collect()
}

/// Where a place such as `inbound[0].actions[1].type` stands, or the nearest above it that is there.
fn find_place(root: &YamlNode, path: &str) -> TextPlace {
    let (mut node, mut place) = (root, root.place);
    for step in path.split(['.', '[']).filter(|step| !step.is_empty()) {
        let (found, at) = match (&node.value, step.strip_suffix(']')) {
            (YamlValue::List(items), Some(index)) => {
                let item = index.parse::<usize>().ok().and_then(|index| items.get(index));
                (item, item.map(|item| item.place))
            }
            (YamlValue::Map(entries), None) => {
                let entry = entries.iter().find(|(key, _)| key.name == step);
                (entry.map(|(_, value)| value), entry.map(|(key, _)| key.place))
            }
            _ => (None, None),
        };
        let (Some(found), Some(at)) = (found, at) else { break };
        (node, place) = (found, at);
    }
    place
}

#[cfg(test)]
mod tests {
    use super::*;

    const DRAFT: &str = "\
inbound:
  - name: bots
    expressions: [\"req.nothing == 1\"]
    actions:
      - type: deny
        config:
          status_code: 99
";

    fn checked(document: &str, traffic: Value) -> CheckedDraft {
        let body = serde_json::json!({
            "document": document, "protocol": "https", "traffic": traffic,
        });
        let draft = PolicyDraft::from_body(body.to_string().as_bytes()).unwrap();
        let parsed = policy::read_document(document).ok();
        draft.run_checks(Protocol::Http, parsed)
    }

    #[test]
    fn each_problem_has_its_line() {
        let checked = checked(DRAFT, Value::Null);

        let lines: Vec<_> =
            checked.problems.iter().map(|it| (it.problem.place.as_str(), it.line)).collect();
        assert_eq!(
            lines,
            [
                ("inbound[0].expressions[0]", Some(3)),
                ("inbound[0].actions[0].config.status_code", Some(7))
            ]
        );
        assert_eq!(checked.document, None);
    }

    #[test]
    fn a_text_that_is_no_document_has_a_place_as_well() {
        let checked = checked("inbound:\n  - [", Value::Null);

        assert_eq!(checked.problems.len(), 1);
        assert!(checked.problems[0].line.is_some_and(|line| line >= 2), "{checked:?}");
    }

    #[test]
    fn a_request_is_decided_by_a_rule() {
        let draft = DRAFT.replace("req.nothing == 1", "req.method == 'DELETE'");
        let draft = draft.replace("99", "403");

        let checked = checked(&draft, serde_json::json!({"request": {"method": "DELETE"}}));

        let report = checked.report.unwrap();
        assert_eq!(report.decision.map(|it| (it.name, it.action)), Some(("bots".into(), "deny")));
        assert_eq!(report.response.map(|response| response.status), Some(403));
        assert!(checked.document.is_some_and(|document| document["inbound"].is_array()));
    }

    #[test]
    fn each_spelling_of_a_document_is_stored_as_its_module_has_it() {
        let rule = |name: &str, expressions: &str, actions: &str, kind: &str| {
            serde_json::json!([{name: "bots", expressions: ["true"], actions: [
                {kind: "custom-response", "config": {"StatusCode": 403}}]}])
        };
        let stored = rule("name", "expressions", "actions", "type");
        for (spelled, phase) in [
            ("inbound", "inbound"),
            ("Outbound", "outbound"),
            ("on_http_request", "inbound"),
            ("OnHttpRequest", "inbound"),
            ("on_http_response", "outbound"),
            ("OnHTTPResponse", "outbound"),
        ] {
            let draft = serde_json::json!({
                "Enabled": false, spelled: rule("Name", "Expressions", "Actions", "Type"),
            });

            let checked = checked(&draft.to_string(), Value::Null);

            let expected = serde_json::json!({"enabled": false, phase: stored});
            assert_eq!(checked.document, Some(expected), "{spelled}: {:?}", checked.problems);
        }
    }

    #[test]
    fn what_an_edge_cannot_have_is_refused_before_it_is_stored() {
        for (protocol, phase) in [
            (Protocol::Http, "on_tcp_connect"),
            (Protocol::Tcp, "on_http_request"),
            (Protocol::Http, "on_event_stream_message"),
        ] {
            let text = format!("{phase}:\n  - actions:\n      - type: deny\n");
            let body = serde_json::json!({"document": text, "protocol": "https", "traffic": null});
            let draft = PolicyDraft::from_body(body.to_string().as_bytes()).unwrap();

            let checked = draft.run_checks(protocol, policy::read_document(&text).ok());

            assert!(!checked.problems.is_empty() && checked.document.is_none(), "{phase}");
        }
    }

    #[test]
    fn a_request_that_is_none_is_explained() {
        let draft = "{\"inbound\": []}";

        let checked = checked(draft, serde_json::json!({"request": {"method": "GET IT"}}));

        assert!(checked.traffic_problem.is_some_and(|problem| problem.contains("GET IT")));
    }
}
