//! Content codings (RFC 9110, section 8.4): takes off a body what was put on for the way, for clients
//! that need all of it, and for those who look at as much as there is.
//!
//! zstd is not among them, and clients never offer it: servers that know zstd know one of the others as well. The crate
//! `content` removes zstd from captured bodies.

use std::borrow::Cow;
use std::io::{self, Read};

use brotli::enc::StandardAlloc;
use brotli::{BrotliDecompressStream, BrotliResult, BrotliState};
use flate2::bufread::GzDecoder;
use flate2::{Decompress, FlushDecompress, Status};

/// What requests offer to take.
pub const ACCEPT_ENCODING: &str = "gzip, deflate, br";
/// How many codings a body may have.
const MAX_CODINGS: usize = 3;
/// How much room the first reading of a body gets, in sizes of the coded body.
const INITIAL_GROWTH_FACTOR: usize = 4;
/// How much of an unknown name an error shows.
const MAX_NAME_CHARS: usize = 40;
/// How a member of gzip begins (RFC 1952, section 2.3.1).
const GZIP_MAGIC: &[u8] = &[0x1f, 0x8b];

/// Why a body stays coded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CodingError {
    /// The coding is none of those that requests offer to take. The body may be whole.
    #[error("its content coding {0:?} is not supported; gzip, deflate and br are")]
    Unknown(String),
    /// There are more codings than anybody needs. The body may be whole.
    #[error("it has {0} content codings, more than {MAX_CODINGS}")]
    TooMany(usize),
    /// The body is not what its coding says.
    #[error("its content coding {coding} is damaged: {problem}")]
    Damaged {
        /// The coding.
        coding: &'static str,
        /// What is wrong with the body.
        problem: String,
    },
    /// The body without its codings is longer than is taken.
    #[error("it unfolds to more than {0} bytes")]
    TooLong(usize),
}

impl CodingError {
    /// True where the body may be whole, and only cannot be read here: the answer's status counts.
    pub fn is_unsupported(&self) -> bool {
        matches!(self, Self::Unknown(_) | Self::TooMany(_))
    }
}

/// A content coding that this crate removes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum ContentCoding {
    Gzip,
    Deflate,
    Brotli,
}

/// What can be wrong with one coding.
enum CodingProblem {
    Damaged(String),
    /// It ends early.
    Cut,
    TooLong,
}

/// How the reading of as much as there is of a body ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DecodedEnd {
    /// With the end of the body.
    Whole,
    /// With as many bytes as are taken; there are more.
    Longer,
    /// Too early: the coded body was cut off.
    Cut,
    /// At bytes that are not what the coding says.
    Damaged,
}

impl DecodedEnd {
    fn from_problem(problem: Option<&CodingProblem>) -> Self {
        match problem {
            None => Self::Whole,
            Some(CodingProblem::TooLong) => Self::Longer,
            Some(CodingProblem::Cut) => Self::Cut,
            Some(CodingProblem::Damaged(_)) => Self::Damaged,
        }
    }
}

/// A body without a coding, as far as it could be read, and why not further.
type PartialBody = (Vec<u8>, Option<CodingProblem>);

/// Takes the codings off that the lines of `Content-Encoding` name, up to `max` bytes. An empty body
/// has none. Where nothing is taken off, the body is what it was.
pub fn decode_body<'a, 'b>(
    lines: impl IntoIterator<Item = &'a [u8]>,
    body: &'b [u8],
    max: usize,
) -> Result<Cow<'b, [u8]>, CodingError> {
    if body.is_empty() {
        return Ok(Cow::Borrowed(body));
    }
    // The last one was put on last.
    parse_codings(lines)?.into_iter().rev().try_fold(Cow::Borrowed(body), |body, coding| match body
        .is_empty()
    {
        true => Ok(body),
        false => coding.decode_whole(&body, max).map(Cow::Owned),
    })
}

pub(super) fn parse_codings<'a>(
    lines: impl IntoIterator<Item = &'a [u8]>,
) -> Result<Vec<ContentCoding>, CodingError> {
    let names = lines.into_iter().flat_map(|line| line.split(|byte| *byte == b','));
    let codings = names.map(<[u8]>::trim_ascii).filter_map(ContentCoding::from_name);
    let codings = codings.collect::<Result<Vec<_>, _>>()?;
    if codings.len() > MAX_CODINGS { Err(CodingError::TooMany(codings.len())) } else { Ok(codings) }
}

