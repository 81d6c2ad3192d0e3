//! Runs a target with its corpus and with mutations of it, the same ones in every run.

use std::path::Path;
use std::{env, fs, thread};

use super::mutation::mutated;
use super::random::Random;

/// How many mutations are tried; `GINNEL_FUZZ_RUNS` says another number.
const RUNS: usize = 1000;

/// Runs a target; a failure shows the input.
pub fn run(name: &str, target: fn(&[u8])) {
    let corpus = corpus(name);
    assert!(!corpus.is_empty(), "there is no corpus for {name}");
    let runs = env::var("GINNEL_FUZZ_RUNS").map_or(RUNS, |runs| runs.parse().unwrap());
    corpus.iter().for_each(|input| check(target, input));
    let mut random = Random::of(name.as_bytes());
    (0..runs).for_each(|_| check(target, &mutated(&corpus, &mut random)));
}

fn corpus(name: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fuzz/corpus").join(name);
    let mut paths: Vec<_> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths.iter().map(|path| fs::read(path).unwrap()).collect()
}

fn check(target: fn(&[u8]), input: &[u8]) {
    let shown = ShownOnPanic(input);
    target(shown.0);
}

struct ShownOnPanic<'i>(&'i [u8]);

impl Drop for ShownOnPanic<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("the input: b\"{}\"", self.0.escape_ascii());
        }
    }
}
