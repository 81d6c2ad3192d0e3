//! Compression of responses: which are compressed, in which coding, and with which head.

use std::io::{self, Write};

use brotli::CompressorWriter;
use bytes::Bytes;
use flate2::write::{GzEncoder, ZlibEncoder};
use http::header::{
    ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, ETAG,
    IF_NONE_MATCH,
};
use http::{HeaderMap, HeaderValue, Method, StatusCode, response};

use ginnel_http1::{
    MediaType, RepresentationChange, add_vary, change_representation, elements_of, has_content,
    has_token, list_elements, weaken_etag,
};

/// The minimum length of a body that is compressed, in bytes.
pub const MIN_BYTES: u64 = 128;
/// The number of bytes at the beginning of a body that show if it shrinks.
pub const SAMPLE_BYTES: usize = 1024;
/// The length of the field that names a coding, which a compressed response has in addition.
const CODING_FIELD_BYTES: usize = "content-encoding: gzip\r\n".len();
/// The field by which responses vary that can be compressed.
const VARY_FIELD: &str = "Accept-Encoding";

/// How hard brotli tries: fast enough for answers that are made now.
const EFFORT: u32 = 4;
/// The window of brotli, as a power of two.
const WINDOW: u32 = 20;
/// How much brotli gathers before it works, in bytes.
const GATHERED: usize = 4096;

/// A way to compress.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Coding {
    /// `gzip`.
    Gzip,
    /// `deflate`, in a zlib envelope.
    Deflate,
    /// `br`.
    Brotli,
}

/// Every way, best first.
pub const ALL: &[Coding] = &[Coding::Gzip, Coding::Deflate, Coding::Brotli];

impl Coding {
    /// What headers call it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Gzip => "gzip",
            Self::Deflate => "deflate",
            Self::Brotli => "br",
        }
    }
}

/// The compression of the response to a request, as far as the request decides about it.
#[derive(Debug, Clone)]
pub struct ResponseCompression {
    /// The best coding for the visitor. `None` if the visitor does not accept any offered coding.
    coding: Option<Coding>,
    /// If true, the visitor refuses content without a coding.
    refuses_identity: bool,
    /// If true, the visitor refuses changed content (RFC 9111, section 5.2.1.6).
    refuses_change: bool,
    /// If true, the response has no body because the method is HEAD.
    to_head: bool,
    /// The entity tags that the visitor knows, as lines of `If-None-Match`.
    known_tags: Vec<HeaderValue>,
}

/// Compressed content.
#[derive(Debug)]
pub struct CompressedContent {
    /// Its coding.
    pub coding: Coding,
    /// Its bytes; none in a response to HEAD.
    pub bytes: Bytes,
}

impl ResponseCompression {
    /// Negotiates the coding of a response (RFC 9110, section 12.5.3). Of codings that the visitor likes equally, the one
    /// that is offered first is used.
    pub fn from_request(method: &Method, headers: &HeaderMap, offered: &[Coding]) -> Self {
        let (accepted, tags) =
            (AcceptedCodings::from_headers(headers), headers.get_all(IF_NONE_MATCH));
        Self {
            coding: accepted.best_of(offered),
            refuses_identity: accepted.identity == Some(0),
            refuses_change: has_token(headers, CACHE_CONTROL, "no-transform"),
            to_head: method == Method::HEAD,
            known_tags: tags.into_iter().cloned().collect(),
        }
    }

    /// Returns the best coding for the visitor.
    pub fn coding(&self) -> Option<Coding> {
        self.coding
    }

    /// Marks the head of a response that could have been compressed for some visitor, and returns the coding if this one can
    /// be. `length` is the length of the body, if it is known.
    pub fn prepare_head(&self, head: &mut response::Parts, length: Option<u64>) -> Option<Coding> {
        let (status, headers) = (head.status, &mut head.headers);
        if !is_compressible(headers, length) {
            return None;
        }
        match status {
            StatusCode::NOT_MODIFIED => self.mark_not_modified(headers),
            // It has the `Vary` of the complete response (RFC 9110, section 15.3.7).
            StatusCode::PARTIAL_CONTENT => add_vary(headers, VARY_FIELD),
            status if !has_content(status) || headers.contains_key(CONTENT_RANGE) => {}
            _ => return self.prepare_content(headers, length),
        }
        None
    }

