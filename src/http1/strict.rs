//! Streams that let nothing through that two readers could understand differently.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::request::{Expects, RequestFraming};
use super::response::{PendingResponse, ResponseFraming};

/// How much of what nobody will read is taken before the connection closes, in bytes.
const MAX_DRAINED_BYTES: usize = 256 << 10;

/// What a parser gets in the place of what is ambiguous: a byte that no head and no chunk may hold.
/// It may not look at the byte before a head is complete, as it seems to be then.
const INVALID: &[u8] = b"\0\r\n\r\n";

/// A connection on which somebody sends requests.
///
/// What is ambiguous is not passed on: the parser behind gets something invalid in its place,
/// answers 400 and closes. One empty line before a request is taken out.
#[derive(Debug)]
pub struct StrictStream<S> {
    stream: S,
    framing: RequestFraming,
    /// True when something other than HTTP is spoken.
    upgraded: bool,
    /// What is left of [`INVALID`], once something ambiguous has come.
    refused: Option<&'static [u8]>,
    drained: usize,
    closed: bool,
}

impl<S: AsyncRead + AsyncWrite + Unpin> StrictStream<S> {
    /// A connection on which nothing was sent.
    pub fn new(stream: S) -> Self {
        let framing = RequestFraming::default();
        Self { stream, framing, upgraded: false, refused: None, drained: 0, closed: false }
    }

    /// What has to be sent next.
    pub fn expects(&self) -> Expects {
        self.framing.expects()
    }

    /// True when something ambiguous has come, so that nothing more is read.
    pub fn has_refused(&self) -> bool {
        self.refused.is_some()
    }

    /// From now on the connection carries something other than HTTP.
    pub fn upgrade(&mut self) {
        self.upgraded = true;
    }

    /// Follows what was read behind the first bytes of a buffer.
    fn follow(&mut self, buffer: &mut ReadBuf<'_>, before: usize) {
        let news = buffer.filled_mut().get_mut(before..).unwrap_or_default();
        match self.framing.feed(news) {
            Ok(left) => buffer.set_filled(before + left),
            Err(error) => {
                buffer.set_filled(before + error.fine);
                self.refused = Some(INVALID);
                self.refuse(buffer);
            }
        }
    }

    /// Gives as much of what is invalid as there is room for; afterwards there is nothing more.
    fn refuse(&mut self, buffer: &mut ReadBuf<'_>) {
        if let Some(left) = &mut self.refused {
            let (now, later) = left.split_at(left.len().min(buffer.remaining()));
            buffer.put_slice(now);
            *left = later;
        }
    }

    /// Takes what is still sent: closing on unread bytes would destroy the answer.
    fn poll_drain(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut scratch = [0; 4096];
        while self.drained < MAX_DRAINED_BYTES {
            let mut buffer = ReadBuf::new(&mut scratch);
            let read = ready!(Pin::new(&mut self.stream).poll_read(cx, &mut buffer));
            if read.is_err() || buffer.filled().is_empty() {
                break;
            }
            self.drained += buffer.filled().len();
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for StrictStream<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        if this.has_refused() {
            this.refuse(buffer);
            return Poll::Ready(Ok(()));
        }
        loop {
            ready!(Pin::new(&mut this.stream).poll_read(cx, buffer))?;
            if this.upgraded || buffer.filled().len() == before {
                break;
            }
            this.follow(buffer, before);
            // Where an empty line was all there was, nothing has come so far.
            if buffer.filled().len() > before {
                break;
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for StrictStream<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write_vectored(cx, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if !this.closed {
            ready!(Pin::new(&mut this.stream).poll_shutdown(cx))?;
            this.closed = true;
        }
        let unread = this.has_refused() || this.expects() != Expects::Nothing;
        if unread { this.poll_drain(cx) } else { Poll::Ready(Ok(())) }
    }
}

/// A connection on which somebody sends answers.
///
/// An answer that is ambiguous cannot be read, nor what came at the same time.
#[derive(Debug)]
pub struct StrictResponses<S> {
    stream: S,
    framing: ResponseFraming,
    pending: Arc<PendingResponse>,
}

impl<S> StrictResponses<S> {
    /// A connection on which nothing was asked; `pending` is told what is.
    pub fn new(stream: S, pending: Arc<PendingResponse>) -> Self {
        Self { stream, framing: ResponseFraming::default(), pending }
    }

    /// The connection itself, on which another protocol is spoken now.
    pub fn into_inner(self) -> S {
        self.stream
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for StrictResponses<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        ready!(Pin::new(&mut this.stream).poll_read(cx, buffer))?;
        let news = buffer.filled().get(before..).unwrap_or_default();
        if let Err(error) = this.framing.feed(news, &this.pending) {
            buffer.set_filled(before);
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, error)));
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for StrictResponses<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write_vectored(cx, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}
