//! A service as one node of a cluster: its row, its rows, and what it knows of the others.
//!
//! One task writes what is announced, one reads what has changed of nodes and tunnels into the directory,
//! and one beats; `upkeep` has those that look after other nodes.
//!
//! A node that finds its epoch over (it was stopped for a while, or could not reach the database) goes on
//! serving, takes a new epoch and announces everything again. Only an endpoint that is another bind's
//! meanwhile is ended then: a lapsed lease alone takes nothing from anybody.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{Notify, broadcast, mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::MissedTickBehavior;

use ginnel_api::id::{has_prefix, prefix};
use ginnel_base::logging::or_debug;
use ginnel_store::{Changes, Store, StoreError, StoreResult};

use super::announcements::{AnnouncementBatch, Announcements};
use super::cleaning;
use super::directory::Directory;
use super::holds::holding_nodes;
use super::membership::{self, Joined};
use super::node::{LEASE, NodeDocument, NodeRecord, NodeState, PROTOCOL_VERSION};
use super::process::{self, LocalNode};
use super::row_changes::{self, AnnounceError};
use super::rows::{EndpointClaim, RowOwner, SessionDocument, TunnelDocument};
use super::upkeep::LOOK_INTERVAL;
use crate::Error;

/// How often a node counts its beat up.
const BEAT_INTERVAL: Duration = Duration::from_secs(5);
/// How long after a failure something is tried again.
pub(super) const RETRY_PAUSE: Duration = Duration::from_millis(250);
/// How old news may be before nothing is said on the word of the database.
pub(super) const MAX_NEWS_AGE: Duration = Duration::from_secs(2);
/// How long a node may take to say that it stops, and whoever announces something to see it written.
const STOP_TIMEOUT: Duration = Duration::from_secs(3);
const SETTLE_TIMEOUT: Duration = Duration::from_secs(5);

/// What a node is called, and where others reach it.
#[derive(Debug, Clone, Default)]
pub struct NodeOptions {
    /// The name of the machine, unless there is another.
    pub name: Option<String>,
    /// `host:port`; none where other nodes cannot reach it.
    pub peer_address: Option<String>,
}

/// Ends a bind of this node that another has got.
type OnLost = Box<dyn Fn(&str) + Send + Sync>;
/// Looks at a tunnel that an agent has at another node.
type OnTunnel = Box<dyn Fn(&TunnelDocument) + Send + Sync>;

/// Ends the bind of an agent that is gone at another node: of this node and bind. Gives false if the agent is there.
pub(super) type EndingAtNode =
    Box<dyn Fn(String, String) -> Pin<Box<dyn Future<Output = bool> + Send>> + Send + Sync>;

/// A service as one node of a cluster.
pub struct Cluster {
    pub(super) store: Arc<Store>,
    pub directory: Arc<Directory>,
    node: Mutex<NodeDocument>,
    pub(super) rows: Arc<Announcements>,
    /// Set when the own epoch is over.
    superseded: Notify,
    /// Set when everything is to be read again.
    pub(super) outdated: Notify,
    /// True when the database may lack what this node has written.
    is_lost: AtomicBool,
    /// True when the database may have what this node had removed.
    pub(super) is_untidy: AtomicBool,
    on_lost: OnceLock<OnLost>,
    on_tunnel: OnceLock<OnTunnel>,
    ending_at_nodes: OnceLock<EndingAtNode>,
    tasks: Mutex<Vec<JoinHandle<()>>>,
    _local: LocalNode,
}

impl Cluster {
    /// Makes a service a node, where its database has nodes; waits for another of the same name that may
    /// have ended, and refuses where it lives.
    pub async fn join(
        store: &Arc<Store>,
        options: NodeOptions,
    ) -> Result<Option<Arc<Self>>, Error> {
        if store.change_news().is_none() {
            return Ok(None);
        }
        let record = NodeRecord {
            name: options.name.unwrap_or_else(machine_name),
            peer_address: options.peer_address.unwrap_or_default(),
            protocol_version: PROTOCOL_VERSION,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            ..NodeRecord::default()
        };
        let node = claim_node_name(store, record).await?;
        tracing::info!(node = node.record.name, epoch = node.record.epoch, "this node has joined");
        let cluster = Arc::new(Self {
            store: store.clone(),
            directory: Arc::new(Directory::new(&node.id)),
            rows: Arc::new(Announcements::new(owner_of(&node))),
            superseded: Notify::new(),
            outdated: Notify::new(),
            is_lost: AtomicBool::new(false),
            is_untidy: AtomicBool::new(false),
            on_lost: OnceLock::new(),
            on_tunnel: OnceLock::new(),
            ending_at_nodes: OnceLock::new(),
            tasks: Mutex::default(),
            _local: LocalNode::new(&node.id),
            node: Mutex::new(node),
        });
        cluster.start_tasks().await?;
        Ok(Some(cluster))
    }

