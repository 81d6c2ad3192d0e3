//! The socket of a visitor, whose bytes are counted.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use ginnel_net::ResetOnClose;
use ginnel_net::tls::AcceptedSocket;
use ginnel_policy::Carried;

use crate::metrics::ByteCounts;

/// The socket of a visitor, whose bytes are counted: those of the connection, and with those of others
/// where somebody wants to know.
pub struct MeteredSocket {
    socket: AcceptedSocket,
    bytes: Option<Arc<ByteCounts>>,
    carried: Arc<CarriedCounts>,
}

/// What a connection has carried, for those who have not got its socket.
#[derive(Debug, Default)]
pub struct CarriedCounts {
    received: AtomicU64,
    sent: AtomicU64,
}

impl CarriedCounts {
    /// Counts more bytes; nobody but the owner of the socket does.
    fn add_bytes(count: &AtomicU64, bytes: usize) {
        count.store(count.load(Relaxed) + bytes as u64, Relaxed);
    }

    /// What the connection has carried until now.
    pub fn load(&self) -> Carried {
        Carried { received: self.received.load(Relaxed), sent: self.sent.load(Relaxed) }
    }
}

impl MeteredSocket {
    pub fn new(socket: AcceptedSocket, bytes: Option<Arc<ByteCounts>>) -> Self {
        Self::with_counts(socket, bytes, Arc::default())
    }

    /// The same, with counts that others see as well.
    pub fn with_counts(
        socket: AcceptedSocket,
        bytes: Option<Arc<ByteCounts>>,
        carried: Arc<CarriedCounts>,
    ) -> Self {
        Self { socket, bytes, carried }
    }

    /// Waits until the visitor has reset the connection.
    pub fn is_reset(&self) -> impl Future<Output = ()> + Send + '_ {
        self.socket.is_reset()
    }

    /// What the connection has carried until now, however it ends.
    pub fn carried_bytes(&self) -> Carried {
        self.carried.load()
    }

    fn count_sent(&mut self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if let Poll::Ready(Ok(written)) = &written {
            CarriedCounts::add_bytes(&self.carried.sent, *written);
            if let Some(bytes) = &self.bytes {
                bytes.count_sent(*written);
            }
        }
        written
    }
}

impl ResetOnClose for MeteredSocket {
    fn reset_on_close(&mut self) {
        self.socket.reset_on_close();
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
        if received > 0 {
            CarriedCounts::add_bytes(&this.carried.received, received);
            if let Some(bytes) = &this.bytes {
                bytes.count_received(received);
            }
        }
        read
    }
}

impl AsyncWrite for MeteredSocket {
    ginnel_base::forward_write!(socket, count_sent: poll_write poll_write_vectored);
    ginnel_base::forward_write!(socket: is_write_vectored poll_flush poll_shutdown);
}
