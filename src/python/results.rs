//! JSON as Python objects.
//!
//! Results go from bytes straight into dataclass instances, without an object of ours in between:
//! an instance is allocated as `object.__new__` would, and its slots are set through their
//! descriptors, past the frozen `__setattr__`. Moments, bytes and unknown fields stay as they came
//! and are read when asked for (`ginnel/_record.py`).

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use jiter::{Jiter, JiterError, Peek};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyString, PyType};

use super::table;
use crate::api::{Kind, Shape};

/// How instances of a dataclass are made of JSON objects.
pub(super) struct Plan {
    class: Py<PyType>,
    fields: Vec<FieldPlan>,
    extra: Slot,
    nulls: Slot,
}

struct FieldPlan {
    name: &'static str,
    kind: KindPlan,
    required: bool,
    slot: Slot,
}

enum KindPlan {
    Text,
    Time,
    Bool,
    Number,
    Json,
    List(Box<KindPlan>),
    Map(Box<KindPlan>),
    Record(Arc<Plan>),
}

/// A slot of a class: its descriptor, and the function that sets it.
struct Slot {
    descriptor: Py<PyAny>,
    set: ffi::descrsetfunc,
}

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

impl From<JiterError> for Unreadable {
    fn from(error: JiterError) -> Self {
        Self::Json(error.to_string())
    }
}

type Read<T> = Result<T, Unreadable>;

/// A page: its items, its own address and that of the next page.
pub(super) type Page<'py> = (Bound<'py, PyList>, Option<String>, Option<String>);

/// The plan for the instances of `class` that stand for `shape`; made once per process.
pub(super) fn plan(shape: &'static Shape, class: &Bound<'_, PyAny>) -> PyResult<Arc<Plan>> {
    static PLANS: Mutex<Option<HashMap<usize, Arc<Plan>>>> = Mutex::new(None);
    let key = class.as_ptr() as usize;
    let known = |plans: &Option<HashMap<usize, Arc<Plan>>>| plans.as_ref()?.get(&key).cloned();
    if let Some(plan) = known(&PLANS.lock().unwrap_or_else(PoisonError::into_inner)) {
        return Ok(plan);
    }
    // Made without the lock: this calls Python, which may call us.
    let made = Arc::new(Plan::new(shape, class.cast::<PyType>().map_err(PyErr::from)?)?);
    let mut plans = PLANS.lock().unwrap_or_else(PoisonError::into_inner);
    Ok(Arc::clone(plans.get_or_insert_default().entry(key).or_insert(made)))
}

impl Plan {
    fn new(shape: &'static Shape, class: &Bound<'_, PyType>) -> PyResult<Self> {
        let slots = class.getattr("_slots")?;
        let slot = |name: &str| Slot::new(&slots.get_item(name)?);
        let field = |field: &crate::api::Field| {
            let kind = KindPlan::new(&field.kind, class)?;
            Ok(FieldPlan {
                name: field.name,
                kind,
                required: field.required,
                slot: slot(field.name)?,
            })
        };
        let fields = shape.fields.iter().map(field).collect::<PyResult<_>>()?;
        let class = class.clone().unbind();
        Ok(Self { class, fields, extra: slot("extra")?, nulls: slot("_nulls")? })
    }
}

impl KindPlan {
    /// Classes of nested types are found in the module of the class around them.
    fn new(kind: &Kind, around: &Bound<'_, PyType>) -> PyResult<Self> {
        Ok(match kind {
            Kind::Text { .. } | Kind::Secret | Kind::Bytes => Self::Text,
            Kind::Time => Self::Time,
            Kind::Bool => Self::Bool,
            Kind::Integer | Kind::Number => Self::Number,
            Kind::Json | Kind::Object => Self::Json,
            Kind::List(item) => Self::List(Box::new(Self::new(item, around)?)),
            Kind::Map(item) => Self::Map(Box::new(Self::new(item, around)?)),
            Kind::Record(shape) => {
                let module = around.py().import(around.module()?)?;
                Self::Record(plan(shape, &module.getattr(shape.name)?)?)
            }
        })
    }
}

