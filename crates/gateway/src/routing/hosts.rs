//! Which virtual host a host name belongs to.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::ArcSwap;
use tokio::sync::Notify;

use crate::routing::remote_hosts::HostRank;
use crate::routing::virtual_host::VirtualHost;
use crate::tls::policy::TlsPolicy;

/// Into how many tables the names are divided. A change copies the table of its name: about 400
/// entries where there are 100,000 names.
const SHARDS: usize = 256;

/// The virtual hosts of all host names. A lookup takes no lock, whatever is changed meanwhile.
pub struct Hosts {
    shards: Box<[ArcSwap<HostNames>]>,
    /// Held while a table is replaced.
    changes: Mutex<()>,
    /// Wakes whoever waits for a change.
    changed: Notify,
}

/// One of the tables, which is replaced as a whole.
#[derive(Default, Clone)]
struct HostNames {
    /// By the whole name.
    exact: HostTable,
    /// By what follows `*.`.
    wild: HostTable,
}

type HostTable = HashMap<Arc<str>, Arc<[HostClaim]>>;

/// A virtual host that has a name and a port.
#[derive(Clone)]
pub struct HostClaim {
    /// The public port: 443 for HTTPS, 80 for HTTP, unless another one was asked for.
    pub port: u16,
    pub virtual_host: Arc<ArcSwap<VirtualHost>>,
    /// True for the endpoint of an agent.
    by_agent: bool,
}

impl HostClaim {
    /// True for the endpoint of an agent that is gone for now.
    pub fn is_offline(&self) -> bool {
        self.by_agent && self.virtual_host.load().is_offline()
    }
}

/// What is served behind a listener.
#[derive(Clone)]
pub enum HostSelection {
    /// One virtual host has the listener to itself.
    Single(Arc<ArcSwap<VirtualHost>>),
    /// The host decides; a virtual host with a TLS policy is for those who came by it.
    ByHost(Option<Arc<TlsPolicy>>),
    /// The same for a visitor of another node, who has ended TLS: the host is here or nowhere.
    Relayed,
}

impl HostSelection {
    /// What has the listener to itself.
    pub fn single_host(&self) -> Option<Arc<ArcSwap<VirtualHost>>> {
        match self {
            Self::Single(virtual_host) => Some(virtual_host.clone()),
            Self::ByHost(_) | Self::Relayed => None,
        }
    }
}

impl Default for Hosts {
    fn default() -> Self {
        let shards = std::iter::repeat_with(ArcSwap::default).take(SHARDS).collect();
        Self { shards, changes: Mutex::default(), changed: Notify::new() }
    }
}

impl Hosts {
    /// Gives a name, which may start with `*.`, and a port to a virtual host; false when another has it.
    pub fn add_claim(
        &self,
        name: &str,
        port: u16,
        virtual_host: &Arc<ArcSwap<VirtualHost>>,
        by_agent: bool,
    ) -> bool {
        self.begin_change().add_claim(name, port, virtual_host, by_agent)
    }

    /// Changes several names; nobody else does meanwhile.
    pub fn begin_change(&self) -> HostChanges<'_> {
        let changing = self.changes.lock().unwrap_or_else(PoisonError::into_inner);
        HostChanges { hosts: self, tables: HashMap::new(), is_touched: false, _changing: changing }
    }

    /// Whether an agent's endpoint has this name and port.
    pub fn has_agent(&self, name: &str, port: u16) -> bool {
        let claims = self.claims_for_name(name);
        claims.iter().flat_map(|claims| claims.iter()).any(|it| it.port == port && it.by_agent)
    }

    /// The virtual host of a host: by its name, else by the longest wildcard; there by its port, else
    /// whichever speaks HTTPS.
    pub fn find_claim(&self, host: &str, port: u16) -> Option<HostClaim> {
        self.find_ranked(host, port).map(|(claim, _)| claim)
    }

    /// As [`Hosts::find_claim`], with how well it fits.
    pub fn find_ranked(&self, host: &str, port: u16) -> Option<(HostClaim, HostRank)> {
        let chosen = |claims: &Arc<[HostClaim]>| {
            claims.iter().find(|claim| claim.port == port).or(claims.first()).cloned()
        };
        if let Some(claims) = self.shard_for_name(host).load().exact.get(host) {
            let claim = chosen(claims)?;
            let rank = HostRank::exact(claim.port == port);
            return Some((claim, rank));
        }
        let mut parents = std::iter::successors(parent_of(host), |name| parent_of(name));
        parents.find_map(|name| {
            let claim = chosen(self.shard_for_name(name).load().wild.get(name)?)?;
            let rank = HostRank::wild(name, claim.port == port);
            Some((claim, rank))
        })
    }

    /// The claims on a name as it was given.
    fn claims_for_name(&self, name: &str) -> Option<Arc<[HostClaim]>> {
        self.shard_for_name(table_key(name)).load().claims_for_name(name)
    }

    /// Waits for a change since this was last waited for; one waits at a time.
    pub async fn wait_for_change(&self) {
        self.changed.notified().await;
    }

    /// The names, without wildcards, that a virtual host has on a port other than that of plain HTTP, and
    /// whose TLS ends here.
    pub fn https_names(&self) -> Vec<String> {
        let mut names = Vec::new();
        for shard in &self.shards {
            let shard = shard.load();
            let is_https = |claims: &[HostClaim]| {
                claims
                    .iter()
                    .any(|claim| claim.port != 80 && !claim.virtual_host.load().passes_tls())
            };
            let secure = shard.exact.iter().filter(|(_, claims)| is_https(claims));
            names.extend(secure.map(|(name, _)| name.to_string()));
        }
        names
    }

    /// The table of a name without `*.`.
    fn shard_for_name(&self, name: &str) -> &ArcSwap<HostNames> {
        &self.shards[shard_of(name)]
    }
}

