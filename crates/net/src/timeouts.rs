//! How long the other side may take: the limits that listeners share.

use std::time::Duration;

use tokio::net::TcpStream;

/// How long a connection may be silent at first, where its client speaks first.
pub const FIRST_BYTE_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a TLS handshake may take.
pub const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a client of an API may take to send the head of a request.
pub const HEAD_TIMEOUT: Duration = Duration::from_secs(30);

/// Waits until the client has sent something, or has closed; false when it was silent for too long.
pub async fn first_byte(stream: &TcpStream, limit: Duration) -> bool {
    // Readiness alone may be a guess. A socket that fails says so to whoever reads next.
    tokio::time::timeout(limit, stream.peek(&mut [0])).await.is_ok()
}
