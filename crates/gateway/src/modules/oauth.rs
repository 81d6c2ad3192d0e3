//! Letting only visitors in who have logged in at a provider of OAuth: a rule that is always the same one.

use std::sync::Arc;

use serde_json::{Value, json};

use ginnel_api::local::tunnels::TunnelOauth;
use ginnel_api::remote::edges::modules::{Oauth, OauthGithubLogin, OauthLogin, OauthLogins};
use ginnel_policy::Scope;
use ginnel_policy::login::OauthProvider;
use ginnel_policy::problem::code;

use crate::modules::login_rule::{
    duration_text, escape_literal, module_problem, rule_document, tunnel_login, tunnel_problem,
};
use crate::modules::prelude::*;
use crate::modules::traffic_policy::Rules;
use crate::modules::traffic_policy::module::PolicyModule;

/// The fields of the module, by those of the rule.
const FIELDS: [(&str, &str); 4] = [
    ("idle_session_timeout", "inactivity_timeout"),
    ("max_session_duration", "maximum_duration"),
    ("userinfo_refresh_interval", "auth_check_interval"),
    ("allow_cors_preflight", "options_passthrough"),
];
/// The fields of its provider, in the same form.
const PROVIDER_FIELDS: [(&str, &str); 6] = [
    ("client_id", "client_id"),
    ("client_secret", "client_secret"),
    ("scopes", "scopes"),
    ("allow_emails", "email_addresses"),
    ("allow_domains", "email_domains"),
    ("allow_groups", "organizations"),
];

impl BuildModule for Oauth {
    fn build(self, builder: &mut ModuleBuilder<'_>) -> ModuleResult<Option<Box<dyn Module>>> {
        // The module was checked before it was stored. An invalid one rejects all visitors.
        let policy = builder.compile_policy(&rule_of(&self).ok(), Scope::HttpTunnel)?;
        let rules = Rules::new(policy, Arc::default(), builder.ip_policy);
        let rules = rules.with_applications(builder.applications.clone());
        Ok(Some(Box::new(PolicyModule { kind: ModuleKind::Oauth, rules })))
    }
}

impl EdgeModule for Oauth {
    type Change = Self;

    fn check(change: Self, checker: &ModuleChecker) -> ModuleResult<CheckedModule<Self>> {
        let module = Self { enabled: change.enabled.or(Some(true)), ..change };
        let (provider, login) = login_of(&module)?;
        check_login(provider.name(), &login)?;
        let policy = checker.policies.compiled_policy(&rule_of(&module)?, Scope::HttpTunnel);
        let policy = policy.map_err(|problems| {
            let name = provider.name();
            let of_provider =
                PROVIDER_FIELDS.map(|(field, own)| (field, format!("provider.{name}.{own}")));
            let of_provider = of_provider.iter().map(|(field, own)| (*field, own.as_str()));
            let fields: Vec<_> = FIELDS.into_iter().chain(of_provider).collect();
            let problems = problems.into_iter().map(|problem| module_problem(problem, &fields));
            InvalidModule::from_problems(&problems.collect::<Vec<_>>())
        })?;
        if let Some(problem) = policy.login_problem(&checker.applications) {
            let fields = PROVIDER_FIELDS.iter();
            let message =
                fields.fold(problem.message, |text, (field, own)| text.replace(field, own));
            return Err(InvalidModule::from_message(format!(
                "provider.{}: {message}",
                provider.name()
            )));
        }
        Ok(CheckedModule { compiled: Some(policy), ..module.into() })
    }

    fn is_enabled(&self) -> bool {
        self.enabled != Some(false)
    }
}

impl BuildModule for TunnelOauth {
    fn build(self, builder: &mut ModuleBuilder<'_>) -> ModuleResult<Option<Box<dyn Module>>> {
        let provider = self.provider.unwrap_or_default();
        if OauthProvider::from_name(&provider).is_none() {
            let known: Vec<_> = OauthProvider::ALL.iter().map(|known| known.name()).collect();
            let known = known.join(", ");
            let message =
                format!("{provider:?} is not one of {known}: others need oidc, or a policy");
            return Err(tunnel_problem("oauth.provider", code::CHOICE, message));
        }
        if self.client_id.is_some() && self.client_secret.is_none() {
            let message = "is required with a client_id".to_owned();
            return Err(tunnel_problem("oauth.client_secret", code::EMPTY, message));
        }
        let config = json!({
            "provider": provider,
            "client_id": self.client_id.as_deref().map(escape_literal),
            "client_secret": self.client_secret.map(|secret| escape_literal(&secret.0)),
            "scopes": self.scopes,
            "allow_emails": self.allow_emails,
            "allow_domains": self.allow_domains,
        });
        tunnel_login(ModuleKind::Oauth, ("oauth", &config), builder)
    }
}

