//! `add-headers`: append headers to a request or a response.

use std::sync::Arc;

use http::header::HOST;
use http::{HeaderName, HeaderValue};
use serde_json::{Map, Value as Json, json};

use super::super::head_change::{HeadChange, remove_twins};
use super::super::headers::{self, HeaderTemplate};
use super::super::phase::Phase;
use super::prelude::*;

/// Appends headers; `host` is replaced instead.
#[derive(Debug)]
pub struct AddHeaders {
    /// Headers.
    pub headers: Vec<HeaderTemplate>,
    /// What comes of it where no header has an expression.
    fixed_result: Option<Arc<Json>>,
}

impl Action for AddHeaders {
    fn head_change(&self) -> Option<HeadChange> {
        let fixed =
            self.headers.iter().map(|one| Some((one.name.clone(), one.fixed_value()?.clone())));
        let added = fixed.collect::<Option<Vec<_>>>()?;
        Some(HeadChange { added, ..HeadChange::default() })
    }

    fn run(&self, turn: &mut Turn<'_>) -> ActionResult<Flow> {
        let values = headers::render_headers(&self.headers, turn)?;
        let is_request = turn.phase == Phase::Request;
        let Some(headers) = turn.headers_mut() else { return Ok(Flow::Continue) };
        let result = self.fixed_result.clone();
        let result =
            result.unwrap_or_else(|| Arc::new(result_json(values.iter().map(borrow_pair))));
        for (name, value) in values {
            if is_request {
                remove_twins(headers, &name);
            }
            if name == HOST {
                headers.insert(name, value);
            } else {
                headers.append(name, value);
            }
        }
        turn.set_result(result);
        Ok(Flow::Continue)
    }
}

pub(in super::super) fn parse_config(config: &mut Config<'_>) -> Box<dyn Action> {
    let headers = headers::read_header_map(config, "headers", 1..=10);
    headers::reject_user_agent(config, "headers", headers.iter().map(|one| one.name.as_str()));
    let fixed = headers.iter().map(|one| Some((&one.name, one.fixed_value()?)));
    let fixed: Option<Vec<_>> = fixed.collect();
    let fixed_result = fixed.map(|fixed| Arc::new(result_json(fixed)));
    Box::new(AddHeaders { headers, fixed_result })
}

fn borrow_pair((name, value): &(HeaderName, HeaderValue)) -> (&HeaderName, &HeaderValue) {
    (name, value)
}

/// What later expressions find.
fn result_json<'h>(headers: impl IntoIterator<Item = (&'h HeaderName, &'h HeaderValue)>) -> Json {
    let text = |value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    let added: Map<String, Json> = headers
        .into_iter()
        .map(|(name, value)| (name.as_str().to_owned(), Json::from(text(value))))
        .collect();
    json!({"headers_added": added})
}
