//! Something that somebody publishes, as it was when it was asked for last. Nothing here asks.

use std::sync::Arc;
use std::time::{Duration, Instant};

/// What was fetched last, and the failure since, if there was one.
#[derive(Debug)]
pub struct Published<T, E> {
    value: Option<(Arc<T>, Instant)>,
    failure: Option<(E, Instant)>,
}

/// How long something that was fetched is good for whoever asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lifetime {
    /// After how long there is to be a newer one; for as long again this one is used meanwhile, and for longer
    /// after a failure.
    pub refresh: Duration,
    /// After how long it is not used at all.
    pub max_age: Duration,
    /// How long nobody asks again after a failure.
    pub after_failure: Duration,
    /// How old it is at least when it is asked for again because it lacks something.
    pub after_missing: Duration,
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PublishedStatus<T, E> {
    /// This is good enough.
    Current(Arc<T>),
    /// This is good enough until there is a newer one, which is to be fetched.
    Old(Arc<T>),
    /// Fetching has just failed.
    Failed(E),
    /// It is to be fetched first.
    Missing,
}

impl<T, E> Default for Published<T, E> {
    fn default() -> Self {
        Self { value: None, failure: None }
    }
}

impl<T, E: Clone> Published<T, E> {
    /// What is to be done for somebody; `is_missing` where what was there has lacked something.
    pub fn status(
        &self,
        lifetime: &Lifetime,
        is_missing: bool,
        now: Instant,
    ) -> PublishedStatus<T, E> {
        let failure = self.failure.as_ref();
        let recent = failure
            .filter(|(_, since)| now.saturating_duration_since(*since) < lifetime.after_failure);
        let max_age = if is_missing { lifetime.after_missing } else { lifetime.max_age };
        let value = self.value_and_age(now).filter(|(_, age)| *age < max_age);
        match value.filter(|(_, age)| *age < lifetime.max_age) {
            Some((value, age)) if age < lifetime.refresh || recent.is_some() => {
                PublishedStatus::Current(value.clone())
            }
            Some((value, age)) if age < 2 * lifetime.refresh || failure.is_some() => {
                PublishedStatus::Old(value.clone())
            }
            _ => recent.map_or(PublishedStatus::Missing, |(failure, _)| {
                PublishedStatus::Failed(failure.clone())
            }),
        }
    }

    /// What is better than nothing after a failure.
    pub fn usable_value(&self, lifetime: &Lifetime, now: Instant) -> Option<Arc<T>> {
        let usable = self.value_and_age(now).filter(|(_, age)| *age < lifetime.max_age);
        usable.map(|(value, _)| value.clone())
    }

    /// Whether anything was fetched, however old it is.
    pub fn has_value(&self) -> bool {
        self.value.is_some()
    }

    /// Keeps what came of fetching.
    pub fn store_result(&mut self, fetched: Result<Arc<T>, E>, now: Instant) {
        match fetched {
            Ok(value) => *self = Self { value: Some((value, now)), failure: None },
            Err(failure) => self.failure = Some((failure, now)),
        }
    }

    fn value_and_age(&self, now: Instant) -> Option<(&Arc<T>, Duration)> {
        let (value, since) = self.value.as_ref()?;
        Some((value, now.saturating_duration_since(*since)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIFETIME: Lifetime = Lifetime {
        refresh: Duration::from_secs(100),
        max_age: Duration::from_secs(1000),
        after_failure: Duration::from_secs(5),
        after_missing: Duration::from_secs(10),
    };

    #[test]
    fn what_was_fetched_gets_old_and_then_unusable() {
        let (mut published, began) = (Published::<u32, &str>::default(), Instant::now());
        let at = |seconds| began + Duration::from_secs(seconds);
        let old = PublishedStatus::Old(Arc::new(1));
        let current = PublishedStatus::Current(Arc::new(1));
        assert_eq!(published.status(&LIFETIME, false, at(0)), PublishedStatus::Missing);

        published.store_result(Ok(Arc::new(1)), at(0));
        assert_eq!(published.status(&LIFETIME, false, at(99)), current);
        assert_eq!(published.status(&LIFETIME, false, at(100)), old);
        assert_eq!(published.status(&LIFETIME, false, at(200)), PublishedStatus::Missing);
        published.store_result(Err("away"), at(200));
        assert_eq!(published.status(&LIFETIME, false, at(204)), current, "nobody asks again yet");
        assert_eq!(published.status(&LIFETIME, false, at(205)), old);
        assert_eq!(published.status(&LIFETIME, false, at(1000)), PublishedStatus::Missing);
        assert_eq!(published.usable_value(&LIFETIME, at(999)), Some(Arc::new(1)));
        assert_eq!(published.usable_value(&LIFETIME, at(1000)), None);
        published.store_result(Err("away"), at(1000));
        assert_eq!(published.status(&LIFETIME, false, at(1001)), PublishedStatus::Failed("away"));
    }

    #[test]
    fn what_lacks_something_is_asked_for_again_but_not_all_the_time() {
        let (mut published, began) = (Published::<u32, &str>::default(), Instant::now());
        let at = |seconds| began + Duration::from_secs(seconds);
        let current = PublishedStatus::Current(Arc::new(1));
        published.store_result(Ok(Arc::new(1)), at(0));

        assert_eq!(published.status(&LIFETIME, true, at(9)), current);
        assert_eq!(published.status(&LIFETIME, true, at(10)), PublishedStatus::Missing);
        published.store_result(Err("away"), at(10));
        assert_eq!(published.status(&LIFETIME, true, at(14)), PublishedStatus::Failed("away"));
        assert_eq!(published.status(&LIFETIME, false, at(14)), current);
    }
}