/// Returns the provider of the module with its login.
fn login_of(module: &Oauth) -> ModuleResult<(OauthProvider, OauthGithubLogin)> {
    let logins = module.provider.as_ref().map(all_logins).unwrap_or_default();
    let mut logins = logins.into_iter().filter_map(|(provider, login)| Some((provider, login?)));
    match (logins.next(), logins.next()) {
        (Some(login), None) => Ok(login),
        (None, _) => {
            let names: Vec<_> = OauthProvider::ALL.iter().map(|it| it.name()).collect();
            let message = format!("provider: is required, with one of {}", names.join(", "));
            Err(InvalidModule::from_message(message))
        }
        (Some((first, _)), Some((second, _))) => {
            let (first, second) = (first.name(), second.name());
            let message = format!("provider: there are {first} and {second}, and a module has one");
            Err(InvalidModule::from_message(message))
        }
    }
}

/// The document of the rule that the module is.
fn rule_of(module: &Oauth) -> ModuleResult<Value> {
    let (provider, login) = login_of(module)?;
    let lower = |names: Option<Vec<String>>| {
        names.into_iter().flatten().map(|name| name.to_lowercase()).collect::<Vec<_>>()
    };
    let groups = [lower(login.organizations), lower(login.teams)].concat();
    let some = |text: Option<String>| {
        text.filter(|text| !text.is_empty()).map(|text| escape_literal(&text))
    };
    let config = json!({
        "provider": provider.name(),
        "client_id": some(login.client_id),
        "client_secret": some(login.client_secret.map(|secret| secret.0)),
        "scopes": login.scopes.filter(|scopes| !scopes.is_empty()),
        "allow_emails": login.email_addresses,
        "allow_domains": login.email_domains,
        "allow_groups": groups,
        "cookie_prefix": module.cookie_prefix,
        "allow_cors_preflight": module.options_passthrough,
        "idle_session_timeout": duration_text(module.inactivity_timeout),
        "max_session_duration": duration_text(module.maximum_duration),
        "userinfo_refresh_interval": duration_text(module.auth_check_interval),
    });
    Ok(rule_document("oauth", &config))
}

/// Rejects values that the compiled rule would accept or misread.
fn check_login(name: &str, login: &OauthGithubLogin) -> ModuleResult<()> {
    let is_there = |text: Option<&str>| text.is_some_and(|text| !text.is_empty());
    let has_secret = is_there(login.client_secret.as_ref().map(|secret| secret.0.as_str()));
    if is_there(login.client_id.as_deref()) && !has_secret {
        let message = format!("provider.{name}.client_secret: is required with a client_id");
        return Err(InvalidModule::from_message(message));
    }
    let is_part = |text: &str| !text.is_empty() && !text.contains('/');
    let is_team = |text: &str| {
        text.split_once('/').is_some_and(|(owner, team)| is_part(owner) && is_part(team))
    };
    let teams = login.teams.iter().flatten();
    if let Some(team) = teams.into_iter().find(|team| !is_team(team)) {
        let message =
            format!("provider.{name}.teams: {team:?} is not of the form organization/team");
        return Err(InvalidModule::from_message(message));
    }
    let organizations = login.organizations.iter().flatten();
    if let Some(organization) = organizations.into_iter().find(|name| !is_part(name)) {
        let message = format!("provider.{name}.organizations: {organization:?} is no organization");
        return Err(InvalidModule::from_message(message));
    }
    Ok(())
}

/// Returns each provider with its login, in the form with the most fields.
fn all_logins(logins: &OauthLogins) -> Vec<(OauthProvider, Option<OauthGithubLogin>)> {
    let usual = |login: &Option<OauthLogin>| login.clone().map(as_github_login);
    vec![
        (OauthProvider::Amazon, usual(&logins.amazon)),
        (OauthProvider::Facebook, usual(&logins.facebook)),
        (OauthProvider::Github, logins.github.clone()),
        (OauthProvider::Gitlab, usual(&logins.gitlab)),
        (OauthProvider::Google, usual(&logins.google)),
        (OauthProvider::Linkedin, usual(&logins.linkedin)),
        (OauthProvider::Microsoft, usual(&logins.microsoft)),
        (OauthProvider::Twitch, usual(&logins.twitch)),
    ]
}

/// Converts a login to the form with the most fields.
fn as_github_login(login: OauthLogin) -> OauthGithubLogin {
    let OauthLogin { client_id, client_secret, scopes, email_addresses, email_domains } = login;
    let (teams, organizations) = (None, None);
    OauthGithubLogin {
        client_id,
        client_secret,
        scopes,
        email_addresses,
        email_domains,
        teams,
        organizations,
    }
}
