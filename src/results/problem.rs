//! Why a text is not what was expected, and where.

use std::borrow::Cow;
use std::fmt;

use pyo3::prelude::*;

/// How much of a name that the answer gives is shown.
const MAX_NAME_CHARS: usize = 60;

/// What is wrong with a text: the field at fault, such as `keys[3].id`, and the byte.
pub(crate) struct DecodeProblem(Box<Details>);

struct Details {
    place: String,
    what: Cow<'static, str>,
    at: Option<usize>,
}

/// Why an answer's body is not what was expected: in words, or as Python said it.
pub(crate) enum DecodeError {
    Json(DecodeProblem),
    Python(PyErr),
}

/// What reading text gives.
pub(super) type JsonResult<T> = Result<T, DecodeProblem>;
/// What making objects of text gives.
pub(super) type DecodeResult<T> = Result<T, DecodeError>;

impl DecodeProblem {
    pub(super) fn at_position(what: impl Into<Cow<'static, str>>, at: usize) -> Self {
        Self(Box::new(Details { place: String::new(), what: what.into(), at: Some(at) }))
    }

    /// A problem with a field as a whole, such as that it is absent.
    pub(super) fn for_field(name: &str, what: &'static str) -> Self {
        let details = Details { place: String::new(), what: what.into(), at: None };
        Self(Box::new(details)).within_field(name)
    }

    /// The same problem inside of a field.
    pub(super) fn within_field(mut self, name: &str) -> Self {
        let place = &mut self.0.place;
        let separator = if place.is_empty() || place.starts_with('[') { "" } else { "." };
        *place = format!("{}{separator}{place}", shorten_text(name));
        self
    }

    /// The same problem inside of an item of a list.
    pub(super) fn within_item(self, at: usize) -> Self {
        self.within_field(&format!("[{at}]"))
    }
}

impl fmt::Display for DecodeProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Details { place, what, at } = &*self.0;
        match (place.as_str(), at) {
            ("", Some(at)) => write!(f, "{what} at byte {at}"),
            (place, Some(at)) => write!(f, "{place}: {what} at byte {at}"),
            (place, None) => write!(f, "{place} {what}"),
        }
    }
}

impl DecodeError {
    /// The same problem inside of a field, unless it is Python's own.
    pub(super) fn within_field(self, name: &str) -> Self {
        match self {
            Self::Json(problem) => Self::Json(problem.within_field(name)),
            python => python,
        }
    }

    /// The same problem inside of an item of a list.
    pub(super) fn within_item(self, at: usize) -> Self {
        match self {
            Self::Json(problem) => Self::Json(problem.within_item(at)),
            python => python,
        }
    }
}

impl From<PyErr> for DecodeError {
    fn from(error: PyErr) -> Self {
        Self::Python(error)
    }
}

impl From<DecodeProblem> for DecodeError {
    fn from(problem: DecodeProblem) -> Self {
        Self::Json(problem)
    }
}

/// The start of a text.
pub(super) fn shorten_text(text: &str) -> Cow<'_, str> {
    match text.char_indices().nth(MAX_NAME_CHARS) {
        Some((end, _)) => format!("{}…", &text[..end]).into(),
        None => text.into(),
    }
}
