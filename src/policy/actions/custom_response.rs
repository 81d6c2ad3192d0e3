//! `custom-response`: answer with what the document says.

use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, StatusCode};
use serde::de::IgnoredAny;

use super::super::action::Action;
use super::super::action_error::ActionError;
use super::super::config::{Config, FINAL_STATUS};
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
    /// Headers by lower-case name. Without a `content-type`, the literal text of the body decides.
    pub headers: Vec<HeaderTemplate>,
    /// The type of a body, unless a header names it.
    literal_type: LiteralType,
}

impl Action for CustomResponse {
    fn run(&self, turn: &mut Turn<'_>) -> Result<Flow, ActionError> {
        let body = turn.render(&self.body)?;
        let mut headers: HeaderMap = headers::values(&self.headers, turn)?.into_iter().collect();
        if !body.is_empty() && !headers.contains_key(CONTENT_TYPE) {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(self.literal_type.of(&body)));
        }
        // The configuration allows only such numbers.
        let status = StatusCode::from_u16(self.status_code).unwrap_or_default();
        let answer = LocalResponse { status, headers, body: body.into(), code: None };
        Ok(Flow::End(Verdict::Respond(answer)))
    }
}

/// The type of a body by its template without expressions. A visitor chooses the values of expressions, and must not be
/// able to turn a text into a page that runs scripts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LiteralType {
    /// Markup.
    Html,
    /// JSON, if the values of the expressions keep it valid.
    Json,
    /// Neither.
    Text,
}

impl LiteralType {
    fn read(body: &Template) -> Self {
        const TAGS: [&str; 8] =
            ["<!doctype html", "<html", "<head", "<body", "<h1", "<p>", "<div", "<!--"];
        let literal: String = body.texts().collect();
        let start = literal.trim_start();
        let head: String = start.chars().take(14).collect::<String>().to_ascii_lowercase();
        match start.starts_with(['{', '[']) {
            true => Self::Json,
            false if TAGS.iter().any(|tag| head.starts_with(tag)) => Self::Html,
            false => Self::Text,
        }
    }

    fn of(self, body: &str) -> &'static str {
        match self {
            Self::Html => "text/html; charset=utf-8",
            Self::Json if serde_json::from_str::<IgnoredAny>(body).is_ok() => "application/json",
            Self::Json | Self::Text => "text/plain; charset=utf-8",
        }
    }
}

pub(in super::super) fn parse(config: &mut Config<'_>) -> Box<dyn Action> {
    let body = body(config);
    Box::new(CustomResponse {
        status_code: config.status(200, FINAL_STATUS),
        literal_type: LiteralType::read(&body),
        body,
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
