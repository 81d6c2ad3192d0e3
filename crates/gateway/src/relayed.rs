//! Hosts that another node serves, visitors that another node has taken, and TLS that ends elsewhere.
//!
//! A visitor may come to any node. The node that has the visitor's connection ends TLS and finds out that
//! the host is an agent's of another node: then the requests go there as they came, over a connection
//! that says who the visitor is, and that node does all that the endpoint wants done. It looks no further,
//! so that there is one hop at most.

use std::collections::HashMap;
use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::Instant;
use tracing::Instrument;

use ginnel_base::address::HostName;
use ginnel_base::logging::or_debug;
use ginnel_http1::HeadWriter;
use ginnel_net::tls::{self, AcceptedSocket};
use ginnel_net::{Listener, Permit, ResetOnClose, ShutdownPhase, ShutdownSignal, is_reset};

use crate::http::connection::HostSelection;
use crate::http::server;
use crate::metered::MeteredSocket;
use crate::routing::endpoint::EndpointTraffic;
use crate::routing::hosts::HostClaim;
use crate::routing::target::{HostRank, RemoteHosts, RouteRef, Target, Visitor};
use crate::routing::virtual_host::{Route, VirtualHost};
use crate::upstream::forward::Upstream;
use crate::{Gateway, GatewayError, GatewayState, Io, Proto, tcp};

/// How long a visitor waits for the way to the node that serves a host.
const NODE_TIMEOUT: Duration = Duration::from_secs(3);
/// Where the TLS of visitors ends by their hosts.
const HTTPS_PORT: u16 = 443;
/// How often it is looked for meanwhile.
const NODE_INTERVAL: Duration = Duration::from_millis(25);

/// Where the TLS of a visitor goes that is not for requests of this node.
pub enum TlsRoute {
    /// To the node where it ends.
    Node(Upstream),
    /// To an edge that carries bytes, for the name that the visitor asks for.
    Edge(Arc<ArcSwap<VirtualHost>>, String),
}

impl Gateway {
    /// Says who knows the hosts of other nodes.
    pub fn find_hosts_in(&self, remote: Arc<dyn RemoteHosts>) {
        self.0.remote_hosts.store(Arc::new(Some(remote)));
    }

    /// Serves the requests of a visitor that another node has taken, and who speaks HTTP; returns when
    /// the connection is over.
    pub async fn serve_relayed(&self, io: Io, visitor: Visitor) {
        let Some(permit) = self.0.limit.admit_relayed(visitor.peer.ip()) else {
            return refuse(io).await;
        };
        let (gateway, socket) = (self.0.clone(), AcceptedSocket::Relayed(io));
        let (span, mut shutdown) = (relayed(&visitor), self.0.relays.signal());
        let serving = server::http1(
            gateway,
            HostSelection::Relayed,
            (socket, permit),
            visitor,
            shutdown.clone(),
        );
        shutdown.run_until(ShutdownPhase::Forced, serving.instrument(span)).await;
    }

    /// Carries the bytes of a visitor that another node has taken to an endpoint of this one; returns when
    /// the connection is over.
    pub async fn carry_relayed(&self, io: Io, visitor: Visitor, endpoint: EndpointTraffic) {
        let Some(permit) = self.0.limit.admit_relayed(visitor.peer.ip()) else { return };
        let (span, mut shutdown) = (relayed(&visitor), self.0.relays.signal());
        let carrying = endpoint.carry(self.0.clone(), (io, permit), visitor, shutdown.clone());
        shutdown.run_until(ShutdownPhase::Forced, carrying.instrument(span)).await;
    }

    /// Does something for a visitor of another node, until that or all of it ends.
    pub async fn relay<T>(&self, relaying: impl Future<Output = T>) -> Option<T> {
        self.0.relays.signal().run_until(ShutdownPhase::Forced, relaying).await
    }

    /// Does nothing more for visitors of other nodes.
    pub async fn end_relays(&self) {
        self.0.relays.stop(Duration::ZERO).await;
    }

    /// Takes connections at a port for the endpoint of another node, until [`Gateway::release_port`] or an
    /// endpoint of this node wants it; `node` opens connections to it.
    ///
    /// # Errors
    /// When the port cannot be listened on.
    pub async fn relay_port(&self, port: u16, node: Arc<dyn Target>) -> Result<(), GatewayError> {
        let socket = self.0.listen(port).await?;
        let listener = self.0.listen_tcp(socket, led_to(self.0.upstream(node)), "tcp")?;
        self.0.relayed_ports().insert(port, listener);
        Ok(())
    }

