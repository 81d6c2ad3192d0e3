//! Compares how ginnel and other programs read text from outside.
//!
//! Each file generates texts, parses them, checks that what is printed parses to the same value, and hands the results
//! to a script in `tests/peers`, which compares them with readers that know nothing of this project. `GINNEL_READINGS`
//! is the number of texts of each script and `GINNEL_READERS` names the readers: `python,packages,curl,node`.

mod addresses;
mod documents;
mod headers;
mod paths;

use std::env;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use super::random::Random;

/// Runs `tests/peers/<name>_readings.py` with the readings of generated texts: `usual` texts in `cargo test`.
fn compare(name: &str, usual: usize, mut readings: impl FnMut(&mut Random) -> Vec<Value>) {
    let setting = |name: &str| env::var(name).ok();
    let count = setting("GINNEL_READINGS").map_or(usual, |number| number.parse().unwrap());
    let own = Path::new(".venv/bin/python");
    // The packages are in the virtual environment of `make dev`.
    let (python, known) = match own.exists() {
        true => (own, "python,packages"),
        false => (Path::new("python3"), "python"),
    };
    let mut peers = Command::new(python)
        .arg(format!("tests/peers/{name}_readings.py"))
        .arg(setting("GINNEL_READERS").unwrap_or_else(|| known.to_owned()))
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let mut random = Random::of(name.as_bytes());

    let mut lines = peers.stdin.take().unwrap();
    for _ in 0..count {
        for reading in readings(&mut random) {
            writeln!(lines, "{reading}").unwrap();
        }
    }
    drop(lines);

    assert!(peers.wait().unwrap().success(), "readers differ without a known reason, see above");
}

/// The line for a text that was read.
fn read(kind: &str, text: impl Into<Value>, reading: Value) -> Value {
    json!({"kind": kind, "text": text.into(), "reading": reading})
}

/// The line for a text that was refused.
fn refused(kind: &str, text: impl Into<Value>, reason: impl Into<Value>) -> Value {
    json!({"kind": kind, "text": text.into(), "reason": reason.into()})
}

/// A text of up to `most` of the pieces.
fn assembled(random: &mut Random, pieces: &[&str], most: usize) -> String {
    let count = random.below(most + 1);
    (0..count).map(|_| *random.pick(pieces)).collect()
}
