//! What an agent asks for when it makes something public.

use ginnel_api::{Base64, EndpointOptions, Secret};
use ginnel_base::address::{AddressError, HostPort};
use ginnel_policy::actions::terminate_tls::TlsVersions;

use crate::tls::policy::TlsTerminationSpec;

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
    /// The versions of TLS that are spoken if TLS ends at the service.
    pub tls_versions: TlsVersions,
    /// The `Host` that the target receives; unset for that of the visitor.
    pub host_header: Option<String>,
    /// The account whose endpoints may share the address; none where no others may.
    pub pool_owner: Option<String>,
    /// The account that has asked; what one has shown at an address is not shown to the next who has it.
    pub owner: Option<String>,
}

impl EndpointSpec {
    /// An endpoint wherever there is room, without options.
    pub fn any(proto: Proto) -> Self {
        let options = EndpointOptions::default();
        let (host, subdomain, addr, host_header, pool_owner, owner) = Default::default();
        let tls_versions = TlsVersions::default();
        Self { proto, host, subdomain, addr, options, tls_versions, host_header, pool_owner, owner }
    }

    /// Returns how TLS ends at the service. Returns `None` if the options do not ask for it.
    pub fn tls_termination(&self) -> Option<TlsTerminationSpec> {
        let pair = self.options.tls_termination.as_ref()?;
        let text = |pem: &Base64| String::from_utf8_lossy(&pem.0).into_owned();
        let is_whole = !pair.cert.0.is_empty() && !pair.key.0.is_empty();
        let certificate = is_whole.then(|| (text(&pair.cert), Secret(text(&pair.key))));
        Some(TlsTerminationSpec { certificate, versions: self.tls_versions })
    }

    /// Returns the authorities that sign the certificates of visitors, PEM.
    pub fn visitor_authorities(&self) -> Option<&[u8]> {
        self.options.mutual_tls.as_ref().map(|it| &it.mutual_tls_ca.0[..])
    }

    /// The host and the port to listen on, if they are asked for. Without a host, as in `:22`, it is any host.
    ///
    /// # Errors
    /// If `addr` is not `host:port`.
    pub fn listen_address(&self) -> Result<Option<HostPort>, AddressError> {
        let addr = self.addr.as_deref().filter(|addr| !addr.is_empty());
        let parsed = addr.map(|addr| match addr.strip_prefix(':') {
            Some(port) => HostPort::parse_to_listen(&format!("0.0.0.0:{port}")),
            None => HostPort::parse_to_listen(addr),
        });
        parsed.transpose()
    }

    /// The port to listen on, where one is asked for.
    pub fn own_port(&self) -> Option<u16> {
        self.listen_address().ok().flatten().map(|place| place.port)
    }
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
