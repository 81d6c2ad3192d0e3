//! Bodies in chunks (RFC 9112, section 7.1); free of I/O.
//!
//! ```text
//! chunk     = 1*HEXDIG chunk-ext CRLF chunk-data CRLF
//! chunk-ext = *( BWS ";" BWS token [ BWS "=" BWS ( token / quoted-string ) ] )
//! trailer   = *( token ":" value CRLF ) CRLF
//! ```
//!
//! Nothing else is a chunk here: no sign, no `0x`, no blank at the end of the size, no line that
//! ends with a line feed alone. A size has at most 16 digits with its leading zeros, and is at most
//! [`MAX_BODY_BYTES`].
//!
//! The tolerant reader, which only reads responses of upstreams, also takes blanks behind a size and
//! before the colon of a trailer. They are padding: they do not go on to others.

/// The longest chunk, and the largest `Content-Length`.
pub(super) const MAX_BODY_BYTES: u64 = i64::MAX as u64;
/// How many digits the size of a chunk may have, with leading zeros.
const MAX_SIZE_DIGITS: u8 = 16;
/// How long the extensions of all chunks of a body may be; hyper gives up at 16,384.
const MAX_EXTENSION_BYTES: u16 = 16_000;
/// How long a trailer may be; hyper gives up at 16,384.
const MAX_TRAILER_BYTES: u16 = 16_000;
/// How many fields a trailer may have; hyper gives up after as many.
const MAX_TRAILER_FIELDS: u8 = 100;

/// A place in a body of chunks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chunks {
    position: ChunkPosition,
    /// How long the extensions were so far.
    extension_bytes: u16,
    trailer_bytes: u16,
    trailer_fields: u8,
    is_tolerant: bool,
    /// True after padding.
    has_padding: bool,
}

/// A part of a body in chunks.
#[derive(Debug, Clone, Copy)]
pub(super) enum ChunkPart<'b> {
    /// Content.
    Data(&'b [u8]),
    /// A byte of a size line, or of the line end behind the content.
    Framing(u8),
    /// A byte of the trailer, with the empty line at its end.
    Trailer(u8),
    /// A byte that only the tolerant reader takes, and that does not go on.
    Padding,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ChunkPosition {
    /// In the digits of a chunk's size: how many there were, and what they say.
    Size {
        size: u64,
        digits: u8,
    },
    /// In the extensions behind a size.
    Extension {
        size: u64,
        at: Extension,
    },
    /// After the carriage return of a size line.
    SizeEnd {
        size: u64,
    },
    /// In the data of a chunk.
    Data {
        left: u64,
    },
    /// At the line end after the data; true after the carriage return.
    DataEnd {
        returned: bool,
    },
    /// At the beginning of a line of the trailer.
    TrailerStart,
    TrailerName,
    /// In padding before the colon.
    TrailerBlank,
    TrailerValue,
    /// After a carriage return in the trailer; true on the empty line.
    TrailerEnd {
        last: bool,
    },
    /// All is read.
    Done,
}

/// A place in the extensions of a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Extension {
    /// In blanks behind the size.
    AfterSize,
    /// In blanks, behind which another extension must come.
    BeforeSemicolon,
    /// After a semicolon.
    BeforeName,
    Name,
    /// In blanks behind a name.
    AfterName,
    /// After an equals sign.
    BeforeValue,
    Token,
    Quoted,
    /// After a backslash between quotes.
    Escaped,
    AfterQuoted,
}

/// The framing of a message is broken, or can be understood in more than one way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the framing of the message is ambiguous")]
pub struct FramingError {
    /// How many of the bytes that were read are fine.
    pub fine: usize,
}

impl Chunks {
    pub(super) const START: Self = Self {
        position: ChunkPosition::Size { size: 0, digits: 0 },
        extension_bytes: 0,
        trailer_bytes: 0,
        trailer_fields: 0,
        is_tolerant: false,
        has_padding: false,
    };

    /// Has padding read.
    pub(super) fn tolerate_padding(&mut self) {
        self.is_tolerant = true;
    }

    /// Returns true if padding was read.
    pub(super) fn has_padding(&self) -> bool {
        self.has_padding
    }

    pub(super) fn is_done(&self) -> bool {
        self.position == ChunkPosition::Done
    }

    pub(super) fn take<'b>(
        &mut self,
        bytes: &'b [u8],
        mut visit: impl FnMut(ChunkPart<'b>),
    ) -> Result<usize, FramingError> {
        let mut at = 0;
        while let Some(rest) = bytes.get(at..)
            && let Some(byte) = rest.first()
            && !self.is_done()
        {
            if let ChunkPosition::Data { left } = &mut self.position {
                let piece = rest.get(..usize::try_from(*left).unwrap_or(usize::MAX));
                let piece = piece.unwrap_or(rest);
                *left -= piece.len() as u64;
                at += piece.len();
                visit(ChunkPart::Data(piece));
                if *left == 0 {
                    self.position = ChunkPosition::DataEnd { returned: false };
                }
                continue;
            }
            let is_trailer = self.position.is_trailer();
            self.position = self.next_position(*byte).ok_or(FramingError { fine: at })?;
            at += 1;
            visit(if self.is_tolerant && self.position.is_padding() {
                self.has_padding = true;
                ChunkPart::Padding
            } else if is_trailer {
                ChunkPart::Trailer(*byte)
            } else {
                ChunkPart::Framing(*byte)
            });
        }
        Ok(at)
    }

