//! Headers in configurations.
//!
//! What is checked here is what a document says literally; the values of expressions are checked
//! when they are known.

use std::borrow::Cow;
use std::ops::RangeInclusive;

use http::{HeaderMap, HeaderName, HeaderValue};
use serde_json::Value;

use ginnel_http1::SpelledValues;

use super::action_error::{ActionError, ActionResult, failure};
use super::config::Config;
use super::problem::{DocumentPath, code};
use super::template::Template;
use super::turn::Turn;

/// How long a header name may be, in bytes.
const NAME: usize = 256;

/// How long a header value may be, in bytes.
const VALUE: usize = 8192;

/// Headers that say where a message ends; a policy could split a response with them.
const FRAMING: &[&str] = &["connection", "content-length", "transfer-encoding"];

/// A header of a configuration.
#[derive(Debug, Clone)]
pub struct HeaderTemplate {
    /// Its name, in lower case.
    pub name: HeaderName,
    /// Its value.
    pub value: Template,
    /// Its value where no expression is in it, made once and shared by all messages.
    fixed: Option<HeaderValue>,
}

/// Headers in the order of the document.
pub(super) type HeaderTemplates = Vec<HeaderTemplate>;

impl HeaderTemplate {
    fn new(name: HeaderName, value: Template) -> Self {
        // A value that cannot be one is refused when it is used, as the value of an expression is.
        let fixed = value.fixed_text().filter(|text| is_usable(text));
        let fixed = fixed.and_then(|text| HeaderValue::try_from(text).ok());
        Self { name, value, fixed }
    }

    /// The value where it is the same for all messages.
    pub(super) fn fixed_value(&self) -> Option<&HeaderValue> {
        self.fixed.as_ref()
    }

    /// The value for a message.
    ///
    /// A value that would end its line fails: it could forge another header, or another message.
    fn render_value(&self, turn: &Turn<'_>) -> ActionResult<HeaderValue> {
        if let Some(fixed) = &self.fixed {
            return Ok(fixed.clone());
        }
        let text = turn.render(&self.value)?;
        let value = is_usable(&text).then(|| HeaderValue::try_from(text).ok()).flatten();
        value.ok_or_else(|| {
            ActionError::fatal(failure::VALUE, format!("no value for the header {}", self.name))
        })
    }
}

/// Reads a map of so many headers; a map that is missing is empty.
pub(super) fn read_header_map(
    config: &mut Config<'_>,
    name: &'static str,
    limits: RangeInclusive<usize>,
) -> HeaderTemplates {
    let value =
        if *limits.start() > 0 { config.required_field(name) } else { config.field_value(name) };
    let Some(value) = value else { return Vec::new() };
    let Some(fields) = value.as_object() else {
        config.record_problem(name, code::CONFIG, format!("{name} must be a map"));
        return Vec::new();
    };
    check_count(config, name, fields.len(), &limits);
    let place = config.place().field(name);
    let mut headers: HeaderTemplates = Vec::new();
    for (field, value) in fields.iter().take(*limits.end()) {
        let place = place.field(field);
        let lower = field.to_lowercase();
        check_name(config, &place, &lower);
        if headers.iter().any(|known| known.name.as_str() == lower) {
            config.record_problem_at(&place, code::DUPLICATE, "the header is there twice");
        }
        if FRAMING.contains(&lower.as_str()) {
            config.record_problem_at(
                &place,
                code::NOT_CONFIGURABLE,
                "a policy may not set this header",
            );
        }
        let text = match value {
            Value::String(text) => Cow::Borrowed(text.as_str()),
            _ => {
                config.record_problem_at(&place, code::CONFIG, "must be a text");
                continue;
            }
        };
        let value = value_template(config, &place, &text);
        // What is no name was refused above.
        headers.extend(HeaderName::try_from(lower).map(|name| HeaderTemplate::new(name, value)));
    }
    headers
}

/// Reads a list of so many header names.
pub(super) fn read_header_names(
    config: &mut Config<'_>,
    name: &'static str,
    limits: RangeInclusive<usize>,
) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    let Some(value) = config.required_field(name) else { return names };
    let count = value.as_array().map_or(1, Vec::len);
    check_count(config, name, count, &limits);
    for (place, text) in config.text_entries(name, 0..=usize::MAX).into_iter().take(*limits.end()) {
        let lower = text.to_lowercase();
        check_name(config, &place, &lower);
        if names.contains(&lower) {
            config.record_problem_at(&place, code::DUPLICATE, "the header is there twice");
        }
        names.push(lower);
    }
    names
}

/// Refuses a header that says who the visitor is.
pub(super) fn reject_user_agent<'h>(
    config: &mut Config<'_>,
    name: &'static str,
    headers: impl IntoIterator<Item = &'h str>,
) {
    if headers.into_iter().any(|header| header == "user-agent") {
        config.record_problem(name, code::NOT_CONFIGURABLE, "user-agent may not be changed");
    }
}

/// The names and values of configured headers, with the values of their expressions.
pub(super) fn render_headers(
    headers: &[HeaderTemplate],
    turn: &Turn<'_>,
) -> ActionResult<Vec<(HeaderName, HeaderValue)>> {
    headers.iter().map(|header| Ok((header.name.clone(), header.render_value(turn)?))).collect()
}

/// A header that a request has exactly once, in whatever spelling CGI and WSGI take for it.
///
/// Servers disagree about which of several lines counts, so who is let in for one of them might come
/// to act by another.
pub(super) fn single_header<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h HeaderValue> {
    let mut lines = SpelledValues::new(headers, name);
    lines.next().filter(|_| lines.next().is_none())
}

/// Whether a text can be part of a header value: no control characters, above all no line breaks.
pub(super) fn is_value(text: &str) -> bool {
    text.chars().all(|character| character == '\t' || !character.is_control())
}

/// Whether a text may be the value of a header that a policy sets.
fn is_usable(text: &str) -> bool {
    text.len() <= VALUE && is_value(text)
}

fn check_count(
    config: &mut Config<'_>,
    name: &'static str,
    count: usize,
    limits: &RangeInclusive<usize>,
) {
    if !limits.contains(&count) {
        let (least, most) = (limits.start(), limits.end());
        let message = format!("{name} must have from {least} to {most} headers");
        config.record_problem(name, code::HEADER_COUNT, message);
    }
}

fn check_name(config: &mut Config<'_>, place: &DocumentPath, name: &str) {
    if name.len() > NAME {
        let message = format!("the header name is longer than {NAME} bytes");
        config.record_problem_at(place, code::HEADER_NAME_LENGTH, message);
    } else if name.is_empty() || !name.bytes().all(is_token) {
        config.record_problem_at(place, code::HEADER_NAME, "not a header name");
    }
}

fn value_template(config: &mut Config<'_>, place: &DocumentPath, text: &str) -> Template {
    if text.len() > VALUE {
        let message = format!("the header value is longer than {VALUE} bytes");
        config.record_problem_at(place, code::HEADER_VALUE_LENGTH, message);
    }
    let template = config.checker().compile_template(place, text);
    if !template.text_pieces().all(is_value) {
        let message = "a header value may not hold control characters";
        config.record_problem_at(place, code::HEADER_VALUE, message);
    }
    template
}

fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}
