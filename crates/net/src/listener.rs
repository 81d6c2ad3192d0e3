//! Listening sockets: the one loop that takes connections.

use std::future::Future;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tracing::Instrument;

use super::proxy_header::{self, ProxiedAddresses, ProxyProtocol};
use super::{ConnectionLimit, Permit, Shutdown, ShutdownPhase, ShutdownSignal};

use ginnel_base::logging::or_debug;

/// How long to wait when the process can take no connection, as when it has no file descriptor left;
/// doubled with each failure in a row.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(10);
/// How often it is doubled.
const MAX_ACCEPT_DOUBLINGS: u32 = 5;

/// A listening socket at work; when this is dropped, new connections are refused, and those that are
/// held end gracefully.
///
/// On Linux that holds from the moment [`close`](Self::close) returns, and others may listen on the
/// port: nothing waits for the task that takes the connections. Elsewhere it holds as soon as that
/// task has run.
#[derive(Debug)]
pub struct Listener {
    address: SocketAddr,
    shutdown: Shutdown,
}

/// A connection that was taken.
pub struct AcceptedConnection {
    pub stream: TcpStream,
    /// Where the client is, which may be behind a proxy.
    pub peer: SocketAddr,
    /// Where the client has connected to.
    pub local: SocketAddr,
    /// To be kept for as long as the socket is open.
    pub permit: Permit,
}

/// Serves a connection; boxed, so that each kind of listener does not compile a loop of its own.
pub type ConnectionTask = Pin<Box<dyn Future<Output = ()> + Send>>;

impl Listener {
    /// Serves the connections that the limit lets in, until the shutdown begins or this is dropped. A proxy
    /// of which a header is expected says first for whom it has connected.
    /// Others are closed at once, so that nobody stands in line behind them. What serves a connection
    /// learns of a graceful end from its signal, and is cut off at a forced one.
    ///
    /// # Errors
    /// When the socket has no address.
    pub fn serve(
        socket: TcpListener,
        limit: Arc<ConnectionLimit>,
        shutdown: &Shutdown,
        proxies: ProxyProtocol,
        serve: impl Fn(AcceptedConnection, ShutdownSignal) -> ConnectionTask + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let address = socket.local_addr()?;
        let (socket, shutdown) = (Arc::new(socket), shutdown.child());
        shutdown.close_with(&socket);
        let accepting = Accepting { limit, proxies, serve: Arc::new(serve) };
        tokio::spawn(accept_all(socket, accepting, shutdown.signal()));
        Ok(Self { address, shutdown })
    }

    /// Where it listens, or listened.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Takes no more connections; those that nobody has taken yet are reset.
    pub fn close(&self) {
        self.shutdown.begin_phase(ShutdownPhase::Graceful);
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.close();
    }
}

type Serve = Arc<dyn Fn(AcceptedConnection, ShutdownSignal) -> ConnectionTask + Send + Sync>;

/// What becomes of connections.
#[derive(Clone)]
struct Accepting {
    limit: Arc<ConnectionLimit>,
    proxies: ProxyProtocol,
    serve: Serve,
}

async fn accept_all(socket: Arc<TcpListener>, accepting: Accepting, mut shutdown: ShutdownSignal) {
    loop {
        let accepted = accept_admitted(&socket, &accepting.limit);
        let accepted = shutdown.run_until(ShutdownPhase::Graceful, accepted).await;
        let Some((stream, peer, permit)) = accepted else { return };
        let local = or_debug!(stream.local_addr(), "a connection has no address");
        let Some(local) = local else { continue };
        let connection = AcceptedConnection { stream, peer, local, permit };
        let mut shutdown = shutdown.clone();
        let serving = match accepting.proxies.is_expected(peer.ip()) {
            false => accepting.serve_in_span(connection, shutdown.clone()),
            true => Box::pin(accepting.clone().serve_proxied(connection, shutdown.clone())),
        };
        tokio::spawn(async move { shutdown.run_until(ShutdownPhase::Forced, serving).await });
    }
}

impl Accepting {
    fn serve_in_span(
        &self,
        connection: AcceptedConnection,
        shutdown: ShutdownSignal,
    ) -> ConnectionTask {
        let span = tracing::debug_span!("connection", peer = %connection.peer);
        let serving = (self.serve)(connection, shutdown);
        Box::pin(serving.instrument(span))
    }

    /// Serves the client of a proxy, who counts in the limit instead of it.
    async fn serve_proxied(self, mut connection: AcceptedConnection, shutdown: ShutdownSignal) {
        let mut waiting = shutdown.clone();
        let header = proxy_header::read_header(&mut connection.stream);
        // Without its header nobody knows whose connection it is.
        let Some(header) = waiting.run_until(ShutdownPhase::Graceful, header).await else { return };
        let Some(addresses) =
            or_debug!(header, peer = %connection.peer, "a proxy does not say for whom it comes")
        else {
            return;
        };
        if let Some(ProxiedAddresses { client, destination }) = addresses {
            let Some(permit) = self.limit.admit(client.ip()) else { return };
            connection =
                AcceptedConnection { peer: client, local: destination, permit, ..connection };
        }
        self.serve_in_span(connection, shutdown).await;
    }
}

