//! Counts, rates and percentiles of a tunnel, as the agent API reports them.
//!
//! The arithmetic is that of section 4 of the agent sheet: moving averages that tick every five
//! seconds, and percentiles of an exponentially decaying sample. No timer runs; what was missed is
//! caught up when somebody looks. Nothing here reads a clock.

use std::collections::BinaryHeap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use ginnel_api::Number;
use ginnel_api::local::tunnels::{ConnectionMetrics, HttpMetrics, Metrics};
use ginnel_base::logging::ignore;
use ginnel_metrics::CodeCounts;

use super::traffic::{EndedExchange, TrafficRing, TrafficSlot};

/// How long one tick of the moving averages is.
const TICK_INTERVAL: Duration = Duration::from_secs(5);
/// How many values are sampled.
const MAX_SAMPLES: usize = 1028;
/// How fast old values lose weight, per second.
const DECAY_PER_SECOND: f64 = 0.015;
/// After how long the weights are brought back to small numbers.
const RESCALE_INTERVAL: Duration = Duration::from_secs(3600);

/// The kinds of tunnels that carry requests: those of a bind by its protocol, and labeled ones.
const KINDS: [&str; 3] = ["http", "https", LABELED];
const LABELED: &str = "labeled";

/// How the requests of all tunnels ended, those of tunnels that are no more among them.
#[derive(Debug, Default)]
pub struct RequestCounts([Arc<CodeCounts>; KINDS.len()]);

impl RequestCounts {
    /// Where a tunnel counts; `proto` is that of its bind.
    pub(super) fn for_proto(&self, proto: Option<&str>) -> Arc<CodeCounts> {
        let kind = proto.unwrap_or(LABELED);
        let place = KINDS.iter().position(|known| *known == kind);
        self.0[place.unwrap_or_default()].clone()
    }

    /// The kinds of tunnels, and how requests of each ended.
    pub(super) fn by_kind(&self) -> impl Iterator<Item = (&'static str, &CodeCounts)> {
        KINDS.into_iter().zip(self.0.iter().map(Arc::as_ref))
    }
}

/// What one tunnel has carried.
#[derive(Debug)]
pub struct TunnelMetrics {
    connections: Mutex<MetricSet>,
    requests: Mutex<MetricSet>,
    /// The last hour.
    traffic: Mutex<TrafficRing>,
}

#[derive(Debug)]
struct MetricSet {
    gauge: i64,
    meter: Meter,
    sample: DecayingSample,
}

impl TunnelMetrics {
    /// Nothing has happened yet.
    pub fn new(now: Instant) -> Self {
        Self {
            connections: Mutex::new(MetricSet::new(now)),
            requests: Mutex::new(MetricSet::new(now)),
            traffic: Mutex::new(TrafficRing::new(now, SystemTime::now())),
        }
    }

    /// A connection was opened.
    pub fn connection_opened(&self, now: Instant) {
        let mut figures = lock_mutex(&self.connections);
        figures.gauge += 1;
        figures.meter.mark(now);
    }

    /// A connection was closed after it was open for so long.
    pub fn connection_closed(&self, lasted: Duration, now: Instant) {
        let mut figures = lock_mutex(&self.connections);
        figures.gauge -= 1;
        figures.sample.add_value(lasted, now);
    }

    /// How many connections are open.
    pub fn open_connections(&self) -> i64 {
        lock_mutex(&self.connections).gauge
    }

    /// A request arrived.
    pub fn request_started(&self, now: Instant) {
        lock_mutex(&self.requests).meter.mark(now);
    }

    /// A request was answered to the end, after so long.
    pub fn request_finished(&self, took: Duration, now: Instant) {
        lock_mutex(&self.requests).sample.add_value(took, now);
    }

    /// An exchange is over, however it went.
    pub fn exchange_ended(&self, exchange: &EndedExchange) {
        lock_mutex(&self.traffic).add_exchange(exchange);
    }

    /// What came in each slot of the last hour, from one of them on.
    pub fn traffic_since(&self, from: u64, now: Instant) -> Vec<TrafficSlot> {
        lock_mutex(&self.traffic).slots_since(from, now)
    }

