//! The frames of a WebSocket: their heads, their ends, and a close frame between two of them.
//!
//! All parts that read frames use this parser. `tungstenite` is not used: it rejects the bits of extensions, which
//! compressed messages that pass through have, and it has buffers of 128 KiB for each connection.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, ReadBuf};

/// An unmasked close frame with the code 1001, "going away" (RFC 6455 §7.4.1).
const GOING_AWAY_FRAME: [u8; 4] = [0x88, 0x02, 0x03, 0xe9];
/// The opcode of a close frame (RFC 6455 §5.2).
const CLOSE_OPCODE: u8 = 8;
/// The longest head of a frame: two bytes, a length of eight and a mask of four.
const MAX_FRAME_HEAD_BYTES: usize = 14;
/// How much is read at once of what nobody is sent any more, in bytes.
const DISCARD_BYTES: usize = 4 << 10;

/// Follows the frames of one direction, wherever reads may cut them.
#[derive(Debug, Default)]
pub struct FrameBoundary {
    head: [u8; MAX_FRAME_HEAD_BYTES],
    head_length: usize,
    /// Bytes of the payload that are still to come.
    payload_left: u64,
    /// The sender has sent a close frame.
    has_closed: bool,
}

/// What the first bytes of a frame say.
#[derive(Debug, Clone, Copy, Default)]
pub struct FrameHead {
    /// The first byte: whether it is the last of its message, bits of extensions, and the opcode.
    pub first: u8,
    /// What the payload is masked with.
    pub mask: Option<[u8; 4]>,
    /// How long the payload is, in bytes.
    pub length: u64,
}

/// A part of a frame.
#[derive(Debug, Clone, Copy)]
pub enum FramePart<'b> {
    /// All of the head.
    Head(FrameHead),
    /// Some of the payload.
    Payload(&'b [u8]),
}

impl FrameBoundary {
    /// Follows `bytes` to the end of the present head or payload at most; returns how many that are, and
    /// what they complete.
    pub fn follow_part<'b>(&mut self, bytes: &'b [u8]) -> (usize, Option<FramePart<'b>>) {
        if self.payload_left > 0 {
            let here = usize::try_from(self.payload_left).unwrap_or(usize::MAX).min(bytes.len());
            self.payload_left -= here as u64;
            return (here, bytes.get(..here).map(FramePart::Payload));
        }
        let end = bytes.iter().position(|byte| self.push_head(*byte));
        let used = end.map_or(bytes.len(), |at| at + 1);
        (used, end.map(|_| FramePart::Head(self.last_head())))
    }

    /// The head that is complete.
    fn last_head(&self) -> FrameHead {
        let [first, second, ..] = self.head;
        let start = match second & 0x7f {
            126 => 4,
            127 => 10,
            _ => 2,
        };
        let mask = self.head.get(start..).and_then(|rest| rest.first_chunk().copied());
        let mask = mask.filter(|_| second & 0x80 != 0);
        FrameHead { first, mask, length: self.payload_left }
    }

    /// True where a frame may begin.
    pub fn is_at_boundary(&self) -> bool {
        self.head_length == 0 && self.payload_left == 0
    }

    /// True once the sender has sent a close frame: nothing may follow it.
    pub fn has_closed(&self) -> bool {
        self.has_closed
    }

    /// Follows all of `bytes`.
    pub fn follow_bytes(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let used = self.follow_frame(bytes);
            bytes = bytes.get(used..).unwrap_or_default();
        }
    }

    /// Follows `bytes` to the end of the present frame at most; returns how many that are.
    pub fn follow_frame(&mut self, bytes: &[u8]) -> usize {
        let mut used = 0;
        while self.payload_left == 0 {
            let Some(byte) = bytes.get(used) else { return used };
            used += 1;
            if self.push_head(*byte) && self.payload_left == 0 {
                return used;
            }
        }
        let rest = bytes.len() - used;
        let here = usize::try_from(self.payload_left).map_or(rest, |left| left.min(rest));
        self.payload_left -= here as u64;
        used + here
    }

    /// Takes a byte of a head; true when the head is complete by it.
    fn push_head(&mut self, byte: u8) -> bool {
        if let Some(place) = self.head.get_mut(self.head_length) {
            *place = byte;
        }
        self.head_length += 1;
        let [first, second, ..] = self.head;
        let extended = match second & 0x7f {
            126 => 2,
            127 => 8,
            _ => 0,
        };
        let mask = if second & 0x80 == 0 { 0 } else { 4 };
        if self.head_length < 2 || self.head_length < 2 + extended + mask {
            return false;
        }
        let length = self.head.iter().skip(2).take(extended);
        self.payload_left = match extended {
            0 => u64::from(second & 0x7f),
            _ => length.fold(0, |length, byte| length << 8 | u64::from(*byte)),
        };
        self.has_closed |= first & 0x0f == CLOSE_OPCODE;
        self.head_length = 0;
        true
    }
}

/// What a WebSocket server sends, followed by a close frame with the code 1001 when `shutdown` is
/// ready: at the next boundary of a frame. What the server sends after that is read and dropped;
/// when it closes as well, reading fails, because nothing is left to wait for in either direction.
pub struct GoingAway<R, S> {
    read: R,
    shutdown: Option<Pin<Box<S>>>,
    boundary: FrameBoundary,
    is_closed: bool,
}

impl<R, S: Future<Output = ()>> GoingAway<R, S> {
    /// What `read` brings until `shutdown` is ready.
    pub fn new(read: R, shutdown: S) -> Self {
        let (shutdown, boundary) = (Some(Box::pin(shutdown)), FrameBoundary::default());
        Self { read, shutdown, boundary, is_closed: false }
    }