impl ContentCoding {
    /// The coding of this name; `None` for one that changes nothing.
    pub fn from_name(name: &[u8]) -> Option<Result<Self, CodingError>> {
        Some(match name.to_ascii_lowercase().as_slice() {
            b"" | b"identity" => return None,
            b"gzip" | b"x-gzip" => Ok(Self::Gzip),
            b"deflate" => Ok(Self::Deflate),
            b"br" => Ok(Self::Brotli),
            _ => {
                let shown = String::from_utf8_lossy(name);
                Err(CodingError::Unknown(shown.chars().take(MAX_NAME_CHARS).collect()))
            }
        })
    }

    /// Removes the coding from as much of a body as can be read, up to `max` bytes. The body may be cut off, or
    /// damaged further on.
    pub fn decode_some(self, body: &[u8], max: usize) -> (Vec<u8>, DecodedEnd) {
        let (decoded, problem) = self.decode_partial(body, max);
        (decoded, DecodedEnd::from_problem(problem.as_ref()))
    }

    fn name(self) -> &'static str {
        match self {
            Self::Gzip => "gzip",
            Self::Deflate => "deflate",
            Self::Brotli => "br",
        }
    }

    fn decode_whole(self, body: &[u8], max: usize) -> Result<Vec<u8>, CodingError> {
        match self.decode_partial(body, max) {
            (decoded, None) => Ok(decoded),
            (_, Some(CodingProblem::TooLong)) => Err(CodingError::TooLong(max)),
            (_, Some(CodingProblem::Cut)) => {
                let problem = "it ends early".to_owned();
                Err(CodingError::Damaged { coding: self.name(), problem })
            }
            (_, Some(CodingProblem::Damaged(problem))) => {
                Err(CodingError::Damaged { coding: self.name(), problem })
            }
        }
    }

    fn decode_partial(self, body: &[u8], max: usize) -> PartialBody {
        let (mut decoded, problem) = match self {
            Self::Gzip => decode_gzip(body, max),
            Self::Deflate => decode_deflate(body, max),
            Self::Brotli => decode_brotli(body, max),
        };
        decoded.truncate(max);
        (decoded, problem)
    }
}

/// All members of a gzip file. What follows them and is none is ignored, as gunzip does: padding.
fn decode_gzip(body: &[u8], max: usize) -> PartialBody {
    let mut decoded = Vec::with_capacity(first_capacity(body, max));
    let mut member = GzDecoder::new(body);
    loop {
        let left = max - decoded.len();
        // What comes before a mistake is read.
        match member.by_ref().take(left as u64 + 1).read_to_end(&mut decoded) {
            Ok(read) if read > left => return (decoded, Some(CodingProblem::TooLong)),
            Ok(_) => {}
            Err(error) => return (decoded, Some(io_problem(&error))),
        }
        let rest = *member.get_ref();
        if !rest.starts_with(GZIP_MAGIC) {
            return (decoded, None);
        }
        member.reset(rest);
    }
}

fn io_problem(error: &io::Error) -> CodingProblem {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => CodingProblem::Cut,
        _ => CodingProblem::Damaged(error.to_string()),
    }
}

/// A `deflate` body: in the format of zlib, as it should be, or without its header, as some send it.
fn decode_deflate(body: &[u8], max: usize) -> PartialBody {
    if !has_zlib_header(body) {
        return inflate(body, false, max);
    }
    let as_zlib = inflate(body, true, max);
    if matches!(as_zlib.1, None | Some(CodingProblem::TooLong)) {
        return as_zlib;
    }
    // Without a header, a body may begin like one.
    match inflate(body, false, max) {
        raw @ (_, None) => raw,
        _ => as_zlib,
    }
}

/// Whether a body begins like one of zlib (RFC 1950, section 2.2).
pub(super) fn has_zlib_header(body: &[u8]) -> bool {
    match body {
        [first, second, ..] => first & 0x0f == 8 && u16::from_be_bytes([*first, *second]) % 31 == 0,
        _ => false,
    }
}

