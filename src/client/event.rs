//! What happens to a call on its way, for those who want to know.

use std::time::Duration;

/// Something that happened to an attempt of a call.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// Which attempt; the first is 1.
    pub attempt: u32,
    /// What happened.
    pub what: What,
}

/// What can happen to an attempt.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum What {
    /// The request is about to be sent.
    Sent,
    /// An answer arrived, whatever it says.
    Answered {
        /// Its status.
        status: u16,
        /// How long the attempt took.
        took: Duration,
    },
    /// No answer arrived.
    Failed {
        /// Why, in one line.
        problem: String,
        /// How long the attempt took.
        took: Duration,
    },
    /// Another attempt follows after a pause.
    Repeats {
        /// The status of the answer; none when none arrived.
        status: Option<u16>,
        /// How long the pause is.
        pause: Duration,
    },
}

/// Told what happens to a call, on the thread that drives it.
pub type Observer<'a> = dyn Fn(Event) + Send + Sync + 'a;
