//! Agents and their tunnels as the rows that other nodes see.

use sha2::{Digest, Sha256};

use ginnel_gateway::{EndpointPlace, EndpointSpec, Proto, PublicEndpoint, UpstreamProtocol};

use crate::agents::online_agent::OnlineAgent;
use crate::agents::tunnel::{OnlineTunnel, TunnelKind};
use crate::cluster::{
    EndpointKey, EndpointRow, RowOwner, SessionDocument, TlsHandling, TunnelDocument,
};

/// The row of a session; whose it is, is said when it is written.
pub fn session_row(online: &OnlineAgent) -> SessionDocument {
    SessionDocument {
        id: online.id.clone(),
        owner: RowOwner::default(),
        credential_id: online.agent.credential_id.clone(),
        account_id: online.agent.owner_id.clone(),
        ip: online.ip.to_string(),
        os: online.os.clone(),
        agent_version: online.agent_version.clone(),
        metadata: online.metadata.clone(),
        started_at: online.started_at.clone(),
    }
}

/// What other nodes know of what an agent names to come back: to name it is half of a proof.
pub(super) fn client_digest(client_id: &str) -> String {
    ginnel_base::hex(&Sha256::digest(client_id)[..16])
}

/// The row of a tunnel, with its endpoint if it has one of its own.
pub fn tunnel_row(tunnel: &OnlineTunnel, endpoint: Option<&PublicEndpoint>) -> TunnelDocument {
    let row = TunnelDocument {
        id: tunnel.id.clone(),
        owner: RowOwner::default(),
        bind_id: tunnel.bind_id.clone(),
        session_id: tunnel.session.id.clone(),
        client: client_digest(&tunnel.session.client_id),
        account_id: tunnel.session.agent.owner_id.clone(),
        metadata: tunnel.metadata.clone(),
        description: tunnel.description.clone(),
        forwards_to: tunnel.forwards_to.clone(),
        started_at: tunnel.started_at.clone(),
        http2: tunnel.speaks == UpstreamProtocol::Http2,
        endpoint: None,
        labels: None,
    };
    match &tunnel.kind {
        TunnelKind::Labeled(labels) => TunnelDocument { labels: Some(labels.clone()), ..row },
        TunnelKind::Endpoint { endpoint_id, url, proto, proxy_proto, pool } => {
            let endpoint = EndpointRow {
                id: endpoint_id.to_string(),
                url: url.clone(),
                proto: proto.clone(),
                key: endpoint.map(endpoint_key).unwrap_or_default(),
                tls: endpoint.map(tls_handling).unwrap_or_default(),
                proxy_proto: *proxy_proto,
                pool: pool.clone(),
            };
            TunnelDocument { endpoint: Some(endpoint), ..row }
        }
    }
}

/// What no two binds of the cluster have.
pub fn endpoint_key(endpoint: &PublicEndpoint) -> EndpointKey {
    match endpoint.place() {
        Some(EndpointPlace::Name(host, port)) => EndpointKey::http(host, port),
        Some(EndpointPlace::Inside(host, port)) => EndpointKey::bytes(host, port),
        Some(EndpointPlace::Port(port)) => EndpointKey::port(port),
        None => EndpointKey::default(),
    }
}

/// What an endpoint will be found by that is asked for in so many words: a name on the shared ports, or a
/// port. None where that is not known before it is bound.
pub fn requested_key(spec: &EndpointSpec) -> Option<EndpointKey> {
    let host = spec.host.as_deref().filter(|host| !host.is_empty()).map(str::to_ascii_lowercase);
    match (spec.proto, host) {
        (Proto::Http, Some(host)) => Some(EndpointKey::http(&host, 80)),
        (Proto::Https, Some(host)) => Some(EndpointKey::http(&host, 443)),
        // Whoever has a port there has it for all that is asked of the port.
        _ => spec.own_port().map(EndpointKey::port),
    }
}

fn tls_handling(endpoint: &PublicEndpoint) -> TlsHandling {
    let options = endpoint.options();
    if options.mutual_tls.is_some() {
        return TlsHandling::Mutual;
    }
    match (endpoint.proto(), &options.tls_termination) {
        (Proto::Tls, Some(_)) => TlsHandling::Terminated,
        (Proto::Tls, None) => TlsHandling::PassedThrough,
        _ => TlsHandling::Usual,
    }
}
