//! The body of a request on its way to the upstream, in the bytes that it came in.

use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};

use ginnel_http1::{Body, FramingError, LINE_END, ReadRoom};

/// How many pieces are passed on before somebody else has a turn.
const MAX_PIECES_AT_ONCE: usize = 8;

/// The body of a request on its way, from a buffer that the visitor's bytes are read into.
///
/// Fields behind the last chunk do not go on: a request that announces some does not come here.
#[derive(Debug)]
pub(super) struct RequestBodyCopy {
    /// What is still to be read.
    body: Body,
    /// How many bytes at the beginning of the buffer go on,
    pending: usize,
    /// and how many behind them belong to the body and do not.
    dropped: usize,
    /// What goes on behind them.
    ending: &'static [u8],
    room: ReadRoom,
    state: CopyState,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CopyState {
    Running,
    /// The upstream has all of it.
    Complete,
    /// The upstream takes no more, which it may explain in its answer.
    Refused,
}

/// Why the rest of a body does not come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RequestBodyError {
    /// The visitor has left.
    VisitorLeft,
    /// The framing of the body is broken.
    Malformed,
}

impl From<FramingError> for RequestBodyError {
    fn from(_: FramingError) -> Self {
        Self::Malformed
    }
}

impl RequestBodyCopy {
    /// No body.
    pub(super) const NONE: Self = Self {
        body: Body::NONE,
        pending: 0,
        dropped: 0,
        ending: b"",
        room: ReadRoom::NEW,
        state: CopyState::Complete,
    };

    /// A body that begins with these bytes.
    pub(super) fn starting_with(body: Body, bytes: &[u8]) -> Result<Self, FramingError> {
        if body.is_done() {
            return Ok(Self::NONE);
        }
        let mut copy = Self { body, state: CopyState::Running, ..Self::NONE };
        copy.scan_body(bytes)?;
        Ok(copy)
    }

    /// How many bytes at the beginning of the buffer go on.
    pub(super) fn pending_bytes(&self) -> usize {
        self.pending
    }

    /// So many of the pending bytes were sent, and taken out of the buffer.
    pub(super) fn mark_sent(&mut self, bytes: usize) {
        self.pending = self.pending.saturating_sub(bytes);
    }

    /// Whether all of it has come.
    pub(super) fn is_received(&self) -> bool {
        self.body.is_done()
    }

    /// Whether the upstream has all of it.
    pub(super) fn is_complete(&self) -> bool {
        self.state == CopyState::Complete
    }

    /// Whether the upstream takes no more.
    pub(super) fn is_refused(&self) -> bool {
        self.state == CopyState::Refused
    }

    /// Drops what has come of a body that goes nowhere.
    pub(super) fn discard_rest(&mut self, buffer: &mut BytesMut) {
        if self.is_complete() {
            return;
        }
        self.state = CopyState::Refused;
        while !self.body.is_done() && buffer.len() > self.pending + self.dropped {
            buffer.advance(self.pending + self.dropped);
            (self.pending, self.dropped) = (0, 0);
            if self.scan_body(buffer).is_err() {
                return;
            }
        }
        if self.body.is_done() {
            buffer.advance(self.pending + self.dropped);
            self.state = CopyState::Complete;
        }
    }

