//! What the public needs: ports, names and certificates.

use std::io::ErrorKind;
use std::net::{IpAddr, TcpListener, ToSocketAddrs};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use x509_parser::pem::Pem;

use super::finding::Finding;
use crate::service::Options;

/// A label that no tunnel has: what it resolves to, any other does.
const SOME_NAME: &str = "ginnel-doctor";
/// With fewer days than this, a certificate should be renewed.
const FEW_DAYS: i64 = 14;
const SECONDS_A_DAY: i64 = 86_400;

/// The ports that are to be listened on.
pub(super) fn ports(options: &Options, is_running: bool) -> Vec<Finding> {
    let ports = [
        ("port", &options.host, Some(options.port)),
        ("agent_port", &options.host, options.agent_port),
        ("http_port", &options.edge_host, options.http_port),
        ("https_port", &options.edge_host, options.https_port),
    ];
    // 0 picks a free port, which is there for certain.
    let chosen = ports.into_iter().filter_map(|(name, host, port)| {
        port.filter(|port| *port != 0).map(|port| (name, host, port))
    });
    chosen.map(|(name, host, port)| self::port(name, host, port, is_running)).collect()
}

fn port(name: &str, host: &str, port: u16, is_running: bool) -> Finding {
    let at = format!("{name}: {host}:{port}");
    match TcpListener::bind((host, port)) {
        Ok(_) => Finding::ok("port", format!("{at} is free")),
        Err(error) if error.kind() == ErrorKind::AddrInUse && is_running => {
            Finding::ok("port", format!("{at} is in use, as is the database"))
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
            Finding::problem("port", format!("cannot listen on {at}: {error}")).remedy(remedy)
        }
    }
}

/// The base domain, and the names below it.
pub(super) fn domain(domain: &str) -> Vec<Finding> {
    [domain.to_owned(), format!("{SOME_NAME}.{domain}")].iter().map(|name| resolve(name)).collect()
}

fn resolve(name: &str) -> Finding {
    match (name, 443).to_socket_addrs() {
        Ok(found) => {
            let addresses: Vec<_> = found.map(|address| IpAddr::to_string(&address.ip())).collect();
            Finding::ok("dns", format!("{name} is {}", addresses.join(", ")))
        }
        Err(error) => {
            let record = name.replace(SOME_NAME, "*");
            Finding::problem("dns", format!("{name} cannot be resolved: {error}"))
                .remedy(format!("add an A or AAAA record for {record} that leads to this machine"))
        }
    }
}

/// A certificate, and when it ends.
pub(super) fn certificate(path: &Path) -> Finding {
    let end = match end_of(path) {
        Ok(end) => end,
        Err(problem) => {
            return Finding::problem("certificate", format!("{}: {problem}", path.display()))
                .remedy("name a PEM file whose first certificate is that of the service");
        }
    };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let days = (end - i64::try_from(now.as_secs()).unwrap_or(i64::MAX)).div_euclid(SECONDS_A_DAY);
    let message = format!("{} ends in {days} days", path.display());
    match days {
        ..0 => Finding::problem("certificate", format!("{} has ended", path.display()))
            .remedy("renew it, and send SIGHUP to the service"),
        0..FEW_DAYS => Finding::warning("certificate", message)
            .remedy("renew it, and send SIGHUP to the service"),
        _ => Finding::ok("certificate", message),
    }
}

/// The end of the first certificate in a file, in seconds since the Unix epoch.
fn end_of(path: &Path) -> Result<i64, String> {
    let text = std::fs::read(path).map_err(|error| error.to_string())?;
    let first = Pem::iter_from_buffer(&text).next().ok_or("there is no certificate in it")?;
    let first = first.map_err(|error| error.to_string())?;
    let certificate = first.parse_x509().map_err(|error| error.to_string())?;
    Ok(certificate.validity().not_after.timestamp())
}
