//! Heads of requests and answers; free of I/O.

use bytes::{Buf, Bytes, BytesMut};

use crate::http1::{Body, BodyLength, FramingError};

/// How long a head may be.
pub(super) const MAX_HEAD_BYTES: usize = 64 * 1024;
/// How many headers a head may have.
pub(super) const MAX_HEADERS: usize = 100;

/// Why a head is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum HeadError {
    #[error("the head of the message is malformed")]
    Malformed,
    #[error("the head has more than {MAX_HEADERS} headers")]
    TooMany,
    #[error("the head is longer than {MAX_HEAD_BYTES} bytes")]
    TooLong,
    #[error("a line does not end with carriage return and line feed")]
    BareLineEnd,
    #[error("the length of the body is ambiguous")]
    Framing,
}

impl From<FramingError> for HeadError {
    fn from(_: FramingError) -> Self {
        Self::Framing
    }
}

/// The head of a request.
#[derive(Debug)]
pub(super) struct RequestHead {
    pub is_head: bool,
    /// Whether sending it twice does what sending it once does.
    pub is_idempotent: bool,
    pub body: Body,
    /// Whether another request may follow.
    pub keep_alive: bool,
    pub upgrade: bool,
    /// Whether the protocol that it asks for is that of WebSockets.
    pub is_websocket: bool,
    pub target: String,
    pub host: Option<Vec<u8>>,
}

/// The head of an answer.
#[derive(Debug)]
pub(super) struct ResponseHead {
    pub length: usize,
    pub status: u16,
    pub body: Body,
    pub keep_alive: bool,
}

/// Takes the head of a request out of a buffer, and gives its bytes with it; none while it is
/// incomplete.
///
/// One empty line before it is no part of it, and is taken as well (RFC 9112, section 2.2).
pub(super) fn take_request(
    buffer: &mut BytesMut,
) -> Result<Option<(RequestHead, Bytes)>, HeadError> {
    let bytes = match buffer.as_ref() {
        b"" | b"\r" => return Ok(None),
        [b'\r', b'\n', bytes @ ..] => bytes,
        bytes => bytes,
    };
    let skipped = buffer.len() - bytes.len();
    let Some((head, length)) = request(bytes)? else { return Ok(None) };
    buffer.advance(skipped);
    Ok(Some((head, buffer.split_to(length).freeze())))
}

/// Reads the head of a request, and how long it is; none while it is incomplete.
fn request(bytes: &[u8]) -> Result<Option<(RequestHead, usize)>, HeadError> {
    check_start(bytes)?;
    let mut header_buffer = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut parsed = httparse::Request::new(&mut header_buffer);
    let length = match parsed.parse(bytes).map_err(head_error)? {
        httparse::Status::Complete(length) => length,
        httparse::Status::Partial => return incomplete(bytes),
    };
    check_line_ends(bytes.get(..length).unwrap_or(bytes))?;
    let method = parsed.method.unwrap_or_default();
    let fields = HeadFields::read(parsed.headers)?;
    let newer = parsed.version == Some(1);
    let body = fields.length.body(newer)?.unwrap_or(Body::NONE);
    let head = RequestHead {
        is_head: method == "HEAD",
        is_idempotent: matches!(method, "GET" | "HEAD" | "OPTIONS" | "PUT" | "DELETE" | "TRACE"),
        body,
        keep_alive: !fields.close && (newer || fields.keep_alive),
        upgrade: fields.upgrade,
        is_websocket: fields.upgrade && fields.websocket,
        target: parsed.path.unwrap_or_default().to_owned(),
        host: fields.host,
    };
    Ok(Some((head, length)))
}

/// Reads the head of an answer to a request; none while it is incomplete.
pub(super) fn response(bytes: &[u8], to_head: bool) -> Result<Option<ResponseHead>, HeadError> {
    check_start(bytes)?;
    let mut header_buffer = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut parsed = httparse::Response::new(&mut header_buffer);
    let length = match parsed.parse(bytes).map_err(head_error)? {
        httparse::Status::Complete(length) => length,
        httparse::Status::Partial => return incomplete(bytes),
    };
    let status = parsed.code.unwrap_or_default();
    let fields = HeadFields::read(parsed.headers)?;
    let announced = fields.length.body(parsed.version == Some(1))?;
    let bodiless = to_head || status < 200 || matches!(status, 204 | 304);
    let body = if bodiless { Body::NONE } else { announced.unwrap_or(Body::UntilClose) };
    let keep_alive = !fields.close && (parsed.version == Some(1) || fields.keep_alive);
    Ok(Some(ResponseHead {
        length,
        status,
        keep_alive: keep_alive && body != Body::UntilClose,
        body,
    }))
}

fn head_error(error: httparse::Error) -> HeadError {
    match error {
        httparse::Error::TooManyHeaders => HeadError::TooMany,
        _ => HeadError::Malformed,
    }
}

fn incomplete<T>(bytes: &[u8]) -> Result<Option<T>, HeadError> {
    if bytes.len() < MAX_HEAD_BYTES { Ok(None) } else { Err(HeadError::TooLong) }
}

/// The parser would skip empty lines, any number of them, and take them for a part of the head.
fn check_start(bytes: &[u8]) -> Result<(), HeadError> {
    match bytes.first() {
        Some(b'\r' | b'\n') => Err(HeadError::Malformed),
        _ => Ok(()),
    }
}

/// The parser takes a bare line feed for a line end; others may not, and then see another message.
fn check_line_ends(head: &[u8]) -> Result<(), HeadError> {
    let bare = head.iter().enumerate().any(|(at, byte)| {
        let before = at.checked_sub(1).and_then(|at| head.get(at));
        *byte == b'\n' && before != Some(&b'\r')
            || *byte == b'\r' && head.get(at + 1) != Some(&b'\n')
    });
    if bare { Err(HeadError::BareLineEnd) } else { Ok(()) }
}

