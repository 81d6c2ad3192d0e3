//! What the items of a list have in common.

use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::json::JsonReader;

/// How many fields are remembered; those with the same remainder take each other's place.
const MAX_TRACKED_FIELDS: usize = 32;

/// The last text of each field, and the last fields that were unknown.
pub(super) struct RecentTexts<'py, 'j> {
    texts: [Option<RecentText<'py, 'j>>; MAX_TRACKED_FIELDS],
    extra: Option<Bound<'py, PyBytes>>,
    /// Room for unknown fields, to be used again.
    room: Vec<u8>,
}

struct RecentText<'py, 'j> {
    field: usize,
    /// The text as it was written, with its quotes.
    written: &'j [u8],
    text: Bound<'py, PyAny>,
}

/// The fields that a class does not know, kept as JSON text.
pub(super) struct UnknownFields(Vec<u8>);

impl Default for RecentTexts<'_, '_> {
    fn default() -> Self {
        Self { texts: [const { None }; MAX_TRACKED_FIELDS], extra: None, room: Vec::new() }
    }
}

impl<'py, 'j> RecentTexts<'py, 'j> {
    /// Takes the text of a field if it is written as the last one was.
    pub(super) fn take(
        &self,
        field: usize,
        json: &mut JsonReader<'j>,
    ) -> Option<Bound<'py, PyAny>> {
        let seen =
            self.texts[field % MAX_TRACKED_FIELDS].as_ref().filter(|seen| seen.field == field)?;
        json.takes(seen.written).then(|| seen.text.clone())
    }

    pub(super) fn keep(&mut self, field: usize, written: &'j [u8], text: &Bound<'py, PyAny>) {
        self.texts[field % MAX_TRACKED_FIELDS] =
            Some(RecentText { field, written, text: text.clone() });
    }

    /// Room for the unknown fields of a record.
    pub(super) fn unknown(&mut self) -> UnknownFields {
        UnknownFields(std::mem::take(&mut self.room))
    }

    /// The unknown fields of a record as what its slot `extra` holds.
    pub(super) fn extra(&mut self, py: Python<'py>, unknown: UnknownFields) -> Bound<'py, PyAny> {
        let UnknownFields(mut text) = unknown;
        if !text.is_empty() {
            text.push(b'}');
        }
        let extra = match self.extra.take().filter(|extra| extra.as_bytes() == text) {
            Some(same) => same,
            None => PyBytes::new(py, &text),
        };
        text.clear();
        self.room = text;
        self.extra.insert(extra).clone().into_any()
    }
}

impl UnknownFields {
    /// Notes a field: its name and its value as they were written.
    pub(super) fn note(&mut self, name: &str, value: &[u8]) {
        self.0.push(if self.0.is_empty() { b'{' } else { b',' });
        self.0.push(b'"');
        self.0.extend_from_slice(name.as_bytes());
        self.0.extend_from_slice(b"\":");
        self.0.extend_from_slice(value);
    }
}
