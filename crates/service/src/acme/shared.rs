//! Orders in a cluster: one node orders, and the challenge is answered by whichever node is asked.
//!
//! What a node shows the authority is stored with the name, and every node shows the same, with or without
//! an authority of its own in its configuration.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::{mpsc, watch};

use ginnel_api::id::{has_prefix, prefix};
use ginnel_gateway::tls::challenges::{Challenges, OpenChallenge};
use ginnel_store::{Changes, Store, StoreResult};

use crate::certificates::{ManagedName, StoredChallenge};
use crate::cluster::{Cluster, Leases};

/// How long a challenge is stored before the authority may ask: other nodes know of a change within a
/// second (`docs/operate/scale.md`).
const SPREAD: Duration = Duration::from_secs(1);

/// Opens a challenge for as long as the result lives.
///
/// # Errors
/// When a certificate for it cannot be made.
pub(super) fn open_challenge(
    challenges: &Arc<Challenges>,
    name: &str,
    challenge: &StoredChallenge,
) -> Result<OpenChallenge, ginnel_gateway::tls::certificate_error::CertificateError> {
    match challenge {
        StoredChallenge::Http { token, authorization } => {
            Ok(OpenChallenge::open_http(challenges, token, authorization))
        }
        StoredChallenge::Tls { digest } => OpenChallenge::open_tls(challenges, name, digest),
    }
}

/// The challenges of other nodes.
pub(crate) struct SharedChallenges {
    store: Arc<Store>,
    cluster: Arc<Cluster>,
    challenges: Arc<Challenges>,
    /// What is shown of other nodes' orders, by the identifier of the name.
    open: Mutex<HashMap<String, OpenChallenge>>,
}

impl SharedChallenges {
    /// Shows what other nodes have stored, and follows it until this is dropped.
    pub fn start(
        store: &Arc<Store>,
        cluster: &Arc<Cluster>,
        challenges: Arc<Challenges>,
    ) -> Arc<Self> {
        let (store, cluster) = (store.clone(), cluster.clone());
        let shared = Arc::new(Self { store, cluster, challenges, open: Mutex::default() });
        let (sender, changed) = mpsc::unbounded_channel();
        let follower = Arc::downgrade(&shared);
        shared.store.watch_changes(move |changes| {
            let names = changes.filter_ids(|id| has_prefix(id, prefix::MANAGED_NAME));
            let names = names.filter(|_| follower.strong_count() > 0);
            if names.is_some_and(|names| sender.send(names).is_err()) {
                tracing::trace!("the service has stopped, and shows no challenges");
            }
        });
        ginnel_base::tasks::spawn(Self::follow_changes(Arc::downgrade(&shared), changed));
        shared
    }

    async fn follow_changes(shared: Weak<Self>, mut changed: mpsc::UnboundedReceiver<Changes>) {
        let mut changes = Changes::All;
        loop {
            let Some(shared) = shared.upgrade() else { return };
            if let Err(err) = shared.read_again(changes).await {
                tracing::warn!(%err, "challenges of other nodes cannot be read");
            }
            drop(shared);
            let Some(later) = changed.recv().await else { return };
            changes = later;
        }
    }

    /// Shows what the database has of the names that have changed.
    async fn read_again(&self, changes: Changes) -> StoreResult<()> {
        let names = match changes {
            Changes::Of(ids) => self.store.read(move |view| view.find_documents(&ids)).await?,
            Changes::All => {
                let names = self.store.read(|view| view.all_documents::<ManagedName>()).await?;
                let stored: HashSet<&String> = names.iter().map(|name| &name.id).collect();
                self.lock_challenges().retain(|id, _| stored.contains(id));
                names
            }
        };
        names.into_iter().for_each(|name| self.update_challenge(name));
        Ok(())
    }

    fn lock_challenges(&self) -> MutexGuard<'_, HashMap<String, OpenChallenge>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Shows the challenge of a name, or shows it no more.
    fn update_challenge(&self, name: ManagedName) {
        let is_own = name.node.as_ref().is_some_and(|node| *node == self.cluster.owner());
        let challenge = name.challenge.filter(|_| !is_own);
        let mut shown = self.lock_challenges();
        // What is replaced ends first: it may be shown for the same name.
        shown.remove(&name.id);
        let Some(challenge) = challenge else { return };
        match open_challenge(&self.challenges, &name.name, &challenge) {
            Ok(open) => drop(shown.insert(name.id, open)),
            Err(err) => tracing::warn!(%err, name = name.name, "a challenge cannot be shown"),
        }
    }
}

/// A node's part in the orders of its cluster; it has all of them where there is no cluster.
pub(super) struct SharedOrders {
    cluster: Option<Arc<Cluster>>,
    /// An order is leased to the node that is stored with its name.
    pub leases: Leases,
}

impl SharedOrders {
    pub fn from_cluster(cluster: Option<Arc<Cluster>>) -> Self {
        Self { leases: Leases::from_cluster(cluster.clone()), cluster }
    }

    /// The names on the port for HTTPS that other nodes have.
    pub fn https_names(&self) -> Vec<String> {
        self.cluster.as_ref().map(|cluster| cluster.directory.https_hosts()).unwrap_or_default()
    }

    /// How many nodes share what an authority allows.
    pub fn node_count(&self) -> usize {
        let Some(cluster) = &self.cluster else { return 1 };
        cluster.directory.nodes().iter().filter(|node| node.state.is_serving()).count().max(1)
    }

    /// Counts up whenever other nodes have other names, or have ended. To be taken before it is looked at
    /// what there is, so that no change is missed.
    pub fn subscribe(&self) -> ClusterChanges {
        ClusterChanges(self.cluster.as_ref().map(|cluster| cluster.directory.subscribe()))
    }

    /// Gives other nodes the time to show what was stored.
    pub async fn wait_for_nodes(&self) {
        if self.node_count() > 1 {
            tokio::time::sleep(SPREAD).await;
        }
    }
}

/// Changes of other nodes; there are none where there is no cluster.
pub(super) struct ClusterChanges(Option<watch::Receiver<u64>>);

impl ClusterChanges {
    /// Waits for a change that nobody has waited for yet.
    pub async fn next(&mut self) {
        let Some(changes) = &mut self.0 else { return std::future::pending().await };
        if changes.changed().await.is_err() {
            // The cluster has ended with the service.
            std::future::pending().await
        }
    }
}
