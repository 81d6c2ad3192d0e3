//! Where visitors log in, and what a client proves there.

use std::fmt;

use ginnel_base::address::WebUrl;

/// The scope that makes a login one of OpenID Connect.
pub const OPENID: &str = "openid";

/// The scope that lets GitHub say which organizations and teams somebody belongs to.
pub const GROUP_SCOPE: &str = "read:org";

/// All that do.
pub const GROUP_SCOPES: [&str; 3] = [GROUP_SCOPE, "write:org", "admin:org"];

/// The scopes that let GitHub say which addresses of somebody are verified.
pub const ADDRESS_SCOPES: [&str; 2] = ["user:email", "user"];

/// Where Microsoft's issuers are, in all of its clouds.
const MICROSOFT_DOMAINS: [&str; 7] = [
    "b2clogin.com",
    "ciamlogin.com",
    "microsoft.com",
    "microsoftonline.cn",
    "microsoftonline.com",
    "microsoftonline.us",
    "windows.net",
];

/// Where visitors log in.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum LoginProvider {
    /// An issuer of OpenID Connect, which says itself where everything is.
    Issuer(String),
    /// A provider that speaks OAuth 2.0 alone.
    Endpoints(Endpoints),
}

impl LoginProvider {
    /// Whether it takes the proof of RFC 7636.
    pub fn takes_pkce(&self) -> bool {
        match self {
            Self::Issuer(_) => true,
            Self::Endpoints(endpoints) => endpoints.takes_pkce,
        }
    }

    /// Whether it answers as GitHub does.
    pub fn is_github(&self) -> bool {
        matches!(self, Self::Endpoints(it) if it.userinfo_form == UserinfoForm::Github)
    }

    /// Whether it may say that an address is verified: whoever points a name elsewhere knows what is said there,
    /// but what Microsoft has for one organization says as little as what it has for all.
    pub fn may_verify_addresses(&self) -> bool {
        let host = WebUrl::parse(self.identity_url()).map(|url| url.host().to_string());
        let host = host.unwrap_or_default();
        !MICROSOFT_DOMAINS.iter().any(|domain| {
            let name = host.strip_suffix(domain);
            name.is_some_and(|name| name.is_empty() || name.ends_with('.'))
        })
    }

    /// The address of whoever says who somebody is.
    pub fn identity_url(&self) -> &str {
        match self {
            Self::Issuer(url) => url,
            Self::Endpoints(endpoints) => &endpoints.userinfo_url,
        }
    }
}

/// How a provider says who somebody is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum UserinfoForm {
    /// In the claims of OpenID Connect, or in some that are like them.
    Claims,
    /// As GitHub: addresses, organizations and teams have paths of their own.
    Github,
}

/// The addresses of a provider that does not publish them.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Endpoints {
    /// Where visitors are sent.
    pub authorization_url: String,
    /// Where codes are exchanged for tokens.
    pub token_url: String,
    /// Where a token is exchanged for who its bearer is.
    pub userinfo_url: String,
    /// How that is said.
    pub userinfo_form: UserinfoForm,
    /// Whether it takes the proof that who asks for tokens is who has sent the visitor (RFC 7636).
    pub takes_pkce: bool,
}

/// What a client proves with that it is one; kept out of debug output.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct ClientSecret(pub String);

impl fmt::Debug for ClientSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClientSecret(…)")
    }
}
