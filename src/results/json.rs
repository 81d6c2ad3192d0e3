//! A reader of JSON text that is asked for what comes next.
//!
//! It stands between the bytes of an answer and Python objects, where a tree of values in between
//! would cost more than the reading. It takes exactly what RFC 8259 describes.

use std::borrow::Cow;

use pyo3::prelude::*;
use pyo3::types::PyString;

use super::escapes::{begins_with, plain_length, unescape_text};
use super::long_texts::LongTexts;
use super::problem::{DecodeProblem, JsonResult};

/// How many arrays and objects may stand inside each other; more than services write, and few enough
/// that everything that walks a result, such as `repr` and `pickle`, gets to its end.
const MAX_DEPTH: usize = 127;
/// How many digits an integer may have: what Python reads, and writes again, unless
/// `sys.set_int_max_str_digits` says otherwise.
const MAX_INTEGER_DIGITS: usize = 4300;

/// Reads a text from its start to its end.
pub(super) struct JsonReader<'j> {
    text: &'j str,
    at: usize,
    depth: usize,
    /// Texts that are made already.
    long_texts: Option<&'j LongTexts>,
}

/// A key of an object.
pub(super) struct JsonKey<'j> {
    /// What stands between the quotes, as it was written.
    pub(super) written: &'j str,
    pub(super) name: Cow<'j, str>,
}

/// A number, which JSON does not limit and Python's float does.
pub(super) enum JsonNumber<'j> {
    Integer(&'j str),
    Float(f64),
}

impl<'j> JsonReader<'j> {
    pub(super) fn new(body: &'j [u8]) -> JsonResult<Self> {
        match std::str::from_utf8(body) {
            Ok(text) => Ok(Self { text, at: 0, depth: 0, long_texts: None }),
            Err(error) => Err(not_utf8(error.valid_up_to())),
        }
    }

    /// Reads on where another reader of the same text stopped.
    pub(super) fn resume_at(
        text: &'j str,
        (at, depth): (usize, usize),
        long_texts: &'j LongTexts,
    ) -> Self {
        Self { text, at, depth, long_texts: Some(long_texts) }
    }

    /// Where another reader may read on.
    pub(super) fn resume_point(&self) -> (usize, usize) {
        (self.at, self.depth)
    }

    /// How many bytes have been read.
    pub(super) fn read_bytes(&self) -> usize {
        self.at
    }

    /// The first byte of what comes next.
    pub(super) fn peek_byte(&mut self) -> JsonResult<u8> {
        self.skip_whitespace();
        self.text
            .as_bytes()
            .get(self.at)
            .copied()
            .ok_or_else(|| self.problem_here("an unexpected end"))
    }

