//! The last reading of the clock, as the database has it.

use serde::{Deserialize, Serialize};

/// The setting of the database with the last reading of the clock.
pub(super) const SETTING: &str = "age_clock";

/// A reading of the clock as the database has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct StoredReading {
    /// Seconds since the Unix epoch.
    pub at: u64,
    /// The rest of the pause, in seconds.
    pub pause: u64,
    /// The number of times that an operator has confirmed the clock. It never falls, so that a node of a cluster
    /// learns from it that an operator has confirmed the clock at another node.
    #[serde(default)]
    pub confirmations: u64,
}