    fn prepare_content(&self, headers: &mut HeaderMap, length: Option<u64>) -> Option<Coding> {
        let is_tiny = length.is_some_and(|length| length < MIN_BYTES);
        let coding = self.coding.filter(|_| !self.refuses_change && length != Some(0));
        let coding = coding.filter(|_| !is_tiny || self.refuses_identity);
        if coding.is_some() || !is_tiny {
            add_vary(headers, VARY_FIELD);
        }
        coding
    }

    /// Compresses the whole body of a response and changes its head. Returns `None` for a response that is sent as it is.
    pub fn compress_whole(
        &self,
        head: &mut response::Parts,
        body: &Bytes,
    ) -> io::Result<Option<CompressedContent>> {
        if self.to_head && body.is_empty() {
            return Ok(self.compress_head(head).map(|coding| {
                let bytes = Bytes::new();
                CompressedContent { coding, bytes }
            }));
        }
        let Some(coding) = self.prepare_head(head, Some(body.len() as u64)) else {
            return Ok(None);
        };
        let mut encoder = Encoder::new(coding);
        let bytes = [encoder.compress_chunk(body)?, encoder.finish()?].concat();
        if bytes.len() + CODING_FIELD_BYTES >= body.len() && !self.refuses_identity {
            return Ok(None);
        }
        set_coding(&mut head.headers, coding, Some(bytes.len()));
        Ok(Some(CompressedContent { coding, bytes: bytes.into() }))
    }

    /// Gives the response to HEAD the head that GET would have, if its body would be compressed.
    pub fn compress_head(&self, head: &mut response::Parts) -> Option<Coding> {
        let coding = self.prepare_head(head, announced_length(&head.headers))?;
        set_coding(&mut head.headers, coding, None);
        Some(coding)
    }

    /// Changes the head of a response whose body is compressed on its way. Returns `None` if `beginning`, the first bytes of
    /// the body, does not shrink.
    pub fn begin_stream(
        &self,
        coding: Coding,
        headers: &mut HeaderMap,
        beginning: &[u8],
    ) -> io::Result<Option<Encoder>> {
        if !self.refuses_identity && !does_shrink(beginning)? {
            return Ok(None);
        }
        set_coding(headers, coding, None);
        Ok(Some(Encoder::new(coding)))
    }

    /// Returns true if the response has no body because the method is HEAD.
    pub fn is_to_head(&self) -> bool {
        self.to_head
    }

    /// Gives a 304 the fields of the 200 that it confirms (RFC 9110, section 15.4.5): with the strong entity tag only if the
    /// visitor knows it.
    fn mark_not_modified(&self, headers: &mut HeaderMap) {
        add_vary(headers, VARY_FIELD);
        let tag = headers.get(ETAG).map(HeaderValue::as_bytes);
        let lines = self.known_tags.iter().flat_map(|line| list_elements(line.as_bytes()));
        let is_known = lines.into_iter().any(|known| Some(known) == tag);
        if self.coding.is_some() && !self.refuses_change && !is_known {
            weaken_etag(headers);
        }
    }
}

/// The codings that a visitor accepts, with weights in thousandths.
struct AcceptedCodings<'h> {
    named: Vec<(&'h [u8], u16)>,
    /// The weight of content without a coding. `None` if the visitor does not mention it.
    identity: Option<u16>,
}

impl<'h> AcceptedCodings<'h> {
    fn from_headers(headers: &'h HeaderMap) -> Self {
        let named: Vec<_> = elements_of(headers, ACCEPT_ENCODING).map(parse_accepted).collect();
        let weight = |name: &[u8]| named.iter().find(|it| it.0.eq_ignore_ascii_case(name));
        let identity = weight(b"identity").map(|it| it.1);
        let refused = weight(b"*").map(|it| it.1).filter(|weight| *weight == 0);
        Self { identity: identity.or(refused), named }
    }

