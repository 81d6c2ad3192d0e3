//! From what the management API has stored to what traffic finds.
//!
//! A thread of its own compiles what a commit has changed, and nothing else, one commit after the
//! other: the writer goes on meanwhile. A call that changes something is answered when that is done,
//! so that the next request meets the change. Backends and IP policies are looked up by identifier
//! when a request comes, so that edges need not know of their changes.

mod backends;
mod certificates;
mod cloud_endpoints;
mod flawed_backends;
mod https_edges;
mod ip_policies;
mod ip_restrictions;
mod modules;
mod names;
mod route_tables;
mod secrets;
mod tcp_edges;
mod tls_edges;
mod tls_policies;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio::sync::watch;

use crate::vaults::VaultKey;
use flawed_backends::FlawedBackends;
use ginnel_base::logging::ignore;
use ginnel_gateway::Gateway;
use ginnel_gateway::modules::policy_cache::PolicyCache;
use ginnel_store::{self as store, Changes, StorageFault, Store};
pub(super) use ip_policies::add_rule;
use route_tables::{RouteTables, is_published};
use tcp_edges::TcpEdges;

/// How often ports and names are tried again that were not to be had.
const RETRY_INTERVAL: Duration = Duration::from_secs(5);
/// How long after a failure it is tried again to read what was changed.
const READ_RETRY_INTERVAL: Duration = Duration::from_millis(200);
/// How long whoever has made a change waits until it is live.
const CATCH_UP_TIMEOUT: Duration = Duration::from_secs(10);

/// Compiles what the store says, and hands it to the gateway.
pub(super) struct Publisher {
    /// The policies that are in use; what a handler has compiled is published as it is.
    pub policies: Arc<PolicyCache>,
    pub flawed_backends: Arc<FlawedBackends>,
    tcp_edges: Arc<TcpEdges>,
    /// The thread ends when this is dropped.
    changes: mpsc::Sender<Change>,
    /// How many changes were sent to the thread.
    sent: AtomicU64,
    /// How many of them are live.
    published: watch::Receiver<u64>,
}

/// What a commit has changed.
struct Change {
    /// How many changes have come with this one.
    number: u64,
    changes: Changes,
}

impl Publisher {
    /// Publishes everything, and from now on what changes, for as long as the publisher lives.
    ///
    /// # Errors
    /// When the database cannot be read, or no thread can be started.
    pub(super) async fn start(
        gateway: Gateway,
        store: &Arc<Store>,
        vault_key: Arc<VaultKey>,
    ) -> store::StoreResult<Arc<Self>> {
        let store = store.clone();
        // Edges open listeners, which needs a runtime.
        let runtime = Handle::current();
        let started = ginnel_base::tasks::spawn_blocking(move || {
            let _entered = runtime.enter();
            Self::load_blocking(gateway, &store, vault_key)
        });
        started.await.map_err(|_| store::StoreError::Panicked)?
    }

    /// As [`Publisher::start`]; blocks on the database.
    fn load_blocking(
        gateway: Gateway,
        store: &Arc<Store>,
        vault_key: Arc<VaultKey>,
    ) -> store::StoreResult<Arc<Self>> {
        let policies = Arc::<PolicyCache>::default();
        let flawed_backends = Arc::<FlawedBackends>::default();
        let tcp_edges = Arc::new(TcpEdges::new(gateway.clone()));
        let (known, flawed) = (policies.clone(), flawed_backends.clone());
        let mut tables = RouteTables::new(&gateway, known, flawed, tcp_edges.clone(), vault_key);
        let (changes, queue) = mpsc::channel();
        let (progress, published) = watch::channel(0);
        let sent = AtomicU64::new(0);
        let publisher =
            Arc::new(Self { policies, flawed_backends, tcp_edges, changes, sent, published });
        // Before all is read, so that no change is missed.
        let follower = Arc::downgrade(&publisher);
        store.watch_changes(move |changes| {
            if let Some(publisher) = follower.upgrade() {
                publisher.enqueue_changes(changes);
            }
        });
        store.read_blocking(|view| tables.publish_all(view))?;
        for backend in publisher.flawed_backends.unverified_names() {
            tracing::warn!(
                backend,
                "certificate of a static backend is not verified: set tls.verify to true, and tls.ca if no authority \
                 of the system has signed it"
            );
        }
        let thread = PublisherThread {
            tables,
            queue,
            progress,
            gateway,
            store: Arc::downgrade(store),
            unread: None,
            is_away: false,
            number: 0,
        };
        std::thread::Builder::new()
            .name("ginnel-publisher".to_owned())
            .spawn(move || thread.run())
            .map_err(|source| store::StoreError::File {
                path: "publisher thread".into(),
                source,
            })?;
        Ok(publisher)
    }

