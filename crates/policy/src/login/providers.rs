//! Providers of OAuth that policies call by name, and the applications that an operator has there.

use std::fmt;
use std::sync::Arc;

use arc_swap::ArcSwap;

use super::provider::{ClientSecret, Endpoints, GROUP_SCOPE, LoginProvider, UserinfoForm};

macro_rules! providers {
    ($($(#[doc = $doc:literal])+ $Provider:ident = $name:literal,)+) => {
        /// A provider of OAuth that policies call by name.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum OauthProvider {
            $($(#[doc = $doc])+ $Provider,)+
        }

        impl OauthProvider {
            /// All of them, in the order of their names.
            pub const ALL: &[Self] = &[$(Self::$Provider),+];

            /// The name.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$Provider => $name,)+
                }
            }

            /// The setting of the service that names the operator's client.
            pub fn setting(self) -> &'static str {
                match self {
                    $(Self::$Provider => concat!("oauth.", $name, ".client_id"),)+
                }
            }
        }
    };
}

providers! {
    /// Amazon.
    Amazon = "amazon",
    /// Facebook.
    Facebook = "facebook",
    /// GitHub.
    Github = "github",
    /// GitLab.
    Gitlab = "gitlab",
    /// Google.
    Google = "google",
    /// LinkedIn.
    Linkedin = "linkedin",
    /// Microsoft, for accounts of any organization.
    Microsoft = "microsoft",
    /// Twitch.
    Twitch = "twitch",
}

impl OauthProvider {
    /// The provider of a name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|provider| provider.name() == name)
    }

    /// Where it is, unless the operator says otherwise.
    fn public_provider(self) -> LoginProvider {
        let issuer = |url: &str| LoginProvider::Issuer(url.to_owned());
        let endpoints = |[authorization, token, userinfo]: [&str; 3]| {
            LoginProvider::Endpoints(Endpoints {
                authorization_url: authorization.to_owned(),
                token_url: token.to_owned(),
                userinfo_url: userinfo.to_owned(),
                userinfo_form: self.userinfo_form(),
                takes_pkce: self.takes_pkce(),
            })
        };
        match self {
            Self::Amazon => endpoints([
                "https://www.amazon.com/ap/oa",
                "https://api.amazon.com/auth/o2/token",
                "https://api.amazon.com/user/profile",
            ]),
            Self::Facebook => endpoints([
                "https://www.facebook.com/dialog/oauth",
                "https://graph.facebook.com/oauth/access_token",
                "https://graph.facebook.com/me?fields=id,name,email",
            ]),
            Self::Github => endpoints([
                "https://github.com/login/oauth/authorize",
                "https://github.com/login/oauth/access_token",
                "https://api.github.com/user",
            ]),
            Self::Gitlab => issuer("https://gitlab.com"),
            Self::Google => issuer("https://accounts.google.com"),
            // Its ID tokens have no nonce, so what it says of users is asked for as with OAuth.
            Self::Linkedin => endpoints([
                "https://www.linkedin.com/oauth/v2/authorization",
                "https://www.linkedin.com/oauth/v2/accessToken",
                "https://api.linkedin.com/v2/userinfo",
            ]),
            // What is for all organizations names no issuer: each has one of its own.
            Self::Microsoft => endpoints([
                "https://login.microsoftonline.com/common/oauth2/v2.0/authorize",
                "https://login.microsoftonline.com/common/oauth2/v2.0/token",
                "https://graph.microsoft.com/oidc/userinfo",
            ]),
            Self::Twitch => issuer("https://id.twitch.tv/oauth2"),
        }
    }

    /// How it says who somebody is, where it speaks OAuth alone.
    pub fn userinfo_form(self) -> UserinfoForm {
        if self == Self::Github { UserinfoForm::Github } else { UserinfoForm::Claims }
    }

    /// Whether it takes the proof that who asks for tokens is who has sent the visitor, where it speaks OAuth
    /// alone: LinkedIn answers that the secret is wrong. The secret, the state and TLS bind a login there.
    pub fn takes_pkce(self) -> bool {
        self != Self::Linkedin
    }

    /// What it is asked for, unless somebody says otherwise.
    pub fn default_scopes(self, with_groups: bool) -> Vec<String> {
        let scopes: &[&str] = match self {
            Self::Amazon => &["profile"],
            Self::Facebook => &["public_profile", "email"],
            Self::Github if with_groups => &["read:user", "user:email", GROUP_SCOPE],
            Self::Github => &["read:user", "user:email"],
            Self::Gitlab | Self::Google | Self::Linkedin | Self::Microsoft => {
                &["openid", "profile", "email"]
            }
            Self::Twitch => &["openid", "user:read:email"],
        };
        scopes.iter().map(|scope| (*scope).to_owned()).collect()
    }

    /// What it is sent beside the usual when a visitor comes to it: Twitch says no address unless it is asked
    /// for that claim.
    pub fn extra_parameters(self) -> Vec<(String, String)> {
        if self != Self::Twitch {
            return Vec::new();
        }
        let claims =
            r#"{"userinfo":{"email":null,"email_verified":null,"preferred_username":null}}"#;
        vec![("claims".to_owned(), claims.to_owned())]
    }

    /// Whether it says at its public addresses that the address of somebody is verified.
    fn verifies_addresses(self) -> bool {
        !matches!(self, Self::Amazon | Self::Facebook | Self::Microsoft)
    }

    /// Whether it says at its public addresses which groups somebody belongs to.
    pub fn reports_groups(self) -> bool {
        matches!(self, Self::Github | Self::Gitlab)
    }
}

