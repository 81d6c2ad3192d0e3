//! Backends.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use arc_swap::ArcSwap;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

use ginnel_api::id::prefix;
use ginnel_api::remote::backends::failover::FailoverBackend;
use ginnel_api::remote::backends::http_response::HttpResponseBackend;
use ginnel_api::remote::backends::static_::StaticBackend;
use ginnel_api::remote::backends::tunnel_group::TunnelGroupBackend;
use ginnel_api::remote::backends::weighted::WeightedBackend;
use ginnel_api::remote::edges::modules::BackendModule;
use ginnel_gateway::Gateway;
use ginnel_gateway::modules::edge_module::EdgeModule;
use ginnel_gateway::routing::backend::{Backend, BackendKind, FixedResponse};
use ginnel_gateway::upstream::static_target::{StaticTarget, StaticTls};
use ginnel_http1::is_framing;
use ginnel_store::{self as store, View};

use crate::publish::flawed_backends::FlawedBackends;

/// All backends by identifier: routes hold on to them, and see what becomes of them.
pub(super) struct Backends {
    gateway: Gateway,
    known: HashMap<String, Arc<ArcSwap<Backend>>>,
    flawed: Arc<FlawedBackends>,
}

impl Backends {
    pub(super) fn new(gateway: Gateway, flawed: Arc<FlawedBackends>) -> Self {
        Self { gateway, known: HashMap::new(), flawed }
    }

    /// Where a backend is found, whether it exists yet or not.
    pub(super) fn get_or_create(&mut self, id: &str) -> Arc<ArcSwap<Backend>> {
        let make = || Arc::new(ArcSwap::from_pointee(Backend::nothing()));
        self.known.entry(id.to_owned()).or_insert_with(make).clone()
    }

    /// Where the traffic of a module goes.
    pub(super) fn for_module(&mut self, module: Option<BackendModule>) -> Arc<ArcSwap<Backend>> {
        let module = module.filter(EdgeModule::is_enabled);
        match module.and_then(|module| module.backend) {
            Some(backend) => self.get_or_create(&backend.id),
            None => Arc::new(ArcSwap::from_pointee(Backend::nothing())),
        }
    }

    /// Publishes all backends, and takes back those that are gone; each document is read once.
    pub(super) fn publish_all(&mut self, view: &View<'_>) -> store::StoreResult<()> {
        let mut gone: HashSet<String> = self.known.keys().cloned().collect();
        let mut publish = |this: &mut Self, id: &str, kind| {
            gone.remove(id);
            this.publish_backend(id, kind);
            Ok(())
        };
        view.for_each_document(|it: TunnelGroupBackend| {
            publish(self, &it.id.clone(), group_kind(it))
        })?;
        view.for_each_document(|it: HttpResponseBackend| {
            publish(self, &it.id.clone(), fixed_kind(it))
        })?;
        view.for_each_document(|it: StaticBackend| {
            let kind = self.at_address(&it);
            publish(self, &it.id, kind)
        })?;
        view.for_each_document(|it: FailoverBackend| {
            let (id, kind) = (it.id.clone(), self.failover_kind(it));
            publish(self, &id, kind)
        })?;
        view.for_each_document(|it: WeightedBackend| {
            let (id, kind) = (it.id.clone(), self.weighted_kind(it));
            publish(self, &id, kind)
        })?;
        gone.iter().for_each(|id| self.unpublish_backend(id));
        Ok(())
    }

    fn publish_backend(&mut self, id: &str, kind: BackendKind) {
        self.get_or_create(id).store(Arc::new(Backend { id: id.into(), kind }));
    }

    /// Publishes a backend of the kind that its identifier begins with.
    pub(super) fn refresh_backend(
        &mut self,
        view: &View<'_>,
        kind: &str,
        id: &str,
    ) -> store::StoreResult<()> {
        let kind = match kind {
            prefix::TUNNEL_GROUP => view.find_document(id)?.map(group_kind),
            prefix::FAILOVER => view.find_document(id)?.map(|backend| self.failover_kind(backend)),
            prefix::WEIGHTED => view.find_document(id)?.map(|backend| self.weighted_kind(backend)),
            prefix::HTTP_RESPONSE => view.find_document(id)?.map(fixed_kind),
            prefix::STATIC => view.find_document(id)?.map(|backend| self.at_address(&backend)),
            // Keys, users and the like are nothing to traffic.
            _ => return Ok(()),
        };
        match kind {
            Some(kind) => self.publish_backend(id, kind),
            None => self.unpublish_backend(id),
        }
        Ok(())
    }

    /// Leaves visitors of a deleted backend without a target.
    fn unpublish_backend(&mut self, id: &str) {
        self.flawed.forget(id);
        self.publish_backend(id, BackendKind::Nothing);
    }

    fn at_address(&self, backend: &StaticBackend) -> BackendKind {
        self.flawed.record_flaws(backend);
        let tls = backend.tls.as_ref().filter(|tls| tls.enabled == Some(true));
        let tls = tls.map(|tls| StaticTls {
            verify: !tls.is_unverified(),
            ca: tls.ca.as_deref().unwrap_or_default(),
            server_name: tls.server_name.as_deref().unwrap_or_default(),
        });
        // An earlier version may have accepted an address that this one refuses.
        let address = match backend.host_port() {
            Ok(address) => address,
            Err(problem) => {
                tracing::error!(
                    backend = backend.display_name(),
                    err = %problem,
                    "the address of a static backend is refused; visitors get a 503"
                );
                return BackendKind::Nothing;
            }
        };
        match StaticTarget::new(address, tls) {
            Ok(target) => BackendKind::Upstream(self.gateway.upstream_for_target(Arc::new(target))),
            // The fields were checked when they were stored.
            Err(err) => {
                tracing::error!(backend = backend.id, %err, "static backend is unusable");
                BackendKind::Nothing
            }
        }
    }

    fn failover_kind(&mut self, backend: FailoverBackend) -> BackendKind {
        let children = backend.backends.unwrap_or_default();
        BackendKind::Failover(children.iter().map(|child| self.get_or_create(child)).collect())
    }

    fn weighted_kind(&mut self, backend: WeightedBackend) -> BackendKind {
        let children = backend.backends.unwrap_or_default().into_iter();
        let weighed = |(child, weight): (String, i64)| {
            (u64::try_from(weight).unwrap_or(0), self.get_or_create(&child))
        };
        BackendKind::Weighted(children.map(weighed).collect())
    }
}

fn group_kind(backend: TunnelGroupBackend) -> BackendKind {
    let labels = backend.labels.unwrap_or_default();
    BackendKind::Group { labels, turn: AtomicUsize::default() }
}

fn fixed_kind(backend: HttpResponseBackend) -> BackendKind {
    let status = backend.status_code.and_then(|status| u16::try_from(status).ok());
    let status = status.and_then(|status| StatusCode::from_u16(status).ok()).unwrap_or_default();
    let body = backend.body.unwrap_or_default();
    BackendKind::Fixed(FixedResponse {
        status,
        headers: to_header_map(backend.headers),
        body: body.into(),
    })
}

/// Headers of a stored answer; they were checked when they were stored.
fn to_header_map(headers: Option<BTreeMap<String, String>>) -> HeaderMap {
    let headers = headers.unwrap_or_default().into_iter();
    headers
        .filter_map(|(name, value)| {
            let name = HeaderName::from_bytes(name.as_bytes()).ok()?;
            Some((name, HeaderValue::from_bytes(value.as_bytes()).ok()?))
        })
        .filter(|(name, _)| !is_framing(name))
        .collect()
}
