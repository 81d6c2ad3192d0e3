//! The line to a visitor: its socket, watched.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll};

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::gateway::http::connection_activity::ConnectionActivity;
use crate::gateway::listener::socket::Socket;
use crate::http1::StrictStream;
use crate::net::Permit;

/// The socket of a visitor who speaks HTTP/1.1, watched on the way.
pub(crate) struct VisitorStream {
    socket: StrictStream<Socket>,
    /// What was read before and put back.
    ahead: BytesMut,
    activity: Arc<ConnectionActivity>,
    /// Goes where the socket goes, also to another protocol.
    _permit: Permit,
}

impl VisitorStream {
    pub(crate) fn new(socket: Socket, activity: Arc<ConnectionActivity>, permit: Permit) -> Self {
        let socket = StrictStream::new(socket);
        Self { socket, ahead: BytesMut::new(), activity, _permit: permit }
    }

    /// True when something ambiguous has come, so that nothing more is read.
    pub(crate) fn has_refused(&self) -> bool {
        self.socket.has_refused()
    }

    /// Takes back what was read, to be read again.
    pub(crate) fn put_back(&mut self, bytes: BytesMut) {
        self.ahead = bytes;
    }

    fn written<T>(&self, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        self.activity.blocked(written.is_pending());
        written
    }
}

impl AsyncRead for VisitorStream {
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
        let upgraded = this.activity.upgraded.load(Relaxed);
        if upgraded {
            this.socket.upgrade();
        }
        let before = buffer.filled().len();
        let read = Pin::new(&mut this.socket).poll_read(cx, buffer);
        match &read {
            Poll::Pending => this.activity.starved(),
            Poll::Ready(_) if upgraded || buffer.filled().len() == before => {}
            Poll::Ready(_) => this.activity.arrived(this.socket.expects()),
        }
        read
    }
}

impl AsyncWrite for VisitorStream {
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
        Pin::new(&mut self.get_mut().socket).poll_shutdown(cx)
    }
}
