//! The options of a bind by protocol, with their types.

use serde::{Deserialize, Serialize};

use crate::protocol::message::{Base64Bytes, Hidden};

/// Options of `http` and `https` binds.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct HttpOpts {
    /// The wanted address as a full URL.
    #[serde(rename = "URL")]
    pub url: String,
    /// The wanted host name.
    pub domain: String,
    /// The wanted host name, as older clients say it.
    pub hostname: String,
    /// The wanted first label of the host name.
    pub subdomain: String,
    /// An old form of basic auth; empty now.
    pub auth: Hidden,
    /// Whether the agent rewrites the `Host` header.
    pub host_header_rewrite: bool,
    /// The scheme of the upstream.
    pub local_url_scheme: Option<String>,
    /// The version of the PROXY protocol to put in front of each connection; 0 for none.
    pub proxy_proto: u8,
    /// Compress answers.
    pub compression: Option<Empty>,
    /// Stop sending to a failing upstream.
    pub circuit_breaker: Option<CircuitBreakerOptions>,
    /// Who may visit, by address.
    #[serde(rename = "IPRestriction")]
    pub ip_restriction: Option<IpRestrictionOptions>,
    /// Who may visit, by password.
    pub basic_auth: Option<BasicAuthOptions>,
    /// Who may visit, by an OAuth provider.
    #[serde(rename = "OAuth")]
    pub oauth: Option<LoginOptions>,
    /// Who may visit, by an OpenID Connect provider.
    #[serde(rename = "OIDC")]
    pub oidc: Option<LoginOptions>,
    /// Check signatures of webhooks.
    pub webhook_verification: Option<WebhookOptions>,
    /// Who may visit, by certificate.
    #[serde(rename = "MutualTLSCA")]
    pub mutual_tls_ca: Option<MutualTlsOptions>,
    /// Changes to request headers.
    pub request_headers: Option<HeaderOptions>,
    /// Changes to response headers.
    pub response_headers: Option<HeaderOptions>,
    /// Turn websockets into plain TCP.
    #[serde(rename = "WebsocketTCPConverter")]
    pub websocket_tcp_converter: Option<Empty>,
    /// Who may visit, by program.
    pub user_agent_filter: Option<UserAgentOptions>,
    /// A traffic policy, JSON or YAML.
    pub traffic_policy: Option<String>,
}

/// Options of `tcp` binds.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct TcpOpts {
    /// The wanted address as a full URL.
    #[serde(rename = "URL")]
    pub url: String,
    /// The wanted host and port.
    pub addr: String,
    /// The version of the PROXY protocol to put in front of each connection; 0 for none.
    pub proxy_proto: u8,
    /// Who may visit, by address.
    #[serde(rename = "IPRestriction")]
    pub ip_restriction: Option<IpRestrictionOptions>,
    /// A traffic policy, JSON or YAML.
    pub traffic_policy: Option<String>,
}

/// Options of `tls` binds.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct TlsOpts {
    /// The wanted address as a full URL.
    #[serde(rename = "URL")]
    pub url: String,
    /// The wanted host name.
    pub domain: String,
    /// The wanted host name, as older clients say it.
    pub hostname: String,
    /// The wanted first label of the host name.
    pub subdomain: String,
    /// The version of the PROXY protocol to put in front of each connection; 0 for none.
    pub proxy_proto: u8,
    /// Whether the agent asks visitors for certificates.
    #[serde(rename = "MutualTLSAtAgent")]
    pub mutual_tls_at_agent: bool,
    /// Whom the service lets in, by certificate.
    #[serde(rename = "MutualTLSAtEdge")]
    pub mutual_tls_at_edge: Option<MutualTlsOptions>,
    /// None: TLS goes through unopened.
    #[serde(rename = "TLSTermination")]
    pub tls_termination: Option<TlsTerminationOptions>,
    /// Who may visit, by address.
    #[serde(rename = "IPRestriction")]
    pub ip_restriction: Option<IpRestrictionOptions>,
    /// A traffic policy, JSON or YAML.
    pub traffic_policy: Option<String>,
}

/// A switch: the object is there, or it is not.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Empty {}

/// When to stop sending to an upstream.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CircuitBreakerOptions {
    /// The share of failures that trips it, 0 to 1.
    pub error_threshold: f64,
}

/// Addresses that may visit, and that may not.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct IpRestrictionOptions {
    /// Networks that may visit.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub allow_cidrs: Vec<String>,
    /// Networks that may not.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub deny_cidrs: Vec<String>,
}

/// Names and passwords that may visit.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct BasicAuthOptions {
    /// Each name with its password.
    pub credentials: Vec<BasicAuthCredential>,
}

/// One name with its password.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct BasicAuthCredential {
    /// The name.
    pub username: String,
    /// The password as it is.
    #[serde(skip_serializing_if = "Hidden::is_empty")]
    pub cleartext_password: Hidden,
    /// The password's bcrypt hash.
    #[serde(skip_serializing_if = "nothing")]
    pub hashed_password: Base64Bytes,
}

/// A login with another party.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LoginOptions {
    /// The OAuth provider.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub provider: String,
    /// The OpenID Connect issuer.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub issuer_url: String,
    /// Whom we are to the provider.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub client_id: String,
    /// Our secret there.
    #[serde(skip_serializing_if = "Hidden::is_empty")]
    pub client_secret: Hidden,
    /// The secret, encrypted for the vendor's service; no other can read it.
    #[serde(skip_serializing_if = "nothing")]
    pub sealed_client_secret: Base64Bytes,
    /// Addresses that may visit.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub allow_emails: Vec<String>,
    /// Domains of addresses that may visit.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub allow_domains: Vec<String>,
    /// What to ask the provider for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub scopes: Vec<String>,
}

/// Whose webhooks to check, and with what.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct WebhookOptions {
    /// Who sends them.
    pub provider: String,
    /// The shared secret.
    #[serde(skip_serializing_if = "Hidden::is_empty")]
    pub secret: Hidden,
    /// The secret, encrypted for the service.
    #[serde(skip_serializing_if = "nothing")]
    pub sealed_secret: Base64Bytes,
}

/// Who signs the certificates of visitors.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MutualTlsOptions {
    /// PEM certificates, joined.
    pub mutual_tls_ca: Base64Bytes,
}

/// Headers to set and to take away; names in lower case.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct HeaderOptions {
    /// `name:value`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub add: Vec<String>,
    /// Names.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub remove: Vec<String>,
}

/// Programs that may visit, and that may not; regular expressions.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct UserAgentOptions {
    /// Programs that may visit.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub allow: Vec<String>,
    /// Programs that may not.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub deny: Vec<String>,
}

/// What the service opens TLS with; all empty: with its own certificate.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TlsTerminationOptions {
    /// The certificate chain, PEM.
    #[serde(skip_serializing_if = "nothing")]
    pub cert: Base64Bytes,
    /// The private key, PEM.
    #[serde(skip_serializing_if = "nothing")]
    pub key: Base64Bytes,
    /// The private key, encrypted for the service.
    #[serde(skip_serializing_if = "nothing")]
    pub sealed_key: Base64Bytes,
}

fn nothing(bytes: &Base64Bytes) -> bool {
    bytes.0.is_empty()
}