    /// Reads what there is, and starts the tasks.
    async fn start_tasks(self: &Arc<Self>) -> Result<(), Error> {
        let (sender, changes) = mpsc::unbounded_channel();
        // Before all is read, so that no change is missed.
        self.store.watch_changes(move |changes| {
            if changes.filter_ids(is_shared).is_some_and(|shared| sender.send(shared).is_err()) {
                tracing::trace!("the node has stopped, and follows no changes");
            }
        });
        self.load_directory().await?;
        let (look, clear) = watch::channel(None);
        let tasks = [
            ginnel_base::tasks::spawn(self.clone().follow_changes(changes)),
            ginnel_base::tasks::spawn(self.clone().write_announcements()),
            ginnel_base::tasks::spawn(self.clone().run_heartbeat()),
            ginnel_base::tasks::spawn(self.clone().watch_news(look)),
            ginnel_base::tasks::spawn(self.clone().maintain_cluster(clear)),
        ];
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner).extend(tasks);
        Ok(())
    }

    /// The node itself, as it was last written.
    pub fn own_node(&self) -> NodeDocument {
        self.node.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// How old what is known of the other nodes is.
    pub fn news_age(&self) -> Duration {
        self.store.change_news().map_or(Duration::ZERO, |news| news.age)
    }

    /// The same, where that is too old.
    pub fn stale_news_age(&self) -> Option<Duration> {
        Some(self.news_age()).filter(|age| *age > MAX_NEWS_AGE)
    }

    /// Whose rows those of this service are now.
    pub fn owner(&self) -> RowOwner {
        self.rows.owner()
    }

    /// Calls `lost` with each bind whose endpoint has become another's; set once.
    pub fn on_lost(&self, lost: impl Fn(&str) + Send + Sync + 'static) {
        self.on_lost.get_or_init(|| Box::new(lost));
    }

    /// The binds that this node holds, and their endpoints.
    pub(super) fn held_binds(&self) -> Vec<(String, EndpointClaim)> {
        self.rows.held_binds()
    }

    /// The tunnels of this node that are gone, and whose rows may still be there.
    pub(super) fn ended_tunnels(&self) -> watch::Receiver<BTreeSet<String>> {
        self.rows.subscribe_ended()
    }

    /// The labels of tunnels of this node whose agents are lost from now on.
    pub(super) fn lost_labels(&self) -> broadcast::Receiver<BTreeMap<String, String>> {
        self.rows.subscribe_lost()
    }

    /// Calls `look` with each tunnel of another node that is new or has changed; set once.
    pub fn on_tunnel(&self, look: impl Fn(&TunnelDocument) + Send + Sync + 'static) {
        self.on_tunnel.get_or_init(|| Box::new(look));
    }

    /// Returns true if this node holds a bind, or is about to.
    pub fn is_holding(&self, bind_id: &str) -> bool {
        self.rows.has_bind(bind_id)
    }

    /// Sets the function that ends a bind at another node; set once.
    pub(super) fn set_ending_at_nodes(&self, ending: EndingAtNode) {
        self.ending_at_nodes.get_or_init(|| ending);
    }

    /// Has all other nodes that hold a bind end it. Returns false if the agent is at one of them, or if one does not
    /// respond.
    pub async fn end_abandoned_bind(&self, bind_id: &str) -> StoreResult<bool> {
        let (id, own) = (bind_id.to_owned(), self.own_node().id);
        let mut nodes = self.store.read(move |view| holding_nodes(view, &id)).await?;
        nodes.retain(|node| *node != own);
        let Some(ending) = self.ending_at_nodes.get() else { return Ok(nodes.is_empty()) };
        let ask = |node| ginnel_base::tasks::spawn(ending(node, bind_id.to_owned()));
        // All at once: a silent agent takes five seconds.
        let asked: Vec<_> = nodes.into_iter().map(ask).collect();
        let mut is_ended = true;
        for answer in asked {
            is_ended &= or_debug!(answer.await, "a question to another node broke") == Some(true);
        }
        Ok(is_ended)
    }

    /// Announces a session.
    pub fn add_session(&self, session: SessionDocument) {
        self.rows.add_session(session);
    }

    /// Announces a tunnel.
    pub fn add_tunnel(&self, tunnel: TunnelDocument) {
        self.rows.add_tunnel(tunnel);
    }

    /// Announces that a session or a tunnel is gone.
    pub fn remove_row(&self, id: &str) {
        self.rows.remove_row(id);
    }

    /// Announces that a tunnel is gone because its agent was lost.
    pub fn remove_lost(&self, id: &str) {
        self.rows.remove_lost(id);
    }

    /// Remembers that this node is to hold a bind, which the caller writes, and confirms.
    pub fn hold_bind(&self, bind_id: &str, claim: EndpointClaim) {
        self.rows.hold_bind(bind_id, claim);
    }

    /// Notes that this node holds a bind: from now on another one that asks learns of it.
    pub fn confirm_bind(&self, bind_id: &str) {
        self.rows.confirm_bind(bind_id);
    }

    /// Forgets a bind that this node has not got.
    pub fn forget_bind(&self, bind_id: &str) {
        self.rows.forget_bind(bind_id);
    }

    /// Announces that this node holds a bind no more: its address is given up where no other does.
    pub fn release_bind(&self, bind_id: &str) {
        self.rows.release_bind(bind_id, false);
    }

    /// The same for a bind whose address its agent may ask for again.
    pub fn suspend_bind(&self, bind_id: &str) {
        self.rows.release_bind(bind_id, true);
    }

    /// Has the epoch of this owner followed by another, because it is over; false when that takes too long.
    pub async fn wait_until_renewed(&self, owner: &RowOwner) -> bool {
        self.superseded.notify_one();
        let renewed =
            tokio::time::timeout(SETTLE_TIMEOUT, self.rows.wait_until_renewed(owner.epoch)).await;
        or_debug!(renewed, "this node has no other epoch yet").is_some()
    }

    /// Waits until others can read what was announced before; not for long where the database is away.
    pub async fn wait_until_announced(&self) {
        let settled = tokio::time::timeout(SETTLE_TIMEOUT, self.rows.wait_until_written()).await;
        or_debug!(settled, "what was announced is not written yet");
    }

    /// Ends the tasks: nothing is announced any more, and the lease lapses.
    pub fn close(&self) {
        for task in self.tasks.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            task.abort();
        }
    }

    /// Says that the node is about to stop: others lead visitors to it only where nobody else can serve them.
    pub async fn announce_drain(&self) {
        let owner = self.owner();
        self.node.lock().unwrap_or_else(PoisonError::into_inner).state.draining = true;
        let said = self.store.write(move |change| membership::mark_draining(change, &owner));
        let Ok(said) = tokio::time::timeout(STOP_TIMEOUT, said).await else {
            return tracing::warn!(
                "other nodes do not learn in time that this one is about to stop"
            );
        };
        or_debug!(said, "other nodes do not learn that this one is about to stop");
    }

    /// Ends the tasks, and says that the node stops; its rows are void then.
    pub async fn stop(&self) {
        self.close();
        let owner = self.owner();
        let stopped = self.store.write(move |change| membership::mark_stopped(change, &owner));
        // Without it the lease lapses.
        let Ok(stopped) = tokio::time::timeout(STOP_TIMEOUT, stopped).await else {
            return tracing::warn!("other nodes do not learn in time that this one stops");
        };
        or_debug!(stopped, "other nodes do not learn that this one stops");
        let node_id = self.owner().node_id;
        let removed =
            tokio::time::timeout(STOP_TIMEOUT, cleaning::remove_rows(&self.store, &node_id));
        or_debug!(removed.await, "the rows of this node are left to others");
    }

    /// Writes what is announced.
    async fn write_announcements(self: Arc<Self>) {
        loop {
            let batch = self.rows.next().await;
            match self.write_batch(&batch).await {
                Ok(lost) => {
                    self.rows.mark_written(&batch);
                    lost.iter().for_each(|bind_id| self.end_lost_bind(bind_id));
                }
                Err(error) => {
                    tracing::debug!("rows of this node are not written yet: {error}");
                    self.rows.retry_batch(batch);
                    if matches!(error, AnnounceError::Superseded) {
                        self.superseded.notify_one();
                    }
                    tokio::time::sleep(RETRY_PAUSE).await;
                }
            }
        }
    }

    /// Writes rows; gives the binds whose endpoints are another's.
    async fn write_batch(&self, batch: &AnnouncementBatch) -> Result<Vec<String>, AnnounceError> {
        let (owner, changes) = (batch.owner.clone(), Arc::new(batch.changes.clone()));
        self.store.write(move |change| row_changes::store_rows(change, &changes, &owner)).await
    }

    /// Ends a bind here whose endpoint is another's.
    pub(super) fn end_lost_bind(&self, bind_id: &str) {
        tracing::warn!(bind = bind_id, "an endpoint of this node is another's now, and ends here");
        self.rows.forget_bind(bind_id);
        if let Some(lost) = self.on_lost.get() {
            lost(bind_id);
        }
    }

    /// Reads all nodes and tunnels into the directory.
    async fn load_directory(&self) -> StoreResult<()> {
        let known = self.directory.known_ids();
        let read = self.store.read(|view| {
            Ok::<_, StoreError>((
                view.all_documents::<NodeDocument>()?,
                view.all_documents::<TunnelDocument>()?,
            ))
        });
        let (nodes, tunnels) = read.await?;
        self.record_rows(known, nodes, tunnels);
        Ok(())
    }

    /// Reads what has changed into the directory; nothing else does, so that no older state comes last.
    async fn follow_changes(self: Arc<Self>, mut changes: mpsc::UnboundedReceiver<Changes>) {
        loop {
            // None where nothing is known to have changed, and all is read again.
            let mut changed = tokio::select! {
                changed = changes.recv() => match changed {
                    Some(changed) => Some(changed),
                    None => return,
                },
                () = self.outdated.notified() => None,
            };
            if let Some(changed) = &mut changed {
                while let Ok(later) = changes.try_recv() {
                    changed.extend(later);
                }
            }
            while let Err(error) = self.reload_directory(changed.as_ref()).await {
                tracing::debug!("what has changed in the cluster cannot be read yet: {error}");
                tokio::time::sleep(RETRY_PAUSE).await;
            }
        }
    }

    async fn reload_directory(&self, changes: Option<&Changes>) -> StoreResult<()> {
        match changes {
            None => {
                self.load_directory().await?;
                // The database may know this node by an older epoch.
                self.send_beat().await;
                Ok(())
            }
            Some(Changes::Of(ids)) => {
                let ids = BTreeSet::from_iter(ids.iter().cloned());
                self.refresh_rows(ids.into_iter().collect()).await
            }
            Some(Changes::All) => {
                self.load_directory().await?;
                self.is_lost.store(true, Ordering::Release);
                self.superseded.notify_one();
                Ok(())
            }
        }
    }

    async fn refresh_rows(&self, ids: Vec<String>) -> StoreResult<()> {
        let looked_up = ids.clone();
        let read = self.store.read(move |view| {
            let nodes = |id: &String| has_prefix(id, prefix::NODE);
            let (nodes, tunnels): (Vec<_>, Vec<_>) = looked_up.into_iter().partition(nodes);
            Ok::<_, StoreError>((view.find_documents(&nodes)?, view.find_documents(&tunnels)?))
        });
        let (nodes, tunnels) = read.await?;
        self.record_rows(ids, nodes, tunnels);
        Ok(())
    }

    /// Notes what was read of these identifiers.
    fn record_rows(
        &self,
        ids: Vec<String>,
        nodes: Vec<NodeDocument>,
        tunnels: Vec<TunnelDocument>,
    ) {
        let owner = self.owner();
        let own = nodes.iter().find(|node| node.id == owner.node_id);
        let is_over = match own {
            Some(node) => node.record.epoch > owner.epoch,
            None => ids.contains(&owner.node_id),
        };
        if is_over {
            self.superseded.notify_one();
        }
        if let Some(look) = self.on_tunnel.get() {
            tunnels.iter().filter(|row| row.owner.node_id != owner.node_id).for_each(look);
        }
        let nodes: Vec<_> = nodes.into_iter().map(|node| (node.id.clone(), Some(node))).collect();
        let tunnels: Vec<_> = tunnels.into_iter().map(|row| (row.id.clone(), Some(row))).collect();
        let read: BTreeSet<&String> =
            nodes.iter().map(|(id, _)| id).chain(tunnels.iter().map(|(id, _)| id)).collect();
        let gone = ids.iter().filter(|id| !read.contains(id)).cloned();
        let (gone_nodes, gone_tunnels): (Vec<_>, Vec<_>) =
            gone.partition(|id| has_prefix(id, prefix::NODE));
        let nodes = nodes.iter().cloned().chain(gone_nodes.into_iter().map(|id| (id, None)));
        let tunnels = tunnels.iter().cloned().chain(gone_tunnels.into_iter().map(|id| (id, None)));
        let now = Instant::now();
        self.directory.record_rows(nodes, tunnels, now, self.seen_version());
        self.store.set_node_count(self.directory.serving_count(now));
    }

    /// Beats, and takes a new epoch when the own one is over.
    pub(super) async fn run_heartbeat(self: Arc<Self>) {
        let mut beats =
            tokio::time::interval_at((Instant::now() + BEAT_INTERVAL).into(), BEAT_INTERVAL);
        beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = self.superseded.notified() => self.rejoin().await,
                _ = beats.tick() => self.send_beat().await,
            }
        }
    }

    async fn send_beat(&self) {
        let owner = self.owner();
        let (sessions, tunnels) = self.rows.row_counts();
        let seen_version = self.seen_version();
        let said = NodeState { seen_version, sessions, tunnels, ..NodeState::default() };
        let beaten = self.store.write(move |change| membership::record_beat(change, &owner, said));
        match beaten.await {
            Ok(true) => {}
            Ok(false) => self.superseded.notify_one(),
            Err(err) => tracing::debug!(%err, "this node cannot beat"),
        }
    }

    /// The newest version of the database whose changes are known here.
    pub(super) fn seen_version(&self) -> i64 {
        self.store.change_news().map_or(0, |news| news.version)
    }

    /// Takes a new epoch, if the own one is over, and announces everything in it. Where the database may lack
    /// what was written in the own one, it is over: its rows are void, whatever they say.
    async fn rejoin(&self) {
        let (owner, node) = (self.owner(), self.own_node());
        let is_lost = self.is_lost.swap(false, Ordering::AcqRel);
        let joined =
            self.store.write(move |change| match membership::find_serving(change, &owner)? {
                Some(_) if !is_lost => Ok::<_, StoreError>(None),
                _ => membership::rejoin_node(change, node).map(Some),
            });
        match joined.await {
            Ok(None) => {}
            Ok(Some(node)) => {
                let reason = match is_lost {
                    true => "the database may lack what this node has announced",
                    false => "other nodes took this one for gone",
                };
                tracing::warn!(epoch = node.record.epoch, "{reason}; it announces itself again");
                self.rows.renew_epoch(owner_of(&node));
                *self.node.lock().unwrap_or_else(PoisonError::into_inner) = node;
                if is_lost {
                    self.is_untidy.store(true, Ordering::Release);
                }
            }
            Err(err) => {
                self.is_lost.fetch_or(is_lost, Ordering::AcqRel);
                tracing::debug!(%err, "this node cannot join again yet");
                tokio::time::sleep(RETRY_PAUSE).await;
                self.superseded.notify_one();
            }
        }
    }
}

