//! What an action asks of a login.

use std::net::IpAddr;
use std::time::Duration;

use ring::digest::{Context, SHA256};

use ginnel_base::address::{Host, WebUrl};

use super::allow::AllowRules;
use super::provider::{ADDRESS_SCOPES, GROUP_SCOPES, LoginProvider, OPENID};
use super::providers::{OauthApplication, OauthApplications, OauthProvider};
use super::visit::LOGIN_PATH;

/// The code for somebody whom none of the lists lets in, and what that is.
pub const NOT_ALLOWED: (u16, &str) = (3440, "You are logged in, but not allowed to come in here.");

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

/// What an action asks of a login.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoginConfig {
    /// Which action it is.
    pub kind: LoginKind,
    /// Where visitors log in; of a provider that is called by its name, what everybody knows, until it is known
    /// what the operator says.
    pub provider: LoginProvider,
    /// The name, where that is all that the document says of the provider.
    pub named: Option<OauthProvider>,
    /// Whether it is the operator's client that asks there.
    pub is_managed: bool,
    /// Tells logins of one endpoint from each other; may be empty.
    pub auth_id: String,
    /// A hash of what the document says, which stays the same whatever the operator says: cookies are kept
    /// apart by it before it is known what is asked for.
    pub document_hash: String,
    /// What the issuer is asked for.
    pub scopes: Vec<String>,
    /// Whether that is the usual, because the document does not say it.
    pub has_usual_scopes: bool,
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
    /// Whether the document has anything of it asked over plain HTTP, which only this machine is.
    pub fn is_local(&self) -> bool {
        if self.named.is_some() {
            return false;
        }
        let is_local = |url: &String| !url.to_ascii_lowercase().starts_with("https:");
        match &self.provider {
            LoginProvider::Issuer(issuer) => is_local(issuer),
            LoginProvider::Endpoints(it) => {
                [&it.authorization_url, &it.token_url, &it.userinfo_url].into_iter().any(is_local)
            }
        }
    }

    /// The addresses that its document has asked, where it writes them in place of names.
    pub fn literal_addresses(&self) -> Vec<IpAddr> {
        let urls = match &self.provider {
            _ if self.named.is_some() => Vec::new(),
            LoginProvider::Issuer(issuer) => vec![issuer],
            LoginProvider::Endpoints(it) => {
                vec![&it.authorization_url, &it.token_url, &it.userinfo_url]
            }
        };
        let address = |url: &String| WebUrl::parse(url).ok()?.host().ip();
        urls.into_iter().filter_map(address).collect()
    }

    /// Where visitors log in on purpose: an identifier has no byte that a query would have to escape.
    pub fn login_path(&self) -> String {
        match self.auth_id.as_str() {
            "" => LOGIN_PATH.to_owned(),
            id => format!("{LOGIN_PATH}?auth_id={id}"),
        }
    }

    /// What somebody gets as a response who is not allowed to come in.
    pub fn not_allowed(&self) -> String {
        format!("{} To log in as somebody else, go to {}.", NOT_ALLOWED.1, self.login_path())
    }

    /// Why nobody could log in, or nobody who is allowed to, where the operator has these applications.
    pub fn setup_problem(&self, applications: &OauthApplications) -> Option<String> {
        let named = self.named?;
        let application = applications.for_provider(named);
        let name = named.name();
        if self.is_managed && application.client.is_none() {
            let setting = named.setting();
            return Some(format!(
                "the provider {name} needs a client_id of one's own, or {setting}, which this service \
                 does not have"
            ));
        }
        if let Some(problem) = self.missing_scope_problem(&application) {
            return Some(problem);
        }
        if let Some(problem) = self.lacks_groups(named, &application) {
            return Some(problem);
        }
        let asks_addresses = !self.allow.emails.is_empty() || !self.allow.domains.is_empty();
        (asks_addresses && !application.verifies_addresses).then(|| {
            format!(
                "allow_emails and allow_domains have no effect: {name} does not say that an address is \
                 verified"
            )
        })
    }

    /// Which list lets nobody in, because GitHub is not asked for what it is about: more than the operator says
    /// is not asked for in the operator's name.
    fn missing_scope_problem(&self, application: &OauthApplication) -> Option<String> {
        if !application.provider.is_github() {
            return None;
        }
        let resolved = self.with_application(application);
        let lists = [
            ("allow_groups", !self.allow.groups.is_empty(), &GROUP_SCOPES[..]),
            ("allow_emails", !self.allow.emails.is_empty(), &ADDRESS_SCOPES[..]),
            ("allow_domains", !self.allow.domains.is_empty(), &ADDRESS_SCOPES[..]),
        ];
        let lacks =
            |scopes: &[&str]| !resolved.scopes.iter().any(|it| scopes.contains(&it.as_str()));
        let (list, _, scopes) =
            lists.into_iter().find(|(_, is_there, scopes)| *is_there && lacks(scopes))?;
        let scope = scopes.first().unwrap_or(&"");
        let whose = if self.is_managed { "oauth.github.scopes" } else { "scopes" };
        Some(format!("{list} has no effect: it needs {scope}, which {whose} lacks"))
    }

    /// Why nobody is let in where groups are all that is asked for, and the provider says none.
    fn lacks_groups(&self, named: OauthProvider, application: &OauthApplication) -> Option<String> {
        let AllowRules { emails, domains, groups } = &self.allow;
        let asks_groups_alone = !groups.is_empty() && emails.is_empty() && domains.is_empty();
        let is_public = application.provider == OauthApplication::for_provider(named).provider;
        let lacks = asks_groups_alone && is_public && !named.reports_groups();
        lacks.then(|| format!("allow_groups lets nobody in: {} says no groups", named.name()))
    }

    /// The same login with what the operator knows of its provider.
    pub fn with_application(&self, application: &OauthApplication) -> Self {
        let mut resolved = self.clone();
        resolved.provider = application.provider.clone();
        if self.is_managed && !application.scopes.is_empty() {
            resolved.scopes.clone_from(&application.scopes);
        } else if self.has_usual_scopes
            && application.provider != self.provider
            && let LoginProvider::Issuer(_) = application.provider
        {
            // Whatever the name says: an issuer knows no scopes of another provider's own.
            resolved.scopes = usual_scopes();
        }
        if let LoginProvider::Issuer(_) = resolved.provider
            && !resolved.scopes.iter().any(|scope| scope == OPENID)
        {
            resolved.scopes.insert(0, OPENID.to_owned());
        }
        resolved
    }

    /// What distinguishes the cookies of a login from those of others. `site` is the host, or the domain that
    /// shares the session.
    pub fn cookie_tag(&self, site: &str) -> String {
        let tag = hash_texts([self.document_hash.as_str(), site]);
        tag.get(..16).unwrap_or_default().to_owned()
    }

    /// What makes a login of a document another one than those beside it; `client_id` is a template.
    pub fn hash_document(&self, client_id: &str) -> String {
        let name = self.named.map(OauthProvider::name).unwrap_or_default();
        let client = if self.is_managed { "managed" } else { "own" };
        let parts = self.digest_parts();
        hash_texts([name, client, client_id].into_iter().chain(parts.iter().map(String::as_str)))
    }

    /// What a session is bound to: it is good for nothing that asks somebody else, or for more.
    pub fn session_digest(&self, site: &str) -> String {
        hash_texts(self.digest_parts().iter().map(String::as_str).chain([site]))
    }

    /// Who is asked, and for what.
    fn digest_parts(&self) -> Vec<String> {
        let mut parts = vec![self.kind.name().to_owned()];
        match &self.provider {
            LoginProvider::Issuer(issuer) => parts.push(issuer.clone()),
            LoginProvider::Endpoints(it) => {
                let urls = [&it.authorization_url, &it.token_url, &it.userinfo_url];
                parts.extend(urls.map(String::clone));
            }
        }
        parts.extend([self.auth_id.clone(), self.scopes.join(" ")]);
        parts.extend(self.parameters.iter().flat_map(|(name, value)| [name, value]).cloned());
        parts
    }
}

