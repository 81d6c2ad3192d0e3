//! Traffic policies and webhook modules.

use std::sync::{Arc, Weak};

use serde_json::{Value, json};

use crate::api::remote::edges::modules::{TrafficPolicy, UserAgentFilter, WebhookVerification};
use crate::gateway::modules::traffic_policy::{self, Rules};
use crate::gateway::routing::endpoint_spec::Webhook;
use crate::policy::user_agent::Filter;
use crate::policy::{Policy, Scope};
use crate::service::publish::State;

/// How many texts of policies are remembered before those that are not used any more are forgotten.
const REMEMBERED: usize = 1024;

impl State {
    /// The rules of a policy that is switched on; `owner` is the route or edge that has it.
    pub(crate) fn rules(
        &mut self,
        owner: &str,
        module: Option<TrafficPolicy>,
        scope: Scope,
    ) -> Option<Rules> {
        let module = module.filter(|module| module.enabled != Some(false))?;
        let document = serde_json::to_value(&module).unwrap_or_default();
        let policy = self.compiled(&document, scope);
        let shared = self.shared.entry(owner.to_owned()).or_default().clone();
        Some(Rules::new(policy, shared, |id| self.gateway.ip_policy(id)))
    }

    /// The rule of a webhook module.
    pub(crate) fn webhook(&mut self, module: WebhookVerification) -> Rules {
        let wanted = Webhook {
            provider: module.provider.unwrap_or_default(),
            secret: module.secret.unwrap_or_default(),
        };
        let policy = self.compiled(&traffic_policy::webhook(&wanted), Scope::HttpTunnel);
        Rules::new(policy, Arc::default(), |id| self.gateway.ip_policy(id))
    }

    /// A compiled filter; what did not change is not compiled again.
    pub(crate) fn filter(&mut self, module: UserAgentFilter) -> Option<Filter> {
        let (allow, deny) = (module.allow.unwrap_or_default(), module.deny.unwrap_or_default());
        let key = (allow, deny);
        if let Some(known) = self.filters.get(&key) {
            return Some(known.clone());
        }
        // A stored filter was checked; were it broken all the same, nobody would pass.
        let nobody = || Filter::compile(&[], &[".*".to_owned()]).ok();
        let made = Filter::compile(&key.0, &key.1).ok().or_else(nobody)?;
        if self.filters.len() >= REMEMBERED {
            self.filters.clear();
        }
        self.filters.insert(key, made.clone());
        Some(made)
    }

    /// A compiled policy; what did not change is not compiled again.
    fn compiled(&mut self, document: &Value, scope: Scope) -> Arc<Policy> {
        let key = format!("{scope:?} {document}");
        if let Some(known) = self.compiled.get(&key).and_then(Weak::upgrade) {
            return known;
        }
        // A stored policy was checked; were it refused all the same, nobody would pass, and neither
        // does anybody whose provider cannot be verified.
        let made = Policy::compile(document, scope).map(Arc::new).unwrap_or_else(|_| nobody());
        if self.compiled.len() >= REMEMBERED {
            self.compiled.retain(|_, policy| policy.strong_count() > 0);
        }
        self.compiled.insert(key, Arc::downgrade(&made));
        made
    }
}

/// A policy that lets nobody pass.
fn nobody() -> Arc<Policy> {
    let deny = json!([{"actions": [{"type": "deny"}]}]);
    let document = json!({"on_tcp_connect": deny, "on_http_request": deny});
    let empty = || Policy {
        enabled: true,
        reads_paths: false,
        connect: Vec::new(),
        request: Vec::new(),
        response: Vec::new(),
        close: Vec::new(),
    };
    // The document is always the same one, and a test runs it.
    Arc::new(Policy::compile(&document, Scope::HttpTunnel).unwrap_or_else(|_| empty()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_passes_in_any_phase() {
        let policy = nobody();

        assert!(policy.connect.iter().any(|rule| rule.actions.iter().any(|it| it.always_ends())));
        assert!(policy.request.iter().any(|rule| rule.actions.iter().any(|it| it.always_ends())));
    }
}
