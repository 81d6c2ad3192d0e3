//! Reading the bodies of captured messages.

use ginnel_content::{BodyHead, DecodedContent, MAX_DECODED_BYTES, ReadableBody, remove_codings};
use ginnel_http1::list_elements;

use super::CapturedMessage;

impl CapturedMessage {
    /// Returns the first value of a header.
    pub fn find_header(&self, name: &str) -> Option<String> {
        let mut headers = self.headers().into_iter();
        headers.find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    /// The body as people read it, without masks.
    pub fn read_body(&self) -> ReadableBody<'_> {
        let headers = self.exact_headers();
        let values = |wanted: &str| {
            let wanted = wanted.to_owned();
            headers.iter().filter(move |(name, _)| name.eq_ignore_ascii_case(&wanted))
        };
        let content_type = values("content-type").next();
        let content_type = content_type.map(|(_, value)| String::from_utf8_lossy(value));
        let is_websocket =
            |value: &[u8]| list_elements(value).any(|it| it.eq_ignore_ascii_case(b"websocket"));
        let head = BodyHead {
            content_type: content_type.as_deref().unwrap_or_default(),
            content_encoding: match self.is_decoded {
                true => Vec::new(),
                false => values("content-encoding").map(|(_, value)| value.as_slice()).collect(),
            },
            opens_websocket: self.body.is_empty()
                && values("upgrade").any(|(_, value)| is_websocket(value)),
            is_cut: self.is_truncated() || self.is_pending,
        };
        ReadableBody::read(&head, self.body.bytes(), MAX_DECODED_BYTES)
    }

    /// The body without its content codings, for those that read its bytes.
    pub fn decode_content(&self) -> DecodedContent<'_> {
        let headers = self.exact_headers();
        let lines = headers
            .iter()
            .filter(|(name, _)| !self.is_decoded && name.eq_ignore_ascii_case("content-encoding"));
        let lines = lines.map(|(_, value)| value.as_slice());
        remove_codings(lines, self.body.bytes(), MAX_DECODED_BYTES)
    }
}
