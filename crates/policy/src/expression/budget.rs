//! What one evaluation may use.
//!
//! The engine has no limit of its own: nested loops take time, and loops and texts that grow take
//! memory, without end. Loops and growing functions therefore pay here, for each value they handle
//! and each byte in it, and an evaluation that runs out fails.

use std::cell::Cell;

use cel::ExecutionError;
use cel::common::types::{CelBytes, CelList, CelMap, CelString, Kind};
use cel::common::value::Val;

/// What an evaluation starts with.
const START: usize = 2 << 20;

/// The price of a value.
const VALUE: usize = 32;

/// The price of a byte of a text, besides.
const BYTE: usize = 4;

/// The price of a node of an expression, for each time that a loop comes by.
const NODE: usize = 16;

/// The price of an entry of a list that is searched.
const COMPARISON: usize = 16;

thread_local! {
    // An evaluation runs on one thread from beginning to end, and evaluations do not nest.
    static LEFT: Cell<usize> = const { Cell::new(START) };
}

/// Begins an evaluation on this thread.
pub(super) fn start_evaluation() {
    LEFT.set(START);
}

/// Pays for so many bytes.
pub(super) fn pay_for_bytes(bytes: usize) -> Result<(), ExecutionError> {
    let left = LEFT.get().checked_sub(bytes);
    LEFT.set(left.unwrap_or(0));
    left.map(|_| ()).ok_or_else(|| ExecutionError::function_error("budget", "too much work"))
}

/// Pays for a list that was made anew of so many values, which themselves are not copied.
pub(crate) fn pay_for_view(values: usize) -> Result<(), ExecutionError> {
    pay_for_bytes(values.saturating_mul(VALUE))
}

/// Pays for a value and all values in it.
pub(super) fn pay_for(value: &dyn Val) -> Result<(), ExecutionError> {
    pay_for_bytes(VALUE)?;
    if let Some(text) = value.downcast_ref::<CelString>() {
        return pay_for_bytes(text.len().saturating_mul(BYTE));
    }
    if let Some(bytes) = value.downcast_ref::<CelBytes>() {
        return pay_for_bytes(bytes.inner().len().saturating_mul(BYTE));
    }
    pay_for_entries(value)
}

/// Pays for a loop whose body has so many nodes, over the entries of a list or the keys of a map.
pub(super) fn pay_for_loop(range: &dyn Val, nodes: usize) -> Result<(), ExecutionError> {
    pay_for_bytes(
        container_len(range).saturating_mul(nodes.saturating_mul(NODE).saturating_add(VALUE)),
    )?;
    if range.get_type().kind() == Kind::Map { Ok(()) } else { pay_for_entries(range) }
}

/// Pays for looking through a list; maps do not have to be looked through.
pub(super) fn pay_for_search(container: &dyn Val) -> Result<(), ExecutionError> {
    if container.get_type().kind() != Kind::List {
        return Ok(());
    }
    pay_for_bytes(container_len(container).saturating_mul(COMPARISON))
}

/// Fails if an evaluation has spent all it had.
pub(super) fn check_remaining() -> Result<(), ExecutionError> {
    pay_for_bytes(usize::from(is_spent()))
}

/// Whether an evaluation has spent all it had; operators such as `||` may hide that from a loop.
pub(super) fn is_spent() -> bool {
    LEFT.get() == 0
}

fn container_len(container: &dyn Val) -> usize {
    let size = container.as_sizer().map_or(0, |sizer| *sizer.size().inner());
    usize::try_from(size).unwrap_or(0)
}

/// Pays for all values in a list or map that was copied; views of a message cost nothing.
pub(super) fn pay_for_copy(value: &dyn Val) -> Result<(), ExecutionError> {
    let has_entries =
        value.downcast_ref::<CelList>().is_some() || value.downcast_ref::<CelMap>().is_some();
    if has_entries { pay_for_entries(value) } else { Ok(()) }
}

fn pay_for_entries(value: &dyn Val) -> Result<(), ExecutionError> {
    if let Some(map) = value.downcast_ref::<CelMap>() {
        return map.inner().values().try_for_each(|value| pay_for(value.as_ref()));
    }
    let Some(iterable) = value.as_iterable() else { return Ok(()) };
    let mut entries = iterable.iter();
    while let Some(entry) = entries.next() {
        pay_for(entry)?;
    }
    Ok(())
}
