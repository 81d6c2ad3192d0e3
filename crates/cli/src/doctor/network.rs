//! What the public needs: ports, names and certificates.

use std::io::ErrorKind;
use std::net::IpAddr;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use x509_parser::pem::Pem;

use ginnel_base::address::{Authority, Host, HostPort, Scheme};
use ginnel_net::tls::x509::LeafFields;
use ginnel_net::{listen_on_now, resolve_now};
use ginnel_service::Options;

use super::finding::Finding;
use super::reach;

/// A label that no tunnel has: what it resolves to, any other does.
pub(super) const SOME_NAME: &str = "ginnel-doctor";
/// With fewer days than this, a certificate should be renewed.
const FEW_DAYS: i64 = 14;
const SECONDS_A_DAY: i64 = 86_400;

/// The addresses that are to be listened on. Those of a service that runs with these options are in use.
pub(super) fn examine_ports(options: &Options, is_running: bool) -> Vec<Finding> {
    let listeners = options.fixed_listeners();
    let api = listeners.iter().find(|(key, ..)| *key == "port");
    let is_running =
        is_running || api.is_some_and(|(_, host, port)| reach::is_service(host, *port));
    listeners
        .iter()
        .map(|(key, host, port)| self::examine_port(key, host, *port, is_running))
        .collect()
}

fn examine_port(name: &str, host: &Host, port: u16, is_running: bool) -> Finding {
    let at = format!("{name}: {host}:{port}");
    match listen_on_now(&host.to_string(), port) {
        Ok(_) => Finding::ok("port", format!("{at} is free")),
        Err(error) if error.kind() == ErrorKind::AddrInUse && is_running => {
            Finding::ok("port", format!("{at} is in use, and the service runs"))
        }
        Err(error) => {
            let remedy = match error.kind() {
                ErrorKind::AddrInUse => {
                    "stop the program that listens there, or choose another port"
                }
                ErrorKind::PermissionDenied => {
                    "choose a port from 1024 on, or allow low ports: \
                     AmbientCapabilities=CAP_NET_BIND_SERVICE of systemd"
                }
                _ => "choose a host that is an address of this machine",
            };
            Finding::problem("port", format!("cannot listen on {at}: {error}")).with_remedy(remedy)
        }
    }
}

/// The base domain, and the names below it.
pub(super) fn examine_domain(domain: &str) -> Vec<Finding> {
    [domain.to_owned(), format!("{SOME_NAME}.{domain}")]
        .iter()
        .map(|name| examine_name(name))
        .collect()
}

fn examine_name(name: &str) -> Finding {
    let place = Host::parse(name).map(|host| HostPort { host, port: 443 });
    match place.map_err(std::io::Error::other).and_then(|place| resolve_now(&place)) {
        Ok(found) => {
            let addresses: Vec<_> =
                found.iter().map(|address| IpAddr::to_string(&address.ip())).collect();
            Finding::ok("dns", format!("{name} is {}", addresses.join(", ")))
        }
        Err(error) => {
            let record = name.replace(SOME_NAME, "*");
            Finding::problem("dns", format!("{name} cannot be resolved: {error}")).with_remedy(
                format!("add an A or AAAA record for {record} that leads to this machine"),
            )
        }
    }
}

/// The certificate of the service: when it ends, and whether it covers the names that it should.
pub(super) fn examine_certificate(options: &Options) -> Vec<Finding> {
    let Some(path) = &options.certificate.certificate else { return Vec::new() };
    let (leaf, end) = match read_leaf(path) {
        Ok(leaf) => leaf,
        Err(problem) => {
            let finding = Finding::problem("certificate", format!("{}: {problem}", path.display()));
            let remedy = "name a PEM file whose first certificate is that of the service";
            return vec![finding.with_remedy(remedy)];
        }
    };
    [expiry_finding(path, end)].into_iter().chain(coverage_finding(options, path, &leaf)).collect()
}

