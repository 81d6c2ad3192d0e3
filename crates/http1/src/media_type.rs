//! Media types: the values of `Content-Type` (RFC 9110, section 8.3.1).

use std::borrow::Cow;

use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue};

use super::lists::{is_token, trim_blanks};

/// Further parameters are left out, so that a long value does not cost more than a short one.
const MAX_PARAMETERS: usize = 100;

/// The ends of the types of text with a JSON value on each line.
const JSON_LINES: [&str; 6] =
    ["ndjson", "jsonl", "jsonlines", "json-lines", "json-seq", "json-stream"];
/// Beginnings of types whose content is compressed by its kind.
const COMPRESSED: [&str; 21] = [
    "application/epub",
    "application/font-woff",
    "application/gzip",
    "application/java-archive",
    "application/pdf",
    "application/vnd.android.package",
    "application/vnd.oasis.opendocument",
    "application/vnd.openxmlformats",
    "application/vnd.rar",
    "application/x-7z",
    "application/x-brotli",
    "application/x-bzip",
    "application/x-font-woff",
    "application/x-gzip",
    "application/x-rar",
    "application/x-xz",
    "application/zip",
    "application/zstd",
    "audio/",
    "font/woff",
    "video/",
];
/// Images that are text, or pixels without compression.
const PLAIN_IMAGES: [&str; 5] =
    ["image/bmp", "image/svg+xml", "image/vnd.microsoft.icon", "image/x-icon", "image/x-ms-bmp"];

/// A media type in lower case, without parameters. Empty if a message names none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MediaType<'v>(Cow<'v, str>);

impl<'v> MediaType<'v> {
    /// Parses a value of `Content-Type`. A type in lower case is not copied: agents look at the type of each response.
    pub fn from_value(value: &'v [u8]) -> Self {
        let written = value.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
        let mut text = String::from_utf8_lossy(written);
        if text.bytes().any(|byte| byte.is_ascii_uppercase()) {
            text.to_mut().make_ascii_lowercase();
        }
        Self(text)
    }

    /// Returns the media type of a message.
    pub fn from_headers(headers: &'v HeaderMap) -> Self {
        Self::from_value(headers.get(CONTENT_TYPE).map_or(b"", HeaderValue::as_bytes))
    }

    /// Returns the same type without a reference to its message.
    pub fn into_owned(self) -> MediaType<'static> {
        MediaType(Cow::Owned(self.0.into_owned()))
    }

    /// Returns the type and the subtype.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns true for server-sent events (HTML standard, section 9.2).
    pub fn is_event_stream(&self) -> bool {
        self.0 == "text/event-stream"
    }

    /// Returns true for messages of a gRPC call.
    pub fn is_grpc(&self) -> bool {
        self.0 == "application/grpc" || self.0.starts_with("application/grpc+")
    }

    /// Returns true for messages of a gRPC call in the form for browsers.
    pub fn is_grpc_web(&self) -> bool {
        self.0.starts_with("application/grpc-web")
    }

    /// Returns true for text with a JSON value on each line.
    pub fn is_json_lines(&self) -> bool {
        is_json_lines(&self.0)
    }

    /// Returns true for content that compression does not make shorter.
    pub fn is_compressed(&self) -> bool {
        let is_image = self.0.starts_with("image/") && !PLAIN_IMAGES.contains(&&*self.0);
        is_image
            || COMPRESSED.iter().any(|start| self.0.starts_with(start))
            || ["+zip", "+gzip", "+zstd"].iter().any(|end| self.0.ends_with(end))
    }

    /// Returns true for content whose parts a receiver needs at once, and which may have no end.
    pub fn is_endless(&self) -> bool {
        self.is_event_stream()
            || self.is_grpc()
            || self.is_grpc_web()
            || self.0 == "multipart/x-mixed-replace"
    }
}

/// Returns true for the media type, in lower case, of text with a JSON value on each line.
pub fn is_json_lines(media_type: &str) -> bool {
    let subtype = media_type.rsplit(['/', '+']).next().unwrap_or_default();
    media_type == "application/stream+json"
        || JSON_LINES.contains(&subtype.strip_prefix("x-").unwrap_or(subtype))
}

/// Returns the type and the subtype in a value of `Content-Type`, as they are written and without parameters.
pub fn media_type_in(value: &str) -> &str {
    trim_blanks(value.split(';').next().unwrap_or_default())
}

