//! The dearest of many generated expressions and mutated documents.

use std::fs;
use std::hint::black_box;
use std::sync::atomic::Ordering::Relaxed;

use ginnel_policy::expression::Expression;
use ginnel_policy::trial::{Traffic, Trial};
use ginnel_policy::{Phase, Policy, Protocol, read_document};
use serde_json::{Value, json};

use crate::generate::{Dice, generated, joined, mutate_document, mutated, repeated};
use crate::{LIVE, PEAK, process_time};

const ROUNDS: usize = 10_000;

/// What one step has cost.
#[derive(Default)]
struct Dearest {
    nanos: u64,
    /// What took the longest.
    input: String,
    bytes: u64,
    done: usize,
}

impl Dearest {
    /// Does something, and keeps what it costs if that is more than ever; time is the best of
    /// three, since only the input is to blame.
    fn of<T>(&mut self, input: &str, mut work: impl FnMut() -> T) -> T {
        let mut nanos = u64::MAX;
        let mut result = None;
        for _ in 0..3 {
            let live = LIVE.load(Relaxed);
            PEAK.store(live, Relaxed);
            let start = process_time();
            result = Some(black_box(work()));
            nanos = nanos.min(process_time() - start);
            self.bytes = self.bytes.max(PEAK.load(Relaxed) - live);
        }
        if nanos > self.nanos {
            (self.nanos, self.input) = (nanos, input.chars().take(300).collect());
        }
        self.done += 1;
        result.expect("three times")
    }

    fn print(&self, name: &str) {
        let (milliseconds, mebibytes) = (self.nanos as f64 / 1e6, self.bytes as f64 / 1048576.0);
        println!("{name}: {} done, at most {milliseconds:.2} ms and {mebibytes:.2} MiB", self.done);
        println!("    the longest: {}", self.input);
    }
}

pub fn run() {
    let cases = cases();
    let known = expressions(&cases);
    let mut dice = Dice(0x5eed);
    let (mut compiling, mut evaluating) = (Dearest::default(), Dearest::default());
    for round in 0..ROUNDS {
        let source = match round % 4 {
            0 => repeated(&mut dice),
            1 => generated(&mut dice),
            2 => joined(&mut dice, &known),
            _ => mutated(&mut dice, &known[round % known.len()]),
        };
        let compiled =
            compiling.of(&source, || Expression::compile(&source, Phase::Request).is_ok());
        if compiled {
            let mut trial = trial(&source);
            let traffic = traffic(&mut Dice(round as u64 + 1));
            evaluating.of(&source, || drop(trial.simulate_traffic(&traffic).expect("traffic")));
        }
    }
    compiling.print("expressions, compiled");
    evaluating.print("expressions, in a rule with a thousand values");
    let (mut compiling, mut running) = (Dearest::default(), Dearest::default());
    for round in 0..ROUNDS {
        let mut document = dice.pick(&cases).clone();
        mutate_document(&mut dice, &mut document);
        let scope = Protocol::Http.document_scope(&document, None);
        if let Ok(policy) =
            compiling.of(&document.to_string(), || Policy::compile(&document, scope))
        {
            let mut trial = Trial::new(policy, None);
            let traffic = traffic(&mut Dice(round as u64 + 1));
            running.of(&document.to_string(), || drop(trial.simulate_traffic(&traffic).expect("traffic")));
        }
    }
    compiling.print("documents, compiled");
    running.print("documents, run");
}

/// A trial of one expression, in which `vars.x` is a list of a thousand numbers.
fn trial(source: &str) -> Trial {
    let numbers: Vec<_> = (0..1000).collect();
    let set = json!({"type": "set-vars", "config": {"vars": [{"x": numbers}]}});
    let document = json!({"on_http_request": [
        {"actions": [set]},
        {"expressions": [source], "actions": [{"type": "deny"}]},
    ]});
    Trial::new(Policy::compile(&document, ginnel_policy::Scope::HttpTunnel).expect("valid"), None)
}

fn traffic(dice: &mut Dice) -> Traffic {
    let text = generated(dice).chars().filter(|it| !it.is_control()).collect::<String>();
    let query: String = text.bytes().map(|byte| format!("%{byte:02x}")).collect();
    serde_json::from_value(json!({
        "request": {
            "method": dice.pick(&["GET", "POST"]),
            "url": format!("http://a.example/?from={query}&name={query}"),
            "headers": {"x-a": text, "user-agent": vec![text.as_str(); 100], "cookie": text},
            "body": text.repeat(dice.roll(2000)),
        },
        "response": {"headers": {"x-a": text}, "body": text},
    }))
    .expect("traffic")
}

/// The documents of the cases, those of a usual size.
fn cases() -> Vec<Value> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/data/policy");
    let mut paths: Vec<_> =
        fs::read_dir(folder).expect("cases").map(|it| it.expect("a file").path()).collect();
    paths.sort();
    let texts = paths.iter().map(|path| fs::read_to_string(path).expect("a text"));
    let documents = texts.filter_map(|text| read_document(&text).ok()).map(|case| case["document"].clone());
    documents.filter(|document| document.to_string().len() < 8 << 10).collect()
}

fn expressions(documents: &[Value]) -> Vec<String> {
    let phases = documents.iter().filter_map(Value::as_object).flat_map(|it| it.values());
    let rules = phases.filter_map(Value::as_array).flatten();
    let sources = rules.filter_map(|rule| rule.get("expressions")?.as_array()).flatten();
    sources.filter_map(Value::as_str).map(str::to_owned).collect()
}
