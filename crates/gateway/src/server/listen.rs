//! Opens listeners: ports for HTTP, for HTTPS and for bytes.

use std::future::{Future, ready};
use std::num::NonZeroU16;
use std::sync::Arc;

use arc_swap::ArcSwap;
use rustls::ServerConfig;
use tokio::net::TcpListener;

use ginnel_base::address::{Host, HostPort, reachable_address};
use ginnel_base::logging::or_debug;
use ginnel_net::{
    AcceptedConnection, ConnectionTask, Listener, ProxyProtocol, ShutdownSignal, listen_on,
    listen_on_now, resolve_now,
};

use crate::GatewayError;
use crate::routing::hosts::HostSelection;
use crate::routing::virtual_host::VirtualHost;
use crate::server::gateway::GatewayState;
use crate::server::http_server;
use crate::server::tcp;
use crate::tls::policy::ALPN;

impl GatewayState {
    /// A port that nobody listens on now; none where there is none.
    pub fn free_port(&self) -> Option<u16> {
        let bound = or_debug!(self.bind_port_now(0), "no port is free")?;
        or_debug!(bound.local_addr(), "a socket has no address").map(|address| address.port())
    }

    /// The address of a port for visitors, as endpoints at it have it.
    pub fn address_of(&self, port: u16) -> String {
        let host = self.services.settings.host.as_str();
        let place = Host::parse(host).map(|host| HostPort { host, port });
        let found = place.ok().and_then(|place| resolve_now(&place).ok());
        let address = found.and_then(|found| found.into_iter().next());
        address.map_or_else(|| format!("{host}:{port}"), |it| reachable_address(it).to_string())
    }

    /// Listens on a port of the service's host.
    pub async fn listen_on_port(&self, port: u16) -> Result<TcpListener, GatewayError> {
        let bound = listen_on(&self.services.settings.host, port).await;
        bound.map_err(|source| self.listen_error(port, source))
    }

    /// Listens on a port of the service's host; works on any thread.
    pub fn bind_port_now(&self, port: u16) -> Result<std::net::TcpListener, GatewayError> {
        let bound = listen_on_now(&self.services.settings.host, port);
        bound.map_err(|source| self.listen_error(port, source))
    }

