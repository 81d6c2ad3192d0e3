//! What a service finds out before it listens, without changing anything.

use std::net::IpAddr;

use super::acme::AcmeManager;
use super::options::Options;
use super::{Error, check, store};

impl Options {
    /// Everything that keeps a service from starting, as far as it can be known without listening, and
    /// without a database server: what the options say, the place of the database, and files that they
    /// name. Blocks on the disk.
    pub fn preflight(&self) -> Vec<Error> {
        let mut problems = self.problems();
        let place = self.path.as_deref().map(store::check_file);
        problems.extend(place.and_then(Result::err).map(Error::from));
        if self.acme.directory.is_some() {
            problems.extend(AcmeManager::check(&self.acme).err());
        }
        problems.extend(self.addresses().err());
        problems
    }

    pub(super) fn check_challenges(&self) -> Result<(), Error> {
        if self.acme.directory.is_none() {
            return Ok(());
        }
        let (http, https) = (self.http_port.is_some(), self.https_port.is_some());
        self.acme.challenges_with(http, https).map(drop)
    }

    pub(super) fn check_names(&self) -> Result<(), Error> {
        let hosts = [
            ("host", &self.host),
            ("agent_host", &self.agent_host),
            ("edge_host", &self.edge_host),
        ];
        if let Some((key, host)) = hosts.into_iter().find(|(_, host)| !can_be_listened_on(host)) {
            return Err(Error::setting(key, format!("{host:?} is no host name and no address")));
        }
        if let Some(domain) = self.base_domain.as_ref().filter(|domain| !check::is_host(domain)) {
            let problem = format!("{domain:?} is not a domain such as tunnels.example.com");
            return Err(Error::setting("base_domain", problem));
        }
        if self.code_prefix.chars().any(|it| it.is_control() || it.is_whitespace()) {
            let problem = format!("{:?} has spaces or control characters", self.code_prefix);
            return Err(Error::setting("code_prefix", problem));
        }
        Ok(())
    }

    /// Addresses have their form, and no two listeners have the same one.
    pub(super) fn check_addresses(&self) -> Result<(), Error> {
        let addresses = [
            ("admin_addr", &self.admin_addr),
            ("peer_addr", &self.peer_addr),
            ("peer_listen_addr", &self.peer_listen_addr),
        ];
        for (key, address) in addresses {
            if let Some(address) = address.as_deref().filter(|it| split_address(it).is_none()) {
                return Err(Error::setting(
                    key,
                    format!("{address:?} is not of the form HOST:PORT"),
                ));
            }
        }
        self.check_peer_address()?;
        let listeners = self.listeners();
        for (at, (key, host, port)) in listeners.iter().enumerate() {
            let same = |(_, other, number): &&(_, &str, u16)| {
                number == port && (other == host || is_any(other) || is_any(host))
            };
            if let Some((other, ..)) = listeners[..at].iter().find(same) {
                let problem = format!("{host}:{port} is the address of {other} as well");
                return Err(Error::setting(key, problem));
            }
        }
        Ok(())
    }

    /// Other nodes can connect to the address that they are told.
    fn check_peer_address(&self) -> Result<(), Error> {
        let Some(address) = &self.peer_addr else { return Ok(()) };
        let problem = match split_address(address) {
            Some((host, _)) if is_any(host) => {
                "stands for all addresses of a machine, and nobody can connect to that: name one at which \
                 other nodes reach this one, and listen on all with peer_listen_addr"
            }
            Some((_, 0)) if self.peer_listen_addr.is_some() => {
                "has port 0, and nobody can connect to that: name the one that leads to peer_listen_addr"
            }
            _ => return Ok(()),
        };
        Err(Error::setting("peer_addr", format!("{address:?} {problem}")))
    }

    /// The settings that name addresses to listen on, with host and port; those that pick a free port are
    /// left out.
    pub fn listeners(&self) -> Vec<(&'static str, &str, u16)> {
        let peers = self.peer_listen_addr.as_deref().or(self.peer_addr.as_deref());
        let peers = peers.filter(|_| self.store.is_some());
        let with_port = |host, port: Option<u16>| port.map(|port| (host, port));
        let all = [
            ("port", Some((self.host.as_str(), self.port))),
            ("agent_port", with_port(self.agent_host.as_str(), self.agent_port)),
            ("http_port", with_port(self.edge_host.as_str(), self.http_port)),
            ("https_port", with_port(self.edge_host.as_str(), self.https_port)),
            ("admin_addr", self.admin_addr.as_deref().and_then(split_address)),
            ("peer_addr", peers.and_then(split_address)),
        ];
        let chosen = all.into_iter().filter_map(|(key, address)| {
            let (host, port) = address?;
            Some((key, host, port))
        });
        chosen.filter(|(.., port)| *port != 0).collect()
    }

    /// Settings without an effect, each with the reason.
    pub fn unused(&self) -> Vec<String> {
        let (store, acme) = (self.store.is_some(), self.acme.directory.is_some());
        let more = |(own, all): (usize, usize)| own > all;
        let per_address = self.edge_connections_per_address.zip(self.edge_connections);
        let cases = [
            ("node_name", self.node_name.is_some() && !store, "there is one node without store"),
            ("peer_addr", self.peer_addr.is_some() && !store, "there is one node without store"),
            (
                "public_http_port",
                self.public_http_port.is_some() && self.http_port.is_none(),
                "http_port is none",
            ),
            ("acme.email", self.acme.email.is_some() && !acme, "acme.directory is not set"),
            (
                "max_connections_per_address",
                per_address.is_some_and(more),
                "max_connections is smaller",
            ),
            (
                "proxy_protocol",
                self.proxy_protocol && self.trusted_proxies.ranges().is_empty(),
                "trusted_proxies is empty",
            ),
        ];
        let unused = cases.into_iter().filter(|(_, is_unused, _)| *is_unused);
        unused.map(|(key, _, reason)| format!("{key} has no effect: {reason}")).collect()
    }
}

/// Whether this is an address or a host name; four numbers that are no address are neither.
fn can_be_listened_on(host: &str) -> bool {
    let is_number = |label: &str| label.bytes().all(|byte| byte.is_ascii_digit());
    host.parse::<IpAddr>().is_ok() || check::is_host(host) && !host.split('.').all(is_number)
}

/// The parts of `host:port`, without the brackets of an IPv6 address.
fn split_address(address: &str) -> Option<(&str, u16)> {
    let (host, port) = address.rsplit_once(':')?;
    if !check::is_host(host) {
        return None;
    }
    Some((host.trim_matches(['[', ']']), port.parse().ok()?))
}

/// Whether a host stands for all addresses of the machine.
fn is_any(host: &str) -> bool {
    host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_unspecified())
}
