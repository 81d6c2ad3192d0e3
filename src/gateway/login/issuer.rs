//! What issuers publish of themselves, and how they are called.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, USER_AGENT};
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode};
use serde::Deserialize;
use tokio::sync::{AcquireError, Semaphore, SemaphorePermit};

use crate::gateway::login::cache::PublishedCache;
use crate::gateway::login::records::LoginRecordsError;
use crate::gateway::modules::traffic_policy::Fetcher;
use crate::net::Reach;
use crate::policy::Fetch;
use crate::policy::jwt::KeySet;
use crate::policy::login::{IdTokenError, LoginProvider, is_login_url};

/// How many issuers are known.
const MAX_ISSUERS: usize = 256;
/// How many calls to one issuer are on their way, for one client and one owner of its logins: those of logins, and
/// as many for sessions that are due.
const MAX_CALLS: usize = 8;
/// How many of each kind there are for all of them: an issuer would lock a client out that calls without end.
const MAX_ISSUER_CALLS: usize = 64;
/// For how many clients and owners it is known how many there are, before those without any are forgotten.
const MAX_CALLERS: usize = 1024;
/// How long a call may wait for others.
const QUEUE_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a call may take.
const CALL_TIMEOUT: Duration = Duration::from_secs(5);
/// How long an answer may be.
const MAX_ANSWER_BYTES: usize = 256 << 10;
/// How long it is not asked again where everything is, and with which keys it signs.
const METADATA_TTL: Duration = Duration::from_secs(60 * 60);
const KEYS_TTL: Duration = Duration::from_secs(15 * 60);
/// How often it is asked for a key that it did not have.
const MISSING_KEY_TIMEOUT: Duration = Duration::from_secs(10);

/// What issuers are told of who calls them.
const PROGRAM: &str = concat!("ginnel/", env!("CARGO_PKG_VERSION"));

