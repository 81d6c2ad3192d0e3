//! The spans that are open, and what their fields say.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tracing::span::{Attributes, Id, Record};

use super::outcome::ignore;
use super::record::LogFields;
use crate::fork::PerProcess;

/// The spans of this process; nobody is left in those of its parent but the thread that forked.
static OPEN_SPANS: PerProcess<Mutex<HashMap<u64, OpenSpan>>> = PerProcess::new(Mutex::default);
/// The number of the next span.
static NEXT_SPAN: AtomicU64 = AtomicU64::new(1);

thread_local! {
    /// The spans that this thread is in, the innermost last.
    static ENTERED: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
}

struct OpenSpan {
    /// How many handles there are.
    handles: usize,
    /// Its own, and those of the spans around it.
    fields: LogFields,
}

fn open_spans() -> MutexGuard<'static, HashMap<u64, OpenSpan>> {
    OPEN_SPANS.current().lock().unwrap_or_else(PoisonError::into_inner)
}

/// The innermost span that this thread is in.
fn current_span() -> Option<u64> {
    // A thread that ends is in none.
    ENTERED.try_with(|entered| entered.borrow().last().copied()).ok().flatten()
}

/// Opens a span.
pub(super) fn open_span(attributes: &Attributes<'_>) -> Id {
    let around = match attributes.parent() {
        Some(parent) => Some(parent.into_u64()),
        None if attributes.is_contextual() => current_span(),
        None => None,
    };
    let mut fields = around.map(fields_of).unwrap_or_default();
    attributes.record(&mut fields);
    let number = NEXT_SPAN.fetch_add(1, Relaxed);
    let span = OpenSpan { handles: 1, fields };
    open_spans().insert(number, span);
    Id::from_u64(number)
}

/// Sets fields of a span that were not known when it was opened.
pub(super) fn record_fields(span: &Id, values: &Record<'_>) {
    if let Some(span) = open_spans().get_mut(&span.into_u64()) {
        values.record(&mut span.fields);
    }
}

pub(super) fn enter_span(span: &Id) {
    ignore(
        ENTERED.try_with(|entered| entered.borrow_mut().push(span.into_u64())),
        "a thread that ends tells nothing more",
    );
}

pub(super) fn exit_span(span: &Id) {
    let leave = |entered: &RefCell<Vec<u64>>| {
        let mut entered = entered.borrow_mut();
        if let Some(place) = entered.iter().rposition(|number| *number == span.into_u64()) {
            entered.remove(place);
        }
    };
    ignore(ENTERED.try_with(leave), "a thread that ends tells nothing more");
}

/// Notes another handle.
pub(super) fn add_handle(span: &Id) {
    if let Some(span) = open_spans().get_mut(&span.into_u64()) {
        span.handles += 1;
    }
}

/// Lets go of a handle; true when it was the last.
pub(super) fn release_handle(span: &Id) -> bool {
    let mut spans = open_spans();
    let Some(known) = spans.get_mut(&span.into_u64()) else { return false };
    known.handles -= 1;
    let is_last = known.handles == 0;
    if is_last {
        spans.remove(&span.into_u64());
    }
    is_last
}

/// What the spans around an event say.
pub(super) fn fields_around(parent: Option<&Id>, is_contextual: bool) -> LogFields {
    let around = match parent {
        Some(parent) => Some(parent.into_u64()),
        None if is_contextual => current_span(),
        None => None,
    };
    around.map(fields_of).unwrap_or_default()
}

fn fields_of(span: u64) -> LogFields {
    open_spans().get(&span).map(|span| span.fields.clone()).unwrap_or_default()
}
