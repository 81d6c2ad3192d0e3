//! Replacing in bodies that are not held back: event by event, line by line, or in a window.

use std::io;

use ::regex::Regex;
use bytes::Bytes;
use regex_syntax::Parser;

use ginnel_http1::CodingRemover;
use ginnel_http1::coding::CodingError;

use super::replace::replace_matches;

/// The part of a window that is searched again with the bytes behind it, in bytes. Longer matches are missed.
pub(super) const OVERLAP_BYTES: usize = 64 << 10;
/// The number of new bytes with which a window is searched.
const STEP_BYTES: usize = 64 << 10;
/// The maximum length of an event or a line, in bytes.
const MAX_UNIT_BYTES: usize = 1 << 20;
/// The maximum length of an event, a line or a step of a window after the replacements, in bytes.
const MAX_RESULT_BYTES: usize = 2 << 20;
/// The first of 256 characters that are bytes which are not UTF-8. They are private to each program (Unicode, section 23.5).
const FOREIGN_BYTES: u32 = 0x10_ff00;

/// The part of a body in which a match must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BodyUnit {
    /// A server-sent event.
    Event,
    /// A line.
    Line,
    /// Some of the text, which overlaps with the next part.
    Window,
}

/// How the characters of a body are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TextForm {
    /// UTF-8.
    Utf8,
    /// In any other way in which ASCII stays ASCII: each byte is taken for a character.
    Latin1,
}

/// A pattern with values for all its expressions, and the text that replaces its matches.
#[derive(Debug, Clone)]
pub(super) struct FixedReplacement {
    /// The pattern.
    pub pattern: Regex,
    /// The text; `$1` is the first group.
    pub to: String,
}

/// The replacements in a body that is not held back.
#[derive(Debug, Clone)]
pub struct BodyReplacement {
    /// The lines of `Content-Encoding` of the body.
    pub(super) codings: Vec<Bytes>,
    pub(super) form: TextForm,
    pub(super) unit: BodyUnit,
    /// The replacements, in order.
    pub(super) replacements: Vec<FixedReplacement>,
}

/// A body in which nothing can be replaced.
#[derive(Debug, thiserror::Error)]
pub enum ReplacementError {
    /// A coding of the body cannot be removed.
    #[error("the body cannot be read: {0}")]
    Unreadable(#[from] io::Error),
    /// An event or a line is too long.
    #[error("an event or a line of the body has more than {MAX_UNIT_BYTES} bytes")]
    LongUnit,
    /// The text would become too long.
    #[error("a part of the body would have more than {MAX_RESULT_BYTES} bytes")]
    LongResult,
}

/// Replaces in a body piece by piece.
pub struct BodyReplacer {
    decoder: CodingRemover,
    text: TextReplacer,
}

struct TextReplacer {
    form: TextForm,
    /// Bytes of a character that is not complete.
    incomplete: Vec<u8>,
    search: Search,
    output: Vec<u8>,
}

enum Search {
    Units(UnitSearch),
    Windows(Vec<WindowSearch>),
}

/// Searches whole events or lines.
struct UnitSearch {
    unit: BodyUnit,
    replacements: Vec<FixedReplacement>,
    /// Text whose unit is not complete.
    text: String,
    /// The length of the text in which no unit ends.
    searched: usize,
}

/// Searches text for one pattern and keeps back the text in which a match may begin.
struct WindowSearch {
    replacement: FixedReplacement,
    text: String,
    /// The end of the text that was passed on. A few bytes before it stay for assertions such as `\b`.
    start: usize,
    /// The end of the last match, after which no empty match begins.
    last_match: Option<usize>,
}

/// Returns true if the matches of a pattern have a limited length.
pub(super) fn has_limited_span(pattern: &Regex) -> bool {
    // The pattern was compiled; one that cannot be parsed has no known limit.
    let parsed = Parser::new().parse(pattern.as_str()).ok();
    parsed.is_some_and(|parsed| parsed.properties().maximum_len().is_some())
}

impl BodyReplacement {
    /// Starts with a body.
    ///
    /// # Errors
    /// The body has a coding that cannot be removed.
    pub fn start(self) -> Result<BodyReplacer, ReplacementError> {
        let decoder = CodingRemover::from_lines(self.codings.iter().map(Bytes::as_ref));
        let decoder = decoder.map_err(io::Error::other)?;
        let search = match self.unit {
            BodyUnit::Window => {
                Search::Windows(self.replacements.into_iter().map(WindowSearch::new).collect())
            }
            unit => Search::Units(UnitSearch {
                unit,
                replacements: self.replacements,
                text: String::new(),
                searched: 0,
            }),
        };
        let (incomplete, output) = Default::default();
        Ok(BodyReplacer {
            decoder,
            text: TextReplacer { form: self.form, incomplete, search, output },
        })
    }

