//! The local API and the page: HTTP on this machine.
//!
//! `guard` refuses what a page on another site could send, `routes` finds the resource of a path,
//! and `answer` does what was asked (agent sheet, sections 1, 2, 5 and 6). What is not of the API is
//! of the page.

mod answer;
pub(super) mod guard;
mod rejection;
mod routes;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

pub(super) use rejection::WebRejection;
pub(super) use routes::{WebBody, read, whole};

use super::Error;
use super::hosts::AllowedHosts;
use super::inner::AgentInner;
use super::options::WebAddress;
use crate::http1::StrictStream;
use crate::net::descriptors::{self, DescriptorLimit};
use crate::net::private::PrivateListener;
use crate::net::{self, Acceptor, Connection, ConnectionCaps, ConnectionLimit, FIRST_BYTE_TIMEOUT};

/// Where the local API usually listens, and how many ports after that are tried.
const DEFAULT_ADDRESS: (&str, u16, u16) = ("127.0.0.1", 4040, 9);
/// How long a client may take to send the head of a request.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);

/// The listener at work; dropping it takes no more connections.
pub(super) struct WebServer {
    socket: net::Listener,
    accepting: JoinHandle<()>,
    _private: PrivateListener,
}

/// What all requests share.
pub(super) struct WebState {
    pub shared: Arc<AgentInner>,
    pub hosts: AllowedHosts,
    /// Where it listens.
    pub address: SocketAddr,
}

/// Listens where the local API shall be.
pub(super) async fn listen(address: &WebAddress) -> Result<Option<TcpListener>, Error> {
    let failed = |address: &str, source| Error::Listen { address: address.to_owned(), source };
    match address {
        WebAddress::Off => Ok(None),
        WebAddress::At(address) => {
            let bound = TcpListener::bind(address.as_str()).await;
            bound.map(Some).map_err(|source| failed(address, source))
        }
        WebAddress::Default => {
            let (host, first, more) = DEFAULT_ADDRESS;
            let mut last = io::Error::from(io::ErrorKind::AddrInUse);
            for port in first..=first + more {
                match TcpListener::bind((host, port)).await {
                    Ok(listener) => return Ok(Some(listener)),
                    Err(error) => last = error,
                }
            }
            Err(failed(&format!("{host}:{first} to {}", first + more), last))
        }
    }
}

impl WebServer {
    /// Serves the connections of a listener.
    pub fn start(
        listener: TcpListener,
        shared: Arc<AgentInner>,
        hosts: AllowedHosts,
    ) -> Result<Self, Error> {
        let (socket, acceptor) = net::Listener::new(listener)
            .map_err(|source| Error::Listen { address: "the local API".to_owned(), source })?;
        let address = socket.address();
        // A tunnel to our own API would hand it to the public.
        let private = PrivateListener::new(address);
        let state = Arc::new(WebState { shared, hosts, address });
        let accepting = tokio::spawn(accept(acceptor, limit(), state));
        Ok(Self { socket, accepting, _private: private })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.socket.address()
    }
}

impl Drop for WebServer {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn accept(acceptor: Acceptor, limit: Arc<ConnectionLimit>, state: Arc<WebState>) {
    let mut connections = tokio::task::JoinSet::new();
    while let Some(connection) = acceptor.accept(&limit).await {
        while connections.try_join_next().is_some() {}
        connections.spawn(serve(connection, state.clone()));
    }
}

/// How many connections are held.
fn limit() -> Arc<ConnectionLimit> {
    let total = DescriptorLimit::now().local_api();
    let per_address = descriptors::share_of_one_address(total);
    let caps = ConnectionCaps { total, per_address, reserved: 0 };
    ConnectionLimit::new("API clients", caps, |_| false)
}

async fn serve(connection: Connection, state: Arc<WebState>) {
    let Connection { stream, permit: _permit, .. } = connection;
    if !net::first_byte(&stream, FIRST_BYTE_TIMEOUT).await {
        return;
    }
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT).half_close(true);
    let service = service_fn(move |request| {
        let state = state.clone();
        async move { Ok::<_, std::convert::Infallible>(routes::serve(&state, request).await) }
    });
    // What goes wrong with a connection concerns its client, who knows.
    let _ = builder.serve_connection(TokioIo::new(StrictStream::new(stream)), service).await;
}
