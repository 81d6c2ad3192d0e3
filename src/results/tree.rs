//! Any JSON as plain Python values: dict, list, str, int, float, bool and None.
//!
//! Objects are made while the text is read. What is open is on a stack of our own, so the work can
//! stop after any value and go on later.

use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyInt, PyList, PyString};
use pyo3::{PyTraverseError, PyVisit};

use super::json::{JsonNumber, JsonReader};
use super::problem::{DecodeError, DecodeProblem, DecodeResult};
use super::time_budget::TimeBudget;

/// How many keys are remembered; those with the same remainder take each other's place.
const MAX_CACHED_KEYS: usize = 64;

/// A value that is being read.
#[derive(Default)]
pub(super) struct JsonTree {
    open: Vec<OpenContainer>,
    keys: KeyCache,
}

/// An array or an object that something is still read for.
enum OpenContainer {
    List(Py<PyList>),
    Dict(Py<PyDict>, Py<PyString>),
}

/// The keys that came last: those of the objects of a list are the same.
#[derive(Default)]
struct KeyCache(Vec<Option<(Box<str>, Py<PyString>)>>);

/// Reads a value to its end.
pub(super) fn read_value<'py>(
    py: Python<'py>,
    json: &mut JsonReader<'_>,
) -> DecodeResult<Bound<'py, PyAny>> {
    // A number or a text needs no stack.
    if let Some(simple) = read_scalar(py, json)? {
        return Ok(simple);
    }
    let value = JsonTree::default().advance(py, json, &mut TimeBudget::unlimited())?;
    value.ok_or_else(|| json.problem_here("an unexpected end").into())
}

/// A number as int or float, whichever it was written as.
pub(super) fn read_number<'py>(
    py: Python<'py>,
    json: &mut JsonReader<'_>,
) -> DecodeResult<Bound<'py, PyAny>> {
    let start = json.next_position();
    match json.take_number()? {
        JsonNumber::Float(number) => Ok(number.into_bound_py_any(py)?),
        JsonNumber::Integer(text) => parse_integer(py, text, start),
    }
}

/// An integer of any size.
pub(super) fn parse_integer<'py>(
    py: Python<'py>,
    text: &str,
    start: usize,
) -> DecodeResult<Bound<'py, PyAny>> {
    if let Ok(number) = text.parse::<i64>() {
        return Ok(number.into_bound_py_any(py)?);
    }
    // Python may have been told to read fewer digits than it does by itself.
    py.get_type::<PyInt>()
        .call1((text,))
        .map_err(|_| DecodeProblem::at_position("an integer of too many digits", start).into())
}