    fn best_of(&self, offered: &[Coding]) -> Option<Coding> {
        let mut best: Option<(u16, Coding)> = None;
        for coding in offered {
            let weight = self.weight_of(*coding);
            let least = best.map_or(0, |(best, _)| best);
            if weight > least && weight >= self.identity.unwrap_or(0) {
                best = Some((weight, *coding));
            }
        }
        best.map(|(_, coding)| coding)
    }

    /// Returns the weight of a coding; `*` means those that are not named.
    fn weight_of(&self, coding: Coding) -> u16 {
        let of = |names: &[&str]| {
            let is_one =
                |name: &[u8]| names.iter().any(|it| name.eq_ignore_ascii_case(it.as_bytes()));
            self.named.iter().find(|(name, _)| is_one(name)).map(|(_, weight)| *weight)
        };
        // `x-gzip` is `gzip` (RFC 9110, section 8.4.1.3).
        let named =
            if coding == Coding::Gzip { of(&["gzip", "x-gzip"]) } else { of(&[coding.name()]) };
        named.or_else(|| of(&["*"])).unwrap_or(0)
    }
}

/// Parses an element of `Accept-Encoding` into a name and a weight in thousandths.
fn parse_accepted(element: &[u8]) -> (&[u8], u16) {
    let mut parts = element.split(|byte| *byte == b';').map(<[u8]>::trim_ascii);
    let name = parts.next().unwrap_or_default();
    let quality = parts.find_map(|parameter| {
        let value = parameter.strip_prefix(b"q=").or_else(|| parameter.strip_prefix(b"Q="))?;
        str::from_utf8(value.trim_ascii()).ok()?.parse::<f32>().ok()
    });
    let thousandths = quality.unwrap_or(1.0).clamp(0.0, 1.0) * 1000.0;
    // The range fits.
    (name, thousandths as u16)
}

/// Returns true if a body with this head can be compressed, if it is complete.
fn is_compressible(headers: &HeaderMap, length: Option<u64>) -> bool {
    let media_type = MediaType::from_headers(headers);
    let is_endless = media_type.is_endless() || media_type.is_json_lines() && length.is_none();
    !is_endless
        && !media_type.is_compressed()
        && !is_encoded(headers)
        && !has_token(headers, CACHE_CONTROL, "no-transform")
}

