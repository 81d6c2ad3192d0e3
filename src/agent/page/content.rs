//! Bodies as people read them.

use crate::agent::capture::CapturedMessage;
use crate::api::mask;
use crate::coding::decode_some;

/// How long a decoded body may be; the rest is left out.
const MAX_DECODED_BYTES: usize = 8 << 20;

/// How the types of texts end, beside those that begin with `text/`.
const TEXT_SUFFIXES: [&str; 4] = ["xml", "javascript", "yaml", "graphql"];
/// How the types begin of what is looked at or listened to, never read.
const MEDIA_PREFIXES: [&str; 4] = ["audio/", "font/", "image/", "video/"];

/// A body without its `Content-Encoding`.
#[derive(Debug)]
pub(super) struct DecodedBody {
    /// The encoding that it had.
    pub encoding: String,
    /// What it was before; as far as it could be read.
    pub bytes: Vec<u8>,
}

/// The first value of a header.
pub(super) fn header(message: &CapturedMessage, name: &str) -> Option<String> {
    let headers = message.headers();
    headers
        .into_iter()
        .find(|(content_type, _)| content_type.eq_ignore_ascii_case(name))
        .map(|(_, value)| value)
}

/// The media type without its parameters, in small letters.
pub(super) fn media_type(message: &CapturedMessage) -> String {
    let content_type = header(message, "content-type").unwrap_or_default();
    content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

/// The encoding of the body; none where there is nothing to take off.
pub(super) fn encoding(message: &CapturedMessage) -> Option<String> {
    if message.is_decoded {
        return None;
    }
    let encoding = header(message, "content-encoding")?.trim().to_ascii_lowercase();
    let is_plain = message.body.is_empty() || matches!(encoding.as_str(), "" | "identity");
    (!is_plain).then_some(encoding)
}

/// The body without its encoding; none where it has none, or one that is not known.
pub(super) fn decoded(message: &CapturedMessage) -> Option<DecodedBody> {
    let encoding = encoding(message)?;
    let bytes = decode_some(&encoding, &message.body.bytes(), MAX_DECODED_BYTES)?.0;
    // A body that was cut off still shows its beginning.
    (!bytes.is_empty()).then_some(DecodedBody { encoding, bytes })
}

/// A body with its secrets masked, where it is text that is known to hold some.
pub(super) fn masked(media_type: &str, body: &[u8]) -> Option<Vec<u8>> {
    if media_type.starts_with("multipart/") {
        return mask::parts(body).filter(|masked| masked != body);
    }
    // What is cut off, or not all text, has secrets as well.
    let text = String::from_utf8_lossy(body);
    let masked = match media_type {
        "application/x-www-form-urlencoded" => mask::pairs(&text),
        // JSON is often sent under other names.
        _ if media_type.ends_with("json") || text.trim_start().starts_with(['{', '[']) => {
            mask::json(&text)
        }
        _ if is_text(media_type, body) => mask::text(&text).into_owned(),
        _ => return None,
    };
    (masked != text).then(|| masked.into_bytes())
}

/// Whether a body is text, by its type or, unless that is one of media, by itself.
fn is_text(media_type: &str, body: &[u8]) -> bool {
    media_type.starts_with("text/")
        || TEXT_SUFFIXES.iter().any(|end| media_type.ends_with(end))
        || !MEDIA_PREFIXES.iter().any(|start| media_type.starts_with(start)) && text(body).is_some()
}

/// The text of a body; where it was cut off within a letter, without that.
pub(super) fn text(body: &[u8]) -> Option<&str> {
    match std::str::from_utf8(body) {
        Ok(text) => Some(text),
        Err(error) if error.error_len().is_none() => {
            std::str::from_utf8(body.get(..error.valid_up_to())?).ok()
        }
        Err(_) => None,
    }
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
            let decoded = decoded(&message(encoding, body)).unwrap();
            assert_eq!(
                (decoded.encoding.as_str(), decoded.bytes.as_slice()),
                (encoding, &b"hello"[..])
            );
        }
        assert!(decoded(&message("zstd", gzip)).is_none());
        assert!(decoded(&message("gzip", b"no gzip".to_vec())).is_none());
    }

    #[test]
    fn only_text_with_secrets_is_masked() {
        let form = "application/x-www-form-urlencoded";
        assert_eq!(masked(form, b"a=1&password=x").unwrap(), "a=1&password=••••••".as_bytes());
        assert!(masked("application/json", b"{\"token\": \"x\"}").is_some());
        assert!(masked("text/plain", b"{\"token\": \"x\"}").is_some());
        assert!(masked("text/plain", b"token=x").is_some());
        assert!(masked("", b"token=x").is_some());
        assert!(masked("image/png", b"token=x").is_none());
        assert!(masked("text/plain", b"a=x").is_none());
        assert!(masked("application/json", b"{\"a\": 1}").is_none());
        assert!(masked("application/json", b"{\"token\": \"\xff\"}").is_some());
        assert!(masked("application/json", b"{\"token\": \"x\", \"a\": \"\xc3").is_some());
        assert!(masked("application/json", b"{\"a\": \"\xff\"}").is_none());
    }

    #[test]
    fn text_that_is_cut_off_is_text() {
        assert_eq!(text("aé".as_bytes()), Some("aé"));
        assert_eq!(text(b"a\xc3"), Some("a"));
        assert_eq!(text(b"a\xc3b"), None);
    }
}
