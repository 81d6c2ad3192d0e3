//! Where the slots of a class lie in its instances.
//!
//! A slot can be filled by its descriptor, which is a call for each field, or by putting the object
//! where the descriptor would. With descriptors a page of 100 keys takes a client 4 to 9 % more time
//! (`bench/clients`, scenario `pages`, the least of 11 and of 13 rounds: 93.0 against 89.1 and 110.1
//! against 101.1 µs of processor time for a page; a slot by itself, 9 ns).
//!
//! The place is not in Python's stable interface, so it is found by asking the descriptor, and held
//! against what must be true of it, at the first use of each class: instances have a fixed size and
//! no `__dict__`; each slot is one aligned word behind the object's header and within its size; no
//! two are the same; what is put there is what the descriptor reads, in another instance too; and an
//! instance that goes drops just the references that were put there. A surprise in any of these, and
//! the class is filled by its descriptors.

use pyo3::exceptions::PyTypeError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyType};

/// What an instance has a word of its own for in none of our classes: a `__dict__` that the
/// interpreter manages, weak references that it manages, attributes that are part of the instance.
const UNUSUAL_FLAGS: std::ffi::c_ulong = 1 << 4 | 1 << 3 | 1 << 2;

/// What reads and writes a slot.
pub(super) struct Descriptor {
    object: Py<PyAny>,
    set: ffi::descrsetfunc,
    get: ffi::descrgetfunc,
}

impl Descriptor {
    pub(super) fn new(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        let no_slot = || PyTypeError::new_err("not a slot");
        // SAFETY: the type of a live object; these slots of a type are null or such functions.
        let (set, get) = unsafe {
            let class = ffi::Py_TYPE(object.as_ptr());
            let set = ffi::PyType_GetSlot(class, ffi::Py_tp_descr_set);
            let get = ffi::PyType_GetSlot(class, ffi::Py_tp_descr_get);
            (
                std::mem::transmute::<*mut std::ffi::c_void, Option<ffi::descrsetfunc>>(set),
                std::mem::transmute::<*mut std::ffi::c_void, Option<ffi::descrgetfunc>>(get),
            )
        };
        let (set, get) = (set.ok_or_else(no_slot)?, get.ok_or_else(no_slot)?);
        Ok(Self { object: object.clone().unbind(), set, get })
    }

    /// Puts a value into the slot of an instance.
    pub(super) fn set(
        &self,
        instance: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        // SAFETY: the function of the descriptor's type; all three objects are alive.
        let done = unsafe { (self.set)(self.object.as_ptr(), instance.as_ptr(), value.as_ptr()) };
        if done == 0 { Ok(()) } else { Err(PyErr::fetch(instance.py())) }
    }

    /// What is in the slot of an instance.
    fn get<'py>(&self, instance: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let class = instance.get_type();
        // SAFETY: as in `set`; a null pointer becomes the exception.
        unsafe {
            let value = (self.get)(self.object.as_ptr(), instance.as_ptr(), class.as_ptr());
            Bound::from_owned_ptr_or_err(instance.py(), value)
        }
    }

    /// Whether this is the descriptor that `__slots__` made, in the class or in one below it.
    fn is_of(&self, class: &Bound<'_, PyType>) -> PyResult<bool> {
        let object = self.object.bind(class.py());
        let is_member = object.get_type().name()? == "member_descriptor";
        Ok(is_member && class.is_subclass(&object.getattr("__objclass__")?)?)
    }
}

/// An instance with nothing in its slots.
pub(super) fn allocate_instance<'py>(class: &Bound<'py, PyType>) -> PyResult<Bound<'py, PyAny>> {
    // SAFETY: the class is alive and has no variable part; a null pointer becomes the exception.
    unsafe {
        let raw = ffi::PyType_GenericAlloc(class.as_ptr().cast(), 0);
        Bound::from_owned_ptr_or_err(class.py(), raw)
    }
}

