//! Taking the next connection of a listener.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};

use super::{ConnectionLimit, Permit};

/// How long a connection may be silent at first, where its client speaks first.
pub(crate) const FIRST_BYTE_TIMEOUT: Duration = Duration::from_secs(5);
/// How long to wait when the process has no file descriptor left for another connection.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(20);

/// A connection that was taken.
pub(crate) struct Connection {
    pub stream: TcpStream,
    pub peer: SocketAddr,
    /// To be kept for as long as the socket is open.
    pub permit: Permit,
}

/// The next connection of a listener that the limit lets in; others are closed at once, so that
/// nobody stands in line behind them.
///
/// A failure to accept concerns one connection, or passes when another ends. It is safe to drop
/// this while it waits.
pub(crate) async fn accept(listener: &TcpListener, limit: &Arc<ConnectionLimit>) -> Connection {
    loop {
        let Ok((stream, peer)) = listener.accept().await else {
            tokio::time::sleep(ACCEPT_BACKOFF).await;
            continue;
        };
        if let Some(permit) = limit.admit(peer.ip()) {
            // Answers are written whole; waiting for more to send only delays them.
            let _ = stream.set_nodelay(true);
            return Connection { stream, peer, permit };
        }
    }
}

/// Waits until the client has sent something, or has closed; false when it was silent for too long.
pub(crate) async fn first_byte(stream: &TcpStream, limit: Duration) -> bool {
    // Readiness alone may be a guess. A socket that fails says so to whoever reads next.
    tokio::time::timeout(limit, stream.peek(&mut [0])).await.is_ok()
}
