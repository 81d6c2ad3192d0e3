//! Heads and chunks, as they are written: the only writer of either.

use std::fmt::Display;
use std::io::Write;

use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

use ginnel_base::logging::ignore;

use super::may_trail;

/// What a line ends with, and what stands behind the data of a chunk.
pub const LINE_END: &[u8] = b"\r\n";
/// The end of a body in chunks that has no trailer.
pub const LAST_CHUNK: &[u8] = b"0\r\n\r\n";
/// The field of a body in chunks.
pub const CHUNKED: (&str, &str) = ("Transfer-Encoding", "chunked");
/// The response that says that a body may be sent.
pub const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";
/// The interim response of an agent that holds a request until a person decides. The service does not forward interim
/// responses.
pub const HOLD_NOTICE: &[u8] = b"HTTP/1.1 102 Processing\r\nginnel-hold: waiting\r\n\r\n";

/// Writes the head of a message behind what a buffer holds. Names and values go as they are: whoever
/// gives them has made sure that they are some.
pub struct HeadWriter<'o>(&'o mut Vec<u8>);

impl<'o> HeadWriter<'o> {
    /// Begins a request for a target of these parts.
    pub fn begin_request(method: &str, target: &[&str], out: &'o mut Vec<u8>) -> Self {
        out.extend_from_slice(method.as_bytes());
        out.push(b' ');
        target.iter().for_each(|part| out.extend_from_slice(part.as_bytes()));
        out.extend_from_slice(b" HTTP/1.1\r\n");
        Self(out)
    }

    /// Begins a response with the usual reason phrase.
    pub fn begin_response(status: u16, out: &'o mut Vec<u8>) -> Self {
        let known = StatusCode::from_u16(status).ok();
        let reason = known.and_then(|status| status.canonical_reason()).unwrap_or_default();
        Self::begin_response_with(true, status, reason.as_bytes(), out)
    }

    /// Begins a response of HTTP/1.1 or HTTP/1.0 with another reason phrase.
    pub fn begin_response_with(
        is_http_1_1: bool,
        status: u16,
        reason: &[u8],
        out: &'o mut Vec<u8>,
    ) -> Self {
        out.extend_from_slice(if is_http_1_1 { b"HTTP/1.1 " } else { b"HTTP/1.0 " });
        write_display(status, out);
        out.push(b' ');
        Self::begin_line(reason, out)
    }

    /// Begins with a line, or with the rest of one.
    pub fn begin_line(line: &[u8], out: &'o mut Vec<u8>) -> Self {
        out.extend_from_slice(line);
        out.extend_from_slice(LINE_END);
        Self(out)
    }

    /// Goes on behind lines that were written already.
    pub fn resume(out: &'o mut Vec<u8>) -> Self {
        Self(out)
    }

    /// Writes a field.
    pub fn field(&mut self, name: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> &mut Self {
        for part in [name.as_ref(), b": ", value.as_ref(), LINE_END] {
            self.0.extend_from_slice(part);
        }
        self
    }

    /// Writes a field whose value is a number or a date.
    pub fn display_field(&mut self, name: impl AsRef<[u8]>, value: impl Display) -> &mut Self {
        self.0.extend_from_slice(name.as_ref());
        self.0.extend_from_slice(b": ");
        write_display(value, self.0);
        self.lines(LINE_END)
    }

    /// Writes all fields of a map.
    pub fn fields(&mut self, headers: &HeaderMap) -> &mut Self {
        for (name, value) in headers {
            self.field(name, value);
        }
        self
    }

    /// Copies lines that were written already, each with its end.
    pub fn lines(&mut self, lines: &[u8]) -> &mut Self {
        self.0.extend_from_slice(lines);
        self
    }

    /// Ends the head.
    pub fn end(&mut self) {
        self.0.extend_from_slice(LINE_END);
    }
}

/// Writes a piece of a body as a chunk; nothing where it is empty, because that would be the last.
pub fn write_chunk(piece: &[u8], out: &mut Vec<u8>) {
    if !piece.is_empty() {
        write_chunk_size(piece.len(), out);
        out.extend_from_slice(piece);
        out.extend_from_slice(LINE_END);
    }
}

/// Writes what stands before the data of a chunk.
pub fn write_chunk_size(length: usize, out: &mut Vec<u8>) {
    write_display(format_args!("{length:x}\r\n"), out);
}

/// Writes the last chunk, and behind it those of some fields that may stand there.
pub fn write_last_chunk<'t>(
    trailers: impl Iterator<Item = (&'t HeaderName, &'t HeaderValue)>,
    out: &mut Vec<u8>,
) {
    let mut writer = HeadWriter::begin_line(b"0", out);
    for (name, value) in trailers.filter(|(name, _)| may_trail(name)) {
        writer.field(name, value);
    }
    writer.end();
}

