//! How instances of a dataclass are made of JSON objects.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use pyo3::exceptions::PyTypeError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyType};

use crate::api::{Kind, Shape};

/// How instances of a dataclass are made of JSON objects.
pub(in crate::python) struct Plan {
    pub(super) class: Py<PyType>,
    pub(super) fields: Vec<FieldPlan>,
    pub(super) extra: Slot,
    pub(super) nulls: Slot,
}

pub(super) struct FieldPlan {
    pub(super) name: &'static str,
    /// The name with its quotes and its colon, as compact JSON has it.
    pub(super) key: Vec<u8>,
    pub(super) kind: KindPlan,
    pub(super) required: bool,
    pub(super) slot: Slot,
    /// Tells fields apart, those of other classes too.
    pub(super) number: usize,
}

pub(super) enum KindPlan {
    Text,
    Time,
    Bool,
    Number,
    Json,
    List(Box<KindPlan>),
    Map(Box<KindPlan>),
    Record(Arc<Plan>),
}

/// A slot of a class: where it lies in an instance, or the descriptor that knows.
pub(super) enum Slot {
    At(usize),
    Behind(Py<PyAny>, ffi::descrsetfunc),
}

/// The plan for the instances of `class` that stand for `shape`; made once per process.
pub(in crate::python) fn plan(
    shape: &'static Shape,
    class: &Bound<'_, PyAny>,
) -> PyResult<Arc<Plan>> {
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
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let slots = class.getattr("_slots")?;
        let slot = |name: &str| Slot::new(class, &slots.get_item(name)?);
        let field = |field: &crate::api::Field| {
            Ok(FieldPlan {
                name: field.name,
                key: format!("\"{}\":", field.name).into_bytes(),
                kind: KindPlan::new(&field.kind, class)?,
                required: field.required,
                slot: slot(field.name)?,
                number: NUMBER.fetch_add(1, Ordering::Relaxed),
            })
        };
        let fields = shape.fields.iter().map(field).collect::<PyResult<_>>()?;
        let class = class.clone().unbind();
        Ok(Self { class, fields, extra: slot("extra")?, nulls: slot("_nulls")? })
    }

    /// An instance with nothing in its slots.
    pub(super) fn allocate<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        // SAFETY: the class is alive and has no variable part; a null pointer becomes the exception.
        unsafe {
            let raw = ffi::PyType_GenericAlloc(self.class.as_ptr().cast(), 0);
            Bound::from_owned_ptr_or_err(py, raw)
        }
    }
}

impl KindPlan {
    /// Classes of nested types are found in the module of the class around them.
    fn new(kind: &Kind, around: &Bound<'_, PyType>) -> PyResult<Self> {
        Ok(match kind {
            Kind::Text { .. } | Kind::TextOrNumber | Kind::Secret | Kind::Bytes => Self::Text,
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
    fn new(class: &Bound<'_, PyType>, descriptor: &Bound<'_, PyAny>) -> PyResult<Self> {
        // SAFETY: the type of a live object; the slot of a descriptor type is such a function.
        let set = unsafe {
            let set = ffi::PyType_GetSlot(ffi::Py_TYPE(descriptor.as_ptr()), ffi::Py_tp_descr_set);
            std::mem::transmute::<*mut std::ffi::c_void, Option<ffi::descrsetfunc>>(set)
        };
        let set = set.ok_or_else(|| PyTypeError::new_err("not a slot"))?;
        let behind = Self::Behind(descriptor.clone().unbind(), set);
        Ok(behind.place(class)?.map_or(behind, Self::At))
    }

    /// Where the slot lies, found by having its descriptor put an object there. No such place, or
    /// more than one, means that instances are not laid out as they always were.
    fn place(&self, class: &Bound<'_, PyType>) -> PyResult<Option<usize>> {
        let py = class.py();
        let words = class.getattr("__basicsize__")?.extract::<usize>()? / size_of::<usize>();
        // SAFETY: the class is alive; a null pointer becomes the exception.
        let probe = unsafe {
            let raw = ffi::PyType_GenericAlloc(class.as_ptr().cast(), 0);
            Bound::from_owned_ptr_or_err(py, raw)?
        };
        let mark = PyList::empty(py).into_any();
        self.fill(&probe, mark.clone())?;
        let start = probe.as_ptr().cast::<usize>();
        // SAFETY: an instance is as large as its class says and was zeroed when it was made.
        let found = |word: &usize| unsafe { start.add(*word).read() == mark.as_ptr() as usize };
        let mut places = (0..words).filter(found);
        let place = places.next();
        Ok(place.filter(|_| places.next().is_none()).map(|word| word * size_of::<usize>()))
    }

    /// Puts a value into a slot, past the `__setattr__` of frozen classes.
    pub(super) fn fill(
        &self,
        instance: &Bound<'_, PyAny>,
        value: Bound<'_, PyAny>,
    ) -> PyResult<()> {
        match self {
            Self::At(place) => {
                // SAFETY: the place of an object in instances of this class, null or owned.
                unsafe {
                    let slot = instance.as_ptr().byte_add(*place).cast::<*mut ffi::PyObject>();
                    let before = slot.replace(value.into_ptr());
                    ffi::Py_XDECREF(before);
                }
                Ok(())
            }
            Self::Behind(descriptor, set) => {
                // SAFETY: the function of the descriptor's type; all three objects are alive.
                let done = unsafe { set(descriptor.as_ptr(), instance.as_ptr(), value.as_ptr()) };
                if done == 0 { Ok(()) } else { Err(PyErr::fetch(instance.py())) }
            }
        }
    }
}
