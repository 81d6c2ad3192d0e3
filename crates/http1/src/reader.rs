//! Reads whole answers from the bytes that arrive; free of I/O.
//!
//! It is as strict as whoever passes answers on: one that says in more than one way where its body ends
//! is an error, whatever parts of it came.

use super::message_head::{HeadError, HeadLimits, MAX_READ_FIELDS, ResponseHead, after_first_line};
use super::response::ResponseBody;
use super::response_head::{HeadProgress, ResponseHeadReader};
use super::{Body, FramingError, Response};

/// The longest head, in bytes.
const MAX_HEAD_BYTES: usize = 256 << 10;
/// How much room is made for a body before any of it has come, in bytes.
const MAX_EXPECTED_BYTES: u64 = 1 << 20;

/// Why bytes are no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ResponseError {
    /// The head does not end.
    #[error("the head of the response is longer than {} KiB", MAX_HEAD_BYTES >> 10)]
    LongHead,
    /// The head has too many fields.
    #[error("the head of the response has more than {MAX_READ_FIELDS} fields")]
    ManyFields,
    /// What came is not the head of an answer.
    #[error("the response is not HTTP/1.1: {0}")]
    Malformed(&'static str),
    /// What came is the beginning of TLS.
    #[error("the server speaks TLS there: its address begins with https://")]
    Tls,
    /// The head says in more than one way where the body ends, or its chunks are broken.
    #[error("the response is ambiguous: {0}")]
    Framing(&'static str),
    /// The server speaks another protocol now, which nobody asked for.
    #[error("the server switched to another protocol without being asked")]
    Switched,
    /// The body is too large.
    #[error("the body of the response is larger than {} MiB", .0 >> 20)]
    LargeBody(usize),
    /// The connection was closed before the response was complete.
    #[error("the server closed the connection {0}")]
    Closed(&'static str),
}

/// Reads one answer.
#[derive(Debug)]
pub struct ResponseReader {
    max_body_bytes: usize,
    head: ResponseHeadReader,
    state: ReaderState,
    response: Response,
    /// Whether the body is taken piece by piece.
    is_streaming: bool,
}

#[derive(Debug)]
enum ReaderState {
    /// In the head.
    Head,
    Body(Body),
    Done,
}

struct Head {
    bytes: usize,
    fields_from: usize,
    status: u16,
    keeps_alive: bool,
    is_coded: bool,
    body: Body,
}

impl ResponseReader {
    /// Nothing has come yet.
    pub fn new(max_body_bytes: usize) -> Self {
        let limits = HeadLimits::for_client(MAX_HEAD_BYTES);
        let head = ResponseHeadReader::for_client(limits);
        let (state, response) = (ReaderState::Head, Response::default());
        Self { max_body_bytes, head, state, response, is_streaming: false }
    }

    /// The same for a body that is taken piece by piece with [`ResponseReader::take_piece`]; the limit
    /// is that of what was not taken yet.
    pub fn into_streaming(self) -> Self {
        Self { is_streaming: true, ..self }
    }

    /// What has come of the body of a success since the last time.
    pub fn take_piece(&mut self) -> Vec<u8> {
        match &mut self.response.body {
            ResponseBody::Own(content) if self.response.status / 100 == 2 => {
                std::mem::take(content)
            }
            _ => Vec::new(),
        }
    }

    /// Whether nothing of the answer has come.
    pub fn is_unbegun(&self) -> bool {
        matches!(self.state, ReaderState::Head) && self.head.is_unbegun(&self.response.bytes)
    }

    /// Takes what has arrived; gives the answer when it is complete.
    ///
    /// # Errors
    /// When it is no answer, or too large.
    pub fn feed(&mut self, bytes: &[u8]) -> Result<Option<Response>, ResponseError> {
        match &mut self.state {
            ReaderState::Head => {
                self.response.bytes.extend_from_slice(bytes);
                self.read_head()?;
            }
            ReaderState::Body(_) => self.read_body(bytes)?,
            ReaderState::Done => self.response.has_surplus |= !bytes.is_empty(),
        }
        Ok(self.take_done())
    }

    /// The connection was closed; gives the answer when that is its end.
    ///
    /// # Errors
    /// When the answer is not complete.
    pub fn finish(&mut self) -> Result<Response, ResponseError> {
        match &self.state {
            ReaderState::Body(Body::UntilClose) => {
                self.response.keeps_alive = false;
                self.state = ReaderState::Done;
                self.take_done().ok_or(ResponseError::Closed(""))
            }
            ReaderState::Head if self.is_unbegun() => {
                Err(ResponseError::Closed("without a response"))
            }
            ReaderState::Head => Err(ResponseError::Closed("within the head of the response")),
            _ => Err(ResponseError::Closed("within the body of the response")),
        }
    }

    fn take_done(&mut self) -> Option<Response> {
        matches!(self.state, ReaderState::Done).then(|| std::mem::take(&mut self.response))
    }

    /// Reads the head, if all of it is there, and what is there of the body.
    fn read_head(&mut self) -> Result<(), ResponseError> {
        // An alert, or a part of a handshake (RFC 8446, section 5.1).
        if matches!(self.response.bytes.as_slice(), [0x15 | 0x16, 0x03, ..]) {
            return Err(ResponseError::Tls);
        }
        loop {
            match self.head.read_next(&mut self.response.bytes, Head::from_response)? {
                HeadProgress::Incomplete => return Ok(()),
                HeadProgress::Interim { length, .. } => {
                    self.response.bytes.drain(..length);
                }
                HeadProgress::Final(head) => return self.begin_body(head),
            }
        }
    }

    fn begin_body(&mut self, head: Head) -> Result<(), ResponseError> {
        let response = &mut self.response;
        response.status = head.status;
        response.head = head.fields_from..head.bytes;
        response.keeps_alive = head.keeps_alive;
        response.is_coded = head.is_coded;
        match head.body {
            Body::Length(length) if !self.is_streaming => self.begin_length(head.bytes, length),
            body => {
                let begun = response.bytes.split_off(head.bytes);
                self.state = ReaderState::Body(body);
                self.read_body(&begun)
            }
        }
    }

    /// A body of that length stays behind its head, where it is.
    fn begin_length(&mut self, from: usize, length: u64) -> Result<(), ResponseError> {
        if length > self.max_body_bytes as u64 {
            return Err(ResponseError::LargeBody(self.max_body_bytes));
        }
        let response = &mut self.response;
        let end = from.saturating_add(usize::try_from(length).unwrap_or(usize::MAX));
        response.body = ResponseBody::Within(from..end);
        if response.bytes.len() < end {
            let left = end - response.bytes.len();
            response.bytes.reserve_exact(left.min(MAX_EXPECTED_BYTES as usize));
            self.state = ReaderState::Body(Body::Length(left as u64));
            return Ok(());
        }
        response.has_surplus = response.bytes.len() > end;
        response.bytes.truncate(end);
        self.state = ReaderState::Done;
        Ok(())
    }

    fn read_body(&mut self, bytes: &[u8]) -> Result<(), ResponseError> {
        let ReaderState::Body(body) = &mut self.state else { return Ok(()) };
        let response = &mut self.response;
        let content = match &mut response.body {
            ResponseBody::Within(_) => &mut response.bytes,
            ResponseBody::Own(content) => content,
            ResponseBody::Shared(_) => return Ok(()),
        };
        let taken = body.take(bytes, |data| content.extend_from_slice(data));
        let taken =
            taken.map_err(|FramingError { .. }| ResponseError::Framing("its chunks are broken"))?;
        if matches!(&response.body, ResponseBody::Own(content) if content.len() > self.max_body_bytes)
        {
            return Err(ResponseError::LargeBody(self.max_body_bytes));
        }
        if body.is_done() {
            response.has_surplus = taken < bytes.len();
            self.state = ReaderState::Done;
        }
        Ok(())
    }
}

impl Head {
    fn from_response(head: &ResponseHead<'_, '_>) -> Self {
        let is_coded = |name: &str| name.eq_ignore_ascii_case("content-encoding");
        Self {
            bytes: head.bytes.len(),
            fields_from: head.bytes.len() - after_first_line(head.bytes).len(),
            status: head.status,
            keeps_alive: head.keeps_alive,
            is_coded: head.fields.iter().any(|field| is_coded(field.name)),
            body: head.body.clone(),
        }
    }
}

impl From<HeadError> for ResponseError {
    fn from(error: HeadError) -> Self {
        match error {
            HeadError::Malformed(reason) => Self::Malformed(reason),
            HeadError::BareLineEnd => Self::Malformed("a line does not end as it should"),
            HeadError::TooMany => Self::ManyFields,
            HeadError::TooLong | HeadError::LongInterim => Self::LongHead,
            HeadError::Switched | HeadError::ImproperSwitch => Self::Switched,
            HeadError::BodyBeginning => Self::Framing("its chunks are broken"),
            HeadError::Framing => Self::Framing(
                "its Content-Length or Transfer-Encoding does not say where its body ends",
            ),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// Reads what arrives in pieces of one size and is followed by a close.
    fn read_in(bytes: &[u8], piece: usize) -> Result<Response, ResponseError> {
        let mut reader = ResponseReader::new(64);
        for piece in bytes.chunks(piece) {
            if let Some(response) = reader.feed(piece)? {
                return Ok(response);
            }
        }
        reader.finish()
    }

    fn read(text: &str) -> Result<(u16, String), ResponseError> {
        let outcome = |piece| {
            let response = read_in(text.as_bytes(), piece)?;
            Ok((response.status, String::from_utf8(response.body().to_vec()).unwrap()))
        };
        let whole = outcome(text.len());
        for piece in 1..text.len() {
            assert_eq!(outcome(piece), whole, "{text:?} by {piece}");
        }
        whole
    }

    #[test]
    fn an_answer_is_read_in_pieces_of_any_size() {
        for (text, status, body) in [
            ("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc", 200, "abc"),
            ("HTTP/1.1 200 OK\nContent-Length: 3\n\nabc", 200, "abc"),
            ("HTTP/1.1 200 OK\r\n\r\nabc", 200, "abc"),
            ("HTTP/1.1 404 \r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n", 404, "x"),
            ("HTTP/1.1 100 C\r\n\r\nHTTP/1.1 201 C\r\nContent-Length: 0\r\n\r\n", 201, ""),
            ("HTTP/1.1 204 No\r\nContent-Length: 9\r\n\r\n", 204, ""),
        ] {
            assert_eq!(read(text), Ok((status, body.to_owned())), "{text:?}");
        }
    }

    #[test]
    fn what_is_no_answer_is_refused() {
        for text in [
            "\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
            "HTTP/2.0 200 OK\r\nContent-Length: 0\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 3, 3\r\n\r\nabc",
            "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\nabc",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
            "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            "HTTP/1.1 200 OK\r\nX: a\r\n folded\r\n\r\n",
            "HTTP/1.1 200 OK\r\nX: a\rb\r\n\r\n",
            "HTTP/1.1 200 OK\r\nX : a\r\n\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5 \r\nhello\r\n0\r\n\r\n",
            "HTTP/1.1 101 Go\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 65\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nab",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n",
            "HTTP/1.1 200 OK\r\nContent",
        ] {
            assert!(read(text).is_err(), "{text:?}");
        }
        assert_eq!(read_in(b"", 1).unwrap_err(), ResponseError::Closed("without a response"));
    }

    #[test]
    fn heads_and_bodies_have_limits() {
        let long = format!("HTTP/1.1 200 OK\r\nX: {}", "y".repeat(MAX_HEAD_BYTES));
        assert_eq!(read_in(long.as_bytes(), 4096).unwrap_err(), ResponseError::LongHead);
        let fields = |count| format!("HTTP/1.1 204 OK\r\n{}\r\n", "X: y\r\n".repeat(count));
        assert!(read_in(fields(128).as_bytes(), 999).is_ok());
        let many = read_in(fields(129).as_bytes(), 999);
        assert_eq!(many.unwrap_err(), ResponseError::ManyFields);
        let large = format!("HTTP/1.1 200 OK\r\n\r\n{}", "y".repeat(65));
        assert_eq!(read_in(large.as_bytes(), 7).unwrap_err(), ResponseError::LargeBody(64));
    }

    #[test]
    fn fields_and_the_fate_of_the_connection_are_known() {
        let read = |text: &str| read_in(text.as_bytes(), 5).unwrap();
        let response = read("HTTP/1.1 204 No\r\nA: 1\r\nb:  2 \r\na: 3\r\n\r\n");
        assert_eq!(response.field_values("A").collect::<Vec<_>>(), [b"1", b"3"]);
        assert_eq!(response.to_header_map()["b"], "2");
        assert!(response.keeps_alive && !response.has_surplus && !response.is_coded);
        assert!(!read("HTTP/1.1 204 No\r\nConnection: x, Close\r\n\r\n").keeps_alive);
        assert!(!read("HTTP/1.0 204 No\r\n\r\n").keeps_alive);
        assert!(read("HTTP/1.0 204 No\r\nConnection: keep-alive\r\n\r\n").keeps_alive);
        let more = read_in(b"HTTP/1.1 204 No\r\n\r\nHTTP", 99).unwrap();
        assert!(more.has_surplus);
    }
    #[test]
    fn a_body_is_as_long_as_its_head_says() {
        // RFC 9112, section 6.3, for answers to anything but HEAD and CONNECT.
        for (head, body) in [
            ("204 No\r\nContent-Length: 3", ""),
            ("304 Not\r\nContent-Length: 3", ""),
            ("200 OK\r\nTransfer-Encoding: CHUNKED", "abc"),
            ("200 OK\r\nContent-Length: 003", "3\r\n"),
            ("205 Reset\r\nContent-Length: 0", ""),
            ("200 OK", "3\r\nabc\r\n0\r\n\r\n"),
            ("999 Odd", "3\r\nabc\r\n0\r\n\r\n"),
        ] {
            let text = format!("HTTP/1.1 {head}\r\n\r\n3\r\nabc\r\n0\r\n\r\n");
            let status = head[..3].parse().unwrap();
            assert_eq!(read(&text), Ok((status, body.to_owned())), "{head:?}");
        }
    }

    #[test]
    fn an_answer_that_is_none_is_named() {
        for (text, problem) in [
            ("\x16\x03\x01", ResponseError::Tls),
            ("\x15\x03\x03", ResponseError::Tls),
            ("\nHTTP", ResponseError::Malformed("it begins with an empty line")),
            ("HTTP/1.1 099 X\r\n\r\n", ResponseError::Malformed("its status is below 100")),
            ("HTTP/1.1 x", ResponseError::Malformed("its status is not a number")),
            ("HTTP/3", ResponseError::Malformed("it names no version of HTTP/1")),
            (
                "HTTP/1.1 200 OK\r\nX Y: a\r\n\r\n",
                ResponseError::Malformed("a field's name holds what no name may"),
            ),
            (
                "HTTP/1.1 200 OK\r\nX: \0\r\n\r\n",
                ResponseError::Malformed("a field's value holds what no value may"),
            ),
            (
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nx",
                ResponseError::Framing("its chunks are broken"),
            ),
            ("HTTP/1.1 101 Go\r\n\r\n", ResponseError::Switched),
            ("HTTP/1.1 200 OK\r\nContent-Length: 65\r\n\r\n", ResponseError::LargeBody(64)),
            ("HTTP/1.1 2", ResponseError::Closed("within the head of the response")),
            ("HTTP/1.1 100 C\r\n\r\n", ResponseError::Closed("within the head of the response")),
            (
                "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n",
                ResponseError::Closed("within the body of the response"),
            ),
        ] {
            let outcome = read_in(text.as_bytes(), text.len());
            assert_eq!(outcome.unwrap_err(), problem, "{text:?}");
        }
    }

    #[test]
    fn a_body_may_be_as_large_as_its_limit() {
        for head in ["Content-Length: 64", "X: y"] {
            let text = format!("HTTP/1.1 200 OK\r\n{head}\r\n\r\n{}", "y".repeat(64));
            assert_eq!(read_in(text.as_bytes(), 10).unwrap().body().len(), 64, "{head}");
        }
        let chunks = |count: usize| "1\r\na\r\n".repeat(count) + "0\r\n\r\n";
        let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
        assert!(read_in(format!("{head}{}", chunks(64)).as_bytes(), 10).is_ok());
        assert!(read_in(format!("{head}{}", chunks(65)).as_bytes(), 10).is_err());
    }

    #[test]
    fn interim_answers_count_for_the_head() {
        let interim = format!("HTTP/1.1 103 E\r\nX: {}\r\n\r\n", "y".repeat(1 << 16));
        let last = "HTTP/1.1 204 No\r\n\r\n";
        assert!(read_in(format!("{}{last}", interim.repeat(3)).as_bytes(), 4096).is_ok());
        for piece in [4096, 1 << 20] {
            let many = read_in(format!("{}{last}", interim.repeat(4)).as_bytes(), piece);
            assert_eq!(many.unwrap_err(), ResponseError::LongHead, "{piece}");
        }
    }

    #[test]
    fn a_reader_knows_whether_anything_has_come() {
        let mut reader = ResponseReader::new(64);
        assert!(reader.is_unbegun());
        reader.feed(b"HTTP/1.1 100 C\r\n\r\n").unwrap();
        assert!(!reader.is_unbegun());
        let mut reader = ResponseReader::new(64);
        reader.feed(b"H").unwrap();
        assert!(!reader.is_unbegun());
    }

    #[test]
    fn a_body_of_any_size_is_taken_in_pieces() {
        for head in ["Content-Length: 200", "Transfer-Encoding: chunked", "X: y"] {
            let chunked = format!("c8\r\n{}\r\n0\r\n\r\n", "y".repeat(200));
            let body = if head.contains("chunked") { chunked } else { "y".repeat(200) };
            for (status, is_taken) in [(200, true), (403, false)] {
                let text = format!("HTTP/1.1 {status} X\r\n{head}\r\n\r\n{body}");
                let mut reader = ResponseReader::new(64).into_streaming();
                let (mut taken, mut outcome) = (0, Ok(None));
                for piece in text.as_bytes().chunks(7) {
                    outcome = reader.feed(piece);
                    if !matches!(outcome, Ok(None)) {
                        break;
                    }
                    taken += reader.take_piece().len();
                }
                if is_taken {
                    let last = outcome.unwrap().map_or_else(|| reader.finish(), Ok).unwrap();
                    assert_eq!(taken + last.body().len(), 200, "{head}");
                } else {
                    assert_eq!((taken, outcome.unwrap_err()), (0, ResponseError::LargeBody(64)));
                }
            }
        }
    }

    #[test]
    fn surplus_is_what_comes_behind_the_body() {
        let has_surplus = |text: &str| read_in(text.as_bytes(), text.len()).unwrap().has_surplus;
        for (head, body) in
            [("Content-Length: 1", "a"), ("Transfer-Encoding: chunked", "0\r\n\r\n")]
        {
            let text = format!("HTTP/1.1 200 OK\r\n{head}\r\n\r\n{body}");
            assert!(!has_surplus(&text) && has_surplus(&format!("{text}b")), "{head}");
        }
    }
}
