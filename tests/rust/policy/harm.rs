//! No input does harm: generated expressions and mutated documents.

use std::thread;
use std::time::{Duration, Instant};

use cel::common::types::{CelInt, CelList};
use cel::common::value::{CowVal, Val};
use cel::context::VariableResolver;
use ginnel::policy::Phase;
use ginnel::policy::expression::Expression;
use serde_json::{Value, json};

use super::cases;

/// A small generator of numbers, the same ones in every run.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % sides as u64) as usize
    }

    fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.roll(from.len())]
    }
}

const PIECES: &[&str] = &[
    "req.url",
    "req.headers",
    ".path",
    "['user-agent']",
    "[0]",
    "(",
    ")",
    "[",
    "]",
    "{",
    "}",
    "1",
    "-1",
    "0.5",
    "'x'",
    "b'y'",
    "\"",
    "'",
    "r'",
    "'''",
    "+",
    "-",
    "*",
    "/",
    "%",
    "==",
    "!=",
    "<",
    "&&",
    "||",
    "!",
    "?",
    ":",
    ",",
    ".",
    " in ",
    "true",
    "null",
    "x",
    ".all(x, x)",
    ".map(x, [x, x])",
    ".exists(x, x == 1)",
    ".filter(x, x > 0)",
    ".matches('a+')",
    ".matches('(a{99}){99}')",
    ".split('')",
    ".replace('', 'xx')",
    "size(",
    "has(",
    "lists.range(1000)",
    "hash.sha256(",
    "timestamp(",
    "vars.x",
    ".join()",
    ".format([1])",
    "${",
    "$",
    "\\",
    "\u{0}",
    "ä",
    "@in",
    "_",
    ".sortBy(x, x)",
    ".encodeJson()",
];

fn generated(dice: &mut Dice) -> String {
    (0..=dice.roll(24)).map(|_| *dice.pick(PIECES)).collect()
}

/// Chains and nests, which recurse once per element.
fn repeated(dice: &mut Dice) -> String {
    let piece = *dice.pick(PIECES);
    let other = *dice.pick(PIECES);
    let times = 4200 / (piece.len() + other.len());
    format!("{}1{}", piece.repeat(dice.roll(times)), other.repeat(dice.roll(times)))
}

fn mutated(dice: &mut Dice, text: &str) -> String {
    let mut characters: Vec<char> = text.chars().collect();
    for _ in 0..=dice.roll(4) {
        let at = dice.roll(characters.len() + 1);
        let piece = dice.pick(PIECES).chars();
        match dice.roll(3) {
            0 => characters.splice(at..at, piece).for_each(drop),
            1 => characters.truncate(at.max(1)),
            _ => drop((at < characters.len()).then(|| characters.remove(at))),
        }
    }
    characters.into_iter().collect()
}

fn mutate_document(dice: &mut Dice, value: &mut Value) {
    let strange = [
        json!(null),
        json!(-1),
        json!(1e300),
        json!(""),
        json!([[]]),
        json!({"a": {}}),
        json!("${"),
    ];
    if dice.roll(12) == 0 {
        *value = dice.pick(&strange).clone();
        return;
    }
    match value {
        Value::String(text) if dice.roll(4) == 0 => *text = mutated(dice, text),
        Value::Array(entries) => entries.iter_mut().for_each(|it| mutate_document(dice, it)),
        Value::Object(fields) => fields.values_mut().for_each(|it| mutate_document(dice, it)),
        _ => {}
    }
}

/// Runs on a stack as small as that of a worker thread.
fn on_small_stack(work: impl FnOnce() + Send + 'static) {
    thread::Builder::new().stack_size(2 << 20).spawn(work).unwrap().join().unwrap();
}

/// How long compiling or evaluating something may take in a debug build on a busy machine.
const LIMIT: Duration = Duration::from_millis(500);

/// How long something takes at best, since other programs use the machine too.
fn quickest(mut work: impl FnMut()) -> Duration {
    let once = || {
        let start = Instant::now();
        work();
        start.elapsed()
    };
    std::iter::repeat_with(once).take(5).find(|time| *time < LIMIT).unwrap_or(LIMIT)
}

/// Several expressions in one, often inside a loop.
fn joined(dice: &mut Dice, known: &[String]) -> String {
    let parts: Vec<_> = (0..=dice.roll(6)).map(|_| format!("({})", dice.pick(known))).collect();
    let operator = *dice.pick(&[" && ", " || ", " == ", " ? 1 : ", ".all(x, true) && ", ", "]);
    let inner = parts.join(operator);
    let range = *dice.pick(&["lists.range(1000)", "vars.x", "[1, 2]", "req.headers"]);
    let loops = *dice.pick(&["all", "exists", "map", "filter", "exists_one"]);
    if dice.roll(2) == 0 { inner } else { format!("{range}.{loops}(y, {inner})") }
}

/// The expressions of the valid cases.
fn expressions() -> Vec<String> {
    let valid = cases().into_iter().filter(|(_, case)| case.problems.is_empty());
    let rules = valid.flat_map(|(_, case)| {
        let phases = case.document.as_object().unwrap().clone();
        phases.into_iter().filter_map(|(_, rules)| rules.as_array().cloned()).flatten()
    });
    let sources = rules.filter_map(|rule| rule.get("expressions")?.as_array().cloned()).flatten();
    sources.map(|source| source.as_str().unwrap().to_owned()).collect()
}

#[test]
fn no_expression_does_harm() {
    on_small_stack(|| {
        let mut dice = Dice(0x5eed);
        let known = expressions();
        let numbers = Numbers::new();
        let mut compiled = 0;
        for round in 0..2000 {
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
        }
        assert!(compiled > 100, "only {compiled} expressions are valid");
    });
}

#[test]
fn no_document_does_harm() {
    on_small_stack(|| {
        let mut dice = Dice(0xd1ce);
        let cases: Vec<_> = cases().into_iter().map(|(_, case)| case).collect();
        for _ in 0..2000 {
            let mut case = dice.pick(&cases).clone();
            mutate_document(&mut dice, &mut case.document);
            let time = quickest(|| drop(case.compile()));
            assert!(time < LIMIT, "too slow: {}", case.document);
        }
    });
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
