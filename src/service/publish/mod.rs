//! From what the management API has stored to what traffic finds.
//!
//! Everything is compiled when it changes, on the thread that writes, before the change is
//! answered: the next request meets it. A change touches only what it concerns: backends and IP
//! policies are looked up by identifier when a request comes, so that edges need not know.

mod backends;
mod https_edges;
mod ip_policies;
mod tcp_edges;
mod tls_policies;
mod traffic_policies;

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::sync::watch;

use crate::api::id::prefix;
use crate::api::remote::backends::failover::FailoverBackend;
use crate::api::remote::backends::http_response::HttpResponseBackend;
use crate::api::remote::backends::static_::StaticBackend;
use crate::api::remote::backends::tunnel_group::TunnelGroupBackend;
use crate::api::remote::backends::weighted::WeightedBackend;
use crate::api::remote::edges::https::HttpsEdge;
use crate::api::remote::edges::routes::HttpsEdgeRoute;
use crate::api::remote::edges::tcp::TcpEdge;
use crate::api::remote::ip_policies::IpPolicy;
use crate::api::remote::ip_policy_rules::IpPolicyRule;
use crate::gateway::Gateway;
use crate::gateway::modules::Breaker;
use crate::gateway::routing::backend::Backend;
use crate::policy::user_agent::Filter;
use crate::policy::{self, Policy};
use crate::service::store::{self, Document, Store, View};
use https_edges::HttpsVirtualHost;
use tcp_edges::TcpListeners;

/// How many documents are read at a time.
const PAGE: usize = 500;
/// How often ports and names are tried again that were not to be had.
const RETRY_INTERVAL: Duration = Duration::from_secs(5);

/// Compiles what the store says, and hands it to the gateway.
pub(super) struct Publisher(Mutex<State>);

/// What was compiled last.
struct State {
    gateway: Gateway,
    backends: HashMap<String, Arc<ArcSwap<Backend>>>,
    sites: HashMap<String, HttpsVirtualHost>,
    streams: HashMap<String, TcpListeners>,
    /// Which edge a route belongs to.
    routes: HashMap<String, String>,
    /// Which policy a rule belongs to.
    rules: HashMap<String, String>,
    /// What is remembered of routes' backends, by route: it outlives changes of the rest.
    breakers: HashMap<String, Arc<Breaker>>,
    /// What requests share under the policies of routes and edges, by their identifiers.
    shared: HashMap<String, Arc<policy::State>>,
    /// Policies that are in use, by what they were compiled from.
    compiled: HashMap<String, Weak<Policy>>,
    /// User agent filters, by what they were compiled from.
    filters: HashMap<(Vec<String>, Vec<String>), Filter>,
}

