//! Policy documents in JSON and YAML, and files with secrets.

use serde_json::{Value, json};

use ginnel_api::policy_document;
use ginnel_net::secret_file::secret_text;

use super::super::random::Random;
use super::{assembled, compare, read, refused};

/// The texts of a run in `make test`, which takes a second.
const TEXTS: usize = 150;

/// How deep values are.
const DEPTH: usize = 3;

/// Scalars as YAML has them.
const SCALARS: &[&str] = &[
    "0123",
    "1e3",
    "1.10",
    "0x1F",
    "0o17",
    "1_000",
    "-0",
    "+1",
    "12345678901234567890123",
    ".5",
    "1.",
    "yes",
    "No",
    "on",
    "y",
    "~",
    "null",
    "Null",
    "true",
    "True",
    "FALSE",
    "2024-01-01",
    "12:30:45",
    ".inf",
    "-.INF",
    ".nan",
    "text",
    "two words",
    "a:b",
    "a#b",
    "a # c",
    "http://a.test/?q=1",
    "\u{e9}",
    "\"\"",
    "''",
    "'a''b'",
    "\"a\\tb\"",
    "\"\\u00e9\"",
    "\"\\x41\"",
    "\"0123\"",
    "'true'",
    "-",
    "- x",
    "a: b",
    "[",
    "!x y",
    "!!str 1",
    "! true",
    "&n 1",
    "*n",
    "*none",
    "@x",
    "`x",
    "%x",
    "<<",
    "? x",
    "|",
    ">-",
    "=",
    "${req.url.path}",
    "req.url.path == '/a'",
];
const KEYS: &[&str] = &[
    "a",
    "b",
    "c",
    "name",
    "x-v",
    "headers",
    "config",
    "metadata",
    "vars",
    "status_code",
    "enforce",
    "enabled",
    "expressions",
    "actions",
    "type",
    "1",
    "0x1",
    "yes",
    "'q'",
    "\"e\\u0301\"",
    "two words",
    "<<",
    "~",
    "a b: c",
    "",
];
const MARKS: &[&str] = &[
    "\t",
    " ",
    "\n",
    "#",
    " #",
    "---\n",
    "...\n",
    "\u{feff}",
    "\r\n",
    "}",
    "]",
    "!x ",
    "\u{85}",
    "\u{2028}",
    ",",
    ":",
    "\"",
    "'",
    "%YAML 1.2\n",
    "\u{0}",
];
const SECRETS: &[&str] = &[
    "\u{ef}\u{bb}\u{bf}",
    "\u{ff}\u{fe}",
    "\u{fe}\u{ff}",
    "s3cret",
    "s3cret",
    "two words",
    "\n",
    "\r\n",
    "\r",
    " ",
    "\t",
    "\0",
    "\u{c3}\u{a9}",
    "\u{e9}",
    "\u{c2}\u{a0}",
    "\u{c2}\u{85}",
    "\u{e2}\u{80}\u{8b}",
    "\u{0b}",
    "\u{0c}",
    "\u{1c}",
    "s\0",
    "#",
    "\"x\"",
];

#[test]
fn other_programs_read_no_other_document() {
    compare("document", TEXTS, |random| vec![yaml(random), json(random), secret(random)]);
}

fn yaml(random: &mut Random) -> Value {
    let mut text = yaml_document(random);
    if random.below(4) == 0 {
        insert(random, &mut text, MARKS);
    }
    document("YAML", text)
}

fn json(random: &mut Random) -> Value {
    let mut text = json_document(random);
    if random.below(4) == 0 {
        insert(
            random,
            &mut text,
            &["{", "}", "[", "]", ",", ":", "\"", "\\", "0", "\u{feff}", "\u{1}", "//", "'"],
        );
    }
    document("JSON", text)
}

fn document(kind: &str, text: String) -> Value {
    match policy_document::read_document(&text) {
        Ok(document) => {
            let again = policy_document::read_document(&document.to_string());
            assert_eq!(again.as_ref(), Ok(&document), "{text:?}");
            read(kind, text, document)
        }
        Err(error) => refused(kind, text, error.problem),
    }
}

fn secret(random: &mut Random) -> Value {
    let text = assembled(random, SECRETS, 6);
    let content = text.chars().map(|letter| u8::try_from(u32::from(letter)).unwrap()).collect();
    match secret_text(content) {
        Ok(secret) if secret.trim().is_empty() => refused("Secret", text, "the file is empty"),
        Ok(secret) => {
            let secret = secret.trim();
            let again = secret_text(secret.as_bytes().to_vec()).unwrap();
            assert!(again.trim() == secret || secret.starts_with('\u{feff}'), "{text:?}");
            read("Secret", text, json!(secret))
        }
        Err(error) => refused("Secret", text, error.to_string()),
    }
}

fn insert(random: &mut Random, text: &mut String, marks: &[&str]) {
    let places: Vec<usize> = text.char_indices().map(|(at, _)| at).collect();
    if !places.is_empty() {
        let mark = *random.pick(marks);
        text.insert_str(*random.pick(&places), mark);
    }
}