/// Why nobody is let in.
#[derive(Debug, Clone, thiserror::Error)]
pub(super) enum LoginError {
    #[error("the issuer does not answer: {0}")]
    Unreachable(String),
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
    pub(super) fn answer(&self) -> (StatusCode, u16, &'static str) {
        match self {
            Self::Unreachable(_) => {
                (StatusCode::BAD_GATEWAY, 3446, "The issuer that you log in at does not answer.")
            }
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
    known: Mutex<HashMap<(LoginProvider, Reach), Arc<Issuer>>>,
    fetcher: Arc<Fetcher>,
}

impl Issuers {
    pub(super) fn new(fetcher: Arc<Fetcher>) -> Self {
        Self { known: Mutex::default(), fetcher }
    }

    /// The issuer of a login, which is asked only where it is in reach.
    pub(super) fn of(&self, provider: &LoginProvider, reach: Reach) -> Arc<Issuer> {
        let name = (provider.clone(), reach);
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(issuer) = known.get(&name) {
            return issuer.clone();
        }
        if known.len() >= MAX_ISSUERS {
            // Those that somebody uses at this moment stay.
            known.retain(|_, issuer| Arc::strong_count(issuer) > 1);
        }
        let issuer = Arc::new(Issuer {
            provider: provider.clone(),
            reach,
            fetcher: self.fetcher.clone(),
            callers: Mutex::default(),
            totals: std::array::from_fn(|_| Arc::new(Semaphore::new(MAX_ISSUER_CALLS))),
            metadata: PublishedCache::new(METADATA_TTL),
            keys: PublishedCache::new(KEYS_TTL),
        });
        known.insert(name, issuer.clone());
        issuer
    }
}

/// How many calls for one client, and for one owner of its logins, may be on their way: those who log in take
/// nothing from those who have.
pub(super) struct CallSlots {
    pub logins: CallLimit,
    pub renewals: CallLimit,
}

/// How many calls of one kind there may be: for one client and owner, and for all of them.
pub(super) struct CallLimit {
    own: Semaphore,
    total: Arc<Semaphore>,
}

impl CallLimit {
    fn new(total: &Arc<Semaphore>) -> Self {
        Self { own: Semaphore::new(MAX_CALLS), total: total.clone() }
    }

    /// Waits for a place; for one among all last, so that nobody holds one up who waits for their own.
    async fn acquire(&self) -> Result<[SemaphorePermit<'_>; 2], LoginError> {
        let places = async { Ok([self.own.acquire().await?, self.total.acquire().await?]) };
        let places: Result<Result<_, AcquireError>, _> =
            tokio::time::timeout(QUEUE_TIMEOUT, places).await;
        places.map_err(|_| LoginError::Busy)?.map_err(|_| LoginError::Busy)
    }
}

/// An issuer, and what is known of it.
pub(super) struct Issuer {
    pub provider: LoginProvider,
    reach: Reach,
    fetcher: Arc<Fetcher>,
    callers: Mutex<HashMap<(String, String), Weak<CallSlots>>>,
    /// For all logins, and for all renewals.
    totals: [Arc<Semaphore>; 2],
    metadata: Arc<PublishedCache<IssuerMetadata>>,
    keys: Arc<PublishedCache<KeySet>>,
}

impl Issuer {
    /// The slots of a client, for an owner of its logins: hosts would be as many as visitors make up below a
    /// wildcard.
    pub(super) fn slots(&self, client_id: &str, owner: &str) -> Arc<CallSlots> {
        let name = (client_id.to_owned(), owner.to_owned());
        let mut callers = self.callers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(slots) = callers.get(&name).and_then(Weak::upgrade) {
            return slots;
        }
        if callers.len() >= MAX_CALLERS {
            callers.retain(|_, slots| slots.strong_count() > 0);
        }
        let [logins, renewals] = self.totals.each_ref().map(CallLimit::new);
        let slots = Arc::new(CallSlots { logins, renewals });
        callers.insert(name, Arc::downgrade(&slots));
        slots
    }

    /// Where everything is.
    pub(super) async fn metadata(self: &Arc<Self>) -> Result<Arc<IssuerMetadata>, LoginError> {
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
        self.metadata.get(|_| false, async move { issuer.discover(&url).await }).await
    }

    async fn discover(&self, issuer: &str) -> Result<IssuerMetadata, LoginError> {
        let url = format!("{}/.well-known/openid-configuration", issuer.trim_end_matches('/'));
        let metadata: IssuerMetadata = read(&self.get(&url, None, None).await?)?;
        let unusable = |reason: String| Err(LoginError::Unusable(reason));
        // Else any issuer could speak for another one.
        if metadata.issuer.trim_end_matches('/') != issuer.trim_end_matches('/') {
            return unusable(format!("{issuer} says that it is {}", metadata.issuer));
        }
        let endpoints = [Some(&metadata.authorization_endpoint), Some(&metadata.token_endpoint)];
        let endpoints = endpoints.into_iter().flatten().chain(&metadata.userinfo_endpoint);
        let is_secure = issuer.starts_with("https:");
        for url in endpoints.chain(&metadata.jwks_uri) {
            if !is_login_url(url) || is_secure && !url.starts_with("https:") {
                return unusable(format!("{url:?} is not an https url"));
            }
        }
        Ok(metadata)
    }

    /// The keys that it signs with; asked for again where they are known not to be enough.
    pub(super) async fn keys(
        self: &Arc<Self>,
        metadata: &IssuerMetadata,
        is_missing: bool,
    ) -> Result<Arc<KeySet>, LoginError> {
        let Some(url) = &metadata.jwks_uri else {
            return Err(LoginError::Unusable("it publishes no keys".to_owned()));
        };
        let is_old = |age: Duration| is_missing && age >= MISSING_KEY_TIMEOUT;
        let (issuer, url) = (self.clone(), url.clone());
        let fetch = async move {
            let response = issuer.get(&url, None, None).await?;
            KeySet::parse(response.body()).map_err(|error| LoginError::Unusable(error.to_string()))
        };
        self.keys.get(is_old, fetch).await
    }

    /// Asks for something with a token, or without one.
    pub(super) async fn get(
        &self,
        url: &str,
        token: Option<&str>,
        slots: Option<&CallLimit>,
    ) -> Result<Response<Bytes>, LoginError> {
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
            status => Err(LoginError::Unreachable(format!("{url} answers {status}"))),
        }
    }

    /// Calls the issuer, together with not too many others where there are slots for them.
    pub(super) async fn call(
        &self,
        (method, url): (Method, &str),
        mut headers: HeaderMap,
        body: Bytes,
        slots: Option<&CallLimit>,
    ) -> Result<Response<Bytes>, LoginError> {
        let _places = match slots {
            Some(slots) => Some(slots.acquire().await?),
            None => None,
        };
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        // Some providers answer nobody who does not say what they are.
        headers.insert(USER_AGENT, HeaderValue::from_static(PROGRAM));
        let fetch = Fetch {
            method,
            url: url.to_owned(),
            headers,
            body,
            timeout: CALL_TIMEOUT,
            limit: MAX_ANSWER_BYTES,
            max_redirects: 0,
            attempt: 1,
        };
        let fetched = self.fetcher.fetch(&fetch, self.reach).await;
        fetched.map_err(|error| LoginError::Unreachable(error.to_string()))
    }
}

/// Reads an answer in JSON.
pub(super) fn read<T: for<'de> Deserialize<'de>>(
    response: &Response<Bytes>,
) -> Result<T, LoginError> {
    serde_json::from_slice(response.body()).map_err(|error| LoginError::Unusable(error.to_string()))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn all_owners_of_logins_together_call_an_issuer_a_bounded_number_of_times() {
        let provider = LoginProvider::Issuer("https://issuer.example".to_owned());
        let issuer = Issuers::new(Arc::default()).of(&provider, Reach::Public);
        let slots = |owner: usize| issuer.slots("client", &owner.to_string());
        let all: Vec<_> = (0..=MAX_ISSUER_CALLS / MAX_CALLS).map(slots).collect();
        let (last, others) = all.split_last().unwrap();
        let mut held = Vec::new();
        for _ in 0..MAX_CALLS {
            for other in others {
                held.push(other.logins.acquire().await.unwrap());
            }
        }
        let soon = Duration::from_millis(50);

        assert!(tokio::time::timeout(soon, last.logins.acquire()).await.is_err());
        assert!(last.renewals.acquire().await.is_ok());
        held.pop();
        assert!(last.logins.acquire().await.is_ok());
    }
}
