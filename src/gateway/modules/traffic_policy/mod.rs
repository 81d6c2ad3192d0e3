//! Traffic policies at work: the rules are pure, and here is the world that they ask.

mod buffered_body;
mod connection;
mod execution;
mod fetch;

use std::collections::HashMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use chrono::{DateTime, Utc};
use serde_json::{Value, json};

pub(crate) use connection::ConnectionExecution;
pub(crate) use execution::{ExecutionOutcome, PolicyExecution};
pub(crate) use fetch::Fetcher;

use crate::gateway::modules::IpRules;
use crate::gateway::routing::endpoint_spec::Webhook;
use crate::gateway::routing::target::Visitor;
use crate::policy::{Connection, Endpoint, Phase, Policy, Problem, Scope, State, Tls, World};

/// The action that makes it necessary to know the request when the answer comes.
const COMPRESS_ACTION: &str = "compress-response";

/// A policy, and what its requests share.
pub(crate) struct Rules {
    policy: Arc<Policy>,
    state: Arc<State>,
    /// The IP policies that the rules name.
    ip_policies: HashMap<String, Arc<ArcSwap<IpRules>>>,
    /// True when the response phase has something to do.
    responds: bool,
}

impl Rules {
    /// Rules over IP policies that are found by `ip_policy`.
    pub(crate) fn new(
        policy: Arc<Policy>,
        state: Arc<State>,
        mut ip_policy: impl FnMut(&str) -> Arc<ArcSwap<IpRules>>,
    ) -> Self {
        let ip_policies = policy.ip_policy_ids().map(|id| (id.to_owned(), ip_policy(id))).collect();
        let steps = policy.request.iter().flat_map(|rule| &rule.actions);
        let responds = policy.has(Phase::Response)
            || policy.enabled && steps.into_iter().any(|step| step.kind.name == COMPRESS_ACTION);
        Self { policy, state, ip_policies, responds }
    }

    /// Whether anything is to be done in a phase.
    pub(crate) fn has(&self, phase: Phase) -> bool {
        match phase {
            Phase::Response => self.responds,
            phase => self.policy.has(phase),
        }
    }
}

impl Rules {
    /// Whether they look at the paths of requests.
    pub(crate) fn read_paths(&self) -> bool {
        self.policy.enabled && self.policy.reads_paths
    }
}

impl World for Rules {
    fn ip_policy(&self, id: &str) -> Arc<IpRules> {
        self.ip_policies.get(id).map(|rules| rules.load_full()).unwrap_or_default()
    }

    fn state(&self) -> &State {
        &self.state
    }
}

/// The document of the rule that a webhook module is.
pub(crate) fn webhook(webhook: &Webhook) -> Value {
    let secret = webhook.secret.0.replace("${", "$${");
    let config = json!({"provider": webhook.provider, "secret": secret});
    json!({"on_http_request": [{"actions": [{"type": "verify-webhook", "config": config}]}]})
}

/// A policy as an agent gives it: JSON or YAML.
pub(crate) fn read(text: &str, scope: Scope) -> Result<Policy, String> {
    Policy::parse(text, scope).map_err(|problems| describe_problems(&problems))
}

/// Problems in one line.
pub(crate) fn describe_problems(problems: &[Problem]) -> String {
    problems.iter().map(|one| one.to_string().replace('\n', " ")).collect::<Vec<_>>().join("; ")
}

/// A connection as rules see it.
pub(crate) fn connection(visitor: &Visitor, since: DateTime<Utc>) -> Arc<Connection> {
    let tls = visitor.tls.as_deref().map(|tls| Tls {
        version: tls.version.to_owned(),
        cipher_suite: tls.cipher_suite.to_owned(),
        sni: tls.sni.clone(),
        alpn: tls.alpn.clone(),
        resumed: tls.resumed,
    });
    Arc::new(Connection {
        client: visitor.peer,
        server: visitor.local,
        region: String::new(),
        started: since,
        tls,
    })
}

/// An endpoint as rules see it.
pub(crate) fn endpoint(id: &str, protocol: &str, host: &str, port: u16) -> Arc<Endpoint> {
    let usual = matches!((protocol, port), ("http", 80) | ("https", 443));
    let shown = if usual { String::new() } else { format!(":{port}") };
    Arc::new(Endpoint {
        id: id.to_owned(),
        url: format!("{protocol}://{host}{shown}"),
        host: host.to_owned(),
        port,
        protocol: protocol.to_owned(),
    })
}