/// Changes of names. They are found when this is dropped: each table is copied once, however many of
/// its names change.
pub struct HostChanges<'h> {
    hosts: &'h Hosts,
    /// The tables that have changed, by their places.
    tables: HashMap<usize, HostNames>,
    /// Whether what names lead to has changed, and they have not.
    is_touched: bool,
    _changing: MutexGuard<'h, ()>,
}

impl HostChanges<'_> {
    /// As [`Hosts::add_claim`].
    pub fn add_claim(
        &mut self,
        name: &str,
        port: u16,
        virtual_host: &Arc<ArcSwap<VirtualHost>>,
        by_agent: bool,
    ) -> bool {
        let claims = self.claims_for_name(name);
        let claims = claims.as_deref().unwrap_or_default();
        if let Some(claim) = claims.iter().find(|claim| claim.port == port) {
            return Arc::ptr_eq(&claim.virtual_host, virtual_host);
        }
        let mut claims = claims.to_vec();
        claims.push(HostClaim { port, virtual_host: virtual_host.clone(), by_agent });
        claims.sort_by_key(|claim| claim.port != 443);
        self.replace_claims(name, claims);
        true
    }

    /// Says that what names lead to has changed.
    pub fn mark_changed(&mut self) {
        self.is_touched = true;
    }

    /// Takes a name and a port from a virtual host, if it has them.
    pub fn remove_claim(
        &mut self,
        name: &str,
        port: u16,
        virtual_host: &Arc<ArcSwap<VirtualHost>>,
    ) {
        let Some(claims) = self.claims_for_name(name) else { return };
        let is_other = |claim: &&HostClaim| {
            claim.port != port || !Arc::ptr_eq(&claim.virtual_host, virtual_host)
        };
        let others: Vec<_> = claims.iter().filter(is_other).cloned().collect();
        if others.len() < claims.len() {
            self.replace_claims(name, others);
        }
    }

    /// The claims on a name, as they will be.
    fn claims_for_name(&self, name: &str) -> Option<Arc<[HostClaim]>> {
        match self.tables.get(&shard_of(table_key(name))) {
            Some(table) => table.claims_for_name(name),
            None => self.hosts.claims_for_name(name),
        }
    }

    fn replace_claims(&mut self, name: &str, claims: Vec<HostClaim>) {
        let key = table_key(name);
        let place = shard_of(key);
        let names = self.tables.entry(place);
        let names = names.or_insert_with(|| HostNames::clone(&self.hosts.shards[place].load()));
        let table = if key.len() < name.len() { &mut names.wild } else { &mut names.exact };
        if claims.is_empty() {
            table.remove(key);
        } else {
            table.insert(key.into(), claims.into());
        }
    }
}

impl Drop for HostChanges<'_> {
    fn drop(&mut self) {
        if self.tables.is_empty() && !self.is_touched {
            return;
        }
        for (place, names) in self.tables.drain() {
            self.hosts.shards[place].store(Arc::new(names));
        }
        self.hosts.changed.notify_one();
    }
}

impl HostNames {
    /// The claims on a name of this table.
    fn claims_for_name(&self, name: &str) -> Option<Arc<[HostClaim]>> {
        let table = if name.starts_with("*.") { &self.wild } else { &self.exact };
        table.get(table_key(name)).cloned()
    }
}

/// What a name is found by in its table.
fn table_key(name: &str) -> &str {
    name.strip_prefix("*.").unwrap_or(name)
}

/// The place of the table of a name without `*.`.
fn shard_of(name: &str) -> usize {
    let add = |hash: usize, byte| hash.wrapping_mul(31).wrapping_add(usize::from(byte));
    name.bytes().fold(0, add) % SHARDS
}

