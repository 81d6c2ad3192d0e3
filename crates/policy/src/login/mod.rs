//! Logins of visitors: what a configuration asks for, what an issuer says of somebody, and what of both
//! the rules and the upstream see.
//!
//! Pure, as all of the policy: [`actions`](super::actions) ask for a [`LoginRequest`] to be answered, and
//! whoever runs the rules talks to the issuer and seals the cookies.

mod allow;
mod browser;
mod config;
mod cookies;
mod id_token;
mod identity;
mod outcome;
mod provider;
mod providers;
mod visit;

pub use self::allow::AllowRules;
pub use self::browser::{LoginBrowser, LoginLocation};
pub use self::config::{LoginConfig, LoginKind, NOT_ALLOWED, is_login_url};
pub use self::cookies::{
    CookieKind, MAX_COOKIE_CHUNKS, WithheldCookies, cookie_name, has_login_cookie, withhold_cookies,
};
pub use self::id_token::{ExpectedToken, IdTokenError, verify_id_token};
pub use self::identity::Identity;
pub use self::outcome::{Admission, LoginOutcome, LoginRequest};
pub use self::provider::{
    ADDRESS_SCOPES, ClientSecret, Endpoints, GROUP_SCOPES, LoginProvider, OPENID, UserinfoForm,
};
pub use self::providers::{OauthApplication, OauthApplications, OauthClient, OauthProvider};
pub use self::visit::{
    CALLBACK_PATH, LOGIN_PATH, LOGOUT_PATH, LoginVisit, VisitKind, is_login_path,
};