/// Returns the parameters in a value of `Content-Type`: their names in lower case and their values without quotes.
///
/// Browsers and frameworks read malformed values in the same way (WHATWG MIME Sniffing, section 4.4): the first
/// parameter of a name counts, a parameter without a value is left out, and a quoted string without an end ends with
/// the value. Blanks around `=` do not count, as in mail. Returns the first 100 parameters.
pub fn media_type_parameters(value: &str) -> Vec<(String, String)> {
    let mut parameters: Vec<(String, String)> = Vec::new();
    let mut rest = value.split_once(';').map(|(_, rest)| rest);
    while let Some(text) = rest.filter(|_| parameters.len() < MAX_PARAMETERS) {
        let end = text.find([';', '=']).unwrap_or(text.len());
        let (name, behind) = text.split_at(end);
        let Some(written) = behind.strip_prefix('=') else {
            rest = behind.strip_prefix(';');
            continue;
        };
        let (value, behind) = parameter_value(written);
        rest = behind;
        let name = trim_blanks(name).to_ascii_lowercase();
        let is_known = parameters.iter().any(|(known, _)| *known == name);
        if let Some(value) = value
            && is_token(name.as_bytes())
            && !is_known
        {
            parameters.push((name, value));
        }
    }
    parameters
}

/// Splits the text behind `=` into the value of a parameter and the text behind the next `;`.
fn parameter_value(text: &str) -> (Option<String>, Option<&str>) {
    let text = text.trim_start_matches([' ', '\t']);
    if let Some(quoted) = text.strip_prefix('"') {
        let (value, behind) = quoted_text(quoted);
        return (Some(value), behind.split_once(';').map(|(_, rest)| rest));
    }
    let (value, rest) = text.split_once(';').map_or((text, None), |it| (it.0, Some(it.1)));
    let value = trim_blanks(value);
    ((!value.is_empty()).then(|| value.to_owned()), rest)
}

/// Splits the text behind an opening quote into the text of the quoted string and the text behind it.
fn quoted_text(quoted: &str) -> (String, &str) {
    let (mut value, mut letters) = (String::new(), quoted.chars());
    while let Some(letter) = letters.next() {
        match letter {
            '"' => break,
            // A backslash at the end is kept.
            '\\' => value.push(letters.next().unwrap_or('\\')),
            letter => value.push(letter),
        }
    }
    (value, letters.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parameters(value: &str) -> Vec<(String, String)> {
        media_type_parameters(value)
    }

    #[test]
    fn a_type_has_no_blanks_around_it() {
        for value in ["text/html", " text/html\t; charset=x", "text/html;\"", "text/html ;"] {
            assert_eq!(media_type_in(value), "text/html", "{value}");
        }
        assert_eq!(media_type_in("text/html\u{a0}"), "text/html\u{a0}");
        assert_eq!((media_type_in(""), media_type_in("; charset=x")), ("", ""));
    }

    #[test]
    fn the_kind_of_content_is_in_its_type() {
        let parse = |value: &'static str| MediaType::from_value(value.as_bytes());
        assert!(parse("Text/Event-Stream; charset=utf-8").is_event_stream());
        assert!(!parse("text/event-streams").is_event_stream());
        assert!(parse("application/grpc+proto").is_grpc());
        assert!(
            !parse("application/grpc-web").is_grpc() && parse("application/grpc-web").is_endless()
        );
        for value in ["application/x-ndjson", "application/jsonl", "application/json-seq"] {
            assert!(parse(value).is_json_lines(), "{value}");
        }
        for value in
            ["image/png", "VIDEO/mp4", "font/woff2", "application/zip;x=y", "application/epub+zip"]
        {
            assert!(parse(value).is_compressed(), "{value}");
        }
        for value in ["", "image/svg+xml", "text/css", "application/octet-stream", "font/ttf"] {
            assert!(!parse(value).is_compressed(), "{value}");
        }
    }

    #[test]
    fn parameters_are_read_as_browsers_read_them() {
        for (value, expected) in [
            ("text/html", &[][..]),
            ("a/b;Charset=UTF-8", &[("charset", "UTF-8")]),
            ("a/b; x=\"1;y=2\" ;y=3", &[("x", "1;y=2"), ("y", "3")]),
            ("a/b; x=\"a\\\"b\\\\\"; y=\"\"", &[("x", "a\"b\\"), ("y", "")]),
            ("a/b; x=1; x=2; X=3", &[("x", "1")]),
            ("a/b; x; y=; =z; ;; w=1", &[("w", "1")]),
            ("a/b; x=\"open; y=1", &[("x", "open; y=1")]),
            ("a/b; x=\"1\"2; y=3", &[("x", "1"), ("y", "3")]),
            ("a/b; x = 1 ;y= \"2\"", &[("x", "1"), ("y", "2")]),
            ("a/b; a b=1; x=\u{e9}", &[("x", "\u{e9}")]),
            ("a/b; x=\"\\", &[("x", "\\")]),
        ] {
            let expected: Vec<_> =
                expected.iter().map(|(name, text)| ((*name).into(), (*text).into())).collect();
            assert_eq!(parameters(value), expected, "{value}");
        }
    }

    #[test]
    fn the_first_hundred_parameters_are_read() {
        let written: String = (0..8_000).map(|number| format!("; x{number}=1")).collect();
        let read = parameters(&format!("a/b; x0=0{written}"));
        assert_eq!(read.len(), 100);
        assert_eq!(read.first(), Some(&("x0".to_owned(), "0".to_owned())));
        assert_eq!(read.last().map(|(name, _)| name.as_str()), Some("x99"));
    }
}
