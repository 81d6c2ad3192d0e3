//! What the fields of a head say about the length of its body; free of I/O.

use super::Body;
use super::chunks::{FramingError, MAX_BODY_BYTES, is_token};

/// What the fields of a head say about the length of its body (RFC 9112, section 6.3).
///
/// A head that says it in more than one way is refused, although one of them may be right:
/// `Content-Length` is one number in digits, and `Transfer-Encoding` is `chunked`.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct BodyLength {
    length: Option<u64>,
    chunked: bool,
}

impl BodyLength {
    /// Reads a field; most say nothing about the body.
    pub fn read_field(&mut self, name: &[u8], value: &[u8]) -> Result<(), FramingError> {
        match name.len() {
            14 if name.eq_ignore_ascii_case(b"content-length") => self.read_length(value),
            17 if name.eq_ignore_ascii_case(b"transfer-encoding") => self.read_coding(value),
            _ => Ok(()),
        }
    }

    /// The body that the fields announce, if they announce any; chunks need HTTP/1.1.
    pub fn to_body(self, is_http_1_1: bool) -> Result<Option<Body>, FramingError> {
        match self {
            Self { chunked: true, .. } if !is_http_1_1 => Err(AMBIGUOUS),
            Self { chunked: true, .. } => Ok(Some(Body::CHUNKED)),
            Self { length, .. } => Ok(length.map(Body::Length)),
        }
    }

    fn read_length(&mut self, value: &[u8]) -> Result<(), FramingError> {
        let is_first = self.length.replace(parse_content_length(value).ok_or(AMBIGUOUS)?).is_none();
        if is_first && !self.chunked { Ok(()) } else { Err(AMBIGUOUS) }
    }

    fn read_coding(&mut self, value: &[u8]) -> Result<(), FramingError> {
        let is_first = !std::mem::replace(&mut self.chunked, true);
        let is_plain = is_first && self.length.is_none();
        if is_plain && value.eq_ignore_ascii_case(b"chunked") { Ok(()) } else { Err(AMBIGUOUS) }
    }
}

/// Nothing of the head is fine.
const AMBIGUOUS: FramingError = FramingError { fine: 0 };

/// The value of `Content-Length`: digits and nothing else, no sign and no list.
fn parse_content_length(digits: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(digits).ok()?;
    let is_plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let number = is_plain.then(|| text.parse().ok()).flatten()?;
    (number <= MAX_BODY_BYTES).then_some(number)
}

/// A name and a value; no line may go on in the next, and nothing stands before the colon.
pub(super) fn parse_field(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let colon = line.iter().position(|byte| *byte == b':')?;
    let (name, value) = (line.get(..colon)?, line.get(colon + 1..)?);
    let is_name = !name.is_empty() && name.iter().all(|byte| is_token(*byte));
    is_name.then(|| (name, trim_value(value)))
}

/// A value without the blanks around it (RFC 9110, section 5.5).
fn trim_value(mut value: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] | [rest @ .., b' ' | b'\t'] = value {
        value = rest;
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(fields: &[(&str, &str)]) -> Result<Option<Body>, FramingError> {
        let mut length = BodyLength::default();
        for (name, value) in fields {
            length.read_field(name.as_bytes(), value.as_bytes())?;
        }
        length.to_body(true)
    }

    #[test]
    fn a_body_has_one_length() {
        assert_eq!(body(&[("Host", "a")]), Ok(None));
        assert_eq!(body(&[("content-LENGTH", "007")]), Ok(Some(Body::Length(7))));
        assert_eq!(
            body(&[("Content-Length", "9223372036854775807")]),
            Ok(Some(Body::Length(i64::MAX as u64)))
        );
        assert_eq!(body(&[("Transfer-Encoding", "Chunked")]), Ok(Some(Body::CHUNKED)));
    }

    #[test]
    fn what_could_be_another_length_is_refused() {
        for value in ["", "+3", "-3", "3, 3", "3 3", "0x3", "3.0", "9223372036854775808", "٣"] {
            assert!(body(&[("Content-Length", value)]).is_err(), "{value}");
        }
        for value in ["", "gzip, chunked", "chunked, chunked", "xchunked", "identity"] {
            assert!(body(&[("Transfer-Encoding", value)]).is_err(), "{value}");
        }
        let (length, chunked) = (("Content-Length", "3"), ("Transfer-Encoding", "chunked"));
        for fields in [[length, length], [chunked, chunked], [length, chunked], [chunked, length]] {
            assert!(body(&fields).is_err(), "{fields:?}");
        }
        let mut old = BodyLength::default();
        assert!(
            old.read_field(b"Transfer-Encoding", b"chunked").is_ok() && old.to_body(false).is_err()
        );
    }
    #[test]
    fn a_field_is_a_token_a_colon_and_a_value() {
        // RFC 9112, section 5, and RFC 9110, sections 5.5 and 5.6.2.
        for (line, expected) in [
            ("Host: a", Some(("Host", "a"))),
            ("Host:a", Some(("Host", "a"))),
            ("X:\t a b \t", Some(("X", "a b"))),
            ("X:", Some(("X", ""))),
            ("X: \t", Some(("X", ""))),
            ("X: a: b", Some(("X", "a: b"))),
            ("!#$%&'*+-.^_`|~09azAZ: a", Some(("!#$%&'*+-.^_`|~09azAZ", "a"))),
            ("X: é", Some(("X", "é"))),
            ("", None),
            ("X", None),
            (": a", None),
            ("X : a", None),
            (" X: a", None),
            ("\tX: a", None),
            ("X(: a", None),
            ("X\"Y: a", None),
            ("é: a", None),
        ] {
            let expected =
                expected.map(|(name, value): (&str, &str)| (name.as_bytes(), value.as_bytes()));
            assert_eq!(parse_field(line.as_bytes()), expected, "{line:?}");
        }
    }

    #[test]
    fn other_fields_of_the_same_length_say_nothing() {
        for name in ["X-Content-Leng", "X-Transfer-Encodi", "Content-Length2"] {
            assert_eq!(body(&[(name, "x"), (name, "y")]), Ok(None), "{name}");
        }
    }
}
