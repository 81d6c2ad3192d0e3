//! The line to a visitor: its socket, watched.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll, ready};

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::framing::{Expects, Framing};
use super::pulse::Pulse;
use super::socket::Socket;

/// How much of what nobody will read is taken before the connection closes, in bytes.
const LINGER: usize = 256 << 10;

/// The socket of a visitor who speaks HTTP/1.1, watched on the way.
///
/// What is ambiguous is not passed on: the parser behind gets a byte in its place that no head and
/// no chunk may hold, answers 400 and closes.
pub(super) struct Line {
    socket: Socket,
    /// What was read before and put back.
    ahead: BytesMut,
    framing: Framing,
    pulse: Arc<Pulse>,
    refused: bool,
    lingered: usize,
    closed: bool,
}

impl Line {
    pub(super) fn new(socket: Socket, pulse: Arc<Pulse>) -> Self {
        let framing = Framing::default();
        Self {
            socket,
            ahead: BytesMut::new(),
            framing,
            pulse,
            refused: false,
            lingered: 0,
            closed: false,
        }
    }

    /// True when something ambiguous has come, so that nothing more is read.
    pub(super) fn has_refused(&self) -> bool {
        self.refused
    }

    /// Takes back what was read, to be read again.
    pub(super) fn put_back(&mut self, bytes: BytesMut) {
        self.ahead = bytes;
    }

    fn watch(&mut self, buffer: &mut ReadBuf<'_>, before: usize) {
        if self.pulse.upgraded.load(Relaxed) {
            return;
        }
        if let Err(ambiguous) = self.framing.feed(&buffer.filled()[before..]) {
            buffer.set_filled(before + ambiguous.fine);
            buffer.put_slice(&[0]);
            self.refused = true;
        }
        self.pulse.arrived(self.framing.expects());
    }

    /// Takes what the visitor still sends: closing on unread bytes would destroy the answer.
    fn poll_linger(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut scratch = [0; 4096];
        while self.lingered < LINGER {
            let mut buffer = ReadBuf::new(&mut scratch);
            let read = ready!(Pin::new(&mut self.socket).poll_read(cx, &mut buffer));
            if read.is_err() || buffer.filled().is_empty() {
                break;
            }
            self.lingered += buffer.filled().len();
        }
        Poll::Ready(Ok(()))
    }

    fn written<T>(&self, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        self.pulse.blocked(written.is_pending());
        written
    }
}

impl AsyncRead for Line {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if !this.ahead.is_empty() {
            let taken = this.ahead.len().min(buffer.remaining());
            buffer.put_slice(this.ahead.get(..taken).unwrap_or_default());
            this.ahead.advance(taken);
            return Poll::Ready(Ok(()));
        }
        if this.refused {
            return Poll::Ready(Ok(()));
        }
        let before = buffer.filled().len();
        let read = Pin::new(&mut this.socket).poll_read(cx, buffer);
        match &read {
            Poll::Pending => this.pulse.starved(),
            Poll::Ready(_) if buffer.filled().len() > before => this.watch(buffer, before),
            Poll::Ready(_) => {}
        }
        read
    }
}

impl AsyncWrite for Line {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.socket).poll_write(cx, bytes);
        this.written(written)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.socket).poll_write_vectored(cx, parts);
        this.written(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let flushed = Pin::new(&mut this.socket).poll_flush(cx);
        this.written(flushed)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if !this.closed {
            ready!(Pin::new(&mut this.socket).poll_shutdown(cx))?;
            this.closed = true;
        }
        let unread = this.refused || this.framing.expects() != Expects::Nothing;
        if unread { this.poll_linger(cx) } else { Poll::Ready(Ok(())) }
    }
}