    /// Whether connections at a port are taken for another node.
    pub fn is_relaying(&self, port: u16) -> bool {
        self.0.relayed_ports().contains_key(&port)
    }

    /// Waits until an endpoint of this node has left a port; one waits at a time.
    pub async fn port_freed(&self) {
        self.0.port_freed.notified().await;
    }

    /// Takes no more connections at a port for another node.
    pub fn release_port(&self, port: u16) {
        self.0.release_port(port);
    }
}

impl GatewayState {
    /// Waits until visitors are served.
    pub async fn opened(&self) {
        self.is_open.wait().await;
    }

    /// The node that serves a host, where what this node has for it, if anything, fits less or is gone for now;
    /// one of those that have failed only where there is no other.
    pub fn remote_host(
        &self,
        host: &str,
        port: u16,
        own: Option<&(HostClaim, HostRank)>,
        failed: &[String],
    ) -> Option<Upstream> {
        let remote = self.remote_hosts.load();
        self.better_than(own, || (**remote).as_ref()?.find(host, port, failed))
    }

    /// Whether another node that can be reached has a host now, and this one has not.
    pub fn is_elsewhere(&self, host: &str, port: u16) -> bool {
        self.has_remote_hosts() && {
            let own = self.hosts.find_ranked(host, port);
            self.remote_host(host, port, own.as_ref(), &[]).is_some()
        }
    }

    /// What another node has, where what this one has, if anything, fits less or is gone for now.
    fn better_than(
        &self,
        own: Option<&(HostClaim, HostRank)>,
        find: impl FnOnce() -> Option<(HostRank, Arc<dyn Target>)>,
    ) -> Option<Upstream> {
        if own.is_some_and(is_best) {
            return None;
        }
        let (rank, node) = find()?;
        is_better(rank, own).then(|| self.upstream(node))
    }

    /// Where the TLS of a visitor goes as it is, or ends for bytes; none where it is for requests.
    pub async fn tls_route(&self, stream: &TcpStream) -> Option<TlsRoute> {
        let remote = self.remote_hosts.load_full();
        let remote = (*remote).as_ref().filter(|remote| remote.end_tls());
        let has_edges = self.tls_edges.load(Ordering::Acquire) > 0;
        if remote.is_none() && !has_edges {
            return None;
        }
        let hello = tls::peeked_hello(stream, self.timeouts().handshake).await?;
        if self.authority.challenges().tls(&hello.client_hello()).is_some() {
            return None;
        }
        let host = HostName::parse(hello.client_hello().server_name()?).ok()?.to_string();
        self.wait_for_node(&host, HTTPS_PORT).await;
        let own = self.hosts.find_ranked(&host, HTTPS_PORT);
        let elsewhere = |remote: &Arc<dyn RemoteHosts>| {
            self.better_than(own.as_ref(), || remote.find_tls(&host))
        };
        match remote.and_then(elsewhere) {
            // What it asks visitors for, this node does not know.
            Some(node) => Some(TlsRoute::Node(node)),
            None => self.tls_edge(&host).map(|edge| TlsRoute::Edge(edge, host)),
        }
    }

    /// The TLS edge that has a host, unless it is a wildcard and another node has what fits better.
    pub fn tls_edge(&self, host: &str) -> Option<Arc<ArcSwap<VirtualHost>>> {
        let own = self.hosts.find_ranked(host, HTTPS_PORT)?;
        if !own.0.virtual_host.load().carries_bytes {
            return None;
        }
        let is_elsewhere = self.remote_host(host, HTTPS_PORT, Some(&own), &[]).is_some()
            || self.is_cut_off(host, HTTPS_PORT, Some(&own));
        (!is_elsewhere).then_some(own.0.virtual_host)
    }

    /// Carries the TLS of a visitor to another node, which ends it, and with it all of the connection.
    pub async fn carry_tls(
        &self,
        node: Upstream,
        socket: AcceptedSocket,
        visitor: &Visitor,
        mut shutdown: ShutdownSignal,
    ) {
        let dialed = node.dial(visitor, &RouteRef::none(), self.timeouts().dial).await;
        let Some(io) = or_debug!(dialed, "cannot reach the node of a host") else { return };
        let (mut from_node, mut to_node) = tokio::io::split(io);
        let socket = MeteredSocket::new(socket, self.bytes_of(visitor.proto));
        let (mut from_visitor, mut to_visitor) = tokio::io::split(socket);
        let carrying = async {
            let requests = async {
                tokio::io::copy(&mut from_visitor, &mut to_node).await?;
                to_node.shutdown().await?;
                // How long that node waits for a visitor who says no more is for it to decide.
                std::future::pending::<io::Result<()>>().await
            };
            let responses = async {
                tokio::io::copy(&mut from_node, &mut to_visitor).await?;
                to_visitor.shutdown().await
            };
            tokio::select! { ended = requests => ended, ended = responses => ended }
        };
        let stopped =
            || Err(io::Error::new(io::ErrorKind::ConnectionAborted, "stopped before its end"));
        let carried = shutdown.run_until(ShutdownPhase::Forced, carrying).await;
        let carried = carried.unwrap_or_else(stopped);
        if carried.as_ref().is_err_and(is_reset) {
            from_visitor.unsplit(to_visitor).reset_on_close();
            from_node.unsplit(to_node).reset_on_close();
        }
        or_debug!(carried, "a connection broke");
    }

