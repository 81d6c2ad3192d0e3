//! Where an answer ends, followed more strictly than HTTP asks for; free of I/O.
//!
//! What an upstream sends must end for everybody where it ends here: an answer that says in more than
//! one way where its body ends is refused. What comes unasked belongs to no answer and is not judged;
//! whoever keeps the connection sees that it is not empty.

use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

use super::chunks::FramingError;
use super::length::field;
use super::{Body, BodyLength, MAX_LINE_BYTES};

/// What an upstream was asked, told to who follows its answers.
#[derive(Debug, Default)]
pub struct PendingResponse(AtomicU8);

/// Nothing was asked.
const NOTHING: u8 = 0;
const ANSWER: u8 = 1;
/// An answer without a body, whatever it says.
const ANSWER_TO_HEAD: u8 = 2;

impl PendingResponse {
    /// A request is sent now, and its answer is awaited.
    pub fn begin(&self, to_head: bool) {
        self.0.store(if to_head { ANSWER_TO_HEAD } else { ANSWER }, Relaxed);
    }

    fn take(&self) -> u8 {
        self.0.swap(NOTHING, Relaxed)
    }
}

/// Follows the answers of one connection.
#[derive(Debug, Default)]
pub(super) struct ResponseFraming {
    state: State,
    head: Head,
    /// The beginning of a line that has not ended.
    line: Vec<u8>,
}

#[derive(Debug, Default)]
enum State {
    /// Nothing is awaited.
    #[default]
    Idle,
    /// In the first line.
    First,
    Head,
    Body(Body),
    /// Another protocol is spoken.
    Upgraded,
}

#[derive(Debug, Default)]
struct Head {
    to_head: bool,
    status: u16,
    is_http_1_1: bool,
    length: BodyLength,
}

/// The answer is not as it should be; nothing of it is fine.
const AMBIGUOUS: FramingError = FramingError { fine: 0 };

impl ResponseFraming {
    /// Follows what has arrived; gives how many bytes belong to the answer that was awaited.
    ///
    /// # Errors
    /// When the answer can be understood in more ways than one.
    pub(super) fn feed(
        &mut self,
        bytes: &[u8],
        pending: &PendingResponse,
    ) -> Result<usize, FramingError> {
        let mut at = 0;
        while let Some(rest) = bytes.get(at..)
            && !rest.is_empty()
        {
            at += match &mut self.state {
                State::Idle => match pending.take() {
                    NOTHING => return Ok(at),
                    asked => {
                        self.head.to_head = asked == ANSWER_TO_HEAD;
                        self.state = State::First;
                        0
                    }
                },
                State::First | State::Head => self.take_line(rest)?,
                State::Body(body) => {
                    let taken = body.take(rest, |_| {})?;
                    if body.is_done() {
                        self.state = State::Idle;
                    }
                    taken
                }
                State::Upgraded => rest.len(),
            };
        }
        Ok(at)
    }

    /// Takes a line, or what there is of it; gives how many bytes that was.
    fn take_line(&mut self, rest: &[u8]) -> Result<usize, FramingError> {
        let end = rest.iter().position(|byte| *byte == b'\n');
        let taken = end.map_or(rest.len(), |end| end + 1);
        if let Some(end) = end
            && self.line.is_empty()
        {
            self.whole_line(rest.get(..end).unwrap_or_default())?;
            return Ok(taken);
        }
        self.line.extend_from_slice(rest.get(..taken).unwrap_or_default());
        if self.line.len() > MAX_LINE_BYTES {
            return Err(AMBIGUOUS);
        }
        if end.is_some() {
            let line = std::mem::take(&mut self.line);
            self.whole_line(line.strip_suffix(b"\n").unwrap_or(&line))?;
        }
        Ok(taken)
    }

    /// A line without its line feed; the carriage return before it may be missing, as most clients
    /// read it.
    fn whole_line(&mut self, line: &[u8]) -> Result<(), FramingError> {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.contains(&b'\r') {
            return Err(AMBIGUOUS);
        }
        match self.state {
            State::Head if line.is_empty() => self.state = self.body()?,
            State::Head => {
                let (name, value) = field(line).ok_or(AMBIGUOUS)?;
                self.head.length.read(name, value)?;
            }
            _ => {
                let (is_http_1_1, status) = status_line(line).ok_or(AMBIGUOUS)?;
                let to_head = self.head.to_head;
                self.head = Head { to_head, status, is_http_1_1, length: BodyLength::default() };
                self.state = State::Head;
            }
        }
        Ok(())
    }

    fn body(&self) -> Result<State, FramingError> {
        let body = self.head.length.body(self.head.is_http_1_1)?;
        Ok(match self.head.status {
            101 => State::Upgraded,
            100..200 => State::First,
            204 | 304 => State::Idle,
            _ if self.head.to_head => State::Idle,
            _ => match body.unwrap_or(Body::UntilClose) {
                Body::Length(0) => State::Idle,
                body => State::Body(body),
            },
        })
    }
}

