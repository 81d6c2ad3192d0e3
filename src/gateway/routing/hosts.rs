//! Which virtual host a host name belongs to.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use arc_swap::ArcSwap;

use crate::gateway::routing::virtual_host::VirtualHost;

/// The virtual hosts of all host names.
#[derive(Default)]
pub(crate) struct Hosts(RwLock<HostNames>);

#[derive(Default)]
struct HostNames {
    /// By the whole name.
    exact: HashMap<String, Vec<HostClaim>>,
    /// By what follows `*.`.
    wild: HashMap<String, Vec<HostClaim>>,
}

/// A virtual host that has a name and a port.
#[derive(Clone)]
pub(crate) struct HostClaim {
    /// The public port: 443 for HTTPS, 80 for HTTP, unless another one was asked for.
    pub port: u16,
    pub virtual_host: Arc<ArcSwap<VirtualHost>>,
    /// True for the endpoint of an agent.
    by_agent: bool,
}

impl Hosts {
    /// Gives a name, which may start with `*.`, and a port to a virtual host; false when another has it.
    pub(crate) fn add(
        &self,
        name: &str,
        port: u16,
        virtual_host: &Arc<ArcSwap<VirtualHost>>,
        by_agent: bool,
    ) -> bool {
        let mut names = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let (map, key) = names.place(name);
        let claims = map.entry(key.to_owned()).or_default();
        if claims.iter().any(|claim| claim.port == port) {
            return false;
        }
        claims.push(HostClaim { port, virtual_host: virtual_host.clone(), by_agent });
        claims.sort_by_key(|claim| claim.port != 443);
        true
    }

    /// Takes a name and a port from a virtual host, if it has them.
    pub(crate) fn remove(&self, name: &str, port: u16, virtual_host: &Arc<ArcSwap<VirtualHost>>) {
        let mut names = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let (map, key) = names.place(name);
        if let Some(claims) = map.get_mut(key) {
            claims.retain(|claim| {
                claim.port != port || !Arc::ptr_eq(&claim.virtual_host, virtual_host)
            });
            if claims.is_empty() {
                map.remove(key);
            }
        }
    }

    /// Whether an agent's endpoint has this name and port.
    pub(crate) fn has_agent(&self, name: &str, port: u16) -> bool {
        let mut names = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let (map, key) = names.place(name);
        map.get(key)
            .is_some_and(|claims| claims.iter().any(|claim| claim.port == port && claim.by_agent))
    }

    /// The virtual host of a host: by its name, else by the longest wildcard; there by its port, else
    /// whichever speaks HTTPS.
    pub(crate) fn find(&self, host: &str, port: u16) -> Option<HostClaim> {
        let names = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let claims = names.exact.get(host).or_else(|| {
            let mut rest = host;
            std::iter::from_fn(|| {
                let (_, parent) = rest.split_once('.')?;
                rest = parent;
                Some(parent)
            })
            .find_map(|parent| names.wild.get(parent))
        })?;
        claims.iter().find(|claim| claim.port == port).or(claims.first()).cloned()
    }
}

impl HostNames {
    fn place<'n>(&mut self, name: &'n str) -> (&mut HashMap<String, Vec<HostClaim>>, &'n str) {
        match name.strip_prefix("*.") {
            Some(parent) => (&mut self.wild, parent),
            None => (&mut self.exact, name),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn the_name_wins_then_the_longest_wildcard() {
        let hosts = Hosts::default();
        let names = ["app.a.test", "*.a.test", "*.b.a.test"];
        let virtual_hosts = names.map(|name| {
            let virtual_host = Arc::new(ArcSwap::from_pointee(VirtualHost::default()));
            assert!(hosts.add(name, 443, &virtual_host, false));
            virtual_host
        });
        let found = |host: &str| {
            let found = hosts.find(host, 443)?.virtual_host;
            virtual_hosts.iter().position(|virtual_host| Arc::ptr_eq(virtual_host, &found))
        };

        assert_eq!(found("app.a.test"), Some(0));
        assert_eq!(found("x.a.test"), Some(1));
        assert_eq!(found("x.y.a.test"), Some(1));
        assert_eq!(found("x.b.a.test"), Some(2));
        assert_eq!(found("a.test"), None);
        hosts.remove("app.a.test", 443, &virtual_hosts[1]);
        assert_eq!(found("app.a.test"), Some(0), "it is another's");
        hosts.remove("app.a.test", 443, &virtual_hosts[0]);
        assert_eq!(found("app.a.test"), Some(1));
    }

    #[test]
    fn a_name_may_have_sites_on_several_ports() {
        let hosts = Hosts::default();
        let [plain, secure] = [80, 443].map(|port| {
            let virtual_host = Arc::new(ArcSwap::from_pointee(VirtualHost::default()));
            assert!(hosts.add("a.test", port, &virtual_host, port == 80));
            assert!(!hosts.add("a.test", port, &virtual_host, true));
            virtual_host
        });

        assert!(Arc::ptr_eq(&hosts.find("a.test", 80).unwrap().virtual_host, &plain));
        assert!(Arc::ptr_eq(&hosts.find("a.test", 8443).unwrap().virtual_host, &secure));
        assert!(hosts.has_agent("a.test", 80) && !hosts.has_agent("a.test", 443));
    }
}
