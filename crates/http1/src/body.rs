//! Where a body ends; free of I/O.

use super::chunks::{Chunks, FramingError};

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

    /// How many of these bytes belong to the body; `data` is given those that are not framing.
    pub fn take(&mut self, bytes: &[u8], data: impl FnMut(&[u8])) -> Result<usize, FramingError> {
        self.take_all(bytes, data, |_| {})
    }

    /// As [`Body::take`]; `trailer` is given the lines of the trailer with the empty one.
    pub fn take_all(
        &mut self,
        bytes: &[u8],
        mut data: impl FnMut(&[u8]),
        trailer: impl FnMut(u8),
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
            Self::Chunks(chunks) => chunks.take(bytes, data, trailer),
        }
    }

    /// Makes sure that a body may begin or go on with these bytes.
    pub fn check_bytes(&self, bytes: &[u8]) -> Result<(), FramingError> {
        match self {
            Self::Chunks(chunks) => chunks.clone().take(bytes, |_| {}, |_| {}).map(|_| ()),
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
    fn what_lasts_until_the_close_is_never_done() {
        let mut body = Body::UntilClose;

        assert_eq!(body.take(b"abc", |_| {}), Ok(3));
        assert!(!body.is_done());
    }
}
