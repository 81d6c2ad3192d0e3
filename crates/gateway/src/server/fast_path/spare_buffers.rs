//! Buffers that a connection needs while it carries a request.
//!
//! Most connections of visitors are idle most of the time, so that in between each lends its buffer to
//! whichever has a request next.

use std::cell::RefCell;

use bytes::BytesMut;

/// How large the buffers are that are kept.
pub(super) const MAX_IDLE_BUFFER_BYTES: usize = 8 << 10;
/// How many buffers a thread keeps.
const MAX_SPARE: usize = 128;

thread_local! {
    static SPARE: RefCell<Vec<BytesMut>> = const { RefCell::new(Vec::new()) };
}

/// A buffer without bytes; an empty one where there is no other.
pub(super) fn take_buffer() -> BytesMut {
    SPARE.with_borrow_mut(Vec::pop).unwrap_or_default()
}

/// Keeps a buffer without bytes for others, unless it is large or there are enough.
pub(super) fn give_back(mut buffer: BytesMut) {
    // What was used of a buffer is not in its capacity.
    let is_large = buffer.try_reclaim(MAX_IDLE_BUFFER_BYTES + 1);
    let is_some = buffer.try_reclaim(1);
    SPARE.with_borrow_mut(|spare| {
        if is_some && !is_large && spare.len() < MAX_SPARE {
            spare.push(buffer);
        }
    });
}

#[cfg(test)]
mod tests {
    use bytes::Buf;

    use super::*;

    /// A buffer all of which was used.
    fn used(capacity: usize) -> BytesMut {
        let mut buffer = BytesMut::zeroed(capacity);
        buffer.advance(capacity);
        buffer
    }

    #[test]
    fn buffers_of_usual_size_are_used_again_and_only_so_many() {
        for capacity in [0, MAX_IDLE_BUFFER_BYTES + 1].into_iter().chain([1000; MAX_SPARE + 5]) {
            give_back(used(capacity));
        }

        let taken: Vec<_> = std::iter::repeat_with(take_buffer).take(MAX_SPARE + 5).collect();

        assert!(taken[..MAX_SPARE].iter().all(|buffer| buffer.capacity() == 1000));
        assert!(taken[MAX_SPARE..].iter().all(|buffer| buffer.capacity() == 0));
    }
}
