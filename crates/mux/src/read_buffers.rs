//! Buffers that sessions read into.
//!
//! A session holds one only while a part of a frame lies in it: of many sessions few have something to
//! read at a time, and they share the buffers that are warm.

use std::cell::RefCell;

use bytes::BytesMut;

/// The size of a buffer.
pub(super) const READ_BUFFER_BYTES: usize = 64 * 1024;
/// How many buffers a thread keeps.
const MAX_SPARE: usize = 16;

thread_local! {
    static SPARE: RefCell<Vec<BytesMut>> = const { RefCell::new(Vec::new()) };
}

/// A buffer without bytes, some of whose room may have been used.
pub(super) fn take_buffer() -> BytesMut {
    let spare = SPARE.with_borrow_mut(Vec::pop);
    spare.unwrap_or_else(|| BytesMut::with_capacity(READ_BUFFER_BYTES))
}

/// Keeps a buffer without bytes for others, unless there are enough.
pub(super) fn return_buffer(buffer: BytesMut) {
    SPARE.with_borrow_mut(|spare| {
        if spare.len() < MAX_SPARE {
            spare.push(buffer);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_goes_on_where_it_was_given_back_and_only_so_many_are_kept() {
        let mut first = take_buffer();
        first.extend_from_slice(b"hello");
        let piece = first.split().freeze();
        let left = first.capacity();
        return_buffer(first);

        assert_eq!(take_buffer().capacity(), left, "what was read before stays");
        assert_eq!(piece.as_ref(), b"hello");

        (0..MAX_SPARE + 3).for_each(|_| return_buffer(BytesMut::with_capacity(9)));
        let taken: Vec<_> = std::iter::repeat_with(take_buffer).take(MAX_SPARE + 3).collect();
        assert_eq!(taken.iter().filter(|buffer| buffer.capacity() == 9).count(), MAX_SPARE);
    }
}
