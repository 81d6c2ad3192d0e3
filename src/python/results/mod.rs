//! JSON as Python objects.
//!
//! Results go from bytes straight into dataclass instances, without an object of ours in between:
//! an instance is allocated as `object.__new__` would (`plan.rs`), and its slots are filled while
//! the text is read (`json.rs`). Moments, bytes and unknown fields stay as they came and are read
//! when asked for (`ginnel/_record.py`). Items of a list often share texts, such as an owner or a
//! description: what came for the same field before is taken again (`recent.rs`).

mod json;
mod plan;
mod recent;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyList, PyString};

use super::table;
use json::{Problem, Reader};
use plan::{FieldPlan, KindPlan};
use recent::Recent;

pub(super) use plan::{Plan, plan};

/// Why an answer's body is not what was expected: in words, or as Python said it.
pub(super) enum Unreadable {
    Json(String),
    Python(PyErr),
}

impl From<PyErr> for Unreadable {
    fn from(error: PyErr) -> Self {
        Self::Python(error)
    }
}

impl From<Problem> for Unreadable {
    fn from(problem: Problem) -> Self {
        Self::Json(problem.to_string())
    }
}

type Read<T> = Result<T, Unreadable>;

/// A page: its items, its own address and that of the next page.
pub(super) type Page<'py> = (Bound<'py, PyList>, Option<String>, Option<String>);

/// A body that is one object.
pub(super) fn one<'py>(py: Python<'py>, body: &[u8], plan: &Plan) -> Read<Bound<'py, PyAny>> {
    let mut json = Reader::new(body)?;
    let record = record(py, &mut json, plan, &mut Recent::default())?;
    json.finish()?;
    Ok(record)
}

/// A body that is a page of a list, whose items are in `field`.
pub(super) fn page<'py>(py: Python<'py>, body: &[u8], field: &str, plan: &Plan) -> Read<Page<'py>> {
    let mut json = Reader::new(body)?;
    let mut found = (PyList::empty(py), None, None);
    let mut more = json.begin(b'{', b'}', "no object")?;
    while more {
        let key = json.key()?;
        match key {
            _ if json.takes_null() => {}
            "uri" => found.1 = Some(json.string()?.into_owned()),
            "next_page_uri" => found.2 = Some(json.string()?.into_owned()),
            key if key == field => items(py, &mut json, plan, &found.0)?,
            _ => json.skip()?,
        }
        more = json.more(b'}')?;
    }
    json.finish()?;
    Ok(found)
}

fn items(py: Python<'_>, json: &mut Reader<'_>, plan: &Plan, list: &Bound<'_, PyList>) -> Read<()> {
    let mut recent = Recent::default();
    let mut more = json.begin(b'[', b']', "no array")?;
    while more {
        list.append(record(py, json, plan, &mut recent)?)?;
        more = json.more(b']')?;
    }
    Ok(())
}

fn record<'py, 'j>(
    py: Python<'py>,
    json: &mut Reader<'j>,
    plan: &Plan,
    recent: &mut Recent<'py, 'j>,
) -> Read<Bound<'py, PyAny>> {
    let instance = plan.allocate(py)?;
    let (mut seen, mut nulls) = (0u64, 0u64);
    let mut unknown = recent.unknown();
    let mut expected = 0;
    let mut more = json.begin(b'{', b'}', "no object")?;
    while more {
        match plan.find(json, expected)? {
            Ok(at) => {
                expected = at + 1;
                seen |= 1 << at;
                let field = &plan.fields[at];
                let value = if json.takes_null() {
                    nulls |= 1 << at;
                    py.None().into_bound(py)
                } else {
                    content(py, json, field, recent)
                        .map_err(|problem| within(field.name, problem))?
                };
                field.slot.fill(&instance, value)?;
            }
            Err(name) => {
                let start = json.position();
                json.skip()?;
                unknown.note(name, json.since(start));
            }
        }
        more = json.more(b'}')?;
    }
    for (at, field) in plan.fields.iter().enumerate() {
        if seen & 1 << at == 0 {
            if field.required {
                return Err(Unreadable::Json(format!("{} is missing", field.name)));
            }
            field.slot.fill(&instance, py.None().into_bound(py))?;
        }
    }
    plan.extra.fill(&instance, recent.extra(py, unknown))?;
    plan.nulls.fill(&instance, nulls.into_pyobject(py).map_err(PyErr::from)?.into_any())?;
    Ok(instance)
}

impl Plan {
    /// Takes a key: the place of its field, or its name when no field has it. Servers keep the
    /// order of fields, so the expected one is tried first.
    fn find<'j>(&self, json: &mut Reader<'j>, expected: usize) -> Read<Result<usize, &'j str>> {
        json.position();
        if self.fields.get(expected).is_some_and(|field| json.takes(&field.key)) {
            return Ok(Ok(expected));
        }
        let name = json.key()?;
        Ok(self.fields.iter().position(|field| field.name == name).ok_or(name))
    }
}

/// The value of a field, which is not null. Texts that came for the field before are not made anew.
fn content<'py, 'j>(
    py: Python<'py>,
    json: &mut Reader<'j>,
    field: &FieldPlan,
    recent: &mut Recent<'py, 'j>,
) -> Read<Bound<'py, PyAny>> {
    if !matches!(field.kind, KindPlan::Text | KindPlan::Time) {
        return value(py, json, &field.kind, recent);
    }
    if let Some(text) = recent.take(field.number, json) {
        return Ok(text);
    }
    let start = json.position();
    let text = value(py, json, &field.kind, recent)?;
    recent.keep(field.number, json.since(start), &text);
    Ok(text)
}

