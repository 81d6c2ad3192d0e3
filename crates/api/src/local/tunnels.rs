//! Tunnels of the agent: start, look at, stop.

use serde_json::Value;

use crate::endpoint_options::tunnel_modules;
use crate::macros::{resource, wire};
use crate::{Number, Secret, TextOrNumber};

wire! {
    /// A tunnel that the agent runs.
    pub struct AgentTunnel {
        /// 32 hexadecimal digits.
        pub ID: Option<String>,
        /// The tunnel's name; empty for an unnamed tunnel.
        pub name: String,
        /// The path of this tunnel.
        pub uri: String,
        /// The public address; empty for a labeled tunnel.
        pub public_url: String,
        /// `http`, `https`, `tcp` or `tls`, by the public address; empty for a labeled tunnel.
        pub proto: String,
        /// `online`, or why visitors cannot reach it: `reconnecting: ` and the reason.
        pub status: Option<String>,
        /// The configuration in effect.
        pub config: AgentTunnelConfig,
        /// Counts, rates and percentiles.
        pub metrics: Metrics,
        /// Whether it shares its URL with other endpoints of the account.
        pub pooling_enabled: Option<bool>,
    }

    /// The configuration of a tunnel.
    pub struct AgentTunnelConfig {
        /// The local address, `host:port`.
        pub addr: String,
        /// Whether requests are captured.
        pub inspect: bool,
    }

    /// What a tunnel has carried.
    pub struct Metrics {
        /// Its connections.
        pub conns: ConnectionMetrics,
        /// Its HTTP requests; all zero for tunnels that are not HTTP.
        pub http: HttpMetrics,
    }

    /// Figures about connections.
    pub struct ConnectionMetrics {
        /// Connections since the start.
        pub count: i64,
        /// Connections that are open now.
        pub gauge: i64,
        /// New connections per second, over about one minute.
        pub rate1: Number,
        /// New connections per second, over about five minutes.
        pub rate5: Number,
        /// New connections per second, over about fifteen minutes.
        pub rate15: Number,
        /// How long half of the connections lasted at most, in nanoseconds.
        pub p50: Number,
        /// How long 90 % of the connections lasted at most, in nanoseconds.
        pub p90: Number,
        /// How long 95 % of the connections lasted at most, in nanoseconds.
        pub p95: Number,
        /// How long 99 % of the connections lasted at most, in nanoseconds.
        pub p99: Number,
    }

    /// Figures about HTTP requests.
    pub struct HttpMetrics {
        /// Requests since the start.
        pub count: i64,
        /// Requests per second, over about one minute.
        pub rate1: Number,
        /// Requests per second, over about five minutes.
        pub rate5: Number,
        /// Requests per second, over about fifteen minutes.
        pub rate15: Number,
        /// How long half of the requests took at most, in nanoseconds.
        pub p50: Number,
        /// How long 90 % of the requests took at most, in nanoseconds.
        pub p90: Number,
        /// How long 95 % of the requests took at most, in nanoseconds.
        pub p95: Number,
        /// How long 99 % of the requests took at most, in nanoseconds.
        pub p99: Number,
    }

    /// Headers to add and to remove.
    pub struct HeaderChanges {
        /// Headers to add, `name:value`.
        pub add: Option<Vec<String>>,
        /// Names of headers to remove.
        pub remove: Option<Vec<String>>,
    }

    /// Which addresses may connect.
    pub struct IpRestriction {
        /// CIDRs that may connect; when there are any, no other may.
        pub allow_cidrs: Option<Vec<String>>,
        /// CIDRs that may not connect.
        pub deny_cidrs: Option<Vec<String>>,
    }

    /// Which user agents may connect.
    pub struct UserAgentFilter {
        /// Regular expressions of those that may.
        pub allow: Option<Vec<String>>,
        /// Regular expressions of those that may not.
        pub deny: Option<Vec<String>>,
    }

    /// Where visitors log in with OAuth, and who of them may connect.
    pub struct TunnelOauth {
        /// The provider: `amazon`, `facebook`, `github`, `gitlab`, `google`, `linkedin`, `microsoft` or
        /// `twitch`.
        pub provider: Option<String>,
        /// The client at the provider; left out for that of the service's operator.
        pub client_id: Option<String>,
        /// The secret of the client.
        pub client_secret: Option<Secret>,
        /// Email addresses that may connect; when there are any, or domains, no others may.
        pub allow_emails: Option<Vec<String>>,
        /// Domains of email addresses that may connect.
        pub allow_domains: Option<Vec<String>>,
        /// Scopes to request; needs a `client_id`.
        pub scopes: Option<Vec<String>>,
    }

    /// Where visitors log in with OpenID Connect, and who of them may connect.
    pub struct TunnelOidc {
        /// The `https` URL of the issuer.
        pub issuer_url: Option<String>,
        /// The client at the issuer.
        pub client_id: Option<String>,
        /// The secret of the client; left out for a public client.
        pub client_secret: Option<Secret>,
        /// Email addresses that may connect; when there are any, or domains, no others may.
        pub allow_emails: Option<Vec<String>>,
        /// Domains of email addresses that may connect.
        pub allow_domains: Option<Vec<String>>,
        /// What to ask the issuer for, beside `openid`.
        pub scopes: Option<Vec<String>>,
    }

    /// How webhooks are verified.
    pub struct WebhookVerification {
        /// Who sends them, such as `github`.
        pub provider: Option<String>,
        /// The secret that is shared with the provider.
        pub secret: Option<Secret>,
    }
}