    /// The figures as the agent API reports them.
    pub fn report(&self, now: Instant) -> Metrics {
        let (conns, gauge) = lock_mutex(&self.connections).report(now);
        let (http, _) = lock_mutex(&self.requests).report(now);
        Metrics {
            conns: ConnectionMetrics {
                count: conns.count,
                gauge,
                rate1: conns.rates[0],
                rate5: conns.rates[1],
                rate15: conns.rates[2],
                p50: conns.percentiles[0],
                p90: conns.percentiles[1],
                p95: conns.percentiles[2],
                p99: conns.percentiles[3],
            },
            http: HttpMetrics {
                count: http.count,
                rate1: http.rates[0],
                rate5: http.rates[1],
                rate15: http.rates[2],
                p50: http.percentiles[0],
                p90: http.percentiles[1],
                p95: http.percentiles[2],
                p99: http.percentiles[3],
            },
        }
    }
}

struct MetricsReport {
    count: i64,
    rates: [Number; 3],
    percentiles: [Number; 4],
}

impl MetricSet {
    fn new(now: Instant) -> Self {
        Self { gauge: 0, meter: Meter::new(now), sample: DecayingSample::new(now) }
    }

    fn report(&mut self, now: Instant) -> (MetricsReport, i64) {
        self.meter.catch_up(now);
        let percentiles = self.sample.percentiles([0.5, 0.9, 0.95, 0.99]).map(Number);
        let rates = self.meter.rates.map(Number);
        (MetricsReport { count: self.meter.count, rates, percentiles }, self.gauge)
    }
}

/// Rates per second over about one, five and fifteen minutes.
#[derive(Debug)]
struct Meter {
    count: i64,
    since_tick: u32,
    last_tick: Instant,
    ticked: bool,
    rates: [f64; 3],
}

impl Meter {
    fn new(now: Instant) -> Self {
        Self { count: 0, since_tick: 0, last_tick: now, ticked: false, rates: [0.0; 3] }
    }

    fn mark(&mut self, now: Instant) {
        self.catch_up(now);
        self.count += 1;
        self.since_tick += 1;
    }

    fn catch_up(&mut self, now: Instant) {
        let missed =
            now.saturating_duration_since(self.last_tick).as_secs() / TICK_INTERVAL.as_secs();
        let Ok(missed) = u32::try_from(missed) else { return };
        if missed == 0 {
            return;
        }
        self.last_tick += TICK_INTERVAL * missed;
        let rate = f64::from(self.since_tick) / TICK_INTERVAL.as_secs_f64();
        self.since_tick = 0;
        for (average, minutes) in self.rates.iter_mut().zip([1.0, 5.0, 15.0]) {
            let weight = 1.0 - f64::exp(-TICK_INTERVAL.as_secs_f64() / (60.0 * minutes));
            *average = if self.ticked { *average + weight * (rate - *average) } else { rate };
            // The ticks after the first saw nothing.
            *average *= f64::powf(1.0 - weight, f64::from(missed - 1));
        }
        self.ticked = true;
    }
}

/// A sample of values in which recent ones are likelier than old ones.
#[derive(Debug)]
struct DecayingSample {
    /// The value with the least priority on top.
    entries: BinaryHeap<WeightedValue>,
    since: Instant,
    random: u64,
}

#[derive(Debug)]
struct WeightedValue {
    priority: f64,
    nanoseconds: f64,
}

impl DecayingSample {
    fn new(now: Instant) -> Self {
        let mut seed = [0; 8];
        let filled = getrandom::fill(&mut seed);
        ignore(filled, "any seed will do: the draw needs to be even, not secret");
        Self { entries: BinaryHeap::new(), since: now, random: u64::from_ne_bytes(seed) | 1 }
    }

    fn add_value(&mut self, value: Duration, now: Instant) {
        if now.saturating_duration_since(self.since) >= RESCALE_INTERVAL {
            self.rescale_priorities(now);
        }
        let age = now.saturating_duration_since(self.since).as_secs_f64();
        let priority = f64::exp(DECAY_PER_SECOND * age) / self.draw_random();
        let nanoseconds = value.as_nanos() as f64;
        if self.entries.len() < MAX_SAMPLES {
            self.entries.push(WeightedValue { priority, nanoseconds });
        } else if let Some(mut least) = self.entries.peek_mut()
            && least.priority < priority
        {
            *least = WeightedValue { priority, nanoseconds };
        }
    }

