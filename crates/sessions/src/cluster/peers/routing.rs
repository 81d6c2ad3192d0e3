//! Which node, or which of its tunnels, a visitor is led to.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use ginnel_gateway::{HostRank, RemoteHosts, Target, TunnelGroups};

use super::message::ENDS_TLS;
use super::sessions::{PeerSession, PeerSessions};
use super::target::{EndpointTarget, RemoteTunnelTarget};
use crate::agents::Registry;
use crate::cluster::directory::Directory;
use crate::cluster::{EndpointKey, RemoteTunnel};

/// Where the TLS of visitors ends by their hosts.
const HTTPS_PORT: u16 = 443;

/// Finds hosts and tunnels wherever they are in the cluster.
pub struct ClusterRouting {
    directory: Arc<Directory>,
    sessions: Arc<PeerSessions>,
    registry: Arc<Registry>,
}

impl ClusterRouting {
    pub(super) fn new(
        directory: Arc<Directory>,
        sessions: Arc<PeerSessions>,
        registry: Arc<Registry>,
    ) -> Self {
        Self { directory, sessions, registry }
    }

    fn tunnel_target(&self, tunnel: Arc<RemoteTunnel>) -> Arc<dyn Target> {
        let (sessions, may_idle) = (self.sessions.clone(), AtomicBool::new(true));
        Arc::new(RemoteTunnelTarget { sessions, tunnel, may_idle })
    }

    /// An endpoint, for the bytes of its visitors; none where no node that has it can be reached.
    fn endpoint_target(&self, key: EndpointKey) -> Option<Arc<dyn Target>> {
        let tunnels = self.directory.tunnels_at(&key);
        let is_reachable = tunnels.iter().any(|it| self.sessions.get(&it.node_id).is_some());
        let target = || Arc::new(EndpointTarget::new(&self.directory, &self.sessions, key)) as _;
        is_reachable.then(target)
    }
}

impl RemoteHosts for ClusterRouting {
    fn find_host(
        &self,
        host: &str,
        port: u16,
        failed: &[String],
    ) -> Option<(HostRank, Arc<dyn Target>)> {
        let (rank, tunnels) = self.directory.at_host(host, port)?;
        let mut sessions = tunnels.iter().filter_map(|it| self.sessions.get(&it.node_id));
        let has_failed = |it: &PeerSession| failed.iter().any(|key| key == it.target.key());
        let mut session = sessions.next()?;
        if has_failed(&session) {
            session = sessions.find(|it| !has_failed(it)).unwrap_or(session);
        }
        Some((rank, session.target.clone()))
    }

    fn end_tls(&self) -> bool {
        self.directory.end_tls()
    }

    fn find_tls(&self, host: &str) -> Option<(HostRank, Arc<dyn Target>)> {
        let (rank, tunnels) = self.directory.at_host(host, HTTPS_PORT)?;
        let first = tunnels.first().filter(|it| it.ends_tls())?;
        let ends_tls = |session: Arc<PeerSession>| session.protocol_version >= ENDS_TLS;
        let may_end = |it: &Arc<RemoteTunnel>| self.sessions.get(&it.node_id).is_some_and(ends_tls);
        // In the middle of an upgrade there may be nodes that read no TLS there.
        tunnels.iter().any(may_end).then_some(())?;
        Some((rank, self.endpoint_target(first.key()?.clone())?))
    }

    fn at_port(&self, port: u16) -> Option<Arc<dyn Target>> {
        self.endpoint_target(EndpointKey::port(port))
    }

    fn cut_off(&self, host: &str, port: u16) -> Option<HostRank> {
        let (rank, tunnels) = self.directory.at_host(host, port)?;
        let is_reached = |it: &Arc<RemoteTunnel>| self.sessions.get(&it.node_id).is_some();
        (!tunnels.iter().any(is_reached)).then_some(rank)
    }
}

impl TunnelGroups for ClusterRouting {
    fn matching_targets(
        &self,
        labels: &BTreeMap<String, String>,
        skipped: usize,
        most: usize,
    ) -> Vec<Arc<dyn Target>> {
        let mut own = self.registry.matching_targets(labels, skipped, most);
        let is_reachable = |it: &RemoteTunnel| self.sessions.get(&it.node_id).is_some();
        let others = self.directory.tunnels_with_labels(labels, skipped, most, is_reachable);
        if others.is_empty() {
            return own;
        }
        // Each tunnel has its turn, on whichever node it is.
        let others = others.into_iter().map(|tunnel| self.tunnel_target(tunnel));
        let mut all = match skipped % (own.len() + others.len()) < own.len() {
            true => {
                own.extend(others);
                own
            }
            false => others.chain(own).collect(),
        };
        all.truncate(most);
        all
    }

    fn agent_lost_at(&self, labels: &BTreeMap<String, String>) -> Option<Instant> {
        let lost = self.registry.agent_lost_at(labels).max(self.directory.lost_at(labels));
        // Whoever asks has found none at a node that can be reached.
        let is_cut_off = !self.directory.tunnels_with_labels(labels, 0, 1, |_| true).is_empty();
        lost.max(is_cut_off.then(Instant::now))
    }
}
