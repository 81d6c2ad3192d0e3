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

impl StoredReading {
    /// Returns the reading to store after the one that is stored. A confirmation at another node that this node does
    /// not know ends the pause of this node, unless the clock has just leapt.
    pub fn merged_with(self, stored: Self, has_leapt: bool) -> Self {
        let is_confirmed = stored.confirmations > self.confirmations && !has_leapt;
        Self {
            pause: if is_confirmed { stored.pause } else { self.pause },
            confirmations: self.confirmations.max(stored.confirmations),
            ..self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_does_not_know_a_confirmation_stores_no_pause_from_before() {
        let reading = |pause, confirmations| StoredReading { at: 5, pause, confirmations };

        assert_eq!(reading(9, 0).merged_with(reading(0, 1), false), reading(0, 1));
        assert_eq!(reading(9, 0).merged_with(reading(0, 1), true), reading(9, 1));
        assert_eq!(reading(9, 1).merged_with(reading(0, 1), false), reading(9, 1));
    }
}
