//! Why a stream or session ended, as a number on the wire.

use std::fmt;

/// Why a stream or session ended, as the protocol numbers it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Code(pub u32);

impl Code {
    /// Nothing went wrong.
    pub const NONE: Self = Self(0);
    /// The peer broke the rules of the protocol.
    pub const PROTOCOL: Self = Self(1);
    /// Something failed inside.
    pub const INTERNAL: Self = Self(2);
    /// More data than the window allowed.
    pub const FLOW_CONTROL: Self = Self(3);
    /// Data for a stream that has ended.
    pub const STREAM_CLOSED: Self = Self(4);
    /// The stream is not wanted.
    pub const REFUSED: Self = Self(5);
    /// The stream is no longer wanted.
    pub const CANCELLED: Self = Self(6);
    /// The stream was reset.
    pub const RESET: Self = Self(7);
    /// A frame has the wrong size.
    pub const FRAME_SIZE: Self = Self(8);
    /// New streams are not taken fast enough.
    pub const ACCEPT_QUEUE_FULL: Self = Self(9);
    /// The peer asks for too much.
    pub const ENHANCE_YOUR_CALM: Self = Self(10);
    /// The peer said that it goes.
    pub const REMOTE_GONE_AWAY: Self = Self(11);
    /// All stream ids were used.
    pub const STREAMS_EXHAUSTED: Self = Self(12);
    /// Writing took too long.
    pub const WRITE_TIMEOUT: Self = Self(13);
    /// The session is over.
    pub const SESSION_CLOSED: Self = Self(14);
    /// The connection ended.
    pub const PEER_EOF: Self = Self(15);
}

/// What the codes are called, by number.
const NAMES: [&str; 16] = [
    "no error",
    "protocol error",
    "internal error",
    "flow control error",
    "stream closed",
    "stream refused",
    "stream cancelled",
    "stream reset",
    "frame size error",
    "accept queue full",
    "enhance your calm",
    "remote gone away",
    "streams exhausted",
    "write timeout",
    "session closed",
    "peer EOF",
];

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match usize::try_from(self.0).ok().and_then(|number| NAMES.get(number)) {
            Some(name) => f.write_str(name),
            None => write!(f, "error {}", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_code_has_the_number_and_the_name_of_the_protocol() {
        for (code, number, name) in [
            (Code::NONE, 0, "no error"),
            (Code::PROTOCOL, 1, "protocol error"),
            (Code::INTERNAL, 2, "internal error"),
            (Code::FLOW_CONTROL, 3, "flow control error"),
            (Code::STREAM_CLOSED, 4, "stream closed"),
            (Code::REFUSED, 5, "stream refused"),
            (Code::CANCELLED, 6, "stream cancelled"),
            (Code::RESET, 7, "stream reset"),
            (Code::FRAME_SIZE, 8, "frame size error"),
            (Code::ACCEPT_QUEUE_FULL, 9, "accept queue full"),
            (Code::ENHANCE_YOUR_CALM, 10, "enhance your calm"),
            (Code::REMOTE_GONE_AWAY, 11, "remote gone away"),
            (Code::STREAMS_EXHAUSTED, 12, "streams exhausted"),
            (Code::WRITE_TIMEOUT, 13, "write timeout"),
            (Code::SESSION_CLOSED, 14, "session closed"),
            (Code::PEER_EOF, 15, "peer EOF"),
        ] {
            assert_eq!((code.0, code.to_string().as_str()), (number, name));
        }
    }

    #[test]
    fn a_code_without_a_name_is_shown_by_its_number() {
        assert_eq!(Code(16).to_string(), "error 16");
        assert_eq!(Code(u32::MAX).to_string(), "error 4294967295");
    }
}
