//! Inputs in pieces, as they arrive over a connection.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::random::Random;

/// How an input is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    /// It arrives whole.
    Whole,
    /// In single bytes.
    Bytes,
    /// In pieces of random lengths, which depend on the input alone.
    Random,
}

/// All cuts.
pub const CUTS: [Cut; 3] = [Cut::Whole, Cut::Bytes, Cut::Random];

/// The pieces of an input; none is empty.
pub fn pieces(bytes: &[u8], cut: Cut) -> impl Iterator<Item = &[u8]> {
    let (mut rest, mut random) = (bytes, Random::of(bytes));
    std::iter::from_fn(move || {
        let length = match cut {
            Cut::Whole => rest.len(),
            Cut::Bytes => 1,
            Cut::Random => 1 + random.below(24),
        };
        let piece;
        (piece, rest) = rest.split_at(length.min(rest.len()));
        (!piece.is_empty()).then_some(piece)
    })
}

/// A connection on which an input arrives in pieces and is followed by a close; what is written goes
/// nowhere.
#[derive(Debug)]
pub struct Arriving {
    pieces: Vec<Vec<u8>>,
    /// Whether nothing arrives before something is written.
    awaits_request: bool,
}

impl Arriving {
    /// A connection on which nothing has arrived.
    pub fn new(bytes: &[u8], cut: Cut) -> Self {
        let mut pieces: Vec<Vec<u8>> = pieces(bytes, cut).map(<[u8]>::to_vec).collect();
        pieces.reverse();
        Self { pieces, awaits_request: false }
    }

    /// A connection on which the input is the answer to what is written first.
    pub fn answer(bytes: &[u8], cut: Cut) -> Self {
        Self { awaits_request: true, ..Self::new(bytes, cut) }
    }
}

impl AsyncRead for Arriving {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.awaits_request {
            return Poll::Pending;
        }
        if let Some(mut piece) = self.pieces.pop() {
            let later = piece.split_off(piece.len().min(buffer.remaining()));
            buffer.put_slice(&piece);
            if !later.is_empty() {
                self.pieces.push(later);
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Arriving {
    fn poll_write(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.awaits_request = false;
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
