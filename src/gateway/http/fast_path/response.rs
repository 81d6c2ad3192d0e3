//! Heads of answers on the fast path; free of I/O.

use chrono::Utc;

use crate::gateway::http::error_response::{self, ERROR_CODE, ErrorResponse};
use crate::http1::{Body, BodyLength, FramingError};

/// How many headers an answer may have.
const MAX_HEADERS: usize = 100;
/// How long a head may be.
const MAX_HEAD_BYTES: usize = 64 << 10;

/// The head of an answer, read.
#[derive(Debug)]
pub(crate) struct FastPathResponse {
    /// How many bytes it has.
    pub length: usize,
    pub status: u16,
    pub body: Body,
    /// Whether the connection may carry another request.
    pub keep_alive: bool,
}

/// An answer that cannot be understood, or in two ways.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MalformedResponse;

impl From<FramingError> for MalformedResponse {
    fn from(_: FramingError) -> Self {
        Self
    }
}

/// What an answer turns into on its way.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ResponseOptions<'t> {
    /// The answer is to a HEAD.
    pub to_head: bool,
    /// The visitor's connection closes afterwards.
    pub closes: bool,
    /// What stands before the number of a code.
    pub code_prefix: &'t str,
}

/// Reads the head of an answer and writes it as the visitor gets it; none while a part is missing.
///
/// A provisional answer is read, and not written.
pub(crate) fn read(
    bytes: &[u8],
    options: ResponseOptions<'_>,
    out: &mut Vec<u8>,
) -> Result<Option<FastPathResponse>, MalformedResponse> {
    // The parser would skip empty lines, which belong to no answer.
    if matches!(bytes.first(), Some(b'\r' | b'\n')) {
        return Err(MalformedResponse);
    }
    let mut room = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut parsed = httparse::Response::new(&mut room);
    let length = match parsed.parse(bytes) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) if bytes.len() < MAX_HEAD_BYTES => return Ok(None),
        _ => return Err(MalformedResponse),
    };
    let (status, version) =
        (parsed.code.ok_or(MalformedResponse)?, parsed.version.ok_or(MalformedResponse)?);
    let framing = ResponseFraming::read(parsed.headers)?;
    let keep_alive = !framing.closes && version == 1;
    if status < 200 {
        return Ok(Some(FastPathResponse { length, status, body: Body::NONE, keep_alive }));
    }
    let announced = framing.length.body(version == 1)?;
    let bodiless = options.to_head || matches!(status, 204 | 304);
    let body = if bodiless { Body::NONE } else { announced.unwrap_or(Body::UntilClose) };
    write_status_line(status, parsed.reason.unwrap_or_default(), out);
    let has_body = body != Body::NONE;
    for header in parsed.headers.iter().filter(|header| !framing.drops(header, status, has_body)) {
        write_header(header.name, header.value, out);
    }
    if !framing.dated {
        write_date(out);
    }
    if status == 502 && framing.unreachable {
        write_code(error_response::UNREACHABLE.number, options.code_prefix, out);
    }
    if body == Body::UntilClose {
        write_header("transfer-encoding", b"chunked", out);
    }
    write_end(options.closes, out);
    let keep_alive = keep_alive && body != Body::UntilClose;
    Ok(Some(FastPathResponse { length, status, body, keep_alive }))
}

/// What the headers say about framing and connection.
#[derive(Default)]
struct ResponseFraming<'h> {
    length: BodyLength,
    closes: bool,
    dated: bool,
    /// The headers that `Connection` names.
    identity: Vec<&'h [u8]>,
    unreachable: bool,
}

