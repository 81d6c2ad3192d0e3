//! The hosts and ports of edges: each belongs to one edge.

use ginnel_api::mask;
use ginnel_base::address::{AddressError, HostPortPattern};
use ginnel_gateway::is_internal;

use crate::check::host_port;
use crate::cluster::EndpointKey;
use crate::domains::{ADDRESS, DOMAIN, DomainClaim, DomainDenial, HOSTPORTS_OWNER, address_at};
use crate::handlers::prelude::*;
use crate::publish::Publisher;
use crate::references::HOSTPORTS;

/// How many an edge may have.
const MAX_HOSTPORTS: usize = 100;
/// The port that stands for the shared HTTPS port.
const TLS_EDGE_PORT: u16 = 443;

/// Returns the entries in their normal form, with international names as `xn--`. A host may start with `*.`.
///
/// # Errors
/// If an entry is not `host:port`.
pub(super) fn normalize_hostports(hostports: Option<Vec<String>>) -> Result<Option<Vec<String>>> {
    let Some(hostports) = hostports else { return Ok(None) };
    if hostports.len() > MAX_HOSTPORTS {
        let message =
            format!("hostports: has {} entries, the limit is {MAX_HOSTPORTS}", hostports.len());
        return Err(Refusal::new(code::INVALID_VALUE, message));
    }
    let entries = hostports.iter().enumerate().map(|(index, text)| {
        let parsed = HostPortPattern::parse(text).map_err(|problem| match problem {
            AddressError::Port { .. } => {
                let message = format!(
                    "hostports[{index}]: the port of {:?} is not from 1 to 65535",
                    mask::url(text)
                );
                Refusal::new(code::HOSTPORT_PORT, message)
            }
            problem => {
                let message = format!(
                    "hostports[{index}]: {:?} is not of the form host:port: it {problem}",
                    mask::url(text)
                );
                Refusal::new(code::HOSTPORT_INVALID, message)
            }
        });
        parsed.map(|place| place.to_string())
    });
    entries.collect::<Result<_, _>>().map(Some)
}

/// Refuses hosts of an edge that an agent's endpoint has now.
pub(super) fn check_names(service: &Context, hostports: &[String]) -> Result<()> {
    for (index, text) in hostports.iter().enumerate() {
        if service.shared.gateway.is_online(text) || is_online_elsewhere(service, text) {
            let message = format!("hostports[{index}]: {text:?} is the address of a tunnel now");
            return Err(Refusal::new(code::HOSTPORT_ONLINE, message));
        }
    }
    Ok(())
}

/// Whether an agent of another node has a `host:port` now.
fn is_online_elsewhere(service: &Context, hostport: &str) -> bool {
    let Some(cluster) = &service.shared.cluster else { return false };
    HostPortPattern::parse(hostport).is_ok_and(|it| {
        let key = EndpointKey::http(&it.host_pattern(), it.port());
        !cluster.directory.claimed_at(&key).is_empty()
    })
}

/// Refuses what a TLS edge is not found by: visitors name it when they begin to speak TLS, without a port,
/// and addresses are no names.
pub(super) fn check_tls_names(hostports: &[String]) -> Result<()> {
    for (index, text) in hostports.iter().enumerate() {
        let Ok(place) = HostPortPattern::parse(text) else { continue };
        let refused = |code, problem: &str| {
            Err(Refusal::new(code, format!("hostports[{index}]: {text:?} {problem}")))
        };
        if place.port() != TLS_EDGE_PORT {
            return refused(
                code::HOSTPORT_PORT,
                "must have port 443: TLS edges are at the shared HTTPS port",
            );
        }
        if place.place.host.name().is_none() {
            return refused(
                code::HOSTPORT_INVALID,
                "is an address: TLS edges are found by the names that visitors ask for",
            );
        }
        if is_internal(&place.host_pattern()) {
            return refused(
                code::HOSTPORT_INVALID,
                "is a name that only policies lead to, and those of requests alone",
            );
        }
    }
    Ok(())
}

/// Refuses ports of a TCP edge that somebody else listens on; its own are fine.
pub(super) fn check_ports(
    publisher: &Publisher,
    edge_id: &str,
    hostports: &[String],
) -> Result<()> {
    match publisher.taken_port(edge_id, hostports) {
        Some(port) => {
            let message = format!("hostports: the service cannot listen on port {port}");
            Err(Refusal::new(code::HOSTPORT_TAKEN, message))
        }
        None => Ok(()),
    }
}

/// Claims hosts and ports in place of those that the edge had.
pub(super) fn claim_hostports(
    change: &Transaction<'_>,
    edge_id: &str,
    hostports: &[String],
) -> Result<()> {
    change.release_claims(HOSTPORTS, edge_id)?;
    for (index, text) in hostports.iter().enumerate() {
        // Names of hosts do not tell upper and lower case apart.
        if !change.claim_key(HOSTPORTS, &text.to_ascii_lowercase(), edge_id)? {
            let message = format!("hostports[{index}]: {text:?} belongs to another edge");
            return Err(Refusal::new(code::HOSTPORT_TAKEN, message));
        }
    }
    Ok(())
}

/// Refuses ports of a TCP edge that its owner may not have; notes the reserved addresses that they belong to.
pub(super) fn take_addresses(
    change: &Transaction<'_>,
    edge_id: &str,
    hostports: &[String],
    owner_id: &str,
) -> Result<()> {
    let mut reserved = Vec::new();
    for (index, text) in hostports.iter().enumerate() {
        let Ok((_, port)) = host_port(text) else { continue };
        let Some(address) = address_at(change, port)? else { continue };
        if address.owner_id.as_deref() != Some(owner_id) {
            let message =
                format!("hostports[{index}]: the port of {text:?} is reserved by another");
            return Err(Refusal::new(code::HOSTPORT_OF_ANOTHER, message));
        }
        reserved.push(address.id);
    }
    change.replace_references(edge_id, ADDRESS, reserved.iter().map(String::as_str))?;
    Ok(change.replace_references(edge_id, HOSTPORTS_OWNER, [owner_id])?)
}

/// Refuses hosts of an edge that its owner may not have; notes the domains that they belong to.
pub(super) fn take_domains(
    change: &Transaction<'_>,
    edge_id: &str,
    hostports: &[String],
    claim: &DomainClaim<'_>,
) -> Result<()> {
    let mut domains = Vec::new();
    for (index, text) in hostports.iter().enumerate() {
        let place = HostPortPattern::parse(text);
        let host = place.map_or_else(|_| text.clone(), |place| place.host_pattern());
        let checked = claim.check_host(change, &host)?;
        domains.extend(checked.map_err(|denial| {
            let (code, problem) = match denial {
                DomainDenial::Foreign => (code::HOSTPORT_OF_ANOTHER, "is reserved by another"),
                DomainDenial::Unreserved => (code::HOSTPORT_NOT_RESERVED, "is not reserved"),
            };
            Refusal::new(code, format!("hostports[{index}]: the domain of {text:?} {problem}"))
        })?);
    }
    change.replace_references(edge_id, DOMAIN, domains.iter().map(String::as_str))?;
    Ok(change.replace_references(edge_id, HOSTPORTS_OWNER, [claim.owner_id])?)
}