/// The next connection that the limit lets in.
async fn accept_admitted(
    socket: &TcpListener,
    limit: &Arc<ConnectionLimit>,
) -> (TcpStream, SocketAddr, Permit) {
    let mut failures = 0;
    loop {
        match socket.accept().await {
            Ok((stream, peer)) => {
                failures = 0;
                let Some(permit) = limit.admit(peer.ip()) else { continue };
                // Answers are written whole; waiting for more to send only delays them.
                or_debug!(stream.set_nodelay(true), "cannot switch delays off");
                return (stream, peer, permit);
            }
            // It concerns this connection alone.
            Err(error) if error.kind() == ErrorKind::ConnectionAborted => {
                tracing::debug!(%error, "a connection ended before it was accepted");
            }
            Err(error) => {
                tracing::debug!(%error, "cannot accept a connection");
                limit.record_failure(error);
                tokio::time::sleep(ACCEPT_BACKOFF * 2u32.pow(failures)).await;
                failures = (failures + 1).min(MAX_ACCEPT_DOUBLINGS);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;
    use std::io::Read;
    use std::net::TcpStream;

    use super::*;
    use crate::ConnectionCaps;

    /// A listener that keeps what it takes until the end of its shutdown.
    async fn listen(shutdown: &Shutdown) -> Listener {
        let socket = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let caps = ConnectionCaps { total: 9, per_address: 9, reserved: 0 };
        let limit = ConnectionLimit::new("clients", caps, |_| false);
        let serve = |connection: AcceptedConnection, _| -> ConnectionTask {
            Box::pin(async move {
                let _held = connection;
                std::future::pending().await
            })
        };
        Listener::serve(socket, limit, shutdown, ProxyProtocol::default(), serve).unwrap()
    }

    #[tokio::test]
    #[cfg(target_os = "linux")]
    async fn a_closed_listener_refuses_while_its_task_is_yet_to_run() {
        for by_parent in [false, true] {
            let shutdown = Shutdown::default();
            let listener = listen(&shutdown).await;
            let address = listener.address();
            TcpStream::connect(address).unwrap();

            match by_parent {
                true => shutdown.begin_phase(ShutdownPhase::Graceful),
                false => drop(listener),
            }

            let refused = TcpStream::connect(address).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
            let next_owner = TcpListener::bind(address).await.unwrap();
            TcpStream::connect(address).unwrap();
            drop(next_owner);
            shutdown.wait_until_finished().await;
        }
    }

    #[tokio::test]
    async fn connections_are_kept_until_they_are_cut_off() {
        let shutdown = Shutdown::default();
        let listener = listen(&shutdown).await;
        let mut client = TcpStream::connect(listener.address()).unwrap();
        client.set_nonblocking(true).unwrap();
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }

        listener.close();
        tokio::task::yield_now().await;
        assert_eq!(client.read(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
        shutdown.stop(Duration::ZERO).await;

        shutdown.wait_until_finished().await;
        assert_eq!(client.read(&mut [0]).unwrap(), 0);
    }

    #[tokio::test]
    async fn who_has_not_said_for_whom_it_comes_is_not_served() {
        let (sender, served) = std::sync::mpsc::channel();
        let caps = ConnectionCaps { total: 9, per_address: 9, reserved: 0 };
        let limit = ConnectionLimit::new("clients", caps, |_| false);
        let socket = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let serve = move |_: AcceptedConnection, _| -> ConnectionTask {
            sender.send(()).unwrap();
            Box::pin(std::future::ready(()))
        };
        let shutdown = Shutdown::default();
        let proxies = ProxyProtocol::expected_from(|_| true);
        let listener = Listener::serve(socket, limit.clone(), &shutdown, proxies, serve).unwrap();
        let _proxy = TcpStream::connect(listener.address()).unwrap();
        while limit.total_counts().open == 0 {
            tokio::task::yield_now().await;
        }

        listener.close();
        shutdown.wait_until_finished().await;

        assert!(served.try_recv().is_err());
    }

    #[tokio::test]
    async fn a_listener_of_a_shutdown_that_has_begun_refuses() {
        let shutdown = Shutdown::default();
        shutdown.begin_phase(ShutdownPhase::Graceful);

        let listener = listen(&shutdown).await;
        shutdown.wait_until_finished().await;

        let refused = TcpStream::connect(listener.address()).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    }
}
