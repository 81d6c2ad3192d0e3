//! The readable form of a body.

use std::borrow::Cow;

use ginnel_http1::coding::DecodedEnd;
use ginnel_http1::{media_type_in, media_type_parameters};

use crate::charset::{Charset, DecodedText, UnencodableText};
use crate::coding::{DecodedContent, UnreadCoding, remove_codings};
use crate::declared_charset::declared_charset;
use crate::form::form_pairs;
use crate::kind::{BodyKind, KindSource};
use crate::multipart::{BodyPart, Multipart, split_parts};

/// The number of letters that decide whether a text is readable.
const EXAMINED_LETTERS: usize = 64 << 10;
/// The number of letters of an unknown charset that are shown.
const MAX_LABEL_CHARS: usize = 40;
/// The parts of the names of types that are text.
const TEXT_TYPES: [&str; 10] = [
    "text/",
    "json",
    "xml",
    "javascript",
    "ecmascript",
    "yaml",
    "graphql",
    "x-www-form-urlencoded",
    "html",
    "multipart/",
];

/// The headers of a message that decide how its body is read.
#[derive(Debug, Clone, Default)]
pub struct BodyHead<'h> {
    /// The value of `Content-Type`, or an empty text.
    pub content_type: &'h str,
    /// The values of `Content-Encoding`. Empty if the body is kept without its codings.
    pub content_encoding: Vec<&'h [u8]>,
    /// If true, the message has opened a WebSocket.
    pub opens_websocket: bool,
    /// If true, the body that was captured is not whole.
    pub is_cut: bool,
}

/// A body as people read it, without its codings. It is not masked.
///
/// Bytes are kept as they came or once decoded. Text, pairs and parts are computed for each call.
#[derive(Debug, Clone)]
pub struct ReadableBody<'a> {
    content: DecodedContent<'a>,
    content_type: String,
    media_type: String,
    /// The charset that the header names.
    named_charset: Option<Charset>,
    /// A label in the header that is not a known charset.
    unknown_charset: Option<String>,
    charset: Charset,
    /// If true, the header or the format names the charset, or the text is UTF-8.
    is_charset_stated: bool,
    kind: BodyKind,
    is_text: bool,
    is_cut: bool,
}

impl<'a> ReadableBody<'a> {
    /// Reads a body, up to `max` bytes without its codings.
    pub fn read(head: &BodyHead<'_>, body: impl Into<Cow<'a, [u8]>>, max: usize) -> Self {
        let content = remove_codings(head.content_encoding.iter().copied(), body, max);
        Self::from_content(head, content, None)
    }

    /// Reads the content of a part of a body.
    pub fn read_part(part: &BodyPart<'a>) -> Self {
        let content = remove_codings([], part.bytes, 0);
        let is_file = part.file_name.is_some();
        // A field is plain text unless its head says otherwise (RFC 7578, section 4.4).
        let default = if is_file { "" } else { "text/plain" };
        let content_type = Some(part.content_type.as_str()).filter(|it| !it.trim().is_empty());
        let head = BodyHead {
            content_type: content_type.unwrap_or(default),
            is_cut: part.is_cut,
            ..BodyHead::default()
        };
        Self::from_content(&head, content, part.form_charset)
    }

    fn from_content(
        head: &BodyHead<'_>,
        content: DecodedContent<'a>,
        form_charset: Option<Charset>,
    ) -> Self {
        let media_type = media_type_in(head.content_type).to_ascii_lowercase();
        let parameters = media_type_parameters(head.content_type);
        let label = parameters.into_iter().find(|(name, _)| name == "charset");
        let label = label.map(|(_, label)| label);
        let named = label.as_deref().and_then(|it| Charset::from_label(it, &content.bytes));
        let is_cut = head.is_cut || content.end != DecodedEnd::Whole;
        let mut body = Self {
            unknown_charset: label.filter(|_| named.is_none()),
            named_charset: named.or(form_charset),
            content_type: head.content_type.to_owned(),
            media_type,
            charset: Charset::UTF_8,
            is_charset_stated: true,
            kind: BodyKind::Empty,
            is_text: false,
            is_cut,
            content,
        };
        (body.charset, body.kind, body.is_text) = body.decide(head.opens_websocket);
        let is_named = body.named_charset == Some(body.charset);
        let is_guessed =
            body.charset.is_wide() || body.charset == Charset::LATIN_1 && !body.find_charset().1;
        body.is_charset_stated = is_named || !is_guessed;
        body
    }

    /// The content without its codings, as far as it could be read.
    pub fn bytes(&self) -> &[u8] {
        &self.content.bytes
    }

