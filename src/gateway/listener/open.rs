//! Opens listeners: ports for HTTP, for HTTPS and for bytes.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use arc_swap::ArcSwap;
use rustls::ServerConfig;
use tokio::net::TcpListener;

use crate::gateway::http::connection::HostSelection;
use crate::gateway::http::server;
use crate::gateway::listener::GatewayListener;
use crate::gateway::routing::virtual_host::VirtualHost;
use crate::gateway::tls::policy::ALPN;
use crate::gateway::{GatewayError, GatewayState, tcp};

impl GatewayState {
    /// Listens on a port of the service's host.
    pub(crate) async fn listen(&self, port: u16) -> Result<TcpListener, GatewayError> {
        let bound = TcpListener::bind((self.settings.host.as_str(), port)).await;
        bound.map_err(|source| self.listen_error(port, source))
    }

    /// Listens on a port of the service's host; works on any thread.
    pub(crate) fn bind_port_now(&self, port: u16) -> Result<std::net::TcpListener, GatewayError> {
        let bound = std::net::TcpListener::bind((self.settings.host.as_str(), port));
        bound.map_err(|source| self.listen_error(port, source))
    }

    /// Serves HTTP.
    pub(crate) fn listen_http(
        self: &Arc<Self>,
        listener: TcpListener,
        host_selection: HostSelection,
    ) -> Result<GatewayListener, GatewayError> {
        let gateway = Arc::downgrade(self);
        let listener = GatewayListener::open(self, listener, move |connection, shutdown| {
            let (gateway, host_selection) = (gateway.upgrade(), host_selection.clone());
            async move {
                let Some(gateway) = gateway else { return };
                server::serve_plain(gateway, host_selection, connection, shutdown).await;
            }
        });
        listener.map_err(|source| self.listen_error(0, source))
    }

    /// Serves HTTP over TLS.
    pub(crate) fn listen_https(
        self: &Arc<Self>,
        listener: TcpListener,
        host_selection: HostSelection,
    ) -> Result<GatewayListener, GatewayError> {
        let tls_policy = match &host_selection {
            HostSelection::Single(virtual_host) => virtual_host.load_full().tls_policy.clone(),
            HostSelection::ByHost(_) => None,
        };
        let config = match tls_policy {
            Some(tls_policy) => tls_policy.config.clone(),
            None => self.authority.server_config(&ALPN)?,
        };
        let gateway = Arc::downgrade(self);
        let listener = GatewayListener::open(self, listener, move |connection, shutdown| {
            let (gateway, host_selection, config) =
                (gateway.upgrade(), host_selection.clone(), config.clone());
            async move {
                let Some(gateway) = gateway else { return };
                server::serve_tls(gateway, host_selection, connection, shutdown, config).await;
            }
        });
        listener.map_err(|source| self.listen_error(0, source))
    }

    /// Carries bytes; `proto` is `tcp` or `tls`.
    pub(crate) fn listen_tcp(
        self: &Arc<Self>,
        listener: TcpListener,
        virtual_host: Arc<ArcSwap<VirtualHost>>,
        proto: &'static str,
    ) -> Result<GatewayListener, GatewayError> {
        let gateway = Arc::downgrade(self);
        let listener = GatewayListener::open(self, listener, move |connection, shutdown| {
            let (gateway, virtual_host) = (gateway.upgrade(), virtual_host.clone());
            async move {
                let Some(gateway) = gateway else { return };
                tcp::carry(gateway, virtual_host, connection, shutdown, proto).await;
            }
        });
        listener.map_err(|source| self.listen_error(0, source))
    }

    /// Carries what is said over TLS that ends here.
    pub(crate) fn listen_tls(
        self: &Arc<Self>,
        listener: TcpListener,
        virtual_host: Arc<ArcSwap<VirtualHost>>,
        config: Arc<ServerConfig>,
    ) -> Result<GatewayListener, GatewayError> {
        let gateway = Arc::downgrade(self);
        let listener = GatewayListener::open(self, listener, move |connection, shutdown| {
            let (gateway, virtual_host, config) =
                (gateway.upgrade(), virtual_host.clone(), config.clone());
            async move {
                let Some(gateway) = gateway else { return };
                tcp::carry_unwrapped(gateway, virtual_host, connection, shutdown, config).await;
            }
        });
        listener.map_err(|source| self.listen_error(0, source))
    }

    /// Listens on a port for bytes; works on any thread.
    pub(crate) fn listen_tcp_now(
        self: &Arc<Self>,
        port: u16,
        virtual_host: Arc<ArcSwap<VirtualHost>>,
    ) -> Result<GatewayListener, GatewayError> {
        let _runtime = self.runtime.enter();
        let listener = self.bind_port_now(port)?;
        let listener = listener
            .set_nonblocking(true)
            .and_then(|()| TcpListener::from_std(listener))
            .map_err(|source| self.listen_error(port, source))?;
        self.listen_tcp(listener, virtual_host, "tcp")
    }

    /// The address of a host on the shared ports.
    pub(crate) fn url_of(&self, host: &str, secure: bool) -> Option<String> {
        let https = self.https.get().filter(|_| secure).map(|it| ("https", it.port(), 443));
        let http = || self.http.get().map(|it| ("http", it.port(), 80));
        let (scheme, port, usual) = https.or_else(http)?;
        let port = if port == usual { String::new() } else { format!(":{port}") };
        Some(format!("{scheme}://{host}{port}"))
    }

    fn listen_error(&self, port: u16, source: std::io::Error) -> GatewayError {
        GatewayError::Listen { address: format!("{}:{port}", self.settings.host), source }
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
