//! Where a body ends; free of I/O.

/// How a body is framed, and how much of it is still to come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Body {
    /// So many more bytes.
    Length(u64),
    /// In chunks.
    Chunks(Chunks),
    /// Whatever comes until the connection is closed.
    UntilClose,
}

/// A place in a body of chunks (RFC 9112, section 7.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Chunks {
    /// In the line of a chunk's size: the size so far, the digits so far, past the digits.
    Size { size: u64, digits: u8, extension: u16 },
    /// After the carriage return of a size line.
    SizeEnd { size: u64 },
    /// In the data of a chunk.
    Data { left: u64 },
    /// At the line end after the data; true after the carriage return.
    DataEnd { returned: bool },
    /// In the trailer: how long the line is, and how long all of it is.
    Trailer { line: u16, whole: u16 },
    /// After a carriage return in the trailer.
    TrailerEnd { line: u16, whole: u16 },
    /// All is read.
    Done,
}

/// The framing of chunks is broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Broken;

/// How long the extensions of one chunk, and the trailer, may be.
const MOST: u16 = 16 * 1024;

impl Body {
    /// No body.
    pub const NONE: Self = Self::Length(0);
    /// The start of a body in chunks.
    pub const CHUNKED: Self = Self::Chunks(Chunks::START);

    /// Whether all of it was read.
    pub fn is_done(&self) -> bool {
        matches!(self, Self::Length(0) | Self::Chunks(Chunks::Done))
    }

    /// How many of these bytes belong to the body; `data` is given those that are not framing.
    pub fn take(&mut self, bytes: &[u8], data: impl FnMut(&[u8])) -> Result<usize, Broken> {
        self.take_all(bytes, data, |_| {})
    }

    /// As [`Body::take`]; `trailer` is given the lines of the trailer with the empty one.
    pub fn take_all(
        &mut self,
        bytes: &[u8],
        mut data: impl FnMut(&[u8]),
        trailer: impl FnMut(u8),
    ) -> Result<usize, Broken> {
        match self {
            Self::Length(left) => {
                let taken = bytes.get(..usize::try_from(*left).unwrap_or(usize::MAX));
                let taken = taken.unwrap_or(bytes);
                *left -= taken.len() as u64;
                if !taken.is_empty() {
                    data(taken);
                }
                Ok(taken.len())
            }
            Self::UntilClose => {
                data(bytes);
                Ok(bytes.len())
            }
            Self::Chunks(chunks) => chunks.take(bytes, data, trailer),
        }
    }
}

impl Chunks {
    const START: Self = Self::Size { size: 0, digits: 0, extension: 0 };

    fn take(
        &mut self,
        bytes: &[u8],
        mut data: impl FnMut(&[u8]),
        mut trailer: impl FnMut(u8),
    ) -> Result<usize, Broken> {
        let mut at = 0;
        while let Some(rest) = bytes.get(at..)
            && let Some(byte) = rest.first()
            && *self != Self::Done
        {
            if let Self::Data { left } = self {
                let piece = rest.get(..usize::try_from(*left).unwrap_or(usize::MAX));
                let piece = piece.unwrap_or(rest);
                *left -= piece.len() as u64;
                at += piece.len();
                data(piece);
                if *left == 0 {
                    *self = Self::DataEnd { returned: false };
                }
                continue;
            }
            if matches!(self, Self::Trailer { .. } | Self::TrailerEnd { .. }) {
                trailer(*byte);
            }
            *self = self.step(*byte)?;
            at += 1;
        }
        Ok(at)
    }