/// The names and addresses that the certificate of the service is for.
pub(super) fn certified_names(options: &Options) -> Vec<String> {
    let leaf = options.certificate.certificate.as_ref().and_then(|path| read_leaf(path).ok());
    leaf.map(|(leaf, _)| [leaf.dns_names, leaf.ips].concat()).unwrap_or_default()
}

/// The names of tunnels and of the service itself that the certificate is not for; where the service
/// obtains certificates itself, these are.
fn coverage_finding(options: &Options, path: &Path, leaf: &LeafFields) -> Option<Finding> {
    let tunnels =
        options.gateway.base_domain.as_ref().map(|domain| format!("{SOME_NAME}.{domain}"));
    let own =
        options.management.public_url.as_deref().and_then(|url| Authority::split_url(url).ok());
    let own = own.filter(|(url, _)| url.scheme == Scheme::Https);
    let own = own.map(|(url, _)| url.host.unbracketed());
    let needed: Vec<_> = tunnels.into_iter().chain(own).collect();
    let covers = |name: &String| {
        leaf.dns_names.iter().any(|pattern| matches_name(pattern, name))
            || leaf.ips.iter().any(|ip| ip == name)
    };
    let missing: Vec<_> = needed.iter().filter(|name| !covers(name)).collect();
    let missing: Vec<_> = missing.iter().map(|name| name.replace(SOME_NAME, "*")).collect();
    let (names, path) = (leaf.dns_names.join(", "), path.display());
    match (needed.is_empty(), missing.is_empty()) {
        (true, _) => None,
        (_, true) => Some(Finding::ok("names", format!("{path} is for {names}"))),
        _ if options.acme.directory.is_some() => {
            let missing = missing.join(" and ");
            Some(Finding::ok("names", format!("{path} is for {names}; ACME is for {missing}")))
        }
        _ => {
            let missing = missing.join(" and ");
            let message = format!("{path} is for {names}, and not for {missing}");
            let remedy = "get one for these names, or let acme.directory obtain them; visitors are \
                          shown one of the local authority, which browsers do not trust";
            Some(Finding::warning("names", message).with_remedy(remedy))
        }
    }
}

/// Whether a certificate's name, which may begin with `*.`, is for a host.
pub(super) fn matches_name(pattern: &str, host: &str) -> bool {
    match pattern.strip_prefix("*.") {
        Some(parent) => {
            host.split_once('.').is_some_and(|(_, rest)| rest.eq_ignore_ascii_case(parent))
        }
        None => pattern.eq_ignore_ascii_case(host),
    }
}

/// When a certificate ends.
fn expiry_finding(path: &Path, end: i64) -> Finding {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let days = (end - i64::try_from(now.as_secs()).unwrap_or(i64::MAX)).div_euclid(SECONDS_A_DAY);
    let message = format!("{} ends in {days} days", path.display());
    match days {
        ..0 => Finding::problem("certificate", format!("{} has ended", path.display()))
            .with_remedy("renew it, and send SIGHUP to the service"),
        0..FEW_DAYS => Finding::warning("certificate", message)
            .with_remedy("renew it, and send SIGHUP to the service"),
        _ => Finding::ok("certificate", message),
    }
}

/// The first certificate in a file, and its end in seconds since the Unix epoch.
fn read_leaf(path: &Path) -> Result<(LeafFields, i64), String> {
    let text = std::fs::read(path).map_err(|error| error.to_string())?;
    let first = Pem::iter_from_buffer(&text).next().ok_or("there is no certificate in it")?;
    let first = first.map_err(|error| error.to_string())?;
    let certificate = first.parse_x509().map_err(|error| error.to_string())?;
    let leaf =
        LeafFields::from_der(&first.contents).ok_or("its first certificate cannot be read")?;
    Ok((leaf, certificate.validity().not_after.timestamp()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wildcard_is_for_one_label() {
        for (pattern, host, expected) in [
            ("a.test", "A.test", true),
            ("*.a.test", "x.a.test", true),
            ("*.a.test", "a.test", false),
            ("*.a.test", "x.y.a.test", false),
            ("b.test", "a.test", false),
        ] {
            assert_eq!(matches_name(pattern, host), expected, "{pattern} {host}");
        }
    }
}