impl JsonTree {
    /// Reads until the value is complete, or until it is time to stop.
    pub(super) fn advance<'py>(
        &mut self,
        py: Python<'py>,
        json: &mut JsonReader<'_>,
        budget: &mut TimeBudget,
    ) -> DecodeResult<Option<Bound<'py, PyAny>>> {
        let read = self.read_until_complete(py, json, budget);
        read.map_err(|problem| self.locate_problem(py, problem))
    }

    fn read_until_complete<'py>(
        &mut self,
        py: Python<'py>,
        json: &mut JsonReader<'_>,
        budget: &mut TimeBudget,
    ) -> DecodeResult<Option<Bound<'py, PyAny>>> {
        loop {
            if let Some(value) = self.begin_value(py, json)?
                && let Some(whole) = self.add_value(json, value)?
            {
                return Ok(Some(whole));
            }
            if budget.is_over(json.read_bytes()) {
                return Ok(None);
            }
        }
    }

    /// A value, unless it is an array or an object that holds something: that one is open now.
    fn begin_value<'py>(
        &mut self,
        py: Python<'py>,
        json: &mut JsonReader<'_>,
    ) -> DecodeResult<Option<Bound<'py, PyAny>>> {
        if let Some(simple) = read_scalar(py, json)? {
            return Ok(Some(simple));
        }
        if json.peek_byte()? == b'[' {
            let list = PyList::empty(py);
            if !json.begin_container(b'[', b']', "a value that is not an array")? {
                return Ok(Some(list.into_any()));
            }
            self.open.push(OpenContainer::List(list.unbind()));
            return Ok(None);
        }
        let dict = PyDict::new(py);
        if !json.begin_container(b'{', b'}', "a missing value")? {
            return Ok(Some(dict.into_any()));
        }
        let key = self.keys.read_key(py, json)?;
        self.open.push(OpenContainer::Dict(dict.unbind(), key));
        Ok(None)
    }

    /// Puts a value where it belongs, and what it completes; gives the whole when nothing is open.
    fn add_value<'py>(
        &mut self,
        json: &mut JsonReader<'_>,
        mut value: Bound<'py, PyAny>,
    ) -> DecodeResult<Option<Bound<'py, PyAny>>> {
        let py = value.py();
        while let Some(open) = self.open.last_mut() {
            match open {
                OpenContainer::List(list) => {
                    list.bind(py).append(value)?;
                    if json.take_separator(b']')? {
                        return Ok(None);
                    }
                }
                OpenContainer::Dict(dict, key) => {
                    dict.bind(py).set_item(&*key, value)?;
                    if json.take_separator(b'}')? {
                        *key = self.keys.read_key(py, json)?;
                        return Ok(None);
                    }
                }
            }
            value = match self.open.pop() {
                Some(OpenContainer::List(list)) => list.into_bound(py).into_any(),
                Some(OpenContainer::Dict(dict, _)) => dict.into_bound(py).into_any(),
                None => return Ok(None),
            };
        }
        Ok(Some(value))
    }

    /// Where in the value a problem is.
    fn locate_problem(&self, py: Python<'_>, problem: DecodeError) -> DecodeError {
        self.open.iter().rev().fold(problem, |problem, open| match open {
            OpenContainer::List(list) => problem.within_item(list.bind(py).len()),
            OpenContainer::Dict(_, key) => problem.within_field(&key.bind(py).to_string_lossy()),
        })
    }

    /// Shows the objects of a value that is not complete to the collector of garbage.
    pub(super) fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.open.iter().try_for_each(|open| match open {
            OpenContainer::List(list) => visit.call(list),
            OpenContainer::Dict(dict, _) => visit.call(dict),
        })
    }
}

impl KeyCache {
    /// Takes a key and its colon.
    fn read_key(
        &mut self,
        py: Python<'_>,
        json: &mut JsonReader<'_>,
    ) -> DecodeResult<Py<PyString>> {
        let key = json.take_key()?;
        let name = &*key.name;
        if self.0.is_empty() {
            self.0.resize_with(MAX_CACHED_KEYS, || None);
        }
        let entry = &mut self.0[number_of(name) % MAX_CACHED_KEYS];
        if let Some((known, object)) = entry
            && **known == *name
        {
            return Ok(object.clone_ref(py));
        }
        let object = PyString::new(py, name).unbind();
        *entry = Some((name.into(), object.clone_ref(py)));
        Ok(object)
    }
}

/// A value that holds no other.
fn read_scalar<'py>(
    py: Python<'py>,
    json: &mut JsonReader<'_>,
) -> DecodeResult<Option<Bound<'py, PyAny>>> {
    Ok(match json.peek_byte()? {
        b'"' => Some(json.py_string(py)?.into_any()),
        b'-' | b'0'..=b'9' => Some(read_number(py, json)?),
        b't' if json.takes_bytes(b"true") => Some(true.into_bound_py_any(py)?),
        b'f' if json.takes_bytes(b"false") => Some(false.into_bound_py_any(py)?),
        b'n' if json.takes_bytes(b"null") => Some(py.None().into_bound(py)),
        _ => None,
    })
}

/// A number that tells most of the keys of an object apart.
fn number_of(name: &str) -> usize {
    let bytes = name.as_bytes();
    let ends = bytes.first().zip(bytes.last());
    let ends = ends.map_or(0, |(first, last)| usize::from(*first) + 7 * usize::from(*last));
    ends + 31 * bytes.len()
}
