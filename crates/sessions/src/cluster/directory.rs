//! The nodes of the cluster, and the tunnels of the other ones, in memory.
//!
//! A tunnel is found only while its node has the epoch of its row. So the rows of a fenced node are void
//! the moment that its new epoch is seen, and it does not matter in which order rows and nodes are read.
//!
//! Whoever is fenced may be cut off from the database only, and go on serving. While there is a session with
//! such a node, visitors are led to its tunnels of earlier epochs where nobody has their endpoints now, even
//! after their rows were removed. It says itself which of them have ended.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::{Duration, Instant};

use tokio::sync::watch;

use ginnel_gateway::{HostRank, random_below};

use super::node::{LEASE, NodeDocument, NodeRecord, NodeState};
use super::rows::{EndpointKey, RemoteTunnel, RowOwner, TunnelDocument};
use crate::agents::{LostLabels, TunnelTable};

/// For how long it is remembered of a tunnel whose row was not read yet that it has ended.
const ENDED_MEMORY: Duration = Duration::from_secs(60);

/// What a node knows of the cluster.
pub struct Directory {
    /// The node whose directory it is.
    own_id: String,
    state: RwLock<DirectoryState>,
    /// Counted up with each change.
    changed: watch::Sender<u64>,
}

#[derive(Default)]
struct DirectoryState {
    /// All nodes, by their identifiers; the own one too.
    nodes: BTreeMap<String, KnownNode>,
    /// Tunnels of others; some may be of epochs that are over.
    tunnels: TunnelTable<RemoteTunnel>,
    by_key: HashMap<EndpointKey, Vec<Arc<RemoteTunnel>>>,
    /// Those that have ended, as their nodes say, which could not remove their rows yet, and since when that is
    /// known: some rows may be read later.
    ended: HashMap<String, Instant>,
    /// Of tunnels whose agents were lost at other nodes, as these say.
    lost_labels: LostLabels,
    /// How many of them end the TLS of visitors at their nodes alone.
    ending_tls: usize,
    /// The other nodes with which there is a session.
    connected: HashSet<Arc<str>>,
    /// Nodes and tunnels whose rows were removed, and which are kept because their node may serve.
    removed_nodes: HashSet<String>,
    removed_tunnels: HashMap<String, Arc<RemoteTunnel>>,
    /// The version of the database that was known when something was last noted.
    version: i64,
}

/// A node as it was last seen.
#[derive(Debug, Clone)]
pub struct KnownNode {
    pub id: Arc<str>,
    pub record: Arc<NodeRecord>,
    pub state: NodeState,
    /// When its beat or its epoch was last seen to change, by the clock of this process.
    pub seen: Instant,
    /// How many versions of the database it was behind then.
    pub version_lag: i64,
}

impl KnownNode {
    /// Whose rows are those of the node now.
    pub fn owner(&self) -> RowOwner {
        RowOwner { node_id: self.id.to_string(), epoch: self.record.epoch }
    }

    /// Whether it should have beaten long ago. Whoever has said that it stops is not expected to.
    pub fn is_lapsed(&self, now: Instant) -> bool {
        self.state.fenced || (!self.state.stopped && now.duration_since(self.seen) >= LEASE)
    }

    /// What operators call its state.
    pub fn phase(&self, now: Instant) -> &'static str {
        match (self.is_lapsed(now), self.state.draining) {
            (true, _) => "lapsed",
            (false, true) => "draining",
            (false, false) => "alive",
        }
    }
}

impl Directory {
    /// The empty directory of a node.
    pub fn new(own_id: &str) -> Self {
        Self { own_id: own_id.to_owned(), state: RwLock::default(), changed: watch::Sender::new(0) }
    }

