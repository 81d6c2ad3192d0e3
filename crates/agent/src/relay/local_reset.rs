//! Resets of connections to local services.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::tcp::OwnedWriteHalf;

use ginnel_http1::reuse::PolledSocket;
use ginnel_net::reset_socket_on_close;

/// Makes a connection to a local service end with a reset, wherever its halves are. Pipes and Unix sockets have no
/// resets.
#[derive(Debug, Clone, Default)]
pub struct LocalReset(Arc<AtomicBool>);

impl LocalReset {
    /// The connection ends with a reset when it is dropped.
    pub(super) fn request(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    fn is_requested(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// The sending half of a TCP connection to a local service.
pub(super) struct ResettableWriter {
    /// Set until the drop.
    write: Option<OwnedWriteHalf>,
    reset: LocalReset,
}

/// A TCP connection to a local service below TLS.
pub(super) struct ResettableSocket {
    socket: PolledSocket,
    reset: LocalReset,
}

impl ResettableWriter {
    pub fn new(write: OwnedWriteHalf, reset: LocalReset) -> Self {
        Self { write: Some(write), reset }
    }

    fn poll<T>(
        self: Pin<&mut Self>,
        poll: impl FnOnce(Pin<&mut OwnedWriteHalf>) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        match &mut self.get_mut().write {
            Some(write) => poll(Pin::new(write)),
            None => Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
        }
    }
}

impl ResettableSocket {
    pub fn new(socket: PolledSocket, reset: LocalReset) -> Self {
        Self { socket, reset }
    }
}

impl AsyncWrite for ResettableWriter {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll(|write| write.poll_write(cx, bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll(|write| write.poll_write_vectored(cx, parts))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll(|write| write.poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll(|write| write.poll_shutdown(cx))
    }
}

impl Drop for ResettableWriter {
    fn drop(&mut self) {
        if let Some(write) = self.write.take_if(|_| self.reset.is_requested()) {
            reset_socket_on_close(SockRef::from(write.as_ref()));
            // Dropping it would send an orderly end before the reset.
            write.forget();
        }
    }
}

impl AsyncRead for ResettableSocket {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().socket).poll_read(cx, buffer)
    }
}

impl AsyncWrite for ResettableSocket {
    ginnel_base::forward_write!(socket);
}

impl Drop for ResettableSocket {
    fn drop(&mut self) {
        if self.reset.is_requested() {
            reset_socket_on_close(SockRef::from(&self.socket.0));
        }
    }
}
