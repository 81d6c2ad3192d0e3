//! What `Content-Encoding` names, taken off a body for whoever wants to read it.

use std::io::{self, BufRead, BufReader, Read};

use flate2::{Decompress, FlushDecompress, Status};

/// How many codings a body may have.
const MOST_CODINGS: usize = 4;

/// A body without its codings.
#[derive(Debug)]
pub struct Decoded {
    /// What it was before; as far as it could be read.
    pub bytes: Vec<u8>,
    /// How the reading ended.
    pub end: End,
}

/// How the reading of a coded body ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// With the end of the body.
    Whole,
    /// With as many bytes as were wanted; there are more.
    Longer,
    /// Too early: the coded body was cut off.
    Cut,
    /// At bytes that are not what the coding says.
    Damaged,
}

/// Takes the codings off that a `Content-Encoding` names, up to `most` bytes; none where one of them
/// is not known, or there is none.
pub fn decode(encoding: &str, body: &[u8], most: usize) -> Option<Decoded> {
    let named = encoding.split(',').map(|name| name.trim().to_ascii_lowercase());
    let named: Vec<String> = named.filter(|name| !name.is_empty() && name != "identity").collect();
    if named.is_empty() || named.len() > MOST_CODINGS {
        return None;
    }
    let mut reader: Box<dyn Read + '_> = Box::new(body);
    // The last one was put on last.
    for name in named.iter().rev() {
        reader = match name.as_str() {
            "gzip" | "x-gzip" => Box::new(flate2::read::MultiGzDecoder::new(reader)),
            "deflate" => Box::new(Inflate::new(reader)),
            "br" => Box::new(Brotli::new(reader)),
            _ => return None,
        };
    }
    Some(read(reader, most))
}

fn read(reader: impl Read, most: usize) -> Decoded {
    let mut bytes = Vec::new();
    // What came before a mistake was read.
    let read = reader.take((most as u64).saturating_add(1)).read_to_end(&mut bytes);
    let end = match read {
        _ if bytes.len() > most => End::Longer,
        Ok(_) => End::Whole,
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => End::Cut,
        Err(_) => End::Damaged,
    };
    bytes.truncate(most);
    Decoded { bytes, end }
}

/// Reads `deflate`: with the header that the standard wants, or without, as some send it.
struct Inflate<R> {
    from: BufReader<R>,
    state: Option<Decompress>,
    is_over: bool,
}

impl<R: Read> Inflate<R> {
    fn new(from: R) -> Self {
        Self { from: BufReader::new(from), state: None, is_over: false }
    }
}

impl<R: Read> Read for Inflate<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        while !self.is_over && !into.is_empty() {
            let given = self.from.fill_buf()?;
            let state = self.state.get_or_insert_with(|| Decompress::new(has_header(given)));
            let (taken, made) = (state.total_in(), state.total_out());
            let status = state.decompress(given, into, FlushDecompress::None);
            let status =
                status.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
            let was_last = given.is_empty();
            let made = usize::try_from(state.total_out() - made).unwrap_or(into.len());
            let taken = usize::try_from(state.total_in() - taken).unwrap_or(given.len());
            self.from.consume(taken);
            self.is_over = status == Status::StreamEnd;
            if made > 0 {
                return Ok(made);
            }
            if was_last && !self.is_over {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(0)
    }
}

/// Reads `br`, and tells a body that was cut off from one that is damaged.
struct Brotli<R: Read>(brotli::Decompressor<Followed<R>>);

/// A reader that knows whether its end was reached.
struct Followed<R> {
    from: R,
    is_over: bool,
}

impl<R: Read> Brotli<R> {
    fn new(from: R) -> Self {
        Self(brotli::Decompressor::new(Followed { from, is_over: false }, 4096))
    }
}

impl<R: Read> Read for Brotli<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.0.read(into).map_err(|error| match self.0.get_ref().is_over {
            true => io::ErrorKind::UnexpectedEof.into(),
            false => error,
        })
    }
}

