//! What an agent asks for when it makes something public.

use ginnel_api::Secret;
use ginnel_base::address::{AddressError, HostPort};
use ginnel_policy::actions::terminate_tls::TlsVersions;

/// What is spoken at a public address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Proto {
    /// HTTP without TLS.
    Http,
    /// HTTP over TLS that ends at the service.
    Https,
    /// Bytes.
    Tcp,
    /// TLS; it ends at the service only where the options say so.
    Tls,
}

/// An endpoint that an agent asks for.
#[derive(Debug, Clone)]
pub struct EndpointSpec {
    /// What is spoken there.
    pub proto: Proto,
    /// The host name, for HTTP and TLS; may start with `*.`.
    pub host: Option<String>,
    /// The first label below the base domain, where there is no `host`.
    pub subdomain: Option<String>,
    /// `host:port` to listen on: for TCP, and to have an address of one's own again.
    pub addr: Option<String>,
    /// What is done with the traffic on the way.
    pub options: EndpointOptions,
    /// The account whose endpoints may share the address; none where no others may.
    pub pool_owner: Option<String>,
    /// The account that has asked; what one has shown at an address is not shown to the next who has it.
    pub owner: Option<String>,
}

impl EndpointSpec {
    /// An endpoint wherever there is room, without options.
    pub fn any(proto: Proto) -> Self {
        let options = EndpointOptions::default();
        let (pool_owner, owner) = (None, None);
        Self { proto, host: None, subdomain: None, addr: None, options, pool_owner, owner }
    }

    /// The host and the port to listen on, if they are asked for. Without a host, as in `:22`, it is any host.
    ///
    /// # Errors
    /// If `addr` is not `host:port`.
    pub fn place(&self) -> Result<Option<HostPort>, AddressError> {
        let addr = self.addr.as_deref().filter(|addr| !addr.is_empty());
        let parsed = addr.map(|addr| match addr.strip_prefix(':') {
            Some(port) => HostPort::parse_to_listen(&format!("0.0.0.0:{port}")),
            None => HostPort::parse_to_listen(addr),
        });
        parsed.transpose()
    }

    /// The port to listen on, where one is asked for.
    pub fn own_port(&self) -> Option<u16> {
        self.place().ok().flatten().map(|place| place.port)
    }
}

/// What is done with the traffic of an endpoint; nothing by default.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct EndpointOptions {
    /// Compress answers.
    pub compression: bool,
    /// The share of failures, 0 to 1, at which requests are refused for a while.
    pub circuit_breaker: Option<f64>,
    /// Who may come.
    pub ip_restriction: Option<AllowDeny>,
    /// Who may come with a password; nobody needs one when empty.
    pub basic_auth: Vec<Credentials>,
    /// The provider of OAuth that visitors log in at.
    pub oauth: Option<LoginSpec>,
    /// The issuer of OpenID Connect that visitors log in at.
    pub oidc: Option<LoginSpec>,
    /// Whose signatures requests must carry.
    pub webhook: Option<Webhook>,
    /// What is done to the headers of requests.
    pub request_headers: HeaderChangesSpec,
    /// What is done to the headers of answers.
    pub response_headers: HeaderChangesSpec,
    /// Which user agents may come: regular expressions.
    pub user_agent_filter: Option<AllowDeny>,
    /// A policy as JSON or YAML.
    pub traffic_policy: Option<String>,
    /// Carry the messages of WebSockets as bytes.
    pub websocket_tcp_converter: bool,
    /// For TLS: end it at the service and carry plain bytes. For HTTPS: how it ends there.
    pub tls_termination: Option<TlsTerminationSpec>,
    /// For TLS that ends at the service: who signs the certificates that visitors must show, PEM.
    pub mutual_tls_cas: Option<Vec<u8>>,
    /// The `Host` that the target shall see.
    pub host_header: Option<String>,
}

/// Two lists, of which a module says what they hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AllowDeny {
    /// What is let through.
    pub allow: Vec<String>,
    /// What is refused.
    pub deny: Vec<String>,
}

/// A name and a password.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Credentials {
    /// The name.
    pub username: String,
    /// The password.
    pub password: Secret,
}

/// Where visitors log in, and who of them may come.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LoginSpec {
    /// The name of the provider, or the URL of the issuer.
    pub provider: String,
    /// The client there; empty for that of the operator.
    pub client_id: String,
    /// The secret of the client.
    pub client_secret: Secret,
    /// What is asked for; empty for the usual.
    pub scopes: Vec<String>,
    /// Addresses that are let in; with the domains empty as well, everybody is.
    pub allow_emails: Vec<String>,
    /// Domains of addresses that are let in.
    pub allow_domains: Vec<String>,
}

/// Who signs webhooks, and how that is checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Webhook {
    /// Who signs, such as `github`.
    pub provider: String,
    /// The secret that signatures are made with.
    pub secret: Secret,
}

/// What is done to headers: removed first, then added.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HeaderChangesSpec {
    /// Names and values to add.
    pub add: Vec<(String, String)>,
    /// Names to remove.
    pub remove: Vec<String>,
}

/// With what TLS ends at the service.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TlsTerminationSpec {
    /// The certificates and the key, both PEM; without them the service uses its own.
    pub certificate: Option<(String, Secret)>,
    /// The versions of TLS that are spoken.
    pub versions: TlsVersions,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_may_leave_its_host_out() {
        let port = |addr: &str| {
            EndpointSpec { addr: Some(addr.to_owned()), ..EndpointSpec::any(Proto::Tcp) }.own_port()
        };

        assert_eq!(port(":22"), Some(22));
        assert_eq!(port("1.tcp.example.com:22"), Some(22));
        assert_eq!(port("22"), None);
    }
}
