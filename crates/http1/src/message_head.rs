//! Heads of requests and responses, read where they lie; free of I/O.
//!
//! The one policy of what is refused: a line ends with both of its bytes (RFC 9112, section 2.2), no
//! line goes on in the next (section 5.2), a name is a token with its colon behind it (section 5.1), and
//! the fields say in one way alone where the body ends (section 6.3).

use std::mem::MaybeUninit;

use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri};

use super::length::parse_field;
use super::{Body, BodyLength, ConnectionOptions, FramingError};

/// How long the head of a visitor's request may be.
pub const MAX_HEAD_BYTES: usize = 64 << 10;
/// How many fields it may have.
pub const MAX_HEAD_FIELDS: usize = 100;
/// How long a head may be between a gateway and what is behind it, which may add fields.
pub const MAX_RELAYED_HEAD_BYTES: usize = MAX_HEAD_BYTES + (16 << 10);
/// How many fields the head of a request may have, and for how many there is room without an allocation.
pub(super) const MAX_READ_FIELDS: usize = 128;
/// How many fields the head of a response may have that goes on to others.
const MAX_RESPONSE_FIELDS: usize = 1000;
/// The problem of a field whose name is not a token.
pub(super) const BAD_FIELD_NAME: &str = "a field's name holds what no name may";

/// How large a head may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeadLimits {
    /// Its first line and the empty one at its end count.
    pub bytes: usize,
    /// At most `MAX_READ_FIELDS` in a request.
    pub fields: usize,
}

impl Default for HeadLimits {
    /// What a visitor may send.
    fn default() -> Self {
        Self { bytes: MAX_HEAD_BYTES, fields: MAX_HEAD_FIELDS }
    }
}

impl HeadLimits {
    /// What goes between a gateway and what is behind it.
    const RELAYED: Self = Self { bytes: MAX_RELAYED_HEAD_BYTES, fields: MAX_READ_FIELDS };
    /// The limits of responses that a gateway or an agent passes on.
    pub(super) const RESPONSE: Self =
        Self { bytes: MAX_RELAYED_HEAD_BYTES, fields: MAX_RESPONSE_FIELDS };

    /// What a client reads: `bytes`, with as many fields as there is room for.
    pub const fn for_client(bytes: usize) -> Self {
        Self { bytes, fields: MAX_READ_FIELDS }
    }
}

/// A field of a head.
pub type HeadField<'b> = httparse::Header<'b>;

/// Why a head is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HeadError {
    /// It is no head of HTTP/1, for this reason.
    #[error("the head of the message is malformed")]
    Malformed(&'static str),
    /// It has too many fields.
    #[error("the head has too many headers")]
    TooMany,
    /// It does not end.
    #[error("the head is longer than {MAX_RELAYED_HEAD_BYTES} bytes")]
    TooLong,
    /// A line ends as others may not see it end.
    #[error("a line does not end with carriage return and line feed")]
    BareLineEnd,
    /// It says in more than one way where the body ends.
    #[error("the length of the body is ambiguous")]
    Framing,
    /// The body behind it begins with a chunk that is broken.
    #[error("the framing of the body is ambiguous")]
    BodyBeginning,
    /// The interim responses before the head are too long.
    #[error("it sent too many interim responses")]
    LongInterim,
    /// The response switches to another protocol, which the request did not ask for.
    #[error("it switched protocols without being asked")]
    Switched,
    /// The response switches to a protocol that no request may ask for.
    #[error("it switched to a protocol that it was not asked for")]
    ImproperSwitch,
}

impl From<FramingError> for HeadError {
    fn from(_: FramingError) -> Self {
        Self::Framing
    }
}

impl From<httparse::Error> for HeadError {
    fn from(error: httparse::Error) -> Self {
        match error {
            httparse::Error::TooManyHeaders => Self::TooMany,
            httparse::Error::HeaderName => Self::Malformed(BAD_FIELD_NAME),
            httparse::Error::HeaderValue => {
                Self::Malformed("a field's value holds what no value may")
            }
            httparse::Error::NewLine => Self::Malformed("a line does not end as it should"),
            httparse::Error::Status => Self::Malformed("its status is not a number"),
            httparse::Error::Version => Self::Malformed("it names no version of HTTP/1"),
            httparse::Error::Token => Self::Malformed("its first line holds what none may"),
        }
    }
}

