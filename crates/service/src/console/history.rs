//! Requests, errors and durations of the last hour, of this node.
//!
//! The figures are those that a scrape of `/metrics` shows, read from time to time: traffic counts nothing
//! twice. Where nobody scrapes nothing is counted, and then the events of traffic are counted here for as
//! long as somebody is logged in.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde::Serialize;

use ginnel_base::logging::ignore;
use ginnel_gateway::metrics::{GatewayMetrics, TrafficTotals};
use ginnel_gateway::{EventDelivery, Gateway};

use super::sessions::ConsoleSessions;

/// How much time one sample stands for.
pub(super) const SAMPLE_INTERVAL: Duration = Duration::from_secs(10);
/// How many samples are kept: those of an hour.
const MAX_SAMPLES: usize = 360;

/// What happened in one interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(super) struct TrafficSample {
    /// When it ended, in seconds since the Unix epoch.
    pub time: u64,
    pub requests: u64,
    /// Of these, how many had a response with a status of 400 to 499.
    pub client_errors: u64,
    /// Of these, how many had a response with a status of 500 or more.
    pub server_errors: u64,
    /// The median of the durations, in milliseconds; none without requests.
    pub p50_ms: Option<f64>,
    pub p95_ms: Option<f64>,
    pub p99_ms: Option<f64>,
    /// The bytes that visitors have sent.
    pub received: u64,
    /// The bytes that visitors were sent.
    pub sent: u64,
}

/// The samples of the last hour. They are in memory and counted in intervals of running time, so their times are those of
/// the machine. A leap of its clock does not remove samples.
pub(super) struct TrafficHistory {
    source: TrafficSource,
    ring: Mutex<SampleRing>,
}

/// Where the totals come from.
enum TrafficSource {
    /// What the gateway counts.
    Counted(Arc<GatewayMetrics>),
    /// What is counted here while somebody is logged in.
    Watched(Box<WatchedTraffic>),
}

struct WatchedTraffic {
    metrics: GatewayMetrics,
    sessions: Arc<ConsoleSessions>,
    is_running: Mutex<bool>,
}

#[derive(Default)]
struct SampleRing {
    samples: VecDeque<TrafficSample>,
    /// The totals at the end of the last interval; none where that was not counted.
    last: Option<TrafficTotals>,
}

impl TrafficHistory {
    /// The history of a gateway, which goes on for as long as it is kept.
    pub fn start(gateway: &Gateway, sessions: &Arc<ConsoleSessions>) -> Arc<Self> {
        let source = match gateway.metrics() {
            Some(metrics) => TrafficSource::Counted(metrics.clone()),
            None => TrafficSource::Watched(Box::new(WatchedTraffic {
                metrics: GatewayMetrics::new(false),
                sessions: sessions.clone(),
                is_running: Mutex::default(),
            })),
        };
        let history = Arc::new(Self { source, ring: Mutex::default() });
        history.take_sample(SystemTime::now());
        ginnel_base::tasks::spawn(sample_periodically(Arc::downgrade(&history)));
        history
    }

    /// Whether all traffic is counted, and not only that of the time in which somebody is logged in.
    pub fn is_whole(&self) -> bool {
        matches!(self.source, TrafficSource::Counted(_))
    }

    /// The samples, the oldest first.
    pub fn samples(&self) -> Vec<TrafficSample> {
        self.lock_ring().samples.iter().copied().collect()
    }

    /// Counts events from now on, unless that is done already or not needed.
    pub fn start_counting(self: &Arc<Self>, gateway: &Gateway) {
        let TrafficSource::Watched(watched) = &self.source else { return };
        let mut is_running = watched.is_running.lock().unwrap_or_else(PoisonError::into_inner);
        if !std::mem::replace(&mut *is_running, true) {
            self.take_sample(SystemTime::now());
            ginnel_base::tasks::spawn(count_events(
                Arc::downgrade(self),
                gateway.subscribe_local_events(),
            ));
        }
    }

    /// Ends the interval.
    fn take_sample(&self, now: SystemTime) {
        let totals = match &self.source {
            TrafficSource::Counted(metrics) => Some(metrics.totals()),
            TrafficSource::Watched(watched) => {
                let is_watched = watched.sessions.has_any(Instant::now());
                is_watched.then(|| watched.metrics.totals())
            }
        };
        let time = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        self.lock_ring().add_totals(time, totals);
    }

    /// Counts an event; false when nobody wants to know any more.
    fn count_event(&self, delivery: &EventDelivery) -> bool {
        let TrafficSource::Watched(watched) = &self.source else { return false };
        if let EventDelivery::Event(event) = delivery
            && event.method.is_some()
        {
            let took = Duration::try_from_secs_f64(event.duration_ms / 1000.0).unwrap_or_default();
            watched.metrics.unrouted().count_response(event.status.unwrap_or_default(), took);
        }
        true
    }

    /// Whether events are still to be counted.
    fn is_wanted(&self) -> bool {
        let TrafficSource::Watched(watched) = &self.source else { return false };
        let mut is_running = watched.is_running.lock().unwrap_or_else(PoisonError::into_inner);
        *is_running = watched.sessions.has_any(Instant::now());
        *is_running
    }

