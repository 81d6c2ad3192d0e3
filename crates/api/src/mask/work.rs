//! A count of the bytes that the scanners of this module look at. Tests compare it for texts of different lengths.

#[cfg(test)]
use std::cell::Cell;

#[cfg(test)]
thread_local! {
    static BYTES: Cell<usize> = const { Cell::new(0) };
}

/// Adds bytes that were looked at. It does nothing outside of tests.
#[inline]
pub(super) fn count_bytes(bytes: usize) {
    #[cfg(test)]
    BYTES.with(|all| all.set(all.get() + bytes));
    #[cfg(not(test))]
    let _ = bytes;
}

/// Returns the number of bytes that were looked at while a function ran.
#[cfg(test)]
pub(super) fn during(run: impl FnOnce()) -> usize {
    BYTES.with(|all| all.set(0));
    run();
    BYTES.with(Cell::get)
}
