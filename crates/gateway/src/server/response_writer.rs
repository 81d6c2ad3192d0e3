//! Responses on their way to a visitor who speaks HTTP/1.1.

use std::fmt::Display;
use std::time::SystemTime;

use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_LENGTH, DATE, TRANSFER_ENCODING};
use http::{HeaderMap, HeaderValue, StatusCode, response};
use httpdate::HttpDate;
use hyper::body::SizeHint;

use ginnel_http1::{
    ConnectionOptions, HeadWriter, LAST_CHUNK, LINE_END, write_chunk_size, write_last_chunk,
};

use crate::message::field_names::{FieldNames, FieldWriter, ReasonPhrase};
use crate::message::node_notice::NodeNotice;

/// What a response has to take from its request.
#[derive(Debug, Clone, Copy)]
pub struct ResponseRules {
    pub to_head: bool,
    /// Whether the visitor speaks HTTP/1.1; else it is HTTP/1.0.
    pub is_http_1_1: bool,
    /// Whether the visitor takes fields behind a body.
    pub takes_trailers: bool,
    /// Whether the connection closes afterwards.
    pub closes: bool,
}

/// Writes one response.
#[derive(Debug)]
pub struct ResponseWriter {
    framing: WriterFraming,
    /// If true, trailers are written, announced or not: to announce them is a SHOULD (RFC 9110, section 6.6.2).
    takes_trailers: bool,
    /// Whether the connection closes afterwards.
    pub closes: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WriterFraming {
    /// No body, whatever there is.
    Nothing,
    /// So many more bytes.
    Length(u64),
    Chunked,
    UntilClose,
}

/// A body that is not as long as its head says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the body of the response has another length than announced")]
pub struct WrongResponseLength;

/// Returns the connection option that differs from the default of the version.
fn connection_option(closes: bool, rules: ResponseRules) -> Option<&'static str> {
    match (closes, rules.is_http_1_1) {
        (true, true) => Some("close"),
        (false, false) => Some("keep-alive"),
        _ => None,
    }
}

impl ResponseWriter {
    /// Writes the head of a response with a body about which so much is known.
    pub fn begin(
        head: &response::Parts,
        hint: &SizeHint,
        rules: ResponseRules,
        out: &mut Vec<u8>,
    ) -> Self {
        let switches = head.status == StatusCode::SWITCHING_PROTOCOLS;
        let framing = choose_framing(head, hint, rules);
        let closes = rules.closes
            || framing == WriterFraming::UntilClose
            || ConnectionOptions::from_headers(&head.headers).close && !switches;
        let reason = reason_phrase(head);
        let mut to =
            HeadWriter::begin_response_with(rules.is_http_1_1, head.status.as_u16(), reason, out);
        let mut writer = FieldWriter::new(head.extensions.get::<FieldNames>());
        for (name, value) in &head.headers {
            let is_dropped = match *name {
                CONNECTION => !switches,
                CONTENT_LENGTH => drops_length(head, framing),
                TRANSFER_ENCODING => true,
                _ => false,
            };
            if !is_dropped {
                writer.write_field(name, value, &mut to);
            }
        }
        if let Some(length) = announced_length(head, hint, framing, rules) {
            to.display_field(CONTENT_LENGTH, length);
        }
        if framing == WriterFraming::Chunked {
            to.field(TRANSFER_ENCODING, "chunked");
        }
        if !head.headers.contains_key(DATE) {
            to.display_field(DATE, current_date());
        }
        if let Some(notice) = head.extensions.get::<NodeNotice>() {
            to.field(CONNECTION, notice.connection_option());
        }
        if let Some(option) = connection_option(closes, rules).filter(|_| !switches) {
            to.field(CONNECTION, option);
        }
        to.end();
        Self { framing, takes_trailers: rules.takes_trailers, closes }
    }

    /// Whether there is nothing to write of the body.
    pub fn is_bodiless(&self) -> bool {
        self.framing == WriterFraming::Nothing
    }

