//! Where one request ends and the next begins, followed more strictly than HTTP asks for.
//!
//! Whoever forwards requests must see the same borders as those who read them later; a request that
//! two readers could understand differently is refused before anything of it goes on. Knows nothing
//! of sockets: it is fed what arrives.
//!
//! What arrives goes on at once, but for the end of a head: that is kept back until the whole head was
//! read and found plain. Hyper reads it a second time, because it answers the requests, and takes no head
//! that somebody else has read.

use super::message_head::{HeadLimits, has_head_end, read_request_within};
use super::{Body, FramingError, HeadError};

/// How large a head may be; hyper answers more than a hundred fields itself.
const LIMITS: HeadLimits = HeadLimits::for_client(256 << 10);

/// What a visitor has to send next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expects {
    /// Nothing, or another request.
    Nothing,
    /// The rest of a head.
    Head,
    /// The rest of a body.
    Body,
}

/// Follows the requests of one connection.
#[derive(Debug, Default)]
pub(super) struct RequestFraming {
    state: RequestFramingState,
    /// The head under way, where it comes in pieces.
    head: Vec<u8>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
enum RequestFramingState {
    /// Between requests, where one empty line may stand (RFC 9112, section 2.2).
    #[default]
    Start,
    /// After the carriage return of that line.
    EmptyLine,
    /// After that line, of which there is no second.
    AfterEmptyLine,
    Head,
    Body(Body),
}

/// There is more than one empty line before a request, or not the whole of one.
struct InvalidEmptyLine;

impl RequestFraming {
    /// What is missing.
    pub(super) fn expected_part(&self) -> Expects {
        match self.state {
            RequestFramingState::Start | RequestFramingState::AfterEmptyLine => Expects::Nothing,
            RequestFramingState::EmptyLine | RequestFramingState::Head => Expects::Head,
            RequestFramingState::Body(_) => Expects::Body,
        }
    }

    /// Follows what has arrived, and takes empty lines before requests out of it; gives how many
    /// bytes are left, which stand at the beginning.
    ///
    /// # Errors
    /// When something can be understood in more ways than one; says how many of the bytes that are
    /// left are fine.
    pub(super) fn feed(&mut self, bytes: &mut [u8]) -> Result<usize, FramingError> {
        let (mut at, mut left) = (0, 0);
        while let Some(rest) = bytes.get(at..)
            && let Some(first) = rest.first()
        {
            if let Some(next) = self.state.around_empty_line(*first) {
                self.state = next.map_err(|InvalidEmptyLine| FramingError { fine: left })?;
                at += 1;
                continue;
            }
            let (taken, fine) = self.take_bytes(rest);
            if left < at {
                bytes.copy_within(at..at + taken, left);
            }
            at += taken;
            left += taken;
            if !fine {
                return Err(FramingError { fine: left });
            }
        }
        Ok(left)
    }

    /// How many of the bytes belong together and are fine, and whether what follows may be.
    fn take_bytes(&mut self, bytes: &[u8]) -> (usize, bool) {
        if let RequestFramingState::Body(body) = &mut self.state {
            let taken = body.take(bytes, |_| {});
            if body.is_done() {
                self.state = RequestFramingState::Start;
            }
            return taken.map_or_else(|error| (error.fine, false), |taken| (taken, true));
        }
        self.take_head(bytes).map_or((0, false), |taken| (taken, true))
    }

