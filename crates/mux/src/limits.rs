//! The sides of a session, and how much each may ask the other for.

/// Which side of a session this is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// Dialled; opens streams with odd ids.
    Agent,
    /// Was dialled; opens streams with even ids.
    Service,
}

/// How much a peer may ask for.
#[derive(Debug, Clone, Copy)]
pub struct SessionLimits {
    /// Streams of the peer that are open; one more is refused.
    pub open: usize,
    /// Streams of the peer that [`Incoming::next`](super::Incoming::next) has not returned yet; one more is refused.
    pub waiting: usize,
}

impl SessionLimits {
    /// What a side of this kind grants by default: an agent trusts its service with more.
    pub fn for_side(side: Side) -> Self {
        match side {
            Side::Agent => Self { open: 4096, waiting: 1024 },
            Side::Service => Self { open: 512, waiting: 128 },
        }
    }
}

/// How much a peer may ask for before it has authenticated; more ends the session.
#[derive(Debug, Clone, Copy)]
pub struct LoginLimits {
    /// Streams of the peer that are open.
    pub streams: usize,
    /// Bytes that the peer may send, frame heads included.
    pub bytes: usize,
}

impl Default for LoginLimits {
    /// One call and the heartbeat, which libraries begin first; a message of 64 KiB with its frames.
    fn default() -> Self {
        Self { streams: 2, bytes: (64 + 4) * 1024 }
    }
}
