//! Streams that end together.

/// Streams of a session that can be reset together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Group(u32);

impl Group {
    pub(super) fn new(number: u32) -> Self {
        Self(number)
    }
}