    /// What has not been read yet.
    pub(super) fn remaining_bytes(&self) -> &'j [u8] {
        &self.text.as_bytes()[self.at..]
    }

    /// The text from an earlier position to this one.
    pub(super) fn bytes_since(&self, start: usize) -> &'j [u8] {
        &self.text.as_bytes()[start..self.at]
    }

    /// The position, after white space.
    pub(super) fn next_position(&mut self) -> usize {
        self.skip_whitespace();
        self.at
    }

    /// Takes these bytes when they come next.
    #[inline]
    pub(super) fn takes_bytes(&mut self, bytes: &[u8]) -> bool {
        let next = begins_with(self.remaining_bytes(), bytes);
        if next {
            self.at += bytes.len();
        }
        next
    }

    /// Returns true if these bytes come next; takes none.
    pub(super) fn is_next(&self, bytes: &[u8]) -> bool {
        begins_with(self.remaining_bytes(), bytes)
    }

    /// Takes a null when it comes next, after white space.
    pub(super) fn takes_null(&mut self) -> bool {
        self.skip_whitespace();
        self.remaining_bytes().first() == Some(&b'n') && self.takes_bytes(b"null")
    }

    /// Takes the byte that must come next.
    pub(super) fn expect_byte(&mut self, byte: u8, otherwise: &'static str) -> JsonResult<()> {
        self.skip_whitespace();
        if self.takes_byte(byte) { Ok(()) } else { Err(self.problem_here(otherwise)) }
    }

    /// Begins an array or an object, which `end` closes; true when it holds something.
    pub(super) fn begin_container(
        &mut self,
        start: u8,
        end: u8,
        otherwise: &'static str,
    ) -> JsonResult<bool> {
        self.expect_byte(start, otherwise)?;
        if self.depth == MAX_DEPTH {
            self.at -= 1;
            return Err(self.problem_here("nesting deeper than 127"));
        }
        self.skip_whitespace();
        let holds = !self.takes_byte(end);
        self.depth += usize::from(holds);
        Ok(holds)
    }

    /// After an item: true when another follows, false at the end.
    pub(super) fn take_separator(&mut self, end: u8) -> JsonResult<bool> {
        match self.peek_byte()? {
            b',' => {
                self.at += 1;
                Ok(true)
            }
            byte if byte == end => {
                self.at += 1;
                self.depth -= 1;
                Ok(false)
            }
            _ => Err(self.problem_here("a missing comma")),
        }
    }

    /// Takes a key and its colon.
    pub(super) fn take_key(&mut self) -> JsonResult<JsonKey<'j>> {
        let start = self.next_position();
        let (written, escaped) = self.take_quoted("a missing key")?;
        let name = decode_string(written, escaped, start)?;
        self.expect_byte(b':', "no colon")?;
        Ok(JsonKey { written, name })
    }

    /// Takes a string.
    pub(super) fn take_string(&mut self) -> JsonResult<Cow<'j, str>> {
        let start = self.next_position();
        let (text, escaped) = self.take_quoted("a value that is not a string")?;
        decode_string(text, escaped, start)
    }

    /// Takes a string as Python has it.
    pub(super) fn py_string<'py>(&mut self, py: Python<'py>) -> JsonResult<Bound<'py, PyString>> {
        match self.long_text() {
            Some(text) => Ok(text.bind(py).clone()),
            None => Ok(PyString::new(py, &self.take_string()?)),
        }
    }

    /// Takes the string that comes next if it is made already.
    fn long_text(&mut self) -> Option<&'j Py<PyString>> {
        let long_texts = self.long_texts?;
        let (text, end) = long_texts.find_text(self.next_position())?;
        self.at = end;
        Some(text)
    }

    /// Takes a value of any kind.
    pub(super) fn skip_value(&mut self) -> JsonResult<()> {
        match self.peek_byte()? {
            // Its escapes are looked at too, so that whoever reads it later can.
            b'"' if self.long_text().is_some() => Ok(()),
            b'"' => self.take_string().map(drop),
            b'{' => self.skip_object(),
            b'[' => self.skip_array(),
            b'-' | b'0'..=b'9' => self.take_number().map(drop),
            _ if self.takes_bytes(b"true")
                || self.takes_bytes(b"false")
                || self.takes_bytes(b"null") =>
            {
                Ok(())
            }
            _ => Err(self.problem_here("a missing value")),
        }
    }

    /// Goes back to where `pause` was, and skips the value there.
    pub(super) fn skip_from(&mut self, pause: (usize, usize)) -> JsonResult<()> {
        (self.at, self.depth) = pause;
        self.skip_value()
    }

    /// Makes sure that nothing follows.
    pub(super) fn expect_end(&mut self) -> JsonResult<()> {
        self.skip_whitespace();
        if self.at == self.text.len() {
            Ok(())
        } else {
            Err(self.problem_here("more than one value"))
        }
    }

    pub(super) fn problem_here(&self, what: &'static str) -> DecodeProblem {
        DecodeProblem::at_position(what, self.at)
    }

    fn takes_byte(&mut self, byte: u8) -> bool {
        let next = self.text.as_bytes().get(self.at) == Some(&byte);
        self.at += usize::from(next);
        next
    }

    fn skip_whitespace(&mut self) {
        while let Some(b' ' | b'\n' | b'\r' | b'\t') = self.text.as_bytes().get(self.at) {
            self.at += 1;
        }
    }

    /// Takes a string; gives what stands between the quotes, and whether a backslash is in it.
    fn take_quoted(&mut self, otherwise: &'static str) -> JsonResult<(&'j str, bool)> {
        self.expect_byte(b'"', otherwise)?;
        let start = self.at;
        let mut escaped = false;
        loop {
            self.at += plain_length(self.remaining_bytes());
            match self.remaining_bytes() {
                [b'"', ..] => break,
                [b'\\', b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' | b'u', ..] => {
                    escaped = true;
                    self.at += 2;
                }
                [] => return Err(self.problem_here("an unexpected end")),
                _ => return Err(self.problem_here("a control character in a string")),
            }
        }
        let text = &self.text[start..self.at];
        self.at += 1;
        Ok((text, escaped))
    }

    fn skip_object(&mut self) -> JsonResult<()> {
        let mut more = self.begin_container(b'{', b'}', "a value that is not an object")?;
        while more {
            self.take_key()?;
            self.skip_value()?;
            more = self.take_separator(b'}')?;
        }
        Ok(())
    }

    fn skip_array(&mut self) -> JsonResult<()> {
        let mut more = self.begin_container(b'[', b']', "a value that is not an array")?;
        while more {
            self.skip_value()?;
            more = self.take_separator(b']')?;
        }
        Ok(())
    }

    /// Takes a number, if Python has it.
    pub(super) fn take_number(&mut self) -> JsonResult<JsonNumber<'j>> {
        let start = self.next_position();
        self.takes_byte(b'-');
        if !self.takes_byte(b'0') {
            self.take_digits()?;
        }
        let whole = self.at;
        if self.takes_byte(b'.') {
            self.take_digits()?;
        }
        if self.takes_byte(b'e') || self.takes_byte(b'E') {
            let _ = self.takes_byte(b'+') || self.takes_byte(b'-');
            self.take_digits()?;
        }
        let text = &self.text[start..self.at];
        match self.at == whole {
            true if text.trim_start_matches('-').len() > MAX_INTEGER_DIGITS => {
                Err(DecodeProblem::at_position("an integer of more than 4300 digits", start))
            }
            true => Ok(JsonNumber::Integer(text)),
            false => parse_float(text, start),
        }
    }

    fn take_digits(&mut self) -> JsonResult<()> {
        match self.remaining_bytes().iter().take_while(|byte| byte.is_ascii_digit()).count() {
            0 => Err(self.problem_here("a value that is not a number")),
            digits => {
                self.at += digits;
                Ok(())
            }
        }
    }
}

pub(super) fn not_utf8(at: usize) -> DecodeProblem {
    DecodeProblem::at_position("bytes that are not UTF-8", at)
}

/// The nearest float, as Python's `float` has it; there is none for what is larger than all.
fn parse_float<'j>(text: &str, start: usize) -> JsonResult<JsonNumber<'j>> {
    match text.parse::<f64>() {
        Ok(number) if number.is_finite() => Ok(JsonNumber::Float(number)),
        _ => Err(DecodeProblem::at_position("a number beyond the range of a float", start)),
    }
}

/// What a string says that begins there.
fn decode_string(text: &str, escaped: bool, start: usize) -> JsonResult<Cow<'_, str>> {
    if !escaped {
        return Ok(Cow::Borrowed(text));
    }
    unescape_text(text)
        .map(Cow::Owned)
        .ok_or_else(|| DecodeProblem::at_position("an invalid escape", start))
}
