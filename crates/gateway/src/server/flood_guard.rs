//! The line to a visitor who speaks HTTP/2: frames that ask for nothing are rationed.
//!
//! PING, SETTINGS, empty DATA and their like cost the service work and lead nowhere. A visitor may
//! send a stock of them, and more with each request, with what it is answered, and with time; who
//! sends many more floods, and is cut off. A reset takes back what its request has earned.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::message::connection_activity::{ConnectionActivity, EARNED_BY_REQUEST};
use crate::message::metered::MeteredSocket;

/// How many frames that ask for nothing a visitor may send ahead.
const INITIAL_FRAME_CREDIT: u64 = 10_000;
/// Maximum number of requests that are reset before the service has seen them. More end the connection. Envoy has the
/// same limit; that of the library, 20, ended connections of clients that cancel new requests. The initial
/// credit is enough for so many.
pub const MAX_UNSEEN_RESETS: usize = 500;
/// The length of what comes before the first frame, in bytes.
const PREFACE_BYTES: usize = 24;
/// The length of the head of a frame, in bytes.
const FRAME_HEAD_BYTES: usize = 9;
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const END_STREAM: u8 = 1;

/// The socket of a visitor who speaks HTTP/2, watched on the way.
pub struct FloodGuard {
    socket: MeteredSocket,
    frames: FrameCounter,
    activity: Arc<ConnectionActivity>,
    spent: u64,
}

impl FloodGuard {
    pub fn new(socket: MeteredSocket, activity: Arc<ConnectionActivity>) -> Self {
        Self { socket, frames: FrameCounter::default(), activity, spent: 0 }
    }

    fn charge_bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        let earned = self.activity.earned_frames();
        // What was earned and not needed does not add up.
        self.spent = self.spent.max(earned) + self.frames.count_cost(bytes);
        if self.spent > earned + INITIAL_FRAME_CREDIT {
            return Err(io::Error::new(io::ErrorKind::ConnectionAborted, "a flood of frames"));
        }
        Ok(())
    }
}

/// Where one frame ends and the next begins.
#[derive(Default)]
struct FrameCounter {
    /// How many bytes of the current head, and before it of the preface, have come.
    have: usize,
    head: [u8; FRAME_HEAD_BYTES],
    /// How many bytes of the current payload have not come.
    left: usize,
    begun: bool,
}

impl FrameCounter {
    /// Returns the costs of the frames that begin in these bytes: 1 for each that asks for nothing.
    fn count_cost(&mut self, mut bytes: &[u8]) -> u64 {
        let mut cost = 0;
        if !self.begun {
            bytes = self.skip_preface(bytes);
        }
        while !bytes.is_empty() {
            let payload = self.left.min(bytes.len());
            self.left -= payload;
            let (head, rest) = bytes[payload..]
                .split_at((bytes.len() - payload).min(FRAME_HEAD_BYTES - self.have));
            self.head[self.have..self.have + head.len()].copy_from_slice(head);
            self.have += head.len();
            bytes = rest;
            if self.have == FRAME_HEAD_BYTES {
                self.have = 0;
                cost += self.begin_frame();
            }
        }
        cost
    }

    fn skip_preface<'b>(&mut self, bytes: &'b [u8]) -> &'b [u8] {
        let (preface, rest) = bytes.split_at(bytes.len().min(PREFACE_BYTES - self.have));
        self.have += preface.len();
        if self.have == PREFACE_BYTES {
            (self.begun, self.have) = (true, 0);
        }
        rest
    }

    /// Begins the frame of a whole head, and returns its costs.
    fn begin_frame(&mut self) -> u64 {
        let [a, b, c, kind, flags, ..] = self.head;
        self.left = u32::from_be_bytes([0, a, b, c]) as usize;
        match kind {
            HEADERS => 0,
            DATA => u64::from(self.left == 0 && flags & END_STREAM == 0),
            RST_STREAM => 1 + EARNED_BY_REQUEST,
            _ => 1,
        }
    }
}

impl AsyncRead for FloodGuard {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        let read = Pin::new(&mut this.socket).poll_read(cx, buffer);
        match read {
            Poll::Ready(Ok(())) => Poll::Ready(this.charge_bytes(&buffer.filled()[before..])),
            other => other,
        }
    }
}

impl AsyncWrite for FloodGuard {
    ginnel_base::forward_write!(socket);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, flags: u8, length: u8) -> Vec<u8> {
        let mut bytes = vec![0, 0, length, kind, flags, 0, 0, 0, 1];
        bytes.resize(FRAME_HEAD_BYTES + usize::from(length), kind);
        bytes
    }

    #[test]
    fn frames_are_told_apart_however_they_arrive() {
        let frames =
            [(4, 0, 0), (1, 5, 30), (0, 0, 200), (0, 0, 0), (0, 1, 0), (6, 0, 8), (8, 0, 4)];
        let frames = frames.map(|(kind, flags, length)| frame(kind, flags, length));
        let said = [vec![b'P'; PREFACE_BYTES], frames.concat()].concat();

        for size in [1, 2, 5, 9, 10, 100, 1000] {
            let mut frames = FrameCounter::default();
            let cost: u64 = said.chunks(size).map(|bytes| frames.count_cost(bytes)).sum();
            assert_eq!(cost, 4, "in pieces of {size}");
        }
    }

    #[test]
    fn the_initial_credit_is_enough_for_all_unseen_resets() {
        let reset = [vec![b'P'; PREFACE_BYTES], frame(RST_STREAM, 0, 4)].concat();

        let cost = FrameCounter::default().count_cost(&reset);

        assert!(cost * MAX_UNSEEN_RESETS as u64 <= INITIAL_FRAME_CREDIT);
    }
}