impl<'h> ResponseFraming<'h> {
    fn read(headers: &[httparse::Header<'h>]) -> Result<Self, MalformedResponse> {
        let mut framing = Self::default();
        for header in headers {
            let is = |name: &str| header.name.eq_ignore_ascii_case(name);
            match header.name.len() {
                4 if is("date") => framing.dated = true,
                10 if is("connection") => framing.connection(header.value),
                16 if is(ERROR_CODE.as_str()) => {
                    framing.unreachable = header.value.ends_with(b"8012")
                }
                14 | 17 => framing.length.read(header.name.as_bytes(), header.value)?,
                _ => {}
            }
        }
        Ok(framing)
    }

    fn connection(&mut self, value: &'h [u8]) {
        for token in value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii) {
            if token.eq_ignore_ascii_case(b"close") {
                self.closes = true;
            } else if !token.eq_ignore_ascii_case(b"keep-alive") {
                self.identity.push(token);
            }
        }
    }

    /// Whether a header does not go on: it concerns one connection, or is for the service to say.
    fn drops(&self, header: &httparse::Header<'_>, status: u16, has_body: bool) -> bool {
        let is = |name: &str| header.name.eq_ignore_ascii_case(name);
        let hop = match header.name.len() {
            2 => is("te"),
            7 => is("upgrade"),
            10 => is("connection") || is("keep-alive"),
            16 => is("proxy-connection") || is(ERROR_CODE.as_str()),
            18 => is("proxy-authenticate"),
            _ => false,
        };
        if is("content-length") {
            return status == 204;
        }
        if is("transfer-encoding") {
            return !has_body;
        }
        hop || self.identity.iter().any(|name| header.name.as_bytes().eq_ignore_ascii_case(name))
    }
}

/// Writes an answer of the service itself.
pub(crate) fn write_error(error: ErrorResponse, options: ResponseOptions<'_>, out: &mut Vec<u8>) {
    let response = error.into_text(options.code_prefix);
    let reason = http::StatusCode::from_u16(error.status).ok();
    write_status_line(
        error.status,
        reason.and_then(|it| it.canonical_reason()).unwrap_or_default(),
        out,
    );
    write_header("content-type", b"text/plain; charset=utf-8", out);
    write_code(error.number, options.code_prefix, out);
    write_header("content-length", response.len().to_string().as_bytes(), out);
    write_date(out);
    write_end(options.closes, out);
    if !options.to_head {
        out.extend_from_slice(response.as_bytes());
    }
}

fn write_status_line(status: u16, reason: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(b"HTTP/1.1 ");
    out.extend([status / 100, status / 10 % 10, status % 10].map(|digit| b'0' + digit as u8));
    out.push(b' ');
    out.extend_from_slice(reason.as_bytes());
    out.extend_from_slice(b"\r\n");
}

