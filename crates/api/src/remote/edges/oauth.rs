//! What the OAuth module of routes holds.

use crate::Secret;
use crate::macros::wire;

wire! {
    /// Lets only visitors in who have logged in at a provider of OAuth.
    pub struct Oauth {
        /// False to switch the module off without forgetting it; true when unspecified.
        pub enabled: Option<bool>,
        /// The provider, with the client and with who may come in.
        pub provider: Option<OauthLogins>,
        /// True to let preflights of CORS pass without a login.
        pub options_passthrough: Option<bool>,
        /// Prefix of the names of the cookies.
        #[public(text)]
        pub cookie_prefix: Option<String>,
        /// After how many seconds without a request a session ends; 0 or unspecified for a day.
        pub inactivity_timeout: Option<i64>,
        /// After how many seconds a session ends in any case; 0 or unspecified for 14 days.
        pub maximum_duration: Option<i64>,
        /// Seconds until the provider verifies the visitor again; 0 or unspecified for never.
        pub auth_check_interval: Option<i64>,
    }

    /// The provider of an OAuth module: exactly one of these.
    pub struct OauthLogins {
        /// Log in with GitHub.
        pub github: Option<OauthGithubLogin>,
        /// Log in with Facebook.
        pub facebook: Option<OauthLogin>,
        /// Log in with Microsoft.
        pub microsoft: Option<OauthLogin>,
        /// Log in with Google.
        pub google: Option<OauthLogin>,
        /// Log in with LinkedIn.
        pub linkedin: Option<OauthLogin>,
        /// Log in with GitLab.
        pub gitlab: Option<OauthLogin>,
        /// Log in with Twitch.
        pub twitch: Option<OauthLogin>,
        /// Log in with Amazon.
        pub amazon: Option<OauthLogin>,
    }

    /// A client at a provider, and who may come in: everybody, or whoever is on a list.
    pub struct OauthLogin {
        /// What the provider calls the client; that of the service's operator when unspecified.
        #[public(text)]
        pub client_id: Option<String>,
        /// What the client proves with that it is the one; goes with `client_id`.
        pub client_secret: Option<Secret>,
        /// What the provider is asked for; needs a `client_id`.
        #[public(text)]
        pub scopes: Option<Vec<String>>,
        /// Email addresses that may come in; those that the provider has verified count.
        pub email_addresses: Option<Vec<String>>,
        /// Domains of email addresses that may come in.
        pub email_domains: Option<Vec<String>>,
    }

    /// A client at GitHub, and who may come in: everybody, or whoever is on a list.
    pub struct OauthGithubLogin {
        /// What GitHub calls the client; that of the service's operator when unspecified.
        #[public(text)]
        pub client_id: Option<String>,
        /// What the client proves with that it is the one; goes with `client_id`.
        pub client_secret: Option<Secret>,
        /// What GitHub is asked for; needs a `client_id`.
        #[public(text)]
        pub scopes: Option<Vec<String>>,
        /// Email addresses that may come in; those that GitHub has verified count.
        pub email_addresses: Option<Vec<String>>,
        /// Domains of email addresses that may come in.
        pub email_domains: Option<Vec<String>>,
        /// Teams whose members may come in, as `organization/team`.
        pub teams: Option<Vec<String>>,
        /// Organizations whose members may come in.
        pub organizations: Option<Vec<String>>,
    }
}
