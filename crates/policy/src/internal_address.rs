//! The addresses of internal endpoints, which only policies lead to.

use ginnel_base::address::{Authority, HostName, Scheme};

/// Returns why no internal endpoint can be at an address.
pub(super) fn address_problem(authority: &Authority) -> Option<String> {
    if !authority.host.name().is_some_and(HostName::is_internal) {
        return Some(format!("has the host {}, which does not end in .internal", authority.host));
    }
    // Endpoints that speak HTTP or TLS have no ports of their own.
    let ports: &[u16] = match authority.scheme {
        Scheme::Http | Scheme::Https | Scheme::Ws | Scheme::Wss => &[80, 443],
        Scheme::Tls => &[443],
        Scheme::Tcp => return None,
    };
    (!ports.contains(&authority.port)).then(|| {
        let ports: Vec<_> = ports.iter().map(u16::to_string).collect();
        let (port, ports) = (authority.port, ports.join(" or "));
        format!("has the port {port}, but internal endpoints have {ports}; leave the port out")
    })
}