    /// Writes what stands before a piece of the body; gives what stands behind it.
    pub fn frame_piece(
        &mut self,
        piece: &Bytes,
        out: &mut Vec<u8>,
    ) -> Result<&'static [u8], WrongResponseLength> {
        match &mut self.framing {
            WriterFraming::Length(left) => {
                *left = left.checked_sub(piece.len() as u64).ok_or(WrongResponseLength)?;
                Ok(b"")
            }
            WriterFraming::Chunked => {
                write_chunk_size(piece.len(), out);
                Ok(LINE_END)
            }
            WriterFraming::Nothing | WriterFraming::UntilClose => Ok(b""),
        }
    }

    /// Writes what stands behind the body.
    pub fn finish_body(
        &self,
        trailers: &HeaderMap,
        out: &mut Vec<u8>,
    ) -> Result<(), WrongResponseLength> {
        match self.framing {
            WriterFraming::Length(1..) => return Err(WrongResponseLength),
            WriterFraming::Chunked if self.takes_trailers => write_last_chunk(trailers.iter(), out),
            WriterFraming::Chunked => out.extend_from_slice(LAST_CHUNK),
            _ => {}
        }
        Ok(())
    }
}

fn choose_framing(head: &response::Parts, hint: &SizeHint, rules: ResponseRules) -> WriterFraming {
    if rules.to_head || matches!(head.status.as_u16(), 100..200 | 204 | 304) {
        return WriterFraming::Nothing;
    }
    let written = head.headers.get(CONTENT_LENGTH).and_then(length_of);
    match hint.exact().or(written) {
        Some(length) => WriterFraming::Length(length),
        None if rules.is_http_1_1 => WriterFraming::Chunked,
        None => WriterFraming::UntilClose,
    }
}

/// Whether the length in the head does not go on: it is not that of the body, or there is none.
fn drops_length(head: &response::Parts, framing: WriterFraming) -> bool {
    match framing {
        WriterFraming::Nothing => matches!(head.status.as_u16(), 100..200 | 204),
        WriterFraming::Length(length) => {
            head.headers.get(CONTENT_LENGTH).and_then(length_of) != Some(length)
        }
        WriterFraming::Chunked | WriterFraming::UntilClose => true,
    }
}

/// The length that the head lacks.
fn announced_length(
    head: &response::Parts,
    hint: &SizeHint,
    framing: WriterFraming,
    rules: ResponseRules,
) -> Option<u64> {
    let has_length = head.headers.contains_key(CONTENT_LENGTH) && !drops_length(head, framing);
    match framing {
        _ if has_length => None,
        WriterFraming::Length(length) => Some(length),
        // As it would be for GET, where that is known.
        WriterFraming::Nothing if rules.to_head => hint.exact().filter(|length| *length > 0),
        _ => None,
    }
}

/// The moment at which a response is written, as `Date` has it.
pub fn current_date() -> impl Display {
    HttpDate::from(SystemTime::now())
}

fn reason_phrase(head: &response::Parts) -> &[u8] {
    match head.extensions.get::<ReasonPhrase>() {
        Some(ReasonPhrase(reason)) => reason,
        None => head.status.canonical_reason().unwrap_or_default().as_bytes(),
    }
}

