//! Endpoints: the addresses that tunnels, edges or traffic policies alone serve now.

use crate::macros::{resource, wire};
use crate::remote::Ref;
use crate::{Description, Metadata, Timestamp};

wire! {
    /// An address that a tunnel, an edge or a traffic policy alone serves now.
    pub struct Endpoint {
        /// Unique identifier, `ep_` and 27 characters; that of an edge's endpoint stays the same.
        #[public(text)]
        pub id: String,
        /// The address of this endpoint in the API.
        #[public(text)]
        pub uri: String,
        /// When the tunnel was started, or the edge or cloud endpoint was created.
        pub created_at: Option<Timestamp>,
        /// When a cloud endpoint was last changed; others are not changed.
        pub updated_at: Option<Timestamp>,
        /// `ephemeral` for a tunnel's, `edge` for an edge's, `cloud` for a traffic policy's.
        #[public(text)]
        pub r#type: Option<String>,
        /// The public address; of a cloud endpoint as it was asked for.
        #[public(text)]
        pub url: Option<String>,
        /// The public address, with the port of the service where that is not the usual one.
        #[public(text)]
        pub public_url: Option<String>,
        /// `http`, `https`, `tcp` or `tls`.
        #[public(text)]
        pub proto: Option<String>,
        /// The same as `proto`.
        #[public(text)]
        pub scheme: Option<String>,
        /// Host and port: `host:port`.
        #[public(text)]
        pub hostport: Option<String>,
        /// The host name or address.
        #[public(text)]
        pub host: Option<String>,
        /// The port.
        pub port: Option<i64>,
        /// Arbitrary text of the agent, the edge or the cloud endpoint.
        #[public(text)]
        pub metadata: Option<Metadata>,
        /// Human-readable description of it, as the agent, the edge or the cloud endpoint says.
        #[public(text)]
        pub description: Option<String>,
        /// Who owns it: a user or bot user; null for an edge that was made before owners were noted.
        pub principal: Option<Ref>,
        /// The tunnel; null for others.
        pub tunnel: Option<Ref>,
        /// The session of the tunnel; null for others.
        pub tunnel_session: Option<Ref>,
        /// The edge; null for others.
        pub edge: Option<Ref>,
        /// The reserved domain that the host belongs to, if there is one.
        pub domain: Option<Ref>,
        /// The reserved address with the port, if there is one.
        pub tcp_addr: Option<Ref>,
        /// The local address that the agent forwards to; null for an edge.
        pub upstream_url: Option<String>,
        /// `http1` or `http2`: how the agent's service is spoken with; null for an edge.
        #[public(text)]
        pub upstream_protocol: Option<String>,
        /// `["public"]`, or `["internal"]` for a host below `.internal`, to which only policies lead.
        #[public(text)]
        pub bindings: Option<Vec<String>>,
        /// Whether other tunnels of the account may share the address.
        pub pooling_enabled: Option<bool>,
        /// The region of the service.
        #[public(text)]
        pub region: Option<String>,
        /// The traffic policy of a cloud endpoint, in JSON or YAML; null for others.
        pub traffic_policy: Option<String>,
    }
}

resource! {
    /// Endpoints: the addresses that tunnels, edges or traffic policies alone serve now.
    "endpoints" {
        /// Create a cloud endpoint: a traffic policy serves it, whether an agent is there or not.
        POST "/endpoints" Create(
            /// `https://host`, `http://host` or `tcp://host:port`; a host below `.internal` is for policies.
            url: String,
            /// Rules that act on its traffic, in JSON or YAML; what none of them answers or forwards fails.
            traffic_policy: String,
            [
            /// `cloud`.
            r#type: String,
            description: Description,
            metadata: Metadata,
            /// `["public"]`, or `["internal"]` for a host below `.internal`; left out for what the URL says.
            bindings: Vec<String>,
            /// False: cloud endpoints share no URL.
            pooling_enabled: bool,
        ]) -> Endpoint;
        /// List the endpoints that are online, on whichever node, newest first.
        GET "/endpoints" List([before_id: String, limit: i64]) -> [endpoints: Endpoint];
        /// Fetch one endpoint.
        GET "/endpoints/{id}" Get(id: String) -> Endpoint;
        /// Change a cloud endpoint; what is left out keeps its value.
        PATCH "/endpoints/{id}" Update(id: String, [
            /// Its new URL; empty for the one that it has.
            url: String,
            /// The new rules; empty for those that it has.
            traffic_policy: String,
            /// `cloud`.
            r#type: String,
            description: Description,
            metadata: Metadata,
            /// What the URL says.
            bindings: Vec<String>,
            /// False: cloud endpoints share no URL.
            pooling_enabled: bool,
        ]) -> Endpoint;
        /// Delete a cloud endpoint: its address is free, and takes no new traffic.
        DELETE "/endpoints/{id}" Delete(id: String);
    }
}