fn write_display(value: impl Display, out: &mut Vec<u8>) {
    ignore(write!(out, "{value}"), "a buffer takes all that is written");
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::{Body, read_request, read_response};
    use super::*;

    fn written(write: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        write(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_request_is_read_as_it_was_written() {
        let head = written(|out| {
            let mut writer = HeadWriter::begin_request("PUT", &["/a", "/b?c"], out);
            writer
                .field("Host", b"x")
                .display_field("content-length", 12_u64)
                .lines(b"A: 1\r\n")
                .end();
        });

        assert_eq!(head, "PUT /a/b?c HTTP/1.1\r\nHost: x\r\ncontent-length: 12\r\nA: 1\r\n\r\n");
        read_request(head.as_bytes(), |head| {
            assert_eq!((head.method, head.target, head.is_http_1_1), ("PUT", "/a/b?c", true));
            assert_eq!((head.fields.len(), &head.body), (3, &Body::Length(12)));
        })
        .unwrap()
        .unwrap();
    }

    #[test]
    fn a_response_is_read_as_it_was_written() {
        for (head, status, reason, is_http_1_1) in [
            (written(|out| HeadWriter::begin_response(404, out).end()), 404, "Not Found", true),
            (written(|out| HeadWriter::begin_response(599, out).end()), 599, "", true),
            (
                written(|out| HeadWriter::begin_response_with(false, 200, b"So So", out).end()),
                200,
                "So So",
                false,
            ),
            (String::from_utf8(CONTINUE.to_vec()).unwrap(), 100, "Continue", true),
        ] {
            let seen = read_response(head.as_bytes(), false, |seen| {
                assert_eq!((seen.status, seen.reason), (status, reason));
                seen.is_http_1_1
            });
            assert_eq!(seen, Ok(Some(is_http_1_1)), "{head:?}");
        }
    }

    #[test]
    fn fields_stand_in_their_order() {
        let headers = [("b", "1"), ("a", ""), ("b", "2")]
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
        let headers: HeaderMap = headers.into_iter().collect();

        let lines = written(|out| {
            HeadWriter::resume(out).fields(&headers);
        });

        assert_eq!(lines, "b: 1\r\nb: 2\r\na: \r\n");
    }

    #[test]
    fn a_body_in_chunks_is_read_as_it_was_written() {
        let trailers = [("x-sum", "1"), ("host", "b"), ("grpc-status", "0")]
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
        let bytes = written(|out| {
            for piece in [&b"0123456789abcdefg"[..], b"", b"h"] {
                write_chunk(piece, out);
            }
            write_last_chunk(trailers.iter().map(|(name, value)| (name, value)), out);
        });

        let (mut body, mut data, mut trailer) = (Body::CHUNKED, Vec::new(), Vec::new());
        let taken = body.take_all(
            bytes.as_bytes(),
            |piece| data.extend_from_slice(piece),
            |byte| trailer.push(byte),
        );

        assert_eq!((taken, body.is_done()), (Ok(bytes.len()), true));
        assert_eq!(data, b"0123456789abcdefgh");
        assert_eq!(trailer, b"x-sum: 1\r\ngrpc-status: 0\r\n\r\n");
        assert!(bytes.starts_with("11\r\n"), "{bytes}");
        let mut empty = Body::CHUNKED;
        assert_eq!(empty.take(LAST_CHUNK, |_| {}), Ok(LAST_CHUNK.len()));
        assert!(empty.is_done());
    }
}
