//! Headers in configurations.
//!
//! What is checked here is what a document says literally; the values of expressions are checked
//! when they are known.

use std::ops::RangeInclusive;

use http::header::AsHeaderName;
use http::{HeaderMap, HeaderName, HeaderValue};

use super::action_error::{ActionError, failure};
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

/// Headers by lower-case name, in the order of the document.
pub(super) type HeaderTemplates = Vec<(String, Template)>;

/// Reads a map of so many headers; a map that is missing is empty.
pub(super) fn map(
    config: &mut Config<'_>,
    name: &'static str,
    limits: RangeInclusive<usize>,
) -> HeaderTemplates {
    let value = if *limits.start() > 0 { config.required(name) } else { config.value(name) };
    let Some(value) = value else { return Vec::new() };
    let Some(fields) = value.as_object() else {
        config.refuse(name, code::CONFIG, format!("{name} must be a map"));
        return Vec::new();
    };
    check_count(config, name, fields.len(), &limits);
    let place = config.place().field(name);
    let mut headers: HeaderTemplates = Vec::new();
    for (field, value) in fields.iter().take(*limits.end()) {
        let place = place.field(field);
        let lower = field.to_lowercase();
        check_name(config, &place, &lower);
        if headers.iter().any(|(known, _)| *known == lower) {
            config.refuse_at(&place, code::DUPLICATE, "the header is there twice");
        }
        if FRAMING.contains(&lower.as_str()) {
            config.refuse_at(&place, code::NOT_CONFIGURABLE, "a policy may not set this header");
        }
        let Some(text) = value.as_str() else {
            config.refuse_at(&place, code::CONFIG, "must be a text");
            continue;
        };
        headers.push((lower, value_template(config, &place, text)));
    }
    headers
}

/// Reads a list of so many header names.
pub(super) fn names(
    config: &mut Config<'_>,
    name: &'static str,
    limits: RangeInclusive<usize>,
) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    let Some(value) = config.required(name) else { return names };
    let count = value.as_array().map_or(1, Vec::len);
    check_count(config, name, count, &limits);
    for (place, text) in config.texts(name, 0..=usize::MAX).into_iter().take(*limits.end()) {
        let lower = text.to_lowercase();
        check_name(config, &place, &lower);
        if names.contains(&lower) {
            config.refuse_at(&place, code::DUPLICATE, "the header is there twice");
        }
        names.push(lower);
    }
    names
}

/// Refuses a header that says who the visitor is.
pub(super) fn refuse_user_agent<'h>(
    config: &mut Config<'_>,
    name: &'static str,
    headers: impl IntoIterator<Item = &'h String>,
) {
    if headers.into_iter().any(|header| header == "user-agent") {
        config.refuse(name, code::NOT_CONFIGURABLE, "user-agent may not be changed");
    }
}

/// The names and values of configured headers, with the values of their expressions.
///
/// A value that would end its line fails: it could forge another header, or another message.
pub(super) fn values(
    headers: &[(String, Template)],
    turn: &Turn<'_>,
) -> Result<Vec<(HeaderName, HeaderValue)>, ActionError> {
    let unfit =
        |name: &str| ActionError::fatal(failure::VALUE, format!("no value for the header {name}"));
    let value = |(name, template): &(String, Template)| {
        let text = turn.render(template)?;
        if text.len() > VALUE || !is_value(&text) {
            return Err(unfit(name));
        }
        let value = HeaderValue::try_from(text).map_err(|_| unfit(name))?;
        Ok((HeaderName::try_from(name).map_err(|_| unfit(name))?, value))
    };
    headers.iter().map(value).collect()
}

/// A header that a request has exactly once.
///
/// Servers disagree about which of several lines counts, so who is let in for one of them might come
/// to act by another.
pub(super) fn single(headers: &HeaderMap, name: impl AsHeaderName) -> Option<&HeaderValue> {
    let mut lines = headers.get_all(name).iter();
    lines.next().filter(|_| lines.next().is_none())
}

/// Whether a text can be part of a header value: no control characters, above all no line breaks.
pub(super) fn is_value(text: &str) -> bool {
    text.chars().all(|character| character == '\t' || !character.is_control())
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
        config.refuse(name, code::HEADER_COUNT, message);
    }
}

fn check_name(config: &mut Config<'_>, place: &DocumentPath, name: &str) {
    if name.len() > NAME {
        let message = format!("the header name is longer than {NAME} bytes");
        config.refuse_at(place, code::HEADER_NAME_LENGTH, message);
    } else if name.is_empty() || !name.bytes().all(is_token) {
        config.refuse_at(place, code::HEADER_NAME, "not a header name");
    }
}

fn value_template(config: &mut Config<'_>, place: &DocumentPath, text: &str) -> Template {
    if text.len() > VALUE {
        let message = format!("the header value is longer than {VALUE} bytes");
        config.refuse_at(place, code::HEADER_VALUE_LENGTH, message);
    }
    let template = config.checker().template(place, text);
    if !template.texts().all(is_value) {
        let message = "a header value may not hold control characters";
        config.refuse_at(place, code::HEADER_VALUE, message);
    }
    template
}

fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}
