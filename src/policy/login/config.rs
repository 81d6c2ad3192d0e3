//! What an action asks of a login.

use std::time::Duration;

use ring::digest::{Context, SHA256};

use super::super::url::Url;
use super::allow::AllowRules;
use super::visit::LOGIN_PATH;

/// What a login is called in documents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoginKind {
    /// `openid-connect`.
    OpenIdConnect,
    /// `oauth`.
    OAuth,
}

impl LoginKind {
    fn name(self) -> &'static str {
        match self {
            Self::OpenIdConnect => "openid-connect",
            Self::OAuth => "oauth",
        }
    }
}

/// Where visitors log in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LoginProvider {
    /// An issuer of OpenID Connect, which says itself where everything is.
    Issuer(String),
    /// A provider that speaks OAuth 2.0 alone.
    Endpoints(Endpoints),
}

/// The addresses of a provider that does not publish them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoints {
    /// Where visitors are sent.
    pub authorization_url: String,
    /// Where codes are exchanged for tokens.
    pub token_url: String,
    /// Where a token is exchanged for who its bearer is.
    pub userinfo_url: String,
}

/// What an action asks of a login.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoginConfig {
    /// Which action it is.
    pub kind: LoginKind,
    /// Where visitors log in.
    pub provider: LoginProvider,
    /// Tells logins of one endpoint from each other; may be empty.
    pub auth_id: String,
    /// What the issuer is asked for.
    pub scopes: Vec<String>,
    /// What else the issuer is told when a visitor comes to it.
    pub parameters: Vec<(String, String)>,
    /// Who may come in.
    pub allow: AllowRules,
    /// Whether preflights of CORS pass without a session.
    pub allow_cors_preflight: bool,
    /// After how long without a request a session ends.
    pub idle_timeout: Duration,
    /// After how long a session ends in any case.
    pub max_duration: Duration,
    /// How often the issuer is asked again who somebody is; never unless given.
    pub refresh_interval: Option<Duration>,
    /// The domain whose hosts share the session; this host alone unless given.
    pub cookie_domain: Option<String>,
    /// What the names of cookies begin with; may be empty.
    pub cookie_prefix: String,
}

impl LoginConfig {
    /// Whether anything of it is asked over plain HTTP, which only this machine is.
    pub fn is_local(&self) -> bool {
        let is_local = |url: &String| !url.to_ascii_lowercase().starts_with("https:");
        match &self.provider {
            LoginProvider::Issuer(issuer) => is_local(issuer),
            LoginProvider::Endpoints(it) => {
                [&it.authorization_url, &it.token_url, &it.userinfo_url].into_iter().any(is_local)
            }
        }
    }

    /// Where visitors log in on purpose: an identifier has no byte that a query would have to escape.
    pub fn login_path(&self) -> String {
        match self.auth_id.as_str() {
            "" => LOGIN_PATH.to_owned(),
            id => format!("{LOGIN_PATH}?auth_id={id}"),
        }
    }

    /// What the cookies of a login are told from those of others by: a session is good for nothing that
    /// asks somebody else, or for more. `site` is the host, or the domain that shares the session.
    pub fn tag(&self, site: &str) -> String {
        self.digest(site).get(..16).unwrap_or_default().to_owned()
    }

    /// The whole of what the cookies of a login are told from others by.
    pub fn digest(&self, site: &str) -> String {
        let mut digest = Context::new(&SHA256);
        let mut part = |text: &str| {
            digest.update(&(text.len() as u64).to_be_bytes());
            digest.update(text.as_bytes());
        };
        part(self.kind.name());
        match &self.provider {
            LoginProvider::Issuer(issuer) => part(issuer),
            LoginProvider::Endpoints(it) => {
                for url in [&it.authorization_url, &it.token_url, &it.userinfo_url] {
                    part(url);
                }
            }
        }
        part(&self.auth_id);
        part(&self.scopes.join(" "));
        for (name, value) in &self.parameters {
            part(name);
            part(value);
        }
        part(site);
        let digest = digest.finish();
        digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// Whether a URL is one that secrets may be sent to: over TLS, or to this machine.
pub fn is_login_url(text: &str) -> bool {
    Url::parse(text).is_some_and(|url| {
        let is_fit = url.user_password.is_empty() && url.fragment.is_empty();
        is_fit && (url.scheme == "https" || url.scheme == "http" && is_loopback(url.host))
    })
}

/// Whether a host is this machine by its name.
pub(super) fn is_loopback(host: &str) -> bool {
    let host = host.trim_matches(['[', ']']).to_ascii_lowercase();
    host == "localhost"
        || host.ends_with(".localhost")
        || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_go_over_tls_or_to_this_machine() {
        for url in [
            "https://a.example",
            "https://a.example/x?y",
            "http://127.0.0.1:8080",
            "http://[::1]/",
            "http://a.localhost",
        ] {
            assert!(is_login_url(url), "{url}");
        }
        for url in [
            "http://a.example",
            "ftp://a.example",
            "https://u:p@a.example",
            "https://a#b",
            "a.example",
            "http://127.0.0.1.evil.example",
        ] {
            assert!(!is_login_url(url), "{url}");
        }
    }
}