    /// Waits until everything is live that was committed before.
    ///
    /// # Errors
    /// When that takes too long, because the database cannot be read.
    pub(super) async fn catch_up(&self) -> store::StoreResult<()> {
        let sent = self.sent.load(Ordering::Acquire);
        let mut published = self.published.clone();
        let live = published.wait_for(|published| *published >= sent);
        let Ok(live) = tokio::time::timeout(CATCH_UP_TIMEOUT, live).await else {
            let problem = "the change is stored, and traffic does not follow it yet".to_owned();
            return Err(store::StoreError::Server {
                fault: Some(StorageFault::Unreachable),
                problem,
            });
        };
        ignore(live, "without the thread nothing becomes live: the service is at its end");
        Ok(())
    }

    /// The first of a TCP edge's ports that it cannot have, because somebody else listens there.
    pub(super) fn taken_port(&self, edge: &str, hostports: &[String]) -> Option<u16> {
        self.tcp_edges.taken_port(edge, hostports)
    }

    /// The ports that TCP edges should have and that somebody else has, each with its edge.
    pub(super) fn missing_ports(&self) -> Vec<(String, u16)> {
        self.tcp_edges.missing_ports()
    }

    /// Has a change published; called by the one thread that writes.
    fn enqueue_changes(&self, changes: &Changes) {
        let Some(changes) = changes.filter_ids(is_published) else { return };
        let number = self.sent.fetch_add(1, Ordering::AcqRel) + 1;
        let sent = self.changes.send(Change { number, changes });
        ignore(sent, "without the thread nobody waits for it either");
    }
}

/// What the thread works with.
struct PublisherThread {
    tables: RouteTables,
    queue: mpsc::Receiver<Change>,
    progress: watch::Sender<u64>,
    gateway: Gateway,
    store: Weak<Store>,
    /// What was changed while the database could not be read.
    unread: Option<Changes>,
    /// Whether the database could not be read the last time.
    is_away: bool,
    /// How many changes have come.
    number: u64,
}

/// How it ended to make changes live.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RefreshResult {
    Live,
    /// A document of them is none that can be used.
    Unusable,
    /// The database cannot be read.
    Unread,
}