    /// Waits for a moment for the way to the node of a host, where it is missing: this node may have just
    /// started, that one may have ended, and then its agents are back at another, or here, in no time.
    pub async fn wait_for_node(&self, host: &str, port: u16) {
        let deadline = Instant::now() + NODE_TIMEOUT;
        let own = || self.hosts.find_ranked(host, port);
        while self.is_cut_off(host, port, own().as_ref()) && Instant::now() < deadline {
            tokio::time::sleep(NODE_INTERVAL).await;
        }
    }

    /// Whether only nodes that cannot be reached have what fits a host best.
    pub fn is_cut_off(&self, host: &str, port: u16, own: Option<&(HostClaim, HostRank)>) -> bool {
        let remote = self.remote_hosts.load();
        let Some(remote) = remote.as_ref() else { return false };
        !own.is_some_and(is_best)
            && remote.cut_off(host, port).is_some_and(|rank| is_better(rank, own))
    }

    /// Leaves a port to an endpoint of this node.
    pub fn release_port(&self, port: u16) {
        if self.relayed_ports().remove(&port).is_some() {
            self.port_freed.notify_one();
        }
    }

    /// Connections at the port of an endpoint whose agent is gone for now, led to another node that has it;
    /// none where no other one has.
    pub fn elsewhere(
        &self,
        port: u16,
        virtual_host: &ArcSwap<VirtualHost>,
    ) -> Option<Arc<ArcSwap<VirtualHost>>> {
        let remote = self.remote_hosts.load();
        let remote = (**remote).as_ref()?;
        if !virtual_host.load().is_offline() {
            return None;
        }
        Some(led_to(self.upstream(remote.at_port(port)?)))
    }

    fn relayed_ports(&self) -> MutexGuard<'_, HashMap<u16, Listener>> {
        self.relayed_ports.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether there may be other nodes.
    pub fn has_remote_hosts(&self) -> bool {
        self.remote_hosts.load().is_some()
    }
}

/// Whether nothing elsewhere fits a host better than this.
fn is_best((claim, rank): &(HostClaim, HostRank)) -> bool {
    rank.is_best() && !claim.is_offline()
}

/// Whether a name elsewhere fits a host better than what is here, if anything, or as well as what is gone for
/// now.
fn is_better(rank: HostRank, own: Option<&(HostClaim, HostRank)>) -> bool {
    own.is_none_or(|(claim, own)| rank > *own || (rank == *own && claim.is_offline()))
}

impl EndpointTraffic {
    /// Serves a connection as the listener of the endpoint does.
    async fn carry(
        self,
        gateway: Arc<GatewayState>,
        (io, permit): (Io, Permit),
        mut visitor: Visitor,
        shutdown: ShutdownSignal,
    ) {
        let tls_policy = self.virtual_host.load_full().tls_policy.clone();
        let is_shared = visitor.proto == "https";
        let has_tls = match self.proto {
            // A visitor of the shared port, whose TLS ends here alone.
            Proto::Https => is_shared || gateway.settings.tls_endpoints,
            Proto::Tls => tls_policy.is_some(),
            Proto::Http | Proto::Tcp => false,
        };
        let mut socket = AcceptedSocket::Relayed(io);
        if has_tls {
            let usual = || gateway.authority.server_config(&[]).ok();
            let own = tls_policy.as_ref().map(|it| it.config.clone());
            let Some(config) = own.or_else(usual) else { return };
            let accepted = tls::accept(socket, config, gateway.timeouts().handshake).await;
            let accepted = or_debug!(accepted, "a TLS handshake of a visitor failed");
            let Some(stream) = accepted else { return };
            visitor.tls = Some(Arc::new(server::tls_info(&stream)));
            socket = AcceptedSocket::Relayed(Box::new(stream));
        }
        match self.proto {
            Proto::Http | Proto::Https => {
                visitor.proto = if has_tls { "https" } else { "http" };
                let host_selection = match is_shared {
                    true => HostSelection::ByHost(tls_policy),
                    false => HostSelection::Single(self.virtual_host),
                };
                server::http(gateway, host_selection, (socket, permit), visitor, shutdown).await;
            }
            Proto::Tcp | Proto::Tls => {
                visitor.proto = if self.proto == Proto::Tls { "tls" } else { "tcp" };
                visitor.passthrough = self.proto == Proto::Tls && !has_tls;
                let _permit = permit;
                tcp::pass(&gateway, &self.virtual_host, socket, &visitor, shutdown).await;
            }
        }
    }
}