    fn lock_ring(&self) -> MutexGuard<'_, SampleRing> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn sample_periodically(history: Weak<TrafficHistory>) {
    let mut interval = tokio::time::interval(SAMPLE_INTERVAL);
    interval.tick().await;
    loop {
        interval.tick().await;
        let Some(history) = history.upgrade() else { return };
        history.take_sample(SystemTime::now());
    }
}

async fn count_events(history: Weak<TrafficHistory>, mut events: ginnel_gateway::EventSubscriber) {
    let mut interval = tokio::time::interval(SAMPLE_INTERVAL);
    loop {
        let wanted = tokio::select! {
            delivery = events.next() => match (delivery, history.upgrade()) {
                (Some(delivery), Some(history)) => history.count_event(&delivery),
                _ => return,
            },
            _ = interval.tick() => history.upgrade().is_some_and(|history| history.is_wanted()),
        };
        if !wanted {
            return;
        }
    }
}

impl SampleRing {
    /// Adds what has happened since the last totals; nothing where there are none.
    fn add_totals(&mut self, time: u64, totals: Option<TrafficTotals>) {
        let before = std::mem::replace(&mut self.last, totals);
        let Some((now, before)) = self.last.as_ref().zip(before) else { return };
        let sample = sample_between(time, now, &before);
        if self.samples.len() == MAX_SAMPLES {
            ignore(self.samples.pop_front(), "the oldest makes room");
        }
        self.samples.push_back(sample);
    }
}

/// What happened between two totals.
fn sample_between(time: u64, now: &TrafficTotals, before: &TrafficTotals) -> TrafficSample {
    let buckets = now.durations.iter().enumerate().map(|(place, (bound, count))| {
        let before = before.durations.get(place).map_or(0, |(_, count)| *count);
        (*bound, count.saturating_sub(before))
    });
    let buckets: Vec<_> = buckets.collect();
    let quantile = |part| estimate_quantile(&buckets, part).map(|seconds| seconds * 1000.0);
    TrafficSample {
        time,
        requests: now.requests.saturating_sub(before.requests),
        client_errors: now.client_errors.saturating_sub(before.client_errors),
        server_errors: now.server_errors.saturating_sub(before.server_errors),
        p50_ms: quantile(0.5),
        p95_ms: quantile(0.95),
        p99_ms: quantile(0.99),
        received: now.received.saturating_sub(before.received),
        sent: now.sent.saturating_sub(before.sent),
    }
}

/// The value below which so large a part is, as if values were spread evenly in a bucket. Beyond the last
/// bound it is that bound.
fn estimate_quantile(buckets: &[(f64, u64)], part: f64) -> Option<f64> {
    let total = buckets.iter().map(|(_, count)| count).sum::<u64>();
    let rank = part * total as f64;
    let (mut below, mut low) = (0.0, 0.0);
    for (bound, count) in buckets.iter().filter(|_| total > 0) {
        let count = *count as f64;
        if below + count >= rank && count > 0.0 {
            let inside = (rank - below) / count;
            return Some(if bound.is_finite() { low + (bound - low) * inside } else { low });
        }
        below += count;
        low = *bound;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn totals(requests: u64, durations: [u64; 3]) -> TrafficTotals {
        let bounds = [0.01, 0.1, f64::INFINITY];
        let durations = bounds.into_iter().zip(durations).collect();
        TrafficTotals { requests, durations, ..TrafficTotals::default() }
    }

    #[test]
    fn a_sample_is_what_has_happened_since_the_last_one() {
        let mut ring = SampleRing::default();

        ring.add_totals(10, Some(totals(100, [100, 0, 0])));
        ring.add_totals(20, Some(totals(110, [105, 5, 0])));
        ring.add_totals(30, Some(totals(110, [105, 5, 0])));

        let shown: Vec<_> =
            ring.samples.iter().map(|it| (it.time, it.requests, it.p50_ms, it.p99_ms)).collect();
        assert_eq!(shown[0].0, 20);
        assert_eq!((shown[0].1, shown[0].2), (10, Some(10.0)));
        assert!(shown[0].3.is_some_and(|p99| (p99 - 98.2).abs() < 0.01), "{shown:?}");
        assert_eq!(shown[1], (30, 0, None, None));
    }

    #[test]
    fn time_that_was_not_counted_has_no_sample() {
        let mut ring = SampleRing::default();

        for (time, requests) in [(10, Some(1)), (20, None), (30, Some(5)), (40, Some(7))] {
            ring.add_totals(time, requests.map(|requests| totals(requests, [requests, 0, 0])));
        }

        let shown: Vec<_> = ring.samples.iter().map(|it| (it.time, it.requests)).collect();
        assert_eq!(shown, [(40, 2)]);
    }

    #[test]
    fn an_hour_is_kept() {
        let mut ring = SampleRing::default();

        (0..=500).for_each(|time| ring.add_totals(time, Some(totals(time, [0, 0, 0]))));

        assert_eq!(ring.samples.len(), MAX_SAMPLES);
        assert_eq!(ring.samples.front().map(|sample| sample.time), Some(141));
    }

    #[test]
    fn what_is_slower_than_the_last_bound_is_shown_as_that() {
        assert_eq!(estimate_quantile(&[(0.5, 0), (1.0, 1), (f64::INFINITY, 9)], 0.99), Some(1.0));
        assert_eq!(estimate_quantile(&[(0.5, 4), (1.0, 0)], 0.5), Some(0.25));
        assert_eq!(estimate_quantile(&[(0.5, 0)], 0.5), None);
    }
}
