//! No input does harm: generated expressions and mutated documents, compiled and run.

use std::thread;
use std::time::{Duration, Instant};

use ginnel_policy::Phase;
use ginnel_policy::expression::Expression;
use ginnel_policy::trial::{Traffic, Trial};

use cel::common::types::{CelInt, CelList};
use cel::common::value::{CowVal, Val};
use cel::context::VariableResolver;
use serde_json::json;

use super::generate::{Dice, generated, joined, mutate_document, mutated, repeated};
use super::{Case, cases};

/// How many inputs are made, unless the time is over before.
const ROUNDS: usize = 10_000;

/// How long a test may take.
const PATIENCE: Duration = Duration::from_secs(15);

/// How long one input may take in a debug build on a busy machine; `bench/policy` measures it in a
/// release build.
const LIMIT: Duration = Duration::from_millis(500);

/// Runs on a stack as small as that of a worker thread, as often as there is time for.
fn often(mut work: impl FnMut(usize) + Send + 'static) {
    let rounds = move || {
        let start = Instant::now();
        let done = (0..ROUNDS).take_while(|_| start.elapsed() < PATIENCE).map(&mut work).count();
        assert!(done > ROUNDS / 50, "there was time for {done} only");
    };
    thread::Builder::new().stack_size(2 << 20).spawn(rounds).unwrap().join().unwrap();
}

/// How long something takes at best, since other programs use the machine too.
fn quickest(mut work: impl FnMut()) -> Duration {
    let once = || {
        let start = Instant::now();
        work();
        start.elapsed()
    };
    std::iter::repeat_with(once).take(5).find(|time| *time < LIMIT).unwrap_or(LIMIT)
}

/// The cases whose documents are of a usual size.
fn usual() -> Vec<Case> {
    let usual = |case: &Case| case.document.to_string().len() < 8 << 10;
    cases().into_iter().map(|(_, case)| case).filter(usual).collect()
}

/// The expressions of the valid cases.
fn expressions() -> Vec<String> {
    let valid = usual().into_iter().filter(|case| case.problems.is_empty());
    let rules = valid.flat_map(|case| {
        let phases = case.document.as_object().unwrap().clone();
        phases.into_iter().filter_map(|(_, rules)| rules.as_array().cloned()).flatten()
    });
    let sources = rules.filter_map(|rule| rule.get("expressions")?.as_array().cloned()).flatten();
    sources.map(|source| source.as_str().unwrap().to_owned()).collect()
}

#[test]
fn no_expression_does_harm() {
    let mut dice = Dice(0x5eed);
    let known = expressions();
    let numbers = Numbers::new();
    let mut compiled = 0;
    often(move |round| {
        let source = match round % 4 {
            0 => repeated(&mut dice),
            1 => generated(&mut dice),
            2 => joined(&mut dice, &known),
            _ => mutated(&mut dice, &known[round % known.len()]),
        };
        let time = quickest(|| drop(Expression::compile(&source, Phase::Response)));
        assert!(time < LIMIT, "too slow: {source}");
        if let Ok(expression) = Expression::compile(&source, Phase::Response) {
            compiled += 1;
            let time = quickest(|| drop(expression.evaluate(&numbers)));
            assert!(time < LIMIT, "too slow to evaluate: {source}");
        }
        assert!(round < 500 || compiled > round / 30, "only {compiled} expressions are valid");
    });
}

#[test]
fn no_document_does_harm() {
    let mut dice = Dice(0xd1ce);
    let cases = usual();
    let mut compiled = 0;
    often(move |round| {
        let mut case = dice.pick(&cases).clone();
        mutate_document(&mut dice, &mut case.document);
        let mut policy = None;
        let time = quickest(|| policy = case.compile().ok());
        assert!(time < LIMIT, "too slow: {}", case.document);
        let Some(policy) = policy else { return };
        compiled += 1;
        let mut trial = Trial::new(policy, None);
        let traffic = hostile(&mut dice, &case);
        let time = quickest(|| drop(trial.simulate_traffic(&traffic).unwrap()));
        assert!(time < LIMIT, "too slow to run: {}", case.document);
        assert!(
            round < 500 || compiled > round / 20,
            "only {compiled} of {round} documents are valid"
        );
    });
}

/// A request, or a connection, of somebody who means no good.
fn hostile(dice: &mut Dice, case: &Case) -> Traffic {
    if case.scope.starts_with("tcp") {
        return Traffic::default();
    }
    let text = |dice: &mut Dice| {
        let text = generated(dice);
        text.chars().filter(|it| !it.is_control()).collect::<String>()
    };
    let value = *dice.pick(&["${1}", "$1", "(", "a{99}{99}", "\t", "\"", "..", "%", "*/*;q=x"]);
    let query: String = text(dice).bytes().map(|byte| format!("%{byte:02x}")).collect();
    serde_json::from_value(json!({
        "request": {
            "method": dice.pick(&["GET", "POST", "HEAD", "PATCH"]),
            "url": format!("http://a.example/{value}?from={query}&name={query}&to={value}")
                .replace([' ', '"', '\t', '{', '}', '(', ')'], "%"),
            "headers": {
                "x-a": text(dice),
                "user-agent": value,
                "cookie": text(dice),
                "authorization": format!("Bearer {}.{value}.{value}", text(dice)),
                "accept-encoding": ["gzip;q=1", value],
                "content-type": "application/json",
            },
            "body": generated(dice).repeat(dice.roll(2000)),
        },
        "response": {"status": 200, "headers": {"x-a": value, "set-cookie": text(dice)}, "body": text(dice)},
    }))
    .unwrap()
}

/// A resolver for which every name is a list of a thousand numbers.
struct Numbers(CelList<'static>);

impl Numbers {
    fn new() -> Self {
        let numbers = (0..1000).map(|number| Box::new(CelInt::from(number)) as Box<dyn Val>);
        Self(CelList::from(numbers.collect::<Vec<_>>()))
    }
}

impl VariableResolver for Numbers {
    fn resolve<'b>(&'b self, _: &str) -> Option<CowVal<'b, 'b>> {
        Some(CowVal::Borrowed(&self.0))
    }
}