impl PublisherThread {
    fn run(mut self) {
        let mut retried = Instant::now();
        loop {
            let pause = if self.is_away { READ_RETRY_INTERVAL } else { RETRY_INTERVAL };
            match self.queue.recv_timeout(pause) {
                Ok(change) => self.merge_changes(change),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            self.publish_unread();
            if retried.elapsed() >= RETRY_INTERVAL && !self.gateway.is_closing() {
                self.tables.retry_missing();
                retried = Instant::now();
            }
        }
    }

    /// Takes a change, and those that came with it.
    fn merge_changes(&mut self, first: Change) {
        for change in std::iter::once(first).chain(self.queue.try_iter()) {
            self.number = change.number;
            match &mut self.unread {
                Some(unread) => unread.extend(change.changes),
                None => self.unread = Some(change.changes),
            }
        }
    }

    /// Makes live what was changed, as far as the database can be read.
    fn publish_unread(&mut self) {
        self.is_away = false;
        if let Some(changes) = self.unread.take() {
            self.unread = self.refresh_changes(changes);
        }
        if !self.is_away {
            self.progress.send_replace(self.number);
        }
    }

    /// Gives what is to be read again.
    fn refresh_changes(&mut self, changes: Changes) -> Option<Changes> {
        match (self.refresh_once(&changes), changes) {
            (RefreshResult::Live, _) => None,
            (RefreshResult::Unread, changes) => {
                self.is_away = true;
                Some(changes)
            }
            (RefreshResult::Unusable, Changes::All) => Some(Changes::All),
            // A document that cannot be used must not be in the way of others.
            (RefreshResult::Unusable, Changes::Of(ids)) if ids.len() > 1 => {
                let mut each = ids.into_iter().map(|id| Changes::Of(vec![id]));
                let mut unread =
                    each.find(|one| self.refresh_once(one) == RefreshResult::Unread)?;
                // What follows is not tried before that can be read.
                each.for_each(|later| unread.extend(later));
                self.is_away = true;
                Some(unread)
            }
            (RefreshResult::Unusable, Changes::Of(_)) => None,
        }
    }

    fn refresh_once(&mut self, changes: &Changes) -> RefreshResult {
        let Some(store) = self.store.upgrade() else { return RefreshResult::Live };
        let refresh = || store.read_blocking(|view| self.tables.publish_changes(view, changes));
        match catch_unwind(AssertUnwindSafe(refresh)) {
            Ok(Ok(())) => RefreshResult::Live,
            Ok(Err(error)) => {
                tracing::warn!("routes stay as they were: {error}");
                match error.fault() {
                    Some(StorageFault::Damaged | StorageFault::Closed) => RefreshResult::Unusable,
                    _ => RefreshResult::Unread,
                }
            }
            Err(_) => {
                tracing::error!("a change could not be made live: {changes:?}");
                RefreshResult::Unusable
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::VaultSettings;
    use crate::references::EDGE_OF_ROUTE;
    use ginnel_api::id::prefix;
    use ginnel_api::remote::edges::https::HttpsEdge;
    use ginnel_api::remote::edges::modules::{EndpointRule, TrafficPolicy};
    use ginnel_api::remote::edges::routes::HttpsEdgeRoute;
    use ginnel_gateway::GatewaySettings;
    use ginnel_gateway::tls::authority::LocalAuthority;
    use ginnel_policy::Scope;
    use ginnel_store::{Document, Transaction};

    const ROUTE: &str = "edghtsrt_1";

    /// A route that nobody can read.
    #[derive(serde::Serialize, serde::Deserialize)]
    struct BrokenRoute {
        policy: String,
    }

    impl Document for BrokenRoute {
        const PREFIX: &'static str = prefix::HTTPS_ROUTE;

        fn id(&self) -> &str {
            ROUTE
        }
    }

    /// An edge that nobody can read.
    #[derive(serde::Serialize, serde::Deserialize)]
    struct BrokenEdge {
        hostports: String,
    }

    impl Document for BrokenEdge {
        const PREFIX: &'static str = prefix::HTTPS_EDGE;

        fn id(&self) -> &str {
            "edghts_0"
        }
    }

    async fn publisher() -> (Arc<Store>, Arc<Publisher>) {
        let settings =
            GatewaySettings { http_port: None, https_port: None, ..GatewaySettings::default() };
        let authority = LocalAuthority::open(None).unwrap();
        let gateway = Gateway::start(settings, authority).await.unwrap();
        let store = Arc::new(Store::open(None).unwrap());
        let key = VaultKey::from_options(&VaultSettings::default(), None, false).unwrap();
        let publisher = Publisher::start(gateway, &store, key).await.unwrap();
        (store, publisher)
    }

    fn policy(name: &str) -> TrafficPolicy {
        let rule = json!({"name": name, "actions": [{"type": "deny"}]});
        let rule: EndpointRule = serde_json::from_value(rule).unwrap();
        TrafficPolicy { enabled: Some(true), inbound: Some(vec![rule]), outbound: None }
    }

    fn put(change: &Transaction<'_>, policy: TrafficPolicy) -> store::StoreResult<()> {
        let edge = HttpsEdge { id: "edghts_1".into(), ..HttpsEdge::default() };
        let route = HttpsEdgeRoute {
            id: ROUTE.into(),
            edge_id: Some(edge.id.clone()),
            policy: Some(policy),
            ..HttpsEdgeRoute::default()
        };
        change.replace_references(ROUTE, EDGE_OF_ROUTE, [edge.id.as_str()])?;
        change.put_document(&edge)?;
        change.put_document(&route)
    }

    #[tokio::test]
    async fn what_a_call_has_compiled_is_published_as_it_is() {
        let (store, publisher) = publisher().await;
        let compiled = publisher.policies.compiled_policy(&policy("a"), Scope::HttpsRoute).unwrap();
        assert_eq!(Arc::strong_count(&compiled), 1);

        store.write(|change| put(change, policy("a"))).await.unwrap();
        publisher.catch_up().await.unwrap();

        assert_eq!(Arc::strong_count(&compiled), 2, "the route has the same");
    }

    #[tokio::test]
    async fn the_last_of_many_changes_is_live_at_the_end() {
        let (store, publisher) = publisher().await;
        let mut writes = Vec::new();
        for number in 0..300 {
            let (store, publisher) = (store.clone(), publisher.clone());
            let policies = publisher.policies.clone();
            let write = async move {
                let name = number.to_string();
                let compiled = policies.compiled_policy(&policy(&name), Scope::HttpsRoute).unwrap();
                store.write(move |change| put(change, policy(&name))).await.unwrap();
                publisher.catch_up().await.unwrap();
                compiled
            };
            // On one thread, tasks begin in the order in which they come.
            writes.push(tokio::spawn(write));
        }
        let mut compiled = Vec::new();
        for write in writes {
            compiled.push(write.await.unwrap());
        }

        let live: Vec<_> = compiled.iter().map(|policy| Arc::strong_count(policy) > 1).collect();

        assert_eq!(live.iter().position(|live| *live), Some(299), "{live:?}");
    }

    #[tokio::test]
    async fn what_traffic_does_not_depend_on_is_not_waited_for() {
        let (store, publisher) = publisher().await;

        store.write(|change| change.store_setting("name", "value")).await.unwrap();
        publisher.enqueue_changes(&Changes::Of(vec!["ak_1".to_owned(), "cr_1".to_owned()]));

        assert_eq!(publisher.sent.load(Ordering::Acquire), 0);
    }

    #[tokio::test]
    async fn a_change_that_cannot_be_published_holds_up_nobody() {
        let (store, publisher) = publisher().await;

        store
            .write(|change| change.put_document(&BrokenRoute { policy: "none".into() }))
            .await
            .unwrap();
        publisher.catch_up().await.unwrap();

        store.write(|change| put(change, policy("b"))).await.unwrap();
        publisher.catch_up().await.unwrap();
        let compiled = publisher.policies.compiled_policy(&policy("b"), Scope::HttpsRoute).unwrap();
        assert_eq!(Arc::strong_count(&compiled), 2, "the thread goes on");
    }

    #[tokio::test]
    async fn a_document_that_cannot_be_used_is_not_in_the_way_of_others() {
        let (store, publisher) = publisher().await;
        let compiled = publisher.policies.compiled_policy(&policy("a"), Scope::HttpsRoute).unwrap();

        let both = store.write(|change| {
            change.put_document(&BrokenEdge { hostports: "none".into() })?;
            put(change, policy("a"))
        });
        both.await.unwrap();
        publisher.catch_up().await.unwrap();

        assert_eq!(Arc::strong_count(&compiled), 2);
    }
}
