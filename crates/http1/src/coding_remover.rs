//! Content codings of bodies that are read piece by piece.

use std::io::{self, Write};

use brotli::DecompressorWriter;
use flate2::write::MultiGzDecoder;
use flate2::{Decompress, FlushDecompress, Status};

use super::coding::{CodingError, ContentCoding, has_zlib_header, parse_codings};

/// The number of coded bytes that are decoded at a time.
const STEP_BYTES: usize = 4 << 10;
/// The maximum number of bytes that a step may give, which limits the memory of a body that unfolds.
const MAX_STEP_BYTES: usize = 16 << 20;
/// The buffer of a decoder of brotli, in bytes.
const BROTLI_BUFFER_BYTES: usize = 4 << 10;

/// Removes the content codings of a body piece by piece.
pub struct CodingRemover {
    /// The coding that was applied last comes first.
    decoders: Vec<CodingDecoder>,
    /// If true, no bytes have come yet: an empty body has no coding.
    is_empty: bool,
}

/// DecodedBytes bytes that were not taken yet.
#[derive(Default)]
struct DecodedBytes(Vec<u8>);

impl Write for DecodedBytes {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.len() + bytes.len() > MAX_STEP_BYTES {
            let problem = format!("a piece of it unfolds to more than {MAX_STEP_BYTES} bytes");
            return Err(io::Error::other(problem));
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

enum CodingDecoder {
    Gzip(MultiGzDecoder<DecodedBytes>),
    /// Deflate whose first two bytes decide about its envelope.
    Begun(Vec<u8>),
    Deflate(DeflateRemover),
    Brotli(Box<DecompressorWriter<DecodedBytes>>),
}

impl CodingRemover {
    /// Returns the decoder of a body whose head has these lines of `Content-Encoding`.
    ///
    /// # Errors
    /// There is a coding that this crate does not remove, or there are too many.
    pub fn from_lines<'a>(lines: impl IntoIterator<Item = &'a [u8]>) -> Result<Self, CodingError> {
        // The last coding was applied last.
        let codings = parse_codings(lines)?.into_iter().rev();
        Ok(Self { decoders: codings.map(CodingDecoder::new).collect(), is_empty: true })
    }

    /// Decodes a piece of the body and passes the decoded bytes on, in pieces of limited length.
    ///
    /// # Errors
    /// The body is damaged, or `pass` failed.
    pub fn decode_piece<E: From<io::Error>>(
        &mut self,
        piece: &[u8],
        pass: &mut dyn FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        self.is_empty &= piece.is_empty();
        decode_with(&mut self.decoders, piece, pass)
    }

    /// Ends the body and passes the last bytes on.
    ///
    /// # Errors
    /// The body ends early, or `pass` failed.
    pub fn finish<E: From<io::Error>>(
        &mut self,
        pass: &mut dyn FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut rest = if self.is_empty { &mut [] } else { self.decoders.as_mut_slice() };
        while let Some((decoder, inner)) = rest.split_first_mut() {
            let last = decoder.finish()?;
            decode_with(inner, &last, pass)?;
            rest = inner;
        }
        Ok(())
    }
}

fn decode_with<E: From<io::Error>>(
    decoders: &mut [CodingDecoder],
    piece: &[u8],
    pass: &mut dyn FnMut(&[u8]) -> Result<(), E>,
) -> Result<(), E> {
    let Some((decoder, inner)) = decoders.split_first_mut() else {
        return if piece.is_empty() { Ok(()) } else { pass(piece) };
    };
    for step in piece.chunks(STEP_BYTES) {
        let decoded = decoder.decode(step)?;
        decode_with(inner, &decoded, pass)?;
    }
    Ok(())
}

/// Removes deflate, with or without the envelope of zlib.
struct DeflateRemover {
    state: Decompress,
    output: DecodedBytes,
    has_ended: bool,
}

impl DeflateRemover {
    fn new(has_zlib_header: bool) -> Self {
        let output = DecodedBytes::default();
        Self { state: Decompress::new(has_zlib_header), output, has_ended: false }
    }

    /// Takes a piece. Bytes behind the end are ignored, as `decode_body` does.
    fn inflate(&mut self, mut piece: &[u8]) -> io::Result<()> {
        let mut room = [0; STEP_BYTES];
        while !self.has_ended {
            let (total_in, total_out) = (self.state.total_in(), self.state.total_out());
            let status = self.state.decompress(piece, &mut room, FlushDecompress::None)?;
            let taken = usize::try_from(self.state.total_in() - total_in).unwrap_or_default();
            let given = usize::try_from(self.state.total_out() - total_out).unwrap_or_default();
            self.output.write_all(room.get(..given).unwrap_or_default())?;
            piece = piece.get(taken..).unwrap_or_default();
            self.has_ended = status == Status::StreamEnd;
            if given < room.len() && (piece.is_empty() || taken == 0 && given == 0) {
                break;
            }
        }
        Ok(())
    }