/// The head of a request.
#[derive(Debug)]
pub struct RequestHead<'b, 'f> {
    /// All of its bytes.
    pub bytes: &'b [u8],
    pub method: &'b str,
    pub target: &'b str,
    /// Whether the version is HTTP/1.1; else it is HTTP/1.0.
    pub is_http_1_1: bool,
    pub fields: &'f [HeadField<'b>],
    pub body: Body,
    /// The options of the connection that the head names.
    pub options: ConnectionOptions,
}

/// The head of a response.
#[derive(Debug)]
pub struct ResponseHead<'b, 'f> {
    /// All of its bytes.
    pub bytes: &'b [u8],
    pub status: u16,
    pub reason: &'b str,
    /// Whether the version is HTTP/1.1; else it is HTTP/1.0.
    pub is_http_1_1: bool,
    pub fields: &'f [HeadField<'b>],
    pub body: Body,
    /// True if another response may follow on the connection (RFC 9112, section 9.3).
    pub keeps_alive: bool,
}

/// Reads the head that some bytes begin with; none while a part is missing.
///
/// # Errors
/// When it is not as it should be.
pub fn read_request<T>(
    bytes: &[u8],
    read: impl FnOnce(&RequestHead<'_, '_>) -> T,
) -> Result<Option<T>, HeadError> {
    read_request_within(HeadLimits::RELAYED, bytes, read)
}

/// As `read_request`, with other limits.
///
/// # Errors
/// As there.
pub fn read_request_within<T>(
    limits: HeadLimits,
    bytes: &[u8],
    read: impl FnOnce(&RequestHead<'_, '_>) -> T,
) -> Result<Option<T>, HeadError> {
    check_start(bytes)?;
    let mut fields = [const { MaybeUninit::uninit() }; MAX_READ_FIELDS];
    let fields = fields.get_mut(..limits.fields).unwrap_or_default();
    let mut parsed = httparse::Request::new(&mut []);
    let bytes = match parsed.parse_with_uninit_headers(bytes, fields)? {
        httparse::Status::Complete(length) => bytes.get(..length).unwrap_or(bytes),
        httparse::Status::Partial => return incomplete_head(bytes, limits),
    };
    check_length(bytes, limits)?;
    check_line_ends(bytes)?;
    let is_http_1_1 = parsed.version == Some(1);
    let framing = HeadFraming::from_fields(parsed.headers)?;
    let body = framing.length.to_body(is_http_1_1)?.unwrap_or(Body::NONE);
    let (method, target) = (parsed.method.unwrap_or_default(), parsed.path.unwrap_or_default());
    let fields = &*parsed.headers;
    let options = framing.options;
    Ok(Some(read(&RequestHead { bytes, method, target, is_http_1_1, fields, body, options })))
}

/// Reads the head of a response that some bytes begin with; none while a part is missing. The response
/// `to_head` has no body, whatever it says.
///
/// # Errors
/// When it is not as it should be; a line may end with a line feed alone, as most readers take it.
pub fn read_response<T>(
    bytes: &[u8],
    to_head: bool,
    read: impl FnOnce(&ResponseHead<'_, '_>) -> T,
) -> Result<Option<T>, HeadError> {
    read_response_within(HeadLimits::RELAYED, bytes, to_head, read)
}

