//! How instances of a dataclass are made of JSON objects.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyType;

use ginnel_api::{Kind, Shape};

use super::layout::{self, Descriptor};

/// The plans by the addresses of their classes. A plan keeps its class, and none is ever removed, so
/// no address can become that of another class.
static PLANS: Mutex<Option<HashMap<usize, Arc<ClassPlan>>>> = Mutex::new(None);

/// How instances of a dataclass are made of JSON objects.
pub(crate) struct ClassPlan {
    pub(super) class: Py<PyType>,
    pub(super) fields: Vec<FieldPlan>,
    /// The fields that must be there, a bit for each.
    pub(super) required: u64,
    /// Those among them that null is no value of.
    pub(super) valued: u64,
    pub(super) extra: FieldSlot,
    pub(super) nulls: FieldSlot,
}

pub(super) struct FieldPlan {
    pub(super) name: &'static str,
    /// The name with its quotes and its colon, as compact JSON has it.
    pub(super) key: Vec<u8>,
    pub(super) kind: KindPlan,
    pub(super) required: bool,
    pub(super) slot: FieldSlot,
    /// Tells fields apart, those of other classes too.
    pub(super) number: usize,
}

pub(super) enum KindPlan {
    Text,
    Time,
    Bytes,
    Bool,
    Integer,
    Number,
    Json,
    Object,
    List(Box<KindPlan>),
    Map(Box<KindPlan>),
    Record(Arc<ClassPlan>),
}

/// A slot of a class: where it lies in an instance, or the descriptor that knows.
pub(super) enum FieldSlot {
    At(usize),
    Behind(Descriptor),
}

/// The plan for the instances of `class` that stand for `shape`; made once per process.
pub(crate) fn plan_for_class(
    shape: &'static Shape,
    class: &Bound<'_, PyAny>,
) -> PyResult<Arc<ClassPlan>> {
    if let Some(plan) = known_plan(class) {
        return Ok(plan);
    }
    // Made without the lock: this calls Python, which may call us.
    let plan = Arc::new(ClassPlan::new(shape, class.cast::<PyType>().map_err(PyErr::from)?)?);
    let mut plans = PLANS.lock().unwrap_or_else(PoisonError::into_inner);
    Ok(Arc::clone(plans.get_or_insert_default().entry(class_address(class)).or_insert(plan)))
}

/// The plan that was made for `class`.
pub(super) fn known_plan(class: &Bound<'_, PyAny>) -> Option<Arc<ClassPlan>> {
    let plans = PLANS.lock().unwrap_or_else(PoisonError::into_inner);
    plans.as_ref()?.get(&class_address(class)).cloned()
}

fn class_address(class: &Bound<'_, PyAny>) -> usize {
    class.as_ptr() as usize
}

impl ClassPlan {
    fn new(shape: &'static Shape, class: &Bound<'_, PyType>) -> PyResult<Self> {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let mut slots = FieldSlots::new(shape, class)?;
        let field = |field: &ginnel_api::Field| {
            Ok(FieldPlan {
                name: field.name,
                key: format!("\"{}\":", field.name).into_bytes(),
                kind: KindPlan::new(&field.kind, class)?,
                required: field.required,
                slot: slots.take_slot()?,
                number: NUMBER.fetch_add(1, Ordering::Relaxed),
            })
        };
        let fields = shape.fields.iter().map(field).collect::<PyResult<Vec<_>>>()?;
        if fields.len() > u64::BITS as usize {
            return Err(PyTypeError::new_err(format!("{} has more than 64 fields", shape.name)));
        }
        let required = field_bits(&fields, |field| field.required);
        let valued = field_bits(&fields, |field| {
            field.required && !matches!(field.kind, KindPlan::List(_) | KindPlan::Map(_))
        });
        let class = class.clone().unbind();
        let (extra, nulls) = (slots.take_slot()?, slots.take_slot()?);
        Ok(Self { class, fields, required, valued, extra, nulls })
    }

    /// An instance with nothing in its slots.
    pub(super) fn allocate_instance<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        layout::allocate_instance(self.class.bind(py))
    }

    /// Where in an instance each field is put; `None` for those that their descriptors put there.
    pub(super) fn field_offsets(&self) -> Vec<(&'static str, Option<usize>)> {
        let place = |slot: &FieldSlot| match slot {
            FieldSlot::At(place) => Some(*place),
            FieldSlot::Behind(_) => None,
        };
        self.fields.iter().map(|field| (field.name, place(&field.slot))).collect()
    }
}

/// A bit for each field that is like that.
fn field_bits(fields: &[FieldPlan], is: impl Fn(&FieldPlan) -> bool) -> u64 {
    fields.iter().enumerate().fold(0, |bits, (at, field)| bits | u64::from(is(field)) << at)
}

impl KindPlan {
    /// Classes of nested types are found in the module of the class around them.
    fn new(kind: &Kind, around: &Bound<'_, PyType>) -> PyResult<Self> {
        Ok(match kind {
            Kind::Text { .. } | Kind::TextOrNumber | Kind::Secret => Self::Text,
            Kind::Time => Self::Time,
            Kind::Bytes => Self::Bytes,
            Kind::Bool => Self::Bool,
            Kind::Integer => Self::Integer,
            Kind::Number => Self::Number,
            Kind::Json => Self::Json,
            Kind::Object => Self::Object,
            Kind::List(item) => Self::List(Box::new(Self::new(item, around)?)),
            Kind::Map(item) => Self::Map(Box::new(Self::new(item, around)?)),
            Kind::Record(shape) => {
                let module = around.py().import(around.module()?)?;
                Self::Record(plan_for_class(shape, &module.getattr(shape.name)?)?)
            }
        })
    }
}

/// The slots of a class: those of its fields in their order, then `extra` and `_nulls`.
struct FieldSlots(std::vec::IntoIter<FieldSlot>);

impl FieldSlots {
    fn new(shape: &Shape, class: &Bound<'_, PyType>) -> PyResult<Self> {
        let slots = class.getattr("_slots")?;
        let names = shape.fields.iter().map(|field| field.name).chain(["extra", "_nulls"]);
        let descriptors = names
            .map(|name| Descriptor::new(&slots.get_item(name)?))
            .collect::<PyResult<Vec<_>>>()?;
        let slots: Vec<FieldSlot> = match layout::slot_offsets(class, &descriptors)? {
            Some(places) => places.into_iter().map(FieldSlot::At).collect(),
            None => descriptors.into_iter().map(FieldSlot::Behind).collect(),
        };
        Ok(Self(slots.into_iter()))
    }

    fn take_slot(&mut self) -> PyResult<FieldSlot> {
        self.0.next().ok_or_else(|| PyTypeError::new_err("a field without a slot"))
    }
}

impl FieldSlot {
    /// Puts a value into a slot, past the `__setattr__` of frozen classes.
    pub(super) fn set_value(
        &self,
        instance: &Bound<'_, PyAny>,
        value: Bound<'_, PyAny>,
    ) -> PyResult<()> {
        match self {
            Self::At(place) => {
                // SAFETY: `layout::places` found a reference there, null or owned, in instances of
                // this class, and the instance is one.
                unsafe { layout::write_slot(instance, *place, value) };
                Ok(())
            }
            Self::Behind(descriptor) => descriptor.set(instance, &value),
        }
    }
}