    /// Gives the source back.
    pub fn into_inner(self) -> R {
        self.read
    }

    fn is_shutting_down(&mut self, cx: &mut Context<'_>) -> bool {
        if self.shutdown.as_mut().is_some_and(|shutdown| shutdown.as_mut().poll(cx).is_ready()) {
            self.shutdown = None;
        }
        self.shutdown.is_none()
    }
}

impl<R: AsyncRead + Unpin, S: Future<Output = ()>> GoingAway<R, S> {
    fn poll_discard(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut room = [0; DISCARD_BYTES];
        loop {
            let mut scratch = ReadBuf::new(&mut room);
            ready!(Pin::new(&mut self.read).poll_read(cx, &mut scratch))?;
            if scratch.filled().is_empty() {
                return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
            }
        }
    }

    /// Passes on what comes; of what comes at a shutdown, only the rest of the present frame.
    fn poll_frames(
        &mut self,
        cx: &mut Context<'_>,
        target: &mut ReadBuf<'_>,
        is_last: bool,
    ) -> Poll<io::Result<()>> {
        let before = target.filled().len();
        ready!(Pin::new(&mut self.read).poll_read(cx, target))?;
        let came = target.filled().get(before..).unwrap_or_default();
        if is_last {
            let used = self.boundary.follow_frame(came);
            target.set_filled(before + used);
        } else {
            self.boundary.follow_bytes(came);
        }
        Poll::Ready(Ok(()))
    }
}

impl<R: AsyncRead + Unpin, S: Future<Output = ()>> AsyncRead for GoingAway<R, S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        target: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.is_closed {
            return this.poll_discard(cx);
        }
        let is_last = this.is_shutting_down(cx) && !this.boundary.has_closed();
        let has_room = target.remaining() >= GOING_AWAY_FRAME.len();
        if is_last && this.boundary.is_at_boundary() && has_room {
            this.is_closed = true;
            target.put_slice(&GOING_AWAY_FRAME);
            return Poll::Ready(Ok(()));
        }
        this.poll_frames(cx, target, is_last)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::sync::oneshot;

    use super::*;

    /// Frames with lengths of all forms, masked and not.
    fn frames() -> Vec<Vec<u8>> {
        let long = |head: &[u8], length: usize| [head, &vec![7; length]].concat();
        vec![
            vec![0x81, 0x00],
            vec![0x01, 0x02, b'a', b'b'],
            vec![0x89, 0x80, 1, 2, 3, 4],
            vec![0x80, 0x81, 1, 2, 3, 4, 9],
            long(&[0x82, 126, 0x01, 0x00], 256),
            long(&[0x82, 127, 0, 0, 0, 0, 0, 1, 0, 0], 65_536),
        ]
    }

    #[test]
    fn boundaries_are_seen_wherever_reads_cut_the_frames() {
        let stream = frames().concat();
        let mut at_boundary = vec![0];
        for frame in frames() {
            at_boundary.push(at_boundary[at_boundary.len() - 1] + frame.len());
        }
        let mut boundary = FrameBoundary::default();
        let found: Vec<_> = (0..=stream.len())
            .filter(|at| {
                let is_boundary = boundary.is_at_boundary();
                boundary.follow_bytes(stream.get(*at..at + 1).unwrap_or_default());
                is_boundary
            })
            .collect();
        assert_eq!(found, at_boundary);
        assert!(!boundary.has_closed());

        boundary.follow_bytes(&GOING_AWAY_FRAME);
        assert!(boundary.has_closed() && boundary.is_at_boundary());
    }

    #[tokio::test]
    async fn a_close_frame_comes_after_the_frame_that_is_under_way() -> io::Result<()> {
        let (shutdown, closing) = oneshot::channel::<()>();
        let closing = async { drop(closing.await) };
        let first: &[u8] = &[0x82, 0x04, 1, 2];
        let then: &[u8] = &[3, 4, 0x82, 0x01, 5, 0x82];
        let (mut server, read) = tokio::io::duplex(1024);
        let mut passed = GoingAway::new(read, closing);
        server.write_all(first).await?;
        let mut seen = vec![0; 64];
        let length = passed.read(&mut seen).await?;
        assert_eq!(&seen[..length], first);

        drop(shutdown);
        server.write_all(then).await?;
        drop(server);
        let mut rest = Vec::new();
        let ended = passed.read_to_end(&mut rest).await.map_err(|error| error.kind());

        assert_eq!(ended, Err(io::ErrorKind::UnexpectedEof));
        assert_eq!(rest, [&[3, 4], &GOING_AWAY_FRAME[..]].concat());
        Ok(())
    }

    #[tokio::test]
    async fn a_server_that_has_closed_is_not_followed_by_another_close() -> io::Result<()> {
        let normal: &[u8] = &[0x88, 0x02, 0x03, 0xe8];
        let (mut server, read) = tokio::io::duplex(1024);
        let (shutdown, closing) = oneshot::channel::<()>();
        let mut passed = GoingAway::new(read, async { drop(closing.await) });
        server.write_all(normal).await?;
        let mut seen = vec![0; 4];
        passed.read_exact(&mut seen).await?;
        drop((shutdown, server));

        let mut rest = Vec::new();
        passed.read_to_end(&mut rest).await?;
        assert_eq!((seen.as_slice(), rest), (normal, Vec::new()));
        Ok(())
    }
}