    /// Gets a new value with each change of nodes and tunnels; beats are none.
    pub fn subscribe(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// The node whose directory it is, and its epoch; 0 before that is known.
    pub fn own_identity(&self) -> (String, u64) {
        let own = self.find_node(&self.own_id);
        (self.own_id.clone(), own.map_or(0, |own| own.record.epoch))
    }

    /// The node with this identifier, alive or lapsed.
    pub fn find_node(&self, id: &str) -> Option<KnownNode> {
        self.read_state().nodes.get(id).cloned()
    }

    /// Whether no other node serves and is there.
    pub fn is_alone(&self, now: Instant) -> bool {
        let state = self.read_state();
        let mut others = state.nodes.iter().filter(|(id, _)| **id != self.own_id);
        !others.any(|(_, node)| node.state.is_serving() && !node.is_lapsed(now))
    }

    /// How many nodes serve and are there; the own one too.
    pub fn serving_count(&self, now: Instant) -> usize {
        let state = self.read_state();
        state.nodes.values().filter(|it| it.state.is_serving() && !it.is_lapsed(now)).count()
    }

    /// All nodes, oldest first; the own one too.
    pub fn nodes(&self) -> Vec<KnownNode> {
        self.read_state().nodes.values().cloned().collect()
    }

    /// The tunnel of another node with this identifier.
    #[cfg(test)]
    pub fn find_tunnel(&self, id: &str) -> Option<Arc<RemoteTunnel>> {
        let state = self.read_state();
        state.tunnels.get(id).filter(|tunnel| state.is_current(tunnel)).cloned()
    }

    /// The tunnels of other nodes to which visitors of an endpoint are led, which are those of one bind, or of
    /// binds that share it: the newest first, those of nodes that are about to stop last.
    pub fn tunnels_at(&self, key: &EndpointKey) -> Vec<Arc<RemoteTunnel>> {
        self.read_state().tunnels_at(key)
    }

    /// The same, without those of nodes that were taken for gone: others may have their endpoints.
    pub fn claimed_at(&self, key: &EndpointKey) -> Vec<Arc<RemoteTunnel>> {
        let state = self.read_state();
        let mut found = state.tunnels_at(key);
        found.retain(|tunnel| state.is_current(tunnel));
        found
    }

    /// The ports at which other nodes have endpoints.
    pub fn remote_ports(&self) -> Vec<u16> {
        let state = self.read_state();
        let ports = state.by_key.keys().filter_map(|key| Some((key, key.own_port()?)));
        ports.filter(|(key, _)| !state.tunnels_at(key).is_empty()).map(|(_, port)| port).collect()
    }

    /// The names at which other nodes have endpoints on the shared port for HTTPS.
    pub fn https_hosts(&self) -> Vec<String> {
        let state = self.read_state();
        let hosts = state.by_key.keys().filter_map(|key| Some((key, key.https_host()?)));
        hosts
            .filter(|(key, _)| !state.tunnels_at(key).is_empty())
            .map(|(_, host)| host.to_owned())
            .collect()
    }

    /// Whether a node has this epoch and has not ended, as far as is known.
    pub fn is_serving(&self, owner: &RowOwner) -> bool {
        let node = self.find_node(&owner.node_id);
        node.is_some_and(|node| node.owner() == *owner && node.state.is_serving())
    }

    /// The tunnels of other nodes at a host on the shared ports: by its name, else by the longest
    /// wildcard; there by the port, else whichever speaks HTTPS, else HTTP; and how well the name fits.
    /// None where there are none.
    pub fn at_host(&self, host: &str, port: u16) -> Option<(HostRank, Vec<Arc<RemoteTunnel>>)> {
        let state = self.read_state();
        if state.by_key.is_empty() {
            return None;
        }
        let at = |name: &str| {
            let mut ports = [port, 443, 80].into_iter();
            ports.find_map(|one| {
                let found = state.tunnels_at(&EndpointKey::http(name, one));
                (!found.is_empty()).then_some((one == port, found))
            })
        };
        let exact = |(is_port, found)| (HostRank::exact(is_port), found);
        let mut parents = std::iter::successors(parent_of(host), |name| parent_of(name));
        at(host).map(exact).or_else(|| {
            parents.find_map(|parent| {
                let (is_port, found) = at(&format!("*.{parent}"))?;
                Some((HostRank::wild(parent, is_port), found))
            })
        })
    }

    /// Whether any tunnel of another node ends the TLS of visitors there alone.
    pub fn end_tls(&self) -> bool {
        self.read_state().ending_tls > 0
    }

    /// At most `most` of the reachable tunnels of other nodes that serve all of these labels, oldest first, beginning
    /// with the one after `skipped`, counted around, and those of nodes that are about to stop last; none for
    /// no labels.
    pub fn tunnels_with_labels(
        &self,
        labels: &BTreeMap<String, String>,
        skipped: usize,
        most: usize,
        is_reachable: impl Fn(&RemoteTunnel) -> bool,
    ) -> Vec<Arc<RemoteTunnel>> {
        let state = self.read_state();
        let may_serve = |it: &RemoteTunnel| state.is_current(it) || state.may_still_serve(it);
        let is_serving = |tunnel: &RemoteTunnel| may_serve(tunnel) && is_reachable(tunnel);
        let mut found = state.tunnels.with_labels_from(labels, skipped, most, is_serving);
        found.sort_by_key(|tunnel| (!state.is_current(tunnel), state.is_leaving(tunnel)));
        found
    }

    /// The identifiers of the tunnels of nodes that are about to stop.
    pub fn leaving_tunnels(&self) -> Vec<String> {
        let state = self.read_state();
        if !state.nodes.values().any(|node| node.state.draining && node.state.is_serving()) {
            return Vec::new();
        }
        let leaving = state.tunnels.values().filter(|it| state.is_leaving(it));
        leaving.map(|it| it.id.to_string()).collect()
    }

    /// A tunnel of another node that something is true of.
    pub fn find_tunnel_where(
        &self,
        is_meant: impl Fn(&RemoteTunnel) -> bool,
    ) -> Option<Arc<RemoteTunnel>> {
        let state = self.read_state();
        let mut current = state.tunnels.values().filter(|tunnel| state.is_current(tunnel));
        current.find(|tunnel| is_meant(tunnel)).cloned()
    }

    /// How many tunnels of other nodes are known.
    pub fn tunnel_count(&self) -> usize {
        self.read_state().tunnels.values().count()
    }

    /// The session of each tunnel of another node.
    pub fn sessions_of_tunnels(&self) -> Vec<String> {
        self.read_state().tunnels.values().map(|tunnel| tunnel.session_id.to_string()).collect()
    }

    /// The nodes that are lapsed and not fenced yet, but for the own one.
    pub fn lapsed_nodes(&self, now: Instant) -> Vec<KnownNode> {
        let state = self.read_state();
        let others = state.nodes.values().filter(|node| *node.id != *self.own_id);
        others.filter(|node| node.is_lapsed(now) && !node.state.fenced).cloned().collect()
    }

    /// Whether this is the first of the nodes that live, which does what one has to do for all.
    pub fn is_first(&self, now: Instant) -> bool {
        let state = self.read_state();
        let first = state.nodes.values().find(|it| it.state.is_serving() && !it.is_lapsed(now));
        first.is_some_and(|first| *first.id == *self.own_id)
    }

    /// The nodes that have ended at least so long ago, for the first of those that live: none for others.
    pub fn ended_nodes(&self, now: Instant, since: Duration) -> Vec<KnownNode> {
        if !self.is_first(now) {
            return Vec::new();
        }
        let state = self.read_state();
        let is_over =
            |it: &KnownNode| !it.state.is_serving() && !state.removed_nodes.contains(&*it.id);
        let ended = state.nodes.values().filter(|it| is_over(it));
        ended.filter(|it| now.duration_since(it.seen) >= since).cloned().collect()
    }

    /// Whether an epoch of a node is over, as far as whoever knows no less than this version can say.
    pub fn has_ended(&self, owner: &RowOwner, version: i64) -> bool {
        let state = self.read_state();
        let node = state.nodes.get(&owner.node_id);
        let is_over = node.is_none_or(|it| it.record.epoch > owner.epoch || !it.state.is_serving());
        is_over && state.version >= version
    }

    /// Begins all leases anew: whoever could not look for a while has seen nobody, which says nothing
    /// about them.
    pub fn renew_leases(&self, now: Instant) {
        self.write_state().nodes.values_mut().for_each(|node| node.seen = now);
    }

    /// Notes nodes and tunnels as the database has them at `now`, whose changes are known up to `version`:
    /// `None` for those that it has not.
    pub fn record_rows(
        &self,
        nodes: impl IntoIterator<Item = (String, Option<NodeDocument>)>,
        tunnels: impl IntoIterator<Item = (String, Option<TunnelDocument>)>,
        now: Instant,
        version: i64,
    ) {
        let mut state = self.write_state();
        state.version = version;
        let mut is_changed = false;
        for (id, node) in nodes {
            is_changed |= state.record_node(&id, node, now, version);
        }
        for (id, tunnel) in tunnels {
            let tunnel = tunnel.filter(|tunnel| tunnel.owner.node_id != self.own_id);
            is_changed |= state.record_tunnel(&id, tunnel);
        }
        drop(state);
        if is_changed {
            self.changed.send_modify(|changes| *changes += 1);
        }
    }

    /// Notes that tunnels of another node have ended, whatever the database says.
    pub fn record_ended(&self, ids: Vec<String>) {
        let mut guard = self.write_state();
        let (state, now) = (&mut *guard, Instant::now());
        let tunnels = &state.tunnels;
        state.ended.retain(|id, since| {
            tunnels.get(id).is_some() || now.duration_since(*since) < ENDED_MEMORY
        });
        state.ended.extend(ids.into_iter().map(|id| (id, now)));
        drop(guard);
        self.changed.send_modify(|changes| *changes += 1);
    }

    /// Notes whether there is a session with another node.
    pub fn record_session(&self, node_id: &Arc<str>, is_there: bool) {
        let mut state = self.write_state();
        match is_there {
            true => drop(state.connected.insert(node_id.clone())),
            false => {
                state.connected.remove(node_id);
                state.forget_removed(node_id);
            }
        }
        drop(state);
        self.changed.send_modify(|changes| *changes += 1);
    }

    /// Notes the labels of tunnels of another node whose agents were lost.
    pub fn record_lost(&self, lost: &[BTreeMap<String, String>]) {
        let mut state = self.write_state();
        for labels in lost {
            state.lost_labels.add(Some(labels));
        }
    }

    /// When the agent of a tunnel of another node with all of these labels was lost, the last of several.
    pub fn lost_at(&self, labels: &BTreeMap<String, String>) -> Option<Instant> {
        self.read_state().lost_labels.lost_at(labels)
    }

    /// The identifiers of all nodes and tunnels that are known.
    pub fn known_ids(&self) -> Vec<String> {
        let state = self.read_state();
        let tunnels = state.tunnels.values().map(|tunnel| tunnel.id.to_string());
        state.nodes.keys().cloned().chain(tunnels).collect()
    }

    fn read_state(&self) -> RwLockReadGuard<'_, DirectoryState> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write_state(&self) -> RwLockWriteGuard<'_, DirectoryState> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl DirectoryState {
    /// Whether a tunnel is one of its node's present epoch, which has not said that it has ended.
    fn is_current(&self, tunnel: &RemoteTunnel) -> bool {
        let node = self.nodes.get(&*tunnel.node_id);
        node.is_some_and(|node| node.record.epoch == tunnel.epoch && node.state.is_serving())
            && !self.ended.contains_key(&*tunnel.id)
    }

    /// Whether a tunnel is one of an earlier epoch of its node, which may serve it all the same.
    fn may_still_serve(&self, tunnel: &RemoteTunnel) -> bool {
        let node = self.nodes.get(&*tunnel.node_id);
        node.is_some_and(|node| tunnel.epoch < node.record.epoch && !node.state.stopped)
            && self.connected.contains(&*tunnel.node_id)
            && !self.ended.contains_key(&*tunnel.id)
    }

    /// Forgets what is only known because a node may serve it.
    fn forget_removed(&mut self, node_id: &str) {
        let is_its = |tunnel: &RemoteTunnel| *tunnel.node_id == *node_id;
        for (id, tunnel) in self.removed_tunnels.extract_if(|_, it| is_its(it)).collect::<Vec<_>>()
        {
            self.ended.remove(&id);
            self.remove_tunnel(&tunnel);
        }
        if self.removed_nodes.remove(node_id) {
            self.nodes.remove(node_id);
        }
    }

    /// Whether a tunnel is one of a node that is about to stop.
    fn is_leaving(&self, tunnel: &RemoteTunnel) -> bool {
        self.nodes.get(&*tunnel.node_id).is_some_and(|node| node.state.draining)
    }

    /// Begins with any of those that share an endpoint and stay.
    fn rotate_shared(&self, tunnels: &mut [Arc<RemoteTunnel>]) {
        let is_shared = |it: &RemoteTunnel| it.pool().is_some() && !self.is_leaving(it);
        let staying = tunnels.iter().take_while(|it| is_shared(it)).count();
        if let Some(others) = tunnels.get_mut(..staying).filter(|others| others.len() > 1) {
            others.rotate_left(random_below(staying));
        }
    }

    fn tunnels_at(&self, key: &EndpointKey) -> Vec<Arc<RemoteTunnel>> {
        let all = || self.by_key.get(key).into_iter().flatten();
        let mut found: Vec<_> = all().filter(|it| self.is_current(it)).cloned().collect();
        if found.is_empty() {
            found = all().filter(|it| self.may_still_serve(it)).cloned().collect();
        }
        // The newest first, by the time that their identifiers begin with: an agent that has moved may have
        // left a session behind that nobody knows to be dead yet.
        found.sort_by(|one, other| {
            let leaves = self.is_leaving(one).cmp(&self.is_leaving(other));
            leaves.then_with(|| other.id.cmp(&one.id))
        });
        self.rotate_shared(&mut found);
        found
    }

    /// True when more than its beat has changed.
    fn record_node(
        &mut self,
        id: &str,
        node: Option<NodeDocument>,
        now: Instant,
        version: i64,
    ) -> bool {
        let Some(NodeDocument { id, state, record, .. }) = node else {
            let is_kept = self.connected.contains(id)
                && self.nodes.get(id).is_some_and(|node| node.state.fenced);
            if is_kept {
                self.removed_nodes.insert(id.to_owned());
                return false;
            }
            return self.nodes.remove(id).is_some();
        };
        self.removed_nodes.remove(&id);
        // By its second beat, a node that has begun again has announced all that it has.
        let has_announced = |known: &KnownNode| {
            state.is_serving()
                && known.record.epoch == record.epoch
                && known.state.beat < state.beat
        };
        if self.nodes.get(&id).is_some_and(has_announced) {
            self.forget_removed(&id);
        }
        let Some(known) = self.nodes.get_mut(&id) else {
            let node = KnownNode {
                id: id.as_str().into(),
                record: Arc::new(record),
                state,
                seen: now,
                version_lag: 0,
            };
            self.nodes.insert(id, node);
            return true;
        };
        let phase = |state: NodeState| (state.fenced, state.draining, state.stopped);
        let ended = phase(known.state) != phase(state);
        if ended || known.state.beat != state.beat || known.record.epoch != record.epoch {
            known.seen = now;
            // A node that has just begun has not said yet what it knows.
            let lag = if state.beat == 0 { 0 } else { version - state.seen_version };
            known.version_lag = lag.max(0);
        }
        known.state = state;
        let is_other = *known.record != record;
        if is_other {
            known.record = Arc::new(record);
        }
        is_other || ended
    }

    /// True when the tunnel is another, or has gone.
    fn record_tunnel(&mut self, id: &str, row: Option<TunnelDocument>) -> bool {
        let before = self.tunnels.get(id).cloned();
        match (&row, &before) {
            (None, Some(before)) if self.may_still_serve(before) => {
                self.removed_tunnels.insert(id.to_owned(), before.clone());
                return false;
            }
            (None, _) => drop(self.ended.remove(id)),
            (Some(_), _) => {}
        }
        self.removed_tunnels.remove(id);
        let tunnel = row.map(RemoteTunnel::from_row);
        if before.as_deref() == tunnel.as_ref() {
            return false;
        }
        if let Some(before) = before {
            self.remove_tunnel(&before);
        }
        if let Some(tunnel) = tunnel {
            self.insert_tunnel(Arc::new(tunnel));
        }
        true
    }

    fn insert_tunnel(&mut self, tunnel: Arc<RemoteTunnel>) {
        self.ending_tls += usize::from(tunnel.ends_tls());
        if let Some(key) = tunnel.key() {
            self.by_key.entry(key.clone()).or_default().push(tunnel.clone());
        }
        self.tunnels.insert(tunnel);
    }

    fn remove_tunnel(&mut self, tunnel: &RemoteTunnel) {
        self.tunnels.remove(&tunnel.id);
        self.ending_tls -= usize::from(tunnel.ends_tls());
        let Some(key) = tunnel.key() else { return };
        let Some(tunnels) = self.by_key.get_mut(key) else { return };
        tunnels.retain(|other| other.id != tunnel.id);
        if tunnels.is_empty() {
            self.by_key.remove(key);
        }
    }
}

/// What follows the first label of a name.
fn parent_of(name: &str) -> Option<&str> {
    name.split_once('.').map(|(_, parent)| parent)
}

#[cfg(test)]
mod tests;
