//! The host names of edges: whether they lead anywhere, and whether a certificate is for them.

use std::collections::BTreeSet;

use serde_json::Value;

use ginnel_api::Operation;
use ginnel_api::remote::{edges, tls_certificates};
use ginnel_base::address::{Host, HostPort, HostPortPattern};
use ginnel_client::Api;
use ginnel_net::resolve_now;
use ginnel_service::Options;

use super::finding::Finding;
use super::network::{self, SOME_NAME, matches_name};
use super::reach;

/// How many names are looked at.
const MAX_HOSTS: usize = 200;
/// How many names a finding lists.
const MAX_LISTED: usize = 5;
/// How many items are fetched at once.
const PAGE_ITEMS: i64 = 100;
/// The port whose visitors speak no TLS.
const HTTP_PORT: u16 = 80;

/// The host names of the edges of a service, as the management API lists them.
pub(super) fn examine_hosts(url: &str, options: Option<&Options>) -> Vec<Finding> {
    match read_names(url) {
        Ok(names) => {
            let certificates = options.and_then(|options| names.coverage_finding(options));
            names.resolution_finding().into_iter().chain(certificates).collect()
        }
        // That the API does not respond is a finding already.
        Err(problem) => vec![Finding::warning("edges", format!("cannot be listed: {problem}"))],
    }
}

/// What edges are called, and what uploaded or obtained certificates are for.
#[derive(Debug, Default)]
struct EdgeNames {
    hosts: BTreeSet<String>,
    /// Those whose visitors may speak TLS.
    secure: BTreeSet<String>,
    certified: Vec<String>,
}

fn read_names(url: &str) -> Result<EdgeNames, String> {
    let mut names = EdgeNames::default();
    let limit = Some(PAGE_ITEMS);
    for_each_item(url, |before_id| edges::https::List { before_id, limit }, &mut |edge| {
        for place in edge_hostports(edge) {
            names.hosts.insert(place.host_pattern());
            if place.port() != HTTP_PORT {
                names.secure.insert(place.host_pattern());
            }
        }
        names.hosts.len() < MAX_HOSTS
    })?;
    for_each_item(url, |before_id| edges::tcp::List { before_id, limit }, &mut |edge| {
        names.hosts.extend(edge_hostports(edge).map(|place| place.host_pattern()));
        names.hosts.len() < MAX_HOSTS
    })?;
    for_each_item(url, |before_id| edges::tls::List { before_id, limit }, &mut |edge| {
        let ending = &edge["tls_termination"];
        let ends_here =
            ending.is_object() && ending["enabled"] != false && ending["terminate_at"] == "edge";
        for place in edge_hostports(edge) {
            names.hosts.insert(place.host_pattern());
            if ends_here {
                names.secure.insert(place.host_pattern());
            }
        }
        names.hosts.len() < MAX_HOSTS
    })?;
    for_each_item(
        url,
        |before_id| tls_certificates::List { before_id, limit },
        &mut |certificate| {
            let found = &certificate["subject_alternative_names"]["dns_names"];
            let found = found.as_array().into_iter().flatten().filter_map(Value::as_str);
            names.certified.extend(found.map(ToOwned::to_owned));
            true
        },
    )?;
    Ok(names)
}

/// Hands the items of a list on until there are no more, or one suffices.
pub(super) fn for_each_item<O: Operation>(
    url: &str,
    list: impl Fn(Option<String>) -> O,
    take: &mut dyn FnMut(&Value) -> bool,
) -> Result<(), String> {
    let mut before = None;
    loop {
        let page: Value = reach::call(Api::Remote, url, &list(before.take()))?;
        let items = page[O::INFO.list_field()].as_array().cloned().unwrap_or_default();
        let goes_on = items.iter().all(&mut *take);
        before = items.last().and_then(|item| item["id"].as_str()).map(ToOwned::to_owned);
        if !goes_on || before.is_none() || !page["next_page_uri"].is_string() {
            return Ok(());
        }
    }
}

fn edge_hostports(edge: &Value) -> impl Iterator<Item = HostPortPattern> {
    let hostports = edge["hostports"].as_array().into_iter().flatten().filter_map(Value::as_str);
    hostports.filter_map(|text| HostPortPattern::parse(text).ok())
}

