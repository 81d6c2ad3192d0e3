//! `request-body-find-replace` and `response-body-find-replace`: change a body.

use std::borrow::Cow;

use bytes::Bytes;
use http::HeaderValue;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use serde_json::json;

use ginnel_http1::coding::{self, CodingError};
use ginnel_http1::media_type_in;

use super::super::action_error::failure;
use super::super::replace::{Replaced, escape_replacement, replace_matches};
use super::super::template::PatternTemplate;
use super::prelude::*;

/// How long a body may be that is looked at, in bytes: as it is sent, and without its codings.
const LIMIT: usize = 1 << 20;

/// Why a body stays as it is.
const NOT_TEXT: &str = "the body is not text";

/// The media type of forms.
const FORM: &str = "application/x-www-form-urlencoded";

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
    fn run(&self, turn: &mut Turn<'_>) -> ActionResult<Flow> {
        let body = turn.full_body(LIMIT).map_err(|error| unreadable_body_error(turn, error))?;
        let Some(body) = body else { return Ok(Flow::NeedBody { limit: LIMIT }) };
        let plain = decode_body(turn, &body).map_err(|error| unreadable_body_error(turn, error))?;
        let (mut text, form) = match String::from_utf8(plain.into_owned()) {
            Ok(text) => (text, TextForm::Utf8),
            Err(error) if is_text(turn) => (decode_latin1(error.as_bytes()), TextForm::Latin1),
            Err(_) => return Err(ActionError::non_fatal(failure::UNREADABLE, NOT_TEXT)),
        };
        let mut matched = Vec::new();
        for (index, replacement) in self.replacements.iter().enumerate() {
            let replaced = replacement.replace_matches(&text, turn)?;
            if let Some(first) = replaced.matches.first() {
                matched.push(json!({"replacement_index": index, "matched_content": first}));
            }
            text = replaced.text;
        }
        if !matched.is_empty() {
            let body = match form {
                TextForm::Utf8 => text.into_bytes(),
                TextForm::Latin1 => encode_latin1(&text),
            };
            turn.exchange.set_body(turn.phase, body.into());
        }
        turn.set_result(json!({"replacements": matched}));
        Ok(Flow::Continue)
    }

    /// What is to be replaced may be what nobody is to see.
    fn fails_closed(&self) -> bool {
        true
    }
}

/// How the characters of a body are written.
#[derive(Clone, Copy)]
enum TextForm {
    Utf8,
    /// In any other way in which ASCII stays ASCII: each byte is taken for a character.
    Latin1,
}

/// The body without its codings.
fn decode_body<'b>(turn: &mut Turn<'_>, body: &'b Bytes) -> ActionResult<Cow<'b, [u8]>> {
    if turn.exchange.is_partial(turn.phase) && !body.is_empty() {
        let message = "a part of a body may hold the half of a match";
        return Err(ActionError::fatal(failure::UNREADABLE, message));
    }
    let headers = turn.headers_mut();
    let codings = headers.iter().flat_map(|headers| headers.get_all(CONTENT_ENCODING));
    coding::decode_body(codings.map(HeaderValue::as_bytes), body, LIMIT).map_err(|problem| {
        let code = match problem {
            CodingError::TooLong(_) => failure::BODY,
            _ => failure::UNREADABLE,
        };
        ActionError::fatal(code, format!("the body cannot be read: {problem}"))
    })
}

/// A body that cannot be read does not pass, unless it says that it is none of a text.
fn unreadable_body_error(turn: &mut Turn<'_>, error: ActionError) -> ActionError {
    const MEDIA: [&str; 4] = ["image/", "audio/", "video/", "font/"];
    let kind = content_type(turn);
    let is_media = MEDIA.iter().any(|media| kind.starts_with(media)) && !is_text_type(&kind);
    if is_media { ActionError::non_fatal(failure::UNREADABLE, NOT_TEXT) } else { error }
}

fn is_text(turn: &mut Turn<'_>) -> bool {
    is_text_type(&content_type(turn))
}

/// Whether a media type is one of texts.
fn is_text_type(kind: &str) -> bool {
    const TEXTS: [&str; 4] =
        ["application/json", "application/xml", "application/javascript", FORM];
    kind.starts_with("text/")
        || kind.ends_with("+json")
        || kind.ends_with("+xml")
        || TEXTS.contains(&kind)
}

/// The media type of the body, without parameters, in lower case.
fn content_type(turn: &mut Turn<'_>) -> String {
    let value = turn.headers_mut().and_then(|headers| headers.get(CONTENT_TYPE));
    let value = value.map(|value| String::from_utf8_lossy(value.as_bytes()));
    media_type_in(&value.unwrap_or_default()).to_ascii_lowercase()
}

/// A text of which each byte is a character.
fn decode_latin1(bytes: &[u8]) -> String {
    bytes.iter().copied().map(char::from).collect()
}

/// The bytes of such a text; what a replacement has brought besides is in UTF-8.
fn encode_latin1(text: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    for character in text.chars() {
        match u8::try_from(character) {
            Ok(byte) => bytes.push(byte),
            Err(_) => bytes.extend(character.encode_utf8(&mut [0; 4]).bytes()),
        }
    }
    bytes
}

impl Replacement {
    fn replace_matches(&self, text: &str, turn: &Turn<'_>) -> ActionResult<Replaced> {
        let facts = turn.facts();
        let pattern = self.from.to_regex(&facts)?;
        let to = self.to.render(&facts, |value| escape_replacement(&value))?;
        replace_matches(&pattern, text, &to, RESULT).ok_or_else(|| {
            ActionError::fatal(
                failure::BODY,
                format!("the body would have more than {RESULT} bytes"),
            )
        })
    }
}

pub(in super::super) fn parse_config(config: &mut Config<'_>) -> Box<dyn Action> {
    let mut replacements = Vec::new();
    for (place, entry) in config.list_entries("replacements", 1..=10) {
        let mut entry = config.open_entry(place, entry);
        replacements.extend(read_replacement(&mut entry));
        entry.reject_unknown_fields();
    }
    Box::new(BodyFindReplace { replacements })
}

fn read_replacement(config: &mut Config<'_>) -> Option<Replacement> {
    let source = config.required_field("from");
    if source.is_some_and(|source| source == "") {
        config.record_problem("from", code::EMPTY, "from must not be empty");
    }
    let from = config.pattern_field("from");
    config.required_field("to");
    let to = config.template_field("to");
    Some(Replacement { from: from?, to: to? })
}