fn inflate(body: &[u8], zlib: bool, max: usize) -> PartialBody {
    let mut state = Decompress::new(zlib);
    let mut decoded = Vec::with_capacity(first_capacity(body, max));
    let mut rest = body;
    loop {
        let (taken, written) = (state.total_in(), decoded.len());
        let status = match state.decompress_vec(rest, &mut decoded, FlushDecompress::None) {
            Ok(status) => status,
            Err(error) => return (decoded, Some(CodingProblem::Damaged(error.to_string()))),
        };
        if decoded.len() > max {
            return (decoded, Some(CodingProblem::TooLong));
        }
        let taken = usize::try_from(state.total_in() - taken).unwrap_or(rest.len());
        rest = rest.get(taken..).unwrap_or_default();
        if status == Status::StreamEnd {
            return (decoded, None);
        }
        if decoded.len() == decoded.capacity() {
            decoded.reserve_exact(buffer_growth(decoded.len(), max));
        } else if taken == 0 && decoded.len() == written {
            return (decoded, Some(CodingProblem::Cut));
        }
    }
}

fn decode_brotli(body: &[u8], max: usize) -> PartialBody {
    let alloc = StandardAlloc::default;
    // Strict: a window of up to 16 MiB as RFC 7932 has it, not of 1 GiB.
    let mut state = BrotliState::new_strict(alloc(), alloc(), alloc());
    let mut decoded = vec![0; first_capacity(body, max)];
    let (mut left, mut taken, mut written, mut total) = (body.len(), 0, 0, 0);
    let problem = loop {
        let mut available = decoded.len() - written;
        let result = BrotliDecompressStream(
            &mut left,
            &mut taken,
            body,
            &mut available,
            &mut written,
            &mut decoded,
            &mut total,
            &mut state,
        );
        if written > max {
            break Some(CodingProblem::TooLong);
        }
        match result {
            BrotliResult::ResultSuccess => break None,
            BrotliResult::NeedsMoreOutput => {
                decoded.resize(decoded.len() + buffer_growth(decoded.len(), max), 0);
            }
            BrotliResult::NeedsMoreInput => break Some(CodingProblem::Cut),
            BrotliResult::ResultFailure => {
                break Some(CodingProblem::Damaged("it is not brotli".to_owned()));
            }
        }
    };
    decoded.truncate(written);
    (decoded, problem)
}

/// How much room a body gets at first: one byte more than `max` at most, to see that there is more.
fn first_capacity(body: &[u8], max: usize) -> usize {
    body.len().saturating_mul(INITIAL_GROWTH_FACTOR).min(max.saturating_add(1))
}