    /// The kind of the body.
    pub fn kind(&self) -> BodyKind {
        self.kind
    }

    /// The media type in lower case, without parameters; empty if the header has none.
    pub fn media_type(&self) -> &str {
        &self.media_type
    }

    /// The media type by which the text is to be masked. An image that is text is masked as text.
    pub fn masking_type(&self) -> &str {
        match self.kind {
            BodyKind::Json => "application/json",
            BodyKind::Html => "text/html",
            BodyKind::EventStream => "text/event-stream",
            BodyKind::Form => "application/x-www-form-urlencoded",
            _ if self.is_text && is_media(&self.media_type) => "text/plain",
            _ => &self.media_type,
        }
    }

    /// The charset of the text.
    pub fn charset(&self) -> Charset {
        self.charset
    }

    /// Returns true if the header and the text lead to the charset, so that the text is enough to encode it again.
    pub fn is_charset_stated(&self) -> bool {
        self.is_charset_stated
    }

    /// The charset in the header, if it is not a known one.
    pub fn unknown_charset(&self) -> Option<&str> {
        self.unknown_charset.as_deref()
    }

    /// Returns true if the content is text that people can read.
    pub fn is_text(&self) -> bool {
        self.is_text
    }

    /// The content as text, without a byte order mark. Content that is not text is decoded too.
    pub fn text(&self) -> Cow<'_, str> {
        self.charset.decode(self.bytes(), self.is_cut).text
    }

    /// The content codings that were removed, in the order in which they were applied.
    pub fn removed_codings(&self) -> &[String] {
        &self.content.removed
    }

    /// The first content coding that could not be removed.
    pub fn unread_coding(&self) -> Option<&UnreadCoding> {
        self.content.unread.as_ref()
    }

    /// The end of the content: whether all of it could be read without its codings.
    pub fn end(&self) -> DecodedEnd {
        self.content.end
    }

    /// Returns true if the end of the content is missing: the body was cut off, is damaged or is longer than the limit.
    pub fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// Remarks about the reading: the codings, the charset, missing ends and unreadable parts.
    pub fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if !self.content.removed.is_empty() {
            let end = match self.content.end {
                DecodedEnd::Whole | DecodedEnd::Longer => "",
                DecodedEnd::Cut => ", its end is missing",
                DecodedEnd::Damaged => ", it is damaged",
            };
            notes.push(format!("{} decoded{end}", self.content.removed.join(", ")));
        }
        notes.extend(self.unread_coding().map(UnreadCoding::description));
        if let Some(label) = self.unknown_charset() {
            let label: String = label.chars().take(MAX_LABEL_CHARS).collect();
            notes.push(format!("the charset {label} is not known"));
        }
        if self.is_text && self.charset.name() != "utf-8" {
            notes.push(format!("read as {}", self.charset.name()));
        }
        notes
    }

    /// The parts of a body in parts.
    pub fn parts(&self) -> Option<Multipart<'_>> {
        split_parts(&self.content_type, self.bytes())
    }

    /// The names and values of a form, in one line or in parts. Files are not among them. Returns `None` for other bodies.
    pub fn form(&self) -> Option<Vec<(String, String)>> {
        match self.kind {
            BodyKind::Form => {
                // In a wide form, the whole text has two bytes for each letter.
                if self.charset.is_wide() {
                    return Some(form_pairs(self.text().as_bytes(), None));
                }
                Some(form_pairs(self.bytes(), self.named_charset))
            }
            BodyKind::Multipart => {
                let parts = self.parts()?.parts;
                let fields = parts.iter().filter(|part| part.file_name.is_none());
                let pairs = fields.filter_map(|part| {
                    let text = ReadableBody::read_part(part).text().into_owned();
                    part.name.clone().map(|name| (name, text))
                });
                Some(pairs.collect())
            }
            _ => None,
        }
    }

    /// Returns true if changed text can be encoded so that everything that was not changed stays as it is.
    pub fn is_editable(&self) -> bool {
        let may_be_text = match self.kind {
            BodyKind::Multipart => std::str::from_utf8(self.bytes()).is_ok(),
            kind => self.is_text || kind == BodyKind::Empty,
        };
        may_be_text
            && !self.is_cut
            && self.encode_text(&self.text()).is_ok_and(|bytes| bytes == self.bytes())
    }

    /// Encodes changed text in the charset of the body. Content codings are not applied.
    ///
    /// # Errors
    /// If the charset does not have one of the letters.
    pub fn encode_text(&self, text: &str) -> Result<Vec<u8>, UnencodableText> {
        self.charset.encode(text)
    }

    /// Decides about the charset, the kind, and whether the content is text.
    fn decide(&self, opens_websocket: bool) -> (Charset, BodyKind, bool) {
        let bytes = self.bytes();
        let (charset, is_sure) = self.find_charset();
        // Bytes with an unknown coding have a letter for each byte in Latin-1, but are not text.
        let may_be_text = is_sure || self.content.unread.is_none();
        if opens_websocket {
            return (charset, BodyKind::WebSocket, false);
        }
        if bytes.is_empty() {
            return (charset, BodyKind::Empty, false);
        }
        if self.parts().is_some() {
            return (charset, BodyKind::Multipart, false);
        }
        let decoded = charset.decode(bytes, self.is_cut);
        let is_text = may_be_text && is_readable(&decoded, is_sure, &self.media_type);
        let text = is_text.then_some(&*decoded.text);
        let file = BodyKind::of_file(&self.media_type, bytes);
        // Bytes that look like text are an image only if they begin like one.
        let is_file = text.is_none() || !is_media(&self.media_type) || BodyKind::has_magic(bytes);
        if let Some(kind) = file.filter(|_| is_file) {
            return (charset, kind, false);
        }
        let media_type = if file.is_some() { "" } else { self.media_type.as_str() };
        let source = KindSource { media_type, text, is_cut: self.is_cut };
        (charset, BodyKind::of_text(&source), text.is_some())
    }

    /// Finds the charset: in the header, by the byte order mark, in the format's own declaration, or else UTF-8, or else
    /// Latin-1. The second value is false for Latin-1 that nothing names.
    fn find_charset(&self) -> (Charset, bool) {
        let bytes = self.bytes();
        let marked = Charset::from_byte_order_mark(bytes);
        let has_errors = |charset: Charset| charset.decode(bytes, self.is_cut).has_errors;
        if let Some(named) = self.named_charset {
            // A byte order mark is right about text that is not in the named charset.
            let better = marked.filter(|it| it.is_wide() && !has_errors(*it) && has_errors(named));
            return (better.unwrap_or(named), true);
        }
        // Bytes of a type that is not text may begin like a mark by chance.
        let is_textual = is_textual(&self.media_type);
        let may_be_wide = self.media_type.is_empty() || is_textual;
        let is_marked =
            |it: &Charset| is_textual || !has_errors(*it) && (may_be_wide || !it.is_wide());
        if let Some(marked) = marked.filter(is_marked) {
            return (marked, true);
        }
        if let Some(wide) = Charset::from_zeros(bytes).filter(|_| may_be_wide) {
            return (wide, true);
        }
        let declared = declared_charset(&self.media_type, bytes);
        let declared = declared.and_then(|label| Charset::from_label(&label, bytes));
        if let Some(declared) = declared.filter(|it| !it.is_wide()) {
            return (declared, true);
        }
        match has_errors(Charset::UTF_8) {
            true => (Charset::LATIN_1, false),
            false => (Charset::UTF_8, true),
        }
    }
}