/// Of texts, each with its length.
fn hash_texts<'t>(texts: impl IntoIterator<Item = &'t str>) -> String {
    let mut digest = Context::new(&SHA256);
    for text in texts {
        digest.update(&(text.len() as u64).to_be_bytes());
        digest.update(text.as_bytes());
    }
    ginnel_base::hex(digest.finish())
}

/// What an issuer is asked for, unless somebody says otherwise.
pub fn usual_scopes() -> Vec<String> {
    [OPENID, "profile", "email"].map(str::to_owned).to_vec()
}

/// Whether a URL is one that secrets may be sent to: over TLS, or to this machine.
pub fn is_login_url(text: &str) -> bool {
    WebUrl::parse(text).is_ok_and(|url| {
        let has_fragment = url.fragment().is_some_and(|fragment| !fragment.is_empty());
        !has_fragment && (url.is_https() || url.host().is_loopback())
    })
}

/// Whether a host is this machine by its name.
pub(super) fn is_loopback(host: &str) -> bool {
    Host::parse(host).is_ok_and(|host| host.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_go_to_providers_over_tls() {
        for provider in OauthProvider::ALL {
            let urls = match OauthApplication::for_provider(*provider).provider {
                LoginProvider::Issuer(url) => vec![url],
                LoginProvider::Endpoints(it) => {
                    vec![it.authorization_url, it.token_url, it.userinfo_url]
                }
            };
            assert!(urls.iter().all(|url| is_login_url(url)), "{urls:?}");
        }
    }

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
