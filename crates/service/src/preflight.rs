//! What a service finds out before it listens, without changing anything.

use ginnel_api::mask;
use ginnel_base::address::{Host, HostName, HostPort};

use super::acme::AcmeManager;
use super::options::Options;
use super::vaults::VaultKey;
use super::{Error, store};

impl Options {
    /// Everything that keeps a service from starting, as far as it can be known without listening, and
    /// without a database server: what the options say, the place of the database, and files that they
    /// name. Blocks on the disk.
    pub fn preflight_problems(&self) -> Vec<Error> {
        let mut problems = self.problems();
        let place = self.store.path.as_deref().map(store::check_file);
        problems.extend(place.and_then(Result::err).map(Error::from));
        if self.acme.directory.is_some() {
            problems.extend(AcmeManager::check_options(&self.acme).err());
        }
        problems.extend(self.addresses.open().err());
        let place = self.store.path.as_deref().map(store::resolve_links);
        problems.extend(
            VaultKey::from_options(&self.vaults, place.as_deref(), self.store.server.is_some())
                .err(),
        );
        problems
    }

    pub(super) fn check_challenges(&self) -> Result<(), Error> {
        if self.acme.directory.is_none() {
            return Ok(());
        }
        let (http, https) = (self.gateway.http_port.is_some(), self.gateway.https_port.is_some());
        self.acme.challenges_with(http, https).map(drop)
    }

    pub(super) fn check_names(&self) -> Result<(), Error> {
        let hosts = [
            ("host", self.management.host.as_str()),
            ("agent_host", self.agent_host()),
            ("edge_host", self.gateway.host.as_str()),
        ];
        for (key, host) in hosts {
            let problem = |problem| {
                Error::invalid_setting(
                    key,
                    format!("{:?} is no host name and no address: it {problem}", mask::url(host)),
                )
            };
            Host::parse(host).map_err(problem)?;
        }
        if let Some(domain) = &self.gateway.base_domain {
            let problem = |problem| {
                let (shown, form) =
                    (mask::url(domain), "is not a domain such as tunnels.example.com");
                Error::invalid_setting("base_domain", format!("{shown:?} {form}: it {problem}"))
            };
            HostName::parse(domain).map_err(problem)?;
        }
        if self.gateway.code_prefix.chars().any(|it| it.is_control() || it.is_whitespace()) {
            let problem = format!(
                "{:?} has spaces or control characters",
                mask::login(&self.gateway.code_prefix)
            );
            return Err(Error::invalid_setting("code_prefix", problem));
        }
        Ok(())
    }

    /// There is one database, and only one in a file is backed up here.
    pub(super) fn check_store(&self) -> Result<(), Error> {
        match (&self.store.server, &self.store.path, &self.backup.to) {
            (Some(_), Some(_), _) => Err(Error::TwoStores),
            (Some(_), None, Some(_)) => Err(store::StoreError::NoFile.into()),
            _ => Ok(()),
        }
    }

    /// Each listener takes some connections.
    pub(super) fn check_connections(&self) -> Result<(), Error> {
        let limits = [
            ("max_connections", self.gateway.connections),
            ("max_connections_per_address", self.gateway.connections_per_address),
            ("max_api_connections", self.management.connections),
            ("max_agent_connections", self.agents.connections),
        ];
        match limits.into_iter().find(|(_, limit)| *limit == Some(0)) {
            Some((name, _)) => Err(Error::ConnectionLimit(name)),
            None => Ok(()),
        }
    }

    /// No two listeners have the same address.
    pub(super) fn check_addresses(&self) -> Result<(), Error> {
        self.check_peer_address()?;
        let listeners = self.fixed_listeners();
        for (at, (key, host, port)) in listeners.iter().enumerate() {
            let same = |(_, other, number): &&(_, Host, u16)| {
                number == port && (other == host || is_any(other) || is_any(host))
            };
            if let Some((other, ..)) = listeners[..at].iter().find(same) {
                let problem = format!("{host}:{port} is the address of {other} as well");
                return Err(Error::invalid_setting(key, problem));
            }
        }
        Ok(())
    }

    /// Other nodes can connect to the address that they are told.
    fn check_peer_address(&self) -> Result<(), Error> {
        let Some(address) = &self.cluster.peer_addr else { return Ok(()) };
        let problem = match address {
            HostPort { host, .. } if is_any(host) => {
                "stands for all addresses of a machine, and nobody can connect to that: name one at which \
                 other nodes reach this one, and listen on all with peer_listen_addr"
            }
            HostPort { port: 0, .. } if self.cluster.peer_listen_addr.is_some() => {
                "has port 0, and nobody can connect to that: name the one that leads to peer_listen_addr"
            }
            _ => return Ok(()),
        };
        Err(Error::invalid_setting("peer_addr", format!("{:?} {problem}", address.to_string())))
    }

    /// The settings that name addresses to listen on, with host and port; those that pick a free port are
    /// left out.
    pub fn fixed_listeners(&self) -> Vec<(&'static str, Host, u16)> {
        let peers = self.cluster.peer_listen_addr.as_ref().or(self.cluster.peer_addr.as_ref());
        let peers = peers.filter(|_| self.store.server.is_some());
        // Hosts that cannot be parsed have been reported already.
        let with_port = |host: &str, port: Option<u16>| Some((Host::parse(host).ok()?, port?));
        let place = |place: &HostPort| (place.host.clone(), place.port);
        let all = [
            ("port", with_port(&self.management.host, Some(self.management.port))),
            ("agent_port", with_port(self.agent_host(), self.agents.port)),
            ("http_port", with_port(&self.gateway.host, self.gateway.http_port)),
            ("https_port", with_port(&self.gateway.host, self.gateway.https_port)),
            ("admin_addr", self.monitoring.admin_addr.as_ref().map(place)),
            ("peer_addr", peers.map(place)),
        ];
        let chosen = all.into_iter().filter_map(|(key, address)| {
            let (host, port) = address?;
            Some((key, host, port))
        });
        chosen.filter(|(.., port)| *port != 0).collect()
    }

    /// Settings without an effect, each with the reason.
    pub fn unused_settings(&self) -> Vec<String> {
        let (store, acme) = (self.store.server.is_some(), self.acme.directory.is_some());
        let more = |(own, all): (usize, usize)| own > all;
        let per_address = self.gateway.connections_per_address.zip(self.gateway.connections);
        let cases = [
            (
                "node_name",
                self.cluster.node_name.is_some() && !store,
                "there is one node without store",
            ),
            (
                "peer_addr",
                self.cluster.peer_addr.is_some() && !store,
                "there is one node without store",
            ),
            (
                "public_http_port",
                self.gateway.public_http_port.is_some() && self.gateway.http_port.is_none(),
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
                self.gateway.proxy_protocol && self.gateway.trusted_proxies.ranges().is_empty(),
                "trusted_proxies is empty",
            ),
        ];
        let unused = cases.into_iter().filter(|(_, is_unused, _)| *is_unused);
        unused.map(|(key, _, reason)| format!("{key} has no effect: {reason}")).collect()
    }
}

/// Whether a host stands for all addresses of the machine.
fn is_any(host: &Host) -> bool {
    host.ip().is_some_and(|address| address.is_unspecified())
}
