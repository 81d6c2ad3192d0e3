//! `custom-response`: answer with what the document says.

use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, StatusCode};
use serde::de::IgnoredAny;

use super::super::action::Action;
use super::super::action_error::ActionError;
use super::super::config::Config;
use super::super::headers::{self, HeaderTemplate};
use super::super::problem::code;
use super::super::template::Template;
use super::super::turn::{Flow, Turn};
use super::super::verdict::{LocalResponse, Verdict};

/// Answers a request, or replaces a response.
#[derive(Debug)]
pub struct CustomResponse {
    /// The status of the answer; 200 unless given.
    pub status_code: u16,
    /// The body; empty unless given.
    pub body: Template,
    /// Headers by lower-case name. Without a `content-type` it is guessed from the body.
    pub headers: Vec<HeaderTemplate>,
}

impl Action for CustomResponse {
    fn run(&self, turn: &mut Turn<'_>) -> Result<Flow, ActionError> {
        let body = turn.render(&self.body)?;
        let mut headers: HeaderMap = headers::values(&self.headers, turn)?.into_iter().collect();
        if !body.is_empty() && !headers.contains_key(CONTENT_TYPE) {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(guess(&body)));
        }
        // The configuration allows only such numbers.
        let status = StatusCode::from_u16(self.status_code).unwrap_or_default();
        let answer = LocalResponse { status, headers, body: body.into(), code: None };
        Ok(Flow::End(Verdict::Respond(answer)))
    }
}

/// What a body looks like.
fn guess(body: &str) -> &'static str {
    let start = body.trim_start();
    if start.starts_with(['{', '[']) && serde_json::from_str::<IgnoredAny>(body).is_ok() {
        return "application/json";
    }
    let head: String = start.chars().take(14).collect::<String>().to_ascii_lowercase();
    let is_html = ["<!doctype html", "<html", "<head", "<body", "<h1", "<p>", "<div", "<!--"]
        .iter()
        .any(|tag| head.starts_with(tag));
    if is_html { "text/html; charset=utf-8" } else { "text/plain; charset=utf-8" }
}

pub(in super::super) fn parse(config: &mut Config<'_>) -> Box<dyn Action> {
    Box::new(CustomResponse {
        status_code: config.status("status_code", 200, 100..=599),
        body: body(config),
        headers: headers::map(config, "headers", 0..=10),
    })
}

/// The body, which was called `content` before.
fn body(config: &mut Config<'_>) -> Template {
    let (body, content) = (config.template("body"), config.template("content"));
    if body.is_some() && content.is_some() {
        config.refuse("content", code::DUPLICATE, "content is the older name of body");
    }
    body.or(content).unwrap_or_default()
}
