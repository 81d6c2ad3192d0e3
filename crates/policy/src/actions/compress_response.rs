//! `compress-response`: compress what the visitor can decompress.

use serde_json::json;

use super::super::compression::{Coding, ResponseCompression, is_encoded};
use super::prelude::*;

/// Compresses a response; on a request, the response to it.
#[derive(Debug)]
pub struct CompressResponse {
    /// What may be used, in the order of the document; all unless given.
    pub codings: Vec<Coding>,
}

impl Action for CompressResponse {
    fn run(&self, turn: &mut Turn<'_>) -> ActionResult<Flow> {
        let request = turn.exchange.request().map(|request| &request.head);
        let chosen = request.and_then(|head| {
            ResponseCompression::from_request(&head.method, &head.headers, &self.codings).coding()
        });
        let response = turn.exchange.response();
        let encoded = response.is_some_and(|response| is_encoded(&response.head.headers));
        turn.set_result(json!({
            "already_compressed": encoded,
            "negotiated_algorithm": chosen.filter(|_| !encoded).map_or("", Coding::name),
        }));
        turn.exchange.codings = Some(self.codings.clone());
        Ok(Flow::Continue)
    }
}

/// The words of documents; `compress` is known, but never chosen.
const ALGORITHMS: [(&str, Option<Coding>); 4] = [
    ("gzip", Some(Coding::Gzip)),
    ("deflate", Some(Coding::Deflate)),
    ("br", Some(Coding::Brotli)),
    ("compress", None),
];

pub(in super::super) fn parse_config(config: &mut Config<'_>) -> Box<dyn Action> {
    let names = config.text_entries("algorithms", 0..=usize::MAX);
    let mut algorithms = Vec::new();
    for (place, name) in names {
        match ALGORITHMS.iter().find(|(known, _)| *known == name) {
            None => config.record_problem_at(
                &place,
                code::ALGORITHM,
                "not gzip, deflate, br or compress",
            ),
            Some((_, algorithm)) if algorithms.contains(algorithm) => {
                config.record_problem_at(&place, code::DUPLICATE, format!("{name} is there twice"));
            }
            Some((_, algorithm)) => algorithms.push(*algorithm),
        }
    }
    if algorithms.is_empty() {
        algorithms.extend(ALGORITHMS.map(|(_, algorithm)| algorithm));
    }
    Box::new(CompressResponse { codings: algorithms.into_iter().flatten().collect() })
}
