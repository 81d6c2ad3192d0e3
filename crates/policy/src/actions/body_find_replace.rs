//! `request-body-find-replace` and `response-body-find-replace`: change a body.

use std::borrow::Cow;

use bytes::Bytes;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use serde_json::json;

use ginnel_http1::coding::{self, CodingError, ContentCoding};
use ginnel_http1::{MediaType, list_elements, media_type_parameters};

use super::super::action_error::failure;
use super::super::body_replacer::{
    BodyReplacement, BodyUnit, FixedReplacement, TextForm, decode_latin1, encode_latin1,
    has_limited_span,
};
use super::super::exchange::Content;
use super::super::replace::{Replaced, escape_replacement, replace_matches};
use super::super::template::PatternTemplate;
use super::prelude::*;

/// The maximum length of a body that is held back and searched as a whole, in bytes: as it is sent, and without its codings.
const LIMIT: usize = 1 << 20;

/// Why a body stays as it is.
const NOT_TEXT: &str = "the body is not text";

/// The media type of forms.
const FORM: &str = "application/x-www-form-urlencoded";

/// How long a body may become, in bytes.
const RESULT: usize = 2 << 20;

/// Replaces what occurs in a body. Short bodies are held back for that; events, lines of JSON and long bodies are searched
/// on their way.
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
        let media_type = media_type(turn);
        let is_searched = !media_type.is_endless() || media_type.is_event_stream();
        if !is_searched {
            turn.set_result(json!({"replacements": []}));
            return Ok(Flow::Continue);
        }
        if turn.exchange.has_no_content(turn.phase) {
            if !is_media(&media_type) {
                turn.exchange.mark_absent_content_replaced();
            }
            turn.set_result(json!({"replacements": []}));
            return Ok(Flow::Continue);
        }
        let unit = match () {
            () if media_type.is_event_stream() => BodyUnit::Event,
            () if media_type.is_json_lines() => BodyUnit::Line,
            () => BodyUnit::Window,
        };
        // The text that an earlier action replaces on the way is not complete yet.
        if unit != BodyUnit::Window || turn.exchange.is_replaced_on_way(turn.phase) {
            return self.replace_on_way(unit, turn);
        }
        match self.replace_whole(turn) {
            Err(WholeBodyError::TooLong) => self.replace_long(turn),
            Err(WholeBodyError::Failed(error)) => Err(unreadable_body_error(turn, error)),
            Ok(flow) => Ok(flow),
        }
    }

    /// The text to be replaced may be a secret.
    fn fails_closed(&self) -> bool {
        true
    }
}

/// Why a body is not searched as a whole.
enum WholeBodyError {
    TooLong,
    Failed(ActionError),
}

impl From<ActionError> for WholeBodyError {
    fn from(error: ActionError) -> Self {
        Self::Failed(error)
    }
}

