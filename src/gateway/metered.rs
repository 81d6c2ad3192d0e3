//! The socket of a visitor, whose bytes are counted.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::gateway::metrics::ByteCounts;
use crate::net::tls::AcceptedSocket;
use crate::policy::Carried;

/// The socket of a visitor, whose bytes are counted: those of the connection, and with those of others
/// where somebody wants to know.
pub(crate) struct MeteredSocket {
    socket: AcceptedSocket,
    bytes: Option<Arc<ByteCounts>>,
    carried: Carried,
}

impl MeteredSocket {
    pub(crate) fn new(socket: AcceptedSocket, bytes: Option<Arc<ByteCounts>>) -> Self {
        Self { socket, bytes, carried: Carried::default() }
    }

    /// Waits until the visitor has reset the connection.
    pub(crate) fn is_reset(&self) -> impl Future<Output = ()> + Send + '_ {
        self.socket.is_reset()
    }

    /// What the connection has carried until now, however it ends.
    pub(crate) fn carried(&self) -> Carried {
        self.carried
    }

    fn written(&mut self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if let Poll::Ready(Ok(written)) = &written {
            self.carried.sent += *written as u64;
            if let Some(bytes) = &self.bytes {
                bytes.sent(*written);
            }
        }
        written
    }
}

impl AsyncRead for MeteredSocket {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        let read = Pin::new(&mut this.socket).poll_read(cx, buffer);
        let received = buffer.filled().len() - before;
        this.carried.received += received as u64;
        if let Some(bytes) = this.bytes.as_ref().filter(|_| received > 0) {
            bytes.received(received);
        }
        read
    }
}

impl AsyncWrite for MeteredSocket {
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

    forward_write!(socket: is_write_vectored poll_flush poll_shutdown);
}
