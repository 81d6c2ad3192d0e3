//! The long texts of a large body, made before the rest of it is read.
//!
//! Whatever reads a body takes a text in one piece, which holds up the event loop for as long as
//! that lasts. So long ones are looked for in advance, and made of small pieces, between which the
//! work can stop. That is an offer: what looked like a text and is none is never asked for, and one
//! that is not as it should be is left to the reader, which says what is wrong.

use std::borrow::Cow;
use std::ops::Range;

use pyo3::prelude::*;
use pyo3::types::{PyList, PyString};

use super::escapes::{plain_length, unescape_text};
use super::time_budget::TimeBudget;

/// How far apart the places are that are looked at: a text that has no such place, or only one,
/// is not long.
const SEARCH_BYTES: usize = 256 << 10;
/// How long a piece of a text is.
const PIECE_BYTES: usize = 64 << 10;

/// The long texts of a body, in their order.
#[derive(Default)]
pub(super) struct LongTexts {
    texts: Vec<LongText>,
    step: ScanStep,
}

/// A text that was made already.
struct LongText {
    /// The place of its first quote.
    start: usize,
    /// The place behind its last quote.
    end: usize,
    text: Py<PyString>,
}

/// What comes next.
enum ScanStep {
    /// To look for the first quote from a place on; there is none up to the other one.
    Search {
        from: usize,
        to: usize,
    },
    Make(PartialText),
    Done,
}

/// A text that is being made.
struct PartialText {
    /// What stands between its quotes.
    span: Range<usize>,
    /// Where the next piece begins.
    at: usize,
    made: Vec<Py<PyString>>,
}

impl Default for ScanStep {
    fn default() -> Self {
        Self::search_behind(0)
    }
}

impl LongTexts {
    /// Makes texts until all are made, or until it is time to stop; true when all are.
    pub(super) fn advance(
        &mut self,
        py: Python<'_>,
        body: &str,
        budget: &mut TimeBudget,
    ) -> PyResult<bool> {
        loop {
            self.step = match std::mem::replace(&mut self.step, ScanStep::Done) {
                ScanStep::Search { from, to } => search_quote(body.as_bytes(), from, to),
                ScanStep::Make(pieces) => self.make_piece(py, body, pieces)?,
                ScanStep::Done => return Ok(true),
            };
            if !matches!(self.step, ScanStep::Done) && budget.is_late(0) {
                return Ok(false);
            }
        }
    }

    /// The text whose first quote is there, and the place behind its last one.
    pub(super) fn find_text(&self, start: usize) -> Option<(&Py<PyString>, usize)> {
        if self.texts.is_empty() {
            return None;
        }
        let at = self.texts.binary_search_by_key(&start, |text| text.start).ok()?;
        self.texts.get(at).map(|text| (&text.text, text.end))
    }

    /// Makes the next piece of a text, and after the last one the text.
    fn make_piece(
        &mut self,
        py: Python<'_>,
        body: &str,
        mut pieces: PartialText,
    ) -> PyResult<ScanStep> {
        let Range { start, end } = pieces.span;
        if pieces.at < end {
            let Some(piece) = next_piece(body, pieces.at, end) else {
                return Ok(ScanStep::search_behind(end));
            };
            let Some(text) = body.get(piece.clone()).and_then(decode_piece) else {
                return Ok(ScanStep::search_behind(end));
            };
            pieces.made.push(PyString::new(py, &text).unbind());
            pieces.at = piece.end;
            return Ok(ScanStep::Make(pieces));
        }
        let pieces = PyList::new(py, pieces.made)?;
        let whole = PyString::new(py, "").call_method1("join", (pieces,))?;
        let text = whole.cast_into::<PyString>().map_err(PyErr::from)?.unbind();
        self.texts.push(LongText { start: start - 1, end: end + 1, text });
        Ok(ScanStep::search_behind(end))
    }
}

impl ScanStep {
    /// To look from the next stride on.
    fn search_behind(at: usize) -> Self {
        let from = (at + 1).next_multiple_of(SEARCH_BYTES);
        Self::Search { from, to: from }
    }
}

/// Looks a stride further for the first quote. Where it is more than a stride away, a long text ends
/// there, or numbers do.
fn search_quote(body: &[u8], from: usize, to: usize) -> ScanStep {
    let Some(rest) = body.get(to..) else { return ScanStep::Done };
    let stretch = rest.get(..SEARCH_BYTES).unwrap_or(rest);
    let quote = stretch.iter().enumerate().position(|(at, byte)| is_quote(body, to + at, *byte));
    match quote.map(|quote| to + quote) {
        None if stretch.len() < SEARCH_BYTES => ScanStep::Done,
        None => ScanStep::Search { from, to: to + SEARCH_BYTES },
        Some(end) if to > from && is_behind_text(body, end + 1) => match last_quote(body, from) {
            Some(quote) => {
                let span = quote + 1..end;
                ScanStep::Make(PartialText { at: span.start, span, made: Vec::new() })
            }
            None => ScanStep::search_behind(end),
        },
        Some(quote) => ScanStep::search_behind(quote),
    }
}

/// The last quote before a place.
fn last_quote(body: &[u8], before: usize) -> Option<usize> {
    let bytes = body.iter().enumerate().take(before);
    bytes.rev().find(|(at, byte)| is_quote(body, *at, **byte)).map(|(at, _)| at)
}

/// Whether a byte is a quote that begins a text or ends it: behind an odd number of backslashes it is
/// part of one.
fn is_quote(body: &[u8], at: usize, byte: u8) -> bool {
    let backslashes = || body.iter().take(at).rev().take_while(|byte| **byte == b'\\').count();
    byte == b'"' && backslashes().is_multiple_of(2)
}

/// Whether what is there may follow a text.
fn is_behind_text(body: &[u8], at: usize) -> bool {
    let rest = body.get(at..).unwrap_or_default().trim_ascii_start();
    matches!(rest.first(), None | Some(b',' | b']' | b'}'))
}

/// The next piece of a text with this end; none where no text may go on so.
fn next_piece(body: &str, start: usize, end: usize) -> Option<Range<usize>> {
    let bytes = body.as_bytes();
    let mut limit = end.min(start + PIECE_BYTES);
    while !body.is_char_boundary(limit) {
        limit -= 1;
    }
    let mut at = start;
    loop {
        at += plain_length(bytes.get(at..limit)?);
        if at == limit {
            break;
        }
        // The halves of a pair belong together.
        let length = match bytes.get(at..end)? {
            [b'\\', b'u', b'd' | b'D', b'8' | b'9' | b'a' | b'b' | b'A' | b'B', ..] => 12,
            [b'\\', b'u', ..] => 6,
            [b'\\', ..] => 2,
            _ => return None,
        };
        if at + length > limit {
            break;
        }
        at += length;
    }
    // Where there is none, an escape goes on beyond the end.
    (at > start).then_some(start..at)
}

/// What a piece says.
fn decode_piece(piece: &str) -> Option<Cow<'_, str>> {
    if piece.contains('\\') { unescape_text(piece).map(Cow::Owned) } else { Some(piece.into()) }
}