/// What follows the first label of a name.
fn parent_of(name: &str) -> Option<&str> {
    name.split_once('.').map(|(_, parent)| parent)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_wins_then_the_longest_wildcard() {
        let hosts = Hosts::default();
        let names = ["app.a.test", "*.a.test", "*.b.a.test"];
        let virtual_hosts = names.map(|name| {
            let virtual_host = Arc::new(ArcSwap::from_pointee(VirtualHost::default()));
            assert!(hosts.add_claim(name, 443, &virtual_host, false));
            virtual_host
        });
        let found = |host: &str| {
            let found = hosts.find_claim(host, 443)?.virtual_host;
            virtual_hosts.iter().position(|virtual_host| Arc::ptr_eq(virtual_host, &found))
        };

        assert_eq!(found("app.a.test"), Some(0));
        assert_eq!(found("x.a.test"), Some(1));
        assert_eq!(found("x.y.a.test"), Some(1));
        assert_eq!(found("x.b.a.test"), Some(2));
        assert_eq!(found("a.test"), None);
        hosts.begin_change().remove_claim("app.a.test", 443, &virtual_hosts[1]);
        assert_eq!(found("app.a.test"), Some(0), "it is another's");
        hosts.begin_change().remove_claim("app.a.test", 443, &virtual_hosts[0]);
        assert_eq!(found("app.a.test"), Some(1));
    }

    #[test]
    fn a_name_may_have_sites_on_several_ports() {
        let hosts = Hosts::default();
        let [plain, secure] = [80, 443].map(|port| {
            let virtual_host = Arc::new(ArcSwap::from_pointee(VirtualHost::default()));
            assert!(hosts.add_claim("a.test", port, &virtual_host, port == 80));
            assert!(
                hosts.add_claim("a.test", port, &virtual_host, true),
                "it has the name already"
            );
            assert!(
                !hosts.add_claim("a.test", port, &Arc::default(), true),
                "another has the name"
            );
            virtual_host
        });

        assert!(Arc::ptr_eq(&hosts.find_claim("a.test", 80).unwrap().virtual_host, &plain));
        assert!(Arc::ptr_eq(&hosts.find_claim("a.test", 8443).unwrap().virtual_host, &secure));
        assert!(hosts.has_agent("a.test", 80) && !hosts.has_agent("a.test", 443));
    }
    #[test]
    fn names_of_one_table_do_not_get_in_each_others_way() {
        let hosts = Hosts::default();
        let names: Vec<_> = (0..3 * SHARDS).map(|name| format!("*.n{name}.test")).collect();
        let virtual_hosts: Vec<Arc<ArcSwap<VirtualHost>>> =
            names.iter().map(|_| Arc::default()).collect();
        let found = |at: usize| {
            let found =
                hosts.find_claim(&format!("x.n{at}.test"), 443).map(|claim| claim.virtual_host);
            found.is_some_and(|found| Arc::ptr_eq(&found, &virtual_hosts[at]))
        };
        for (name, virtual_host) in names.iter().zip(&virtual_hosts) {
            assert!(hosts.add_claim(name, 443, virtual_host, false));
        }
        assert!((0..names.len()).all(found));

        for (name, virtual_host) in names.iter().zip(&virtual_hosts).step_by(2) {
            hosts.begin_change().remove_claim(name, 443, virtual_host);
        }

        assert!((0..names.len()).all(|at| found(at) == (at % 2 == 1)));
    }

    #[test]
    fn several_changes_are_found_together_and_see_one_another() {
        let hosts = Hosts::default();
        let (first, second) = (Arc::default(), Arc::default());
        let names: Vec<_> = (0..2 * SHARDS).map(|name| format!("n{name}.test")).collect();
        assert!(hosts.add_claim("old.test", 443, &first, false));

        let mut changes = hosts.begin_change();
        changes.remove_claim("old.test", 443, &first);
        assert!(changes.add_claim("old.test", 443, &second, false), "its name was free");
        assert!(names.iter().all(|name| changes.add_claim(name, 443, &first, false)));
        assert!(!names.iter().any(|name| changes.add_claim(name, 443, &second, false)));
        let found = |name: &str| hosts.find_claim(name, 443).map(|claim| claim.virtual_host);
        assert!(Arc::ptr_eq(&found("old.test").unwrap(), &first), "nothing has changed yet");
        assert!(names.iter().all(|name| found(name).is_none()));
        drop(changes);

        assert!(Arc::ptr_eq(&found("old.test").unwrap(), &second));
        assert!(names.iter().all(|name| Arc::ptr_eq(&found(name).unwrap(), &first)));
    }
}