impl<R: Read> Read for Followed<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.from.read(into)?;
        self.is_over |= read == 0;
        Ok(read)
    }
}

/// Whether a `deflate` body begins with the header of zlib.
fn has_header(body: &[u8]) -> bool {
    match body {
        [first, second, ..] => first & 0x0f == 8 && u16::from_be_bytes([*first, *second]) % 31 == 0,
        _ => true,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};

    use super::*;

    const TEXT: &[u8] = b"the quick brown fox jumps over the lazy dog, and over it again";

    fn packed(encoding: &str, body: &[u8]) -> Vec<u8> {
        match encoding {
            "gzip" => {
                let mut gzip = GzEncoder::new(Vec::new(), Compression::best());
                gzip.write_all(body).unwrap();
                gzip.finish().unwrap()
            }
            "deflate" => {
                let mut zlib = ZlibEncoder::new(Vec::new(), Compression::best());
                zlib.write_all(body).unwrap();
                zlib.finish().unwrap()
            }
            "raw" => {
                let mut raw = DeflateEncoder::new(Vec::new(), Compression::best());
                raw.write_all(body).unwrap();
                raw.finish().unwrap()
            }
            _ => {
                let mut brotli = Vec::new();
                brotli::CompressorWriter::new(&mut brotli, 4096, 5, 20).write_all(body).unwrap();
                brotli
            }
        }
    }

    #[test]
    fn every_coding_says_how_it_ended() {
        for (coding, name) in
            [("gzip", "gzip"), ("deflate", "deflate"), ("raw", "deflate"), ("br", "br")]
        {
            let body = packed(coding, TEXT);
            let whole = decode(name, &body, 100).unwrap();
            assert_eq!((whole.bytes.as_slice(), whole.end), (TEXT, End::Whole), "{coding}");

            let some = decode(name, &body, 9).unwrap();
            assert_eq!((some.bytes.as_slice(), some.end), (&TEXT[..9], End::Longer), "{coding}");

            let cut = decode(name, &body[..body.len() - 12], 100).unwrap();
            assert_eq!(cut.end, End::Cut, "{coding}");
            assert!(TEXT.starts_with(&cut.bytes));
            let nothing = decode(name, b"", 100).unwrap();
            assert_eq!((nothing.bytes.len(), nothing.end), (0, End::Cut), "{coding}");
        }
    }

    #[test]
    fn what_is_not_what_it_says_is_damaged() {
        for name in ["gzip", "deflate", "br"] {
            assert_eq!(
                decode(name, b"\xff\xffno such thing", 100).unwrap().end,
                End::Damaged,
                "{name}"
            );
        }
        let mut body = packed("gzip", &TEXT.repeat(100));
        let middle = body.len() / 2;
        body[middle] ^= 0xff;
        assert_eq!(decode("gzip", &body, 1 << 20).unwrap().end, End::Damaged);
    }

    #[test]
    fn codings_are_taken_off_from_the_last_to_the_first() {
        let body = packed("br", &packed("gzip", TEXT));

        assert_eq!(decode("gzip, BR", &body, 100).unwrap().bytes, TEXT);
        assert_eq!(decode("gzip, identity, br", &body, 100).unwrap().bytes, TEXT);
        assert_eq!(decode("br, gzip", &body, 100).unwrap().end, End::Damaged);
        for unknown in ["", "identity", "zstd", "gzip, zstd", "br, br, br, br, br"] {
            assert!(decode(unknown, &body, 100).is_none(), "{unknown}");
        }
    }

    #[test]
    fn a_bomb_is_read_as_far_as_it_is_wanted() {
        let bomb = packed("gzip", &packed("gzip", &vec![0; 20_000_000]));
        assert!(bomb.len() < 1000);

        assert_eq!(decode("gzip, gzip", &bomb, 1000).unwrap().bytes.len(), 1000);
    }
}
