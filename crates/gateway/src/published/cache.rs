//! Something that an issuer publishes, kept for a while.

use std::fmt::Display;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tokio::task::JoinError;

use ginnel_base::logging::ignore;
use ginnel_policy::published::{Lifetime, Published, PublishedStatus};

/// Something that an issuer publishes; it is fetched once for all who need it, and they wait for that only
/// where nothing is known that could be used.
pub struct PublishedCache<T, E> {
    published: Mutex<Published<T, E>>,
    /// Held by whoever asks the issuer.
    flight: Arc<tokio::sync::Mutex<()>>,
}

impl<T, E> Default for PublishedCache<T, E> {
    fn default() -> Self {
        Self { published: Mutex::default(), flight: Arc::default() }
    }
}

impl<T, E> PublishedCache<T, E>
where
    T: Send + Sync + 'static,
    E: Clone + Display + From<JoinError> + Send + 'static,
{
    /// What is known, unless it is too old; newer than that where it lacks something.
    ///
    /// # Errors
    /// When there is nothing that could be used, and fetching has failed.
    pub async fn get<F>(
        self: &Arc<Self>,
        lifetime: &Lifetime,
        is_missing: bool,
        fetch: F,
    ) -> Result<Arc<T>, E>
    where
        F: Future<Output = Result<T, E>> + Send + 'static,
    {
        match self.cache_status(lifetime, is_missing) {
            PublishedStatus::Current(value) => return Ok(value),
            PublishedStatus::Old(value) => {
                if let Ok(flight) = self.flight.clone().try_lock_owned() {
                    let cache = self.clone();
                    tokio::spawn(async move {
                        ignore(
                            cache.store_fetched(fetch.await),
                            "a failure is logged where it is kept",
                        );
                        drop(flight);
                    });
                }
                return Ok(value);
            }
            PublishedStatus::Failed(failure) => {
                return self.usable_value(lifetime, is_missing).ok_or(failure);
            }
            PublishedStatus::Missing => {}
        }
        let flight = self.flight.clone().lock_owned().await;
        // Somebody else may have asked.
        match self.cache_status(lifetime, is_missing) {
            PublishedStatus::Current(value) | PublishedStatus::Old(value) => return Ok(value),
            PublishedStatus::Failed(failure) => {
                return self.usable_value(lifetime, is_missing).ok_or(failure);
            }
            PublishedStatus::Missing => {}
        }
        // Whoever goes away leaves the answer to the others.
        let cache = self.clone();
        let fetching = tokio::spawn(async move {
            let fetched = cache.store_fetched(fetch.await);
            drop(flight);
            fetched
        });
        fetching.await?.or_else(|failure| self.usable_value(lifetime, is_missing).ok_or(failure))
    }

    /// What is to be done; whoever asks does not hold the lock.
    fn cache_status(&self, lifetime: &Lifetime, is_missing: bool) -> PublishedStatus<T, E> {
        self.lock_published().status(lifetime, is_missing, Instant::now())
    }

    fn lock_published(&self) -> MutexGuard<'_, Published<T, E>> {
        self.published.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is better than nothing; nothing is where it lacks something.
    fn usable_value(&self, lifetime: &Lifetime, is_missing: bool) -> Option<Arc<T>> {
        if is_missing {
            return None;
        }
        self.lock_published().usable_value(lifetime, Instant::now())
    }

    /// Keeps what came of fetching.
    fn store_fetched(&self, fetched: Result<T, E>) -> Result<Arc<T>, E> {
        let fetched = fetched.map(Arc::new);
        let mut published = self.lock_published();
        match &fetched {
            Err(err) if published.has_value() => {
                tracing::warn!(%err, "what an issuer said earlier is used");
            }
            Err(err) => tracing::debug!(%err, "what an issuer publishes cannot be fetched"),
            Ok(_) => {}
        }
        published.store_result(fetched.clone(), Instant::now());
        fetched
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
mod tests {
    use std::time::Duration;

    use super::*;

    const LIFETIME: Lifetime = Lifetime {
        refresh: Duration::from_millis(300),
        max_age: Duration::from_secs(600),
        after_failure: Duration::ZERO,
        after_missing: Duration::ZERO,
    };

    #[derive(Debug, Clone, thiserror::Error)]
    #[error("{0}")]
    struct Failure(String);

    impl From<JoinError> for Failure {
        fn from(error: JoinError) -> Self {
            Self(error.to_string())
        }
    }

    type Cache = Arc<PublishedCache<u32, Failure>>;

    async fn get(cache: &Cache, is_missing: bool, fetched: Option<u32>) -> Option<u32> {
        let fetch = async move { fetched.ok_or(Failure("away".to_owned())) };
        cache.get(&LIFETIME, is_missing, fetch).await.ok().map(|value| *value)
    }

    #[tokio::test]
    async fn what_is_known_is_used_while_the_issuer_does_not_answer() {
        let cache = Cache::default();

        assert_eq!(get(&cache, false, None).await, None, "nothing is known yet");
        assert_eq!(get(&cache, false, Some(1)).await, Some(1));
        tokio::time::sleep(2 * LIFETIME.refresh).await;
        assert_eq!(get(&cache, false, None).await, Some(1));
        assert_eq!(get(&cache, true, None).await, None, "it lacks something");
    }

    #[tokio::test]
    async fn whoever_comes_after_a_failure_gets_it_or_what_is_known() {
        let cache = Cache::default();
        let lifetime = Lifetime { after_failure: Duration::from_secs(60), ..LIFETIME };
        let get = async |is_missing, fetched: Option<u32>| {
            let fetch = async move { fetched.ok_or(Failure("away".to_owned())) };
            let got = cache.get(&lifetime, is_missing, fetch);
            let got = tokio::time::timeout(Duration::from_secs(10), got).await.unwrap();
            got.ok().map(|value| *value)
        };

        assert_eq!(get(false, None).await, None);
        assert_eq!(get(false, Some(1)).await, None, "nobody asks again yet");
        cache.lock_published().store_result(Ok(Arc::new(2)), Instant::now());
        assert_eq!(get(true, None).await, None);
        assert_eq!(get(true, Some(3)).await, None);
        assert_eq!(get(false, Some(3)).await, Some(2));
    }

    #[tokio::test]
    async fn nobody_waits_for_an_issuer_that_is_slow_while_something_is_known() {
        let cache = Cache::default();
        get(&cache, false, Some(1)).await;
        tokio::time::sleep(LIFETIME.refresh).await;
        let (sender, answer) = tokio::sync::oneshot::channel();

        let slow = async move { Ok(answer.await.unwrap()) };
        assert_eq!(*cache.get(&LIFETIME, false, slow).await.unwrap(), 1);
        let second = async { panic!("it is being asked") };
        assert_eq!(*cache.get(&LIFETIME, false, second).await.unwrap(), 1);
        sender.send(2).unwrap();
        let _flight = cache.flight.lock().await;

        assert_eq!(
            cache.lock_published().usable_value(&LIFETIME, Instant::now()),
            Some(Arc::new(2))
        );
    }

    #[tokio::test]
    async fn what_lacks_something_is_fetched_before_anybody_goes_on() {
        let cache = Cache::default();
        get(&cache, false, Some(1)).await;

        assert_eq!(get(&cache, true, Some(2)).await, Some(2));
    }
}
