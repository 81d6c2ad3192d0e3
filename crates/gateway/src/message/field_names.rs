//! The names of fields as they were written, and what else of a head a map of headers does not keep.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use http::header::TRAILER;
use http::{HeaderMap, HeaderName, HeaderValue};

use ginnel_http1::{HeadField, HeadWriter, has_token, write_last_chunk};

/// The names of the fields of a head, in their order and as they were written; kept in the extensions of
/// a message, so that they go on so.
#[derive(Debug, Clone)]
pub struct FieldNames {
    bytes: Bytes,
    names: Arc<[Range<u32>]>,
}

/// The reason phrase of a status line that is not the usual one.
#[derive(Debug, Clone)]
pub struct ReasonPhrase(pub Bytes);

/// The fields of a head as a map, and their names; none where a field cannot be one of a map.
pub fn headers_with_names(fields: &[HeadField<'_>]) -> Option<(HeaderMap, FieldNames)> {
    let text: usize = fields.iter().map(|field| field.name.len() + field.value.len()).sum();
    let mut bytes = Vec::with_capacity(text);
    for field in fields {
        bytes.extend_from_slice(field.name.as_bytes());
        bytes.extend_from_slice(field.value);
    }
    let bytes = Bytes::from(bytes);
    // Most messages get some more on their way.
    let mut headers = HeaderMap::with_capacity(fields.len() + MANY_ADDED);
    let (mut names, mut at) = (Vec::with_capacity(fields.len()), 0);
    for field in fields {
        let (name, end) = (at..at + field.name.len(), at + field.name.len() + field.value.len());
        let value = HeaderValue::from_maybe_shared(bytes.slice(name.end..end)).ok()?;
        headers.append(HeaderName::from_bytes(field.name.as_bytes()).ok()?, value);
        names.push(name.start as u32..name.end as u32);
        at = end;
    }
    Some((headers, FieldNames { bytes, names: names.into() }))
}

/// For how many more headers there is room in a map.
const MANY_ADDED: usize = 6;

/// Writes headers by the names that they had.
pub struct FieldWriter<'n> {
    names: Option<&'n FieldNames>,
    /// Which of the names were used.
    used: u128,
}

impl<'n> FieldWriter<'n> {
    pub fn new(names: Option<&'n FieldNames>) -> Self {
        Self { names, used: 0 }
    }

    /// Writes a field.
    pub fn write_field(
        &mut self,
        name: &HeaderName,
        value: &HeaderValue,
        head: &mut HeadWriter<'_>,
    ) {
        head.field(self.next_spelling(name.as_str()), value);
    }

    /// The name as it was written, each time the next of its spellings.
    fn next_spelling<'a>(&mut self, name: &'a str) -> &'a [u8]
    where
        'n: 'a,
    {
        let Some(FieldNames { bytes, names }) = self.names else { return name.as_bytes() };
        for (at, range) in names.iter().enumerate() {
            let written = bytes.get(range.start as usize..range.end as usize).unwrap_or_default();
            let bit = 1u128.checked_shl(at as u32).unwrap_or_default();
            if self.used & bit == 0 && written.eq_ignore_ascii_case(name.as_bytes()) {
                self.used |= bit;
                return written;
            }
        }
        name.as_bytes()
    }
}

/// Writes the last chunk of a body and the fields behind it that were announced in `Trailer`.
pub fn write_announced(announced: &HeaderMap, trailers: &HeaderMap, out: &mut Vec<u8>) {
    let is_announced = |name: &HeaderName| has_token(announced, TRAILER, name.as_str());
    write_last_chunk(trailers.iter().filter(|(name, _)| is_announced(name)), out);
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn names_go_on_as_they_were_written() {
        let head = b"GET / HTTP/1.1\r\nHOST: a\r\nX-MiXed: One\r\nx-mixed: Two\r\n\r\n";
        let (mut headers, names) =
            ginnel_http1::read_request(head, |head| super::headers_with_names(head.fields))
                .unwrap()
                .flatten()
                .unwrap();
        headers.insert("x-new", HeaderValue::from_static("1"));

        let (mut writer, mut out) = (FieldWriter::new(Some(&names)), Vec::new());
        let mut head = HeadWriter::resume(&mut out);
        for (name, value) in &headers {
            writer.write_field(name, value, &mut head);
        }

        let lines = "HOST: a\r\nX-MiXed: One\r\nx-mixed: Two\r\nx-new: 1\r\n";
        assert_eq!(String::from_utf8(out).unwrap(), lines);
    }

    #[test]
    fn only_what_was_announced_comes_behind_a_body() {
        let headers = |fields: &[(&'static str, &'static str)]| {
            let fields = fields.iter().map(|(name, value)| {
                (HeaderName::from_static(name), HeaderValue::from_static(value))
            });
            fields.collect::<HeaderMap>()
        };
        let announced = headers(&[("trailer", "X-Sum, host")]);
        let trailers = headers(&[("x-sum", "1"), ("x-more", "2"), ("host", "b")]);

        let mut out = Vec::new();
        write_announced(&announced, &trailers, &mut out);

        assert_eq!(String::from_utf8(out).unwrap(), "0\r\nx-sum: 1\r\n\r\n");
    }
}
