//! Endpoints: the public addresses that are served now, by tunnels or by edges.

use crate::api::macros::{resource, wire};
use crate::api::remote::Ref;
use crate::api::{Metadata, Timestamp};

wire! {
    /// A public address that a tunnel or an edge serves now.
    pub struct Endpoint {
        /// Unique identifier, `ep_` and 27 characters; that of an edge's endpoint stays the same.
        pub id: String,
        /// The address of this endpoint in the API.
        pub uri: String,
        /// When the tunnel was started, or the edge was created.
        pub created_at: Option<Timestamp>,
        /// The same: endpoints are not changed.
        pub updated_at: Option<Timestamp>,
        /// `ephemeral` for a tunnel's, `edge` for an edge's.
        pub r#type: Option<String>,
        /// The public address.
        pub url: Option<String>,
        /// The public address, by its old name.
        pub public_url: Option<String>,
        /// `http`, `https`, `tcp` or `tls`.
        pub proto: Option<String>,
        /// The same as `proto`.
        pub scheme: Option<String>,
        /// Host and port: `host:port`.
        pub hostport: Option<String>,
        /// The host name or address.
        pub host: Option<String>,
        /// The port.
        pub port: Option<i64>,
        /// Free text of the agent or the edge.
        pub metadata: Option<Metadata>,
        /// What the edge is for; empty for a tunnel.
        pub description: Option<String>,
        /// Who owns it: a user or bot user; null for an edge that was made before owners were noted.
        pub principal: Option<Ref>,
        /// The tunnel; null for an edge.
        pub tunnel: Option<Ref>,
        /// The session of the tunnel; null for an edge.
        pub tunnel_session: Option<Ref>,
        /// The edge; null for a tunnel.
        pub edge: Option<Ref>,
        /// The reserved domain that the host belongs to, if there is one.
        pub domain: Option<Ref>,
        /// The reserved address with the port, if there is one.
        pub tcp_addr: Option<Ref>,
        /// The local address that the agent forwards to; null for an edge.
        pub upstream_url: Option<String>,
        /// `http1` or `http2`: how the agent's service is spoken with; null for an edge.
        pub upstream_protocol: Option<String>,
        /// Always `["public"]`.
        pub bindings: Option<Vec<String>>,
        /// Always false: an endpoint is served by one tunnel or edge.
        pub pooling_enabled: Option<bool>,
        /// The region of the service.
        pub region: Option<String>,
    }
}

resource! {
    /// Endpoints: the public addresses that are served now, by tunnels or by edges.
    "endpoints" {
        /// List the endpoints that are online, on whichever node, newest first.
        GET "/endpoints" List([before_id: String, limit: i64]) -> [endpoints: Endpoint];
        /// Fetch one endpoint.
        GET "/endpoints/{id}" Get(id: String) -> Endpoint;
    }
}