/// As `read_response`, with other limits.
///
/// # Errors
/// As there.
pub fn read_response_within<T>(
    limits: HeadLimits,
    bytes: &[u8],
    to_head: bool,
    read: impl FnOnce(&ResponseHead<'_, '_>) -> T,
) -> Result<Option<T>, HeadError> {
    check_start(bytes)?;
    let mut fields = [const { MaybeUninit::uninit() }; MAX_READ_FIELDS];
    let mut more;
    let room = limits.fields.min(MAX_READ_FIELDS);
    let fields = fields.get_mut(..room).unwrap_or_default();
    let mut parsed = httparse::Response::new(&mut []);
    let config = httparse::ParserConfig::default();
    let mut outcome = config.parse_response_with_uninit_headers(&mut parsed, bytes, fields);
    if outcome == Err(httparse::Error::TooManyHeaders) && limits.fields > room {
        more = Box::new_uninit_slice(limits.fields);
        parsed = httparse::Response::new(&mut []);
        outcome = config.parse_response_with_uninit_headers(&mut parsed, bytes, &mut more);
    }
    let bytes = match outcome? {
        httparse::Status::Complete(length) => bytes.get(..length).unwrap_or(bytes),
        httparse::Status::Partial => return incomplete_head(bytes, limits),
    };
    check_length(bytes, limits)?;
    let is_http_1_1 = parsed.version == Some(1);
    let status = parsed.code.filter(|status| *status >= 100);
    let status = status.ok_or(HeadError::Malformed("its status is below 100"))?;
    let framing = HeadFraming::from_fields(parsed.headers)?;
    let announced = framing.length.to_body(is_http_1_1)?;
    let is_bodiless = to_head || matches!(status, 100..200 | 204 | 304);
    let body = if is_bodiless { Body::NONE } else { announced.unwrap_or(Body::UntilClose) };
    let keeps_alive = framing.options.is_persistent(is_http_1_1) && body != Body::UntilClose;
    let (reason, fields) = (parsed.reason.unwrap_or_default(), &*parsed.headers);
    let head = ResponseHead { bytes, status, reason, is_http_1_1, fields, body, keeps_alive };
    Ok(Some(read(&head)))
}

/// Reads fields that end with an empty line, such as those of a trailer; none where they are malformed.
pub fn read_fields<T>(bytes: &[u8], read: impl FnOnce(&[HeadField<'_>]) -> T) -> Option<T> {
    let mut fields = [httparse::EMPTY_HEADER; MAX_HEAD_FIELDS];
    match httparse::parse_headers(bytes, &mut fields) {
        Ok(httparse::Status::Complete((_, fields))) => Some(read(fields)),
        _ => None,
    }
}

/// Whether bytes of which so many were searched may hold the end of a head.
pub fn may_end_head(bytes: &[u8], searched: usize) -> bool {
    searched == 0 || has_head_end(bytes, searched)
}

/// Returns the length of the head that some bytes begin with, if its end is there.
pub(super) fn find_head_end(bytes: &[u8]) -> Option<usize> {
    let ends = |line: &[u8]| line == b"\n" || line == b"\r\n";
    let mut length = 0;
    for line in bytes.split_inclusive(|byte| *byte == b'\n') {
        length += line.len();
        if ends(line) {
            return Some(length);
        }
    }
    None
}

/// Whether there is an empty line behind the first one, where so many bytes were searched.
pub(super) fn has_head_end(bytes: &[u8], searched: usize) -> bool {
    let unseen = bytes.get(searched.saturating_sub(3)..).unwrap_or_default();
    unseen.windows(2).any(|pair| pair == b"\n\n")
        || unseen.windows(3).any(|three| three == b"\n\r\n")
}

/// A line of a head that was read already, with its end.
#[derive(Debug, Clone, Copy)]
pub struct HeadLine<'h>(pub &'h [u8]);

impl<'h> HeadLine<'h> {
    /// The name of the field; that of the first line is none of a field.
    pub fn name(self) -> &'h [u8] {
        self.0.split(|byte| *byte == b':').next().unwrap_or_default()
    }

    /// The value of the field.
    pub fn value(self) -> &'h [u8] {
        let value =
            self.0.iter().position(|byte| *byte == b':').and_then(|at| self.0.get(at + 1..));
        value.unwrap_or_default().trim_ascii()
    }

    /// Whether it is a field of this name.
    pub fn has_name(self, name: impl AsRef<[u8]>) -> bool {
        self.name().eq_ignore_ascii_case(name.as_ref())
    }
}

/// The lines of a head that was read already, but for the empty one that ends it.
pub fn head_lines(head: &[u8]) -> impl Iterator<Item = HeadLine<'_>> {
    let lines = head.split_inclusive(|byte| *byte == b'\n');
    lines.take_while(|line| !matches!(line, [b'\r', b'\n'] | [b'\n'])).map(HeadLine)
}

