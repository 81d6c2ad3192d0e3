//! Internal endpoints: nobody but policies leads to them, and they have no ports.

use std::sync::Arc;

use http::Uri;

use crate::gateway::Inner;
use crate::gateway::routing::endpoint_spec::{Proto, Wanted};
use crate::gateway::routing::virtual_host::{Route, Site};

/// How the names of internal endpoints end.
const INTERNAL: &str = ".internal";

/// How often traffic may go from one internal endpoint to the next.
pub(crate) const MOST_HOPS: usize = 5;

/// Whether only policies lead to a host.
pub(crate) fn is_internal(host: &str) -> bool {
    host.ends_with(INTERNAL)
}

/// The name and port of an internal endpoint that carries bytes; none when it is to have a port of
/// the service.
pub(crate) fn name_of(wanted: &Wanted) -> Option<(String, u16)> {
    let (name, port) = match wanted.proto {
        Proto::Tls => (wanted.host.as_deref()?, 443),
        Proto::Tcp => {
            let (name, port) = wanted.addr.as_deref()?.rsplit_once(':')?;
            (name, port.parse().ok()?)
        }
        Proto::Http | Proto::Https => return None,
    };
    let name = name.to_ascii_lowercase();
    is_internal(&name).then_some((name, port))
}

/// What is served at the URL of an internal endpoint that speaks HTTP; none while nobody is there.
pub(crate) fn site(edges: &Inner, url: &str) -> Option<Arc<Site>> {
    let (name, port) = place(url, &[("http", Some(80)), ("https", Some(443))])?;
    let site = edges.hosts.find(&name, port)?.site.get();
    // Nobody can show a certificate on a way that has no TLS.
    Some(site).filter(|site| !site.asks() && !site.is_offline())
}

/// What is served at the URL of an internal endpoint that carries bytes; none while nobody is there.
pub(crate) fn stream(edges: &Inner, url: &str) -> Option<Arc<Route>> {
    let (name, port) = place(url, &[("tls", Some(443)), ("tcp", None)])?;
    let claim = edges.streams.find(&name, port).filter(|claim| claim.port == port)?;
    let site = claim.site.get();
    site.route("").filter(|_| !site.asks() && !site.is_offline()).cloned()
}

/// The name and port in the URL of an internal endpoint, with the usual ports of its schemes.
fn place(url: &str, schemes: &[(&str, Option<u16>)]) -> Option<(String, u16)> {
    let uri: Uri = url.parse().ok()?;
    let (_, usual) = schemes.iter().find(|(scheme, _)| uri.scheme_str() == Some(scheme))?;
    let name = uri.host()?.to_ascii_lowercase();
    is_internal(&name).then_some((name, uri.port_u16().or(*usual)?))
}