/// Returns the length of a body that its head announces.
pub fn announced_length(headers: &HeaderMap) -> Option<u64> {
    headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// Returns true if the body has a content coding.
pub fn is_encoded(headers: &HeaderMap) -> bool {
    elements_of(headers, CONTENT_ENCODING).any(|coding| !coding.eq_ignore_ascii_case(b"identity"))
}

fn set_coding(headers: &mut HeaderMap, coding: Coding, length: Option<usize>) {
    change_representation(headers, RepresentationChange::Coded { coding: coding.name(), length });
}

/// Returns true if compression makes bytes shorter. Fewer bytes than are worth the effort decide nothing.
fn does_shrink(bytes: &[u8]) -> io::Result<bool> {
    if (bytes.len() as u64) < MIN_BYTES {
        return Ok(true);
    }
    let sample = bytes.get(..SAMPLE_BYTES).unwrap_or(bytes);
    let mut encoder = GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(sample)?;
    Ok(encoder.finish()?.len() < sample.len())
}

/// Compresses a body piece by piece.
#[allow(missing_docs, reason = "each is the coding of that name")]
pub enum Encoder {
    Gzip(GzEncoder<Vec<u8>>),
    Deflate(ZlibEncoder<Vec<u8>>),
    Brotli(Box<CompressorWriter<Vec<u8>>>),
}

macro_rules! each {
    ($encoder:expr, $inner:ident => $call:expr) => {
        match $encoder {
            Encoder::Gzip($inner) => $call,
            Encoder::Deflate($inner) => $call,
            Encoder::Brotli($inner) => $call,
        }
    };
}

impl Encoder {
    /// An encoder that has taken nothing yet.
    pub fn new(coding: Coding) -> Self {
        match coding {
            Coding::Gzip => Self::Gzip(GzEncoder::new(Vec::new(), flate2::Compression::default())),
            Coding::Deflate => {
                Self::Deflate(ZlibEncoder::new(Vec::new(), flate2::Compression::default()))
            }
            Coding::Brotli => {
                Self::Brotli(Box::new(CompressorWriter::new(Vec::new(), GATHERED, EFFORT, WINDOW)))
            }
        }
    }

    /// Takes a piece; gives what has come out, which may be nothing yet.
    pub fn compress_chunk(&mut self, piece: &[u8]) -> io::Result<Bytes> {
        each!(self, inner => inner.write_all(piece))?;
        Ok(self.take_output())
    }

    /// Gives everything that was taken, so that nobody waits for it.
    pub fn flush(&mut self) -> io::Result<Bytes> {
        each!(self, inner => inner.flush())?;
        Ok(self.take_output())
    }

    /// Gives the end.
    pub fn finish(self) -> io::Result<Bytes> {
        let rest = match self {
            Self::Gzip(inner) => inner.finish()?,
            Self::Deflate(inner) => inner.finish()?,
            Self::Brotli(inner) => inner.into_inner(),
        };
        Ok(rest.into())
    }

    fn take_output(&mut self) -> Bytes {
        let out = each!(self, inner => inner.get_mut());
        std::mem::take(out).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn negotiate(method: &Method, fields: &[(&str, &str)]) -> ResponseCompression {
        let mut request = http::Request::get("/");
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        ResponseCompression::from_request(method, request.body(()).unwrap().headers(), ALL)
    }

    fn response(status: u16, fields: &[(&str, &str)]) -> response::Parts {
        let mut response = http::Response::builder().status(status);
        for (name, value) in fields {
            response = response.header(*name, *value);
        }
        response.body(()).unwrap().into_parts().0
    }

    fn gzip(fields: &[(&str, &str)]) -> ResponseCompression {
        let fields = [&[("accept-encoding", "gzip")], fields].concat();
        negotiate(&Method::GET, &fields)
    }

    fn chosen(accepted: &str) -> Option<Coding> {
        negotiate(&Method::GET, &[("accept-encoding", accepted)]).coding
    }

    #[test]
    fn the_visitor_decides() {
        assert_eq!(chosen("gzip, br"), Some(Coding::Gzip));
        assert_eq!(chosen("gzip;q=0.5, br"), Some(Coding::Brotli));
        assert_eq!(chosen("*;q=0.1, gzip;q=0"), Some(Coding::Deflate));
        assert_eq!(chosen("X-GZIP ; Q=1"), Some(Coding::Gzip));
        assert_eq!(chosen("identity"), None);
        assert_eq!(chosen("identity, gzip;q=0.5"), None, "the visitor prefers plain content");
        assert_eq!(chosen("identity;q=0.5, gzip;q=0.5"), Some(Coding::Gzip));
        assert_eq!(chosen("identity;q=0, *"), Some(Coding::Gzip));
        assert_eq!(chosen("gzip;q=0"), None);
        assert_eq!(chosen("gzip;q=0.000, *;q=0"), None);
        assert_eq!(negotiate(&Method::GET, &[]).coding, None);
    }

    #[test]
    fn what_could_have_been_compressed_varies() {
        let long = Some(1000);
        for (status, fields, length, vary, coded) in [
            (200, &[][..], long, true, true),
            (200, &[], None, true, true),
            (404, &[("content-type", "text/html")], long, true, true),
            (200, &[("content-encoding", "Identity")], long, true, true),
            (200, &[("content-encoding", "gzip")], long, false, false),
            (
                200,
                &[("content-encoding", "identity"), ("content-encoding", "br")],
                long,
                false,
                false,
            ),
            (200, &[("cache-control", "public, No-Transform")], long, false, false),
            (200, &[("cache-control", "x-no-transform")], long, true, true),
            (200, &[("content-type", "image/png")], long, false, false),
            (200, &[("content-type", "image/svg+xml")], long, true, true),
            (200, &[("content-type", "text/event-stream")], None, false, false),
            (200, &[("content-type", "application/grpc")], None, false, false),
            (200, &[("content-type", "application/x-ndjson")], None, false, false),
            (200, &[("content-type", "application/x-ndjson")], long, true, true),
            (200, &[], Some(MIN_BYTES - 1), false, false),
            (204, &[], None, false, false),
            (205, &[], None, false, false),
            (206, &[("content-range", "bytes 0-1/9")], long, true, false),
            (206, &[("content-type", "multipart/byteranges")], long, true, false),
            (416, &[("content-range", "bytes */9")], None, false, false),
            (304, &[], None, true, false),
        ] {
            let mut head = response(status, fields);
            let coding = gzip(&[]).prepare_head(&mut head, length);
            assert_eq!(coding.is_some(), coded, "{status} {fields:?} {length:?}");
            assert_eq!(head.headers.contains_key("vary"), vary, "{status} {fields:?} {length:?}");
        }
    }

    #[test]
    fn a_visitor_that_refuses_plain_content_gets_tiny_content_compressed() {
        let refusing = negotiate(&Method::GET, &[("accept-encoding", "gzip, *;q=0")]);
        for (body, is_coded) in [("tiny", true), ("", false)] {
            let mut head = response(200, &[]);
            let made = refusing.compress_whole(&mut head, &Bytes::from_static(body.as_bytes()));
            assert_eq!(made.unwrap().is_some(), is_coded, "{body}");
        }
    }

    #[test]
    fn a_304_has_the_entity_tag_that_the_visitor_knows() {
        for (asked, tag) in [("W/\"a\"", "W/\"a\""), ("\"b\", \"a\"", "\"a\""), ("", "W/\"a\"")] {
            let mut head = response(304, &[("etag", "\"a\"")]);
            gzip(&[("if-none-match", asked)]).prepare_head(&mut head, None);
            assert_eq!(head.headers["etag"], tag, "{asked}");
        }
    }

    #[test]
    fn a_head_response_has_the_fields_of_get() {
        let compression = negotiate(&Method::HEAD, &[("accept-encoding", "gzip")]);
        for (length, is_coded) in [("1000", true), ("4", false), ("0", false)] {
            let mut head = response(200, &[("content-length", length), ("accept-ranges", "bytes")]);
            assert_eq!(compression.compress_head(&mut head).is_some(), is_coded);
            assert_eq!(head.headers.contains_key("content-length"), !is_coded);
            assert_eq!(head.headers.contains_key("accept-ranges"), !is_coded);
        }
    }

    #[test]
    fn content_that_does_not_shrink_is_sent_as_it_is() {
        // A generator of noise: xorshift.
        let mut state = 0x2545_f491_4f6c_dd1d_u64;
        let noise = std::iter::repeat_with(|| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state as u8
        });
        let noise: Vec<u8> = noise.take(4096).collect();
        let mut head = response(200, &[("etag", "\"a\"")]);

        assert!(gzip(&[]).compress_whole(&mut head, &noise.clone().into()).unwrap().is_none());
        let begun = gzip(&[]).begin_stream(Coding::Gzip, &mut head.headers, &noise).unwrap();
        assert!(begun.is_none());
        assert_eq!(
            (&head.headers["etag"], &head.headers["vary"]),
            (&HeaderValue::from_static("\"a\""), &HeaderValue::from_static("Accept-Encoding"),)
        );
        let text = Bytes::from("so it goes ".repeat(40));
        let made = gzip(&[]).compress_whole(&mut head, &text).unwrap().unwrap();
        assert_eq!(head.headers["content-length"], made.bytes.len().to_string());
    }
}