/// Whether an identifier is one of what the directory has.
fn is_shared(id: &str) -> bool {
    [prefix::NODE, prefix::TUNNEL].iter().any(|kind| has_prefix(id, kind))
}

fn owner_of(node: &NodeDocument) -> RowOwner {
    RowOwner { node_id: node.id.clone(), epoch: node.record.epoch }
}

/// Adds a node, as soon as no other has its name.
async fn claim_node_name(store: &Arc<Store>, record: NodeRecord) -> Result<NodeDocument, Error> {
    let mut seen: Option<(Instant, NodeDocument)> = None;
    loop {
        let asked = record.clone();
        let joined =
            store.write(move |change| membership::add_node(change, asked, process::own_process()));
        let other = match joined.await? {
            Joined::Done(node) => return Ok(node),
            Joined::Taken(other) => other,
        };
        let (since, first) = seen.get_or_insert_with(|| {
            tracing::info!(node = record.name, "a node of this name may still run: waiting for it");
            (Instant::now(), other.clone())
        });
        if other.state.beat != first.state.beat || other.id != first.id {
            let NodeRecord { name, started_at, .. } = other.record;
            return Err(Error::NodeNameTaken { name, started_at: started_at.0 });
        }
        if since.elapsed() >= LEASE || process::has_ended(&other.process, &other.id) {
            let (owner, beat) = (owner_of(&other), other.state.beat);
            store.write(move |change| membership::fence_node(change, &owner, beat)).await?;
        } else {
            tokio::time::sleep(LOOK_INTERVAL).await;
        }
    }
}

fn machine_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}