    /// Takes a head, or what there is of it; gives how many bytes that was.
    fn take_head(&mut self, bytes: &[u8]) -> Result<usize, HeadError> {
        self.state = RequestFramingState::Head;
        let before = self.head.len();
        if before > 0 || !has_head_end(bytes, 0) {
            self.head.extend_from_slice(bytes);
        }
        let head = if self.head.is_empty() { bytes } else { &self.head };
        if !has_head_end(head, before) {
            return if head.len() <= LIMITS.bytes {
                Ok(bytes.len())
            } else {
                Err(HeadError::TooLong)
            };
        }
        let read = read_request_within(LIMITS, head, |head| (head.bytes.len(), head.body.clone()))?;
        let (length, body) = read.ok_or(HeadError::BareLineEnd)?;
        self.head = Vec::new();
        self.state = if body.is_done() {
            RequestFramingState::Start
        } else {
            RequestFramingState::Body(body)
        };
        Ok(length - before)
    }
}

impl RequestFramingState {
    /// What follows when this byte belongs to an empty line before a request; none when it belongs
    /// to something else.
    fn around_empty_line(&self, byte: u8) -> Option<Result<Self, InvalidEmptyLine>> {
        match (self, byte) {
            (Self::Start, b'\r') => Some(Ok(Self::EmptyLine)),
            (Self::EmptyLine, b'\n') => Some(Ok(Self::AfterEmptyLine)),
            (Self::EmptyLine, _) => Some(Err(InvalidEmptyLine)),
            (Self::Start | Self::AfterEmptyLine, b'\r' | b'\n') => Some(Err(InvalidEmptyLine)),
            _ => None,
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// What is left of some bytes that are fed in pieces of one size, and what is expected then;
    /// no expectation when they are refused.
    fn fed_in(bytes: &[u8], piece: usize) -> (Vec<u8>, Option<Expects>) {
        let (mut framing, mut left) = (RequestFraming::default(), Vec::new());
        for piece in bytes.chunks(piece) {
            let mut piece = piece.to_vec();
            let fed = framing.feed(&mut piece);
            piece.truncate(fed.unwrap_or_else(|error| error.fine));
            left.extend(piece);
            if fed.is_err() {
                return (left, None);
            }
        }
        (left, Some(framing.expected_part()))
    }

    /// Feeds the bytes whole and in pieces; all must come to the same.
    fn fed(bytes: &[u8]) -> Option<Expects> {
        let (_, whole) = fed_in(bytes, bytes.len());
        for piece in 1..bytes.len() {
            assert_eq!(fed_in(bytes, piece).1, whole, "{piece}");
        }
        whole
    }

    #[test]
    fn a_body_ends_where_its_head_says() {
        let head = "POST / HTTP/1.1\r\nHost: a\r\n";
        for (rest, expected) in [
            ("", Expects::Head),
            ("\r\n", Expects::Nothing),
            ("Content-Length: 3\r\n\r\nab", Expects::Body),
            ("Content-Length: 3\r\n\r\nabc", Expects::Nothing),
            ("content-length:0\r\n\r\n\r\nG", Expects::Head),
            ("content-length:0\r\n\r\n\r\n", Expects::Nothing),
            ("Transfer-Encoding: Chunked\r\n\r\n", Expects::Body),
            ("Transfer-Encoding: chunked\r\n\r\n2;x=y\r\nab\r\n0\r\n", Expects::Body),
            ("Transfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\na: b\r\n\r\n", Expects::Nothing),
        ] {
            assert_eq!(fed(format!("{head}{rest}").as_bytes()), Some(expected), "{rest}");
        }
    }

    #[test]
    fn what_came_before_stays_fine() {
        let fine = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
        let head = "GET / HTTP/1.1\r\nContent-Length: x\r\n\r\n";
        let bytes = format!("{fine}{head}");

        assert_eq!(fed_in(bytes.as_bytes(), bytes.len()), (fine.into(), None));
        for piece in 1..head.len() {
            let (left, expects) = fed_in(bytes.as_bytes(), piece);
            let begun = left.strip_prefix(fine.as_bytes()).unwrap();
            assert!(head.as_bytes().starts_with(begun) && begun.len() < head.len(), "{piece}");
            assert_eq!(expects, None, "{piece}");
        }
    }

    #[test]
    fn one_empty_line_before_a_request_is_taken_out() {
        let (get, post) = (
            "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\n\r\n\n",
        );
        let bytes = format!("\r\n{get}\r\n{post}\r\n{get}{get}\r\n");

        for piece in 1..bytes.len() {
            let (left, expects) = fed_in(bytes.as_bytes(), piece);
            assert_eq!(String::from_utf8(left).unwrap(), format!("{get}{post}{get}{get}"));
            assert_eq!(expects, Some(Expects::Nothing));
        }
    }

    #[test]
    fn other_lines_before_a_request_are_refused() {
        for before in ["\r\n\r\n", "\n", "\r", "\r\n\n", "\r\r\n", " \r\n", "\r\n \r\n"] {
            let bytes = format!("{before}GET / HTTP/1.1\r\nHost: a\r\n\r\n");
            assert_eq!(fed(bytes.as_bytes()), None, "{before:?}");
        }
    }
    #[test]
    fn the_length_of_a_body_is_one_of_those_that_http_knows() {
        // RFC 9112, sections 2.3, 6.1 and 6.3.
        for (version, fields, expected) in [
            ("HTTP/1.1", "", Some(Expects::Nothing)),
            ("HTTP/1.0", "", Some(Expects::Nothing)),
            ("HTTP/1.0", "Content-Length: 1", Some(Expects::Body)),
            ("HTTP/1.1", "Content-Length: 0", Some(Expects::Nothing)),
            ("HTTP/1.1", "Transfer-Encoding: chunked", Some(Expects::Body)),
            ("HTTP/1.0", "Transfer-Encoding: chunked", None),
            ("HTTP/1.1x", "Transfer-Encoding: chunked", None),
            ("HTTP/1.1", "Transfer-Encoding: chunked, chunked", None),
            ("HTTP/1.1", "Transfer-Encoding: gzip", None),
            ("HTTP/1.1", "Transfer-Encoding: chunked\r\nContent-Length: 1", None),
            ("HTTP/1.1", "Content-Length: 1\r\nContent-Length: 1", None),
            ("HTTP/1.1", "Content-Length: 1,1", None),
            ("HTTP/1.1", "Content-Length: 1 ", Some(Expects::Body)),
            ("HTTP/1.1", "Content-Length : 1", None),
            ("HTTP/1.1", " Content-Length: 1", None),
            ("HTTP/1.1", "X: a\r\n b", None),
            ("HTTP/1.1", "no colon", None),
        ] {
            let fields = if fields.is_empty() { String::new() } else { format!("{fields}\r\n") };
            let text = format!("POST / {version}\r\nHost: a\r\n{fields}\r\n");
            assert_eq!(fed(text.as_bytes()), expected, "{text:?}");
        }
    }

    #[test]
    fn lines_end_with_both_bytes() {
        // RFC 9112, section 2.2: a recipient may take a bare line feed; this one does not.
        for text in [
            "GET / HTTP/1.1\nHost: a\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a\n\r\n",
            "GET / HTTP/1.1\r\nHost: a\r\n\n",
            "GET /\r HTTP/1.1\r\nHost: a\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a\r\r\n\r\n",
        ] {
            assert_eq!(fed(text.as_bytes()), None, "{text:?}");
        }
    }

    #[test]
    fn a_head_has_a_limit() {
        let fed_in_halves = |bytes: usize| {
            let mut framing = RequestFraming::default();
            let mut line = format!("GET /{}", "a".repeat(bytes - 5)).into_bytes();
            let (first, second) = line.split_at_mut(100);
            framing.feed(first).is_ok() && framing.feed(second).is_ok()
        };

        assert!(fed_in_halves(LIMITS.bytes) && !fed_in_halves(LIMITS.bytes + 1));
    }
}
