//! The proxy on the way to the service.

use std::net::SocketAddr;

use ginnel_api::Secret;
use ginnel_base::address::HostPort;
use ginnel_net::is_loopback_only;
use ginnel_net::proxy::{Proxy, ProxyConfigError, ProxyTarget};

/// The name of the option.
const OPTION: &str = "proxy_url";

/// Decides which addresses of the service are reached through a proxy.
#[derive(Clone, Default)]
pub(crate) struct ServiceProxies {
    /// The proxy of the configuration. Without one, the environment decides.
    configured: Option<Proxy>,
}

/// A place at which the service is tried.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ServicePlace {
    Direct(SocketAddr),
    /// The proxy resolves the name.
    Proxied(HostPort),
}

impl ServiceProxies {
    /// Reads the option.
    ///
    /// # Errors
    /// If the text is not the address of a proxy.
    pub fn from_option(proxy_url: Option<&Secret>) -> Result<Self, ProxyConfigError> {
        let configured = proxy_url.filter(|url| !url.0.is_empty());
        let configured = configured.map(|url| Proxy::parse(OPTION, &url.0)).transpose()?;
        Ok(Self { configured })
    }

    /// Returns the proxy for an address of the service. The environment is only asked for other machines.
    ///
    /// # Errors
    /// If a variable of the environment is not the address of a proxy.
    pub fn find(&self, name: &HostPort) -> Result<Option<Proxy>, ProxyConfigError> {
        if is_loopback_only() {
            return Ok(None);
        }
        match &self.configured {
            Some(proxy) => Ok(Some(proxy.clone())),
            None if name.host.is_loopback() => Ok(None),
            // The session with the service is TLS.
            None => Proxy::from_environment(&ProxyTarget {
                host: &name.host,
                port: name.port,
                is_tls: true,
            }),
        }
    }
}

impl From<SocketAddr> for ServicePlace {
    fn from(address: SocketAddr) -> Self {
        Self::Direct(address)
    }
}

impl ServicePlace {
    /// Returns true if two places are one; a resolver may add a scope to an address.
    pub fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Direct(one), Self::Direct(other)) => {
                (one.ip(), one.port()) == (other.ip(), other.port())
            }
            _ => self == other,
        }
    }
}
