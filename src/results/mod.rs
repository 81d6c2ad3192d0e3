//! JSON as Python objects.
//!
//! Results go from bytes straight into dataclass instances, without an object of ours in between:
//! an instance is allocated as `object.__new__` would, and its slots (`plan.rs`, `layout.rs`) are
//! filled while the text is read (`json.rs`). Moments, bytes and unknown fields are checked
//! (`texts.rs`), stay as they came and are read when asked for (`ginnel/_core/record.py`). Items of a list
//! (`page.rs`) often share texts, such as an owner or a description: what came for the same field
//! before is taken again (`recent.rs`). JSON without a class becomes dicts and lists (`tree.rs`).
//! Large bodies are decoded in slices (`slices.rs`), of which long texts have their own
//! (`long_texts.rs`).
//!
//! Whatever is made can be shown, compared, copied and written again. What could not, such as a
//! number beyond the range of a float or half of a surrogate pair, is refused with its place
//! (`problem.rs`). In everything else the text means what it means to Python's `json`
//! (`tests/python/test_decode_random.py`).
//!
//! Own code of 1,900 lines, because a JSON library creates a dict first. An IP policy takes 4.5 µs here. It takes 19 µs
//! with `jiter` or `orjson` and the constructor of the class, and 33 µs with `json` (release build, best of seven runs).

mod escapes;
mod json;
mod layout;
mod long_texts;
mod page;
mod plan;
mod problem;
mod recent;
mod slices;
mod texts;
mod time_budget;
mod tree;

use std::sync::Arc;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyList};

use super::table;
use json::{JsonNumber, JsonReader};
use page::PageTree;
use plan::{FieldPlan, KindPlan, known_plan};
use problem::{DecodeProblem, DecodeResult, shorten_text};
use recent::RecentTexts;
use time_budget::TimeBudget;

pub(super) use page::ResultPage;
pub(super) use plan::{ClassPlan, plan_for_class};
pub(super) use problem::DecodeError;
pub(super) use slices::{BodyDecoder, DecodeTarget, MIN_SLICED_BYTES};

/// A body that is one object.
pub(super) fn decode_object<'py>(
    py: Python<'py>,
    body: &[u8],
    plan: &ClassPlan,
) -> DecodeResult<Bound<'py, PyAny>> {
    read_object(py, &mut JsonReader::new(body)?, plan)
}

/// A body that is a page of a list, whose items are in `field`.
pub(super) fn decode_page<'py>(
    py: Python<'py>,
    body: &[u8],
    field: &'static str,
    plan: &Arc<ClassPlan>,
) -> DecodeResult<ResultPage<'py>> {
    let mut json = JsonReader::new(body)?;
    let mut tree = PageTree::new(py, field.into(), Arc::clone(plan));
    let page = tree.advance(py, &mut json, &mut TimeBudget::unlimited())?;
    json.expect_end()?;
    page.ok_or_else(|| json.problem_here("an unexpected end").into())
}

/// A text that is one object.
fn read_object<'py>(
    py: Python<'py>,
    json: &mut JsonReader<'_>,
    plan: &ClassPlan,
) -> DecodeResult<Bound<'py, PyAny>> {
    let record = read_record(py, json, plan, &mut RecentTexts::default())?;
    json.expect_end()?;
    Ok(record)
}

fn read_record<'py, 'j>(
    py: Python<'py>,
    json: &mut JsonReader<'j>,
    plan: &ClassPlan,
    recent: &mut RecentTexts<'py, 'j>,
) -> DecodeResult<Bound<'py, PyAny>> {
    let instance = plan.allocate_instance(py)?;
    let mut fields = RecordFields::default();
    let mut unknown = recent.unknown_fields(plan);
    let mut expected = 0;
    let mut more = json.begin_container(b'{', b'}', "a value that is not an object")?;
    while more {
        let start = json.next_position();
        if !plan.is_next(json, expected) && recent.takes_same(&mut unknown, json) {
            more = json.take_separator(b'}')?;
            continue;
        }
        match plan.find_field(json, expected)? {
            Ok(at) => {
                expected = at + 1;
                unknown.note_known();
                let field = &plan.fields[at];
                if let Some(value) = fields.read_field(py, json, (at, field), recent)? {
                    field.slot.set_value(&instance, value)?;
                }
            }
            Err(name) => {
                let value = json.next_position();
                json.skip_value().map_err(|problem| problem.within_field(name))?;
                unknown.add_field(start, name, json.bytes_since(value));
            }
        }
        more = json.take_separator(b'}')?;
    }
    fields.check_fields(plan)?;
    for (at, field) in plan.fields.iter().enumerate() {
        if !fields.has_field(at) {
            field.slot.set_value(&instance, py.None().into_bound(py))?;
        }
    }
    plan.extra.set_value(&instance, recent.extra_content(py, unknown, json))?;
    plan.nulls
        .set_value(&instance, fields.nulls.into_pyobject(py).map_err(PyErr::from)?.into_any())?;
    Ok(instance)
}

