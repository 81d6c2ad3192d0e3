//! Hosts that another node serves, visitors that another node has taken, and TLS that ends elsewhere.
//!
//! A visitor may come to any node. The node that has the visitor's connection ends TLS and finds out that
//! the host is an agent's of another node: then the requests go there as they came, over a connection
//! that says who the visitor is, and that node does all that the endpoint wants done. It looks no further,
//! so that there is one hop at most.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tracing::Instrument;

use ginnel_base::logging::or_debug;
use ginnel_http1::HeadWriter;
use ginnel_net::tls::{self, AcceptedSocket};
use ginnel_net::{Permit, ResetOnClose, ShutdownPhase, ShutdownSignal, is_reset};

use crate::message::metered::MeteredSocket;
use crate::message::visitor::{RouteRef, Visitor};
use crate::request_phase::RequestPhase;
use crate::routing::endpoint::EndpointTraffic;
use crate::routing::hosts::HostSelection;
use crate::routing::remote_hosts::RemoteHosts;
use crate::routing::route_table::led_to;
use crate::server::accept;
use crate::server::gateway::{Gateway, GatewayState};
use crate::server::http_server;
use crate::server::tcp;
use crate::upstream::forward::Upstream;
use crate::upstream::target::Target;
use crate::{GatewayError, Io, Proto};

impl Gateway {
    /// Says who knows the hosts of other nodes.
    pub fn find_hosts_in(&self, remote: Arc<dyn RemoteHosts>) {
        self.0.table.find_hosts_in(remote);
    }

