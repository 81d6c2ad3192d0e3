//! What is served for an agent: its options as the modules that routes have as well.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use http::HeaderValue;

use ginnel_policy::actions::terminate_tls::TerminateTls;
use ginnel_policy::ip_rules::IpRules;
use ginnel_policy::problem::code;
use ginnel_policy::secrets::SecretName;
use ginnel_policy::user_agent::Filter;
use ginnel_policy::{Cidr, Policy, Problem, Scope};

use crate::metrics::EdgeMetrics;
use crate::modules::basic_auth::Passwords;
use crate::modules::circuit_breaker::{BackendBreaker, Breaker, BreakerLimits};
use crate::modules::compression::Compressor;
use crate::modules::header_changes::{RequestHeaderEdits, ResponseHeaderEdits};
use crate::modules::header_edits::HeaderEdits;
use crate::modules::ip_restriction::IpRestrictions;
use crate::modules::module::{Module, ModuleKind, Modules};
use crate::modules::policy_resources::PolicyResources;
use crate::modules::traffic_policy::module::PolicyModule;
use crate::modules::traffic_policy::{self, Rules};
use crate::modules::user_agent_filter::AgentFilter;
use crate::modules::webhook_verification;
use crate::modules::websocket_tcp::converter::WebsocketConverter;
use crate::routing::backend::Backend;
use crate::routing::endpoint::BindError;
use crate::routing::endpoint_login::CompiledLogin;
use crate::routing::endpoint_spec::{AllowDeny, EndpointOptions, HeaderChangesSpec, Webhook};
use crate::routing::route::Route;
use crate::routing::virtual_host::VirtualHost;

/// What is served for an agent of an account.
pub fn virtual_host(
    (options, owner): (&EndpointOptions, Option<Arc<str>>),
    backend: Arc<ArcSwap<Backend>>,
    scope: Scope,
    (resources, metrics): (&PolicyResources, Option<Arc<EdgeMetrics>>),
) -> Result<VirtualHost, BindError> {
    let mut compiled = CompiledOptions::of(options, scope)?;
    let host_header = compiled.host_header.take();
    let find = |id: &str| resources.ip_policies.of(id);
    let modules = Modules::new(modules((options, compiled, owner), resources, find)?);
    let (id, edge_id) = ("".into(), "".into());
    Ok(VirtualHost::of(Route { id, edge_id, modules, host_header, backend, metrics }))
}

/// The options of an agent, as far as every service reads them in the same way.
pub struct CompiledOptions {
    restriction: Option<IpRestrictions>,
    agents: Option<Filter>,
    login: Option<CompiledLogin>,
    webhook: Option<Policy>,
    policy: Option<Policy>,
    host_header: Option<HeaderValue>,
}

impl CompiledOptions {
    /// Compiles the options.
    ///
    /// # Errors
    /// If one of them is refused by every service, whatever its settings are.
    pub fn of(options: &EndpointOptions, scope: Scope) -> Result<Self, BindError> {
        let host_header = options.host_header.as_deref().map(HeaderValue::from_str).transpose();
        let host_header = host_header.map_err(|problem| invalid("host_header", &problem))?;
        Ok(Self {
            host_header,
            restriction: options.ip_restriction.as_ref().map(restriction).transpose()?,
            agents: options.user_agent_filter.as_ref().map(agents).transpose()?,
            login: CompiledLogin::of(options).map_err(BindError::Login)?,
            webhook: options.webhook.as_ref().map(webhook).transpose()?,
            policy: options.traffic_policy.as_deref().map(|it| policy(it, scope)).transpose()?,
        })
    }

    /// Returns true if visitors log in at an issuer that is reached only on the machine of the service.
    pub fn has_local_issuers(&self) -> bool {
        let login = self.login.as_ref().map(CompiledLogin::policy);
        login.into_iter().chain(&self.policy).any(Policy::has_local_issuers)
    }

    /// The action by which the policy ends TLS.
    pub fn tls_termination(&self) -> Option<&TerminateTls> {
        self.policy.as_ref()?.tls_termination()
    }
}

