//! Why sessions and streams end.

use std::io;
use std::sync::Arc;

use crate::Code;
use crate::frame::FrameError;

/// Why a session ended.
#[derive(Debug, Clone, thiserror::Error)]
pub enum SessionEnd {
    /// This side closed it.
    #[error("the session was closed")]
    Closed,
    /// The connection ended without a word.
    #[error("the peer closed the connection")]
    PeerClosed,
    /// The peer said that it goes.
    #[error("the peer closed the session{}", close_reason(*.code, .text))]
    GoneAway {
        /// Why.
        code: Code,
        /// Why, in its own words.
        text: String,
    },
    /// The connection broke.
    #[error("the connection broke: {0}")]
    Broken(#[source] Arc<io::Error>),
    /// The peer broke the rules of the protocol.
    #[error("the peer broke the protocol: {0}")]
    Protocol(#[from] FrameError),
    /// The peer asked for more than it may have before it has authenticated.
    #[error("before authentication: {0}")]
    BeforeLogin(#[from] LoginLimitError),
    /// A heartbeat did not come back in time.
    #[error("no heartbeat for too long")]
    Silent,
    /// The peer ended the heartbeat while the session lived.
    #[error("the peer ended the heartbeat")]
    HeartbeatEnded,
    /// All stream ids were used.
    #[error("all stream ids were used")]
    Exhausted,
}

/// Why a peer closed the session, behind a colon: what it says itself, and a code that says more than nothing.
fn close_reason(code: Code, text: &str) -> String {
    match (code, text) {
        (Code::NONE, "") => String::new(),
        (Code::NONE, text) => format!(": {text}"),
        (code, "") => format!(": {code}"),
        (code, text) => format!(": {code}: {text}"),
    }
}

impl From<SessionEnd> for io::Error {
    fn from(ended: SessionEnd) -> Self {
        let kind = match ended {
            SessionEnd::Closed => io::ErrorKind::NotConnected,
            SessionEnd::Silent => io::ErrorKind::TimedOut,
            SessionEnd::Protocol(_) | SessionEnd::BeforeLogin(_) => io::ErrorKind::InvalidData,
            _ => io::ErrorKind::ConnectionAborted,
        };
        Self::new(kind, ended)
    }
}

/// What a peer asked too much of before it had authenticated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LoginLimitError {
    /// Streams that are open at once.
    #[error("more than {0} open streams")]
    Streams(usize),
    /// Bytes on the connection, frame heads included.
    #[error("more than {0} bytes")]
    Bytes(usize),
}

/// A stream that was reset, by the code that was given. Found inside an [`io::Error`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the stream was reset: {0}")]
pub struct Reset(pub Code);

impl From<Reset> for io::Error {
    fn from(reset: Reset) -> Self {
        Self::new(io::ErrorKind::ConnectionReset, reset)
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error;

    use super::*;

    fn gone_away(code: Code, text: &str) -> SessionEnd {
        SessionEnd::GoneAway { code, text: text.to_owned() }
    }

    #[test]
    fn a_reader_sees_why_the_session_ended() {
        let broken = io::Error::from(io::ErrorKind::BrokenPipe);
        for (end, kind, message) in [
            (SessionEnd::Closed, io::ErrorKind::NotConnected, "the session was closed"),
            (SessionEnd::Silent, io::ErrorKind::TimedOut, "no heartbeat for too long"),
            (
                SessionEnd::PeerClosed,
                io::ErrorKind::ConnectionAborted,
                "the peer closed the connection",
            ),
            (
                gone_away(Code::INTERNAL, ""),
                io::ErrorKind::ConnectionAborted,
                "the peer closed the session: internal error",
            ),
            (
                gone_away(Code::INTERNAL, "restart"),
                io::ErrorKind::ConnectionAborted,
                "the peer closed the session: internal error: restart",
            ),
            (
                gone_away(Code::NONE, "the service stops"),
                io::ErrorKind::ConnectionAborted,
                "the peer closed the session: the service stops",
            ),
            (
                gone_away(Code::NONE, ""),
                io::ErrorKind::ConnectionAborted,
                "the peer closed the session",
            ),
            (
                SessionEnd::Broken(Arc::new(broken)),
                io::ErrorKind::ConnectionAborted,
                "the connection broke: broken pipe",
            ),
            (SessionEnd::Exhausted, io::ErrorKind::ConnectionAborted, "all stream ids were used"),
            (
                SessionEnd::HeartbeatEnded,
                io::ErrorKind::ConnectionAborted,
                "the peer ended the heartbeat",
            ),
            (
                FrameError::NoStream.into(),
                io::ErrorKind::InvalidData,
                "the peer broke the protocol: a frame for stream 0",
            ),
            (
                LoginLimitError::Streams(2).into(),
                io::ErrorKind::InvalidData,
                "before authentication: more than 2 open streams",
            ),
            (
                LoginLimitError::Bytes(68).into(),
                io::ErrorKind::InvalidData,
                "before authentication: more than 68 bytes",
            ),
        ] {
            let error = io::Error::from(end);

            assert_eq!((error.kind(), error.to_string().as_str()), (kind, message));
        }
    }

    #[test]
    fn a_reset_is_found_inside_an_error() {
        let error = io::Error::from(Reset(Code::REFUSED));

        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
        let inner: Option<&Reset> = error.get_ref().and_then(|inner| inner.downcast_ref());
        assert_eq!(inner, Some(&Reset(Code::REFUSED)));
        assert_eq!(error.to_string(), "the stream was reset: stream refused");
    }

    #[test]
    fn a_broken_connection_keeps_its_cause() {
        let end = SessionEnd::Broken(Arc::new(io::Error::other("cable")));

        assert_eq!(end.source().map(ToString::to_string), Some("cable".to_owned()));
    }
}