impl Slot {
    fn new(descriptor: &Bound<'_, PyAny>) -> PyResult<Self> {
        // SAFETY: the type of a live object; the slot of a descriptor type is such a function.
        let set = unsafe {
            let set = ffi::PyType_GetSlot(ffi::Py_TYPE(descriptor.as_ptr()), ffi::Py_tp_descr_set);
            std::mem::transmute::<*mut std::ffi::c_void, Option<ffi::descrsetfunc>>(set)
        };
        let set = set.ok_or_else(|| PyTypeError::new_err("not a slot"))?;
        Ok(Self { descriptor: descriptor.clone().unbind(), set })
    }

    fn fill(&self, instance: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) -> PyResult<()> {
        // SAFETY: the function belongs to the type of the descriptor; all three objects are alive.
        let done =
            unsafe { (self.set)(self.descriptor.as_ptr(), instance.as_ptr(), value.as_ptr()) };
        if done == 0 { Ok(()) } else { Err(PyErr::fetch(instance.py())) }
    }
}

/// A body that is one object.
pub(super) fn one<'py>(py: Python<'py>, body: &[u8], plan: &Plan) -> Read<Bound<'py, PyAny>> {
    let mut json = Jiter::new(body);
    let record = record(py, &mut json, plan)?;
    json.finish()?;
    Ok(record)
}

/// A body that is a page of a list, whose items are in `field`.
pub(super) fn page<'py>(py: Python<'py>, body: &[u8], field: &str, plan: &Plan) -> Read<Page<'py>> {
    let mut json = Jiter::new(body);
    let mut found = (PyList::empty(py), None, None);
    let mut key = json.next_object()?.map(str::to_owned);
    while let Some(name) = key {
        let null = json.peek()? == Peek::Null;
        match name.as_str() {
            _ if null => json.known_null()?,
            "uri" => found.1 = Some(json.next_str()?.to_owned()),
            "next_page_uri" => found.2 = Some(json.next_str()?.to_owned()),
            name if name == field => {
                let mut item = json.next_array()?;
                while item.is_some() {
                    found.0.append(record(py, &mut json, plan)?)?;
                    item = json.array_step()?;
                }
            }
            _ => json.next_skip()?,
        }
        key = json.next_key()?.map(str::to_owned);
    }
    json.finish()?;
    Ok(found)
}

fn record<'py>(py: Python<'py>, json: &mut Jiter<'_>, plan: &Plan) -> Read<Bound<'py, PyAny>> {
    // SAFETY: the class is alive and has no variable part; a null pointer becomes the exception.
    let instance = unsafe {
        let raw = ffi::PyType_GenericAlloc(plan.class.as_ptr().cast(), 0);
        Bound::from_owned_ptr_or_err(py, raw)?
    };
    let none = py.None().into_bound(py);
    let (mut seen, mut nulls) = (0u64, 0u64);
    let mut extra = Extra::default();
    let mut expected = 0;
    let mut key = json.next_object_bytes()?.map(|key| plan.find(key, expected, &mut extra));
    while let Some(known) = key {
        match known {
            Some(at) => {
                expected = at + 1;
                seen |= 1 << at;
                let field = &plan.fields[at];
                let peek = json.peek()?;
                if peek == Peek::Null {
                    json.known_null()?;
                    nulls |= 1 << at;
                    field.slot.fill(&instance, &none)?;
                } else {
                    let value = value(py, json, peek, &field.kind)
                        .map_err(|problem| within(field.name, problem))?;
                    field.slot.fill(&instance, &value)?;
                }
            }
            None => extra.take(json)?,
        }
        key = json.next_key_bytes()?.map(|key| plan.find(key, expected, &mut extra));
    }
    for (at, field) in plan.fields.iter().enumerate() {
        if seen & 1 << at == 0 {
            if field.required {
                return Err(Unreadable::Json(format!("{} is missing", field.name)));
            }
            field.slot.fill(&instance, &none)?;
        }
    }
    plan.extra.fill(&instance, &extra.finish(py))?;
    plan.nulls.fill(&instance, nulls.into_pyobject(py).map_err(PyErr::from)?.as_any())?;
    Ok(instance)
}