/// What came of the fields of a record. A field that comes twice has the last value, as in Python's
/// `json`, so what is wrong with the first does not matter then.
#[derive(Default)]
struct RecordFields {
    seen: u64,
    nulls: u64,
    wrong: Vec<(usize, DecodeError)>,
}

impl RecordFields {
    /// Takes the value of a field; none where it is of the wrong kind.
    fn read_field<'py, 'j>(
        &mut self,
        py: Python<'py>,
        json: &mut JsonReader<'j>,
        (at, field): (usize, &FieldPlan),
        recent: &mut RecentTexts<'py, 'j>,
    ) -> DecodeResult<Option<Bound<'py, PyAny>>> {
        let again = self.has_field(at);
        self.seen |= 1 << at;
        if again {
            self.nulls &= !(1 << at);
            self.wrong.retain(|(wrong, _)| *wrong != at);
        }
        if json.takes_null() {
            self.nulls |= 1 << at;
            return Ok(Some(field.null_value(py)));
        }
        let start = json.resume_point();
        match read_field_value(py, json, field, recent) {
            Ok(value) => Ok(Some(value)),
            Err(problem) => {
                let problem = problem.within_field(field.name);
                if json.skip_from(start).is_err() {
                    return Err(problem);
                }
                self.wrong.push((at, problem));
                Ok(None)
            }
        }
    }

    fn has_field(&self, at: usize) -> bool {
        self.seen & 1 << at != 0
    }

    /// Makes sure that all fields have what they must have.
    fn check_fields(&mut self, plan: &ClassPlan) -> DecodeResult<()> {
        if !self.wrong.is_empty() {
            return Err(self.wrong.swap_remove(0).1);
        }
        let absent = plan.required & !self.seen;
        if absent != 0 {
            return Err(DecodeProblem::for_field(plan.name_of(absent), "is missing").into());
        }
        let null = plan.valued & self.nulls;
        if null != 0 {
            return Err(DecodeProblem::for_field(plan.name_of(null), "is null").into());
        }
        Ok(())
    }
}

impl FieldPlan {
    /// What null stands for: nothing, and in a list that is always there no items, which is how some
    /// servers write them.
    fn null_value<'py>(&self, py: Python<'py>) -> Bound<'py, PyAny> {
        match self.kind {
            KindPlan::List(_) if self.required => PyList::empty(py).into_any(),
            KindPlan::Map(_) if self.required => PyDict::new(py).into_any(),
            _ => py.None().into_bound(py),
        }
    }
}

impl ClassPlan {
    /// Returns true if the key of the expected field comes next.
    fn is_next(&self, json: &JsonReader<'_>, expected: usize) -> bool {
        self.fields.get(expected).is_some_and(|field| json.is_next(&field.key))
    }

    /// Takes a key: the place of its field, or its name when no field has it. Servers keep the
    /// order of fields, so the expected one is tried first.
    fn find_field<'j>(
        &self,
        json: &mut JsonReader<'j>,
        expected: usize,
    ) -> DecodeResult<Result<usize, &'j str>> {
        json.next_position();
        if self.fields.get(expected).is_some_and(|field| json.takes_bytes(&field.key)) {
            return Ok(Ok(expected));
        }
        let key = json.take_key()?;
        Ok(self.fields.iter().position(|field| field.name == key.name).ok_or(key.written))
    }

    /// The name of the first of these fields.
    fn name_of(&self, fields: u64) -> &'static str {
        self.fields.get(fields.trailing_zeros() as usize).map_or("", |field| field.name)
    }
}

/// The value of a field, which is not null. Texts that came for the field before are not made anew.
fn read_field_value<'py, 'j>(
    py: Python<'py>,
    json: &mut JsonReader<'j>,
    field: &FieldPlan,
    recent: &mut RecentTexts<'py, 'j>,
) -> DecodeResult<Bound<'py, PyAny>> {
    if !matches!(field.kind, KindPlan::Text | KindPlan::Time) {
        return read_value(py, json, &field.kind, recent);
    }
    if let Some(text) = recent.take_text(field.number, json) {
        return Ok(text);
    }
    let start = json.next_position();
    let text = read_value(py, json, &field.kind, recent)?;
    recent.remember_text(field.number, json.bytes_since(start), &text);
    Ok(text)
}

