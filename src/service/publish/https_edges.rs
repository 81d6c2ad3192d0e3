//! HTTPS edges with their routes.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;

use crate::api::remote::edges::https::HttpsEdge;
use crate::api::remote::edges::modules::{BackendModule, CircuitBreaker, IpRestriction};
use crate::api::remote::edges::routes::HttpsEdgeRoute;
use crate::gateway::Gateway;
use crate::gateway::modules::breaker::Limits;
use crate::gateway::modules::{Breaker, HeaderEdits, IpRestrictions, Modules};
use crate::gateway::routing::backend::Backend;
use crate::gateway::routing::virtual_host::{PathMatch, Route, VirtualHost};
use crate::gateway::tls::policy::TlsPolicy;
use crate::policy::Scope;
use crate::service::check::host_port;
use crate::service::publish::State;
use crate::service::publish::tls_policies::TlsPolicyPlan;
use crate::service::references::routes_of;
use crate::service::store::{self, View};

/// An edge, and the names that it has.
#[derive(Default)]
pub(crate) struct HttpsVirtualHost {
    virtual_host: Arc<ArcSwap<VirtualHost>>,
    names: Vec<(String, u16)>,
    /// The TLS policy, and what it was made of; as long as that stays, so do the visitors.
    tls_policy: (TlsPolicyPlan, Option<Arc<TlsPolicy>>),
}

impl State {
    pub(crate) fn refresh_site(&mut self, view: &View<'_>, id: &str) -> Result<(), store::Error> {
        let Some(edge) = view.find::<HttpsEdge>(id)? else {
            if let Some(gone) = self.sites.remove(id) {
                gone.give_up(&self.gateway);
                gone.virtual_host.store(Arc::new(VirtualHost::default()));
            }
            return Ok(());
        };
        let mut routes = Vec::new();
        for route in routes_of(view, id)? {
            self.routes.insert(route.id.clone(), id.to_owned());
            let path = route.r#match.clone().unwrap_or_default();
            let wanted = match route.match_type.as_deref() {
                Some("exact_path") => PathMatch::Exact(path),
                _ => PathMatch::Prefix(path),
            };
            routes.push((wanted, Arc::new(self.route(route))));
        }
        let known = self.sites.entry(id.to_owned()).or_default();
        let virtual_host = match known.tls_policy(&self.gateway, view, &edge)? {
            Ok(tls_policy) => VirtualHost::new(routes).with_tls_policy(tls_policy),
            // Stored certificates were checked; were they refused all the same, nobody is let in.
            Err(_) => VirtualHost::default(),
        };
        known.virtual_host.store(Arc::new(virtual_host));
        known.take_names(&self.gateway, names(&edge));
        Ok(())
    }

    fn route(&mut self, route: HttpsEdgeRoute) -> Route {
        let restriction = enabled(route.ip_restriction, |it| it.enabled);
        let agents = enabled(route.user_agent_filter, |it| it.enabled);
        let request = enabled(route.request_headers, |it| it.enabled).unwrap_or_default();
        let response = enabled(route.response_headers, |it| it.enabled).unwrap_or_default();
        let webhook = enabled(route.webhook_verification, |it| it.enabled);
        let breaker = enabled(route.circuit_breaker, |it| it.enabled);
        let modules = Modules {
            restriction: restriction.map(|it| self.restriction(it)),
            agents: agents.and_then(|it| self.filter(it)),
            passwords: None,
            webhook: webhook.map(|it| self.webhook(it)),
            policy: self.rules(&route.id, route.policy, Scope::HttpsRoute),
            breaker: breaker.map(|it| self.breaker(&route.id, &it)),
            request_headers: HeaderEdits::new(
                request.add.iter().flatten(),
                request.remove.iter().flatten(),
            ),
            response_headers: HeaderEdits::new(
                response.add.iter().flatten(),
                response.remove.iter().flatten(),
            ),
            compression: enabled(route.compression, |it| it.enabled).is_some(),
            converter: enabled(route.websocket_tcp_converter, |it| it.enabled).is_some(),
        };
        let modules = Some(modules).filter(|modules| !modules.is_empty());
        Route {
            id: route.id.into(),
            edge_id: route.edge_id.unwrap_or_default().into(),
            modules,
            host_header: None,
            backend: self.target(route.backend),
        }
    }

