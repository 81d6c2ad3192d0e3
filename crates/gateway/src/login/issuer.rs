//! What issuers publish of themselves, and how they are called.

use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::{ACCEPT, USER_AGENT};
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode};
use serde::Deserialize;
use tokio::task::JoinError;

use ginnel_api::mask;
use ginnel_base::address::WebUrl;
use ginnel_net::{DialRole, Reach};
use ginnel_policy::jwt::{KEYS_OF_LOGINS, KeyRequest, KeySet};
use ginnel_policy::login::{IdTokenError, LoginProvider, is_login_url};
use ginnel_policy::published::Lifetime;
use ginnel_policy::{Fetch, FetchFailed};

use crate::login::records::LoginRecordsError;
use crate::published::Fetcher;
use crate::published::{
    CallLimit, CallLimits, FairCache, KeySetError, KeySets, PublishedCache, TooManyCalls,
};

/// How many issuers are known.
const MAX_ISSUERS: usize = 256;
/// How long a call may take.
const CALL_TIMEOUT: Duration = Duration::from_secs(5);
/// How long an answer may be.
const MAX_ANSWER_BYTES: usize = 256 << 10;
/// How long it is not asked again where everything is.
const METADATA_LIFETIME: Lifetime = Lifetime {
    refresh: Duration::from_secs(60 * 60),
    max_age: Duration::from_secs(24 * 60 * 60),
    after_failure: Duration::from_secs(5),
    after_missing: Duration::ZERO,
};

/// How issuers are shown who calls them.
const OWN_USER_AGENT: &str = concat!("ginnel/", env!("CARGO_PKG_VERSION"));

/// The result of a step of a login.
pub(super) type LoginResult<T> = Result<T, LoginError>;