    /// Checks that the codings of the body can be removed.
    pub(super) fn check_codings(&self) -> Result<(), CodingError> {
        CodingRemover::from_lines(self.codings.iter().map(Bytes::as_ref)).map(drop)
    }

    /// Replaces in a whole body.
    ///
    /// # Errors
    /// Nothing can be replaced in the body.
    pub fn replace_whole(self, body: &[u8]) -> Result<Bytes, ReplacementError> {
        let mut replacer = self.start()?;
        Ok([replacer.replace_piece(body)?, replacer.finish()?].concat().into())
    }
}

impl BodyReplacer {
    /// Takes a piece of the body. Returns the bytes that are ready, which may be none.
    ///
    /// # Errors
    /// The rest of the body cannot be searched.
    pub fn replace_piece(&mut self, piece: &[u8]) -> Result<Bytes, ReplacementError> {
        let Self { decoder, text } = self;
        decoder.decode_piece(piece, &mut |bytes| text.push_bytes(bytes, false))?;
        Ok(std::mem::take(&mut text.output).into())
    }

    /// Ends the body. Returns the last bytes.
    ///
    /// # Errors
    /// The rest of the body cannot be searched.
    pub fn finish(&mut self) -> Result<Bytes, ReplacementError> {
        let Self { decoder, text } = self;
        decoder.finish(&mut |bytes| text.push_bytes(bytes, false))?;
        text.push_bytes(b"", true)?;
        Ok(std::mem::take(&mut text.output).into())
    }
}

impl TextReplacer {
    fn push_bytes(&mut self, bytes: &[u8], is_end: bool) -> Result<(), ReplacementError> {
        let mut text = String::with_capacity(bytes.len() + self.incomplete.len());
        match self.form {
            TextForm::Latin1 => text.push_str(&decode_latin1(bytes)),
            TextForm::Utf8 if self.incomplete.is_empty() => {
                self.incomplete = push_utf8(&mut text, bytes, is_end).to_vec();
            }
            TextForm::Utf8 => {
                let all = [&self.incomplete, bytes].concat();
                self.incomplete = push_utf8(&mut text, &all, is_end).to_vec();
            }
        }
        let replaced = match &mut self.search {
            Search::Units(search) => search.replace_units(&text, is_end)?,
            Search::Windows(searches) => {
                searches.iter_mut().try_fold(text, |text, it| it.replace_step(&text, is_end))?
            }
        };
        match self.form {
            TextForm::Latin1 => self.output.extend(encode_latin1(&replaced)),
            TextForm::Utf8 => push_encoded(&mut self.output, &replaced),
        }
        Ok(())
    }
}

impl UnitSearch {
    fn replace_units(&mut self, text: &str, is_end: bool) -> Result<String, ReplacementError> {
        self.text.push_str(text);
        let mut replaced = String::new();
        let mut start = 0;
        while let Some(end) = self.unit_end(start) {
            replaced.push_str(&replace_all(&self.replacements, &self.text[start..end])?);
            (start, self.searched) = (end, end);
        }
        self.text.drain(..start);
        self.searched = self.text.len();
        if is_end {
            replaced.push_str(&replace_all(&self.replacements, &self.text)?);
            self.text.clear();
        } else if self.text.len() > MAX_UNIT_BYTES {
            return Err(ReplacementError::LongUnit);
        }
        Ok(replaced)
    }

