//! What policies do with traffic: the cases with exchanges.

use std::collections::BTreeSet;

use ginnel_policy::actions::KINDS;
use ginnel_policy::trial::{Report, Traffic, Trial};

use serde_json::{Map, Value, json};

use super::{Case, cases};

#[test]
fn every_exchange_ends_as_its_case_says() {
    let mut failures = Vec::new();
    for (path, case) in cases().into_iter().filter(|(_, case)| !case.exchanges.is_empty()) {
        let file = path.file_name().unwrap().to_str().unwrap().to_owned();
        for (index, difference) in run(&case) {
            failures.push(format!("{file}, exchange {index}: {difference}"));
        }
    }

    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn every_action_is_run_by_a_case() {
    let mut run = BTreeSet::new();
    for (_, case) in cases().into_iter().filter(|(_, case)| !case.exchanges.is_empty()) {
        let mut trial = trial(&case);
        for exchange in &case.exchanges {
            let report = trial.simulate_traffic(&traffic(exchange)).unwrap();
            run.extend(report.rules.iter().flat_map(|rule| &rule.actions).map(|it| it.r#type));
        }
    }

    assert_eq!(run, KINDS.iter().map(|kind| kind.name).collect());
}

/// The differences of a case, by exchange.
fn run(case: &Case) -> Vec<(usize, String)> {
    let mut trial = trial(case);
    let mut differences = Vec::new();
    for (index, exchange) in case.exchanges.iter().enumerate() {
        let report = trial.simulate_traffic(&traffic(exchange)).unwrap();
        let found = readable(&report);
        let mut found_here = Vec::new();
        compare("", &found, &exchange["expect"], &mut found_here);
        differences.extend(found_here.into_iter().map(|it| (index, it)));
    }
    differences
}

fn trial(case: &Case) -> Trial {
    let policy = case.compile().unwrap_or_else(|it| panic!("{}: {it:#?}", case.name));
    Trial::new(policy, case.begin.as_ref().map(|begin| begin.parse().unwrap()))
}

fn traffic(exchange: &Value) -> Traffic {
    let mut fields = exchange.as_object().unwrap().clone();
    assert!(fields.remove("expect").is_some(), "nothing is expected of {exchange}");
    serde_json::from_value(Value::Object(fields)).unwrap()
}

/// A report as cases write it: headers as maps, and the names of the rules that matched.
fn readable(report: &Report) -> Value {
    let mut json = serde_json::to_value(report).unwrap();
    for message in ["request", "response"] {
        if let Some(pairs) = json[message].get_mut("headers") {
            *pairs = headers(pairs);
        }
    }
    let matched = report.rules.iter().filter(|rule| rule.matched).map(|rule| rule.name.clone());
    json["matched"] = json!(matched.collect::<Vec<_>>());
    json
}

/// The values of each header, joined by commas.
fn headers(pairs: &Value) -> Value {
    let mut headers: Map<String, Value> = Map::new();
    for pair in pairs.as_array().unwrap() {
        let (name, value) = (pair[0].as_str().unwrap(), pair[1].as_str().unwrap());
        let joined = match headers.get(name).and_then(Value::as_str) {
            Some(known) => format!("{known}, {value}"),
            None => value.to_owned(),
        };
        headers.insert(name.to_owned(), json!(joined));
    }
    Value::Object(headers)
}

/// Collects where `found` is not what is expected; of a map only the fields that are named count,
/// and null stands for nothing there.
fn compare(place: &str, found: &Value, expected: &Value, differences: &mut Vec<String>) {
    match (found, expected) {
        (Value::Object(found), Value::Object(expected)) => {
            for (name, expected) in expected {
                let place = format!("{place}.{name}");
                compare(&place, found.get(name).unwrap_or(&Value::Null), expected, differences);
            }
        }
        (Value::Array(found), Value::Array(expected)) if found.len() == expected.len() => {
            for (index, (found, expected)) in found.iter().zip(expected).enumerate() {
                compare(&format!("{place}[{index}]"), found, expected, differences);
            }
        }
        _ if found == expected => {}
        _ => differences.push(format!("{place} is {found}, not {expected}")),
    }
}