    /// Serves the connections of a socket for as long as the gateway is there; those of an endpoint's `own`
    /// port may be another node's.
    fn serve_socket<F>(
        self: &Arc<Self>,
        socket: TcpListener,
        own: Option<Arc<ArcSwap<VirtualHost>>>,
        serve: impl Fn(Arc<Self>, AcceptedConnection, ShutdownSignal) -> F + Send + Sync + 'static,
    ) -> Result<Listener, GatewayError>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let gateway = Arc::downgrade(self);
        let port = socket.local_addr().map_or(0, |address| address.port());
        let serve = move |connection, shutdown| -> ConnectionTask {
            let Some(gateway) = gateway.upgrade() else { return Box::pin(ready(())) };
            match own.as_ref().and_then(|virtual_host| gateway.table.elsewhere(port, virtual_host))
            {
                Some(node) => {
                    Box::pin(tcp::carry_connection(gateway, node, connection, shutdown, "tcp"))
                }
                None => Box::pin(serve(gateway, connection, shutdown)),
            }
        };
        let live = self.services.live.clone();
        let proxies = match self.services.settings.proxy_protocol {
            true => ProxyProtocol::expected_from(move |address| {
                live.load().trusted_proxies.contains(address)
            }),
            false => ProxyProtocol::default(),
        };
        let listener = Listener::serve(socket, self.limit.clone(), &self.shutdown, proxies, serve);
        listener.map_err(|source| self.listen_error(0, source))
    }

    /// Serves HTTP.
    pub fn listen_http(
        self: &Arc<Self>,
        listener: TcpListener,
        host_selection: HostSelection,
    ) -> Result<Listener, GatewayError> {
        self.serve_socket(
            listener,
            host_selection.single_host(),
            move |gateway, connection, shutdown| {
                http_server::serve_plain(gateway, host_selection.clone(), connection, shutdown)
            },
        )
    }

    /// Serves HTTP over TLS.
    pub fn listen_https(
        self: &Arc<Self>,
        listener: TcpListener,
        host_selection: HostSelection,
    ) -> Result<Listener, GatewayError> {
        let own = host_selection.single_host();
        let tls_policy = own.as_ref().and_then(|it| it.load_full().tls_policy.clone());
        let config = match tls_policy {
            Some(tls_policy) => tls_policy.config.clone(),
            None => self.authority.server_config(&ALPN)?,
        };
        self.serve_socket(listener, own, move |gateway, connection, shutdown| {
            let (host_selection, config) = (host_selection.clone(), config.clone());
            http_server::serve_tls(gateway, host_selection, connection, shutdown, config)
        })
    }

    /// Carries bytes; `proto` is `tcp` or `tls`.
    pub fn listen_tcp(
        self: &Arc<Self>,
        listener: TcpListener,
        virtual_host: Arc<ArcSwap<VirtualHost>>,
        proto: &'static str,
    ) -> Result<Listener, GatewayError> {
        let own = Some(virtual_host.clone());
        self.serve_socket(listener, own, move |gateway, connection, shutdown| {
            tcp::carry_connection(gateway, virtual_host.clone(), connection, shutdown, proto)
        })
    }

    /// Carries what is said over TLS that ends here.
    pub fn listen_tls(
        self: &Arc<Self>,
        listener: TcpListener,
        virtual_host: Arc<ArcSwap<VirtualHost>>,
        config: Arc<ServerConfig>,
    ) -> Result<Listener, GatewayError> {
        let own = Some(virtual_host.clone());
        self.serve_socket(listener, own, move |gateway, connection, shutdown| {
            let (virtual_host, config) = (virtual_host.clone(), config.clone());
            tcp::carry_unwrapped(gateway, virtual_host, connection, shutdown, config)
        })
    }

    /// Listens on a port for bytes; works on any thread.
    pub fn listen_tcp_now(
        self: &Arc<Self>,
        port: u16,
        virtual_host: Arc<ArcSwap<VirtualHost>>,
    ) -> Result<Listener, GatewayError> {
        let _runtime = self.runtime.enter();
        let listener = self.bind_port_now(port)?;
        let listener = listener
            .set_nonblocking(true)
            .and_then(|()| TcpListener::from_std(listener))
            .map_err(|source| self.listen_error(port, source))?;
        self.listen_tcp(listener, virtual_host, "tcp")
    }

    /// The address of a host on the shared ports.
    pub fn url_of(&self, host: &str, secure: bool) -> Option<String> {
        let https = self.public_port(true).filter(|_| secure).map(|port| ("https", port, 443));
        let http = || self.public_port(false).map(|port| ("http", port, 80));
        let (scheme, port, usual) = https.or_else(http)?;
        let port = if port == usual { String::new() } else { format!(":{port}") };
        Some(format!("{scheme}://{host}{port}"))
    }

    /// The port at which visitors reach a shared port; none where there is none. Where TLS ends before the
    /// service, HTTPS arrives at the port for HTTP.
    pub fn public_port(&self, secure: bool) -> Option<u16> {
        let (listener, public) = match secure {
            true => (&self.ports.https, self.services.settings.public_https_port),
            false => (&self.ports.http, self.services.settings.public_http_port),
        };
        let ends_before = secure && public.is_some();
        let own = listener.get().or_else(|| self.ports.http.get().filter(|_| ends_before))?.port();
        Some(public.map_or(own, NonZeroU16::get))
    }

    fn listen_error(&self, port: u16, source: std::io::Error) -> GatewayError {
        GatewayError::Listen { address: format!("{}:{port}", self.services.settings.host), source }
    }
}