    /// Passes on what comes; ready when there is nothing more to do.
    pub(super) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        visitor: &mut (impl AsyncRead + Unpin),
        buffer: &mut BytesMut,
        upstream: &mut (impl AsyncWrite + Unpin),
    ) -> Poll<Result<(), RequestBodyError>> {
        for _ in 0..MAX_PIECES_AT_ONCE {
            if self.state != CopyState::Running {
                return Poll::Ready(Ok(()));
            }
            if !ready!(self.poll_write(cx, buffer, upstream)) {
                self.state = CopyState::Refused;
            } else if self.body.is_done() {
                self.state = CopyState::Complete;
            } else {
                ready!(self.poll_read(cx, visitor, buffer))?;
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Sends what is there; false when the upstream takes no more.
    fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut BytesMut,
        upstream: &mut (impl AsyncWrite + Unpin),
    ) -> Poll<bool> {
        let mut upstream = Pin::new(upstream);
        while let Some(piece) = buffer.get(..self.pending).filter(|piece| !piece.is_empty()) {
            match ready!(upstream.as_mut().poll_write(cx, piece)) {
                Ok(written @ 1..) => {
                    buffer.advance(written);
                    self.pending -= written;
                }
                _ => return Poll::Ready(false),
            }
        }
        buffer.advance(std::mem::take(&mut self.dropped));
        while !self.ending.is_empty() {
            match ready!(upstream.as_mut().poll_write(cx, self.ending)) {
                Ok(written @ 1..) => self.ending = self.ending.get(written..).unwrap_or_default(),
                _ => return Poll::Ready(false),
            }
        }
        upstream.poll_flush(cx).map(|flushed| flushed.is_ok())
    }

    fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        visitor: &mut (impl AsyncRead + Unpin),
        buffer: &mut BytesMut,
    ) -> Poll<Result<(), RequestBodyError>> {
        if buffer.is_empty() {
            self.room.reserve(buffer);
            match ready!(pin!(visitor.read_buf(buffer)).poll(cx)) {
                Ok(read @ 1..) => self.room.note_read(read),
                _ => return Poll::Ready(Err(RequestBodyError::VisitorLeft)),
            }
        }
        Poll::Ready(self.scan_body(buffer).map_err(Into::into))
    }

    /// Finds out how much of what has come goes on.
    fn scan_body(&mut self, bytes: &[u8]) -> Result<(), FramingError> {
        let mut trailer = 0;
        let taken = self.body.take_all(bytes, |_| {}, |_| trailer += 1)?;
        let is_empty_line = trailer == LINE_END.len() && self.body.is_done();
        if trailer == 0 || is_empty_line {
            self.pending = taken;
        } else {
            (self.pending, self.dropped) = (taken - trailer, trailer);
            if self.body.is_done() {
                self.ending = LINE_END;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::collections::VecDeque;
    use std::io;
    use std::task::Waker;

    use tokio::io::ReadBuf;

    use super::*;

    /// A visitor who sends these pieces, and leaves.
    struct Pieces<'a>(VecDeque<&'a [u8]>);

    impl AsyncRead for Pieces<'_> {
        fn poll_read(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            buffer: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            buffer.put_slice(self.0.pop_front().unwrap_or_default());
            Poll::Ready(Ok(()))
        }
    }

    /// What goes on of a body whose bytes come in pieces of one size, and how many are read behind it.
    fn passed(body: Body, bytes: &str, piece: usize) -> Result<(String, usize), RequestBodyError> {
        let mut visitor = Pieces(bytes.as_bytes().chunks(piece).collect());
        let (mut sent, mut buffer) = (Vec::new(), BytesMut::new());
        buffer.extend_from_slice(visitor.0.pop_front().unwrap());
        let mut copy = RequestBodyCopy::starting_with(body, &buffer)?;
        let mut cx = Context::from_waker(Waker::noop());
        loop {
            let polled = copy.poll(&mut cx, &mut visitor, &mut buffer, &mut sent);
            if let Poll::Ready(ended) = polled {
                assert!(ended.is_err() || copy.is_complete());
                let left = buffer.len() + visitor.0.iter().map(|piece| piece.len()).sum::<usize>();
                return ended.map(|()| (String::from_utf8(sent).unwrap(), left));
            }
        }
    }

    #[test]
    fn a_body_goes_on_as_it_came_in_pieces_of_any_size() {
        let chunks = "5;a=b\r\nhello\r\n0\r\n\r\n";
        for (body, bytes) in [(Body::Length(12), "hello, world"), (Body::CHUNKED, chunks)] {
            let all = format!("{bytes}GET /");
            for piece in 1..=all.len() {
                let expected = (bytes.to_owned(), "GET /".len());
                assert_eq!(passed(body.clone(), &all, piece), Ok(expected), "{piece}");
            }
        }
    }

    #[test]
    fn fields_behind_the_last_chunk_do_not_go_on() {
        let bytes = "1\r\na\r\n0\r\nX: y\r\nZ: w\r\n\r\n";
        for piece in 1..=bytes.len() {
            let expected = ("1\r\na\r\n0\r\n\r\n".to_owned(), 0);
            assert_eq!(passed(Body::CHUNKED, bytes, piece), Ok(expected), "{piece}");
        }
    }

    #[test]
    fn what_is_not_there_or_broken_is_told() {
        for (body, bytes, expected) in [
            (Body::Length(9), "hello", RequestBodyError::VisitorLeft),
            (Body::CHUNKED, "5\r\nhello\r\n", RequestBodyError::VisitorLeft),
            (Body::CHUNKED, "5\r\nhelloX", RequestBodyError::Malformed),
        ] {
            for piece in 1..bytes.len() {
                assert_eq!(passed(body.clone(), bytes, piece), Err(expected), "{bytes:?}");
            }
        }
    }

    #[test]
    fn an_upstream_that_takes_no_more_ends_it() {
        let mut copy = RequestBodyCopy::starting_with(Body::Length(8), b"hello").unwrap();
        let mut cx = Context::from_waker(Waker::noop());
        let (mut gone, other) = tokio::io::duplex(3);
        drop(other);
        let mut buffer = BytesMut::from("hello");
        let mut visitor = Pieces(VecDeque::new());

        let polled = copy.poll(&mut cx, &mut visitor, &mut buffer, &mut gone);

        assert_eq!(polled, Poll::Ready(Ok(())));
        assert!(copy.is_refused() && !copy.is_complete());
    }

    #[test]
    fn what_goes_nowhere_is_dropped_as_far_as_it_came() {
        for (bytes, is_complete, left) in [("hello wGET", true, "GET"), ("hello", false, "hello")] {
            let mut buffer = BytesMut::from(bytes);
            let mut copy = RequestBodyCopy::starting_with(Body::Length(7), &buffer).unwrap();

            copy.discard_rest(&mut buffer);

            assert_eq!((copy.is_complete(), &buffer[..]), (is_complete, left.as_bytes()));
        }
    }
}