/// Where a provider is, and what the operator has registered there.
#[derive(Debug, PartialEq, Eq)]
pub struct OauthApplication {
    /// Where it is.
    pub provider: LoginProvider,
    /// What it is asked for in the operator's name; what is usual where it is empty.
    pub scopes: Vec<String>,
    /// The operator's client; none where there is none.
    pub client: Option<OauthClient>,
    /// Whether it may say that the address of somebody is verified.
    pub verifies_addresses: bool,
}

/// A client that an operator has registered.
#[derive(Clone, PartialEq, Eq)]
pub struct OauthClient {
    /// What the provider calls it.
    pub id: String,
    /// What it proves that with.
    pub secret: ClientSecret,
}

impl fmt::Debug for OauthClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OauthClient").field("id", &self.id).finish_non_exhaustive()
    }
}

impl OauthApplication {
    /// What everybody knows of a provider.
    pub fn for_provider(provider: OauthProvider) -> Self {
        Self {
            provider: provider.public_provider(),
            scopes: Vec::new(),
            client: None,
            verifies_addresses: provider.verifies_addresses(),
        }
    }
}

/// The applications of an operator, which may change while logins go on.
#[derive(Debug)]
pub struct OauthApplications(ArcSwap<Vec<Arc<OauthApplication>>>);

impl Default for OauthApplications {
    fn default() -> Self {
        Self(ArcSwap::from_pointee(complete_applications(Vec::new())))
    }
}

impl OauthApplications {
    /// What is known of a provider.
    pub fn for_provider(&self, provider: OauthProvider) -> Arc<OauthApplication> {
        let known = self.0.load().get(provider as usize).cloned();
        known.unwrap_or_else(|| Arc::new(OauthApplication::for_provider(provider)))
    }

    /// Takes over what the operator has; of a provider that is not among it, what everybody knows. Gives the
    /// providers at which there is no client any more.
    pub fn replace_all(
        &self,
        applications: Vec<(OauthProvider, OauthApplication)>,
    ) -> Vec<OauthProvider> {
        let clients =
            || OauthProvider::ALL.iter().map(|it| self.for_provider(*it).client.is_some());
        let had = clients().collect::<Vec<_>>();
        self.0.store(Arc::new(complete_applications(applications)));
        let lost = OauthProvider::ALL.iter().zip(had).zip(clients());
        lost.filter(|((_, had), has)| *had && !has).map(|((provider, _), _)| *provider).collect()
    }
}

/// An application for each provider, in their order.
fn complete_applications(
    mut known: Vec<(OauthProvider, OauthApplication)>,
) -> Vec<Arc<OauthApplication>> {
    let application = |provider: &OauthProvider| {
        let at = known.iter().position(|(known, _)| known == provider);
        let application = at.map(|at| known.swap_remove(at).1);
        Arc::new(application.unwrap_or_else(|| OauthApplication::for_provider(*provider)))
    };
    OauthProvider::ALL.iter().map(application).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_provider_is_found_by_its_name() {
        for provider in OauthProvider::ALL {
            assert_eq!(OauthProvider::from_name(provider.name()), Some(*provider));
        }
        assert_eq!(OauthProvider::from_name("Google"), None);
    }

    #[test]
    fn an_application_replaces_what_everybody_knows_of_its_provider_alone() {
        let applications = OauthApplications::default();
        let secret = ClientSecret("hidden".to_owned());
        let client = Some(OauthClient { id: "id".to_owned(), secret });
        let own =
            OauthApplication { client, ..OauthApplication::for_provider(OauthProvider::Google) };

        assert_eq!(applications.replace_all(vec![(OauthProvider::Google, own)]), []);

        assert!(applications.for_provider(OauthProvider::Google).client.is_some());
        assert!(!format!("{applications:?}").contains("hidden"));
        for other in OauthProvider::ALL.iter().filter(|other| **other != OauthProvider::Google) {
            assert_eq!(*applications.for_provider(*other), OauthApplication::for_provider(*other));
        }
        assert_eq!(applications.replace_all(Vec::new()), [OauthProvider::Google]);
        assert_eq!(applications.for_provider(OauthProvider::Google).client, None);
    }
}
