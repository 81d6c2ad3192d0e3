//! Listening sockets: one side takes the connections, the other says when that ends.

use std::io;
use std::net::{Shutdown, SocketAddr};
use std::sync::{Arc, Weak};
use std::time::Duration;

use socket2::SockRef;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;

use super::{ConnectionLimit, Permit};

/// How long a connection may be silent at first, where its client speaks first.
pub(crate) const FIRST_BYTE_TIMEOUT: Duration = Duration::from_secs(5);
/// How long to wait when the process has no file descriptor left for another connection.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(20);

/// A listening socket at work; when this is dropped, new connections are refused.
///
/// On Linux that holds from the moment [`close`](Self::close) returns, and others may listen on the
/// port: nothing waits for the task that takes the connections. Elsewhere it holds as soon as that
/// task has run.
#[derive(Debug)]
pub(crate) struct Listener {
    address: SocketAddr,
    /// The acceptor keeps the socket, so that its descriptor is closed as soon as nobody accepts.
    socket: Weak<Socket>,
}

/// Takes the connections of a [`Listener`].
#[derive(Debug)]
pub(crate) struct Acceptor(Arc<Socket>);

#[derive(Debug)]
struct Socket {
    listener: TcpListener,
    closed: Notify,
}

/// A connection that was taken.
pub(crate) struct Connection {
    pub stream: TcpStream,
    pub peer: SocketAddr,
    /// To be kept for as long as the socket is open.
    pub permit: Permit,
}

impl Listener {
    /// Both sides of a listening socket.
    ///
    /// # Errors
    /// When the socket has no address.
    pub fn new(listener: TcpListener) -> io::Result<(Self, Acceptor)> {
        let address = listener.local_addr()?;
        let socket = Arc::new(Socket { listener, closed: Notify::new() });
        Ok((Self { address, socket: Arc::downgrade(&socket) }, Acceptor(socket)))
    }

    /// Where it listens, or listened.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Takes no more connections; those that nobody has taken yet are reset.
    pub fn close(&self) {
        let Some(socket) = self.socket.upgrade() else { return };
        socket.closed.notify_one();
        // Not every system can do this to a socket that listens; there the acceptor closes it.
        let _ = SockRef::from(&socket.listener).shutdown(Shutdown::Both);
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.close();
    }
}

impl Acceptor {
    /// The next connection that the limit lets in; none when the listener is closed. Others are
    /// closed at once, so that nobody stands in line behind them.
    ///
    /// It is safe to drop this while it waits.
    pub async fn accept(&self, limit: &Arc<ConnectionLimit>) -> Option<Connection> {
        tokio::select! {
            biased;
            () = self.0.closed.notified() => None,
            connection = self.0.accept(limit) => Some(connection),
        }
    }
}

impl Socket {
    /// A failure to accept concerns one connection, or passes when another ends.
    async fn accept(&self, limit: &Arc<ConnectionLimit>) -> Connection {
        loop {
            let Ok((stream, peer)) = self.listener.accept().await else {
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
}

/// Waits until the client has sent something, or has closed; false when it was silent for too long.
pub(crate) async fn first_byte(stream: &TcpStream, limit: Duration) -> bool {
    // Readiness alone may be a guess. A socket that fails says so to whoever reads next.
    tokio::time::timeout(limit, stream.peek(&mut [0])).await.is_ok()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::io::ErrorKind;
    use std::net::TcpStream;

    use super::*;
    use crate::net::ConnectionCaps;

    async fn listen() -> (Listener, Acceptor) {
        Listener::new(TcpListener::bind("127.0.0.1:0").await.unwrap()).unwrap()
    }

    fn limit() -> Arc<ConnectionLimit> {
        let caps = ConnectionCaps { total: 9, per_address: 9, reserved: 0 };
        ConnectionLimit::new("clients", caps, |_| false)
    }

    #[tokio::test]
    #[cfg(target_os = "linux")]
    async fn a_closed_listener_refuses_while_its_acceptor_is_yet_to_run() {
        let (listener, acceptor) = listen().await;
        let address = listener.address();
        TcpStream::connect(address).unwrap();

        drop(listener);

        let refused = TcpStream::connect(address).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
        let next_owner = TcpListener::bind(address).await.unwrap();
        TcpStream::connect(address).unwrap();
        drop((acceptor, next_owner));
    }

    #[tokio::test]
    async fn who_waits_for_connections_is_told_that_the_listener_is_closed() {
        let (listener, acceptor) = listen().await;
        let (limit, client) = (limit(), TcpStream::connect(listener.address()).unwrap());
        assert!(acceptor.accept(&limit).await.is_some());
        let accepting = tokio::spawn(async move { acceptor.accept(&limit).await.is_some() });
        tokio::task::yield_now().await;

        listener.close();
        listener.close();

        assert!(!accepting.await.unwrap());
        drop(client);
    }

    #[tokio::test]
    async fn the_socket_goes_with_its_acceptor() {
        let (listener, acceptor) = listen().await;

        drop(acceptor);

        let refused = TcpStream::connect(listener.address()).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
        listener.close();
    }
}
