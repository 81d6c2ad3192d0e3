//! Which origins `NO_PROXY` exempts.
//!
//! There is no standard: this takes what curl, requests and httpx take. What is no rule exempts
//! nothing.

use std::net::IpAddr;

use super::super::base_url::BaseUrl;
use crate::base::address::Host;

/// Whether a list, separated by commas or white space, names an origin.
pub(super) fn is_exempt(origin: &BaseUrl, list: &str) -> bool {
    let mut rules = list.split(|letter: char| letter == ',' || letter.is_whitespace());
    rules.any(|rule| names(rule, origin))
}

/// Whether a rule, `[scheme://]host[:port]`, names an origin.
fn names(rule: &str, origin: &BaseUrl) -> bool {
    let (scheme, rest) = rule.split_once("://").unwrap_or(("all", rule));
    let expected = if origin.is_tls() { "https" } else { "http" };
    if !scheme.eq_ignore_ascii_case("all") && !scheme.eq_ignore_ascii_case(expected) {
        return false;
    }
    // A bare address of version 6 has colons, and no port.
    if is_of_network(rest, origin.host()) {
        return true;
    }
    let (host, port) = match rest.rsplit_once(':') {
        Some((host, port)) => (host, Some(port)),
        None => (rest, None),
    };
    port.is_none_or(|port| port.parse() == Ok(origin.port()))
        && (is_of_network(host, origin.host()) || is_of_domain(host, origin.host()))
}

/// Whether a rule is the address of a host, or that of its network with the length of its prefix.
fn is_of_network(rule: &str, host: &str) -> bool {
    let (network, length) = match rule.split_once('/') {
        Some((network, length)) => (network, Some(length)),
        None => (rule, None),
    };
    let address = |text: &str| Host::parse(text).ok().and_then(|host| host.ip());
    let (Some(network), Some(host)) = (address(network), address(host)) else {
        return false;
    };
    let (network, host, bits) = match (network, host) {
        (IpAddr::V4(network), IpAddr::V4(host)) => {
            (network.to_bits().into(), host.to_bits().into(), 32)
        }
        (IpAddr::V6(network), IpAddr::V6(host)) => (network.to_bits(), host.to_bits(), 128),
        _ => return false,
    };
    match length.map_or(Ok(bits), str::parse::<u32>) {
        Ok(0) => true,
        Ok(length) => length <= bits && network >> (bits - length) == host >> (bits - length),
        Err(_) => false,
    }
}

/// Whether a rule is a domain, with or without a dot before it, that a host is, or is below; or `*`.
fn is_of_domain(rule: &str, host: &str) -> bool {
    if rule == "*" {
        return true;
    }
    let domain = rule.strip_prefix('*').unwrap_or(rule).trim_matches('.').to_ascii_lowercase();
    let host = host.trim_end_matches('.').to_ascii_lowercase();
    if domain.is_empty() || host.parse::<IpAddr>().is_ok() {
        return false;
    }
    let above = host.strip_suffix(&domain);
    above.is_some_and(|above| above.is_empty() || above.ends_with('.'))
}