    /// The place after one byte that is not data.
    fn step(self, byte: u8) -> Result<Self, Broken> {
        match (self, byte) {
            (
                Self::Size { size, digits, extension: 0 },
                b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F',
            ) => {
                let digit = (byte as char).to_digit(16).unwrap_or_default();
                // Sixteen digits would fit, but nobody sends an exbibyte.
                if digits == 15 {
                    return Err(Broken);
                }
                let size = size << 4 | u64::from(digit);
                Ok(Self::Size { size, digits: digits + 1, extension: 0 })
            }
            (Self::Size { size, digits: 1.., .. }, b'\r') => Ok(Self::SizeEnd { size }),
            (Self::Size { size, digits: digits @ 1.., extension }, byte)
                if extends(byte, extension) =>
            {
                Ok(Self::Size { size, digits, extension: extension + 1 })
            }
            (Self::SizeEnd { size: 0 }, b'\n') => Ok(Self::Trailer { line: 0, whole: 0 }),
            (Self::SizeEnd { size }, b'\n') => Ok(Self::Data { left: size }),
            (Self::DataEnd { returned: false }, b'\r') => Ok(Self::DataEnd { returned: true }),
            (Self::DataEnd { returned: true }, b'\n') => Ok(Self::START),
            (Self::Trailer { line, whole }, b'\r') => Ok(Self::TrailerEnd { line, whole }),
            (Self::Trailer { line, whole }, byte) if byte != b'\n' && whole < MOST => {
                Ok(Self::Trailer { line: line + 1, whole: whole + 1 })
            }
            (Self::TrailerEnd { line: 0, .. }, b'\n') => Ok(Self::Done),
            (Self::TrailerEnd { whole, .. }, b'\n') => Ok(Self::Trailer { line: 0, whole }),
            _ => Err(Broken),
        }
    }
}

/// Whether a byte continues the extensions of a chunk's size; the first is a semicolon or a space.
fn extends(byte: u8, extension: u16) -> bool {
    let starts = matches!(byte, b';' | b' ' | b'\t');
    let inside = byte == b'\t' || byte >= b' ' && byte != 0x7f;
    extension < MOST && if extension == 0 { starts } else { inside }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// What a body holds, and how many bytes it took, when the bytes arrive in pieces of one size.
    fn read(mut body: Body, bytes: &[u8], piece: usize) -> Result<(Vec<u8>, usize, bool), Broken> {
        let (mut data, mut taken) = (Vec::new(), 0);
        for piece in bytes.chunks(piece) {
            let count = body.take(piece, |bytes| data.extend_from_slice(bytes))?;
            taken += count;
            if count < piece.len() {
                break;
            }
        }
        Ok((data, taken, body.is_done()))
    }

    #[test]
    fn chunks_are_read_in_pieces_of_any_size() {
        let bytes = b"5;a=\"b\"\r\nhello\r\n00A\r\n0123456789\r\n0\r\nX-T: 1\r\n\r\nGET /";

        for piece in 1..bytes.len() {
            let (data, taken, done) = read(Body::CHUNKED, bytes, piece).unwrap();
            assert_eq!(
                (data.as_slice(), taken, done),
                (&b"hello0123456789"[..], bytes.len() - 5, true)
            );
        }
    }

    #[test]
    fn the_lines_of_the_trailer_are_told() {
        let bytes = b"1\r\na\r\n0\r\nX-T: 1\r\nY: 2\r\n\r\nGET /";
        let mut trailer = Vec::new();

        let mut body = Body::CHUNKED;
        body.take_all(bytes, |_| {}, |byte| trailer.push(byte)).unwrap();

        assert_eq!(trailer, b"X-T: 1\r\nY: 2\r\n\r\n");
    }

    #[test]
    fn a_length_ends_a_body() {
        let (data, taken, done) = read(Body::Length(3), b"abcdef", 2).unwrap();

        assert_eq!((data.as_slice(), taken, done), (&b"abc"[..], 3, true));
    }

    #[test]
    fn broken_framing_is_refused() {
        for bytes in [
            &b"\r\n"[..],
            b"x\r\n",
            b"+5\r\nhello\r\n",
            b"0x5\r\nhello\r\n",
            b"5\nhello\r\n",
            b"5\r\nhelloX",
            b"5\r\nhello\n",
            b"5\rX",
            b"1234567812345678\r\n",
            b"0\r\nX: 1\nY: 2\r\n\r\n",
            b"5;\x00\r\nhello",
        ] {
            assert_eq!(read(Body::CHUNKED, bytes, 1), Err(Broken), "{bytes:?}");
        }
    }
}