    fn rescale_priorities(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.since).as_secs_f64();
        let factor = f64::exp(-DECAY_PER_SECOND * passed);
        self.since = now;
        let old = std::mem::take(&mut self.entries).into_iter();
        self.entries = old.map(|w| WeightedValue { priority: w.priority * factor, ..w }).collect();
    }

    /// A number above 0 and at most 1 (xorshift64*).
    fn draw_random(&mut self) -> f64 {
        self.random ^= self.random >> 12;
        self.random ^= self.random << 25;
        self.random ^= self.random >> 27;
        let bits = self.random.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 11;
        (bits + 1) as f64 / (1_u64 << 53) as f64
    }

    fn percentiles<const N: usize>(&self, quantiles: [f64; N]) -> [f64; N] {
        let mut values = self.entries.iter().map(|entries| entries.nanoseconds).collect::<Vec<_>>();
        values.sort_unstable_by(f64::total_cmp);
        quantiles.map(|p| percentile(&values, p))
    }
}

/// The value at position p·(n+1) of sorted values, between two of them by their distance.
fn percentile(sorted: &[f64], p: f64) -> f64 {
    let (Some(first), Some(last)) = (sorted.first(), sorted.last()) else { return 0.0 };
    let position = p * (sorted.len() as f64 + 1.0);
    if position < 1.0 {
        return *first;
    }
    let below = position as usize;
    match (sorted.get(below - 1), sorted.get(below)) {
        (Some(lower), Some(upper)) => lower + (position - below as f64) * (upper - lower),
        _ => *last,
    }
}

impl PartialEq for WeightedValue {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for WeightedValue {}

impl PartialOrd for WeightedValue {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for WeightedValue {
    /// The least priority is the greatest, as the heap shows the greatest first.
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        other.priority.total_cmp(&self.priority)
    }
}

fn lock_mutex<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(start: Instant, seconds: u64) -> Instant {
        start + Duration::from_secs(seconds)
    }

    #[test]
    fn the_first_tick_sets_all_rates() {
        let start = Instant::now();
        let metrics = TunnelMetrics::new(start);
        (0..10).for_each(|_| metrics.request_started(start));

        let http = metrics.report(after(start, 5)).http;

        assert_eq!((http.count, http.rate1), (10, Number(2.0)));
        assert_eq!((http.rate5, http.rate15), (Number(2.0), Number(2.0)));
    }

    #[test]
    fn rates_decay_with_the_ticks_that_nobody_saw() {
        let start = Instant::now();
        let metrics = TunnelMetrics::new(start);
        metrics.connection_opened(start);

        let conns = metrics.report(after(start, 65)).conns;

        assert!((conns.rate1.0 - 0.2 * f64::exp(-1.0)).abs() < 1e-9, "{:?}", conns.rate1);
        assert!((conns.rate15.0 - 0.2 * f64::exp(-1.0 / 15.0)).abs() < 1e-9, "{:?}", conns.rate15);
    }

    #[test]
    fn percentiles_lie_between_values() {
        let values = [1.0, 2.0, 3.0, 4.0];

        assert_eq!(percentile(&values, 0.5), 2.5);
        assert_eq!(percentile(&values, 0.1), 1.0);
        assert_eq!(percentile(&values, 0.99), 4.0);
        assert_eq!(percentile(&[], 0.5), 0.0);
    }

    #[test]
    fn a_connection_counts_open_then_by_its_length() {
        let start = Instant::now();
        let metrics = TunnelMetrics::new(start);

        metrics.connection_opened(start);
        let open = metrics.report(start).conns;
        metrics.connection_closed(Duration::from_millis(3), start);
        let closed = metrics.report(start).conns;

        assert_eq!((open.count, open.gauge, open.p99), (1, 1, Number(0.0)));
        assert_eq!((closed.count, closed.gauge, closed.p99), (1, 0, Number(3e6)));
    }

    #[test]
    fn the_sample_is_bounded_and_prefers_recent_values() {
        let start = Instant::now();
        let mut sample = DecayingSample::new(start);
        (0..5000).for_each(|_| sample.add_value(Duration::from_nanos(1), start));
        (0..5000).for_each(|_| sample.add_value(Duration::from_nanos(2), after(start, 7300)));

        assert_eq!(sample.entries.len(), MAX_SAMPLES);
        assert_eq!(sample.percentiles([0.01])[0], 2.0);
    }
}