impl Plan {
    /// The place of a field; the name of an unknown one goes to `extra`. Servers keep the order of
    /// fields, so the expected one is tried first.
    fn find(&self, key: &[u8], expected: usize, extra: &mut Extra) -> Option<usize> {
        if self.fields.get(expected).is_some_and(|field| field.name.as_bytes() == key) {
            return Some(expected);
        }
        let found = self.fields.iter().position(|field| field.name.as_bytes() == key);
        if found.is_none() {
            extra.name(key);
        }
        found
    }
}

fn value<'py>(
    py: Python<'py>,
    json: &mut Jiter<'_>,
    peek: Peek,
    kind: &KindPlan,
) -> Read<Bound<'py, PyAny>> {
    Ok(match kind {
        KindPlan::Text => PyString::new(py, json.next_str()?).into_any(),
        KindPlan::Time => {
            let text = json.next_str()?;
            if !is_moment(text) {
                return Err(Unreadable::Json(format!("{text:?} is not an RFC 3339 timestamp")));
            }
            PyString::new(py, text).into_any()
        }
        KindPlan::Bool => {
            json.next_bool()?.into_pyobject(py).map_err(PyErr::from)?.to_owned().into_any()
        }
        KindPlan::Number | KindPlan::Json => {
            let start = json.current_index();
            json.known_skip(peek)?;
            free(py, json.slice_to_current(start))?
        }
        KindPlan::List(item) => {
            let list = PyList::empty(py);
            let mut next = json.next_array()?;
            let mut at = 0;
            while let Some(peek) = next {
                let value = nullable(py, json, peek, item)
                    .map_err(|problem| within(&format!("[{at}]"), problem))?;
                list.append(value)?;
                next = json.array_step()?;
                at += 1;
            }
            list.into_any()
        }
        KindPlan::Map(item) => {
            let map = PyDict::new(py);
            let mut key = json.next_object()?.map(str::to_owned);
            while let Some(name) = key {
                let peek = json.peek()?;
                let value =
                    nullable(py, json, peek, item).map_err(|problem| within(&name, problem))?;
                map.set_item(name, value)?;
                key = json.next_key()?.map(str::to_owned);
            }
            map.into_any()
        }
        KindPlan::Record(plan) => record(py, json, plan)?,
    })
}

fn nullable<'py>(
    py: Python<'py>,
    json: &mut Jiter<'_>,
    peek: Peek,
    kind: &KindPlan,
) -> Read<Bound<'py, PyAny>> {
    if peek == Peek::Null {
        json.known_null()?;
        return Ok(py.None().into_bound(py));
    }
    value(py, json, peek, kind)
}

/// The fields that a class does not know, kept as JSON text.
#[derive(Default)]
struct Extra(Vec<u8>);

impl Extra {
    fn name(&mut self, name: &[u8]) {
        self.0.push(if self.0.is_empty() { b'{' } else { b',' });
        // A key comes as it was written, escapes and all.
        self.0.push(b'"');
        self.0.extend_from_slice(name);
        self.0.push(b'"');
        self.0.push(b':');
    }

    fn take(&mut self, json: &mut Jiter<'_>) -> Read<()> {
        let start = json.current_index();
        json.next_skip()?;
        self.0.extend_from_slice(json.slice_to_current(start));
        Ok(())
    }

    fn finish(mut self, py: Python<'_>) -> Bound<'_, PyAny> {
        self.0.extend_from_slice(if self.0.is_empty() { b"" } else { b"}" });
        PyBytes::new(py, &self.0).into_any()
    }
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
