//! Bodies as people read them.

use ginnel_http1::coding::decode_some;
use ginnel_http1::media_type_in;

use crate::capture::CapturedMessage;

/// How long a decoded body may be; the rest is left out.
const MAX_DECODED_BYTES: usize = 8 << 20;

/// A body without its `Content-Encoding`.
#[derive(Debug)]
pub(super) struct DecodedBody {
    /// The encoding that it had.
    pub encoding: String,
    /// What it was before; as far as it could be read.
    pub bytes: Vec<u8>,
}

/// The first value of a header.
pub(super) fn find_header(message: &CapturedMessage, name: &str) -> Option<String> {
    let headers = message.headers();
    headers
        .into_iter()
        .find(|(content_type, _)| content_type.eq_ignore_ascii_case(name))
        .map(|(_, value)| value)
}

/// The media type without its parameters, in small letters.
pub(super) fn media_type(message: &CapturedMessage) -> String {
    let content_type = find_header(message, "content-type").unwrap_or_default();
    media_type_in(&content_type).to_ascii_lowercase()
}

/// The encoding of the body; none where there is nothing to take off.
pub(super) fn body_encoding(message: &CapturedMessage) -> Option<String> {
    if message.is_decoded {
        return None;
    }
    let encoding = find_header(message, "content-encoding")?.trim().to_ascii_lowercase();
    let is_plain = message.body.is_empty() || matches!(encoding.as_str(), "" | "identity");
    (!is_plain).then_some(encoding)
}

/// The body without its encoding; none where it has none, or one that is not known.
pub(super) fn decode_body(message: &CapturedMessage) -> Option<DecodedBody> {
    let encoding = body_encoding(message)?;
    let bytes = decode_some(&encoding, &message.body.bytes(), MAX_DECODED_BYTES)?.0;
    // A body that was cut off still shows its beginning.
    (!bytes.is_empty()).then_some(DecodedBody { encoding, bytes })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::io::Write;

    use super::*;

    fn message(encoding: &str, body: Vec<u8>) -> CapturedMessage {
        let head = format!("HTTP/1.1 200 OK\r\nContent-Encoding: {encoding}\r\n\r\n");
        let mut message = CapturedMessage::new(head.as_bytes(), false);
        message.body_length = body.len() as u64;
        message.body = body.into();
        message
    }

    #[test]
    fn encodings_are_taken_off() {
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(b"hello").unwrap();
        let mut brotli = Vec::new();
        brotli::CompressorWriter::new(&mut brotli, 4096, 1, 20).write_all(b"hello").unwrap();

        let gzip = gzip.finish().unwrap();
        for (encoding, body) in [("gzip", gzip.clone()), ("br", brotli)] {
            let decoded = decode_body(&message(encoding, body)).unwrap();
            assert_eq!(
                (decoded.encoding.as_str(), decoded.bytes.as_slice()),
                (encoding, &b"hello"[..])
            );
        }
        assert!(decode_body(&message("zstd", gzip)).is_none());
        assert!(decode_body(&message("gzip", b"no gzip".to_vec())).is_none());
    }
}
