//! Where a body ends; free of I/O.

use bytes::BytesMut;

use super::chunks::{ChunkPart, Chunks, FramingError};

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

impl Body {
    /// No body.
    pub const NONE: Self = Self::Length(0);
    /// The start of a body in chunks.
    pub const CHUNKED: Self = Self::Chunks(Chunks::START);

    /// Whether all of it was read.
    pub fn is_done(&self) -> bool {
        match self {
            Self::Length(left) => *left == 0,
            Self::Chunks(chunks) => chunks.is_done(),
            Self::UntilClose => false,
        }
    }

    /// Returns true if the body comes in chunks.
    pub fn is_chunked(&self) -> bool {
        matches!(self, Self::Chunks(_))
    }

    /// The same body, in whose chunks padding is taken.
    pub(super) fn with_padding(mut self) -> Self {
        if let Self::Chunks(chunks) = &mut self {
            chunks.tolerate_padding();
        }
        self
    }

    /// Returns true if padding was read that strict readers refuse.
    pub fn has_padding(&self) -> bool {
        matches!(self, Self::Chunks(chunks) if chunks.has_padding())
    }

    /// As [`Body::take_all`], with the bytes in a buffer behind `from`. Returns how many bytes there go on:
    /// padding is cut out of the buffer.
    pub fn take_clean(
        &mut self,
        buffer: &mut BytesMut,
        from: usize,
        data: impl FnMut(&[u8]),
        trailer: impl FnMut(u8),
    ) -> Result<usize, FramingError> {
        let before = self.clone();
        let bytes = buffer.get(from..).unwrap_or_default();
        let taken = self.take_all(bytes, data, trailer)?;
        let Self::Chunks(mut chunks) = before else { return Ok(taken) };
        if !self.has_padding() {
            return Ok(taken);
        }
        let mut clean = Vec::with_capacity(taken);
        chunks.take(bytes, |part| match part {
            ChunkPart::Data(piece) => clean.extend_from_slice(piece),
            ChunkPart::Framing(byte) | ChunkPart::Trailer(byte) => clean.push(byte),
            ChunkPart::Padding => {}
        })?;
        let rest = buffer.split_off(from + taken);
        buffer.truncate(from);
        buffer.extend_from_slice(&clean);
        buffer.unsplit(rest);
        Ok(clean.len())
    }

    /// How many of these bytes belong to the body; `data` is given those that are not framing.
    pub fn take(&mut self, bytes: &[u8], data: impl FnMut(&[u8])) -> Result<usize, FramingError> {
        self.take_all(bytes, data, |_| {})
    }

    /// As [`Body::take`]; `trailer` is given the lines of the trailer with the empty one.
    pub fn take_all(
        &mut self,
        bytes: &[u8],
        mut data: impl FnMut(&[u8]),
        mut trailer: impl FnMut(u8),
    ) -> Result<usize, FramingError> {
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
            Self::Chunks(chunks) => chunks.take(bytes, |part| match part {
                ChunkPart::Data(piece) => data(piece),
                ChunkPart::Trailer(byte) => trailer(byte),
                ChunkPart::Framing(_) | ChunkPart::Padding => {}
            }),
        }
    }

    /// Makes sure that a body may begin or go on with these bytes.
    pub fn check_bytes(&self, bytes: &[u8]) -> Result<(), FramingError> {
        match self {
            Self::Chunks(chunks) => chunks.clone().take(bytes, |_| {}).map(|_| ()),
            Self::Length(_) | Self::UntilClose => Ok(()),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_length_ends_a_body() {
        let mut body = Body::Length(3);
        let mut data = Vec::new();

        let taken = [&b"ab"[..], b"cd", b"ef"]
            .map(|piece| body.take(piece, |bytes| data.extend_from_slice(bytes)).unwrap());

        assert_eq!((data.as_slice(), taken, body.is_done()), (&b"abc"[..], [2, 1, 0], true));
    }

    #[test]
    fn padding_is_taken_by_the_tolerant_reader_and_does_not_go_on() {
        let padded = b"4 \r\npage\r\n3\t;a = b\r\nabc\r\n0  \r\nX-Sum : 1 \r\n\r\nnext";
        let clean = b"4\r\npage\r\n3;a = b\r\nabc\r\n0\r\nX-Sum: 1 \r\n\r\n";
        for piece in 1..=padded.len() {
            let (mut body, mut gone_on) = (Body::CHUNKED.with_padding(), Vec::new());
            let (mut data, mut trailer) = (Vec::new(), Vec::new());
            let mut buffer = BytesMut::new();
            for piece in padded.chunks(piece) {
                buffer.extend_from_slice(b"head");
                buffer.extend_from_slice(piece);
                let (add, put) =
                    (|bytes: &[u8]| data.extend_from_slice(bytes), |byte| trailer.push(byte));
                let count = body.take_clean(&mut buffer, 4, add, put).unwrap();
                gone_on.extend_from_slice(&buffer[4..4 + count]);
                buffer.clear();
            }

            assert_eq!(gone_on, clean, "{piece}");
            assert_eq!((&data[..], &trailer[..]), (&b"pageabc"[..], &b"X-Sum: 1 \r\n\r\n"[..]));
            assert!(body.is_done() && body.has_padding());
        }
        for (bytes, is_tolerated) in [
            (&b"4 \r\npage"[..], true),
            (b"0\r\nX : 1\r\n", true),
            (b"4 5\r\n", false),
            (b"4;a \r\n", false),
            (b"4 x\r\n", false),
            (b" 4\r\n", false),
            (b"0\r\n : 1\r\n", false),
            (b"0\r\nX 1\r\n", false),
        ] {
            let tolerant = Body::CHUNKED.with_padding().check_bytes(bytes);
            assert_eq!(tolerant.is_ok(), is_tolerated, "{bytes:?}");
            assert!(Body::CHUNKED.check_bytes(bytes).is_err(), "{bytes:?}");
        }
    }

    #[test]
    fn what_a_strict_reader_takes_goes_on_unchanged() {
        let bytes = b"5 ; a=\"b \";c\r\nhello\r\n0\r\n\r\nGET";
        let (mut buffer, mut body) = (BytesMut::from(&bytes[..]), Body::CHUNKED);

        let count = body.take_clean(&mut buffer, 0, |_| {}, |_| {});

        assert_eq!((count, &buffer[..]), (Ok(bytes.len() - 3), &bytes[..]));
    }

    #[test]
    fn what_lasts_until_the_close_is_never_done() {
        let mut body = Body::UntilClose;

        assert_eq!(body.take(b"abc", |_| {}), Ok(3));
        assert!(!body.is_done());
    }
}