    /// The place after one byte that is not data; none where it cannot stand there.
    fn next_position(&mut self, byte: u8) -> Option<ChunkPosition> {
        if self.position.is_trailer() {
            self.trailer_bytes = self.trailer_bytes.saturating_add(1);
            return self.step_trailer(byte).filter(|_| self.trailer_bytes <= MAX_TRAILER_BYTES);
        }
        Some(match (self.position, byte) {
            (ChunkPosition::Size { size, digits }, byte) if byte.is_ascii_hexdigit() => {
                ChunkPosition::Size { size: append_digit(size, digits, byte)?, digits: digits + 1 }
            }
            (ChunkPosition::Size { size, digits: 1.. }, b'\r') => ChunkPosition::SizeEnd { size },
            (ChunkPosition::Size { size, digits: 1.. }, byte) => {
                self.step_extension(size, Extension::AfterSize, byte)?
            }
            (ChunkPosition::Extension { size, at }, b'\r') if at.may_end(self.is_tolerant) => {
                ChunkPosition::SizeEnd { size }
            }
            (ChunkPosition::Extension { size, at }, byte) => self.step_extension(size, at, byte)?,
            (ChunkPosition::SizeEnd { size: 0 }, b'\n') => ChunkPosition::TrailerStart,
            (ChunkPosition::SizeEnd { size }, b'\n') => ChunkPosition::Data { left: size },
            (ChunkPosition::DataEnd { returned: false }, b'\r') => {
                ChunkPosition::DataEnd { returned: true }
            }
            (ChunkPosition::DataEnd { returned: true }, b'\n') => Self::START.position,
            _ => return None,
        })
    }

    fn step_extension(&mut self, size: u64, at: Extension, byte: u8) -> Option<ChunkPosition> {
        self.extension_bytes = self.extension_bytes.saturating_add(1);
        let at = at.next_state(byte).filter(|_| self.extension_bytes <= MAX_EXTENSION_BYTES)?;
        Some(ChunkPosition::Extension { size, at })
    }

    fn step_trailer(&mut self, byte: u8) -> Option<ChunkPosition> {
        Some(match (self.position, byte) {
            (ChunkPosition::TrailerStart, b'\r') => ChunkPosition::TrailerEnd { last: true },
            (ChunkPosition::TrailerStart, byte) if is_token(byte) => {
                self.trailer_fields = self.trailer_fields.saturating_add(1);
                return (self.trailer_fields <= MAX_TRAILER_FIELDS)
                    .then_some(ChunkPosition::TrailerName);
            }
            (ChunkPosition::TrailerName | ChunkPosition::TrailerBlank, b':') => {
                ChunkPosition::TrailerValue
            }
            (ChunkPosition::TrailerName | ChunkPosition::TrailerBlank, b' ' | b'\t')
                if self.is_tolerant =>
            {
                ChunkPosition::TrailerBlank
            }
            (ChunkPosition::TrailerName, byte) if is_token(byte) => ChunkPosition::TrailerName,
            (ChunkPosition::TrailerValue, b'\r') => ChunkPosition::TrailerEnd { last: false },
            (ChunkPosition::TrailerValue, byte) if is_text(byte) => ChunkPosition::TrailerValue,
            (ChunkPosition::TrailerEnd { last: true }, b'\n') => ChunkPosition::Done,
            (ChunkPosition::TrailerEnd { last: false }, b'\n') => ChunkPosition::TrailerStart,
            _ => return None,
        })
    }
}

impl ChunkPosition {
    fn is_trailer(self) -> bool {
        matches!(
            self,
            Self::TrailerStart
                | Self::TrailerName
                | Self::TrailerBlank
                | Self::TrailerValue
                | Self::TrailerEnd { .. }
        )
    }

    /// Returns true if the byte that led here is padding.
    fn is_padding(self) -> bool {
        matches!(self, Self::TrailerBlank | Self::Extension { at: Extension::AfterSize, .. })
    }
}

impl Extension {
    /// Whether the line may end here.
    fn may_end(self, is_tolerant: bool) -> bool {
        matches!(self, Self::Name | Self::Token | Self::AfterQuoted)
            || self == Self::AfterSize && is_tolerant
    }