fn value<'py, 'j>(
    py: Python<'py>,
    json: &mut Reader<'j>,
    kind: &KindPlan,
    recent: &mut Recent<'py, 'j>,
) -> Read<Bound<'py, PyAny>> {
    Ok(match kind {
        KindPlan::Text => PyString::new(py, &json.string()?).into_any(),
        KindPlan::Time => {
            let text = json.string()?;
            if !is_moment(&text) {
                return Err(Unreadable::Json(format!("{text:?} is not an RFC 3339 timestamp")));
            }
            PyString::new(py, &text).into_any()
        }
        KindPlan::Bool if json.takes(b"true") => PyBool::new(py, true).to_owned().into_any(),
        KindPlan::Bool if json.takes(b"false") => PyBool::new(py, false).to_owned().into_any(),
        KindPlan::Bool => return Err(json.problem("no boolean").into()),
        KindPlan::Number => number(py, json)?,
        KindPlan::Json => {
            let start = json.position();
            json.skip()?;
            free(py, json.since(start))?
        }
        KindPlan::List(item) => list(py, json, item, recent)?,
        KindPlan::Map(item) => map(py, json, item, recent)?,
        KindPlan::Record(plan) => record(py, json, plan, recent)?,
    })
}

fn number<'py>(py: Python<'py>, json: &mut Reader<'_>) -> Read<Bound<'py, PyAny>> {
    let text = json.number()?;
    match text.parse::<i64>() {
        Ok(number) => Ok(number.into_pyobject(py).map_err(PyErr::from)?.into_any()),
        Err(_) => free(py, text.as_bytes()),
    }
}

fn list<'py, 'j>(
    py: Python<'py>,
    json: &mut Reader<'j>,
    item: &KindPlan,
    recent: &mut Recent<'py, 'j>,
) -> Read<Bound<'py, PyAny>> {
    let list = PyList::empty(py);
    let mut more = json.begin(b'[', b']', "no array")?;
    while more {
        let value = nullable(py, json, item, recent)
            .map_err(|problem| within(&format!("[{}]", list.len()), problem))?;
        list.append(value)?;
        more = json.more(b']')?;
    }
    Ok(list.into_any())
}

fn map<'py, 'j>(
    py: Python<'py>,
    json: &mut Reader<'j>,
    item: &KindPlan,
    recent: &mut Recent<'py, 'j>,
) -> Read<Bound<'py, PyAny>> {
    let map = PyDict::new(py);
    let mut more = json.begin(b'{', b'}', "no object")?;
    while more {
        let name = json.string()?;
        json.expect(b':', "no colon")?;
        let value = nullable(py, json, item, recent).map_err(|problem| within(&name, problem))?;
        map.set_item(name, value)?;
        more = json.more(b'}')?;
    }
    Ok(map.into_any())
}

fn nullable<'py, 'j>(
    py: Python<'py>,
    json: &mut Reader<'j>,
    kind: &KindPlan,
    recent: &mut Recent<'py, 'j>,
) -> Read<Bound<'py, PyAny>> {
    if json.takes_null() {
        return Ok(py.None().into_bound(py));
    }
    value(py, json, kind, recent)
}

/// Any JSON as plain Python values.
pub(super) fn free<'py>(py: Python<'py>, json: &[u8]) -> Read<Bound<'py, PyAny>> {
    let value: serde_json::Value =
        serde_json::from_slice(json).map_err(|error| Unreadable::Json(error.to_string()))?;
    pythonize::pythonize(py, &value).map_err(|error| Unreadable::Json(error.to_string()))
}

/// JSON text as plain Python values; nothing at all is an empty dict.
#[pyfunction]
pub(super) fn parse<'py>(py: Python<'py>, json: &[u8]) -> PyResult<Bound<'py, PyAny>> {
    if json.is_empty() {
        return Ok(PyDict::new(py).into_any());
    }
    free(py, json).map_err(into_value_error)
}

/// JSON text as an instance of a class of the wire.
#[pyfunction]
pub(super) fn decode<'py>(class: &Bound<'py, PyAny>, json: &[u8]) -> PyResult<Bound<'py, PyAny>> {
    let name: String = class.getattr("__name__")?.extract()?;
    let plan = plan(table::find_shape(&name)?, class)?;
    one(class.py(), json, &plan).map_err(into_value_error)
}

fn into_value_error(problem: Unreadable) -> PyErr {
    match problem {
        Unreadable::Json(problem) => PyValueError::new_err(problem),
        Unreadable::Python(error) => error,
    }
}

/// Puts the name of a field in front of a problem inside it.
fn within(name: &str, problem: Unreadable) -> Unreadable {
    match problem {
        Unreadable::Json(problem) => Unreadable::Json(format!("{name}: {problem}")),
        python => python,
    }
}

/// True for text that has the form of an RFC 3339 timestamp.
fn is_moment(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.len() >= 20
        && bytes[4] == b'-'
        && bytes[7] == b'-'
        && matches!(bytes[10], b'T' | b't' | b' ')
        && bytes[13] == b':'
        && bytes[16] == b':'
        && [0, 1, 2, 3, 5, 6, 8, 9, 11, 12, 14, 15, 17, 18]
            .iter()
            .all(|at| bytes[*at].is_ascii_digit())
}