impl BodyFindReplace {
    /// Replaces in a body that is held back.
    fn replace_whole(&self, turn: &mut Turn<'_>) -> Result<Flow, WholeBodyError> {
        let body = match turn.exchange.body(turn.phase) {
            Some(Content::Full(body)) if body.len() <= LIMIT => body.clone(),
            Some(Content::Passing) => return Ok(Flow::NeedBody { limit: LIMIT }),
            _ => return Err(WholeBodyError::TooLong),
        };
        let plain = decode_body(turn, &body)?;
        reject_wide_charset(turn, &plain)?;
        let (mut text, form) = match String::from_utf8(plain.into_owned()) {
            Ok(text) => (text, TextForm::Utf8),
            Err(error) if is_text(turn) => (decode_latin1(error.as_bytes()), TextForm::Latin1),
            Err(_) => return Err(not_text_error().into()),
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

    /// Replaces in a body that is too long to be held back.
    fn replace_long(&self, turn: &mut Turn<'_>) -> ActionResult<Flow> {
        if is_media(&media_type(turn)) {
            return Err(not_text_error());
        }
        let beginning = match turn.exchange.body(turn.phase) {
            Some(Content::Full(body) | Content::TooLong(body)) if !body.is_empty() => body.clone(),
            _ => return Err(ActionError::fatal(failure::UNREADABLE, "the body broke off")),
        };
        let beginning = decode_beginning(turn, &beginning);
        reject_wide_charset(turn, &beginning)?;
        // The last character may be cut.
        let is_utf8 =
            str::from_utf8(&beginning).map_or_else(|it| it.error_len().is_none(), |_| true);
        if !is_utf8 && !is_text(turn) {
            return Err(not_text_error());
        }
        self.replace_on_way(BodyUnit::Window, turn)
    }

    /// Has the body searched on its way, in parts.
    fn replace_on_way(&self, unit: BodyUnit, turn: &mut Turn<'_>) -> ActionResult<Flow> {
        reject_part(turn)?;
        reject_wide_charset(turn, b"")?;
        let facts = turn.facts();
        let mut replacements = Vec::new();
        for replacement in &self.replacements {
            let pattern = replacement.from.to_regex(&facts)?.into_owned();
            if unit == BodyUnit::Window && !has_limited_span(&pattern) {
                return Err(ActionError::fatal(failure::BODY, unlimited_span(pattern.as_str())));
            }
            let to = replacement.to.render(&facts, |value| escape_replacement(&value))?;
            replacements.push(FixedReplacement { pattern, to });
        }
        let form = declared_form(turn);
        let replacement = BodyReplacement { codings: codings(turn), form, unit, replacements };
        replacement.check_codings().map_err(|problem| {
            ActionError::fatal(failure::UNREADABLE, format!("the body cannot be read: {problem}"))
        })?;
        turn.exchange.mark_replaced(turn.phase, replacement);
        turn.set_result(json!({"replacements": []}));
        Ok(Flow::Continue)
    }
}

/// Returns the lines of `Content-Encoding`.
fn codings(turn: &mut Turn<'_>) -> Vec<Bytes> {
    let headers = turn.headers_mut();
    let lines = headers.iter().flat_map(|headers| headers.get_all(CONTENT_ENCODING));
    lines.map(|line| Bytes::copy_from_slice(line.as_bytes())).collect()
}

/// The body without its codings.
fn decode_body<'b>(turn: &mut Turn<'_>, body: &'b Bytes) -> Result<Cow<'b, [u8]>, WholeBodyError> {
    if !body.is_empty() {
        reject_part(turn)?;
    }
    let codings = codings(turn);
    coding::decode_body(codings.iter().map(Bytes::as_ref), body, LIMIT).map_err(|problem| {
        match problem {
            CodingError::TooLong(_) => WholeBodyError::TooLong,
            problem => {
                let message = format!("the body cannot be read: {problem}");
                ActionError::fatal(failure::UNREADABLE, message).into()
            }
        }
    })
}

/// Returns as many bytes of a long body as can be decoded.
fn decode_beginning(turn: &mut Turn<'_>, beginning: &Bytes) -> Bytes {
    let lines = codings(turn);
    let names = lines.iter().flat_map(|line| list_elements(line)).collect::<Vec<_>>();
    names.into_iter().rev().fold(beginning.clone(), |bytes, name| {
        match ContentCoding::from_name(name) {
            Some(Ok(coding)) => coding.decode_some(&bytes, LIMIT).0.into(),
            // An unknown coding is rejected when the body is searched.
            _ => bytes,
        }
    })
}

/// Rejects a part of a body.
fn reject_part(turn: &Turn<'_>) -> ActionResult<()> {
    if turn.exchange.is_partial(turn.phase) {
        let message = "a part of a body may hold the half of a match";
        return Err(ActionError::fatal(failure::UNREADABLE, message));
    }
    Ok(())
}

/// Rejects text in UTF-16 or UTF-32, in which a pattern would match nothing.
fn reject_wide_charset(turn: &mut Turn<'_>, beginning: &[u8]) -> ActionResult<()> {
    let charset = declared_charset(turn).unwrap_or_default();
    let has_mark = beginning.starts_with(b"\xff\xfe") || beginning.starts_with(b"\xfe\xff");
    let is_wide = ["utf-16", "utf16", "utf-32", "utf32", "ucs-2", "ucs-4", "unicode"]
        .iter()
        .any(|start| charset.starts_with(start));
    if is_wide || has_mark && is_text(turn) {
        let message = "the body is text in UTF-16 or UTF-32, which is not searched";
        return Err(ActionError::fatal(failure::UNREADABLE, message));
    }
    Ok(())
}

/// Returns how the characters of a body are written that is not there yet.
fn declared_form(turn: &mut Turn<'_>) -> TextForm {
    match declared_charset(turn).as_deref() {
        None | Some("" | "utf-8" | "utf8" | "us-ascii" | "ascii") => TextForm::Utf8,
        Some(_) => TextForm::Latin1,
    }
}

/// Returns the charset that the media type names, in lower case.
fn declared_charset(turn: &mut Turn<'_>) -> Option<String> {
    let value = turn.headers_mut()?.get(CONTENT_TYPE)?;
    let parameters = media_type_parameters(&String::from_utf8_lossy(value.as_bytes()));
    let charset = parameters.into_iter().find(|(name, _)| name == "charset");
    charset.map(|(_, charset)| charset.to_ascii_lowercase())
}

fn unlimited_span(pattern: &str) -> String {
    format!(
        "a body of more than {LIMIT} bytes, and a match of {pattern:?} may have any length; limit the repetitions \
         of the pattern, as in {{1,100}}"
    )
}

fn not_text_error() -> ActionError {
    ActionError::non_fatal(failure::UNREADABLE, NOT_TEXT)
}

/// A body that cannot be read does not pass, unless it says that it is none of a text.
fn unreadable_body_error(turn: &mut Turn<'_>, error: ActionError) -> ActionError {
    if is_media(&media_type(turn)) { not_text_error() } else { error }
}

/// Returns true for images, sound, films and fonts.
fn is_media(media_type: &MediaType<'_>) -> bool {
    const MEDIA: [&str; 4] = ["image/", "audio/", "video/", "font/"];
    let kind = media_type.as_str();
    MEDIA.iter().any(|media| kind.starts_with(media)) && !is_text_type(kind)
}

fn is_text(turn: &mut Turn<'_>) -> bool {
    is_text_type(media_type(turn).as_str())
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

fn media_type(turn: &mut Turn<'_>) -> MediaType<'static> {
    turn.headers_mut()
        .map_or_else(|| MediaType::from_value(b""), |it| MediaType::from_headers(it).into_owned())
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
