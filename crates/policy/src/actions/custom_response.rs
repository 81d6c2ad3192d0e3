//! `custom-response`: answer with what the document says.

use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, StatusCode};
use serde::de::IgnoredAny;

use ginnel_http1::has_content;

use super::super::config::FINAL_STATUS;
use super::super::headers::{self, HeaderTemplate};
use super::super::markup::{begins_with_markup, is_html};
use super::prelude::*;

/// Answers a request, or replaces a response.
#[derive(Debug)]
pub struct CustomResponse {
    /// The status of the answer; 200 unless given.
    pub status_code: u16,
    /// The body; empty unless given. Responses with the status 204, 205 or 304 are sent without it.
    pub body: Template,
    /// Headers by lower-case name. Without a `content-type`, the literal text of the body decides.
    pub headers: Vec<HeaderTemplate>,
    /// The type of a body, unless a header names it.
    literal_type: LiteralType,
}

impl Action for CustomResponse {
    fn run(&self, turn: &mut Turn<'_>) -> ActionResult<Flow> {
        // The configuration allows only such numbers.
        let status = StatusCode::from_u16(self.status_code).unwrap_or_default();
        let body = if has_content(status) { turn.render(&self.body)? } else { String::new() };
        let mut headers: HeaderMap =
            headers::render_headers(&self.headers, turn)?.into_iter().collect();
        if !body.is_empty() && !headers.contains_key(CONTENT_TYPE) {
            headers.insert(
                CONTENT_TYPE,
                HeaderValue::from_static(self.literal_type.content_type(&body)),
            );
        }
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
    fn from_template(body: &Template) -> Self {
        let pieces: Vec<_> = body.text_pieces().collect();
        let literal = pieces.join(EXPRESSION);
        let is_json = match body.fixed_text() {
            Some(text) => is_json(text),
            None => literal.trim_start().starts_with(['{', '[']),
        };
        // A visitor must not choose the content of a page because a text mentions a tag.
        let may_be_html = body.fixed_text().is_some()
            || (!body.begins_with_expression() && begins_with_markup(&literal));
        match is_json {
            true => Self::Json,
            false if may_be_html && is_html(&literal) => Self::Html,
            false => Self::Text,
        }
    }

    fn content_type(self, body: &str) -> &'static str {
        match self {
            Self::Html => "text/html; charset=utf-8",
            Self::Json if is_json(body) => "application/json",
            Self::Json | Self::Text => "text/plain; charset=utf-8",
        }
    }
}

/// The character that replaces an expression in the literal text, so that no tag is made of the texts around it.
const EXPRESSION: &str = "\u{fffc}";

/// Returns true if a text is a JSON object or array.
fn is_json(text: &str) -> bool {
    text.trim_start().starts_with(['{', '[']) && serde_json::from_str::<IgnoredAny>(text).is_ok()
}

pub(in super::super) fn parse_config(config: &mut Config<'_>) -> Box<dyn Action> {
    let body = read_body_template(config);
    Box::new(CustomResponse {
        status_code: config.status_field(200, FINAL_STATUS),
        literal_type: LiteralType::from_template(&body),
        body,
        headers: headers::read_header_map(config, "headers", 0..=10),
    })
}

/// The body, which was called `content` before.
fn read_body_template(config: &mut Config<'_>) -> Template {
    let (body, content) = (config.template_field("body"), config.template_field("content"));
    if body.is_some() && content.is_some() {
        config.record_problem("content", code::DUPLICATE, "content is the older name of body");
    }
    body.or(content).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::super::super::Phase;
    use super::*;

    #[test]
    fn a_text_with_expressions_is_html_only_if_it_begins_with_markup() {
        for (body, expected) in [
            ("<b>Hi ${req.host}</b>", LiteralType::Html),
            ("<h1>${req.host}</h1>", LiteralType::Html),
            ("\n<table><tr><td>${req.host}</td></tr></table>", LiteralType::Html),
            ("<a href='${req.host}'>", LiteralType::Html),
            ("<meta charset=utf-8>${req.host}", LiteralType::Html),
            ("<!doctype html>${req.host}", LiteralType::Html),
            ("<p>${req.host}", LiteralType::Html),
            ("<html>${req.url.query}", LiteralType::Html),
            ("<p>${req.host}<br>", LiteralType::Html),
            ("see <a href='/x'>there</a>", LiteralType::Html),
            ("see <a href='/x'>${req.host}</a>", LiteralType::Text),
            ("${req.host}<b>x</b>", LiteralType::Text),
            (" ${req.host}<b>x</b>", LiteralType::Text),
            ("<${req.host}b>x</b>", LiteralType::Text),
            ("no ${req.host}; usage: GET /v1/<object>/<id>", LiteralType::Text),
            ("<code> <data> <time> <label> <source> <link> ${req.host}", LiteralType::Text),
            ("usage: <title> <output>", LiteralType::Text),
            ("{\"x\": \"<b>${req.host}</b>\"}", LiteralType::Json),
        ] {
            let template = Template::compile(body, Phase::Request).unwrap();
            assert_eq!(LiteralType::from_template(&template), expected, "{body}");
        }
    }
}