    fn next_state(self, byte: u8) -> Option<Self> {
        let is_blank = matches!(byte, b' ' | b'\t');
        Some(match (self, byte) {
            (Self::Quoted, b'"') => Self::AfterQuoted,
            (Self::Quoted, b'\\') => Self::Escaped,
            (Self::Quoted | Self::Escaped, byte) if is_text(byte) => Self::Quoted,
            (Self::Quoted | Self::Escaped, _) => return None,
            (Self::BeforeName | Self::BeforeValue, _) if is_blank => self,
            (Self::AfterSize, _) if is_blank => Self::AfterSize,
            (Self::Name | Self::AfterName, _) if is_blank => Self::AfterName,
            (_, _) if is_blank => Self::BeforeSemicolon,
            (Self::BeforeName | Self::Name, byte) if is_token(byte) => Self::Name,
            (Self::BeforeValue | Self::Token, byte) if is_token(byte) => Self::Token,
            (Self::BeforeValue, b'"') => Self::Quoted,
            (Self::Name | Self::AfterName, b'=') => Self::BeforeValue,
            (Self::BeforeName | Self::BeforeValue, _) => return None,
            (_, b';') => Self::BeforeName,
            _ => return None,
        })
    }
}

/// A size with one more digit; none when it is too large then.
fn append_digit(size: u64, digits: u8, byte: u8) -> Option<u64> {
    let digit = (byte as char).to_digit(16)?;
    let size = size << 4 | u64::from(digit);
    (digits < MAX_SIZE_DIGITS && size <= MAX_BODY_BYTES).then_some(size)
}

/// Whether a byte may stand in a token (RFC 9110, section 5.6.2).
pub(super) fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// Whether a byte may stand in the value of a field.
pub(super) fn is_text(byte: u8) -> bool {
    byte == b'\t' || byte >= b' ' && byte != 0x7f
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::Body;
    use super::*;

    /// What a body holds, and how many bytes it took, when the bytes arrive in pieces of one size.
    fn read(bytes: &[u8], piece: usize) -> Result<(Vec<u8>, usize, bool), FramingError> {
        let (mut data, mut taken, mut body) = (Vec::new(), 0, Body::CHUNKED);
        for piece in bytes.chunks(piece) {
            let count = body.take(piece, |bytes| data.extend_from_slice(bytes));
            let count = count.map_err(|error| FramingError { fine: taken + error.fine })?;
            taken += count;
            if count < piece.len() {
                break;
            }
        }
        Ok((data, taken, body.is_done()))
    }

    #[test]
    fn chunks_are_read_in_pieces_of_any_size() {
        let bytes =
            b"5 ; a=\"b\\\";\" ;c\r\nhello\r\n00A\r\n0123456789\r\n0\r\nX-T: 1\r\n\r\nGET /";

        for piece in 1..bytes.len() {
            let (data, taken, done) = read(bytes, piece).unwrap();
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
    fn broken_framing_is_refused_at_the_byte_that_breaks_it() {
        for (bytes, fine) in [
            (&b"\r\n"[..], 0),
            (b"x\r\n", 0),
            (b"+5\r\nhello\r\n", 0),
            (b"0x5\r\nhello\r\n", 1),
            (b"5\nhello\r\n", 1),
            (b"5 \r\nhello\r\n", 2),
            (b"5 junk\r\nhello\r\n", 2),
            (b"5;\r\nhello\r\n", 2),
            (b"5;a=\r\nhello\r\n", 4),
            (b"5;a \r\nhello\r\n", 4),
            (b"5;a=b c\r\nhello\r\n", 6),
            (b"5;a=\"b\r\nhello\r\n", 6),
            (b"5\r\nhelloX", 8),
            (b"5\r\nhello\n", 8),
            (b"5\rX", 2),
            (b"8000000000000000\r\n", 15),
            (b"00000000000000005\r\n", 16),
            (b"0\r\nX: 1\nY: 2\r\n\r\n", 7),
            (b"0\r\nno colon\r\n\r\n", 5),
            (b"0\r\n X: 1\r\n\r\n", 3),
            (b"5;\x00\r\nhello", 2),
        ] {
            for piece in [1, bytes.len()] {
                assert_eq!(read(bytes, piece), Err(FramingError { fine }), "{bytes:?}");
            }
        }
    }

    #[test]
    fn what_nobody_needs_has_limits() {
        let accepts = |text: String| read(text.as_bytes(), text.len()).is_ok();
        let extended = |bytes: usize| format!("1;{}\r\na\r\n0\r\n\r\n", "x".repeat(bytes - 1));
        let many = |count: usize| format!("{}0\r\n\r\n", "1;a\r\nx\r\n".repeat(count));
        let trailer = |bytes: usize| format!("0\r\nX:{}\r\n\r\n", "y".repeat(bytes - 6));
        let fields = |count: usize| format!("0\r\n{}\r\n", "X: y\r\n".repeat(count));

        assert!(accepts(extended(16_000)) && !accepts(extended(16_001)));
        assert!(accepts(many(8_000)) && !accepts(many(8_001)));
        assert!(accepts(trailer(16_000)) && !accepts(trailer(16_001)));
        assert!(accepts(fields(100)) && !accepts(fields(101)));
    }
}
