//! Any JSON as plain Python values: dict, list, str, int, float, bool and None.
//!
//! Objects are made while the text is read. What is open is on a stack of our own, so the work can
//! stop after any value and go on later.

use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyInt, PyList, PyString};
use pyo3::{PyTraverseError, PyVisit};

use super::json::{Number, Reader};
use super::pace::Pace;
use super::problem::{Made, Problem, Unreadable};

/// How many keys are remembered; those with the same remainder take each other's place.
const MAX_KEYS: usize = 64;

/// A value that is being read.
#[derive(Default)]
pub(super) struct Tree {
    open: Vec<Open>,
    keys: Keys,
}

/// An array or an object that something is still read for.
enum Open {
    List(Py<PyList>),
    Dict(Py<PyDict>, Py<PyString>),
}

/// The keys that came last: those of the objects of a list are the same.
#[derive(Default)]
struct Keys(Vec<Option<(Box<str>, Py<PyString>)>>);

/// Reads a value to its end.
pub(super) fn value<'py>(py: Python<'py>, json: &mut Reader<'_>) -> Made<Bound<'py, PyAny>> {
    // A number or a text needs no stack.
    if let Some(simple) = simple(py, json)? {
        return Ok(simple);
    }
    let value = Tree::default().advance(py, json, &mut Pace::unlimited())?;
    value.ok_or_else(|| json.problem("an early end").into())
}

/// A number as int or float, whichever it was written as.
pub(super) fn number<'py>(py: Python<'py>, json: &mut Reader<'_>) -> Made<Bound<'py, PyAny>> {
    let start = json.position();
    match json.number()? {
        Number::Float(number) => Ok(number.into_bound_py_any(py)?),
        Number::Integer(text) => integer(py, text, start),
    }
}

/// An integer of any size.
pub(super) fn integer<'py>(py: Python<'py>, text: &str, start: usize) -> Made<Bound<'py, PyAny>> {
    if let Ok(number) = text.parse::<i64>() {
        return Ok(number.into_bound_py_any(py)?);
    }
    // Python may have been told to read fewer digits than it does by itself.
    py.get_type::<PyInt>()
        .call1((text,))
        .map_err(|_| Problem::at("an integer of too many digits", start).into())
}

impl Tree {
    /// Reads until the value is complete, or until it is time to stop.
    pub(super) fn advance<'py>(
        &mut self,
        py: Python<'py>,
        json: &mut Reader<'_>,
        pace: &mut Pace,
    ) -> Made<Option<Bound<'py, PyAny>>> {
        let read = self.read(py, json, pace);
        read.map_err(|problem| self.place(py, problem))
    }

    fn read<'py>(
        &mut self,
        py: Python<'py>,
        json: &mut Reader<'_>,
        pace: &mut Pace,
    ) -> Made<Option<Bound<'py, PyAny>>> {
        loop {
            if let Some(value) = self.begin(py, json)?
                && let Some(whole) = self.add(json, value)?
            {
                return Ok(Some(whole));
            }
            if pace.is_over(json.read_bytes()) {
                return Ok(None);
            }
        }
    }

    /// A value, unless it is an array or an object that holds something: that one is open now.
    fn begin<'py>(
        &mut self,
        py: Python<'py>,
        json: &mut Reader<'_>,
    ) -> Made<Option<Bound<'py, PyAny>>> {
        if let Some(simple) = simple(py, json)? {
            return Ok(Some(simple));
        }
        if json.peek()? == b'[' {
            let list = PyList::empty(py);
            if !json.begin(b'[', b']', "no array")? {
                return Ok(Some(list.into_any()));
            }
            self.open.push(Open::List(list.unbind()));
            return Ok(None);
        }
        let dict = PyDict::new(py);
        if !json.begin(b'{', b'}', "no value")? {
            return Ok(Some(dict.into_any()));
        }
        let key = self.keys.read(py, json)?;
        self.open.push(Open::Dict(dict.unbind(), key));
        Ok(None)
    }

    /// Puts a value where it belongs, and what it completes; gives the whole when nothing is open.
    fn add<'py>(
        &mut self,
        json: &mut Reader<'_>,
        mut value: Bound<'py, PyAny>,
    ) -> Made<Option<Bound<'py, PyAny>>> {
        let py = value.py();
        while let Some(open) = self.open.last_mut() {
            match open {
                Open::List(list) => {
                    list.bind(py).append(value)?;
                    if json.more(b']')? {
                        return Ok(None);
                    }
                }
                Open::Dict(dict, key) => {
                    dict.bind(py).set_item(&*key, value)?;
                    if json.more(b'}')? {
                        *key = self.keys.read(py, json)?;
                        return Ok(None);
                    }
                }
            }
            value = match self.open.pop() {
                Some(Open::List(list)) => list.into_bound(py).into_any(),
                Some(Open::Dict(dict, _)) => dict.into_bound(py).into_any(),
                None => return Ok(None),
            };
        }
        Ok(Some(value))
    }

    /// Where in the value a problem is.
    fn place(&self, py: Python<'_>, problem: Unreadable) -> Unreadable {
        self.open.iter().rev().fold(problem, |problem, open| match open {
            Open::List(list) => problem.within_item(list.bind(py).len()),
            Open::Dict(_, key) => problem.within(&key.bind(py).to_string_lossy()),
        })
    }

    /// Shows the objects of a value that is not complete to the collector of garbage.
    pub(super) fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.open.iter().try_for_each(|open| match open {
            Open::List(list) => visit.call(list),
            Open::Dict(dict, _) => visit.call(dict),
        })
    }
}

impl Keys {
    /// Takes a key and its colon.
    fn read(&mut self, py: Python<'_>, json: &mut Reader<'_>) -> Made<Py<PyString>> {
        let key = json.key()?;
        let name = &*key.name;
        if self.0.is_empty() {
            self.0.resize_with(MAX_KEYS, || None);
        }
        let entry = &mut self.0[number_of(name) % MAX_KEYS];
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
fn simple<'py>(py: Python<'py>, json: &mut Reader<'_>) -> Made<Option<Bound<'py, PyAny>>> {
    Ok(match json.peek()? {
        b'"' => Some(json.py_string(py)?.into_any()),
        b'-' | b'0'..=b'9' => Some(number(py, json)?),
        b't' if json.takes(b"true") => Some(true.into_bound_py_any(py)?),
        b'f' if json.takes(b"false") => Some(false.into_bound_py_any(py)?),
        b'n' if json.takes(b"null") => Some(py.None().into_bound(py)),
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