    /// Returns the end of the unit that begins at `start`, if it is complete.
    fn unit_end(&self, start: usize) -> Option<usize> {
        let bytes = self.text.as_bytes();
        // The last characters of the searched text may be the beginning of an end.
        let mut at = self.searched.saturating_sub(2).max(start);
        // Comments keep connections open, and often come without an empty line.
        let is_comment = self.unit == BodyUnit::Event && bytes.get(start) == Some(&b':');
        while let Some(found) =
            bytes.get(at..)?.iter().position(|byte| matches!(byte, b'\n' | b'\r'))
        {
            let line_end = after_line_end(bytes, at + found);
            if self.unit == BodyUnit::Line || is_comment || at + found == start {
                return Some(line_end);
            }
            match bytes.get(line_end)? {
                b'\n' | b'\r' => return Some(after_line_end(bytes, line_end)),
                _ => at = line_end,
            }
        }
        None
    }
}

/// Returns the place behind the end of a line: `\n`, `\r` or `\r\n`.
fn after_line_end(bytes: &[u8], at: usize) -> usize {
    if bytes.get(at..at + 2) == Some(b"\r\n") { at + 2 } else { at + 1 }
}

/// Replaces in a text that is complete.
fn replace_all(replacements: &[FixedReplacement], text: &str) -> Result<String, ReplacementError> {
    replacements.iter().try_fold(text.to_owned(), |text, it| {
        let replaced = replace_matches(&it.pattern, &text, &it.to, MAX_RESULT_BYTES);
        replaced.map(|replaced| replaced.text).ok_or(ReplacementError::LongResult)
    })
}

impl WindowSearch {
    fn new(replacement: FixedReplacement) -> Self {
        Self { replacement, text: String::new(), start: 0, last_match: None }
    }

    /// Takes more text. Returns the text that is ready.
    fn replace_step(&mut self, text: &str, is_end: bool) -> Result<String, ReplacementError> {
        self.text.push_str(text);
        let is_enough = self.text.len() - self.start >= OVERLAP_BYTES + STEP_BYTES;
        if !is_end && !is_enough {
            return Ok(String::new());
        }
        // Matches that begin behind it are found with the next text.
        let limit = if is_end { self.text.len() + 1 } else { self.text.len() - OVERLAP_BYTES };
        let (mut replaced, mut at) = (String::new(), self.start);
        while let Some(found) = self.replacement.pattern.captures_at(&self.text, at)
            && let Some(whole) = found.get(0).filter(|whole| whole.start() < limit)
        {
            if !whole.is_empty() || self.last_match != Some(whole.end()) {
                replaced.push_str(&self.text[self.start..whole.start()]);
                found.expand(&self.replacement.to, &mut replaced);
                self.start = whole.end();
                self.last_match = Some(whole.end());
            }
            if replaced.len() > MAX_RESULT_BYTES {
                return Err(ReplacementError::LongResult);
            }
            at = if whole.is_empty() { after_char(&self.text, whole.end()) } else { whole.end() };
            if at > self.text.len() {
                break;
            }
        }
        let end = char_boundary(&self.text, limit).max(self.start);
        replaced.push_str(&self.text[self.start..end]);
        self.keep_from(end);
        Ok(replaced)
    }

