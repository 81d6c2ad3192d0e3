//! What comes one after the other: messages of WebSockets, and when parts of a body came.

use std::collections::VecDeque;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use ginnel_http1::{MediaType, after_first_line, fields_in};

/// What a message counts beside its bytes.
const MESSAGE_OVERHEAD_BYTES: usize = 64;
/// What a mark counts.
const MARK_BYTES: usize = size_of::<BodyMark>();
/// How many marks a body has; later parts count as one, which is there when the last of them is.
const MAX_MARKS: usize = 16 << 10;

/// What comes one after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StreamKind {
    /// Messages of a WebSocket.
    WebSocket,
    /// Server-sent events.
    Events,
    /// Messages of a gRPC call.
    Grpc,
}

impl StreamKind {
    /// Returns the kind of stream that the media type in a head names.
    pub(super) fn from_head(head: &[u8]) -> Option<Self> {
        let mut fields = fields_in(after_first_line(head));
        let (_, value) = fields.find(|(name, _)| name.eq_ignore_ascii_case(b"content-type"))?;
        let media_type = MediaType::from_value(value);
        match () {
            () if media_type.is_event_stream() => Some(Self::Events),
            // gRPC in browsers is another protocol, `application/grpc-web`.
            () if media_type.is_grpc() => Some(Self::Grpc),
            () => None,
        }
    }

    /// The kind as the local API names it.
    pub fn name(self) -> &'static str {
        match self {
            Self::WebSocket => "websocket",
            Self::Events => "events",
            Self::Grpc => "grpc",
        }
    }
}

/// Who sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StreamSide {
    /// The visitor.
    Client,
    /// The local service.
    Server,
}

impl StreamSide {
    /// The side as the local API names it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Server => "server",
        }
    }
}

/// A message of a WebSocket, whole or as far as it is kept.
#[derive(Debug, Clone)]
pub struct SocketMessage {
    /// Who sent it.
    pub side: StreamSide,
    /// What it is (RFC 6455 §5.2).
    pub opcode: u8,
    /// When it was complete, since the request arrived.
    pub at: Duration,
    /// How long it was on its way, compressed or not, without the heads of frames.
    pub size: u64,
    /// What is kept of it; without its compression unless that could not be taken off.
    pub data: Vec<u8>,
    /// Whether less is kept than there was.
    pub is_cut: bool,
    /// Whether it is still compressed.
    pub is_compressed: bool,
}

impl SocketMessage {
    fn memory_cost(&self) -> usize {
        MESSAGE_OVERHEAD_BYTES + self.data.len()
    }
}

/// The messages of a WebSocket, as far as they are kept.
#[derive(Debug, Default, Clone)]
pub struct SocketLog {
    /// The last ones, oldest first.
    pub messages: VecDeque<SocketMessage>,
    /// How many came before them.
    pub dropped: u64,
    /// How many bytes each side has sent, without the heads of frames: client and server.
    pub bytes: [u64; 2],
    cost: usize,
}

impl SocketLog {
    /// What the messages count against the limit.
    pub(super) fn memory_cost(&self) -> usize {
        self.cost
    }

    /// Keeps a message, and of those before it as many as fit into so many bytes.
    pub(crate) fn push_message(&mut self, message: SocketMessage, most: usize) {
        self.bytes[usize::from(message.side == StreamSide::Server)] += message.size;
        self.cost += message.memory_cost();
        self.messages.push_back(message);
        while self.cost > most {
            let Some(oldest) = self.messages.pop_front() else { return };
            self.cost -= oldest.memory_cost();
            self.dropped += 1;
        }
    }

    /// Lets all messages go.
    pub(super) fn clear(&mut self) {
        self.dropped += self.messages.len() as u64;
        self.messages = VecDeque::new();
        self.cost = 0;
    }
}

/// So much of a body was there at a time.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct BodyMark {
    length: u64,
    /// Microseconds since the request arrived.
    at: u64,
}

/// When the parts of a body came.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
#[serde(transparent)]
pub struct BodyMarks(Vec<BodyMark>);

impl BodyMarks {
    /// When so much of the body was there; none where nobody noted it.
    pub fn arrival_time(&self, length: u64) -> Option<Duration> {
        let at = self.0.partition_point(|mark| mark.length < length);
        self.0.get(at).map(|mark| Duration::from_micros(mark.at))
    }

    /// What the marks count against the limit.
    pub(super) fn memory_cost(&self) -> usize {
        self.0.len() * MARK_BYTES
    }

    /// Notes that so much of the body is there, in so many bytes of notes at most.
    pub(crate) fn push_mark(&mut self, length: u64, at: Duration, most: usize) {
        let at = u64::try_from(at.as_micros()).unwrap_or(u64::MAX);
        let is_full = self.0.len() >= MAX_MARKS.min(most / MARK_BYTES);
        match self.0.last_mut() {
            Some(last) if is_full || last.at == at => *last = BodyMark { length, at },
            _ if is_full => {}
            _ => self.0.push(BodyMark { length, at }),
        }
    }

    /// Lets all marks go.
    pub(super) fn clear(&mut self) {
        self.0 = Vec::new();
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn message(size: usize) -> SocketMessage {
        SocketMessage {
            side: StreamSide::Server,
            opcode: 2,
            at: Duration::ZERO,
            size: size as u64,
            data: vec![0; size],
            is_cut: false,
            is_compressed: false,
        }
    }

    #[test]
    fn the_last_messages_stay_and_all_bytes_count() {
        let mut log = SocketLog::default();

        (1..=10).for_each(|size| log.push_message(message(size * 100), 1_500));

        assert_eq!((log.messages.len(), log.dropped), (1, 9));
        assert_eq!((log.memory_cost(), log.bytes), (1_064, [0, 5_500]));
        log.push_message(message(2_000), 1_500);
        assert_eq!((log.messages.len(), log.dropped, log.memory_cost()), (0, 11, 0));
    }

    #[test]
    fn a_place_in_a_body_has_the_time_of_the_part_that_brought_it() {
        let mut marks = BodyMarks::default();
        for (length, at) in [(10, 1), (20, 1), (30, 5)] {
            marks.push_mark(length, Duration::from_millis(at), usize::MAX);
        }

        let times = [1, 20, 21, 30].map(|length| marks.arrival_time(length).unwrap().as_millis());
        assert_eq!(times, [1, 1, 5, 5]);
        assert_eq!(marks.arrival_time(31), None);
    }

    #[test]
    fn there_are_only_so_many_marks_and_every_part_has_a_time() {
        for (most, count) in [(usize::MAX, MAX_MARKS), (10 * MARK_BYTES, 10), (0, 0)] {
            let mut marks = BodyMarks::default();
            let parts = MAX_MARKS as u64 + 5;

            (1..=parts).for_each(|part| marks.push_mark(part, Duration::from_micros(part), most));

            assert_eq!(marks.memory_cost(), count * MARK_BYTES);
            let last = marks.arrival_time(parts).map(|at| at.as_micros() as u64);
            assert_eq!(last, (count > 0).then_some(parts));
        }
    }
}
