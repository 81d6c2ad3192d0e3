//! The clock by which the service computes the age of stored data.

use crate::api::Timestamp;
use crate::api::macros::{resource, wire};

wire! {
    /// The clock by which the service computes the age of stored data.
    pub struct Clock {
        /// The time by this clock: that of the database server, or of the machine if the database is a file.
        pub time: Option<Timestamp>,
        /// The rest of the pause after a leap of the clock, in seconds; 0 if the clock has not leapt. In the pause,
        /// nothing is deleted for its age.
        pub pause_seconds: Option<i64>,
    }
}

resource! {
    /// The clock by which the service computes the age of stored data.
    "clock" {
        /// Fetch the time, and the rest of the pause after a leap.
        GET "/clock" Get() -> Clock;
        /// Confirm that the clock is right, which ends the pause after a leap; only an admin may do so.
        POST "/clock/confirm" Confirm() -> Clock;
    }
}
