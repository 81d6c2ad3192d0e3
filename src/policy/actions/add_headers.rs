//! `add-headers`: append headers to a request or a response.

use http::header::HOST;
use serde_json::{Map, Value as Json, json};

use super::super::action::Action;
use super::super::action_error::ActionError;
use super::super::config::Config;
use super::super::headers;
use super::super::template::Template;
use super::super::turn::{Flow, Turn};

/// Appends headers; `host` is replaced instead.
#[derive(Debug)]
pub struct AddHeaders {
    /// Headers by lower-case name.
    pub headers: Vec<(String, Template)>,
}

impl Action for AddHeaders {
    fn run(&self, turn: &mut Turn<'_>) -> Result<Flow, ActionError> {
        let values = headers::values(&self.headers, turn)?;
        let Some(headers) = turn.headers_mut() else { return Ok(Flow::Continue) };
        let mut added = Map::new();
        for (name, value) in values {
            let text = String::from_utf8_lossy(value.as_bytes()).into_owned();
            added.insert(name.as_str().to_owned(), Json::from(text));
            if name == HOST {
                headers.insert(name, value);
            } else {
                headers.append(name, value);
            }
        }
        turn.result(json!({"headers_added": added}));
        Ok(Flow::Continue)
    }
}

pub(in super::super) fn parse(config: &mut Config<'_>) -> Box<dyn Action> {
    let added = headers::map(config, "headers", 1..=10);
    headers::refuse_user_agent(config, "headers", added.iter().map(|(name, _)| name));
    Box::new(AddHeaders { headers: added })
}
