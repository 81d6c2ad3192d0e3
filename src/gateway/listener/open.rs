//! Opening the doors of a service: ports for HTTP, for HTTPS and for bytes.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use rustls::ServerConfig;
use tokio::net::TcpListener;

use crate::gateway::http::connection::Entrance;
use crate::gateway::http::server;
use crate::gateway::listener::Door;
use crate::gateway::routing::virtual_host::Site;
use crate::gateway::slot::Slot;
use crate::gateway::tls::policy::ALPN;
use crate::gateway::{EdgeError, Inner, tcp};

impl Inner {
    /// Listens on a port of the service's host.
    pub(crate) async fn listen(&self, port: u16) -> Result<TcpListener, EdgeError> {
        let bound = TcpListener::bind((self.settings.host.as_str(), port)).await;
        bound.map_err(|source| self.unlistened(port, source))
    }

    /// Listens on a port of the service's host; works on any thread.
    pub(crate) fn listen_now(&self, port: u16) -> Result<std::net::TcpListener, EdgeError> {
        let bound = std::net::TcpListener::bind((self.settings.host.as_str(), port));
        bound.map_err(|source| self.unlistened(port, source))
    }

    /// Serves HTTP.
    pub(crate) fn http_door(
        self: &Arc<Self>,
        listener: TcpListener,
        entrance: Entrance,
    ) -> Result<Door, EdgeError> {
        let edges = Arc::downgrade(self);
        let door = Door::open(self, listener, move |connection, bell| {
            let (edges, entrance) = (edges.upgrade(), entrance.clone());
            async move {
                let Some(edges) = edges else { return };
                server::plain(edges, entrance, connection, bell).await;
            }
        });
        door.map_err(|source| self.unlistened(0, source))
    }

    /// Serves HTTP over TLS.
    pub(crate) fn https_door(
        self: &Arc<Self>,
        listener: TcpListener,
        entrance: Entrance,
    ) -> Result<Door, EdgeError> {
        let guard = match &entrance {
            Entrance::Own(site) => site.get().guard.clone(),
            Entrance::Shared(_) => None,
        };
        let config = match guard {
            Some(guard) => guard.config.clone(),
            None => self.authority.server_config(&ALPN)?,
        };
        let edges = Arc::downgrade(self);
        let door = Door::open(self, listener, move |connection, bell| {
            let (edges, entrance, config) = (edges.upgrade(), entrance.clone(), config.clone());
            async move {
                let Some(edges) = edges else { return };
                server::secure(edges, entrance, connection, bell, config).await;
            }
        });
        door.map_err(|source| self.unlistened(0, source))
    }

    /// Carries bytes; `proto` is `tcp` or `tls`.
    pub(crate) fn bytes_door(
        self: &Arc<Self>,
        listener: TcpListener,
        site: Arc<Slot<Site>>,
        proto: &'static str,
    ) -> Result<Door, EdgeError> {
        let edges = Arc::downgrade(self);
        let door = Door::open(self, listener, move |connection, bell| {
            let (edges, site) = (edges.upgrade(), site.clone());
            async move {
                let Some(edges) = edges else { return };
                tcp::carry(edges, site, connection, bell, proto).await;
            }
        });
        door.map_err(|source| self.unlistened(0, source))
    }

    /// Carries what is said over TLS that ends here.
    pub(crate) fn unwrapping_door(
        self: &Arc<Self>,
        listener: TcpListener,
        site: Arc<Slot<Site>>,
        config: Arc<ServerConfig>,
    ) -> Result<Door, EdgeError> {
        let edges = Arc::downgrade(self);
        let door = Door::open(self, listener, move |connection, bell| {
            let (edges, site, config) = (edges.upgrade(), site.clone(), config.clone());
            async move {
                let Some(edges) = edges else { return };
                tcp::carry_unwrapped(edges, site, connection, bell, config).await;
            }
        });
        door.map_err(|source| self.unlistened(0, source))
    }

    /// Listens on a port for bytes; works on any thread.
    pub(crate) fn bytes_door_now(
        self: &Arc<Self>,
        port: u16,
        site: Arc<Slot<Site>>,
    ) -> Result<Door, EdgeError> {
        let _runtime = self.runtime.enter();
        let listener = self.listen_now(port)?;
        let listener = listener
            .set_nonblocking(true)
            .and_then(|()| TcpListener::from_std(listener))
            .map_err(|source| self.unlistened(port, source))?;
        self.bytes_door(listener, site, "tcp")
    }

    /// The address of a host on the shared ports.
    pub(crate) fn url_of(&self, host: &str, secure: bool) -> Option<String> {
        let https = self.https.get().filter(|_| secure).map(|it| ("https", it.port(), 443));
        let http = || self.http.get().map(|it| ("http", it.port(), 80));
        let (scheme, port, usual) = https.or_else(http)?;
        let port = if port == usual { String::new() } else { format!(":{port}") };
        Some(format!("{scheme}://{host}{port}"))
    }

    fn unlistened(&self, port: u16, source: std::io::Error) -> EdgeError {
        EdgeError::Listen { address: format!("{}:{port}", self.settings.host), source }
    }
}

/// An address that can be connected to from this machine.
pub(crate) fn reachable(mut address: SocketAddr) -> SocketAddr {
    if address.ip().is_unspecified() {
        address.set_ip(match address.ip() {
            IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        });
    }
    address
}
