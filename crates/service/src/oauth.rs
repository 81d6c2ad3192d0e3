//! Clients that the operator has registered at providers of OAuth, for policies that name none.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use ginnel_api::{Secret, mask};
use ginnel_base::address::with_ascii_host;
use ginnel_policy::login::{
    ClientSecret, Endpoints, LoginProvider, OauthApplication, OauthClient, OauthProvider,
    is_login_url,
};
use ginnel_settings::{HasPart, Setting, setting};

use super::Error;
use super::secret_files::read_secret;

/// What the operator says of one provider: the client there, and where the provider is if that is not where
/// everybody finds it.
#[derive(Debug, Clone, Default)]
pub struct OauthProviderOptions {
    /// What the provider calls the operator's client; without one, policies must name their own.
    pub client_id: Option<String>,
    /// What the client proves that with.
    pub client_secret: Option<Secret>,
    /// A file that holds it.
    pub client_secret_file: Option<PathBuf>,
    /// An issuer of OpenID Connect in place of the provider.
    pub issuer_url: Option<String>,
    /// Where visitors are sent, where nothing publishes it.
    pub authorization_url: Option<String>,
    /// Where codes are exchanged for tokens.
    pub token_url: Option<String>,
    /// Where it is said who somebody is.
    pub userinfo_url: Option<String>,
    /// What the provider is asked for in the operator's name.
    pub scopes: Vec<String>,
}

/// The keys of the settings of one provider.
struct ProviderKeys {
    client_id: &'static str,
    client_secret: &'static str,
    client_secret_file: &'static str,
    issuer_url: &'static str,
    authorization_url: &'static str,
    token_url: &'static str,
    userinfo_url: &'static str,
    scopes: &'static str,
}

