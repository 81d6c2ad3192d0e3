//! The login that an agent asks for at its endpoint: the rule of the modules `oauth` and `oidc` of routes.

use std::sync::Arc;

use serde_json::{Value, json};

use ginnel_api::mask;
use ginnel_net::Reach;
use ginnel_policy::login::{OauthProvider, is_login_url};
use ginnel_policy::problem::code;
use ginnel_policy::{Policy, Problem, Scope};

use crate::modules::login_rule::{self, literal};
use crate::modules::module::{Module, ModuleKind};
use crate::modules::policy_resources::PolicyResources;
use crate::modules::traffic_policy::Rules;
use crate::modules::traffic_policy::module::PolicyModule;
use crate::routing::endpoint_spec::{EndpointOptions, LoginSpec};

/// The rule of a login, compiled.
pub(super) struct CompiledLogin {
    kind: ModuleKind,
    policy: Policy,
}

impl CompiledLogin {
    /// Compiles the login of an endpoint, if it has one.
    ///
    /// # Errors
    /// If its options are refused. The places of problems are fields of the options.
    pub fn of(options: &EndpointOptions) -> Result<Option<Self>, Vec<Problem>> {
        let (kind, spec) = match (&options.oauth, &options.oidc) {
            (None, None) => return Ok(None),
            (Some(_), Some(_)) => {
                let message = "visitors log in once: leave out oidc or oauth";
                return Err(vec![problem("oidc", code::DUPLICATE, message)]);
            }
            (Some(spec), None) => (ModuleKind::Oauth, spec),
            (None, Some(spec)) => (ModuleKind::Oidc, spec),
        };
        Ok(Some(Self { kind, policy: policy(kind, spec)? }))
    }

    /// The rule.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// The module that lets visitors log in, which asks for nothing that is out of reach.
    ///
    /// # Errors
    /// If the service has no client for the login.
    pub fn module(
        self,
        resources: &PolicyResources,
        reach: Reach,
    ) -> Result<Box<dyn Module>, Vec<Problem>> {
        let Self { kind, policy } = self;
        if let Some(found) = policy.login_problem(&resources.applications) {
            return Err(vec![Problem { place: kind.name().to_owned(), ..found }]);
        }
        let rules = Rules::new(Arc::new(policy), Arc::default(), |_| Arc::default());
        let rules = rules.with_applications(resources.applications.clone()).within(reach);
        Ok(Box::new(PolicyModule { kind, rules }))
    }
}

fn policy(kind: ModuleKind, spec: &LoginSpec) -> Result<Policy, Vec<Problem>> {
    let name = kind.name();
    let (action, config) = match kind {
        ModuleKind::Oauth => ("oauth", oauth_config(spec)),
        _ => ("openid-connect", oidc_config(spec)),
    };
    let config = config.map_err(|found| vec![found])?;
    let policy = Policy::compile(&login_rule::rule(action, &config), Scope::HttpTunnel);
    policy.map_err(|problems| {
        let of_option = |found: Problem| {
            let place = found.place.strip_prefix(login_rule::PLACE_PREFIX);
            let place = place.map_or_else(|| name.to_owned(), |field| format!("{name}.{field}"));
            Problem { place, ..found }
        };
        problems.into_iter().map(of_option).collect()
    })
}

fn oauth_config(spec: &LoginSpec) -> Result<Value, Problem> {
    let provider = &spec.provider;
    if OauthProvider::of_name(provider).is_none() {
        let known: Vec<_> = OauthProvider::ALL.iter().map(|known| known.name()).collect();
        let known = known.join(", ");
        let message = format!("{provider:?} is not one of {known}: others need oidc, or a policy");
        return Err(problem("oauth.provider", code::CHOICE, message));
    }
    if !spec.client_id.is_empty() && spec.client_secret.0.is_empty() {
        let message = "is required with a client_id";
        return Err(problem("oauth.client_secret", code::EMPTY, message));
    }
    Ok(config("provider", spec))
}

/// Over plain HTTP an agent would call what listens on the machine of the service alone.
fn oidc_config(spec: &LoginSpec) -> Result<Value, Problem> {
    let issuer = &spec.provider;
    let is_https = issuer.get(..6).is_some_and(|start| start.eq_ignore_ascii_case("https:"));
    if !is_https || !is_login_url(issuer) {
        let shown = mask::url(issuer);
        let message = format!("{shown:?} is not an https url without user, password and fragment");
        return Err(problem("oidc.issuer_url", code::URL, message));
    }
    Ok(config("issuer_url", spec))
}

fn config(provider: &str, spec: &LoginSpec) -> Value {
    let text = |text: &str| Some(literal(text)).filter(|text| !text.is_empty());
    let mut config = json!({
        "client_id": text(&spec.client_id),
        "client_secret": text(&spec.client_secret.0),
        "scopes": Some(&spec.scopes).filter(|scopes| !scopes.is_empty()),
        "allow_emails": spec.allow_emails,
        "allow_domains": spec.allow_domains,
    });
    config[provider] = spec.provider.as_str().into();
    config
}

fn problem(place: &str, code: u16, message: impl Into<String>) -> Problem {
    Problem { code, place: place.to_owned(), message: message.into() }
}