/// What stands behind the first line of a head.
pub fn after_first_line(head: &[u8]) -> &[u8] {
    let end = head.iter().position(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    head.get(end..).unwrap_or_default()
}

/// The fields in the lines of a head that was read already, names and values.
pub fn fields_in(lines: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    let lines = lines.split(|byte| *byte == b'\n');
    lines.map(|line| line.strip_suffix(b"\r").unwrap_or(line)).filter_map(parse_field)
}

/// How large the head of a request was that others have read, in bytes.
pub fn head_size(method: &Method, target: &Uri, fields: &HeaderMap) -> usize {
    let first_line = method.as_str().len() + "  HTTP/1.1\r\n\r\n".len();
    first_line + size_of(target, fields, ": \r\n".len())
}

/// How large the fields of a request are as HTTP/2 counts them (RFC 9113, section 10.5.1).
pub fn header_list_size(target: &Uri, fields: &HeaderMap) -> usize {
    size_of(target, fields, 32)
}

/// How large target and fields are, each field with so many bytes besides its name and its value.
fn size_of(target: &Uri, fields: &HeaderMap, bytes_around: usize) -> usize {
    let host = target.authority().map_or(0, |host| host.as_str().len());
    let path = target.path_and_query().map_or(0, |path| path.as_str().len());
    let field_size = |(name, value): (&HeaderName, &HeaderValue)| {
        name.as_str().len() + value.len() + bytes_around
    };
    host + path + fields.iter().map(field_size).sum::<usize>()
}

fn incomplete_head<T>(bytes: &[u8], limits: HeadLimits) -> Result<Option<T>, HeadError> {
    if bytes.len() < limits.bytes { Ok(None) } else { Err(HeadError::TooLong) }
}

fn check_length(head: &[u8], limits: HeadLimits) -> Result<(), HeadError> {
    if head.len() <= limits.bytes { Ok(()) } else { Err(HeadError::TooLong) }
}

/// The parser would skip empty lines, any number of them, and take them for a part of the head.
fn check_start(bytes: &[u8]) -> Result<(), HeadError> {
    match bytes.first() {
        Some(b'\r' | b'\n') => Err(HeadError::Malformed("it begins with an empty line")),
        _ => Ok(()),
    }
}

/// The parser takes a bare line feed for a line end; others may not, and then see another message.
fn check_line_ends(head: &[u8]) -> Result<(), HeadError> {
    let mut rest = head;
    while let Some(at) = rest.iter().position(|byte| matches!(byte, b'\r' | b'\n')) {
        rest = rest
            .get(at..)
            .and_then(|rest| rest.strip_prefix(b"\r\n"))
            .ok_or(HeadError::BareLineEnd)?;
    }
    Ok(())
}

/// The length of the body and the options of the connection, from one look at the fields.
#[derive(Default)]
struct HeadFraming {
    length: BodyLength,
    options: ConnectionOptions,
}

impl HeadFraming {
    fn from_fields(fields: &[HeadField<'_>]) -> Result<Self, FramingError> {
        let mut framing = Self::default();
        for field in fields {
            match field.name.len() {
                10 if field.name.eq_ignore_ascii_case("connection") => {
                    framing.options.read_value(field.value);
                }
                _ => framing.length.read_field(field.name.as_bytes(), field.value)?,
            }
        }
        Ok(framing)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn refusal(head: &str) -> HeadError {
        read_request_within(HeadLimits::default(), head.as_bytes(), |_| ()).unwrap_err()
    }

    #[test]
    fn a_request_is_read_when_its_head_is_complete() {
        let bytes = b"POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc";

        assert!(read_request(&bytes[..40], |_| ()).unwrap().is_none());
        let seen = read_request(bytes, |head| {
            assert_eq!((head.method, head.target, head.is_http_1_1), ("POST", "/a", true));
            (head.bytes.len(), head.body.clone(), head.fields.len())
        });
        assert_eq!(seen, Ok(Some((48, Body::Length(3), 2))));
    }

    #[test]
    fn ambiguous_framing_is_refused() {
        for fields in [
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
            let head = format!("POST / HTTP/1.1\r\nHost: x\r\n{fields}\r\n\r\n");
            assert_eq!(refusal(&head), HeadError::Framing, "{fields}");
            let head = format!("HTTP/1.1 200 OK\r\n{fields}\r\n\r\n");
            let response = read_response(head.as_bytes(), false, |_| ());
            assert_eq!(response, Err(HeadError::Framing), "{fields}");
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
            "GET / HTTP/1.1\r\nA: b\0c\r\n\r\n",
            "GET  / HTTP/1.1\r\n\r\n",
            "\r\nGET / HTTP/1.1\r\n\r\n",
        ] {
            assert!(matches!(refusal(head), HeadError::Malformed(_)), "{head:?}");
        }
        for head in ["GET / HTTP/1.1\nHost: x\r\n\r\n", "GET / HTTP/1.1\r\nHost: x\r\n\n"] {
            assert_eq!(refusal(head), HeadError::BareLineEnd, "{head:?}");
        }
        assert_eq!(
            refusal(&format!("GET / HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(101))),
            HeadError::TooMany
        );
        assert_eq!(refusal(&format!("GET /{}", "a".repeat(MAX_HEAD_BYTES))), HeadError::TooLong);
    }

    #[test]
    fn some_responses_have_no_body() {
        let body = |status: u16, to_head| {
            let head = format!("HTTP/1.1 {status} X\r\nContent-Length: 5\r\n\r\n");
            read_response(head.as_bytes(), to_head, |head| head.body.clone()).unwrap().unwrap()
        };

        assert_eq!(body(200, false), Body::Length(5));
        assert_eq!(body(200, true), Body::NONE);
        assert_eq!(body(304, false), Body::NONE);
        assert_eq!(body(100, false), Body::NONE);
        let unframed = read_response(b"HTTP/1.1 200 OK\r\n\r\n", false, |head| head.body.clone());
        assert_eq!(unframed, Ok(Some(Body::UntilClose)));
        assert_eq!(
            read_response(b"HTTP/1.1 099 X\r\n\r\n", false, |_| ()),
            Err(HeadError::Malformed("its status is below 100"))
        );
    }

    #[test]
    fn a_response_is_read_within_the_limits_of_its_reader() {
        let read = |limits, head: &str| {
            read_response_within(limits, head.as_bytes(), false, |head| head.fields.len())
        };
        let head = |fields| format!("HTTP/1.1 204 X\r\n{}\r\n", "a: b\r\n".repeat(fields));
        let large = HeadLimits::for_client(1 << 20);

        assert_eq!(read(large, &head(MAX_READ_FIELDS)), Ok(Some(MAX_READ_FIELDS)));
        assert_eq!(read(large, &head(MAX_READ_FIELDS + 1)), Err(HeadError::TooMany));
        assert_eq!(read(HeadLimits::default(), &head(101)), Err(HeadError::TooMany));
        let (whole, limits) = (head(1), |bytes| HeadLimits { bytes, fields: 1 });
        assert_eq!(read(limits(whole.len()), &whole), Ok(Some(1)));
        assert_eq!(read(limits(whole.len() - 1), &whole), Err(HeadError::TooLong));
        assert_eq!(read(limits(9), &whole[..8]), Ok(None));
        assert_eq!(read(limits(8), &whole[..8]), Err(HeadError::TooLong));
    }

    #[test]
    fn a_head_that_was_read_is_taken_apart_by_lines() {
        for end in ["\r\n", "\n"] {
            let head = ["HTTP/1.1 200 a: b", "X-One:  1 ", "x-two:", "", "X: y"].join(end);
            let head = head.as_bytes();
            let names: Vec<_> = head_lines(head).skip(1).map(HeadLine::name).collect();
            assert_eq!(names, [&b"X-One"[..], b"x-two"], "{end:?}");
            assert!(head_lines(head).nth(2).unwrap().has_name("X-Two"));
            assert_eq!(
                head_lines(head).next().unwrap().0,
                format!("HTTP/1.1 200 a: b{end}").as_bytes()
            );
            let fields: Vec<_> = fields_in(after_first_line(head)).take(2).collect();
            assert_eq!(fields, [(&b"X-One"[..], &b"1"[..]), (b"x-two", b"")], "{end:?}");
        }
        assert_eq!(after_first_line(b"no line"), b"no line");
    }

    #[test]
    fn the_end_of_a_head_is_found_wherever_it_is_cut() {
        for head in ["GET / HTTP/1.1\r\nA: b\r\n\r\n", "HTTP/1.1 200 OK\nA: b\n\n"] {
            for cut in 1..head.len() {
                assert!(may_end_head(head.as_bytes(), cut), "{cut}");
            }
            assert!(!may_end_head(&head.as_bytes()[..head.len() - 1], 5));
        }
    }
}
