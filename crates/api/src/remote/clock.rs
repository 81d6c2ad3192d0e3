//! The clock by which the service computes the age of stored data.

use crate::Timestamp;
use crate::macros::{resource, wire};

wire! {
    /// The time by that clock, and the pause in which nothing is deleted for its age.
    pub struct ClockState {
        /// The time by the clock of the database server, or of the machine if the database is a file.
        pub time: Option<Timestamp>,
        /// The rest of the pause after a leap of the clock, in seconds; 0 if there is none.
        pub pause_seconds: Option<i64>,
    }
}

resource! {
    /// The clock by which the service computes the age of stored data.
    "clock" {
        /// Fetch the time, and the rest of the pause after a leap.
        GET "/clock" Get() -> ClockState;
        /// Confirm that the clock is right, and end the pause after a leap; only an admin may do so.
        POST "/clock/confirm" Confirm() -> ClockState;
    }
}
