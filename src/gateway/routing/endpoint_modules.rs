//! What is served for an agent: its options as the modules that routes have as well.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use http::HeaderValue;

use crate::gateway::GatewayState;
use crate::gateway::modules::breaker::Limits;
use crate::gateway::modules::traffic_policy::{self, Rules};
use crate::gateway::modules::{Breaker, HeaderEdits, IpRestrictions, IpRules, Modules, Passwords};
use crate::gateway::routing::backend::{Backend, BackendKind};
use crate::gateway::routing::endpoint::BindError;
use crate::gateway::routing::endpoint_spec::{AllowDeny, EndpointOptions, HeaderChanges, Webhook};
use crate::gateway::routing::target::Target;
use crate::gateway::routing::virtual_host::{Route, VirtualHost};
use crate::policy::user_agent::Filter;
use crate::policy::{Cidr, Policy, Scope};

/// What is served for an agent.
pub(crate) fn virtual_host(
    options: &EndpointOptions,
    backend: Arc<ArcSwap<Backend>>,
    scope: Scope,
    find: impl FnMut(&str) -> Arc<ArcSwap<IpRules>>,
) -> Result<VirtualHost, BindError> {
    let host_header = options.host_header.as_deref().map(HeaderValue::from_str).transpose();
    let host_header = host_header.map_err(|problem| invalid("host_header", &problem))?;
    let modules = Modules {
        restriction: options.ip_restriction.as_ref().map(restriction).transpose()?,
        agents: options.user_agent_filter.as_ref().map(agents).transpose()?,
        passwords: passwords(options),
        webhook: options.webhook.as_ref().map(webhook).transpose()?,
        policy: options.traffic_policy.as_deref().map(|it| policy(it, scope, find)).transpose()?,
        breaker: options.circuit_breaker.map(breaker),
        request_headers: changes(&options.request_headers),
        response_headers: changes(&options.response_headers),
        compression: options.compression,
        converter: options.websocket_tcp_converter,
    };
    let modules = Some(modules).filter(|modules| !modules.is_empty());
    let (id, edge_id) = ("".into(), "".into());
    Ok(VirtualHost::of(Route { id, edge_id, modules, host_header, backend }))
}

/// Where the requests of an agent's endpoint go; nowhere while the agent is away.
pub(crate) fn backend(gateway: &GatewayState, target: Option<Arc<dyn Target>>) -> Backend {
    let kind = match target {
        Some(target) => BackendKind::Upstream(gateway.upstream(target)),
        None => BackendKind::Offline,
    };
    Backend { id: "".into(), kind }
}

fn invalid(field: &'static str, problem: &dyn std::fmt::Display) -> BindError {
    BindError::Invalid { field, problem: problem.to_string() }
}

fn restriction(ranges: &AllowDeny) -> Result<IpRestrictions, BindError> {
    let parse = |text: &String| {
        text.parse().map_err(|problem| invalid("ip_restriction", &format!("{text:?}: {problem}")))
    };
    let allow = ranges.allow.iter().map(parse).collect::<Result<Vec<Cidr>, _>>()?;
    let deny = ranges.deny.iter().map(parse).collect::<Result<_, _>>()?;
    Ok(IpRestrictions(vec![Arc::new(ArcSwap::from_pointee(IpRules { allow, deny }))]))
}

fn agents(lists: &AllowDeny) -> Result<Filter, BindError> {
    Filter::compile(&lists.allow, &lists.deny).map_err(|problems| {
        let problems: Vec<_> = problems.iter().map(ToString::to_string).collect();
        invalid("user_agent_filter", &problems.join("; "))
    })
}

fn webhook(spec: &Webhook) -> Result<Rules, BindError> {
    let policy = Policy::compile(&traffic_policy::webhook(spec), Scope::HttpTunnel);
    let policy = policy
        .map_err(|problems| invalid("webhook", &traffic_policy::describe_problems(&problems)))?;
    Ok(Rules::new(Arc::new(policy), Arc::default(), |_| Arc::default()))
}

fn policy(
    text: &str,
    scope: Scope,
    find: impl FnMut(&str) -> Arc<ArcSwap<IpRules>>,
) -> Result<Rules, BindError> {
    let policy = traffic_policy::read(text, scope)
        .map_err(|describe_problems| invalid("traffic_policy", &describe_problems))?;
    Ok(Rules::new(Arc::new(policy), Arc::default(), find))
}

fn passwords(options: &EndpointOptions) -> Option<Passwords> {
    let known = options.basic_auth.iter();
    let known: Vec<_> = known.map(|one| format!("{}:{}", one.username, one.password.0)).collect();
    Some(Passwords(known)).filter(|known| !known.0.is_empty())
}

fn breaker(share: f64) -> Arc<Breaker> {
    let ten = Duration::from_secs(10);
    Breaker::new(Limits { tripped: ten, window: ten, buckets: 10, volume: 20, share })
}

fn changes(given: &HeaderChanges) -> HeaderEdits {
    HeaderEdits::new(given.add.iter().map(|(name, value)| (name, value)), given.remove.iter())
}
