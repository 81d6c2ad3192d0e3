//! Compressing answers on their way.

use std::io::{self, Write};

use brotli::CompressorWriter;
use bytes::Bytes;
use flate2::Compression;
use flate2::write::{GzEncoder, ZlibEncoder};
use http::header::{
    ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, ETAG, VARY,
};
use http::{HeaderMap, HeaderValue, StatusCode};

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

/// The way that the visitor likes best among those that are offered.
pub fn negotiate_coding(headers: &HeaderMap, offered: &[Coding]) -> Option<Coding> {
    let accepted: Vec<&str> = headers
        .get_all(ACCEPT_ENCODING)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .collect();
    let mut best: Option<(u16, Coding)> = None;
    for coding in offered {
        let weight = coding_weight(&accepted, coding.name());
        if weight > best.map_or(0, |(best, _)| best) {
            best = Some((weight, *coding));
        }
    }
    best.map(|(_, coding)| coding)
}

/// How much a visitor likes a coding, in thousandths; `*` speaks for those it does not name.
fn coding_weight(accepted: &[&str], name: &str) -> u16 {
    let of = |encoding: &str| {
        accepted.iter().find_map(|entry| {
            let (coding, parameters) = entry.split_once(';').unwrap_or((entry, ""));
            coding.trim().eq_ignore_ascii_case(encoding).then(|| parse_quality(parameters))
        })
    };
    of(name).or_else(|| of("*")).unwrap_or(0)
}

fn parse_quality(parameters: &str) -> u16 {
    let q = parameters.split(';').find_map(|parameter| {
        let (name, value) = parameter.split_once('=')?;
        name.trim().eq_ignore_ascii_case("q").then(|| value.trim().parse::<f32>().ok())?
    });
    let thousandths = q.unwrap_or(1.0).clamp(0.0, 1.0) * 1000.0;
    // The range was made to fit.
    thousandths as u16
}

/// Whether a response with this head has a body that can be compressed, if it has one.
pub fn is_compressible(status: StatusCode, headers: &HeaderMap) -> bool {
    let bodiless = matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED)
        || status.is_informational()
        || headers.get(CONTENT_LENGTH).is_some_and(|length| length == "0");
    let untouchable = headers.get_all(CACHE_CONTROL).iter().any(|value| {
        value.to_str().is_ok_and(|value| value.to_ascii_lowercase().contains("no-transform"))
    });
    !bodiless && !untouchable && !is_encoded(headers) && !headers.contains_key(CONTENT_RANGE)
}

/// Whether the body is compressed already.
pub fn is_encoded(headers: &HeaderMap) -> bool {
    headers.get(CONTENT_ENCODING).is_some_and(|value| value != "identity")
}

/// Says in the headers that the body is compressed.
pub fn set_coding_headers(headers: &mut HeaderMap, coding: Coding) {
    headers.remove(CONTENT_LENGTH);
    headers.insert(CONTENT_ENCODING, HeaderValue::from_static(coding.name()));
    headers.append(VARY, HeaderValue::from_static("Accept-Encoding"));
    weaken_etag(headers);
}

/// An entity tag names bytes; these are others, which mean the same.
fn weaken_etag(headers: &mut HeaderMap) {
    let strong = headers.get(ETAG).filter(|tag| !tag.as_bytes().starts_with(b"W/"));
    let weak = strong.map(|tag| [b"W/", tag.as_bytes()].concat());
    if let Some(weak) = weak.and_then(|weak| HeaderValue::from_bytes(&weak).ok()) {
        headers.insert(ETAG, weak);
    }
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
            Coding::Gzip => Self::Gzip(GzEncoder::new(Vec::new(), Compression::default())),
            Coding::Deflate => Self::Deflate(ZlibEncoder::new(Vec::new(), Compression::default())),
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

    fn chosen(accepted: &str) -> Option<Coding> {
        let headers = [(ACCEPT_ENCODING, accepted.parse().unwrap())];
        negotiate_coding(&HeaderMap::from_iter(headers), ALL)
    }

    #[test]
    fn the_visitor_decides() {
        assert_eq!(chosen("gzip, br"), Some(Coding::Gzip));
        assert_eq!(chosen("gzip;q=0.5, br"), Some(Coding::Brotli));
        assert_eq!(chosen("*;q=0.1, gzip;q=0"), Some(Coding::Deflate));
        assert_eq!(chosen("identity"), None);
        assert_eq!(chosen("gzip;q=0"), None);
        assert_eq!(negotiate_coding(&HeaderMap::new(), ALL), None);
    }
}
