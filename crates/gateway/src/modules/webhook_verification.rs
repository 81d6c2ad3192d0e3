//! Letting only signed webhooks through: a rule that is always the same one.

use std::sync::Arc;

use serde_json::{Value, json};

use ginnel_api::Secret;
use ginnel_api::remote::edges::modules::WebhookVerification;
use ginnel_policy::Scope;

use crate::modules::prelude::*;
use crate::modules::traffic_policy::Rules;
use crate::modules::traffic_policy::module::PolicyModule;

impl BuildModule for WebhookVerification {
    fn build(self, builder: &mut ModuleBuilder<'_>) -> ModuleResult<Option<Box<dyn Module>>> {
        let document =
            rule_document(&self.provider.unwrap_or_default(), &self.secret.unwrap_or_default());
        let policy = builder.compile_policy(&document, Scope::HttpTunnel)?;
        let rules = Rules::new(policy, Arc::default(), builder.ip_policy);
        Ok(Some(Box::new(PolicyModule { kind: ModuleKind::WebhookVerification, rules })))
    }
}

impl EdgeModule for WebhookVerification {
    type Change = Self;

    fn check(change: Self, _: &ModuleChecker) -> ModuleResult<CheckedModule<Self>> {
        let empty = |name: &str| InvalidModule::from_message(format!("{name}: must not be empty"));
        if change.provider.as_deref().is_none_or(|provider| provider.trim().is_empty()) {
            return Err(empty("provider"));
        }
        if change.secret.as_ref().is_none_or(|secret| secret.0.is_empty()) {
            return Err(empty("secret"));
        }
        Ok(Self { enabled: change.enabled.or(Some(true)), ..change }.into())
    }

    fn is_enabled(&self) -> bool {
        self.enabled != Some(false)
    }
}

/// The document of the rule that a webhook module is.
fn rule_document(provider: &str, secret: &Secret) -> Value {
    let secret = secret.0.replace("${", "$${");
    let config = json!({"provider": provider, "secret": secret});
    json!({"on_http_request": [{"actions": [{"type": "verify-webhook", "config": config}]}]})
}
