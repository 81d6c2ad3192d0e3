//! The socket of a client: with or without TLS, or carried by somebody else.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

use ginnel_base::logging::or_debug;

use crate::ResetOnClose;

/// A connection that can be read, written and reset.
pub trait AsyncReadWrite: AsyncRead + AsyncWrite + ResetOnClose + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + ResetOnClose + Send + Unpin> AsyncReadWrite for T {}

/// The socket of a client.
pub enum AcceptedSocket {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
    /// It was accepted elsewhere, and its bytes are carried here.
    Relayed(Box<dyn AsyncReadWrite>),
}

impl AcceptedSocket {
    /// Waits until the client has reset the connection, while nobody reads from it; for ever where it is
    /// carried by somebody else.
    pub fn is_reset(&self) -> impl Future<Output = ()> + Send + '_ {
        let stream = match self {
            Self::Plain(stream) => Some(stream),
            Self::Tls(stream) => Some(stream.get_ref().0),
            Self::Relayed(_) => None,
        };
        async move {
            let Some(stream) = stream else { return std::future::pending().await };
            // Whoever has only ended what it says may still listen.
            or_debug!(stream.ready(Interest::ERROR).await, "a socket cannot be watched");
        }
    }
}

macro_rules! either {
    ($socket:expr, $inner:ident => $call:expr) => {
        match $socket {
            AcceptedSocket::Plain($inner) => $call,
            AcceptedSocket::Tls($inner) => $call,
            AcceptedSocket::Relayed($inner) => $call,
        }
    };
}

impl ResetOnClose for AcceptedSocket {
    fn reset_on_close(&mut self) {
        either!(self, inner => inner.reset_on_close());
    }
}

impl AsyncRead for AcceptedSocket {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        either!(self.get_mut(), inner => Pin::new(inner).poll_read(cx, buffer))
    }
}

impl AsyncWrite for AcceptedSocket {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        either!(self.get_mut(), inner => Pin::new(inner).poll_write(cx, bytes))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        either!(self.get_mut(), inner => Pin::new(inner).poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        either!(self.get_mut(), inner => Pin::new(inner).poll_shutdown(cx))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        either!(self.get_mut(), inner => Pin::new(inner).poll_write_vectored(cx, parts))
    }

    fn is_write_vectored(&self) -> bool {
        either!(self, inner => inner.is_write_vectored())
    }
}