/// Whether the version is HTTP/1.1, and the status.
fn status_line(line: &[u8]) -> Option<(bool, u16)> {
    let [minor @ (b'0' | b'1'), b' ', digits @ ..] = line.strip_prefix(b"HTTP/1.")? else {
        return None;
    };
    let (digits, rest) = digits.split_at_checked(3)?;
    let is_status = digits.iter().all(u8::is_ascii_digit) && matches!(rest, [] | [b' ', ..]);
    let status = std::str::from_utf8(digits).ok()?.parse().ok()?;
    is_status.then_some((*minor == b'1', status))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How much belongs to the answer of what is fed in pieces of one size; none when it is refused.
    fn fed_in(bytes: &[u8], piece: usize, to_head: bool) -> Option<usize> {
        let (mut framing, pending) = (ResponseFraming::default(), PendingResponse::default());
        pending.begin(to_head);
        let mut taken = 0;
        for piece in bytes.chunks(piece) {
            taken += framing.feed(piece, &pending).ok()?;
        }
        Some(taken)
    }

    fn fed(text: &str, to_head: bool) -> Option<usize> {
        let whole = fed_in(text.as_bytes(), text.len(), to_head);
        for piece in 1..text.len() {
            assert_eq!(fed_in(text.as_bytes(), piece, to_head), whole, "{text:?} by {piece}");
        }
        whole
    }

    #[test]
    fn an_answer_ends_where_its_head_says() {
        for answer in [
            "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc",
            "HTTP/1.1 200 OK\nContent-Length: 3\n\nabc",
            "HTTP/1.1 200\r\ntransfer-encoding: chunked\r\n\r\n1;a\r\nx\r\n0\r\nX: y\r\n\r\n",
            "HTTP/1.1 204 No\r\nContent-Length: 3\r\n\r\n",
            "HTTP/1.1 304 Not\r\n\r\n",
            "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
        ] {
            assert_eq!(fed(answer, false), Some(answer.len()), "{answer:?}");
            assert_eq!(fed(&format!("{answer}HTTP/1.1 200 OK"), false), Some(answer.len()));
        }
        let to_head = "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n";
        assert_eq!(fed(&format!("{to_head}abc"), true), Some(to_head.len()));
        for endless in ["HTTP/1.0 200 OK\r\n\r\nabc", "HTTP/1.1 101 Go\r\n\r\nabc"] {
            assert_eq!(fed(endless, false), Some(endless.len()));
        }
    }

    #[test]
    fn ambiguous_answers_are_refused() {
        for answer in [
            "\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
            "HTTP/1.1 20 OK\r\nContent-Length: 0\r\n\r\n",
            "HTTP/2.0 200 OK\r\nContent-Length: 0\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 3, 3\r\n\r\nabc",
            "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\nabc",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
            "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            "HTTP/1.1 200 OK\r\nX: a\r\n folded\r\n\r\n",
            "HTTP/1.1 200 OK\r\nX: a\rb\r\n\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5 \r\nhello\r\n0\r\n\r\n",
        ] {
            assert_eq!(fed(answer, false), None, "{answer:?}");
        }
    }
    #[test]
    fn a_status_line_has_a_version_and_three_digits() {
        // RFC 9112, sections 2.3 and 4.
        for (line, expected) in [
            ("HTTP/1.1 200 OK", Some((true, 200))),
            ("HTTP/1.1 200 ", Some((true, 200))),
            ("HTTP/1.1 200", Some((true, 200))),
            ("HTTP/1.0 999 a b", Some((false, 999))),
            ("HTTP/1.2 200 OK", None),
            ("HTTP/1.1  200 OK", None),
            ("HTTP/1.1\t200 OK", None),
            ("HTTP/1.1 20 OK", None),
            ("HTTP/1.1 2000 OK", None),
            ("HTTP/1.1 +20 OK", None),
            ("HTTP/1.1 2x0 OK", None),
            ("http/1.1 200 OK", None),
            (" HTTP/1.1 200 OK", None),
            ("HTTP/1.1 ", None),
            ("", None),
        ] {
            assert_eq!(status_line(line.as_bytes()), expected, "{line:?}");
        }
    }

    #[test]
    fn a_line_has_a_limit() {
        let line =
            |bytes: usize| format!("HTTP/1.1 204 No\r\nX: {}\r\n\r\n", "y".repeat(bytes - 5));
        let fed_in_halves = |text: &str| {
            let (mut framing, pending) = (ResponseFraming::default(), PendingResponse::default());
            pending.begin(false);
            let (first, second) = text.as_bytes().split_at(100);
            let first = framing.feed(first, &pending).is_ok();
            first && framing.feed(second, &pending).is_ok()
        };

        assert!(fed_in_halves(&line(MAX_LINE_BYTES)));
        assert!(!fed_in_halves(&line(MAX_LINE_BYTES + 1)));
    }

    #[test]
    fn one_answer_follows_each_request() {
        let (mut framing, pending) = (ResponseFraming::default(), PendingResponse::default());
        let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\na";

        assert_eq!(framing.feed(answer, &pending), Ok(0), "nothing was asked");
        for to_head in [false, true, false] {
            pending.begin(to_head);
            let length = answer.len() - usize::from(to_head);
            assert_eq!(framing.feed(answer, &pending), Ok(length));
        }
    }
}