fn write_header(name: &str, value: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

fn write_code(number: Option<u16>, prefix: &str, out: &mut Vec<u8>) {
    if let Some(number) = number {
        write_header(ERROR_CODE.as_str(), format!("{prefix}{number}").as_bytes(), out);
    }
}

fn write_date(out: &mut Vec<u8>) {
    let now = Utc::now().format("%a, %d %b %Y %H:%M:%S GMT");
    write_header("date", now.to_string().as_bytes(), out);
}

fn write_end(closes: bool, out: &mut Vec<u8>) {
    if closes {
        write_header("connection", b"close", out);
    }
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const TERMS: ResponseOptions<'_> =
        ResponseOptions { to_head: false, closes: false, code_prefix: "ERR_X_" };

    fn passed(head: &str, options: ResponseOptions<'_>) -> (String, FastPathResponse) {
        let mut out = Vec::new();
        let head = read(head.as_bytes(), options, &mut out).unwrap().unwrap();
        (String::from_utf8(out).unwrap(), head)
    }

    #[test]
    fn an_answer_goes_on_as_it_was_written() {
        let answer = "HTTP/1.1 299 So So\r\nDATE: today\r\nX-Odd: a\r\nx-odd: b\r\n\
                      Content-Length: 3\r\n";

        let (out, head) = passed(&format!("{answer}\r\nabc"), TERMS);

        assert_eq!(out, format!("{answer}\r\n"));
        assert_eq!((head.length, head.status), (answer.len() + 2, 299));
        assert_eq!((head.body, head.keep_alive), (Body::Length(3), true));
    }

    #[test]
    fn what_concerns_one_connection_does_not_go_on() {
        let (out, head) = passed(
            "HTTP/1.1 200 OK\r\nDate: today\r\nConnection: close, X-Mine, Content-Length\r\n\
             X-Mine: 1\r\nKeep-Alive: 5\r\nUpgrade: h2c\r\nProxy-Authenticate: Basic\r\n\
             Ngrok-Error-Code: ERR_Y_1\r\nContent-Length: 0\r\n\r\n",
            TERMS,
        );

        assert_eq!(out, "HTTP/1.1 200 OK\r\nDate: today\r\nContent-Length: 0\r\n\r\n");
        assert!(!head.keep_alive);
    }

    #[test]
    fn an_answer_gets_the_framing_that_it_lacks() {
        let until_close = passed("HTTP/1.0 200 OK\r\nDate: d\r\n\r\n", TERMS);
        let empty = passed("HTTP/1.1 204 No\r\nDate: d\r\nContent-Length: 4\r\n\r\n", TERMS);
        let options = ResponseOptions { to_head: true, closes: true, ..TERMS };
        let to_head = passed("HTTP/1.1 200 OK\r\nDate: d\r\nContent-Length: 4\r\n\r\n", options);

        assert_eq!(
            until_close.0,
            "HTTP/1.1 200 OK\r\nDate: d\r\ntransfer-encoding: chunked\r\n\r\n"
        );
        assert_eq!((until_close.1.body, until_close.1.keep_alive), (Body::UntilClose, false));
        assert_eq!(
            (empty.0.as_str(), empty.1.body),
            ("HTTP/1.1 204 No\r\nDate: d\r\n\r\n", Body::NONE)
        );
        assert!(to_head.0.ends_with("Content-Length: 4\r\nconnection: close\r\n\r\n"));
        assert_eq!(to_head.1.body, Body::NONE);
    }

    #[test]
    fn the_code_of_an_agent_is_named_anew() {
        let (out, _) = passed(
            "HTTP/1.1 502 Bad\r\nDate: d\r\nngrok-error-code: ERR_NGROK_8012\r\n\r\n",
            TERMS,
        );

        assert!(out.contains("\r\nngrok-error-code: ERR_X_8012\r\n"), "{out}");
        assert!(!out.contains("ERR_NGROK"));
    }

    #[test]
    fn a_missing_date_is_added() {
        let (out, _) = passed("HTTP/1.1 200 OK\r\n\r\n", TERMS);
        let write_date = out.split("date: ").nth(1).unwrap().split('\r').next().unwrap();

        assert!(
            chrono::DateTime::parse_from_rfc2822(write_date).is_ok()
                && write_date.ends_with(" GMT")
        );
    }

    #[test]
    fn ambiguous_answers_are_refused() {
        for headers in [
            "Content-Length: 3\r\nContent-Length: 3",
            "Content-Length: 3\r\nTransfer-Encoding: chunked",
            "Transfer-Encoding: gzip, chunked",
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
            "Content-Length: +3",
            "Content-Length: 99999999999999999999",
            "X: a\r\n folded",
        ] {
            let head = format!("HTTP/1.1 200 OK\r\n{headers}\r\n\r\n");
            assert_eq!(
                read(head.as_bytes(), TERMS, &mut Vec::new()).unwrap_err(),
                MalformedResponse,
                "{headers}"
            );
        }
        let endless = format!("HTTP/1.1 200 OK\r\nX: {}", "a".repeat(MAX_HEAD_BYTES));
        assert!(read(endless.as_bytes(), TERMS, &mut Vec::new()).is_err());
        assert!(read(b"HTTP/1.1 200", TERMS, &mut Vec::new()).unwrap().is_none());
    }
}