    /// Drops text that was passed on, except for the last character.
    fn keep_from(&mut self, end: usize) {
        let context = char_boundary(&self.text, end.saturating_sub(1));
        self.text.drain(..context);
        self.start = end - context;
        self.last_match = self.last_match.and_then(|last| last.checked_sub(context));
    }
}

/// Returns the last boundary of a character up to a place.
fn char_boundary(text: &str, at: usize) -> usize {
    (0..=at.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or_default()
}

/// Returns the place behind the character at a place, also behind the end of the text.
fn after_char(text: &str, at: usize) -> usize {
    at + text[at..].chars().next().map_or(1, char::len_utf8)
}

/// Adds bytes to a text. Each byte that is not UTF-8 becomes a private character. Returns the bytes of a character that is
/// not complete.
fn push_utf8<'b>(text: &mut String, bytes: &'b [u8], is_end: bool) -> &'b [u8] {
    let mut chunks = bytes.utf8_chunks().peekable();
    while let Some(chunk) = chunks.next() {
        push_unambiguous(text, chunk.valid());
        let invalid = chunk.invalid();
        let is_cut = str::from_utf8(invalid).is_err_and(|error| error.error_len().is_none());
        if is_cut && chunks.peek().is_none() && !is_end {
            return invalid_tail(bytes, invalid.len());
        }
        push_foreign(text, invalid);
    }
    b""
}

fn invalid_tail(bytes: &[u8], length: usize) -> &[u8] {
    bytes.get(bytes.len() - length..).unwrap_or_default()
}

/// Adds text. The bytes of its private characters become private characters, so that these always mean a byte.
fn push_unambiguous(text: &mut String, valid: &str) {
    // These characters begin with this byte.
    if !valid.as_bytes().contains(&0xf4) {
        return text.push_str(valid);
    }
    for letter in valid.chars() {
        match u32::from(letter) {
            FOREIGN_BYTES.. => push_foreign(text, letter.encode_utf8(&mut [0; 4]).as_bytes()),
            _ => text.push(letter),
        }
    }
}

fn push_foreign(text: &mut String, bytes: &[u8]) {
    let foreign = |byte: &u8| char::from_u32(FOREIGN_BYTES + u32::from(*byte));
    text.extend(bytes.iter().filter_map(foreign));
}