/// Puts a value at a place of an instance, and drops what was there.
///
/// # Safety
/// The place is one of those that [`slot_offsets`] gives for the instance's class.
#[inline]
pub(super) unsafe fn write_slot(
    instance: &Bound<'_, PyAny>,
    place: usize,
    value: Bound<'_, PyAny>,
) {
    // SAFETY: there is an object's address, null or owned.
    unsafe {
        let slot = instance.as_ptr().byte_add(place).cast::<*mut ffi::PyObject>();
        ffi::Py_XDECREF(slot.replace(value.into_ptr()));
    }
}

/// Where these slots lie in instances of the class, in bytes from the start; none if there is
/// anything about them that is not as it always was.
pub(super) fn slot_offsets(
    class: &Bound<'_, PyType>,
    slots: &[Descriptor],
) -> PyResult<Option<Vec<usize>>> {
    if !is_usual(class)? {
        return Ok(None);
    }
    for slot in slots {
        if !slot.is_of(class)? {
            return Ok(None);
        }
    }
    let marks: Vec<_> = slots.iter().map(|_| PyList::empty(class.py()).into_any()).collect();
    let Some(places) = find_offsets(class, slots, &marks)? else { return Ok(None) };
    let agrees = verify_offsets(class, slots, &marks, &places)?;
    // All that was made is gone by now, so what is left is ours alone.
    // SAFETY: the marks are alive.
    let dropped = marks.iter().all(|mark| unsafe { ffi::Py_REFCNT(mark.as_ptr()) } == 1);
    Ok(Some(places).filter(|_| agrees && dropped))
}

/// Whether instances consist of a header and of slots.
fn is_usual(class: &Bound<'_, PyType>) -> PyResult<bool> {
    let number = |name: &str| class.getattr(name)?.extract::<isize>();
    // SAFETY: the class is alive.
    let flags = unsafe { ffi::PyType_GetFlags(class.as_type_ptr()) };
    Ok(flags & UNUSUAL_FLAGS == 0
        && flags & ffi::Py_TPFLAGS_HAVE_GC != 0
        && flags & ffi::Py_TPFLAGS_HEAPTYPE != 0
        && number("__dictoffset__")? == 0
        && number("__weakrefoffset__")? == 0
        && number("__itemsize__")? == 0)
}

/// The word in which each slot has its mark, if that is one word for each.
fn find_offsets(
    class: &Bound<'_, PyType>,
    slots: &[Descriptor],
    marks: &[Bound<'_, PyAny>],
) -> PyResult<Option<Vec<usize>>> {
    let probe = allocate_instance(class)?;
    for (slot, mark) in slots.iter().zip(marks) {
        slot.set(&probe, mark)?;
    }
    let words = class.getattr("__basicsize__")?.extract::<usize>()? / size_of::<usize>();
    let first = size_of::<ffi::PyObject>().div_ceil(size_of::<usize>());
    let start = probe.as_ptr().cast::<usize>();
    // SAFETY: an instance is as large as its class says, and was zeroed when it was made.
    let content: Vec<usize> = (first..words).map(|at| unsafe { start.add(at).read() }).collect();
    let place = |mark: &Bound<'_, PyAny>| {
        let mut found = (0..content.len()).filter(|at| content[*at] == mark.as_ptr() as usize);
        found.next().filter(|_| found.next().is_none()).map(|at| (first + at) * size_of::<usize>())
    };
    Ok(marks.iter().map(place).collect())
}

/// Whether what is put at the places, twice, is what the descriptors of another instance read.
fn verify_offsets(
    class: &Bound<'_, PyType>,
    slots: &[Descriptor],
    marks: &[Bound<'_, PyAny>],
    places: &[usize],
) -> PyResult<bool> {
    let other = allocate_instance(class)?;
    for turn in [1, 0] {
        for (at, place) in places.iter().enumerate() {
            let mark = marks[(at + turn) % marks.len()].clone();
            // SAFETY: the word in which the descriptor put an object, in an instance of this class.
            unsafe { write_slot(&other, *place, mark) };
        }
    }
    for (slot, mark) in slots.iter().zip(marks) {
        if !slot.get(&other)?.is(mark) {
            return Ok(false);
        }
    }
    Ok(true)
}
