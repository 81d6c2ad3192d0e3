//! What the items of a list have in common.

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::json::JsonReader;
use super::plan::ClassPlan;

/// How many fields are remembered; those with the same remainder take each other's place.
const MAX_TRACKED_FIELDS: usize = 32;

/// The last text of each field, and the last fields that were unknown.
pub(super) struct RecentTexts<'py, 'j> {
    texts: [Option<RecentText<'py, 'j>>; MAX_TRACKED_FIELDS],
    extra: Option<Bound<'py, PyBytes>>,
    /// Room for unknown fields, to be used again.
    room: Vec<u8>,
    tail: Option<UnknownTail<'py, 'j>>,
}

/// The unknown fields at the end of a record. The next record often ends with the same ones.
struct UnknownTail<'py, 'j> {
    /// The class that does not have these fields.
    class: *mut ffi::PyObject,
    /// The fields as they were written, with the brace that ends the record.
    written: &'j [u8],
    extra: Bound<'py, PyAny>,
}

struct RecentText<'py, 'j> {
    field: usize,
    /// The text as it was written, with its quotes.
    written: &'j [u8],
    text: Bound<'py, PyAny>,
}

/// The fields of a record that its class does not have.
pub(super) struct UnknownFields<'py> {
    class: *mut ffi::PyObject,
    /// The fields as JSON text, without the last brace.
    text: Vec<u8>,
    /// The start of the first one, if no field of the class follows it.
    tail: Option<usize>,
    /// The same fields of the record before.
    same: Option<Bound<'py, PyAny>>,
}

impl Default for RecentTexts<'_, '_> {
    fn default() -> Self {
        Self {
            texts: [const { None }; MAX_TRACKED_FIELDS],
            extra: None,
            room: Vec::new(),
            tail: None,
        }
    }
}

impl<'py, 'j> RecentTexts<'py, 'j> {
    /// Takes the text of a field if it is written as the last one was.
    pub(super) fn take_text(
        &self,
        field: usize,
        json: &mut JsonReader<'j>,
    ) -> Option<Bound<'py, PyAny>> {
        let seen =
            self.texts[field % MAX_TRACKED_FIELDS].as_ref().filter(|seen| seen.field == field)?;
        json.takes_bytes(seen.written).then(|| seen.text.clone())
    }

    pub(super) fn remember_text(
        &mut self,
        field: usize,
        written: &'j [u8],
        text: &Bound<'py, PyAny>,
    ) {
        self.texts[field % MAX_TRACKED_FIELDS] =
            Some(RecentText { field, written, text: text.clone() });
    }

    /// Room for the unknown fields of a record.
    pub(super) fn unknown_fields(&mut self, plan: &ClassPlan) -> UnknownFields<'py> {
        let text = std::mem::take(&mut self.room);
        UnknownFields { class: plan.class.as_ptr(), text, tail: None, same: None }
    }

    /// Takes the rest of a record, but not its brace, if the last record of the class ended with the same unknown fields.
    pub(super) fn takes_same(
        &self,
        unknown: &mut UnknownFields<'py>,
        json: &mut JsonReader<'j>,
    ) -> bool {
        let same = self.tail.as_ref().filter(|last| {
            last.class == unknown.class && unknown.text.is_empty() && json.is_next(last.written)
        });
        let Some((last, (_, fields))) = same.zip(same.and_then(|last| last.written.split_last()))
        else {
            return false;
        };
        unknown.same = Some(last.extra.clone());
        json.takes_bytes(fields)
    }

    /// Returns the content of a record's slot `extra`: its unknown fields. `json` is at the end of the record.
    pub(super) fn extra_content(
        &mut self,
        py: Python<'py>,
        unknown: UnknownFields<'py>,
        json: &JsonReader<'j>,
    ) -> Bound<'py, PyAny> {
        let UnknownFields { class, mut text, tail, same } = unknown;
        if let Some(same) = same {
            self.room = text;
            return same;
        }
        if !text.is_empty() {
            text.push(b'}');
        }
        let extra = match self.extra.take().filter(|extra| extra.as_bytes() == text) {
            Some(same) => same,
            None => PyBytes::new(py, &text),
        };
        text.clear();
        self.room = text;
        let extra = self.extra.insert(extra).clone().into_any();
        if let Some(start) = tail {
            self.tail =
                Some(UnknownTail { class, written: json.bytes_since(start), extra: extra.clone() });
        }
        extra
    }
}

impl UnknownFields<'_> {
    /// Notes a field that starts there: its name and its value as they were written.
    pub(super) fn add_field(&mut self, start: usize, name: &str, value: &[u8]) {
        if self.text.is_empty() {
            self.tail = Some(start);
        }
        self.text.push(if self.text.is_empty() { b'{' } else { b',' });
        self.text.push(b'"');
        self.text.extend_from_slice(name.as_bytes());
        self.text.extend_from_slice(b"\":");
        self.text.extend_from_slice(value);
    }

    /// Notes a field of the class. The unknown fields before it are not the end of the record.
    pub(super) fn note_known(&mut self) {
        self.tail = None;
    }
}
