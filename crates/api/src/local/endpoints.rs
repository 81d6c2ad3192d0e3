//! Endpoints of the agent: its tunnels by their public URL and their upstream.

use serde_json::Value;

use super::tunnels::{AgentTunnelConfig, Metrics};
use crate::macros::{resource, wire};
use crate::{Secret, TextOrNumber};

wire! {
    /// A tunnel that the agent runs, as an endpoint.
    pub struct AgentEndpoint {
        /// 32 hexadecimal digits, the same as those of the tunnel.
        pub id: String,
        /// The name of the endpoint and of its tunnel; empty for an unnamed one.
        pub name: String,
        /// The path of this endpoint.
        pub uri: String,
        /// The public address; empty for a labeled tunnel.
        pub url: String,
        /// The same as `url`, as tunnels call it.
        pub public_url: String,
        /// `http`, `https`, `tcp` or `tls`, by the public address; empty for a labeled tunnel.
        pub proto: String,
        /// `online`, or why visitors cannot reach it: `reconnecting: ` and the reason.
        pub status: Option<String>,
        /// Who can reach it: `public`, or `internal` for a host below `.internal`.
        pub bindings: Vec<String>,
        /// Where it forwards to.
        pub upstream: EndpointUpstream,
        /// The configuration in effect; its `addr` is the URL of the upstream.
        pub config: AgentTunnelConfig,
        /// Counts, rates and percentiles.
        pub metrics: Metrics,
        /// Whether it shares its URL with other endpoints of the account.
        pub pooling_enabled: Option<bool>,
        /// Human-readable description of it.
        pub description: Option<String>,
        /// Whether requests are captured.
        pub inspect: Option<bool>,
        /// The text of its traffic policy; none where it has none.
        pub traffic_policy: Option<String>,
    }

    /// Where an endpoint forwards to.
    pub struct EndpointUpstream {
        /// A port, `host:port` or a URL.
        pub url: Option<TextOrNumber>,
        /// What is spoken there: `http1` or `http2`; left out for bytes.
        pub protocol: Option<String>,
        /// The version of the PROXY protocol that it expects, 1 or 2.
        pub proxy_protocol: Option<TextOrNumber>,
    }

    /// How the agent terminates the TLS of visitors.
    pub struct AgentTlsTermination {
        /// The certificate: a file, or PEM text.
        pub server_certificate: Option<String>,
        /// The key of the certificate: a file, or PEM text.
        pub server_private_key: Option<Secret>,
        /// Certificates, each a file or PEM text; visitors must present one that these have signed.
        pub mutual_tls_certificate_authorities: Option<Vec<String>>,
    }
}

resource! {
    /// Endpoints of the agent: the same tunnels by their public URL and their upstream.
    "endpoints" {
        /// List the running tunnels as endpoints, oldest first.
        GET "/endpoints" List() -> [endpoints: AgentEndpoint];
        /// Start a tunnel for an endpoint; returns when the service has bound its public address.
        POST "/endpoints" Start(
            /// Where to forward to.
            upstream: EndpointUpstream,
            [
            /// The public URL: `https://`, `http://`, `tls://` or `tcp://`, and the host where it matters;
            /// left out for HTTPS at an assigned host.
            url: String,
            /// The name; unique among the running tunnels, at most 255 bytes.
            name: String,
            /// Free text that the management API shows; at most 4096 bytes.
            metadata: String,
            /// Human-readable description of the endpoint, which the management API shows; at most 255 bytes.
            description: String,
            /// Who can reach it: `public`, or `internal` with a host below `.internal`.
            bindings: Vec<String>,
            /// False to capture no requests.
            inspect: bool,
            /// True to share the URL, and its load, with other endpoints of the account that do.
            pooling_enabled: bool,
            /// A traffic policy: an object, or its JSON or YAML text.
            traffic_policy: Value,
            /// How the agent terminates TLS, at `tls://` alone; left out for the upstream to do so.
            agent_tls_termination: AgentTlsTermination,
        ]) -> AgentEndpoint;
        /// Fetch one running tunnel as an endpoint.
        GET "/endpoints/{name}" Get(
            /// The name of the endpoint.
            name: String
        ) -> AgentEndpoint;
        /// Replace the running endpoint of this name, or start one if there is none.
        ///
        /// The one that runs is stopped for a moment, and its connections are closed. If the new
        /// one cannot be started, it is started again, and the error says whether that worked.
        PUT "/endpoints/{name}" Replace(
            /// The name of the endpoint.
            name: String,
            /// Where to forward to.
            upstream: EndpointUpstream,
            [
            /// The public URL: `https://`, `http://`, `tls://` or `tcp://`, and the host where it matters;
            /// left out for that of the endpoint that runs, or for HTTPS at an assigned host.
            url: String,
            /// The path of this call; another one is refused.
            uri: String,
            /// Free text that the management API shows; at most 4096 bytes.
            metadata: String,
            /// Human-readable description of the endpoint, which the management API shows; at most 255 bytes.
            description: String,
            /// Who can reach it: `public`, or `internal` with a host below `.internal`.
            bindings: Vec<String>,
            /// False to capture no requests.
            inspect: bool,
            /// True to share the URL, and its load, with other endpoints of the account that do.
            pooling_enabled: bool,
            /// A traffic policy: an object, or its JSON or YAML text.
            traffic_policy: Value,
            /// How the agent terminates TLS, at `tls://` alone; left out for the upstream to do so.
            agent_tls_termination: AgentTlsTermination,
        ]) -> AgentEndpoint;
        /// Stop the tunnel of an endpoint and close its connections; its captured requests stay.
        DELETE "/endpoints/{name}" Stop(
            /// The name of the endpoint.
            name: String
        );
    }
}
