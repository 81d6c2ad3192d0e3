//! Accepting a connection: the first byte, where TLS ends, and the handshake.

use std::io;
use std::sync::Arc;

use arc_swap::ArcSwap;
use rustls::ServerConfig;
use rustls::server::ClientHello;
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

use ginnel_base::address::HostName;
use ginnel_net::tls;
use ginnel_net::{self as net, ShutdownPhase, ShutdownSignal};

use crate::message::visitor::VisitorTls;
use crate::routing::hosts::HostSelection;
use crate::routing::remote_hosts::RemoteHosts;
use crate::routing::route_table::HTTPS_PORT;
use crate::routing::virtual_host::VirtualHost;
use crate::server::gateway::GatewayState;
use crate::upstream::forward::Upstream;

/// The destination of TLS that is not for requests of this node.
pub enum TlsRoute {
    /// To the node where it ends.
    Node(Upstream),
    /// To an edge that carries bytes, for the name that the visitor asks for.
    Edge(Arc<ArcSwap<VirtualHost>>, String),
}

impl GatewayState {
    /// Returns the destination of TLS that passes through, or that ends for bytes. `None` if it is for requests.
    pub async fn tls_route(&self, stream: &TcpStream) -> Option<TlsRoute> {
        let remote = self.table.remote_hosts();
        let remote = remote.filter(|remote| remote.end_tls());
        if remote.is_none() && !self.table.has_tls_edges() {
            return None;
        }
        let hello = tls::peeked_hello(stream, self.timeouts().handshake).await?;
        if self.authority.challenges().tls_config(&hello.client_hello()).is_some() {
            return None;
        }
        let host = HostName::parse(hello.client_hello().server_name()?).ok()?.to_string();
        self.table.wait_for_node(&host, HTTPS_PORT).await;
        let own = self.table.hosts.find_ranked(&host, HTTPS_PORT);
        let elsewhere = |remote: Arc<dyn RemoteHosts>| {
            self.table.better_than(own.as_ref(), || remote.find_tls(&host))
        };
        match remote.and_then(elsewhere) {
            // This node does not know which certificates that node asks visitors for.
            Some(node) => Some(TlsRoute::Node(node)),
            None => self.table.tls_edge(&host).map(|edge| TlsRoute::Edge(edge, host)),
        }
    }
}

/// Waits for the first byte of a visitor who is to speak first, and for a gateway that is not open yet;
/// false when none comes, or at a shutdown.
pub async fn await_first_byte(
    gateway: &GatewayState,
    stream: &TcpStream,
    shutdown: &mut ShutdownSignal,
) -> bool {
    let timeouts = gateway.timeouts();
    let limit = timeouts.first_byte.min(timeouts.head);
    let speaking = async {
        let speaks = net::first_byte(stream, limit).await;
        gateway.wait_until_open().await;
        speaks
    };
    shutdown.run_until(ShutdownPhase::Graceful, speaking).await.unwrap_or_default()
}

/// Agrees on TLS with a visitor as the virtual host wants it that the visitor names.
pub async fn accept_tls(
    gateway: &GatewayState,
    host_selection: HostSelection,
    stream: TcpStream,
    config: Arc<ServerConfig>,
) -> io::Result<(TlsStream<TcpStream>, HostSelection)> {
    let limit = gateway.timeouts().handshake;
    let HostSelection::ByHost(_) = &host_selection else {
        return Ok((tls::accept_tls(stream, config, limit).await?, host_selection));
    };
    let mut tls_policy = None;
    let choose = |hello: &ClientHello<'_>| {
        if let Some(challenge) = gateway.authority.challenges().tls_config(hello) {
            return Some(challenge);
        }
        if let Some(name) = hello.server_name().and_then(|name| HostName::parse(name).ok()) {
            if gateway.table.tls_edge(name.as_str()).is_some() {
                // The name came too late to be looked at, and the bytes that were read cannot be put back.
                return None;
            }
            let claim = gateway.table.hosts.find_claim(name.as_str(), 443);
            let virtual_host = claim.map(|claim| claim.virtual_host.load_full());
            // The edge that has the wildcard does not get requests for names of another node.
            let virtual_host = virtual_host.filter(|it| !it.carries_bytes);
            tls_policy = virtual_host.and_then(|it| it.tls_policy.clone());
        }
        Some(tls_policy.as_ref().map_or(config, |tls_policy| tls_policy.config.clone()))
    };
    let stream = tls::accept_by_name(stream, choose, limit).await?;
    Ok((stream, HostSelection::ByHost(tls_policy)))
}

/// Returns the parameters that TLS has agreed on.
pub fn tls_info<S>(stream: &TlsStream<S>) -> VisitorTls {
    let (_, connection) = stream.get_ref();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    VisitorTls {
        version: connection.protocol_version().and_then(|it| it.as_str()).unwrap_or_default(),
        cipher_suite: connection
            .negotiated_cipher_suite()
            .and_then(|it| it.suite().as_str())
            .unwrap_or_default(),
        sni: connection.server_name().unwrap_or_default().to_owned(),
        alpn: connection.alpn_protocol().map(text).unwrap_or_default(),
        resumed: connection.handshake_kind() == Some(rustls::HandshakeKind::Resumed),
        client_certificate: connection
            .peer_certificates()
            .and_then(|chain| chain.first())
            .map(|leaf| Arc::from(leaf.as_ref())),
    }
}