/// A document with rules, or a map of any shape.
fn yaml_document(random: &mut Random) -> String {
    match random.below(3) {
        0 => map(random, 0, DEPTH),
        _ => {
            let (expression, header) = (scalar(random, 4), scalar(random, 10));
            let (name, free) = (random.pick(KEYS), value(random, 6, 1));
            let typed = scalar(random, 6);
            format!(
                "on_http_request:\n- expressions:\n  - {expression}\n  actions:\n  - type: add-headers\n    config:\n\
                 \x20     headers:\n        {name}: {header}\n      metadata: {free}\n      status_code: {typed}\n"
            )
        }
    }
}

fn scalar(random: &mut Random, indent: usize) -> String {
    match *random.pick(SCALARS) {
        block @ ("|" | ">-") => {
            let start = " ".repeat(indent + 2);
            format!("{block}\n{start}one\n{start}two # no comment\n")
        }
        scalar => scalar.to_owned(),
    }
}

/// What follows `key:` in a map of the indent.
fn value(random: &mut Random, indent: usize, depth: usize) -> String {
    match random.below(6) {
        0 if depth > 0 => format!("\n{}", map(random, indent + 2, depth - 1)),
        1 if depth > 0 => format!("\n{}", list(random, indent + 2, depth - 1)),
        2 if depth > 0 => flow(random, depth - 1),
        _ => scalar(random, indent),
    }
}

fn map(random: &mut Random, indent: usize, depth: usize) -> String {
    let start = " ".repeat(indent);
    let count = 1 + random.below(3);
    let entry = |_| {
        let key = *random.pick(KEYS);
        format!("{start}{key}: {}", value(random, indent, depth))
    };
    (0..count).map(entry).collect::<Vec<_>>().join("\n")
}

fn list(random: &mut Random, indent: usize, depth: usize) -> String {
    let start = " ".repeat(indent);
    let count = 1 + random.below(3);
    let item = |_| format!("{start}- {}", value(random, indent, depth));
    (0..count).map(item).collect::<Vec<_>>().join("\n")
}

fn flow(random: &mut Random, depth: usize) -> String {
    let inner = |random: &mut Random| match depth {
        0 => (*random.pick(SCALARS)).to_owned(),
        _ => flow(random, depth - 1),
    };
    let count = random.below(3);
    match random.below(2) {
        0 => {
            let items: Vec<_> = (0..count).map(|_| inner(random)).collect();
            format!("[{}]", items.join(", "))
        }
        _ => {
            let entries: Vec<_> =
                (0..count).map(|_| format!("{}: {}", random.pick(KEYS), inner(random))).collect();
            format!("{{{}}}", entries.join(", "))
        }
    }
}

fn json_document(random: &mut Random) -> String {
    let (free, typed) = (json_value(random, 2), json_value(random, 0));
    let (name, header, expression) =
        (json_key(random), json_value(random, 0), json_value(random, 1));
    match random.below(3) {
        0 => format!("{{{name}: {free}, \"enabled\": {typed}}}"),
        _ => format!(
            "{{\"on_http_request\": [{{\"expressions\": [{expression}], \"actions\": [{{\"type\": \"add-headers\", \
             \"config\": {{\"headers\": {{{name}: {header}}}, \"metadata\": {free}, \"status_code\": {typed}}}}}]}}]}}"
        ),
    }
}

fn json_key(random: &mut Random) -> String {
    let keys = [
        "\"a\"",
        "\"b\"",
        "\"\\u0061\"",
        "\"x-v\"",
        "\"\"",
        "\"\u{e9}\"",
        "\"e\\u0301\"",
        "a",
        "1",
    ];
    (*random.pick(&keys)).to_owned()
}

fn json_value(random: &mut Random, depth: usize) -> String {
    const VALUES: &[&str] = &[
        "0",
        "1",
        "-0",
        "1.10",
        "1e3",
        "1E+2",
        "0.1",
        "123456789012345678901",
        "1e400",
        "01",
        "+1",
        ".5",
        "1.",
        "true",
        "false",
        "null",
        "True",
        "NaN",
        "\"\"",
        "\"text\"",
        "\"\\u00e9\\n\"",
        "\"\\ud83d\\ude00\"",
        "\"\\ud83d\"",
        "\"\u{e9}\"",
        "\"\\x41\"",
        "\"\t\"",
        "'a'",
        "\"1.10\"",
    ];
    let count = random.below(3);
    match random.below(6) {
        0 if depth > 0 => {
            let items: Vec<_> = (0..count).map(|_| json_value(random, depth - 1)).collect();
            format!("[{}]", items.join(","))
        }
        1 if depth > 0 => {
            let members: Vec<_> = (0..count)
                .map(|_| format!("{}:{}", json_key(random), json_value(random, depth - 1)))
                .collect();
            format!("{{{}}}", members.join(" , "))
        }
        _ => (*random.pick(VALUES)).to_owned(),
    }
}