    /// Serves the requests of a visitor that another node has taken, and who speaks HTTP; returns when
    /// the connection is over.
    pub async fn serve_relayed(&self, io: Io, visitor: Visitor) {
        let Some(permit) = self.0.limit.admit_relayed(visitor.peer.ip()) else {
            return send_unavailable(io).await;
        };
        let (gateway, socket) = (self.0.clone(), AcceptedSocket::Relayed(io));
        let (span, mut shutdown) = (relayed_span(&visitor), self.0.relays.signal());
        let serving = http_server::http1(
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
        let (span, mut shutdown) = (relayed_span(&visitor), self.0.relays.signal());
        let carrying =
            endpoint.carry_connection(self.0.clone(), (io, permit), visitor, shutdown.clone());
        shutdown.run_until(ShutdownPhase::Forced, carrying.instrument(span)).await;
    }

    /// Does something for a visitor of another node, until that or all of it ends.
    pub async fn run_relay<T>(&self, relaying: impl Future<Output = T>) -> Option<T> {
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
        let socket = self.0.listen_on_port(port).await?;
        let listener =
            self.0.listen_tcp(socket, led_to(self.0.table.targets.upstream(node)), "tcp")?;
        self.0.ports.relayed().insert(port, listener);
        Ok(())
    }

    /// Whether connections at a port are taken for another node.
    pub fn is_relaying(&self, port: u16) -> bool {
        self.0.ports.relayed().contains_key(&port)
    }

    /// Waits until an endpoint of this node has left a port; one waits at a time.
    pub async fn wait_for_port(&self) {
        self.0.table.port_freed.notified().await;
    }

    /// Takes no more connections at a port for another node.
    pub fn release_port(&self, port: u16) {
        self.0.release_port(port);
    }
}

impl GatewayState {
    /// Carries the TLS of a visitor to another node, which ends it, and with it all of the connection.
    pub async fn carry_tls(
        &self,
        node: Upstream,
        socket: AcceptedSocket,
        visitor: &Visitor,
        mut shutdown: ShutdownSignal,
    ) {
        let dialed = node.dial_target(visitor, &RouteRef::none(), self.timeouts().dial).await;
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

    /// Leaves a port to an endpoint of this node.
    pub fn release_port(&self, port: u16) {
        if self.ports.relayed().remove(&port).is_some() {
            self.table.port_freed.notify_one();
        }
    }
}

impl EndpointTraffic {
    /// Serves a connection as the listener of the endpoint does.
    async fn carry_connection(
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
            Proto::Https => is_shared || gateway.services.settings.tls_endpoints,
            Proto::Tls => tls_policy.is_some(),
            Proto::Http | Proto::Tcp => false,
        };
        let mut socket = AcceptedSocket::Relayed(io);
        if has_tls {
            let usual = || gateway.authority.server_config(&[]).ok();
            let own = tls_policy.as_ref().map(|it| it.config.clone());
            let Some(config) = own.or_else(usual) else { return };
            let accepted = tls::accept_tls(socket, config, gateway.timeouts().handshake).await;
            let accepted = or_debug!(accepted, "a TLS handshake of a visitor failed");
            let Some(stream) = accepted else {
                return gateway.services.count_rejection(RequestPhase::Accept);
            };
            visitor.tls = Some(Arc::new(accept::tls_info(&stream)));
            socket = AcceptedSocket::Relayed(Box::new(stream));
        }
        match self.proto {
            Proto::Http | Proto::Https => {
                visitor.proto = if has_tls { "https" } else { "http" };
                let host_selection = match is_shared {
                    true => HostSelection::ByHost(tls_policy),
                    false => HostSelection::Single(self.virtual_host),
                };
                http_server::http(gateway, host_selection, (socket, permit), visitor, shutdown)
                    .await;
            }
            Proto::Tcp | Proto::Tls => {
                visitor.proto = if self.proto == Proto::Tls { "tls" } else { "tcp" };
                visitor.passthrough = self.proto == Proto::Tls && !has_tls;
                let _permit = permit;
                tcp::serve_bytes(&gateway, &self.virtual_host, socket, &visitor, shutdown).await;
            }
        }
    }
}

/// Says that there is no room, before a request is read.
async fn send_unavailable(mut io: Io) {
    let mut head = Vec::new();
    let mut writer = HeadWriter::begin_response_with(true, 503, b"Service Unavailable", &mut head);
    writer.field("retry-after", "1").field("content-length", "0").field("connection", "close");
    writer.end();
    let said = async {
        io.write_all(&head).await?;
        io.shutdown().await
    };
    or_debug!(said.await, "another node does not hear that there is no room");
}

fn relayed_span(visitor: &Visitor) -> tracing::Span {
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
    use tokio::io::AsyncReadExt;
    use tokio_rustls::TlsConnector;

    use super::*;
    use crate::message::visitor::VisitorTls;
    use crate::tls::authority::LocalAuthority;
    use crate::{EndpointSpec, GatewaySettings};
    use ginnel_api::endpoint_options::VisitorAuthorities;
    use ginnel_api::remote::edges::modules::TrafficPolicyDocument;
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

    /// The response to a visitor whose TLS has ended at another node, for a name of its own.
    async fn visit_from_another_node(gateway: &Gateway, version: &'static str) -> String {
        let address = gateway.https_address().unwrap();
        let tls = VisitorTls { version, sni: "origin.test".to_owned(), ..VisitorTls::default() };
        let tls = Some(Arc::new(tls));
        let visitor =
            Visitor { peer: address, local: address, proto: "https", tls, passthrough: false };
        let (mut near, far) = tokio::io::duplex(1 << 16);
        let relaying = gateway.clone();
        tokio::spawn(async move { relaying.serve_relayed(Box::new(far), visitor).await });
        let request = b"GET / HTTP/1.1\r\nHost: app.test\r\nConnection: close\r\n\r\n";
        near.write_all(request).await.unwrap();
        let mut response = String::new();
        near.read_to_string(&mut response).await.unwrap();
        response.split(' ').nth(1).unwrap_or_default().to_owned()
    }

    #[tokio::test]
    async fn a_visitor_of_another_node_is_judged_by_the_handshake_and_not_by_its_name() {
        let authority = LocalAuthority::open(None).unwrap();
        let (signers, _) = visitor_of(&authority);
        let gateway = Gateway::start(GatewaySettings::default(), authority).await.unwrap();
        let policy = |tls: &str| {
            let rules = format!(
                r#"{{{tls}"on_http_request": [{{"actions": [
                    {{"type": "custom-response", "config": {{"status_code": 218}}}}]}}]}}"#
            );
            let document = TrafficPolicyDocument { enabled: None, value: Some(rules) };
            EndpointOptions { traffic_policy: Some(document), ..EndpointOptions::default() }
        };
        let newest = r#""on_tcp_connect": [{"actions": [
            {"type": "terminate-tls", "config": {"min_version": "1.3"}}]}], "#;
        let mutual_tls = Some(VisitorAuthorities { mutual_tls_ca: Base64(signers.into()) });
        let with_certificates = EndpointOptions { mutual_tls, ..policy("") };

        for (options, version, expected) in [
            (policy(""), "TLSv1_2", "218"),
            (policy(newest), "TLSv1_3", "218"),
            (policy(newest), "TLSv1_2", "421"),
            (with_certificates, "TLSv1_3", "421"),
        ] {
            let host = Some("app.test".to_owned());
            let spec = EndpointSpec { host, options, ..EndpointSpec::any(Proto::Https) };
            let _endpoint = gateway.bind_offline(spec).await.unwrap();

            assert_eq!(visit_from_another_node(&gateway, version).await, expected, "{version}");
        }
    }
}
