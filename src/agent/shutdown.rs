//! How far something is on its way to the end.

/// How far an agent, or one of its tunnels, is on its way to the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Shutdown {
    /// It runs.
    Running,
    /// Nothing new begins; what is in flight is finished.
    Graceful,
    /// Everything ends now.
    Forced,
}
