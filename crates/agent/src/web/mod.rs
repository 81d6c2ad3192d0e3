//! The local API and the page: HTTP on this machine.
//!
//! `guard` refuses what a page on another site could send, `routes` takes paths, methods and parameters
//! from the table of [`ginnel_api::local`], and `handlers` has a function for each of its operations
//! (agent sheet, sections 1, 2, 5 and 6). What is not of the API is of the page.

pub(super) mod guard;
mod handler;
mod handlers;
mod interception;
mod proto_files;
mod rejection;
mod replay_schedules;
mod routes;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use tokio::net::TcpListener;

pub(super) use interception::{decide_held, decision_from_edits, find_held};
pub(super) use rejection::WebRejection;
pub(super) use routes::{longest_edit, read_body};

use ginnel_net::descriptors::{self, DescriptorLimit};
use ginnel_net::private::PrivateListener;
use ginnel_net::{
    ApiTimeouts, ConnectionCaps, ConnectionLimit, Listener, Shutdown, ShutdownPhase, listen_at,
    serve_api, service_from_router,
};

use super::Error;
use super::hosts::AllowedHosts;
use super::inner::AgentInner;
use super::options::WebAddress;

/// Where the local API usually listens, and how many ports after that are tried.
const DEFAULT_ADDRESS: (&str, u16, u16) = ("127.0.0.1", 4040, 9);

/// The listener at work; dropping it ends all connections.
pub(super) struct WebServer {
    listener: Listener,
    shutdown: Shutdown,
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
pub(super) async fn open_listener(address: &WebAddress) -> Result<Option<TcpListener>, Error> {
    let failed = |address: &str, source| Error::Listen { address: address.to_owned(), source };
    match address {
        WebAddress::Off => Ok(None),
        WebAddress::At(address) => {
            let bound = listen_at(address).await;
            bound.map(Some).map_err(|source| failed(&address.to_string(), source))
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
        let failed = |source| Error::Listen { address: "the local API".to_owned(), source };
        let address = listener.local_addr().map_err(failed)?;
        // A tunnel to our own API would hand it to the public.
        let private = PrivateListener::new(address);
        let router = routes::build_router(Arc::new(WebState { shared, hosts, address }));
        let shutdown = Shutdown::default();
        let listener = serve_api(
            listener,
            service_from_router(router),
            connection_limit(),
            ApiTimeouts::default,
            &shutdown,
        );
        Ok(Self { listener: listener.map_err(failed)?, shutdown, _private: private })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.listener.address()
    }
}

impl Drop for WebServer {
    fn drop(&mut self) {
        self.shutdown.begin_phase(ShutdownPhase::Forced);
    }
}

/// How many connections are held.
fn connection_limit() -> Arc<ConnectionLimit> {
    let total = DescriptorLimit::read_current().agent_api_connections();
    let per_address = descriptors::share_per_address(total);
    let caps = ConnectionCaps { total, per_address, reserved: 0 };
    ConnectionLimit::new("API clients", caps, |_| false)
}