/// What leads everything to another node.
fn led_to(node: Upstream) -> Arc<ArcSwap<VirtualHost>> {
    Arc::new(ArcSwap::from_pointee(VirtualHost::of(Route::to_node(node))))
}

/// Says that there is no room, before a request is read.
async fn refuse(mut io: Io) {
    let mut head = Vec::new();
    let mut writer = HeadWriter::response_with(true, 503, b"Service Unavailable", &mut head);
    writer.field("retry-after", "1").field("content-length", "0").field("connection", "close");
    writer.end();
    let said = async {
        io.write_all(&head).await?;
        io.shutdown().await
    };
    or_debug!(said.await, "another node does not hear that there is no room");
}

fn relayed(visitor: &Visitor) -> tracing::Span {
    tracing::debug_span!("relayed connection", peer = %visitor.peer)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use rcgen::{
        BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    };
    use rustls::pki_types::pem::PemObject;
    use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
    use rustls::{ClientConfig, RootCertStore};
    use tokio_rustls::TlsConnector;

    use super::*;
    use crate::tls::authority::LocalAuthority;
    use crate::{EndpointSpec, GatewaySettings};
    use ginnel_api::endpoint_options::VisitorAuthorities;
    use ginnel_api::{Base64, EndpointOptions};

    /// The authority of visitors, and how one of them speaks TLS, who wants HTTP/2.
    fn visitor_of(authority: &LocalAuthority) -> (Vec<u8>, ClientConfig) {
        let (signer, own) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = params.self_signed(&signer).unwrap().pem().into_bytes();
        let issuer = Issuer::new(params, signer);
        let mut params = CertificateParams::new(["visitor.test".to_owned()]).unwrap();
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let certificate = params.signed_by(&own, &issuer).unwrap().der().clone();
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(authority.pem().as_bytes()).unwrap()).unwrap();
        let config = ClientConfig::builder().with_root_certificates(roots);
        let key = PrivateKeyDer::try_from(own.serialize_der()).unwrap();
        let mut config = config.with_client_auth_cert(vec![certificate], key).unwrap();
        config.alpn_protocols = vec![b"h2".to_vec()];
        (pem, config)
    }

    #[tokio::test]
    async fn a_visitor_who_agrees_on_http2_at_the_wrong_node_is_spoken_to_so() {
        let authority = LocalAuthority::open(None).unwrap();
        let (signers, config) = visitor_of(&authority);
        let settings = GatewaySettings { tls_endpoints: true, ..GatewaySettings::default() };
        let gateway = Gateway::start(settings, authority).await.unwrap();
        let mutual_tls = Some(VisitorAuthorities { mutual_tls_ca: Base64(signers.into()) });
        let options = EndpointOptions { mutual_tls, ..EndpointOptions::default() };
        let spec = EndpointSpec { options, ..EndpointSpec::any(Proto::Https) };
        let endpoint = gateway.bind_offline(spec).await.unwrap();
        let (near, far) = tokio::io::duplex(1 << 16);
        let address = endpoint.address().unwrap();
        let visitor =
            Visitor { peer: address, local: address, proto: "tcp", tls: None, passthrough: false };
        let (carrier, traffic) = (gateway.clone(), endpoint.traffic());
        tokio::spawn(async move { carrier.carry_relayed(Box::new(far), visitor, traffic).await });

        let name = ServerName::try_from(address.ip().to_string()).unwrap();
        let stream = TlsConnector::from(Arc::new(config)).connect(name, near).await.unwrap();
        let (mut client, connection) = h2::client::handshake(stream).await.unwrap();
        tokio::spawn(connection);
        let request = http::Request::get(endpoint.url()).body(()).unwrap();
        let (response, _) = client.send_request(request, true).unwrap();

        assert_eq!(response.await.unwrap().status(), 404);
    }
}
