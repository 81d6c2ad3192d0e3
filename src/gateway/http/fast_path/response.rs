//! Heads of answers on the short way; free of I/O.

use chrono::Utc;

use crate::gateway::http::error_response::{self, ERROR_CODE, Fault};
use crate::http1::{Body, BodyLength, FramingError};

/// How many headers an answer may have.
const HEADERS: usize = 100;
/// How long a head may be.
const LONGEST: usize = 64 << 10;

/// The head of an answer, read.
#[derive(Debug)]
pub(crate) struct Head {
    /// How many bytes it has.
    pub length: usize,
    pub status: u16,
    pub body: Body,
    /// Whether the connection may carry another request.
    pub keep_alive: bool,
}

/// An answer that cannot be understood, or in two ways.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Broken;

impl From<FramingError> for Broken {
    fn from(_: FramingError) -> Self {
        Self
    }
}

/// What an answer turns into on its way.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Terms<'t> {
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
    terms: Terms<'_>,
    out: &mut Vec<u8>,
) -> Result<Option<Head>, Broken> {
    // The parser would skip empty lines, which belong to no answer.
    if matches!(bytes.first(), Some(b'\r' | b'\n')) {
        return Err(Broken);
    }
    let mut room = [httparse::EMPTY_HEADER; HEADERS];
    let mut parsed = httparse::Response::new(&mut room);
    let length = match parsed.parse(bytes) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) if bytes.len() < LONGEST => return Ok(None),
        _ => return Err(Broken),
    };
    let (status, version) = (parsed.code.ok_or(Broken)?, parsed.version.ok_or(Broken)?);
    let said = Said::read(parsed.headers)?;
    let keep_alive = !said.closes && version == 1;
    if status < 200 {
        return Ok(Some(Head { length, status, body: Body::NONE, keep_alive }));
    }
    let announced = said.length.body(version == 1)?;
    let bodiless = terms.to_head || matches!(status, 204 | 304);
    let body = if bodiless { Body::NONE } else { announced.unwrap_or(Body::UntilClose) };
    begin(status, parsed.reason.unwrap_or_default(), out);
    let has_body = body != Body::NONE;
    for header in parsed.headers.iter().filter(|header| !said.drops(header, status, has_body)) {
        line(header.name, header.value, out);
    }
    if !said.dated {
        date(out);
    }
    if status == 502 && said.unreachable {
        code(error_response::UNREACHABLE.number, terms.code_prefix, out);
    }
    if body == Body::UntilClose {
        line("transfer-encoding", b"chunked", out);
    }
    end(terms.closes, out);
    let keep_alive = keep_alive && body != Body::UntilClose;
    Ok(Some(Head { length, status, body, keep_alive }))
}

/// What the headers say about framing and connection.
#[derive(Default)]
struct Said<'h> {
    length: BodyLength,
    closes: bool,
    dated: bool,
    /// The headers that `Connection` names.
    named: Vec<&'h [u8]>,
    unreachable: bool,
}

impl<'h> Said<'h> {
    fn read(headers: &[httparse::Header<'h>]) -> Result<Self, Broken> {
        let mut said = Self::default();
        for header in headers {
            let is = |name: &str| header.name.eq_ignore_ascii_case(name);
            match header.name.len() {
                4 if is("date") => said.dated = true,
                10 if is("connection") => said.connection(header.value),
                16 if is(ERROR_CODE.as_str()) => said.unreachable = header.value.ends_with(b"8012"),
                14 | 17 => said.length.read(header.name.as_bytes(), header.value)?,
                _ => {}
            }
        }
        Ok(said)
    }

    fn connection(&mut self, value: &'h [u8]) {
        for token in value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii) {
            if token.eq_ignore_ascii_case(b"close") {
                self.closes = true;
            } else if !token.eq_ignore_ascii_case(b"keep-alive") {
                self.named.push(token);
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
        hop || self.named.iter().any(|name| header.name.as_bytes().eq_ignore_ascii_case(name))
    }
}

/// Writes an answer of the service itself.
pub(crate) fn of(fault: Fault, terms: Terms<'_>, out: &mut Vec<u8>) {
    let response = fault.into_text(terms.code_prefix);
    let reason = http::StatusCode::from_u16(fault.status).ok();
    begin(fault.status, reason.and_then(|it| it.canonical_reason()).unwrap_or_default(), out);
    line("content-type", b"text/plain; charset=utf-8", out);
    code(fault.number, terms.code_prefix, out);
    line("content-length", response.len().to_string().as_bytes(), out);
    date(out);
    end(terms.closes, out);
    if !terms.to_head {
        out.extend_from_slice(response.as_bytes());
    }
}

fn begin(status: u16, reason: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(b"HTTP/1.1 ");
    out.extend([status / 100, status / 10 % 10, status % 10].map(|digit| b'0' + digit as u8));
    out.push(b' ');
    out.extend_from_slice(reason.as_bytes());
    out.extend_from_slice(b"\r\n");
}

fn line(name: &str, value: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

fn code(number: Option<u16>, prefix: &str, out: &mut Vec<u8>) {
    if let Some(number) = number {
        line(ERROR_CODE.as_str(), format!("{prefix}{number}").as_bytes(), out);
    }
}

fn date(out: &mut Vec<u8>) {
    let now = Utc::now().format("%a, %d %b %Y %H:%M:%S GMT");
    line("date", now.to_string().as_bytes(), out);
}

fn end(closes: bool, out: &mut Vec<u8>) {
    if closes {
        line("connection", b"close", out);
    }
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const TERMS: Terms<'_> = Terms { to_head: false, closes: false, code_prefix: "ERR_X_" };

    fn passed(head: &str, terms: Terms<'_>) -> (String, Head) {
        let mut out = Vec::new();
        let head = read(head.as_bytes(), terms, &mut out).unwrap().unwrap();
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
        let terms = Terms { to_head: true, closes: true, ..TERMS };
        let to_head = passed("HTTP/1.1 200 OK\r\nDate: d\r\nContent-Length: 4\r\n\r\n", terms);

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
        let date = out.split("date: ").nth(1).unwrap().split('\r').next().unwrap();

        assert!(chrono::DateTime::parse_from_rfc2822(date).is_ok() && date.ends_with(" GMT"));
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
                Broken,
                "{headers}"
            );
        }
        let endless = format!("HTTP/1.1 200 OK\r\nX: {}", "a".repeat(LONGEST));
        assert!(read(endless.as_bytes(), TERMS, &mut Vec::new()).is_err());
        assert!(read(b"HTTP/1.1 200", TERMS, &mut Vec::new()).unwrap().is_none());
    }
}
