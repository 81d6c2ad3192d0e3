//! Letting only visitors in who have logged in at an issuer: a rule that is always the same one.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::api::remote::edges::modules::Oidc;
use crate::base::address::with_ascii_host;
use crate::gateway::modules::edge_module::{
    CheckedModule, EdgeModule, InvalidModule, ModuleBuilder, ModuleChecker,
};
use crate::gateway::modules::login_rule::{duration, literal, of_module, rule};
use crate::gateway::modules::module::{Module, ModuleKind};
use crate::gateway::modules::traffic_policy::Rules;
use crate::gateway::modules::traffic_policy::module::PolicyModule;
use crate::policy::Scope;

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
        let policy = checker.policies.policy(&module.rule(), Scope::HttpTunnel);
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
        let policy = builder.policy(&self.rule(), Scope::HttpTunnel);
        let rules = Rules::new(policy, Arc::default(), builder.ip_policy);
        Some(Box::new(PolicyModule { kind: ModuleKind::Oidc, rules }))
    }
}

impl Oidc {
    /// The document of the rule that the module is.
    fn rule(&self) -> Value {
        let config = json!({
            "issuer_url": self.issuer,
            "client_id": self.client_id.as_deref().map(literal),
            "client_secret": self.client_secret.as_ref().map(|secret| literal(&secret.0)),
            "scopes": self.scopes,
            "cookie_prefix": self.cookie_prefix,
            "allow_cors_preflight": self.options_passthrough,
            "idle_session_timeout": duration(self.inactivity_timeout),
            "max_session_duration": duration(self.maximum_duration),
        });
        rule("openid-connect", &config)
    }
}