    /// Where the traffic of a module goes.
    pub(crate) fn target(&mut self, module: Option<BackendModule>) -> Arc<ArcSwap<Backend>> {
        let module = enabled(module, |it| it.enabled);
        match module.and_then(|module| module.backend) {
            Some(backend) => self.backend(&backend.id),
            None => Arc::new(ArcSwap::from_pointee(Backend::nothing())),
        }
    }

    pub(crate) fn restriction(&mut self, module: IpRestriction) -> IpRestrictions {
        let policies = module.ip_policies.unwrap_or_default();
        IpRestrictions(policies.iter().map(|policy| self.gateway.ip_policy(&policy.id)).collect())
    }

    /// The breaker of a route; it keeps what it knows as long as its limits stay.
    fn breaker(&mut self, route: &str, module: &CircuitBreaker) -> Arc<Breaker> {
        let limits = limits(module);
        if let Some(known) = self.breakers.get(route).filter(|known| known.limits == limits) {
            return known.clone();
        }
        let made = Breaker::new(limits);
        self.breakers.insert(route.to_owned(), made.clone());
        made
    }
}

impl HttpsVirtualHost {
    /// The TLS policy of an edge; the inner error is about its certificates.
    fn tls_policy(
        &mut self,
        gateway: &Gateway,
        view: &View<'_>,
        edge: &HttpsEdge,
    ) -> Result<Result<Option<Arc<TlsPolicy>>, String>, store::Error> {
        let plan = TlsPolicyPlan::of(edge);
        if plan != self.tls_policy.0 {
            match plan.tls_policy(gateway, view)? {
                Ok(tls_policy) => self.tls_policy = (plan, tls_policy),
                Err(problem) => return Ok(Err(problem)),
            }
        }
        Ok(Ok(self.tls_policy.1.clone()))
    }

    /// Takes these names in place of those it had.
    fn take_names(&mut self, gateway: &Gateway, wanted: Vec<(String, u16)>) {
        for (name, port) in self.names.iter().filter(|name| !wanted.contains(name)) {
            gateway.remove_name(name, *port, &self.virtual_host);
        }
        self.names = wanted;
        self.take_names_again(gateway);
    }

    /// Takes the names that it should have; one that an agent's endpoint has stays there.
    pub(crate) fn take_names_again(&self, gateway: &Gateway) {
        for (name, port) in &self.names {
            gateway.add_name(name, *port, &self.virtual_host);
        }
    }

    fn give_up(&self, gateway: &Gateway) {
        for (name, port) in &self.names {
            gateway.remove_name(name, *port, &self.virtual_host);
        }
    }
}

/// A module that is there and switched on.
pub(crate) fn enabled<M>(module: Option<M>, switch: impl Fn(&M) -> Option<bool>) -> Option<M> {
    module.filter(|module| switch(module) != Some(false))
}

fn names(edge: &HttpsEdge) -> Vec<(String, u16)> {
    let hostports = edge.hostports.iter().flatten().map(|text| text.to_ascii_lowercase());
    hostports
        .filter_map(|text| {
            let (star, rest) = match text.strip_prefix("*.") {
                Some(rest) => ("*.", rest),
                None => ("", text.as_str()),
            };
            let (host, port) = host_port(rest).ok()?;
            Some((format!("{star}{host}"), port))
        })
        .collect()
}

fn limits(module: &CircuitBreaker) -> Limits {
    let number = |given: Option<i64>, usual: u64| {
        given.and_then(|given| u64::try_from(given).ok()).unwrap_or(usual)
    };
    Limits {
        tripped: Duration::from_secs(number(module.tripped_duration, 10)),
        window: Duration::from_secs(number(module.rolling_window, 10)),
        buckets: usize::try_from(number(module.num_buckets, 10)).unwrap_or(10),
        volume: number(module.volume_threshold, 20),
        share: module.error_threshold_percentage.unwrap_or(0.5),
    }
}