impl ReadableBody<'_> {
    /// Returns a body that borrows nothing.
    pub fn into_owned(self) -> ReadableBody<'static> {
        let DecodedContent { bytes, removed, unread, end } = self.content;
        let bytes = Cow::Owned(bytes.into_owned());
        let content = DecodedContent { bytes, removed, unread, end };
        ReadableBody { content, ..self }
    }
}

/// Returns true if text is readable. Latin-1 that nothing names has a letter for every byte, so it needs a type of text,
/// or no control characters.
fn is_readable(decoded: &DecodedText<'_>, is_sure: bool, media_type: &str) -> bool {
    let (mut strange, mut all) = (0, 0);
    for letter in decoded.text.chars().take(EXAMINED_LETTERS) {
        all += 1;
        // A record separator begins a value of a JSON sequence (RFC 7464).
        let is_control = letter.is_control() && !letter.is_whitespace() && letter != '\u{1e}';
        if is_control || letter == char::REPLACEMENT_CHARACTER {
            strange += 1;
        }
    }
    match is_sure {
        true => strange * 10 <= all,
        false if is_textual(media_type) => strange * 50 <= all,
        false => media_type.is_empty() && strange == 0,
    }
}

/// Returns true for a type of text.
fn is_textual(media_type: &str) -> bool {
    TEXT_TYPES.iter().any(|part| media_type.contains(part))
}

/// Returns true for a type of something that is looked at or listened to.
fn is_media(media_type: &str) -> bool {
    ["audio/", "font/", "image/", "video/"].iter().any(|start| media_type.starts_with(start))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
