//! From what the management API has stored to what traffic finds.
//!
//! Everything is compiled when it changes, on the thread that writes, before the change is
//! answered: the next request meets it. A change touches only what it concerns: backends and IP
//! policies are looked up by identifier when a request comes, so that edges need not know.

mod backends;
mod guards;
mod ip_policies;
mod rules;
mod sites;
mod streams;

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::Inner;
use super::backend::Backend;
use super::modules::{Breaker, IpRules};
use super::slot::Slot;
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
use crate::policy::user_agent::Filter;
use crate::policy::{self, Policy};
use crate::service::store::{self, Document, Store, View};
use sites::HttpsSite;
use streams::Stream;

/// How many documents are read at a time.
const PAGE: usize = 500;

/// What was compiled last.
#[derive(Default)]
pub(super) struct Config(Mutex<State>);

#[derive(Default)]
struct State {
    backends: HashMap<String, Arc<Slot<Backend>>>,
    policies: HashMap<String, Arc<Slot<IpRules>>>,
    sites: HashMap<String, HttpsSite>,
    streams: HashMap<String, Stream>,
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

/// Compiles everything, and from now on what changes.
pub(super) fn follow(edges: &Arc<Inner>, store: &Arc<Store>) -> Result<(), store::Error> {
    let follower: Weak<Inner> = Arc::downgrade(edges);
    let source: Weak<Store> = Arc::downgrade(store);
    store.watch(move |changed| {
        let (Some(edges), Some(store)) = (follower.upgrade(), source.upgrade()) else { return };
        // A database that cannot be read has told whoever changed it; traffic goes on as it was.
        let _ = store.read(|view| edges.config.state().refresh(&edges, view, changed));
    });
    store.read(|view| edges.config.state().load(edges, view))
}

impl Config {
    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    /// Tries again to get the ports and names of edges that were not to be had before.
    pub(super) fn config_again(self: &Arc<Self>) {
        let mut state = self.config.state();
        for stream in state.streams.values_mut() {
            stream.listen(self);
        }
        for site in state.sites.values() {
            site.take_names_again(self);
        }
    }

    /// Where the rules of an IP policy are found, whether it exists or not.
    pub(super) fn ip_policy(&self, id: &str) -> Arc<Slot<IpRules>> {
        self.config.state().policy(id)
    }

    /// A port that a TCP edge cannot have, because somebody else listens there.
    pub(super) fn taken_port(&self, edge: &str, hostports: &[String]) -> Option<u16> {
        let state = self.config.state();
        let own = state.streams.get(edge);
        streams::ports(hostports)
            .into_iter()
            .find(|port| !own.is_some_and(|own| own.has(*port)) && self.listen_now(*port).is_err())
    }
}

impl State {
    fn load(&mut self, edges: &Arc<Inner>, view: &View<'_>) -> Result<(), store::Error> {
        let mut ids = Vec::new();
        all::<IpPolicy>(view, &mut ids)?;
        all::<TunnelGroupBackend>(view, &mut ids)?;
        all::<FailoverBackend>(view, &mut ids)?;
        all::<HttpResponseBackend>(view, &mut ids)?;
        all::<WeightedBackend>(view, &mut ids)?;
        all::<StaticBackend>(view, &mut ids)?;
        all::<HttpsEdge>(view, &mut ids)?;
        all::<TcpEdge>(view, &mut ids)?;
        self.refresh(edges, view, &ids)
    }

    /// Compiles what has changed, each thing once.
    fn refresh(
        &mut self,
        edges: &Arc<Inner>,
        view: &View<'_>,
        changed: &[String],
    ) -> Result<(), store::Error> {
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
                prefix::HTTPS_EDGE => self.refresh_site(edges, view, id)?,
                prefix::TCP_EDGE => self.refresh_stream(edges, view, id)?,
                prefix::IP_POLICY => self.refresh_policy(view, id)?,
                _ => self.refresh_backend(edges, view, id)?,
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
    fn backend(&mut self, id: &str) -> Arc<Slot<Backend>> {
        let make = || Arc::new(Slot::new(Backend::nothing()));
        self.backends.entry(id.to_owned()).or_insert_with(make).clone()
    }

    /// Where the rules of an IP policy are found, whether it exists or not.
    fn policy(&mut self, id: &str) -> Arc<Slot<IpRules>> {
        self.policies.entry(id.to_owned()).or_default().clone()
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