/// Declares the resource, with the modules of tunnels among the parameters of a start.
macro_rules! tunnels_resource {
    ($({
        $(#[doc = $doc:literal])+
        $field:ident : $Definition:ty => $($rest:tt)+
    })+) => {
        resource! {
            /// Tunnels of the agent.
            "tunnels" {
                /// List the running tunnels, oldest first.
                GET "/tunnels" List() -> [tunnels: AgentTunnel];
                /// Start a tunnel; returns when the service has bound its public address.
                POST "/tunnels" Start(
                    /// Where to forward to: a port, `host:port` or a URL.
                    addr: TextOrNumber,
                    [
                    /// `http`, `tcp` or `tls`; left out for a labeled tunnel.
                    proto: String,
                    /// The name; unique among the running tunnels, at most 255 bytes.
                    name: String,
                    /// Labels, `name=value`, of a labeled tunnel.
                    labels: Value,
                    /// Free text that the management API shows; at most 4096 bytes.
                    metadata: String,
                    /// Human-readable description of the tunnel, which the management API shows; at most 255 bytes.
                    description: String,
                    /// False to capture no requests.
                    inspect: bool,
                    /// Public schemes of an HTTP tunnel, `http` and `https`.
                    schemes: Vec<String>,
                    /// The public host.
                    domain: String,
                    /// The older name of `domain`.
                    hostname: String,
                    /// The first label of the public host, below the service's base domain.
                    subdomain: String,
                    /// The public address of a TCP tunnel, `host:port`.
                    remote_addr: String,
                    /// `rewrite`, `preserve` or the value of the `Host` header.
                    host_header: String,
                    $( $(#[doc = $doc])+ $field: $Definition, )+
                    /// A file of certificates; visitors must present one that these have signed.
                    mutual_tls_cas: String,
                    /// A certificate file; the service terminates TLS, or by labels or `terminate_at` the agent.
                    crt: String,
                    /// The file of the certificate's key.
                    key: Secret,
                    /// Where TLS is terminated: `edge`, `agent` or `upstream`.
                    terminate_at: String,
                    /// The version of the PROXY protocol for the local service, 1 or 2.
                    proxy_proto: TextOrNumber,
                    /// The longer name of `proxy_proto`.
                    proxy_protocol: TextOrNumber,
                    /// The older name of `traffic_policy`.
                    policy: Value,
                    /// True to verify the certificate of the local service.
                    upstream_tls_verify: bool,
                    /// File with certificates that verify the local service.
                    upstream_tls_verify_cas: String,
                    /// True to share the URL, and its load, with other endpoints of the account that do.
                    pooling_enabled: bool,
                    /// What the local service speaks: `http1` or `http2`, which gRPC needs.
                    app_protocol: String,
                    /// Version 1 of `schemes`: true, false or `both`.
                    bind_tls: Value,
                    /// Version 1 of `basic_auth`: `user:password`.
                    auth: Secret,
                ]) -> AgentTunnel;
                /// Fetch one running tunnel.
                GET "/tunnels/{name}" Get(
                    /// The name of the tunnel.
                    name: String
                ) -> AgentTunnel;
                /// Stop a tunnel and close its connections; its captured requests stay.
                DELETE "/tunnels/{name}" Stop(
                    /// The name of the tunnel.
                    name: String
                );
            }
        }
    };
}

tunnel_modules!(tunnels_resource);