fn read_value<'py, 'j>(
    py: Python<'py>,
    json: &mut JsonReader<'j>,
    kind: &KindPlan,
    recent: &mut RecentTexts<'py, 'j>,
) -> DecodeResult<Bound<'py, PyAny>> {
    Ok(match kind {
        KindPlan::Text => json.py_string(py)?.into_any(),
        KindPlan::Time => checked_text(py, json, |text| {
            let wrong =
                |why| format!("{:?} is not an RFC 3339 timestamp: {why}", shorten_text(text));
            texts::check_time(text).map_err(wrong)
        })?,
        KindPlan::Bytes => checked_text(py, json, |text| {
            texts::is_base64(text).then_some(()).ok_or_else(|| "no base64".to_owned())
        })?,
        KindPlan::Bool if json.takes_bytes(b"true") => PyBool::new(py, true).to_owned().into_any(),
        KindPlan::Bool if json.takes_bytes(b"false") => {
            PyBool::new(py, false).to_owned().into_any()
        }
        KindPlan::Bool => return Err(json.problem_here("a value that is not a boolean").into()),
        KindPlan::Integer => {
            let start = json.next_position();
            match json.take_number()? {
                JsonNumber::Integer(text) => tree::parse_integer(py, text, start)?,
                JsonNumber::Float(_) => {
                    return Err(DecodeProblem::at_position(
                        "a value that is not an integer",
                        start,
                    )
                    .into());
                }
            }
        }
        KindPlan::Number => tree::read_number(py, json)?,
        KindPlan::Json => tree::read_value(py, json)?,
        KindPlan::Object if json.peek_byte()? == b'{' => tree::read_value(py, json)?,
        KindPlan::Object => return Err(json.problem_here("a value that is not an object").into()),
        KindPlan::List(item) => read_list(py, json, item, recent)?,
        KindPlan::Map(item) => read_map(py, json, item, recent)?,
        KindPlan::Record(plan) => read_record(py, json, plan, recent)?,
    })
}

/// A text that stands for something, if it does.
fn checked_text<'py>(
    py: Python<'py>,
    json: &mut JsonReader<'_>,
    check: impl FnOnce(&str) -> Result<(), String>,
) -> DecodeResult<Bound<'py, PyAny>> {
    let start = json.next_position();
    let text = json.py_string(py)?;
    check(text.to_str()?).map_err(|problem| DecodeProblem::at_position(problem, start))?;
    Ok(text.into_any())
}

fn read_list<'py, 'j>(
    py: Python<'py>,
    json: &mut JsonReader<'j>,
    item: &KindPlan,
    recent: &mut RecentTexts<'py, 'j>,
) -> DecodeResult<Bound<'py, PyAny>> {
    let list = PyList::empty(py);
    let mut more = json.begin_container(b'[', b']', "a value that is not an array")?;
    while more {
        let value = read_nullable(py, json, item, recent)
            .map_err(|problem| problem.within_item(list.len()))?;
        list.append(value)?;
        more = json.take_separator(b']')?;
    }
    Ok(list.into_any())
}

fn read_map<'py, 'j>(
    py: Python<'py>,
    json: &mut JsonReader<'j>,
    item: &KindPlan,
    recent: &mut RecentTexts<'py, 'j>,
) -> DecodeResult<Bound<'py, PyAny>> {
    let map = PyDict::new(py);
    let mut more = json.begin_container(b'{', b'}', "a value that is not an object")?;
    while more {
        let name = json.take_key()?.name;
        let value =
            read_nullable(py, json, item, recent).map_err(|problem| problem.within_field(&name))?;
        map.set_item(name, value)?;
        more = json.take_separator(b'}')?;
    }
    Ok(map.into_any())
}

fn read_nullable<'py, 'j>(
    py: Python<'py>,
    json: &mut JsonReader<'j>,
    kind: &KindPlan,
    recent: &mut RecentTexts<'py, 'j>,
) -> DecodeResult<Bound<'py, PyAny>> {
    if json.takes_null() {
        return Ok(py.None().into_bound(py));
    }
    read_value(py, json, kind, recent)
}

/// Any JSON as plain Python values.
pub(super) fn decode_any<'py>(py: Python<'py>, json: &[u8]) -> DecodeResult<Bound<'py, PyAny>> {
    let mut json = JsonReader::new(json)?;
    let value = tree::read_value(py, &mut json)?;
    json.expect_end()?;
    Ok(value)
}

/// JSON text as plain Python values; nothing at all is an empty dict.
#[pyfunction]
pub(super) fn parse<'py>(py: Python<'py>, json: &[u8]) -> PyResult<Bound<'py, PyAny>> {
    if json.is_empty() {
        return Ok(PyDict::new(py).into_any());
    }
    decode_any(py, json).map_err(into_value_error)
}

/// JSON text as an instance of a class of the wire.
#[pyfunction]
pub(super) fn decode<'py>(class: &Bound<'py, PyAny>, json: &[u8]) -> PyResult<Bound<'py, PyAny>> {
    decode_object(class.py(), json, &*plan_of(class)?).map_err(into_value_error)
}

/// Where in the instances of a class of the wire the decoder puts each field, in bytes from the
/// start; None for those that it gives to their descriptors.
#[pyfunction]
pub(super) fn slots(class: &Bound<'_, PyAny>) -> PyResult<Vec<(&'static str, Option<usize>)>> {
    Ok(plan_of(class)?.field_offsets())
}

/// The plan for a class of the wire, which its name and its module tell.
fn plan_of(class: &Bound<'_, PyAny>) -> PyResult<Arc<ClassPlan>> {
    if let Some(plan) = known_plan(class) {
        return Ok(plan);
    }
    let name: String = class.getattr("__name__")?.extract()?;
    let module: String = class.getattr("__module__")?.extract()?;
    plan_for_class(table::find_shape(&name, &module)?, class)
}

fn into_value_error(problem: DecodeError) -> PyErr {
    match problem {
        DecodeError::Json(problem) => PyValueError::new_err(problem.to_string()),
        DecodeError::Python(error) => error,
    }
}
