//! `compress-response`: compress what the visitor can decompress.

use super::super::action::Action;
use super::super::config::Config;
use super::super::problem::code;

/// Compresses a response; on a request, the response to it.
#[derive(Debug)]
pub struct CompressResponse {
    /// What may be used, in the order of the document; all unless given.
    pub algorithms: Vec<Algorithm>,
}

/// A way to compress.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Algorithm {
    /// `gzip`.
    Gzip,
    /// `deflate`, in a zlib envelope.
    Deflate,
    /// Brotli.
    Br,
    /// `compress`: known, but never chosen.
    Compress,
}

impl Action for CompressResponse {}

const ALGORITHMS: [(&str, Algorithm); 4] = [
    ("gzip", Algorithm::Gzip),
    ("deflate", Algorithm::Deflate),
    ("br", Algorithm::Br),
    ("compress", Algorithm::Compress),
];

pub(in super::super) fn parse(config: &mut Config<'_>) -> Box<dyn Action> {
    let names = config.texts("algorithms", 0..=usize::MAX);
    let mut algorithms = Vec::new();
    for (place, name) in names {
        match ALGORITHMS.iter().find(|(known, _)| *known == name) {
            None => config.refuse_at(&place, code::ALGORITHM, "not gzip, deflate, br or compress"),
            Some((_, algorithm)) if algorithms.contains(algorithm) => {
                config.refuse_at(&place, code::DUPLICATE, format!("{name} is there twice"));
            }
            Some((_, algorithm)) => algorithms.push(*algorithm),
        }
    }
    if algorithms.is_empty() {
        algorithms.extend(ALGORITHMS.map(|(_, algorithm)| algorithm));
    }
    Box::new(CompressResponse { algorithms })
}