    fn finish(&self) -> io::Result<()> {
        if self.has_ended { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
    }
}

impl CodingDecoder {
    fn new(coding: ContentCoding) -> Self {
        match coding {
            ContentCoding::Gzip => Self::Gzip(MultiGzDecoder::new(DecodedBytes::default())),
            ContentCoding::Deflate => Self::Begun(Vec::new()),
            ContentCoding::Brotli => Self::Brotli(Box::new(DecompressorWriter::new(
                DecodedBytes::default(),
                BROTLI_BUFFER_BYTES,
            ))),
        }
    }

    fn decode(&mut self, piece: &[u8]) -> io::Result<Vec<u8>> {
        if let Self::Begun(first) = self {
            first.extend_from_slice(piece);
            if first.len() < 2 {
                return Ok(Vec::new());
            }
            let first = std::mem::take(first);
            *self = Self::Deflate(DeflateRemover::new(has_zlib_header(&first)));
            return self.decode(&first);
        }
        match self {
            Self::Gzip(inner) => {
                inner.write_all(piece)?;
                inner.flush()?;
            }
            Self::Deflate(inner) => inner.inflate(piece)?,
            Self::Brotli(inner) => inner.write_all(piece)?,
            Self::Begun(_) => {}
        }
        Ok(self.take_decoded())
    }

    /// Ends the body. Returns the last bytes.
    fn finish(&mut self) -> io::Result<Vec<u8>> {
        match self {
            Self::Gzip(inner) => inner.try_finish()?,
            Self::Deflate(inner) => inner.finish()?,
            Self::Brotli(inner) => inner.close()?,
            Self::Begun(_) => return Err(io::ErrorKind::UnexpectedEof.into()),
        }
        Ok(self.take_decoded())
    }

    fn take_decoded(&mut self) -> Vec<u8> {
        let decoded = match self {
            Self::Gzip(inner) => inner.get_mut(),
            Self::Deflate(inner) => &mut inner.output,
            Self::Brotli(inner) => inner.get_mut(),
            Self::Begun(_) => return Vec::new(),
        };
        std::mem::take(&mut decoded.0)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use brotli::CompressorWriter;
    use flate2::Compression;
    use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};

    use super::*;

    const TEXT: &[u8] = b"so it goes, so it goes";

    fn decode(coding: &str, body: &[u8], step: usize) -> io::Result<Vec<u8>> {
        let mut decoder = CodingRemover::from_lines([coding.as_bytes()]).unwrap();
        let mut decoded = Vec::new();
        let mut pass = |piece: &[u8]| {
            decoded.extend_from_slice(piece);
            io::Result::Ok(())
        };
        for piece in body.chunks(step) {
            decoder.decode_piece(piece, &mut pass)?;
        }
        decoder.finish(&mut pass)?;
        Ok(decoded)
    }

    fn gzip(text: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(text).unwrap();
        encoder.finish().unwrap()
    }

    fn coded() -> Vec<(&'static str, Vec<u8>)> {
        let mut zlib = ZlibEncoder::new(Vec::new(), Compression::default());
        zlib.write_all(TEXT).unwrap();
        let mut raw = DeflateEncoder::new(Vec::new(), Compression::default());
        raw.write_all(TEXT).unwrap();
        let mut brotli = CompressorWriter::new(Vec::new(), 4096, 4, 20);
        brotli.write_all(&gzip(TEXT)).unwrap();
        vec![
            ("identity", TEXT.to_vec()),
            ("gzip", gzip(TEXT)),
            ("gzip", [gzip(&TEXT[..5]), gzip(&TEXT[5..])].concat()),
            ("deflate", zlib.finish().unwrap()),
            ("deflate", raw.finish().unwrap()),
            ("gzip, br", brotli.into_inner()),
        ]
    }

    #[test]
    fn pieces_of_any_length_are_decoded() {
        for (coding, body) in coded() {
            for step in [1, 7, 1000] {
                assert_eq!(decode(coding, &body, step).unwrap(), TEXT, "{coding} by {step}");
            }
        }
        assert_eq!(decode("gzip", b"", 1).unwrap(), b"");
    }

    #[test]
    fn what_is_there_is_decoded_at_once_and_a_cut_is_an_error() {
        for (coding, body) in coded().into_iter().skip(1) {
            assert!(decode(coding, &body[..body.len() - 3], 7).is_err(), "{coding}");
        }
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(TEXT).unwrap();
        encoder.flush().unwrap();
        let mut seen = Vec::new();
        let mut decoder = CodingRemover::from_lines([&b"gzip"[..]]).unwrap();
        let begun = decoder.decode_piece(encoder.get_ref(), &mut |piece: &[u8]| {
            seen.extend_from_slice(piece);
            io::Result::Ok(())
        });
        begun.unwrap();
        assert_eq!(seen, TEXT);
    }
}
