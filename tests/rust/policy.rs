//! Traffic policy: each file in `tests/data/policy` is a case, and no input does harm.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use cel::common::types::{CelInt, CelList};
use cel::common::value::{CowVal, Val};
use cel::context::VariableResolver;
use ginnel::policy::action::KINDS;
use ginnel::policy::expression::Expression;
use ginnel::policy::{Phase, Policy, Problem, Scope};
use serde::Deserialize;
use serde_json::{Value, json};

/// A document, what it is put on, and what is wrong with it.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    name: String,
    scope: String,
    document: Value,
    problems: Vec<Expected>,
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
        let case = serde_saphyr::from_str(&text).unwrap_or_else(|it| panic!("{path:?}: {it}"));
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
        let expected = case.problems.first().map_or("valid".to_owned(), |it| it.code.to_string());

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

    // Its counterpart for responses is the same code.
    assert_eq!(missing, ["request-body-find-replace"]);
}

#[test]
fn messages_are_short_and_lower_case() {
    for problem in cases().iter().filter_map(|(_, case)| case.compile().err()).flatten() {
        let message = &problem.message;

        assert!(message.len() < 300, "{message}");
        assert!(!problem.to_string().contains(char::is_control), "{problem}");
        assert!(!message.ends_with('.') && !message.starts_with(char::is_uppercase), "{message}");
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

/// How long compiling or evaluating something may take in a debug build.
const LIMIT: Duration = Duration::from_millis(50);

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
