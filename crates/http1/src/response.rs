//! A whole response as a client keeps it: in the bytes that came.

use std::ops::Range;

use bytes::Bytes;
use http::header::{HeaderMap, HeaderName, HeaderValue};

use super::HeadWriter;
use super::message_head::fields_in;

/// A whole answer.
#[derive(Debug, Default)]
pub struct Response {
    /// The status.
    pub status: u16,
    /// The head; behind it the body, when that was framed by its length.
    pub(super) bytes: Vec<u8>,
    pub(super) head: Range<usize>,
    pub(super) body: ResponseBody,
    /// Whether the server keeps the connection open.
    pub keeps_alive: bool,
    /// Whether the body is coded.
    pub is_coded: bool,
    /// Whether more came than the answer.
    pub has_surplus: bool,
}

#[derive(Debug)]
pub(super) enum ResponseBody {
    Within(Range<usize>),
    Own(Vec<u8>),
    Shared(Bytes),
}

impl Default for ResponseBody {
    fn default() -> Self {
        Self::Own(Vec::new())
    }
}

impl Response {
    /// An answer that came over no connection; its body is not coded.
    pub fn new(status: u16, headers: &HeaderMap, body: Vec<u8>) -> Self {
        let mut bytes = Vec::new();
        HeadWriter::resume(&mut bytes).fields(headers);
        let (head, body) = (0..bytes.len(), ResponseBody::Own(body));
        Self { status, bytes, head, body, ..Self::default() }
    }

    /// The body as it came.
    pub fn body(&self) -> &[u8] {
        match &self.body {
            ResponseBody::Within(range) => self.bytes.get(range.clone()).unwrap_or_default(),
            ResponseBody::Own(body) => body,
            ResponseBody::Shared(body) => body,
        }
    }

    /// The body, to be kept; nothing is copied. The head is gone then where it was in one piece with it.
    pub fn share_body(&mut self) -> Bytes {
        let body = match std::mem::take(&mut self.body) {
            ResponseBody::Within(range) => {
                self.head = 0..0;
                let bytes = Bytes::from(std::mem::take(&mut self.bytes));
                if range.end <= bytes.len() { bytes.slice(range) } else { Bytes::new() }
            }
            ResponseBody::Own(body) => body.into(),
            ResponseBody::Shared(body) => body,
        };
        self.body = ResponseBody::Shared(body.clone());
        body
    }

    /// Puts another body in the place of the one that came.
    pub fn replace_body(&mut self, body: Vec<u8>) {
        self.body = ResponseBody::Own(body);
    }

    /// The values of a field, in their order.
    pub fn field_values(&self, name: &str) -> impl Iterator<Item = &[u8]> {
        self.fields()
            .filter(move |(known, _)| known.eq_ignore_ascii_case(name.as_bytes()))
            .map(|(_, value)| value)
    }

    /// All fields.
    pub fn to_header_map(&self) -> HeaderMap {
        let known = |(name, value): (&[u8], &[u8])| {
            Some((HeaderName::from_bytes(name).ok()?, HeaderValue::from_bytes(value).ok()?))
        };
        let mut headers = HeaderMap::new();
        self.fields().filter_map(known).for_each(|(name, value)| {
            headers.append(name, value);
        });
        headers
    }

    fn fields(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        fields_in(self.bytes.get(self.head.clone()).unwrap_or_default())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::ResponseReader;
    use super::*;

    #[test]
    fn a_body_is_shared_and_replaced() {
        for head in ["Content-Length: 3", "Transfer-Encoding: chunked", "X: until the close"] {
            let body = if head.ends_with("chunked") { "3\r\nabc\r\n0\r\n\r\n" } else { "abc" };
            let text = format!("HTTP/1.1 200 OK\r\n{head}\r\n\r\n{body}");
            let mut reader = ResponseReader::new(64);
            let fed = reader.feed(text.as_bytes()).unwrap();
            let mut response = fed.map_or_else(|| reader.finish(), Ok).unwrap();
            assert_eq!(response.share_body(), "abc", "{head}");
            assert_eq!((response.share_body(), response.body()), ("abc".into(), &b"abc"[..]));
            response.replace_body(b"other".to_vec());
            assert_eq!(response.body(), b"other");
        }
        let headers = HeaderMap::from_iter([(http::header::ETAG, HeaderValue::from_static("x"))]);
        let made = Response::new(201, &headers, b"y".to_vec());
        assert_eq!((made.status, made.to_header_map(), made.body()), (201, headers, &b"y"[..]));
    }
}