macro_rules! options {
    ($($(#[doc = $doc:literal])+ $provider:ident: $Provider:ident,)+) => {
        /// What the operator says of each provider.
        #[derive(Debug, Clone, Default)]
        pub struct OauthOptions {
            $($(#[doc = $doc])+ pub $provider: OauthProviderOptions,)+
        }

        impl OauthOptions {
            fn all(&self) -> impl Iterator<Item = (OauthProvider, ProviderKeys, &OauthProviderOptions)> {
                [$((
                    OauthProvider::$Provider,
                    options!(@keys $provider),
                    &self.$provider,
                )),+].into_iter()
            }
        }
    };
    (@keys $provider:ident) => {
        ProviderKeys {
            client_id: concat!("oauth.", stringify!($provider), ".client_id"),
            client_secret: concat!("oauth.", stringify!($provider), ".client_secret"),
            client_secret_file: concat!("oauth.", stringify!($provider), ".client_secret_file"),
            issuer_url: concat!("oauth.", stringify!($provider), ".issuer_url"),
            authorization_url: concat!("oauth.", stringify!($provider), ".authorization_url"),
            token_url: concat!("oauth.", stringify!($provider), ".token_url"),
            userinfo_url: concat!("oauth.", stringify!($provider), ".userinfo_url"),
            scopes: concat!("oauth.", stringify!($provider), ".scopes"),
        }
    };
}

options! {
    /// Amazon.
    amazon: Amazon,
    /// Facebook.
    facebook: Facebook,
    /// GitHub.
    github: Github,
    /// GitLab.
    gitlab: Gitlab,
    /// Google.
    google: Google,
    /// LinkedIn.
    linkedin: Linkedin,
    /// Microsoft.
    microsoft: Microsoft,
    /// Twitch.
    twitch: Twitch,
}

/// A row of a provider; the command line has no flags for so many.
macro_rules! provider_row {
    ($provider:ident, $field:ident: $type:ty, $value:literal, $doc:literal) => {
        setting!(
            C as OauthOptions,
            $provider.$field: $type,
            concat!("oauth.", stringify!($provider), ".", stringify!($field)),
            $value,
            $doc
        )
        .without_flag()
        .live()
    };
}

macro_rules! provider_rows {
    ($($provider:ident),+) => {
        &[$(
            provider_row!(
                $provider, client_id: Option<String>, "ID",
                "The client that policies use which name this provider and no client of their own"
            ),
            provider_row!($provider, client_secret: Option<Secret>, "SECRET", "The secret of that client"),
            provider_row!($provider, client_secret_file: Option<PathBuf>, "FILE", "A file that holds that secret"),
            provider_row!(
                $provider, scopes: Vec<String>, "SCOPE",
                "Scopes to request with that client, if not the usual ones"
            ),
            provider_row!(
                $provider, issuer_url: Option<String>, "URL",
                "An issuer of OpenID Connect that stands for the provider, also for clients of policies"
            ),
            provider_row!(
                $provider, authorization_url: Option<String>, "URL",
                "The URL where visitors log in, if the provider is elsewhere"
            ),
            provider_row!(
                $provider, token_url: Option<String>, "URL",
                "The URL that exchanges codes for tokens, if the provider is elsewhere"
            ),
            provider_row!(
                $provider, userinfo_url: Option<String>, "URL",
                "The URL that returns a user's identity, if the provider is elsewhere"
            )
        ),+]
    };
}

impl OauthOptions {
    /// The settings of each provider.
    pub const fn rows<C: HasPart<Self> + 'static>() -> &'static [Setting<C>] {
        const { provider_rows!(amazon, facebook, github, gitlab, google, linkedin, microsoft, twitch) }
    }

    /// The applications that follow; reads the files with secrets.
    ///
    /// # Errors
    /// The first thing that is wrong with a setting, or a file that cannot be read.
    pub(super) fn applications(&self) -> Result<Vec<(OauthProvider, OauthApplication)>, Error> {
        let all = self.all();
        all.map(|(provider, keys, options)| {
            Ok((provider, options.to_application(provider, &keys)?))
        })
        .collect()
    }

    /// The files with secrets.
    pub(super) fn secret_files(&self) -> impl Iterator<Item = &Path> {
        self.all().filter_map(|(.., options)| options.client_secret_file.as_deref())
    }
}

impl OauthProviderOptions {
    fn to_application(
        &self,
        provider: OauthProvider,
        keys: &ProviderKeys,
    ) -> Result<OauthApplication, Error> {
        let public = OauthApplication::for_provider(provider);
        let place = self.resolve_provider(provider, keys)?;
        let is_scope =
            |scope: &String| !scope.is_empty() && scope.bytes().all(|it| it.is_ascii_graphic());
        if let Some(scope) = self.scopes.iter().find(|scope| !is_scope(scope)) {
            let problem = format!("{:?} is not a scope", mask::login(scope));
            return Err(Error::invalid_setting(keys.scopes, problem));
        }
        let client = self.resolve_client(keys)?;
        let provider_at = place.as_ref().unwrap_or(&public.provider);
        if !provider_at.takes_pkce() && client.as_ref().is_some_and(|it| it.secret.0.is_empty()) {
            let problem = format!("is required: {} takes no other proof", provider.name());
            return Err(Error::invalid_setting(keys.client_secret, problem));
        }
        if client.as_ref().is_some_and(|it| it.secret.0.is_empty()) {
            tracing::warn!(
                setting = keys.client_secret,
                "there is none: whoever may write policies can use the client in a name of their own"
            );
        }
        if client.is_none() && !self.scopes.is_empty() {
            let problem = format!("is for the client of {}, which is missing", keys.client_id);
            return Err(Error::invalid_setting(keys.scopes, problem));
        }
        Ok(OauthApplication {
            verifies_addresses: match &place {
                Some(place) => place.may_verify_addresses(),
                None => public.verifies_addresses,
            },
            provider: place.unwrap_or(public.provider),
            scopes: self.scopes.clone(),
            client,
        })
    }

    fn resolve_client(&self, keys: &ProviderKeys) -> Result<Option<OauthClient>, Error> {
        let (secret, key) = match (&self.client_secret, &self.client_secret_file) {
            (Some(_), Some(_)) => {
                let problem = format!("{} is there as well: give one of them", keys.client_secret);
                return Err(Error::invalid_setting(keys.client_secret_file, problem));
            }
            (None, Some(file)) => {
                let secret = read_secret(file);
                let secret = secret.map_err(|error| {
                    Error::invalid_setting(keys.client_secret_file, error.to_string())
                })?;
                (Some(secret), keys.client_secret_file)
            }
            (secret, None) => (secret.clone(), keys.client_secret),
        };
        match (&self.client_id, secret) {
            (None, None) => Ok(None),
            (None, Some(_)) => {
                let problem = format!("is of no use without {}", keys.client_id);
                Err(Error::invalid_setting(key, problem))
            }
            (Some(id), _) if id.trim().is_empty() => {
                Err(Error::invalid_setting(keys.client_id, "must not be empty"))
            }
            (Some(_), Some(secret)) if secret.0.is_empty() => {
                Err(Error::invalid_setting(key, "must not be empty"))
            }
            (Some(id), secret) => {
                let secret = ClientSecret(secret.map(|secret| secret.0).unwrap_or_default());
                Ok(Some(OauthClient { id: id.clone(), secret }))
            }
        }
    }

    /// Where the operator says that the provider is.
    fn resolve_provider(
        &self,
        provider: OauthProvider,
        keys: &ProviderKeys,
    ) -> Result<Option<LoginProvider>, Error> {
        let urls = [&self.authorization_url, &self.token_url, &self.userinfo_url];
        let named = [
            (keys.issuer_url, &self.issuer_url),
            (keys.authorization_url, &self.authorization_url),
            (keys.token_url, &self.token_url),
            (keys.userinfo_url, &self.userinfo_url),
        ];
        let mut named = named.into_iter().filter_map(|(key, url)| Some((key, url.as_ref()?)));
        if let Some((key, url)) = named.find(|(_, url)| !is_login_url(url)) {
            // The part before the host may be a password.
            let problem = match url.contains('@') {
                true => "must name no user".to_owned(),
                false => format!(
                    "{:?} is not an https url, or an http url of this machine",
                    mask::url(url)
                ),
            };
            return Err(Error::invalid_setting(key, problem));
        }
        match (&self.issuer_url, urls) {
            (issuer, [None, None, None]) => {
                let ascii = |url: &String| with_ascii_host(url).map(Cow::into_owned);
                let issuer = issuer.as_ref().and_then(|url| ascii(url).ok());
                Ok(issuer.map(LoginProvider::Issuer))
            }
            (None, [Some(authorization_url), Some(token_url), Some(userinfo_url)]) => {
                Ok(Some(LoginProvider::Endpoints(Endpoints {
                    authorization_url: authorization_url.clone(),
                    token_url: token_url.clone(),
                    userinfo_url: userinfo_url.clone(),
                    userinfo_form: provider.userinfo_form(),
                    takes_pkce: provider.takes_pkce(),
                })))
            }
            (Some(_), _) => {
                let problem = "says where everything is: leave the other URLs out";
                Err(Error::invalid_setting(keys.issuer_url, problem))
            }
            (None, _) => {
                let problem = "authorization_url, token_url and userinfo_url are given together";
                Err(Error::invalid_setting(keys.authorization_url, problem))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn application(
        change: impl FnOnce(&mut OauthProviderOptions),
    ) -> Result<OauthApplication, String> {
        let mut options = OauthOptions::default();
        change(&mut options.github);
        let applications = options.applications().map_err(|error| error.to_string())?;
        let github = applications.into_iter().find(|(name, _)| *name == OauthProvider::Github);
        Ok(github.unwrap().1)
    }

    #[test]
    fn each_problem_names_its_setting() {
        for (change, problem) in [
            (
                (|it| it.client_secret = Some(Secret("s".into()))) as fn(&mut OauthProviderOptions),
                "oauth.github.client_secret: is of no use without oauth.github.client_id",
            ),
            (|it| it.client_id = Some(" ".into()), "oauth.github.client_id: must not be empty"),
            (|it| it.scopes = vec!["a".into()], "oauth.github.scopes: is for the client"),
            (
                |it| it.issuer_url = Some("http://a.example".into()),
                "oauth.github.issuer_url: \"http:",
            ),
            (
                |it| it.token_url = Some("https://a.example".into()),
                "oauth.github.authorization_url: a",
            ),
            (
                |it| it.token_url = Some("http://a.example".into()),
                "oauth.github.token_url: \"http:",
            ),
            (
                |it| it.userinfo_url = Some("https://me:swordfish@a.example".into()),
                "oauth.github.userinfo_url: must name no user",
            ),
            (
                |it| {
                    it.client_id = Some("a".into());
                    it.client_secret_file = Some("/nowhere/at/all".into());
                },
                "oauth.github.client_secret_file: ",
            ),
        ] {
            let found = application(change).unwrap_err();
            assert!(found.starts_with(problem), "{found}");
        }
    }

    #[test]
    fn a_name_can_be_pointed_elsewhere_without_a_client() {
        let own = application(|it| it.issuer_url = Some("https://git.example".into())).unwrap();

        assert_eq!(own.provider, LoginProvider::Issuer("https://git.example".into()));
        assert_eq!((own.client, own.verifies_addresses), (None, true));
    }

    #[test]
    fn an_organization_at_microsoft_verifies_no_address() {
        for (issuer, verifies) in [
            ("https://login.microsoftonline.com/8ea1/v2.0", false),
            ("https://Login.MicrosoftOnline.us/8ea1/v2.0", false),
            ("https://sts.windows.net/8ea1/", false),
            ("https://login.microsoftonline.com./8ea1/v2.0", false),
            ("https://tea.ciamlogin.com/8ea1/v2.0", false),
            ("https://tea.b2clogin.com/tea.onmicrosoft.com/policy/v2.0/", false),
            ("https://notmicrosoftonline.com/", true),
            ("https://login.microsoftonline.com.example/", true),
        ] {
            let own = application(|it| it.issuer_url = Some(issuer.to_owned())).unwrap();

            assert_eq!(own.verifies_addresses, verifies, "{issuer}");
        }
    }
}
