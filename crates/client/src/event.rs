//! What happens to a call on its way, for those who want to know.

use std::ops::ControlFlow;
use std::time::Duration;

use http::HeaderMap;

use super::{ApiResponse, Error};

/// Something that happened to an attempt of a call.
#[derive(Debug, Clone, PartialEq)]
pub struct CallEvent {
    /// Which attempt; the first is 1.
    pub attempt: u32,
    /// What happened.
    pub kind: CallEventKind,
}

/// What can happen to an attempt.
#[derive(Debug, Clone, PartialEq)]
pub enum CallEventKind {
    /// The request is about to be sent.
    Sent,
    /// An answer arrived, whatever it says.
    Answered {
        /// Its status.
        status: u16,
        /// How long the attempt took.
        elapsed: Duration,
        /// The headers, without what the client sent in confidence.
        headers: HeaderMap,
    },
    /// No answer arrived.
    Failed {
        /// Why, in one line.
        problem: String,
        /// How long the attempt took.
        elapsed: Duration,
    },
    /// Another attempt follows after a pause.
    Repeats {
        /// The status of the answer; none when none arrived.
        status: Option<u16>,
        /// How long the pause is.
        pause: Duration,
    },
}

/// What has become of a call since it was last asked.
#[derive(Debug)]
pub enum CallUpdate {
    /// Something happened to an attempt.
    Event(CallEvent),
    /// The call is over.
    Finished(Result<ApiResponse, Error>),
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
    pub on_event: &'a mut (dyn FnMut(CallEvent) -> ControlFlow<()> + Send),
}

impl Observer<'_> {
    /// Tells of an event, if that matters; true when the call shall end.
    pub(super) fn notify(&mut self, event: CallEvent) -> bool {
        self.filter.covers_event(&event) && (self.on_event)(event).is_break()
    }
}

impl EventFilter {
    /// Whether an event is one of those.
    pub fn covers_event(self, event: &CallEvent) -> bool {
        self == Self::All || matches!(event.kind, CallEventKind::Repeats { .. })
    }
}
