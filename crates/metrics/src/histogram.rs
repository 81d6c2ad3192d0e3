//! Distributions of values.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, SystemTime};

use prometheus_client::encoding::{EncodeLabelSet, LabelSetEncoder};
use prometheus_client::metrics::exemplar::HistogramWithExemplars;

/// The upper bounds of durations, in nanoseconds: half a millisecond to one minute.
static DURATION_BOUNDS: [u64; 16] = [
    500_000,
    1_000_000,
    2_500_000,
    5_000_000,
    10_000_000,
    25_000_000,
    50_000_000,
    100_000_000,
    250_000_000,
    500_000_000,
    1_000_000_000,
    2_500_000_000,
    5_000_000_000,
    10_000_000_000,
    30_000_000_000,
    60_000_000_000,
];

/// The upper bounds of small numbers of things.
pub static SIZE_BOUNDS: [u64; 9] = [1, 2, 4, 8, 16, 32, 64, 128, 256];

const NANOSECONDS: f64 = 1e9;

/// How many values there were, by size; counts without a lock.
#[derive(Debug)]
pub struct Histogram {
    bounds: &'static [u64],
    /// How many of the counted units are one of the shown unit.
    scale: f64,
    /// One more than there are bounds.
    buckets: Box<[AtomicU64]>,
    sum: AtomicU64,
}

impl Histogram {
    /// Nothing yet.
    pub fn new(bounds: &'static [u64], scale: f64) -> Self {
        let buckets = std::iter::repeat_with(AtomicU64::default).take(bounds.len() + 1).collect();
        Self { bounds, scale, buckets, sum: AtomicU64::new(0) }
    }

    /// Nothing yet, of durations that are shown in seconds.
    pub fn for_durations() -> Self {
        Self::new(&DURATION_BOUNDS, NANOSECONDS)
    }

    /// Counts a value.
    pub fn observe(&self, value: u64) {
        let place = self.bounds.partition_point(|bound| *bound < value);
        if let Some(bucket) = self.buckets.get(place) {
            bucket.fetch_add(1, Relaxed);
            self.sum.fetch_add(value, Relaxed);
        }
    }

    /// Counts a duration.
    pub fn observe_duration(&self, duration: Duration) {
        self.observe(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX));
    }

    /// The upper bound of each bucket with its own count, and the sum of all values, in the shown unit.
    pub(super) fn snapshot(&self) -> (Vec<(f64, u64)>, f64) {
        let bounds = self.bounds.iter().map(|bound| *bound as f64 / self.scale);
        let bounds = bounds.chain([f64::INFINITY]);
        let buckets = bounds.zip(self.buckets.iter().map(|bucket| bucket.load(Relaxed)));
        (buckets.collect(), self.sum.load(Relaxed) as f64 / self.scale)
    }
}

/// How long things took.
#[derive(Debug)]
pub enum DurationHistogram {
    /// Without names.
    Plain(Histogram),
    /// With the name of a request in each bucket, which costs a lock.
    Traced {
        /// What a scrape shows.
        named: HistogramWithExemplars<RequestIdLabel>,
        /// The same counts, which the other does not give.
        counts: Histogram,
    },
}

/// The name of a request, as an exemplar shows it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RequestIdLabel(pub String);

impl EncodeLabelSet for RequestIdLabel {
    fn encode(&self, encoder: &mut LabelSetEncoder<'_>) -> std::fmt::Result {
        [("request_id", self.0.as_str())].encode(encoder)
    }
}

impl DurationHistogram {
    /// Nothing yet; with exemplars where requests have names.
    pub fn new(has_names: bool) -> Self {
        if !has_names {
            return Self::Plain(Histogram::for_durations());
        }
        let bounds = DURATION_BOUNDS.iter().map(|bound| *bound as f64 / NANOSECONDS);
        let named = HistogramWithExemplars::new(bounds);
        Self::Traced { named, counts: Histogram::for_durations() }
    }

    /// The upper bound of each bucket in seconds, with its own count.
    pub fn buckets(&self) -> Vec<(f64, u64)> {
        match self {
            Self::Plain(histogram) | Self::Traced { counts: histogram, .. } => {
                histogram.snapshot().0
            }
        }
    }

    /// Counts a duration, of the request with this name.
    pub fn observe_request(&self, duration: Duration, name: Option<&str>) {
        match self {
            Self::Plain(histogram) => histogram.observe_duration(duration),
            Self::Traced { named, counts } => {
                counts.observe_duration(duration);
                let name = name.map(|name| RequestIdLabel(name.to_owned()));
                named.observe(duration.as_secs_f64(), name, Some(SystemTime::now()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_counts_in_the_first_bucket_that_holds_it() {
        let histogram = Histogram::new(&SIZE_BOUNDS, 1.0);
        for value in [1, 2, 3, 256, 257] {
            histogram.observe(value);
        }

        let (buckets, sum) = histogram.snapshot();

        let counts: Vec<_> = buckets.iter().map(|(_, count)| *count).collect();
        assert_eq!(counts, [1, 1, 1, 0, 0, 0, 0, 0, 1, 1]);
        assert_eq!(sum, 519.0);
        assert_eq!(buckets.last().map(|(bound, _)| *bound), Some(f64::INFINITY));
    }

    #[test]
    fn durations_are_shown_in_seconds() {
        let histogram = Histogram::for_durations();
        histogram.observe_duration(Duration::from_millis(3));

        let (buckets, sum) = histogram.snapshot();

        assert_eq!(buckets.iter().find(|(_, count)| *count == 1).map(|it| it.0), Some(0.005));
        assert_eq!(sum, 0.003);
    }
}