/// The options of an agent as modules.
fn modules(
    (options, compiled, owner): (&EndpointOptions, CompiledOptions, Option<Arc<str>>),
    resources: &PolicyResources,
    find: impl Fn(&str) -> Arc<ArcSwap<IpRules>>,
) -> Result<Vec<Box<dyn Module>>, BindError> {
    let mut modules: Vec<Box<dyn Module>> = Vec::new();
    if let Some(restriction) = compiled.restriction {
        modules.push(Box::new(restriction));
    }
    if let Some(filter) = compiled.agents {
        modules.push(Box::new(AgentFilter(Arc::new(filter))));
    }
    if let Some(passwords) = passwords(options) {
        modules.push(Box::new(passwords));
    }
    if let Some(login) = compiled.login {
        modules.push(login.module(resources, resources.reach).map_err(BindError::Login)?);
    }
    if let Some(policy) = compiled.webhook {
        let rules = Rules::new(Arc::new(policy), Arc::default(), |_| Arc::default());
        modules.push(Box::new(PolicyModule { kind: ModuleKind::WebhookVerification, rules }));
    }
    if let Some(policy) = compiled.policy {
        let (kind, rules) = (ModuleKind::Policy, rules(policy, resources, find)?.of_account(owner));
        modules.push(Box::new(PolicyModule { kind, rules }));
    }
    if let Some(share) = options.circuit_breaker {
        modules.push(Box::new(BackendBreaker(breaker(share))));
    }
    if let Some(edits) = changes(&options.request_headers) {
        modules.push(Box::new(RequestHeaderEdits(edits)));
    }
    if let Some(edits) = changes(&options.response_headers) {
        modules.push(Box::new(ResponseHeaderEdits(edits)));
    }
    if options.compression {
        modules.push(Box::new(Compressor));
    }
    if options.websocket_tcp_converter {
        modules.push(Box::new(WebsocketConverter));
    }
    Ok(modules)
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

fn webhook(spec: &Webhook) -> Result<Policy, BindError> {
    let document = webhook_verification::rule(&spec.provider, &spec.secret);
    Policy::compile(&document, Scope::HttpTunnel)
        .map_err(|problems| invalid("webhook", &traffic_policy::describe_problems(&problems)))
}

fn policy(text: &str, scope: Scope) -> Result<Policy, BindError> {
    let policy = Policy::parse(text, scope).map_err(BindError::Policy)?;
    match policy.secrets.first() {
        Some(secret) => Err(BindError::Policy(vec![unreadable(secret)])),
        None => Ok(policy),
    }
}

/// The rules of a policy that a service with these settings can apply.
fn rules(
    policy: Policy,
    resources: &PolicyResources,
    find: impl Fn(&str) -> Arc<ArcSwap<IpRules>>,
) -> Result<Rules, BindError> {
    let problem = policy.address_kinds.missing_from(resources.address_kinds);
    if let Some(problem) = problem.or_else(|| policy.login_problem(&resources.applications)) {
        return Err(BindError::Policy(vec![problem]));
    }
    let rules = Rules::new(Arc::new(policy), Arc::default(), find);
    Ok(rules.with_applications(resources.applications.clone()).within(resources.reach))
}

/// Whoever has an authtoken could read all secrets by a policy that answers with them.
fn unreadable(secret: &SecretName) -> Problem {
    let message = format!(
        "{secret}: the policy of an agent may read no secrets of the service: put it on a cloud \
         endpoint or an edge"
    );
    Problem { code: code::EXPRESSION, place: "document".to_owned(), message }
}

fn passwords(options: &EndpointOptions) -> Option<Passwords> {
    let known = options.basic_auth.iter();
    let known: Vec<_> = known.map(|one| format!("{}:{}", one.username, one.password.0)).collect();
    Some(Passwords(known)).filter(|known| !known.0.is_empty())
}

fn breaker(share: f64) -> Arc<Breaker> {
    let ten = Duration::from_secs(10);
    Breaker::new(BreakerLimits { tripped: ten, window: ten, buckets: 10, volume: 20, share })
}

fn changes(edits: &HeaderChangesSpec) -> Option<HeaderEdits> {
    HeaderEdits::new(edits.add.iter().map(|(name, value)| (name, value)), edits.remove.iter())
}
