//! Where the time of an exchange went.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use ginnel_api::local::requests::Timings;

/// When the parts of an exchange began, since the request arrived; none for those that did not.
#[derive(Debug, Default, Clone, Copy, Serialize, Deserialize)]
#[serde(default)]
pub struct ExchangeMarks {
    /// The agent began to connect to the local service.
    pub connecting: Option<Duration>,
    /// There was a connection.
    pub connected: Option<Duration>,
    /// The response began.
    pub first_byte: Option<Duration>,
}

/// How long each part of an exchange took; together they are the whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExchangeTiming {
    /// Until the agent began to connect.
    pub waited: Duration,
    /// Until there was a connection.
    pub connected: Duration,
    /// Until the response began.
    pub first_byte: Duration,
    /// Until it ended.
    pub body: Duration,
}

impl ExchangeMarks {
    /// The parts of an exchange that took so long.
    pub fn split_timing(self, took: Duration) -> ExchangeTiming {
        // What did not begin took no time: the part before it lasted until the next one that did.
        let first_byte = self.first_byte.unwrap_or(took).min(took);
        let connected = self.connected.unwrap_or(first_byte).min(first_byte);
        let connecting = self.connecting.unwrap_or(connected).min(connected);
        ExchangeTiming {
            waited: connecting,
            connected: connected - connecting,
            first_byte: first_byte - connected,
            body: took - first_byte,
        }
    }
}

impl ExchangeTiming {
    pub(super) fn to_timings(self) -> Timings {
        let nanoseconds = |time: Duration| i64::try_from(time.as_nanos()).unwrap_or(i64::MAX);
        Timings {
            waited: nanoseconds(self.waited),
            connected: nanoseconds(self.connected),
            first_byte: nanoseconds(self.first_byte),
            body: nanoseconds(self.body),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_are_the_whole_whatever_did_not_begin() {
        let ms = Duration::from_millis;
        for (marks, parts) in [
            ([Some(1), Some(3), Some(7)], [1, 2, 4, 13]),
            ([Some(1), Some(1), Some(7)], [1, 0, 6, 13]),
            ([Some(1), Some(3), None], [1, 2, 17, 0]),
            ([Some(1), None, Some(7)], [1, 6, 0, 13]),
            ([None, None, Some(7)], [7, 0, 0, 13]),
            ([None, None, None], [20, 0, 0, 0]),
        ] {
            let [connecting, connected, first_byte] = marks.map(|mark| mark.map(ms));
            let timing = ExchangeMarks { connecting, connected, first_byte }.split_timing(ms(20));
            let ExchangeTiming { waited, connected, first_byte, body } = timing;
            assert_eq!([waited, connected, first_byte, body], parts.map(ms), "{marks:?}");
        }
    }
}
