//! `request-body-find-replace` and `response-body-find-replace`: change a body.

use serde_json::json;

use super::super::action::Action;
use super::super::action_error::{ActionError, failure};
use super::super::compression::is_encoded;
use super::super::config::Config;
use super::super::problem::code;
use super::super::replace::{Replaced, literal, replace};
use super::super::template::{PatternTemplate, Template};
use super::super::turn::{Flow, Turn};

/// How long a body may be that is looked at, in bytes.
const LIMIT: usize = 1 << 20;

/// How long a body may become, in bytes.
const RESULT: usize = 2 << 20;

/// Replaces what occurs in a body, which is held back for that.
#[derive(Debug)]
pub struct BodyFindReplace {
    /// What is replaced, in order.
    pub replacements: Vec<Replacement>,
}

/// One replacement in a body.
#[derive(Debug)]
pub struct Replacement {
    /// What is replaced, wherever it occurs.
    pub from: PatternTemplate,
    /// What it is replaced with; `$1` is the first group.
    pub to: Template,
}

impl Action for BodyFindReplace {
    fn run(&self, turn: &mut Turn<'_>) -> Result<Flow, ActionError> {
        let headers = turn.headers_mut().map(|headers| is_encoded(headers));
        if headers == Some(true) {
            return Err(ActionError::harmless(failure::BODY, "the body is compressed"));
        }
        let Some(body) = turn.body(LIMIT)? else { return Ok(Flow::NeedBody { limit: LIMIT }) };
        let Ok(mut text) = String::from_utf8(body.into()) else {
            return Err(ActionError::harmless(failure::BODY, "the body is not text"));
        };
        let mut count = 0;
        for replacement in &self.replacements {
            let replaced = replacement.apply(&text, turn)?;
            count += replaced.matches.len();
            text = replaced.text;
        }
        turn.result(json!({"replacements": count}));
        if count > 0 {
            turn.exchange.set_body(turn.phase, text.into());
        }
        Ok(Flow::Continue)
    }
}

impl Replacement {
    fn apply(&self, text: &str, turn: &Turn<'_>) -> Result<Replaced, ActionError> {
        let facts = turn.facts();
        let pattern = self.from.regex(&facts)?;
        let to = self.to.render(&facts, |value| literal(&value))?;
        replace(&pattern, text, &to, RESULT).ok_or_else(|| {
            ActionError::fatal(
                failure::BODY,
                format!("the body would have more than {RESULT} bytes"),
            )
        })
    }
}

pub(in super::super) fn parse(config: &mut Config<'_>) -> Box<dyn Action> {
    let mut replacements = Vec::new();
    for (place, entry) in config.entries("replacements", 1..=10) {
        let mut entry = config.inside(place, entry);
        replacements.extend(replacement(&mut entry));
        entry.close();
    }
    Box::new(BodyFindReplace { replacements })
}

fn replacement(config: &mut Config<'_>) -> Option<Replacement> {
    let source = config.required("from");
    if source.is_some_and(|source| source == "") {
        config.refuse("from", code::EMPTY, "from must not be empty");
    }
    let from = config.pattern("from");
    config.required("to");
    let to = config.template("to");
    Some(Replacement { from: from?, to: to? })
}
