//! What happens to a call on its way, for those who want to know.

use std::ops::ControlFlow;
use std::time::Duration;

use http::HeaderMap;

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
        /// The headers, without what the client sent in confidence.
        headers: HeaderMap,
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

/// Which events somebody wants to know of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventFilter {
    /// All of them.
    All,
    /// That another attempt follows.
    Retries,
}

/// Who is told what happens to a call, on the thread that drives it.
pub struct Observer<'a> {
    /// Which events it is told.
    pub filter: EventFilter,
    /// Told of each; the call ends when it breaks.
    pub tell: &'a mut (dyn FnMut(Event) -> ControlFlow<()> + Send),
}

impl Observer<'_> {
    /// Tells of an event, if that matters; true when the call shall end.
    pub(super) fn tell(&mut self, event: Event) -> bool {
        self.filter.covers(&event) && (self.tell)(event).is_break()
    }
}

impl EventFilter {
    /// Whether an event is one of those.
    pub fn covers(self, event: &Event) -> bool {
        self == Self::All || matches!(event.what, What::Repeats { .. })
    }
}
