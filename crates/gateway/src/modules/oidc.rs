//! Letting only visitors in who have logged in at an issuer: a rule that is always the same one.

use std::sync::Arc;

use serde_json::{Value, json};

use ginnel_api::local::tunnels::TunnelOidc;
use ginnel_api::mask;
use ginnel_api::remote::edges::modules::Oidc;
use ginnel_base::address::with_ascii_host;
use ginnel_policy::Scope;
use ginnel_policy::login::is_login_url;
use ginnel_policy::problem::code;

use crate::modules::login_rule::{
    duration_text, escape_literal, module_problem, rule_document, tunnel_login, tunnel_problem,
};
use crate::modules::prelude::*;
use crate::modules::traffic_policy::Rules;
use crate::modules::traffic_policy::module::PolicyModule;

/// The fields of the module, by those of the rule.
const FIELDS: [(&str, &str); 4] = [
    ("issuer_url", "issuer"),
    ("idle_session_timeout", "inactivity_timeout"),
    ("max_session_duration", "maximum_duration"),
    ("allow_cors_preflight", "options_passthrough"),
];

impl BuildModule for Oidc {
    fn build(self, builder: &mut ModuleBuilder<'_>) -> ModuleResult<Option<Box<dyn Module>>> {
        let policy = builder.compile_policy(&rule_of(&self), Scope::HttpTunnel)?;
        let rules = Rules::new(policy, Arc::default(), builder.ip_policy);
        Ok(Some(Box::new(PolicyModule { kind: ModuleKind::Oidc, rules })))
    }
}

impl EdgeModule for Oidc {
    type Change = Self;

    fn check(change: Self, checker: &ModuleChecker) -> ModuleResult<CheckedModule<Self>> {
        let issuer = change.issuer.map(|url| match with_ascii_host(&url) {
            Ok(ascii) => ascii.into_owned(),
            // The rule below refuses it.
            Err(_) => url,
        });
        let module = Self { enabled: change.enabled.or(Some(true)), issuer, ..change };
        let policy = checker.policies.compiled_policy(&rule_of(&module), Scope::HttpTunnel);
        let policy = policy.map_err(|problems| {
            let problems = problems.into_iter().map(|problem| module_problem(problem, &FIELDS));
            InvalidModule::from_problems(&problems.collect::<Vec<_>>())
        })?;
        Ok(CheckedModule { compiled: Some(policy), ..module.into() })
    }

    fn is_enabled(&self) -> bool {
        self.enabled != Some(false)
    }
}

impl BuildModule for TunnelOidc {
    fn build(self, builder: &mut ModuleBuilder<'_>) -> ModuleResult<Option<Box<dyn Module>>> {
        let issuer = self.issuer_url.unwrap_or_default();
        // Over plain HTTP an agent could call what listens only on the machine of the service.
        let is_https = issuer.get(..6).is_some_and(|start| start.eq_ignore_ascii_case("https:"));
        if !is_https || !is_login_url(&issuer) {
            let shown = mask::url(&issuer);
            let message =
                format!("{shown:?} is not an https url without user, password and fragment");
            return Err(tunnel_problem("oidc.issuer_url", code::URL, message));
        }
        let config = json!({
            "issuer_url": issuer,
            "client_id": self.client_id.as_deref().map(escape_literal),
            "client_secret": self.client_secret.map(|secret| escape_literal(&secret.0)),
            "scopes": self.scopes,
            "allow_emails": self.allow_emails,
            "allow_domains": self.allow_domains,
        });
        tunnel_login(ModuleKind::Oidc, ("openid-connect", &config), builder)
    }
}

/// The document of the rule that the module is.
fn rule_of(module: &Oidc) -> Value {
    let config = json!({
        "issuer_url": module.issuer,
        "client_id": module.client_id.as_deref().map(escape_literal),
        "client_secret": module.client_secret.as_ref().map(|secret| escape_literal(&secret.0)),
        "scopes": module.scopes,
        "cookie_prefix": module.cookie_prefix,
        "allow_cors_preflight": module.options_passthrough,
        "idle_session_timeout": duration_text(module.inactivity_timeout),
        "max_session_duration": duration_text(module.maximum_duration),
    });
    rule_document("openid-connect", &config)
}
