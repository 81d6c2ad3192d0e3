//! Something that an issuer publishes, kept for a while.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::gateway::login::issuer::LoginError;

/// How long what is known is used while the issuer does not answer.
const MAX_STALE: Duration = Duration::from_secs(24 * 60 * 60);
/// How long nobody asks again after it has failed.
const FAILURE_TTL: Duration = Duration::from_secs(5);

/// Something that an issuer publishes; it is fetched once for all who need it, and they wait for that only
/// where nothing is known that could be used.
pub(super) struct PublishedCache<T> {
    ttl: Duration,
    entry: Mutex<CacheEntry<T>>,
    /// Held by whoever asks the issuer.
    flight: Arc<tokio::sync::Mutex<()>>,
}

struct CacheEntry<T> {
    value: Option<(Arc<T>, Instant)>,
    /// The last answer, where it was none.
    failure: Option<(LoginError, Instant)>,
}

/// What is known.
enum KnownValue<T> {
    /// Good enough.
    Current(Arc<T>),
    /// Good enough until there is a newer one, which is to be asked for.
    Old(Arc<T>),
    /// Nothing that could be used before the issuer was asked, which has just failed.
    Failed(LoginError),
    /// Nothing that could be used before the issuer was asked.
    Nothing,
}

impl<T: Send + Sync + 'static> PublishedCache<T> {
    pub(super) fn new(ttl: Duration) -> Arc<Self> {
        let entry = Mutex::new(CacheEntry { value: None, failure: None });
        Arc::new(Self { ttl, entry, flight: Arc::default() })
    }

    /// What is known, unless it is too old in either way.
    ///
    /// For as long again as it is good it is used while a newer one is fetched, and after the issuer has
    /// failed, for a day.
    pub(super) async fn get<F>(
        self: &Arc<Self>,
        is_too_old: impl Fn(Duration) -> bool,
        fetch: F,
    ) -> Result<Arc<T>, LoginError>
    where
        F: Future<Output = Result<T, LoginError>> + Send + 'static,
    {
        match self.known(&is_too_old) {
            KnownValue::Current(value) => return Ok(value),
            KnownValue::Old(value) => {
                if let Ok(flight) = self.flight.clone().try_lock_owned() {
                    let cache = self.clone();
                    tokio::spawn(async move {
                        cache.keep(fetch.await);
                        drop(flight);
                    });
                }
                return Ok(value);
            }
            KnownValue::Failed(failure) => return self.usable().ok_or(failure),
            KnownValue::Nothing => {}
        }
        let flight = self.flight.clone().lock_owned().await;
        // Somebody else may have asked.
        match self.known(&is_too_old) {
            KnownValue::Current(value) | KnownValue::Old(value) => return Ok(value),
            KnownValue::Failed(failure) => return self.usable().ok_or(failure),
            KnownValue::Nothing => {}
        }
        // Whoever goes away leaves the answer to the others.
        let cache = self.clone();
        let fetching = tokio::spawn(async move {
            cache.keep(fetch.await);
            drop(flight);
        });
        fetching.await.map_err(|error| LoginError::Internal(error.to_string()))?;
        let failure = self.entry().failure.as_ref().map(|(failure, _)| failure.clone());
        let nothing = || LoginError::Internal("nothing was fetched".to_owned());
        self.usable().ok_or_else(|| failure.unwrap_or_else(nothing))
    }

    fn entry(&self) -> MutexGuard<'_, CacheEntry<T>> {
        self.entry.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn known(&self, is_too_old: &impl Fn(Duration) -> bool) -> KnownValue<T> {
        let entry = self.entry();
        let failure = entry.failure.as_ref();
        let recent = failure.filter(|(_, since)| since.elapsed() < FAILURE_TTL);
        let value = entry.value.as_ref().map(|(value, since)| (value, since.elapsed()));
        match value.filter(|(_, age)| *age < MAX_STALE && !is_too_old(*age)) {
            Some((value, age)) if age < self.ttl || recent.is_some() => {
                KnownValue::Current(value.clone())
            }
            Some((value, age)) if age < 2 * self.ttl || failure.is_some() => {
                KnownValue::Old(value.clone())
            }
            _ => recent
                .map_or(KnownValue::Nothing, |(failure, _)| KnownValue::Failed(failure.clone())),
        }
    }

    /// What is better than nothing.
    fn usable(&self) -> Option<Arc<T>> {
        let entry = self.entry();
        let usable = entry.value.as_ref().filter(|(_, since)| since.elapsed() < MAX_STALE);
        usable.map(|(value, _)| value.clone())
    }

    fn keep(&self, fetched: Result<T, LoginError>) {
        let now = Instant::now();
        let mut entry = self.entry();
        match fetched {
            Ok(value) => {
                *entry = CacheEntry { value: Some((Arc::new(value), now)), failure: None };
            }
            Err(failure) => {
                if entry.value.is_some() {
                    tracing::warn!(err = %failure, "what an issuer said earlier is used");
                }
                entry.failure = Some((failure, now));
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
mod tests {
    use super::*;

    const TTL: Duration = Duration::from_secs(60);

    async fn get(
        cache: &Arc<PublishedCache<u32>>,
        fetched: Result<u32, LoginError>,
    ) -> Option<u32> {
        let got = cache.get(|_| false, async move { fetched }).await;
        got.ok().map(|value| *value)
    }

    fn age(cache: &PublishedCache<u32>, by: Duration) {
        let mut entry = cache.entry();
        let then = Instant::now().checked_sub(by).unwrap();
        entry.value = entry.value.take().map(|(value, _)| (value, then));
        entry.failure = entry.failure.take().map(|(failure, _)| (failure, then));
    }

    #[tokio::test]
    async fn what_is_known_is_used_while_the_issuer_does_not_answer() {
        let cache = PublishedCache::new(TTL);

        assert_eq!(get(&cache, Err(LoginError::Busy)).await, None, "nothing is known yet");
        assert_eq!(get(&cache, Ok(1)).await, None, "it has just failed");
        age(&cache, FAILURE_TTL);
        assert_eq!(get(&cache, Ok(1)).await, Some(1));
        age(&cache, 3 * TTL);
        assert_eq!(get(&cache, Err(LoginError::Busy)).await, Some(1));
        age(&cache, MAX_STALE);
        assert_eq!(get(&cache, Err(LoginError::Busy)).await, None, "not for ever");
    }

    #[tokio::test]
    async fn nobody_waits_for_an_issuer_that_is_slow_while_something_is_known() {
        let cache = PublishedCache::new(TTL);
        get(&cache, Ok(1)).await;
        age(&cache, TTL);
        let (sender, answer) = tokio::sync::oneshot::channel();

        let slow = async move { Ok(answer.await.unwrap()) };
        assert_eq!(*cache.get(|_| false, slow).await.unwrap(), 1);
        let second = async { panic!("it is being asked") };
        assert_eq!(*cache.get(|_| false, second).await.unwrap(), 1);
        sender.send(2).unwrap();
        let _flight = cache.flight.lock().await;

        assert_eq!(*cache.entry().value.as_ref().unwrap().0, 2);
    }

    #[tokio::test]
    async fn what_is_too_old_for_somebody_is_fetched_before_they_go_on() {
        let cache = PublishedCache::new(TTL);
        get(&cache, Ok(1)).await;

        assert_eq!(*cache.get(|_| true, async { Ok(2) }).await.unwrap(), 2);
    }
}
