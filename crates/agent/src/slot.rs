//! Which of the agent's sessions something belongs to.

/// An agent keeps one session, and a second where the service has several nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SessionSlot {
    /// The one that every agent keeps.
    First,
    /// The one to another node.
    Second,
}

/// A value for each session.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct PerSlot<T> {
    first: T,
    second: T,
}

impl SessionSlot {
    /// The slot of the other session.
    pub fn other(self) -> Self {
        match self {
            Self::First => Self::Second,
            Self::Second => Self::First,
        }
    }
}

impl<T> PerSlot<T> {
    pub fn get(&self, slot: SessionSlot) -> &T {
        match slot {
            SessionSlot::First => &self.first,
            SessionSlot::Second => &self.second,
        }
    }

    pub fn get_mut(&mut self, slot: SessionSlot) -> &mut T {
        match slot {
            SessionSlot::First => &mut self.first,
            SessionSlot::Second => &mut self.second,
        }
    }

    /// The values, that of the first session first.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        [&self.first, &self.second].into_iter()
    }
}
