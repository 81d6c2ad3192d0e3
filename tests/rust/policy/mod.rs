//! Traffic policy: each file in `tests/data/policy` is a case, and no input does harm.

mod generate;
mod harm;
mod nesting;
mod runs;

use ginnel_policy::actions::KINDS;
use ginnel_policy::{Phase, Policy, Problem, Scope};

use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

/// A document, what it is put on, and what is wrong with it.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    name: String,
    scope: String,
    document: Value,
    #[serde(default)]
    problems: Vec<Expected>,
    /// What comes, one after the other, and under `expect` what becomes of it.
    #[serde(default)]
    exchanges: Vec<Value>,
    /// The time of day when the first one comes.
    #[serde(default)]
    begin: Option<String>,
}

#[derive(Clone, Debug, Deserialize, PartialEq)]
struct Expected {
    code: u16,
    place: String,
}

impl Case {
    fn compile(&self) -> Result<Policy, Vec<Problem>> {
        let scope = match self.scope.as_str() {
            "https_route" => Scope::HttpsRoute,
            "http_tunnel" => Scope::HttpTunnel,
            "tcp_edge" => Scope::TcpEdge,
            "tcp_tunnel" => Scope::TcpTunnel,
            other => panic!("there is no scope {other}"),
        };
        Policy::compile(&self.document, scope)
    }
}

fn cases() -> Vec<(PathBuf, Case)> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/policy");
    let mut paths: Vec<_> = fs::read_dir(folder).unwrap().map(|it| it.unwrap().path()).collect();
    paths.sort();
    let read = |path: PathBuf| {
        let text = fs::read_to_string(&path).unwrap();
        let case = ginnel_api::yaml::read_yaml(&text).unwrap_or_else(|it| panic!("{path:?}: {it}"));
        (path, case)
    };
    paths.into_iter().map(read).collect()
}

#[test]
fn every_case_has_the_problems_it_names() {
    for (path, case) in cases() {
        let problems = case.compile().err().unwrap_or_default();
        let found: Vec<_> =
            problems.iter().map(|it| Expected { code: it.code, place: it.place.clone() }).collect();

        assert_eq!(found, case.problems, "{path:?}, {}: {problems:#?}", case.name);
    }
}

#[test]
fn a_case_is_named_after_its_code() {
    for (path, case) in cases() {
        let name = path.file_name().unwrap().to_str().unwrap();
        let kind = if case.exchanges.is_empty() { "valid" } else { "run" };
        let expected = case.problems.first().map_or(kind.to_owned(), |it| it.code.to_string());

        assert!(name.starts_with(&format!("{expected}_")), "{name}");
    }
}

#[test]
fn every_code_of_a_document_has_a_case() {
    let covered: BTreeSet<_> =
        cases().into_iter().flat_map(|(_, case)| case.problems).map(|it| it.code).collect();
    let expected = [359, 360]
        .into_iter()
        .chain(2200..=2219)
        .chain([2221, 2222, 2223, 2224, 2225, 2226, 2230, 2231, 2236, 2239, 2248])
        .chain([2250, 2252, 2255, 2261, 2264, 2265]);

    assert_eq!(covered, expected.collect());
}

#[test]
fn every_action_is_in_a_valid_case() {
    let text: String = cases()
        .iter()
        .filter(|(_, case)| case.problems.is_empty())
        .map(|(_, case)| case.document.to_string())
        .collect();
    let missing: Vec<_> = KINDS
        .iter()
        .map(|kind| kind.name)
        .filter(|name| !text.contains(&format!("\"type\":\"{name}\"")))
        .collect();

    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn messages_are_short_and_lower_case() {
    for problem in cases().iter().filter_map(|(_, case)| case.compile().err()).flatten() {
        let message = &problem.message;

        assert!(message.len() < 300, "{message}");
        assert!(!problem.to_string().contains(char::is_control), "{problem}");
        // Libraries look for the words of the vendor.
        if !message.starts_with("Invalid policy action type '") {
            let is_sentence = message.ends_with('.') || message.starts_with(char::is_uppercase);
            assert!(!is_sentence, "{message}");
        }
        assert_eq!(problem.to_string(), format!("{}: {message}", problem.place));
    }
}

#[test]
fn the_compiled_policy_knows_its_ip_policies_and_phases() {
    let document = json!({"enabled": false, "inbound": [{"actions": [
        {"type": "restrict-ips", "config": {"ip_policies": ["ipp_2TMvcPdBUHWIsFQvPU0GLEFHqwR"]}},
        {"type": "deny"},
    ]}]});

    let policy = Policy::compile(&document, Scope::TcpEdge).unwrap();

    assert_eq!(policy.ip_policy_ids().collect::<Vec<_>>(), ["ipp_2TMvcPdBUHWIsFQvPU0GLEFHqwR"]);
    assert!(!policy.enabled);
    assert_eq!(policy.rules(Phase::Connect)[0].actions[1].kind.name, "deny");
    assert!(policy.rules(Phase::Request).is_empty());
}
