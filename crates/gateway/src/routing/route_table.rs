//! The hosts and routes of public addresses, on this node and on others.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::routing::backend::TargetDirectory;
use crate::routing::endpoint_spec::Proto;
use crate::routing::hosts::{HostClaim, Hosts};
use crate::routing::remote_hosts::{HostRank, RemoteHosts};
use crate::routing::virtual_host::VirtualHost;
use crate::upstream::forward::Upstream;
use crate::upstream::target::Target;

/// How long a visitor waits for the way to the node that serves a host.
const NODE_TIMEOUT: Duration = Duration::from_secs(3);
/// The port of TLS whose visitors name a host.
pub const HTTPS_PORT: u16 = 443;
/// How often it is looked for meanwhile.
const NODE_INTERVAL: Duration = Duration::from_millis(25);

/// The hosts and routes of public addresses, on this node and on others.
pub struct RouteTable {
    /// The hosts on the shared ports.
    pub hosts: Hosts,
    /// The internal endpoints that carry bytes.
    pub streams: Hosts,
    /// The targets of backends.
    pub targets: TargetDirectory,
    /// The number of TLS edges. Without any, no name is looked for in the first message of visitors.
    tls_edges: AtomicUsize,
    /// The hosts of other nodes. `None` on a single node.
    remote_hosts: ArcSwap<Option<Arc<dyn RemoteHosts>>>,
    /// Notified when an endpoint of this node leaves a port.
    pub port_freed: Notify,
}

impl RouteTable {
    /// A table without hosts, over these targets.
    pub fn new(targets: TargetDirectory) -> Self {
        Self {
            hosts: Hosts::default(),
            streams: Hosts::default(),
            targets,
            tls_edges: AtomicUsize::new(0),
            remote_hosts: ArcSwap::from_pointee(None),
            port_freed: Notify::new(),
        }
    }

    /// The names that endpoints of a protocol have.
    pub fn names_of(&self, proto: Proto) -> &Hosts {
        match proto {
            Proto::Http | Proto::Https => &self.hosts,
            Proto::Tcp | Proto::Tls => &self.streams,
        }
    }

    /// Sets the number of TLS edges.
    pub fn set_tls_edges(&self, count: usize) {
        self.tls_edges.store(count, Ordering::Release);
    }

    /// Returns true if there are TLS edges.
    pub fn has_tls_edges(&self) -> bool {
        self.tls_edges.load(Ordering::Acquire) > 0
    }

    /// Finds the hosts of other nodes in `remote` from now on.
    pub fn find_hosts_in(&self, remote: Arc<dyn RemoteHosts>) {
        self.remote_hosts.store(Arc::new(Some(remote)));
    }

    /// The hosts of other nodes. `None` on a single node.
    pub fn remote_hosts(&self) -> Option<Arc<dyn RemoteHosts>> {
        (**self.remote_hosts.load()).clone()
    }

    /// Returns the node that serves a host, unless this node has a name that fits as well and is online. A node
    /// among `failed` is returned only if it is the last one.
    pub fn remote_host(
        &self,
        host: &str,
        port: u16,
        own: Option<&(HostClaim, HostRank)>,
        failed: &[String],
    ) -> Option<Upstream> {
        let remote = self.remote_hosts.load();
        self.better_than(own, || (**remote).as_ref()?.find_host(host, port, failed))
    }

    /// Returns true if another node that can be reached has a host now, and this one has not.
    pub fn is_elsewhere(&self, host: &str, port: u16) -> bool {
        self.has_remote_hosts() && {
            let own = self.hosts.find_ranked(host, port);
            self.remote_host(host, port, own.as_ref(), &[]).is_some()
        }
    }

    /// Returns the node that `find` gives, unless this node has a name that fits as well and is online.
    pub fn better_than(
        &self,
        own: Option<&(HostClaim, HostRank)>,
        find: impl FnOnce() -> Option<(HostRank, Arc<dyn Target>)>,
    ) -> Option<Upstream> {
        if own.is_some_and(is_best) {
            return None;
        }
        let (rank, node) = find()?;
        is_better(rank, own).then(|| self.targets.upstream(node))
    }

    /// The TLS edge that has a host, unless it is a wildcard and another node has what fits better.
    pub fn tls_edge(&self, host: &str) -> Option<Arc<ArcSwap<VirtualHost>>> {
        let own = self.hosts.find_ranked(host, HTTPS_PORT)?;
        if !own.0.virtual_host.load().carries_bytes {
            return None;
        }
        let is_elsewhere = self.remote_host(host, HTTPS_PORT, Some(&own), &[]).is_some()
            || self.is_cut_off(host, HTTPS_PORT, Some(&own));
        (!is_elsewhere).then_some(own.0.virtual_host)
    }

    /// Waits for a moment if the node of a host cannot be reached: this node may have just started, or that one
    /// has ended and its agents will be back at another node, or here, in a moment.
    pub async fn wait_for_node(&self, host: &str, port: u16) {
        let deadline = Instant::now() + NODE_TIMEOUT;
        let own = || self.hosts.find_ranked(host, port);
        while self.is_cut_off(host, port, own().as_ref()) && Instant::now() < deadline {
            tokio::time::sleep(NODE_INTERVAL).await;
        }
    }

    /// Returns true if only nodes that cannot be reached have the name that fits a host best.
    pub fn is_cut_off(&self, host: &str, port: u16, own: Option<&(HostClaim, HostRank)>) -> bool {
        let remote = self.remote_hosts.load();
        let Some(remote) = remote.as_ref() else { return false };
        !own.is_some_and(is_best)
            && remote.cut_off(host, port).is_some_and(|rank| is_better(rank, own))
    }

    /// Returns the virtual host that leads to another node with the endpoint at a port, if the agent is offline
    /// here and such a node exists.
    pub fn elsewhere(
        &self,
        port: u16,
        virtual_host: &ArcSwap<VirtualHost>,
    ) -> Option<Arc<ArcSwap<VirtualHost>>> {
        let remote = self.remote_hosts.load();
        let remote = (**remote).as_ref()?;
        if !virtual_host.load().is_offline() {
            return None;
        }
        Some(led_to(self.targets.upstream(remote.at_port(port)?)))
    }

    /// Returns true if there may be other nodes.
    pub fn has_remote_hosts(&self) -> bool {
        self.remote_hosts.load().is_some()
    }
}

/// Returns true if no name elsewhere can fit a host better than this.
fn is_best((claim, rank): &(HostClaim, HostRank)) -> bool {
    rank.is_best() && !claim.is_offline()
}

/// Returns true if a name elsewhere fits a host better than the one here, or as well if the one here is
/// offline.
fn is_better(rank: HostRank, own: Option<&(HostClaim, HostRank)>) -> bool {
    own.is_none_or(|(claim, own)| rank > *own || (rank == *own && claim.is_offline()))
}

/// Returns what leads everything to another node.
pub fn led_to(node: Upstream) -> Arc<ArcSwap<VirtualHost>> {
    Arc::new(ArcSwap::from_pointee(VirtualHost::of_node(node)))
}