/// Adds the bytes of a text, and the bytes that its private characters mean.
fn push_encoded(bytes: &mut Vec<u8>, text: &str) {
    if !text.as_bytes().contains(&0xf4) {
        return bytes.extend_from_slice(text.as_bytes());
    }
    for letter in text.chars() {
        match u32::from(letter).checked_sub(FOREIGN_BYTES).map(u8::try_from) {
            Some(Ok(byte)) => bytes.push(byte),
            _ => bytes.extend_from_slice(letter.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
}

/// Returns a text with a character for each byte.
pub(super) fn decode_latin1(bytes: &[u8]) -> String {
    bytes.iter().copied().map(char::from).collect()
}

/// Returns the bytes of such a text. Other characters, which a replacement has added, are written in UTF-8.
pub(super) fn encode_latin1(text: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    for character in text.chars() {
        match u8::try_from(character) {
            Ok(byte) => bytes.push(byte),
            Err(_) => bytes.extend(character.encode_utf8(&mut [0; 4]).bytes()),
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replacement(unit: BodyUnit, form: TextForm, pairs: &[(&str, &str)]) -> BodyReplacement {
        let fixed = |(from, to): &(&str, &str)| FixedReplacement {
            pattern: Regex::new(from).unwrap(),
            to: (*to).to_owned(),
        };
        let replacements = pairs.iter().map(fixed).collect();
        BodyReplacement { codings: Vec::new(), form, unit, replacements }
    }

    fn by_steps(replacement: &BodyReplacement, body: &[u8], step: usize) -> Vec<Vec<u8>> {
        let mut replacer = replacement.clone().start().unwrap();
        let mut pieces: Vec<_> = body
            .chunks(step)
            .map(|piece| replacer.replace_piece(piece).unwrap().to_vec())
            .collect();
        pieces.push(replacer.finish().unwrap().to_vec());
        pieces
    }

    #[test]
    fn each_event_is_ready_when_it_is_complete() {
        let pairs = [("(?s)<.*>", "x"), ("x", "y")];
        let events = replacement(BodyUnit::Event, TextForm::Utf8, &pairs);
        for (sent, expected) in [
            (
                &["data: <1>\n\n", "data: <", "2>\n\n"][..],
                &["data: y\n\n", "", "data: y\n\n", ""][..],
            ),
            (&["data: <\ndata: >\n", "\n"], &["", "data: y\n\n", ""]),
            (&["data: <\r\n\r", "\ndata: >\r\n\r\n"], &["data: <\r\n\r", "\ndata: >\r\n\r\n", ""]),
            (&["data: 1\r\rdata: 2\r", "\r"], &["data: 1\r\r", "data: 2\r\r", ""]),
            (&[":\n", ": <>\n\n", "data: <>"], &[":\n", ": y\n\n", "", "data: y"]),
        ] {
            let mut replacer = events.clone().start().unwrap();
            let mut seen: Vec<_> =
                sent.iter().map(|it| replacer.replace_piece(it.as_bytes()).unwrap()).collect();
            seen.push(replacer.finish().unwrap());
            assert_eq!(seen, expected, "{sent:?}");
        }
    }

    #[test]
    fn each_line_is_ready_when_it_is_complete() {
        let lines = replacement(BodyUnit::Line, TextForm::Utf8, &[("a.*", "x")]);

        assert_eq!(by_steps(&lines, b"{a}\n{b}\n{a", 3).concat(), b"{x\n{b}\n{x");
        assert_eq!(by_steps(&lines, b"{a}\n{b}\n", 4)[0], b"{x\n");
        let mut replacer = lines.start().unwrap();
        let long = replacer.replace_piece(&[b'b'; MAX_UNIT_BYTES + 1]);
        assert!(matches!(long, Err(ReplacementError::LongUnit)));
    }

    #[test]
    fn windows_find_what_the_whole_text_has() {
        let patterns = [
            ("secret", "-"),
            (r"\bend\b", "END"),
            ("^é|é$", "e"),
            ("x{0,3}", "."),
            ("(q)(r)?", "$2$1"),
        ];
        let mut text = "é secret éxxxxxyqr end bend endé ".repeat(9_000);
        text.push('é');
        for pair in patterns {
            let whole = Regex::new(pair.0).unwrap().replace_all(&text, pair.1).into_owned();
            let windows = replacement(BodyUnit::Window, TextForm::Utf8, &[pair]);
            for step in [1 << 20, 70_000, 16_384, 1_001] {
                let replaced = by_steps(&windows, text.as_bytes(), step).concat();
                assert!(replaced == whole.as_bytes(), "{} by {step}", pair.0);
            }
        }
    }

    #[test]
    fn several_replacements_are_made_in_order() {
        let windows = replacement(BodyUnit::Window, TextForm::Utf8, &[("a", "bb"), ("bbb", "c")]);
        let text = "ab".repeat(200_000);
        assert!(
            by_steps(&windows, text.as_bytes(), 10_000).concat() == "c".repeat(200_000).as_bytes()
        );
    }

    #[test]
    fn bytes_that_are_not_text_stay_as_they_are() {
        let windows = replacement(BodyUnit::Window, TextForm::Utf8, &[("ssn", "-")]);
        let mut noise: Vec<u8> = (0..=255).chain(*b"ssn").chain((0..=255).rev()).collect();
        noise.extend("\u{10ff80}\u{10ffff}\u{10fffd}é東".bytes());
        let expected = windows.clone().replace_whole(&noise).unwrap();

        assert_eq!(expected.len(), noise.len() - 2);
        for step in [1, 2, 3, 5] {
            assert_eq!(by_steps(&windows, &noise, step).concat(), expected, "{step}");
        }
        let latin1 = replacement(BodyUnit::Line, TextForm::Latin1, &[("é", "E")]);
        assert_eq!(by_steps(&latin1, b"\xe9\xe8\n", 1).concat(), b"E\xe8\n");
    }

    #[test]
    fn a_pattern_has_a_limited_span_if_its_repetitions_have() {
        for (pattern, expected) in [
            ("abc", true),
            ("a{1,9}b?", true),
            ("a|bc", true),
            ("a+", false),
            (".*", false),
            ("[^\"]{2,}", false),
        ] {
            assert_eq!(has_limited_span(&Regex::new(pattern).unwrap()), expected, "{pattern}");
        }
    }
}