/// What the headers say about framing and connection.
#[derive(Default)]
struct HeadFields {
    length: BodyLength,
    close: bool,
    keep_alive: bool,
    upgrade: bool,
    websocket: bool,
    host: Option<Vec<u8>>,
}

impl HeadFields {
    fn read(headers: &[httparse::Header<'_>]) -> Result<Self, HeadError> {
        let mut fields = Self::default();
        let (mut upgrades, mut hosts) = (false, 0);
        for header in headers {
            match header.name.len() {
                4 if header.name.eq_ignore_ascii_case("host") => {
                    hosts += 1;
                    fields.host = Some(header.value.to_vec());
                }
                7 if header.name.eq_ignore_ascii_case("upgrade") => {
                    upgrades = true;
                    fields.websocket |= header.value.eq_ignore_ascii_case(b"websocket");
                }
                10 if header.name.eq_ignore_ascii_case("connection") => {
                    fields.read_connection(header.value);
                }
                14 | 17 => fields.length.read(header.name.as_bytes(), header.value)?,
                _ => {}
            }
        }
        if hosts > 1 {
            return Err(HeadError::Malformed);
        }
        fields.upgrade &= upgrades;
        Ok(fields)
    }

    fn read_connection(&mut self, value: &[u8]) {
        for option in value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii) {
            self.close |= option.eq_ignore_ascii_case(b"close");
            self.keep_alive |= option.eq_ignore_ascii_case(b"keep-alive");
            self.upgrade |= option.eq_ignore_ascii_case(b"upgrade");
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn refusal(head: &str) -> HeadError {
        request(head.as_bytes()).unwrap_err()
    }

    #[test]
    fn a_request_is_read_when_its_head_is_complete() {
        let bytes = b"POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc";

        assert!(request(&bytes[..40]).unwrap().is_none());
        let (head, length) = request(bytes).unwrap().unwrap();
        assert_eq!((length, head.body, head.keep_alive), (48, Body::Length(3), true));
        assert_eq!((head.target.as_str(), head.host.as_deref()), ("/a", Some(&b"x"[..])));
    }

    #[test]
    fn ambiguous_framing_is_refused() {
        for headers in [
            "Content-Length: 3\r\nTransfer-Encoding: chunked",
            "Transfer-Encoding: chunked\r\nContent-Length: 3",
            "Content-Length: 3\r\nContent-Length: 3",
            "Content-Length: +3",
            "Content-Length: 3, 3",
            "Content-Length: 99999999999999999999",
            "Content-Length: ",
            "Transfer-Encoding: gzip, chunked",
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
            "Transfer-Encoding: xchunked",
        ] {
            let head = format!("POST / HTTP/1.1\r\nHost: x\r\n{headers}\r\n\r\n");
            assert_eq!(refusal(&head), HeadError::Framing, "{headers}");
        }
        assert_eq!(
            refusal("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n"),
            HeadError::Framing
        );
    }

    #[test]
    fn odd_lines_are_refused() {
        for head in [
            "GET / HTTP/1.1\r\nHost : x\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: x\r\n folded\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n",
            "GET / HTTP/1.1\r\nA: b\0c\r\n\r\n",
            "GET  / HTTP/1.1\r\n\r\n",
        ] {
            assert_eq!(refusal(head), HeadError::Malformed, "{head:?}");
        }
        assert_eq!(refusal("GET / HTTP/1.1\nHost: x\r\n\r\n"), HeadError::BareLineEnd);
        assert_eq!(
            refusal(&format!("GET / HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(101))),
            HeadError::TooMany
        );
        assert_eq!(refusal(&format!("GET /{}", "a".repeat(MAX_HEAD_BYTES))), HeadError::TooLong);
    }

    #[test]
    fn some_answers_have_no_body() {
        let body = |status: u16, to_head| {
            let head = format!("HTTP/1.1 {status} X\r\nContent-Length: 5\r\n\r\n");
            response(head.as_bytes(), to_head).unwrap().unwrap().body
        };

        assert_eq!(body(200, false), Body::Length(5));
        assert_eq!(body(200, true), Body::NONE);
        assert_eq!(body(304, false), Body::NONE);
        assert_eq!(body(100, false), Body::NONE);
    }

    #[test]
    fn an_answer_without_a_length_lasts_until_the_close() {
        let head = response(b"HTTP/1.1 200 OK\r\n\r\n", false).unwrap().unwrap();

        assert_eq!((head.body, head.keep_alive), (Body::UntilClose, false));
    }

    #[test]
    fn one_empty_line_before_a_request_is_no_part_of_it() {
        let request = "GET /a HTTP/1.1\r\nHost: x\r\n\r\n";
        let mut buffer = BytesMut::from(format!("\r\n{request}\r\n{request}abc").as_bytes());

        for _ in 0..2 {
            let (head, bytes) = take_request(&mut buffer).unwrap().unwrap();
            assert_eq!((head.target.as_str(), &bytes[..]), ("/a", request.as_bytes()));
        }
        assert_eq!(buffer, "abc");
        for part in ["", "\r", "\r\n", "\r\nGET /"] {
            assert!(take_request(&mut BytesMut::from(part)).unwrap().is_none(), "{part:?}");
        }
        for before in ["\r\n\r\n", "\n", "\r\n\n", "\r"] {
            let mut buffer = BytesMut::from(format!("{before}{request}").as_bytes());
            assert_eq!(take_request(&mut buffer).unwrap_err(), HeadError::Malformed, "{before:?}");
        }
    }
}
