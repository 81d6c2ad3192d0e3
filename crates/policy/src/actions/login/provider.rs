//! Where `oauth` sends visitors, and whose client asks there.

use serde_json::Value;

use super::super::super::config::Config;
use super::super::super::login::{Endpoints, LoginProvider, OauthProvider, UserinfoForm};
use super::super::super::problem::code;
use super::read_url;

/// What a document may tell a provider that is asked with the operator's client: what says who is to log in,
/// or how they are asked. Anything else could widen what the tokens are good for.
const HARMLESS_PARAMETERS: [&str; 6] =
    ["domain_hint", "hd", "login_hint", "max_age", "prompt", "ui_locales"];

/// What a document says of the provider.
pub(super) struct ProviderConfig {
    /// Where it is, as far as the document and everybody know.
    pub provider: LoginProvider,
    /// Its name, where the document says no address.
    pub named: Option<OauthProvider>,
    /// Whether the client is the operator's.
    pub is_managed: bool,
}

impl ProviderConfig {
    /// An issuer at an address that a document says.
    pub(super) fn from_issuer(url: String) -> Self {
        Self { provider: LoginProvider::Issuer(url), named: None, is_managed: false }
    }

    /// The provider that is named, or whose addresses are given.
    pub(super) fn from_config(config: &mut Config<'_>) -> Self {
        config.required_field("provider");
        let name = config.text_field("provider").unwrap_or_default();
        let issuer = read_url(config, "issuer_url");
        let names = ["authorization_url", "token_url", "userinfo_url"];
        let urls = names.map(|name| read_url(config, name));
        if issuer.is_some() && urls.iter().any(Option::is_some) {
            let message = "issuer_url says where everything is: leave the other addresses out";
            config.record_problem("issuer_url", code::VALUE, message);
        }
        let provider = match (urls, issuer) {
            ([Some(authorization_url), Some(token_url), Some(userinfo_url)], _) => {
                let like = OauthProvider::from_name(name);
                let userinfo_form = like.map_or(UserinfoForm::Claims, OauthProvider::userinfo_form);
                LoginProvider::Endpoints(Endpoints {
                    authorization_url,
                    token_url,
                    userinfo_url,
                    userinfo_form,
                    takes_pkce: like.is_none_or(OauthProvider::takes_pkce),
                })
            }
            ([None, None, None], Some(issuer)) => LoginProvider::Issuer(issuer),
            ([None, None, None], None) => return Self::from_name(config, name),
            _ => {
                let message = "authorization_url, token_url and userinfo_url are given together";
                config.record_problem("authorization_url", code::VALUE, message);
                LoginProvider::Issuer(String::new())
            }
        };
        require_secret(config, OauthProvider::from_name(name));
        if config.field_value("client_id").is_none() {
            let message =
                "client_id is required: addresses of one's own need a client of one's own";
            config.record_problem("client_id", code::EMPTY, message);
        }
        Self { provider, named: None, is_managed: false }
    }

    /// A provider without an address. Whoever leaves the client to the operator leaves it all: nothing of it
    /// goes where a document says, and it asks for nothing that a document says.
    fn from_name(config: &mut Config<'_>, name: &str) -> Self {
        let Some(named) = OauthProvider::from_name(name) else {
            let known: Vec<_> = OauthProvider::ALL.iter().map(|known| known.name()).collect();
            let known = known.join(", ");
            let message = format!(
                "{name:?} is not one of {known}: give its issuer_url, or its authorization_url, \
                 token_url and userinfo_url"
            );
            config.record_problem("provider", code::VALUE, message);
            return Self::from_issuer(String::new());
        };
        let is_managed = config.field_value("client_id").is_none();
        // Hosts that share a domain have their visitors' sessions in common where they have a secret in common.
        for field in ["client_secret", "scopes", "auth_cookie_domain"] {
            if is_managed && config.field_value(field).is_some() {
                let message =
                    format!("{field} needs a client_id: without one, the client is the operator's");
                config.record_problem(field, code::VALUE, message);
            }
        }
        if is_managed {
            reject_parameters(config);
        } else {
            require_secret(config, Some(named));
        }
        let provider = super::OauthApplication::for_provider(named).provider;
        Self { provider, named: Some(named), is_managed }
    }
}

/// Refuses parameters that decide what the operator's client asks for.
fn reject_parameters(config: &mut Config<'_>) {
    let field = "authz_url_params";
    let Some(parameters) = config.field_value(field).and_then(Value::as_object) else { return };
    let others = parameters.keys().filter(|name| !HARMLESS_PARAMETERS.contains(&name.as_str()));
    for name in others.cloned().collect::<Vec<_>>() {
        let place = config.place().field(field).field(&name);
        let known = HARMLESS_PARAMETERS.join(", ");
        let message = format!(
            "needs a client_id: without one, the client is the operator's, which is asked for with \
             {known} alone"
        );
        config.record_problem_at(&place, code::VALUE, message);
    }
}

/// Refuses a client without a secret where nothing else binds a login.
fn require_secret(config: &mut Config<'_>, like: Option<OauthProvider>) {
    let field = "client_secret";
    let Some(provider) = like.filter(|provider| !provider.takes_pkce()) else { return };
    if config.field_value(field).is_none() {
        let name = provider.name();
        let message = format!("is required: {name} takes no other proof of who asks");
        config.record_problem(field, code::EMPTY, message);
    }
}