fn length_of(value: &HeaderValue) -> Option<u64> {
    value.to_str().ok()?.parse().ok()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use http::Response;

    use super::*;

    const RULES: ResponseRules =
        ResponseRules { to_head: false, is_http_1_1: true, takes_trailers: false, closes: false };

    /// What is written of a head, but for its date, and whether the connection closes.
    fn written(
        status: u16,
        fields: &[(&str, &str)],
        hint: Option<u64>,
        rules: ResponseRules,
    ) -> (String, bool) {
        let builder = Response::builder().status(status).header("date", "now");
        let builder = fields.iter().fold(builder, |it, (name, value)| it.header(*name, *value));
        let (parts, ()) = builder.body(()).unwrap().into_parts();
        let hint = hint.map_or_else(SizeHint::default, SizeHint::with_exact);
        let mut out = Vec::new();
        let writer = ResponseWriter::begin(&parts, &hint, rules, &mut out);
        (String::from_utf8(out).unwrap().replace("date: now\r\n", ""), writer.closes)
    }

    #[test]
    fn a_body_is_framed_as_the_visitor_can_read_it() {
        let old = ResponseRules { is_http_1_1: false, ..RULES };
        for (hint, rules, expected) in [
            (Some(3), RULES, "HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\n"),
            (Some(0), RULES, "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"),
            (None, RULES, "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"),
            (None, old, "HTTP/1.0 200 OK\r\n\r\n"),
            (
                Some(3),
                old,
                "HTTP/1.0 200 OK\r\ncontent-length: 3\r\nconnection: keep-alive\r\n\r\n",
            ),
        ] {
            let (head, closes) = written(200, &[], hint, rules);
            assert_eq!((head.as_str(), closes), (expected, expected == "HTTP/1.0 200 OK\r\n\r\n"));
        }
    }

    #[test]
    fn what_has_no_body_says_only_what_its_length_would_be() {
        let to_head = ResponseRules { to_head: true, ..RULES };
        let length = [("content-length", "5")];
        let head = |status, fields: &[(&str, &str)], hint, rules| {
            written(status, fields, hint, rules).0.split_once("\r\n").unwrap().1.to_owned()
        };

        assert_eq!(head(200, &length, Some(0), to_head), "content-length: 5\r\n\r\n");
        assert_eq!(head(200, &[], Some(7), to_head), "content-length: 7\r\n\r\n");
        assert_eq!(head(200, &[], Some(0), to_head), "\r\n");
        assert_eq!(head(200, &[], None, to_head), "\r\n");
        assert_eq!(head(204, &length, Some(0), RULES), "\r\n");
        assert_eq!(head(304, &length, Some(0), RULES), "content-length: 5\r\n\r\n");
    }

    #[test]
    fn trailers_are_for_visitors_that_take_them() {
        let (parts, ()) = Response::new(()).into_parts();
        let mut trailers = HeaderMap::new();
        for (name, value) in [("x-sum", "42"), ("content-length", "1"), ("set-cookie", "a=b")] {
            trailers.insert(name, HeaderValue::from_static(value));
        }
        for (takes_trailers, expected) in [(true, "0\r\nx-sum: 42\r\n\r\n"), (false, "0\r\n\r\n")] {
            let rules = ResponseRules { takes_trailers, ..RULES };
            let hint = SizeHint::default();
            let writer = ResponseWriter::begin(&parts, &hint, rules, &mut Vec::new());

            let mut out = Vec::new();
            writer.finish_body(&trailers, &mut out).unwrap();

            assert_eq!(String::from_utf8(out).unwrap(), expected);
        }
    }

    #[test]
    fn the_end_of_a_connection_is_announced() {
        let closing = ResponseRules { closes: true, ..RULES };
        let length = [("content-length", "0")];
        let closed = "HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";

        assert_eq!(written(200, &length, None, closing), (closed.to_owned(), true));
        let own = [("connection", "close"), ("content-length", "0")];
        assert_eq!(written(200, &own, None, RULES), (closed.to_owned(), true));
    }

    #[test]
    fn a_body_of_another_length_is_an_error() {
        let (parts, ()) = Response::new(()).into_parts();
        let mut out = Vec::new();
        let mut writer = ResponseWriter::begin(&parts, &SizeHint::with_exact(3), RULES, &mut out);

        assert_eq!(writer.frame_piece(&Bytes::from_static(b"ab"), &mut out), Ok(&b""[..]));
        assert_eq!(writer.finish_body(&HeaderMap::new(), &mut out), Err(WrongResponseLength));
        let more = writer.frame_piece(&Bytes::from_static(b"cd"), &mut out);
        assert_eq!(more, Err(WrongResponseLength));
    }
}
