//! Internal endpoints: nobody but policies leads to them, and they have no ports.

use std::sync::Arc;

use ginnel_base::address::{Authority, Scheme};

use crate::GatewayState;
use crate::routing::agent_return::AgentReturn;
use crate::routing::endpoint_spec::{EndpointSpec, Proto};
use crate::routing::virtual_host::{Route, VirtualHost};

/// How the names of internal endpoints end.
const INTERNAL: &str = ".internal";

/// How often traffic may go from one internal endpoint to the next.
pub const MOST_HOPS: usize = 5;

/// Whether only policies lead to a host.
pub fn is_internal(host: &str) -> bool {
    host.ends_with(INTERNAL)
}

/// The name and port of an internal endpoint that carries bytes; none when it is to have a port of
/// the service.
pub fn name_of(spec: &EndpointSpec) -> Option<(String, u16)> {
    let (name, port) = match spec.proto {
        Proto::Tls => (spec.host.as_deref()?.to_ascii_lowercase(), 443),
        Proto::Tcp => {
            let place = spec.place().ok()??;
            (place.host.to_string(), place.port)
        }
        Proto::Http | Proto::Https => return None,
    };
    is_internal(&name).then_some((name, port))
}

/// Where an internal endpoint is.
pub struct InternalAddress {
    pub protocol: &'static str,
    pub host: String,
    pub port: u16,
}

/// What is served at the URL of an internal endpoint that speaks HTTP, if its agent is there or comes back in a
/// moment.
pub async fn virtual_host(
    gateway: &GatewayState,
    url: &str,
) -> Option<(Arc<VirtualHost>, InternalAddress)> {
    let mut address = address(url, &[Scheme::Http, Scheme::Https])?;
    // The port says what is spoken there.
    match address.port {
        80 => address.protocol = "http",
        443 => address.protocol = "https",
        _ => {}
    }
    let find = || Some(gateway.hosts.find(&address.host, address.port)?.virtual_host.load_full());
    Some((online(gateway, find).await?, address))
}

/// What is served at the URL of an internal endpoint that carries bytes, in the same way.
pub async fn stream(gateway: &GatewayState, url: &str) -> Option<(Arc<Route>, InternalAddress)> {
    let address = address(url, &[Scheme::Tls, Scheme::Tcp])?;
    let (name, port) = (&address.host, address.port);
    let find = || {
        let claim = gateway.streams.find(name, port).filter(|claim| claim.port == port)?;
        Some(claim.virtual_host.load_full())
    };
    let route = online(gateway, find).await?.route("").cloned()?;
    Some((route, address))
}

async fn online(
    gateway: &GatewayState,
    find: impl Fn() -> Option<Arc<VirtualHost>>,
) -> Option<Arc<VirtualHost>> {
    let mut agent_return = AgentReturn::new(&gateway.waiting_places);
    loop {
        // Nobody can show a certificate on a way that has no TLS.
        let found = find().filter(|virtual_host| !virtual_host.requires_certificate())?;
        let Some(lost) = found.offline() else { return Some(found) };
        if !agent_return.wait(lost, None).await {
            return None;
        }
    }
}

/// Parses the URL of an internal endpoint.
fn address(url: &str, schemes: &[Scheme]) -> Option<InternalAddress> {
    let (authority, _) = Authority::split(url).ok()?;
    let scheme = schemes.iter().find(|scheme| **scheme == authority.scheme)?;
    let host = authority.host.name()?.to_string();
    let (protocol, port) = (scheme.name(), authority.port);
    is_internal(&host).then_some(InternalAddress { protocol, host, port })
}
