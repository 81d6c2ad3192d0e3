//! Which origins `NO_PROXY` exempts.
//!
//! `NO_PROXY` has no standard. The rules are those that curl, requests and httpx accept, read by the types of
//! [`base::address`](ginnel_base::address). A rule with another form exempts nothing.

use std::net::Ipv6Addr;

use ginnel_base::address::{Cidr, Host, HostName, parse_port};

use super::ProxyTarget;

/// Returns true if a list, separated by commas or white space, contains a rule for an origin.
pub(super) fn is_exempt(target: &ProxyTarget<'_>, list: &str) -> bool {
    let mut rules = list.split(|letter: char| letter == ',' || letter.is_whitespace());
    rules.any(|rule| matches_target(rule, target))
}

/// Returns true if a rule, `[scheme://]host[:port]`, is for an origin.
fn matches_target(rule: &str, target: &ProxyTarget<'_>) -> bool {
    let (scheme, rest) = rule.split_once("://").unwrap_or(("all", rule));
    let expected = if target.is_tls { "https" } else { "http" };
    if !scheme.eq_ignore_ascii_case("all") && !scheme.eq_ignore_ascii_case(expected) {
        return false;
    }
    if let Some(rest) = rest.strip_prefix('[') {
        return matches_bracketed(rest, target);
    }
    // An IPv6 address without brackets has colons, and no port.
    if is_of_network(rest, target.host) {
        return true;
    }
    let (host, port) = match rest.rsplit_once(':') {
        Some((host, port)) => (host, Some(port)),
        None => (rest, None),
    };
    port.is_none_or(|port| parse_port(port) == Ok(target.port))
        && (is_of_network(host, target.host) || is_of_domain(host, target.host))
}

/// Returns true if a rule, `IPv6]`, `IPv6]:port` or `IPv6]/length`, is for an origin.
fn matches_bracketed(rule: &str, target: &ProxyTarget<'_>) -> bool {
    let Some((address, rest)) = rule.split_once(']') else { return false };
    if address.parse::<Ipv6Addr>().is_err() {
        return false;
    }
    match rest.strip_prefix(':') {
        Some(port) => parse_port(port) == Ok(target.port) && is_of_network(address, target.host),
        None if rest.is_empty() || rest.starts_with('/') => {
            is_of_network(&format!("{address}{rest}"), target.host)
        }
        None => false,
    }
}

/// Returns true if a rule is the address of a host or its network.
fn is_of_network(rule: &str, host: &Host) -> bool {
    let network = rule.parse::<Cidr>();
    host.ip().zip(network.ok()).is_some_and(|(address, network)| network.contains(address))
}

/// Returns true if a rule is `*`, or a domain that a host is or is below. A dot or `*.` before a domain makes no
/// difference.
fn is_of_domain(rule: &str, host: &Host) -> bool {
    if rule == "*" {
        return true;
    }
    let rule = rule.strip_prefix('*').unwrap_or(rule);
    let domain = HostName::parse(rule.strip_prefix('.').unwrap_or(rule));
    let (Ok(domain), Some(name)) = (domain, host.name()) else { return false };
    *name == domain || name.is_below(&domain)
}
