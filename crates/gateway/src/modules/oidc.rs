//! Letting only visitors in who have logged in at an issuer: a rule that is always the same one.

use std::sync::Arc;

use serde_json::{Value, json};

use ginnel_api::remote::edges::modules::Oidc;
use ginnel_base::address::with_ascii_host;
use ginnel_policy::Scope;

use crate::modules::edge_module::{
    CheckedModule, EdgeModule, InvalidModule, ModuleBuilder, ModuleChecker,
};
use crate::modules::login_rule::{duration, literal, of_module, rule};
use crate::modules::module::{Module, ModuleKind};
use crate::modules::traffic_policy::Rules;
use crate::modules::traffic_policy::module::PolicyModule;

/// The fields of the module, by those of the rule.
const FIELDS: [(&str, &str); 4] = [
    ("issuer_url", "issuer"),
    ("idle_session_timeout", "inactivity_timeout"),
    ("max_session_duration", "maximum_duration"),
    ("allow_cors_preflight", "options_passthrough"),
];

impl EdgeModule for Oidc {
    type Change = Self;

    fn check(change: Self, checker: &ModuleChecker) -> Result<CheckedModule<Self>, InvalidModule> {
        let issuer = change.issuer.map(|url| match with_ascii_host(&url) {
            Ok(ascii) => ascii.into_owned(),
            // The rule below refuses it.
            Err(_) => url,
        });
        let module = Self { enabled: change.enabled.or(Some(true)), issuer, ..change };
        let policy = checker.policies.policy(&rule_of(&module), Scope::HttpTunnel);
        let policy = policy.map_err(|problems| {
            let problems = problems.into_iter().map(|problem| of_module(problem, &FIELDS));
            InvalidModule::of_policy(&problems.collect::<Vec<_>>())
        })?;
        Ok(CheckedModule { compiled: Some(policy), ..module.into() })
    }

    fn is_enabled(&self) -> bool {
        self.enabled != Some(false)
    }

    fn build(self, builder: &mut ModuleBuilder<'_>) -> Option<Box<dyn Module>> {
        let policy = builder.policy(&rule_of(&self), Scope::HttpTunnel);
        let rules = Rules::new(policy, Arc::default(), builder.ip_policy);
        Some(Box::new(PolicyModule { kind: ModuleKind::Oidc, rules }))
    }
}

/// The document of the rule that the module is.
fn rule_of(module: &Oidc) -> Value {
    let config = json!({
        "issuer_url": module.issuer,
        "client_id": module.client_id.as_deref().map(literal),
        "client_secret": module.client_secret.as_ref().map(|secret| literal(&secret.0)),
        "scopes": module.scopes,
        "cookie_prefix": module.cookie_prefix,
        "allow_cors_preflight": module.options_passthrough,
        "idle_session_timeout": duration(module.inactivity_timeout),
        "max_session_duration": duration(module.maximum_duration),
    });
    rule("openid-connect", &config)
}