/// Why nobody is let in.
#[derive(Debug, Clone, thiserror::Error)]
pub(super) enum LoginError {
    #[error("the issuer does not answer: {0}")]
    Unreachable(String),
    #[error(
        "the issuer is at {0}, which is no public address, and the service has no private_issuers"
    )]
    OutOfReach(IpAddr),
    #[error("too many calls to the issuer are on their way")]
    Busy,
    #[error("the issuer has answered what cannot be used: {0}")]
    Unusable(String),
    #[error(transparent)]
    IdToken(#[from] IdTokenError),
    #[error("the issuer has refused: {0}")]
    Refused(String),
    #[error("the session has ended at the issuer")]
    Ended,
    #[error("the login has not begun in this browser, or has ended")]
    UnknownLogin,
    #[error("the tokens of the issuer are too large for a session")]
    TooLarge,
    #[error("sessions cannot be looked up or stored: {0}")]
    Records(#[from] LoginRecordsError),
    #[error("{0}")]
    Internal(String),
}

impl LoginError {
    /// What the visitor is told.
    pub(super) fn response_parts(&self) -> (StatusCode, u16, &'static str) {
        match self {
            Self::Unreachable(_) => {
                (StatusCode::BAD_GATEWAY, 3446, "The issuer that you log in at does not answer.")
            }
            Self::OutOfReach(_) => (
                StatusCode::BAD_GATEWAY,
                3446,
                "The issuer that you log in at has no public address, and this endpoint may ask no others.",
            ),
            Self::Busy => (
                StatusCode::SERVICE_UNAVAILABLE,
                3447,
                "Too many people log in at this moment: try again soon.",
            ),
            Self::Unusable(_) | Self::IdToken(_) => (
                StatusCode::BAD_GATEWAY,
                3448,
                "The issuer has answered what cannot be believed or used.",
            ),
            Self::Refused(_) => (StatusCode::FORBIDDEN, 3449, "The issuer has not let you log in."),
            Self::UnknownLogin | Self::Ended => (
                StatusCode::BAD_REQUEST,
                3442,
                "This login has not begun in this browser, or it was too long ago: open the page again.",
            ),
            Self::TooLarge => (
                StatusCode::BAD_GATEWAY,
                3450,
                "The issuer says more of you than the cookies of a session can hold.",
            ),
            Self::Records(_) => (
                StatusCode::SERVICE_UNAVAILABLE,
                3460,
                "Sessions cannot be looked up or stored at this moment: try again soon.",
            ),
            Self::Internal(_) => (StatusCode::INTERNAL_SERVER_ERROR, 3451, "The login has failed."),
        }
    }
}

impl From<TooManyCalls> for LoginError {
    fn from(_: TooManyCalls) -> Self {
        Self::Busy
    }
}

impl From<FetchFailed> for LoginError {
    fn from(error: FetchFailed) -> Self {
        match error {
            FetchFailed::OutOfReach(address) => Self::OutOfReach(address),
            _ => Self::Unreachable(error.to_string()),
        }
    }
}

impl From<JoinError> for LoginError {
    fn from(error: JoinError) -> Self {
        Self::Internal(error.to_string())
    }
}

impl From<KeySetError> for LoginError {
    fn from(error: KeySetError) -> Self {
        match error {
            KeySetError::Busy(_) => Self::Busy,
            KeySetError::Unusable(reason) => Self::Unusable(reason),
            KeySetError::Internal(reason) => Self::Internal(reason),
            KeySetError::Fetch(error) => error.into(),
            KeySetError::Status { .. } => Self::Unreachable(error.to_string()),
        }
    }
}

/// What an issuer publishes of itself (OpenID Connect Discovery, section 3).
#[derive(Debug, Clone, Deserialize)]
pub(super) struct IssuerMetadata {
    pub issuer: String,
    pub authorization_endpoint: String,
    pub token_endpoint: String,
    pub userinfo_endpoint: Option<String>,
    pub jwks_uri: Option<String>,
    pub token_endpoint_auth_methods_supported: Option<Vec<String>>,
    /// Whether it always says who it is when it sends a visitor back (RFC 9207).
    #[serde(default)]
    pub authorization_response_iss_parameter_supported: bool,
}

/// All issuers that anybody logs in at.
pub(super) struct Issuers {
    known: Mutex<FairCache<(LoginProvider, Reach), IssuerEntry>>,
    fetcher: Arc<Fetcher>,
    key_sets: Arc<KeySets>,
    /// Tells owners of logins from each other.
    hasher: RandomState,
}

/// An issuer, and when somebody needed it last.
struct IssuerEntry {
    issuer: Arc<Issuer>,
    used: Instant,
}

impl Issuers {
    pub(super) fn new(fetcher: Arc<Fetcher>, key_sets: Arc<KeySets>) -> Self {
        let known = Mutex::new(FairCache::new(MAX_ISSUERS));
        Self { known, fetcher, key_sets, hasher: RandomState::new() }
    }

    /// The issuer of a login, which is asked only where it is in reach. It is forgotten first for an owner who
    /// names many; those of the operator, who is none of them, stay.
    pub(super) fn for_provider(
        &self,
        provider: &LoginProvider,
        reach: Reach,
        owner: Option<&Arc<str>>,
    ) -> Arc<Issuer> {
        let new = || {
            let issuer = Issuer {
                provider: provider.clone(),
                reach,
                owner: owner.cloned().unwrap_or_default(),
                fetcher: self.fetcher.clone(),
                key_sets: self.key_sets.clone(),
                login_calls: CallLimits::default(),
                renewal_calls: CallLimits::default(),
                metadata: Arc::default(),
            };
            IssuerEntry { issuer: Arc::new(issuer), used: Instant::now() }
        };
        let name = (self.hasher.hash_one(owner) as u32, (provider.clone(), reach));
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = known.get_or_insert(name, new, |entry| entry.used);
        entry.used = Instant::now();
        entry.issuer.clone()
    }
}

/// An issuer, and what is known of it.
pub(super) struct Issuer {
    pub provider: LoginProvider,
    reach: Reach,
    /// Who was the first to name it; nobody for those of the operator.
    owner: Arc<str>,
    fetcher: Arc<Fetcher>,
    key_sets: Arc<KeySets>,
    /// Of those who log in, who take nothing from those who have: by client, and by the owner of its logins, because
    /// hosts would be as many as visitors make up below a wildcard.
    pub login_calls: CallLimits<(String, Arc<str>)>,
    /// For sessions that are due.
    pub renewal_calls: CallLimits<(String, Arc<str>)>,
    metadata: Arc<PublishedCache<IssuerMetadata, LoginError>>,
}

impl Issuer {
    /// Where everything is.
    pub(super) async fn fetch_metadata(self: &Arc<Self>) -> LoginResult<Arc<IssuerMetadata>> {
        let url = match &self.provider {
            LoginProvider::Issuer(url) => url.clone(),
            LoginProvider::Endpoints(endpoints) => {
                return Ok(Arc::new(IssuerMetadata {
                    issuer: String::new(),
                    authorization_endpoint: endpoints.authorization_url.clone(),
                    token_endpoint: endpoints.token_url.clone(),
                    userinfo_endpoint: Some(endpoints.userinfo_url.clone()),
                    jwks_uri: None,
                    token_endpoint_auth_methods_supported: Some(vec![
                        "client_secret_post".to_owned(),
                    ]),
                    authorization_response_iss_parameter_supported: false,
                }));
            }
        };
        let issuer = self.clone();
        let fetch = async move { issuer.discover_metadata(&url).await };
        self.metadata.get(&METADATA_LIFETIME, false, fetch).await
    }

    async fn discover_metadata(&self, issuer: &str) -> LoginResult<IssuerMetadata> {
        let url = format!("{}/.well-known/openid-configuration", issuer.trim_end_matches('/'));
        let metadata: IssuerMetadata = decode_json(&self.get(&url, None, None).await?)?;
        let unusable = |reason: String| Err(LoginError::Unusable(reason));
        // Else any issuer could speak for another one.
        if metadata.issuer.trim_end_matches('/') != issuer.trim_end_matches('/') {
            return unusable(format!(
                "{} says that it is {}",
                mask::url(issuer),
                mask::url(&metadata.issuer)
            ));
        }
        let endpoints = [Some(&metadata.authorization_endpoint), Some(&metadata.token_endpoint)];
        let endpoints = endpoints.into_iter().flatten().chain(&metadata.userinfo_endpoint);
        let is_secure = issuer.starts_with("https:");
        for url in endpoints.chain(&metadata.jwks_uri) {
            if !is_login_url(url) || is_secure && !url.starts_with("https:") {
                return unusable(format!("{:?} is not an https url", mask::url(url)));
            }
        }
        Ok(metadata)
    }

    /// The keys that it signs with; asked for again where they are known not to be enough.
    pub(super) async fn signing_keys(
        &self,
        metadata: &IssuerMetadata,
        is_missing: bool,
    ) -> LoginResult<Arc<KeySet>> {
        let Some(url) = metadata.jwks_uri.clone() else {
            return Err(LoginError::Unusable("it publishes no keys".to_owned()));
        };
        let request = KeyRequest { url, is_missing, lifetime: KEYS_OF_LOGINS };
        Ok(self.key_sets.get(&request, (&self.owner, self.reach)).await?)
    }

    /// Asks for something with a token, or without one.
    pub(super) async fn get(
        &self,
        url: &str,
        token: Option<&str>,
        slots: Option<&CallLimit>,
    ) -> LoginResult<Response<Bytes>> {
        let mut headers = HeaderMap::new();
        if let Some(token) = token {
            let bearer = HeaderValue::try_from(format!("Bearer {token}"));
            let mut bearer = bearer.map_err(|error| LoginError::Unusable(error.to_string()))?;
            bearer.set_sensitive(true);
            headers.insert(http::header::AUTHORIZATION, bearer);
        }
        let response = self.call((Method::GET, url), headers, Bytes::new(), slots).await?;
        match response.status() {
            StatusCode::OK => Ok(response),
            StatusCode::UNAUTHORIZED if token.is_some() => Err(LoginError::Ended),
            status => Err(LoginError::Unreachable(format!("{} answers {status}", mask::url(url)))),
        }
    }

    /// Calls the issuer, together with not too many others where there are slots for them.
    pub(super) async fn call(
        &self,
        (method, url): (Method, &str),
        mut headers: HeaderMap,
        body: Bytes,
        slots: Option<&CallLimit>,
    ) -> LoginResult<Response<Bytes>> {
        let _places = match slots {
            Some(slots) => Some(slots.acquire().await?),
            None => None,
        };
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        // Some providers answer nobody who does not say what they are.
        headers.insert(USER_AGENT, HeaderValue::from_static(OWN_USER_AGENT));
        let url = WebUrl::parse(url)
            .map_err(|problem| LoginError::Unusable(format!("{:?} {problem}", mask::url(url))))?;
        let fetch = Fetch {
            method,
            url,
            headers,
            body,
            timeout: CALL_TIMEOUT,
            limit: MAX_ANSWER_BYTES,
            max_redirects: 0,
            attempt: 1,
        };
        let fetched = self.fetcher.fetch(&fetch, DialRole::Login, self.reach).await;
        fetched.map_err(LoginError::from)
    }
}

/// Reads an answer in JSON.
pub(super) fn decode_json<T: for<'de> Deserialize<'de>>(
    response: &Response<Bytes>,
) -> LoginResult<T> {
    serde_json::from_slice(response.body()).map_err(|error| LoginError::Unusable(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_has_the_issuers_of_others_forgotten() {
        let fetcher = Arc::<Fetcher>::default();
        let issuers = Issuers::new(fetcher.clone(), KeySets::new(fetcher));
        let of = |name: &str, owner: Option<&str>| {
            let provider = LoginProvider::Issuer(format!("https://{name}.example"));
            issuers.for_provider(&provider, Reach::Public, owner.map(Arc::from).as_ref())
        };
        let (of_operator, of_small) = (of("google", None), of("small", Some("small")));

        for number in 0..3 * MAX_ISSUERS {
            of(&number.to_string(), Some("large"));
        }

        assert!(Arc::ptr_eq(&of_operator, &of("google", None)));
        assert!(Arc::ptr_eq(&of_small, &of("small", Some("small"))));
        assert!(issuers.known.lock().is_ok_and(|known| known.iter().count() <= MAX_ISSUERS));
    }
}
