//! `remove-headers`: remove headers from a request or a response.

use http::HeaderName;
use serde_json::json;

use super::super::head_change::{HeadChange, remove_spellings};
use super::super::headers;
use super::super::phase::Phase;
use super::prelude::*;

/// Removes all values of some headers; of requests, in all spellings that CGI and WSGI cannot tell apart.
#[derive(Debug)]
pub struct RemoveHeaders {
    /// Lower-case names.
    pub headers: Vec<String>,
}

impl Action for RemoveHeaders {
    fn head_change(&self) -> Option<HeadChange> {
        let names = self.headers.iter().map(HeaderName::try_from);
        let removed = names.collect::<Result<Vec<_>, _>>().ok()?;
        Some(HeadChange { removed, ..HeadChange::default() })
    }

    fn run(&self, turn: &mut Turn<'_>) -> ActionResult<Flow> {
        let is_request = turn.phase == Phase::Request;
        let Some(headers) = turn.headers_mut() else { return Ok(Flow::Continue) };
        let removed = self.headers.iter().filter(|name| match HeaderName::try_from(*name) {
            Ok(name) if is_request => remove_spellings(headers, &name),
            _ => headers.remove(name.as_str()).is_some(),
        });
        let removed: Vec<_> = removed.cloned().collect();
        turn.set_result(json!({"headers_removed": removed}));
        Ok(Flow::Continue)
    }
}

pub(in super::super) fn parse_config(config: &mut Config<'_>) -> Box<dyn Action> {
    let removed = headers::read_header_names(config, "headers", 1..=10);
    headers::reject_user_agent(config, "headers", removed.iter().map(String::as_str));
    Box::new(RemoveHeaders { headers: removed })
}