impl EdgeNames {
    /// Which names no resolver knows, as this machine asks.
    fn resolution_finding(&self) -> Option<Finding> {
        if self.hosts.is_empty() {
            return None;
        }
        let names = self.hosts.iter().take(MAX_HOSTS);
        let unknown: Vec<_> = names.filter(|name| !is_resolved(name)).collect();
        if unknown.is_empty() {
            let message = format!("all {} host names of edges are resolved", self.hosts.len());
            return Some(Finding::ok("edges", message));
        }
        let message = format!("edges have names that cannot be resolved: {}", join_names(&unknown));
        let remedy =
            "add A or AAAA records that lead to this machine, or take the names off the edges";
        Some(Finding::warning("edges", message).with_remedy(remedy))
    }

    /// Which names no certificate is for.
    fn coverage_finding(&self, options: &Options) -> Option<Finding> {
        if self.secure.is_empty() {
            return None;
        }
        let own = network::certified_names(options);
        let is_covered = |host: &String| {
            let mut patterns = own.iter().chain(&self.certified);
            patterns.any(|pattern| pattern == host || matches_name(pattern, host))
        };
        let missing: Vec<_> = self.secure.iter().filter(|host| !is_covered(host)).collect();
        if missing.is_empty() {
            let message = format!("certificates are for all {} names of edges", self.secure.len());
            return Some(Finding::ok("names", message));
        }
        let (has_acme, names) = (options.acme.directory.is_some(), join_names(&missing));
        // A certificate for a wildcard needs a record in DNS, which ACME over HTTP and TLS does not write.
        if has_acme && missing.iter().all(|host| !host.starts_with("*.")) {
            return Some(Finding::ok("names", format!("ACME is for the edges' names {names}")));
        }
        let message = format!("no certificate is for the edges' names {names}");
        let remedy = "upload one and reserve the domain for it, or let acme.directory obtain them; \
                      visitors are shown one of the local authority, which browsers do not trust";
        Some(Finding::warning("names", message).with_remedy(remedy))
    }
}

fn is_resolved(host: &str) -> bool {
    let name = host.strip_prefix('*').map(|rest| format!("{SOME_NAME}{rest}"));
    let parsed = Host::parse(name.as_deref().unwrap_or(host));
    parsed.is_ok_and(|host| resolve_now(&HostPort { host, port: 443 }).is_ok())
}

fn join_names(names: &[&String]) -> String {
    let shown: Vec<_> = names.iter().take(MAX_LISTED).map(|name| name.as_str()).collect();
    match names.len().saturating_sub(MAX_LISTED) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::finding::Severity;

    fn edges(names: &[&str], certified: &[&str]) -> EdgeNames {
        let hosts: BTreeSet<_> = names.iter().map(|name| (*name).to_owned()).collect();
        let certified = certified.iter().map(|name| (*name).to_owned()).collect();
        EdgeNames { secure: hosts.clone(), hosts, certified }
    }

    #[test]
    fn names_without_a_certificate_are_a_warning_unless_acme_is_for_them() {
        let plain = Options::default();
        let mut with_acme = Options::default();
        with_acme.acme.directory = Some("https://acme.test/directory".to_owned());
        let severity = |names: &[&str], certified: &[&str], options: &Options| {
            edges(names, certified).coverage_finding(options).map(|finding| finding.severity)
        };

        assert_eq!(severity(&["a.test"], &[], &plain), Some(Severity::Warning));
        assert_eq!(severity(&["a.test"], &["A.test"], &plain), Some(Severity::Ok));
        assert_eq!(severity(&["x.a.test"], &["*.a.test"], &plain), Some(Severity::Ok));
        assert_eq!(severity(&["*.a.test"], &["*.a.test"], &plain), Some(Severity::Ok));
        assert_eq!(severity(&["a.test"], &[], &with_acme), Some(Severity::Ok));
        assert_eq!(severity(&["*.a.test"], &[], &with_acme), Some(Severity::Warning));
        assert_eq!(severity(&[], &[], &plain), None);
    }

    #[test]
    fn few_of_many_names_are_listed() {
        let names: Vec<_> = (0..7).map(|number| format!("{number}.test")).collect();
        let names: Vec<_> = names.iter().collect();

        assert_eq!(join_names(&names), "0.test, 1.test, 2.test, 3.test, 4.test and 2 more");
        assert_eq!(join_names(&names[..2]), "0.test, 1.test");
    }
}
