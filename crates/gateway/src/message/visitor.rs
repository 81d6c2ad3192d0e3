//! Who sends requests, and by which route.

use std::net::SocketAddr;
use std::sync::{Arc, LazyLock};

/// Who stands at a public address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Visitor {
    /// Where the visitor comes from.
    pub peer: SocketAddr,
    /// Where the visitor has come to.
    pub local: SocketAddr,
    /// What the visitor speaks: `http`, `https`, `tcp` or `tls`.
    pub proto: &'static str,
    /// What was agreed on, where TLS ends at the service.
    pub tls: Option<Arc<VisitorTls>>,
    /// True when the bytes are TLS that does not end at the service.
    pub passthrough: bool,
}

/// What a visitor and the service agreed on.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct VisitorTls {
    /// The version as `rustls` calls it, such as `TLSv1_3`; between nodes, too.
    pub version: &'static str,
    /// The cipher suite as `rustls` calls it, such as `TLS13_AES_128_GCM_SHA256`; between nodes, too.
    pub cipher_suite: &'static str,
    /// The name that the visitor asked for; empty when there was none.
    pub sni: String,
    /// The protocol agreed on by ALPN; empty when there was none.
    pub alpn: String,
    /// True when the session was resumed.
    pub resumed: bool,
    /// The certificate that the visitor has shown, as DER.
    pub client_certificate: Option<Arc<[u8]>>,
}

/// What led a visitor to a target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RouteRef {
    /// The identifier of the edge; empty for the endpoint of an agent.
    pub edge_id: Arc<str>,
    /// The identifier of the route; empty where there is none to choose.
    pub route_id: Arc<str>,
}

impl RouteRef {
    /// What the route belongs to, which is the same for all routes of a host: its edge, or the endpoint.
    pub fn owner(&self) -> &Arc<str> {
        if self.edge_id.is_empty() { &self.route_id } else { &self.edge_id }
    }

    /// Of what no edge has led here.
    pub fn none() -> Self {
        static EMPTY: LazyLock<Arc<str>> = LazyLock::new(|| Arc::from(""));
        Self { edge_id: EMPTY.clone(), route_id: EMPTY.clone() }
    }
}