/// How much room a body gets further, which is as much as it has.
fn buffer_growth(length: usize, max: usize) -> usize {
    length.max(64).min(max.saturating_add(1).saturating_sub(length)).max(1)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::io::Write;

    use bytes::Bytes;
    use flate2::Compression;
    use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};

    use super::*;

    const TEXT: &[u8] = b"the quick brown fox jumps over the lazy dog, and over it again";
    const FORMS: [(&str, &str); 5] = [
        ("gzip", "gzip"),
        ("gzip", "x-gzip"),
        ("zlib", "deflate"),
        ("raw", "deflate"),
        ("br", "br"),
    ];

    fn coded(form: &str, body: &[u8]) -> Bytes {
        let level = Compression::best();
        let written = match form {
            "gzip" => {
                let mut gzip = GzEncoder::new(Vec::new(), level);
                gzip.write_all(body).unwrap();
                gzip.finish().unwrap()
            }
            "zlib" => {
                let mut zlib = ZlibEncoder::new(Vec::new(), level);
                zlib.write_all(body).unwrap();
                zlib.finish().unwrap()
            }
            "raw" => {
                let mut raw = DeflateEncoder::new(Vec::new(), level);
                raw.write_all(body).unwrap();
                raw.finish().unwrap()
            }
            _ => {
                let mut brotli = Vec::new();
                brotli::CompressorWriter::new(&mut brotli, 4096, 9, 22).write_all(body).unwrap();
                brotli
            }
        };
        written.into()
    }

    fn one(coding: &str, body: impl Into<Bytes>, max: usize) -> Result<Bytes, CodingError> {
        decode_body([coding.as_bytes()], &body.into(), max).map(|body| body.into_owned().into())
    }

    fn is_damaged(decoded: &Result<Bytes, CodingError>) -> bool {
        matches!(decoded, Err(CodingError::Damaged { .. }))
    }

    #[test]
    fn every_coding_is_taken_off_in_any_case() {
        let long = TEXT.repeat(5_000);
        for (form, name) in FORMS {
            for text in [&b"x"[..], TEXT, &long] {
                assert_eq!(one(name, coded(form, text), text.len()).unwrap(), text, "{name}");
                let name = format!(" {} ", name.to_ascii_uppercase());
                assert_eq!(one(&name, coded(form, text), 1 << 20).unwrap(), text, "{name}");
            }
        }
        for name in ["", "identity", "Identity", ",", " , identity"] {
            assert_eq!(one(name, TEXT, 1).unwrap(), TEXT, "{name:?}");
        }
        assert_eq!(decode_body([], TEXT, 1).unwrap(), TEXT);
    }

    #[test]
    fn nothing_stays_nothing() {
        for name in ["gzip", "deflate", "br", "gzip, br", "zstd"] {
            assert_eq!(one(name, Bytes::new(), 10).unwrap(), Bytes::new(), "{name}");
        }
        for (form, name) in FORMS {
            assert_eq!(one(name, coded(form, b""), 10).unwrap(), Bytes::new(), "{name}");
        }
        assert_eq!(one("gzip, br", coded("br", b""), 10).unwrap(), Bytes::new());
    }

    #[test]
    fn codings_are_taken_off_from_the_last_to_the_first() {
        let body = coded("br", &coded("zlib", &coded("gzip", TEXT)));

        assert_eq!(one("gzip, deflate,\tbr", body.clone(), 1000).unwrap(), TEXT);
        assert_eq!(decode_body([&b"gzip,deflate"[..], b"br"], &body, 1000).unwrap(), TEXT);
        assert_eq!(one("gzip,, identity ,deflate,br,", body.clone(), 1000).unwrap(), TEXT);
        assert!(is_damaged(&one("br, deflate, gzip", body.clone(), 1000)));
        let four = one("gzip, gzip, gzip, gzip", body, 1000);
        assert_eq!(four, Err(CodingError::TooMany(4)));
        assert!(four.unwrap_err().is_unsupported());
    }

    #[test]
    fn an_unknown_coding_is_told_from_damage_and_seen_before_it() {
        for (name, shown) in
            [("zstd", "zstd"), ("gzip, Compress", "Compress"), ("gzip br", "gzip br")]
        {
            let error = one(name, TEXT, 1000).unwrap_err();
            assert_eq!(error, CodingError::Unknown(shown.to_owned()));
            assert!(error.is_unsupported());
        }
        let error = decode_body([&b"\xff\x1b[2J"[..]], TEXT, 1000).unwrap_err();
        assert!(!error.to_string().contains('\x1b'), "{error}");
        let long = one(&"x".repeat(9_000), TEXT, 1000).unwrap_err();
        assert!(long.to_string().len() < 150, "{long}");
        let error = one("gzip", TEXT, 1000).unwrap_err();
        assert!(!error.is_unsupported());
    }

    #[test]
    fn every_cut_is_damage() {
        for (form, name) in FORMS {
            let body = coded(form, TEXT);
            for length in 1..body.len() {
                let cut = one(name, body.slice(..length), 1000);
                assert!(is_damaged(&cut), "{name} {length} of {}: {cut:?}", body.len());
            }
        }
    }

    #[test]
    fn no_flipped_bit_of_a_body_with_a_checksum_passes_for_another_text() {
        for (form, name) in [("gzip", "gzip"), ("zlib", "deflate")] {
            let body = coded(form, TEXT);
            for bit in 0..body.len() * 8 {
                let mut flipped = body.to_vec();
                flipped[bit / 8] ^= 1 << (bit % 8);
                match one(name, flipped, 1000) {
                    Ok(decoded) => assert_eq!(decoded, TEXT, "{name}, bit {bit}"),
                    Err(error) => assert!(!error.is_unsupported()),
                }
            }
        }
    }

    #[test]
    fn all_members_of_gzip_are_read_and_padding_is_none() {
        let (first, second) = (coded("gzip", b"one, "), coded("gzip", b"two"));
        let both = [&first[..], &second[..]].concat();

        assert_eq!(one("gzip", both.clone(), 8).unwrap(), &b"one, two"[..]);
        for padding in [&[0; 512][..], b"\n", b"\x1f", b"garbage"] {
            let padded = [&both[..], padding].concat();
            assert_eq!(one("gzip", padded, 8).unwrap(), &b"one, two"[..], "{padding:?}");
        }
        let cut = both[..both.len() - 5].to_vec();
        assert!(is_damaged(&one("gzip", cut, 100)));
        assert_eq!(one("gzip", both, 7), Err(CodingError::TooLong(7)));
        let many = coded("gzip", b"").repeat(10_000);
        assert_eq!(one("gzip", many, 1).unwrap(), Bytes::new());
    }

    #[test]
    fn nothing_unfolds_beyond_the_cap() {
        let zeros = vec![0; 1 << 20];
        for (form, name) in FORMS {
            let bomb = coded(form, &zeros);
            assert!(bomb.len() < 2_000, "{name}: {}", bomb.len());
            assert_eq!(one(name, bomb.clone(), 1 << 20).unwrap().len(), 1 << 20, "{name}");
            for max in [0, 1, 1_000, (1 << 20) - 1] {
                assert_eq!(one(name, bomb.clone(), max), Err(CodingError::TooLong(max)), "{name}");
            }
        }
        // Each of several codings has the cap.
        let twice = coded("gzip", &coded("gzip", &zeros));
        assert_eq!(one("gzip, gzip", twice, 100), Err(CodingError::TooLong(100)));
    }

    #[test]
    fn a_window_of_a_gigabyte_is_no_brotli() {
        // How "large window brotli" begins, with a window of 2^30 bytes.
        let error = one("br", vec![0x11, 0x1e, 0xfc, 0xff, 0xff, 0x0f, 0], 1000).unwrap_err();
        assert!(error.to_string().ends_with("it is not brotli"), "{error}");
    }

    #[test]
    fn garbage_is_damage_and_ends() {
        let mut seed = 1_u32;
        let mut random = || {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (seed >> 24) as u8
        };
        for _ in 0..2_000 {
            let body: Vec<u8> = (0..usize::from(random()) + 1).map(|_| random()).collect();
            for name in ["gzip", "deflate", "br"] {
                if let Ok(decoded) = one(name, body.clone(), 4_096) {
                    assert!(decoded.len() <= 4_096);
                }
            }
        }
    }

    #[test]
    fn what_there_is_of_a_body_is_read() {
        let text = TEXT.repeat(50);
        for (form, name) in FORMS {
            let body = coded(form, &text);
            let coding = ContentCoding::from_name(name.as_bytes()).unwrap().unwrap();
            let some = |body: &[u8], max| coding.decode_some(body, max);
            assert_eq!(some(&body, 1 << 20), (text.clone(), DecodedEnd::Whole), "{name}");
            assert_eq!(some(&body, 9), (TEXT[..9].to_vec(), DecodedEnd::Longer), "{name}");
            let (cut, end) = some(&body[..body.len() - 12], 1 << 20);
            assert!(text.starts_with(&cut) && end == DecodedEnd::Cut, "{name}");
            assert_eq!(some(b"", 9), (Vec::new(), DecodedEnd::Cut), "{name}");
            assert_eq!(some(b"\xff\xffno such thing", 9).1, DecodedEnd::Damaged, "{name}");
        }
        let mut flipped = coded("gzip", &text).to_vec();
        let middle = flipped.len() / 2;
        flipped[middle] ^= 0xff;
        assert_eq!(ContentCoding::Gzip.decode_some(&flipped, 1 << 20).1, DecodedEnd::Damaged);
    }

    /// The beginning of a stream with a window of 1 GiB, which RFC 7932 does not have: 0x11, then 30.
    #[test]
    fn large_windows_of_brotli_are_refused_for_all() {
        let body = [0x11, 30, 0x02, 0x00, 0x00, 0x03];
        assert!(is_damaged(&one("br", body.to_vec(), 100)));
        assert_eq!(
            ContentCoding::Brotli.decode_some(&body, 100),
            (Vec::new(), DecodedEnd::Damaged)
        );
    }
}
