//! The keys that issuers sign with, for logins and for policies that check tokens.
//!
//! What is known is used at once, and one task asks for newer ones. Whoever makes the gateway ask has entries of
//! their own, and a share of them all: nobody waits for, or forgets, what others ask for.

use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::{ACCEPT, USER_AGENT};
use http::{HeaderMap, HeaderValue, Method};

use ginnel_api::mask;
use ginnel_base::address::WebUrl;
use ginnel_net::{DialRole, Reach};
use ginnel_policy::jwt::{KeyRequest, KeySet};
use ginnel_policy::{Fetch, FetchFailed};

use crate::published::Fetcher;
use crate::published::{CallLimits, FairCache, PublishedCache, TooManyCalls};

/// How many sets are known, of all owners.
const MAX_KEY_SETS: usize = 1024;
/// How long a call may take.
const CALL_TIMEOUT: Duration = Duration::from_secs(5);
/// How long an answer may be.
const MAX_ANSWER_BYTES: usize = 256 << 10;
/// How issuers are shown who calls them.
const PROGRAM: &str = concat!("ginnel/", env!("CARGO_PKG_VERSION"));

/// Why there are no keys.
#[derive(Debug, Clone, thiserror::Error)]
pub enum KeySetError {
    #[error(transparent)]
    Fetch(#[from] FetchFailed),
    #[error("{} answers {status}", mask::url(.url))]
    Status { url: String, status: http::StatusCode },
    #[error("{0}")]
    Unusable(String),
    #[error(transparent)]
    Busy(#[from] TooManyCalls),
    #[error("{0}")]
    Internal(String),
}

impl From<tokio::task::JoinError> for KeySetError {
    fn from(error: tokio::task::JoinError) -> Self {
        Self::Internal(error.to_string())
    }
}

/// Who has the gateway ask for keys, and where they are.
#[derive(Clone, PartialEq, Eq, Hash)]
struct KeySource {
    owner: Arc<str>,
    url: String,
    reach: Reach,
}

/// The keys of a source, and when somebody needed them last.
struct KeySetEntry {
    keys: Arc<PublishedCache<KeySet, KeySetError>>,
    used: Instant,
}

/// The keys of all sources that anybody needs.
pub struct KeySets {
    known: Mutex<FairCache<KeySource, KeySetEntry>>,
    limits: Arc<CallLimits<Arc<str>>>,
    fetcher: Arc<Fetcher>,
    /// Tells owners from each other.
    hasher: RandomState,
}

impl KeySets {
    pub fn new(fetcher: Arc<Fetcher>) -> Arc<Self> {
        Arc::new(Self {
            known: Mutex::new(FairCache::new(MAX_KEY_SETS)),
            limits: Arc::default(),
            fetcher,
            hasher: RandomState::new(),
        })
    }

    /// The keys of a source, for an owner, who may have it asked as far as that is in reach.
    ///
    /// # Errors
    /// When none are known that may still be used, and the source gives none.
    pub async fn get(
        &self,
        request: &KeyRequest,
        (owner, reach): (&Arc<str>, Reach),
    ) -> Result<Arc<KeySet>, KeySetError> {
        let source = KeySource { owner: owner.clone(), url: request.url.clone(), reach };
        let keys = self.cache_entry(&source);
        let limit = self.limits.for_caller(source.owner);
        let (fetcher, url) = (self.fetcher.clone(), source.url);
        let fetch = async move {
            let _place = limit.acquire().await?;
            fetch_key_set(&fetcher, url, reach).await
        };
        keys.get(&request.lifetime, request.is_missing, fetch).await
    }

    fn cache_entry(&self, source: &KeySource) -> Arc<PublishedCache<KeySet, KeySetError>> {
        let owner = self.hasher.hash_one(&source.owner) as u32;
        let new = || KeySetEntry { keys: Arc::default(), used: Instant::now() };
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = known.get_or_insert((owner, source.clone()), new, |entry| entry.used);
        entry.used = Instant::now();
        entry.keys.clone()
    }
}

async fn fetch_key_set(
    fetcher: &Fetcher,
    url: String,
    reach: Reach,
) -> Result<KeySet, KeySetError> {
    let parsed = WebUrl::parse_with_login(&url)
        .map_err(|problem| KeySetError::Unusable(format!("{:?} {problem}", mask::url(&url))))?;
    let fetch = Fetch {
        method: Method::GET,
        url: parsed,
        headers: HeaderMap::from_iter([
            (ACCEPT, HeaderValue::from_static("application/json")),
            // Some providers answer nobody who does not say what they are.
            (USER_AGENT, HeaderValue::from_static(PROGRAM)),
        ]),
        body: Bytes::new(),
        timeout: CALL_TIMEOUT,
        limit: MAX_ANSWER_BYTES,
        max_redirects: 0,
        attempt: 1,
    };
    let answer = fetcher.fetch(&fetch, DialRole::Policy, reach).await?;
    if !answer.status().is_success() {
        return Err(KeySetError::Status { url, status: answer.status() });
    }
    KeySet::parse(answer.body()).map_err(|error| KeySetError::Unusable(error.to_string()))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;
    use ginnel_policy::jwt::KEYS_OF_TOKENS;

    /// A source without keys, and how often it was asked.
    async fn source() -> (String, Arc<AtomicUsize>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/keys", listener.local_addr().unwrap());
        let asked = Arc::new(AtomicUsize::default());
        let counted = asked.clone();
        tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                counted.fetch_add(1, Ordering::Relaxed);
                tokio::time::sleep(Duration::from_millis(50)).await;
                let _ = stream.read(&mut [0; 4096]).await.unwrap();
                let answer = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 11\r\n\r\n{\"keys\":[]}";
                stream.write_all(answer).await.unwrap();
            }
        });
        (url, asked)
    }

    fn request(url: &str) -> KeyRequest {
        KeyRequest { url: url.to_owned(), is_missing: false, lifetime: KEYS_OF_TOKENS }
    }

    #[tokio::test]
    async fn a_source_is_asked_once_for_all_who_need_it_at_the_same_time() {
        let (sets, owner) = (KeySets::new(Arc::default()), Arc::<str>::from("a"));
        let (url, asked) = source().await;
        let waiting: Vec<_> = (0..20)
            .map(|_| {
                let (sets, owner, request) = (sets.clone(), owner.clone(), request(&url));
                tokio::spawn(async move { sets.get(&request, (&owner, Reach::Any)).await })
            })
            .collect();
        for waits in waiting {
            assert!(waits.await.unwrap().is_ok());
        }

        assert_eq!(asked.load(Ordering::Relaxed), 1);
    }

    #[tokio::test]
    async fn nobody_has_the_keys_of_others_forgotten_or_uses_what_they_may_not_reach() {
        let (sets, small) = (KeySets::new(Arc::default()), Arc::<str>::from("small"));
        let large = Arc::<str>::from("large");
        let (url, asked) = source().await;
        sets.get(&request(&url), (&small, Reach::Any)).await.unwrap();

        let refused = sets.get(&request(&url), (&small, Reach::Public)).await;
        assert!(refused.unwrap_err().to_string().contains("is not a public address"));
        for number in 0..2 * MAX_KEY_SETS {
            let url = format!("https://issuer.example/{number}");
            sets.cache_entry(&KeySource { owner: large.clone(), url, reach: Reach::Any });
        }
        sets.get(&request(&url), (&small, Reach::Any)).await.unwrap();

        assert_eq!(asked.load(Ordering::Relaxed), 1);
        let known = sets.known.lock().unwrap();
        assert!(known.iter().count() <= MAX_KEY_SETS);
    }
}