impl Publisher {
    /// Compiles everything, and from now on what changes, for as long as the publisher lives.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub(super) fn start(gateway: Gateway, store: &Arc<Store>) -> Result<Arc<Self>, store::Error> {
        let closing = gateway.closing();
        let publisher = Arc::new(Self(Mutex::new(State::of(gateway))));
        let follower: Weak<Self> = Arc::downgrade(&publisher);
        let source: Weak<Store> = Arc::downgrade(store);
        tokio::spawn(retry(follower.clone(), closing));
        store.watch(move |changed| {
            let (Some(publisher), Some(store)) = (follower.upgrade(), source.upgrade()) else {
                return;
            };
            // A database that cannot be read has told whoever changed it; traffic goes on as it was.
            let _ = store.read(|view| publisher.state().refresh(view, changed));
        });
        store.read(|view| publisher.state().load(view))?;
        Ok(publisher)
    }

    /// The first of a TCP edge's ports that it cannot have, because somebody else listens there.
    pub(super) fn taken_port(&self, edge: &str, hostports: &[String]) -> Option<u16> {
        let state = self.state();
        let own = state.streams.get(edge);
        tcp_edges::ports(hostports)
            .into_iter()
            .find(|port| !own.is_some_and(|own| own.has(*port)) && !state.gateway.can_listen(*port))
    }

    /// Tries again to get the ports and names of edges that were not to be had before.
    fn take_missing(&self) {
        let mut state = self.state();
        let State { gateway, streams, sites, .. } = &mut *state;
        for stream in streams.values_mut() {
            stream.listen(gateway);
        }
        for virtual_host in sites.values() {
            virtual_host.take_names_again(gateway);
        }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Tries again, until the gateway closes, to get what edges could not have.
async fn retry(publisher: Weak<Publisher>, mut closing: watch::Receiver<bool>) {
    loop {
        let closed = tokio::time::timeout(RETRY_INTERVAL, closing.wait_for(|it| *it)).await;
        let Some(publisher) = publisher.upgrade().filter(|_| closed.is_err()) else { return };
        publisher.take_missing();
    }
}

impl State {
    fn of(gateway: Gateway) -> Self {
        Self {
            gateway,
            backends: HashMap::new(),
            sites: HashMap::new(),
            streams: HashMap::new(),
            routes: HashMap::new(),
            rules: HashMap::new(),
            breakers: HashMap::new(),
            shared: HashMap::new(),
            compiled: HashMap::new(),
            filters: HashMap::new(),
        }
    }

    fn load(&mut self, view: &View<'_>) -> Result<(), store::Error> {
        let mut ids = Vec::new();
        all::<IpPolicy>(view, &mut ids)?;
        all::<TunnelGroupBackend>(view, &mut ids)?;
        all::<FailoverBackend>(view, &mut ids)?;
        all::<HttpResponseBackend>(view, &mut ids)?;
        all::<WeightedBackend>(view, &mut ids)?;
        all::<StaticBackend>(view, &mut ids)?;
        all::<HttpsEdge>(view, &mut ids)?;
        all::<TcpEdge>(view, &mut ids)?;
        self.refresh(view, &ids)
    }

    /// Compiles what has changed, each thing once.
    fn refresh(&mut self, view: &View<'_>, changed: &[String]) -> Result<(), store::Error> {
        let mut owners = Vec::new();
        let mut known = HashSet::new();
        for id in changed {
            let owner = match kind(id) {
                prefix::HTTPS_ROUTE => self.edge_of(view, id)?,
                prefix::IP_POLICY_RULE => self.policy_of(view, id)?,
                _ => Some(id.clone()),
            };
            owners.extend(owner.filter(|owner| known.insert(owner.clone())));
        }
        for id in &owners {
            match kind(id) {
                prefix::HTTPS_EDGE => self.refresh_site(view, id)?,
                prefix::TCP_EDGE => self.refresh_stream(view, id)?,
                prefix::IP_POLICY => self.refresh_policy(view, id)?,
                _ => self.refresh_backend(view, id)?,
            }
        }
        Ok(())
    }

    fn edge_of(&mut self, view: &View<'_>, id: &str) -> Result<Option<String>, store::Error> {
        let Some(route) = view.find::<HttpsEdgeRoute>(id)? else {
            self.breakers.remove(id);
            self.shared.remove(id);
            return Ok(self.routes.remove(id));
        };
        if let Some(edge) = &route.edge_id {
            self.routes.insert(route.id, edge.clone());
        }
        Ok(route.edge_id)
    }

    fn policy_of(&mut self, view: &View<'_>, id: &str) -> Result<Option<String>, store::Error> {
        let Some(rule) = view.find::<IpPolicyRule>(id)? else { return Ok(self.rules.remove(id)) };
        let policy = rule.ip_policy.map(|policy| policy.id);
        if let Some(policy) = &policy {
            self.rules.insert(rule.id, policy.clone());
        }
        Ok(policy)
    }

    /// Where a backend is found, whether it exists yet or not.
    fn backend(&mut self, id: &str) -> Arc<ArcSwap<Backend>> {
        let make = || Arc::new(ArcSwap::from_pointee(Backend::nothing()));
        self.backends.entry(id.to_owned()).or_insert_with(make).clone()
    }
}

/// The kind of resource that an identifier names.
fn kind(id: &str) -> &str {
    id.rsplit_once('_').map_or(id, |(prefix, _)| prefix)
}

/// Adds the identifiers of all documents of a kind, oldest first.
fn all<D: Document>(view: &View<'_>, ids: &mut Vec<String>) -> Result<(), store::Error> {
    let first = ids.len();
    loop {
        let before = ids.get(first..).and_then(<[String]>::last).cloned();
        let page = view.page::<D>(before.as_deref(), PAGE)?;
        ids.extend(page.iter().map(|document| document.id().to_owned()));
        if page.len() < PAGE {
            ids[first..].reverse();
            return Ok(());
        }
    }
}
