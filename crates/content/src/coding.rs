//! Content codings of captured bodies (RFC 9110, section 8.4).

use std::borrow::Cow;

use ginnel_http1::coding::{ContentCoding, DecodedEnd};
use ginnel_http1::list_elements;

use crate::zstd::decode_zstd;

/// The largest number of codings that are removed from a body.
const MAX_CODINGS: usize = 5;
/// The largest number of letters of a coding that are shown.
const MAX_NAME_CHARS: usize = 40;

/// A body without its content codings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DecodedContent<'a> {
    /// The content, as far as it could be read.
    pub bytes: Cow<'a, [u8]>,
    /// The codings that were removed, as the header names them.
    pub removed: Vec<String>,
    /// The first coding that could not be removed.
    pub unread: Option<UnreadCoding>,
    /// The end of the content.
    pub end: DecodedEnd,
}

/// A coding that could not be removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnreadCoding {
    /// The name in the header, which may be long or have any letters; the first 40 letters.
    pub name: String,
    /// The reason.
    pub reason: UnreadReason,
}

/// A reason why a coding could not be removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnreadReason {
    /// The name is not a known coding. Some clients name a charset there.
    Unknown,
    /// The body is not in this coding.
    Damaged,
    /// The body ends before its first readable byte.
    Cut,
    /// The body has more codings than are removed.
    TooMany,
}

impl UnreadCoding {
    fn new(name: &[u8], reason: UnreadReason) -> Self {
        let name = String::from_utf8_lossy(name).chars().take(MAX_NAME_CHARS).collect();
        Self { name, reason }
    }

    /// Describes the coding and the reason.
    pub fn description(&self) -> String {
        let name = &self.name;
        match self.reason {
            UnreadReason::Unknown => format!("{name} is not a known content coding"),
            UnreadReason::Damaged => format!("the body is not {name}"),
            UnreadReason::Cut => format!("{name}, its end is missing"),
            UnreadReason::TooMany => format!("more than {MAX_CODINGS} content codings: {name}"),
        }
    }
}

/// Removes the codings that the lines of `Content-Encoding` name from a body, up to `max` bytes.
///
/// A name that is not a coding is passed over, because the body may be readable nevertheless. If a coding does not match
/// the body, the body stays as it is.
pub fn remove_codings<'a, 'l>(
    lines: impl IntoIterator<Item = &'l [u8]>,
    body: impl Into<Cow<'a, [u8]>>,
    max: usize,
) -> DecodedContent<'a> {
    let body = body.into();
    let is_coding = |name: &&[u8]| !name.eq_ignore_ascii_case(b"identity");
    let names: Vec<_> = lines.into_iter().flat_map(list_elements).filter(is_coding).collect();
    let mut content =
        DecodedContent { bytes: body, removed: Vec::new(), unread: None, end: DecodedEnd::Whole };
    if content.bytes.is_empty() {
        return content;
    }
    if names.len() > MAX_CODINGS {
        let last = names.last().copied().unwrap_or_default();
        content.unread = Some(UnreadCoding::new(last, UnreadReason::TooMany));
        return content;
    }
    // The last coding was applied last.
    for name in names.into_iter().rev() {
        content.remove_coding(name, max);
    }
    content.removed.reverse();
    content
}

impl DecodedContent<'_> {
    fn remove_coding(&mut self, name: &[u8], max: usize) {
        if self.bytes.is_empty() {
            return;
        }
        let Some((decoded, end)) = decode_some(name, &self.bytes, max) else {
            return self.leave_coding(name, UnreadReason::Unknown);
        };
        match end {
            DecodedEnd::Damaged if decoded.is_empty() => {
                self.leave_coding(name, UnreadReason::Damaged)
            }
            DecodedEnd::Cut if decoded.is_empty() => self.leave_coding(name, UnreadReason::Cut),
            end => {
                self.bytes = Cow::Owned(decoded);
                self.removed.push(String::from_utf8_lossy(name).to_ascii_lowercase());
                // An inner coding ends early because the outer one did.
                if self.end == DecodedEnd::Whole {
                    self.end = end;
                }
            }
        }
    }

    fn leave_coding(&mut self, name: &[u8], reason: UnreadReason) {
        self.unread.get_or_insert_with(|| UnreadCoding::new(name, reason));
    }
}

/// Removes one coding. Returns `None` if the name is not a known coding.
fn decode_some(name: &[u8], body: &[u8], max: usize) -> Option<(Vec<u8>, DecodedEnd)> {
    if name.eq_ignore_ascii_case(b"zstd") {
        return Some(decode_zstd(body, max));
    }
    let coding = ContentCoding::from_name(name)?.ok()?;
    Some(coding.decode_some(body, max))
}
