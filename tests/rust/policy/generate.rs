//! Generated expressions and mutated documents; the same ones in every run.

use serde_json::{Value, json};

/// A small generator of numbers, the same ones in every run.
pub struct Dice(pub u64);

impl Dice {
    /// A number from 0, and less than `sides`.
    pub fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % sides as u64) as usize
    }

    /// One of several.
    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
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

/// Pieces in a row, which are seldom valid.
pub fn generated(dice: &mut Dice) -> String {
    (0..=dice.roll(24)).map(|_| *dice.pick(PIECES)).collect()
}

/// Chains and nests, which recurse once per element.
pub fn repeated(dice: &mut Dice) -> String {
    let piece = *dice.pick(PIECES);
    let other = *dice.pick(PIECES);
    let times = 4200 / (piece.len() + other.len());
    format!("{}1{}", piece.repeat(dice.roll(times)), other.repeat(dice.roll(times)))
}

/// A text with a few changes.
pub fn mutated(dice: &mut Dice, text: &str) -> String {
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

/// Changes values in a document, here and there.
pub fn mutate_document(dice: &mut Dice, value: &mut Value) {
    let strange = [
        json!(null),
        json!(-1),
        json!(1e300),
        json!(""),
        json!([[]]),
        json!({"a": {}}),
        json!("${"),
    ];
    if dice.roll(40) == 0 {
        *value = dice.pick(&strange).clone();
        return;
    }
    match value {
        Value::String(text) if dice.roll(12) == 0 => *text = mutated(dice, text),
        Value::Array(entries) => entries.iter_mut().for_each(|it| mutate_document(dice, it)),
        Value::Object(fields) => fields.values_mut().for_each(|it| mutate_document(dice, it)),
        _ => {}
    }
}

/// Several expressions in one, often inside a loop.
pub fn joined(dice: &mut Dice, known: &[String]) -> String {
    let parts: Vec<_> = (0..=dice.roll(6)).map(|_| format!("({})", dice.pick(known))).collect();
    let operator = *dice.pick(&[" && ", " || ", " == ", " ? 1 : ", ".all(x, true) && ", ", "]);
    let inner = parts.join(operator);
    let range = *dice.pick(&["lists.range(1000)", "vars.x", "[1, 2]", "req.headers"]);
    let loops = *dice.pick(&["all", "exists", "map", "filter", "exists_one"]);
    if dice.roll(2) == 0 { inner } else { format!("{range}.{loops}(y, {inner})") }
}
