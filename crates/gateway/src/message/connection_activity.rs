//! Whether a visitor still does its part.
//!
//! Time limits are looked at in ticks, a few seconds apart, so that a request costs no timer.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering::Relaxed};

use ginnel_http1::Expects;

use crate::message::metered::CarriedCounts;
use crate::message::read_ahead::ReadAheadBudget;
use crate::message::stream_timers::{StreamTimer, StreamTimers};
use crate::message::upstream_wait::UpstreamWait;
use crate::metrics::RequestRecord;
use crate::timeouts::TickLimits;

/// How many frames that ask for nothing a visitor earns with the longest tick,
const EARNED_BY_TICK: u64 = 250;
/// with a request,
pub const EARNED_BY_REQUEST: u64 = 16;
/// and with each such piece of an answer, in bytes, or a smaller one.
const EARNING_PIECE: usize = 4096;
const EARNED_BY_PIECE: u64 = 4;

/// What the parts of a connection tell one another.
#[derive(Debug, Default)]
pub struct ConnectionActivity {
    /// How many requests are being answered.
    active_requests: AtomicU32,
    /// True when there has been a request.
    seen: AtomicBool,
    expects: AtomicU8,
    /// True when bytes have arrived since the last tick.
    arrived: AtomicBool,
    /// True when somebody waits for bytes of the visitor.
    starved: AtomicBool,
    /// True when the visitor takes no more bytes for now.
    blocked: AtomicBool,
    /// True when the connection carries something other than HTTP.
    pub upgraded: AtomicBool,
    /// True when the body of a request could not be read, so that no other request follows.
    body_failed: AtomicBool,
    /// True when an agent holds the request until a person decides.
    held: AtomicBool,
    /// True when the connection must be closed, whatever else is on it.
    pub closed: AtomicBool,
    /// The wait for the rest of a response body, if the connection carries one request at a time.
    upstream_wait: UpstreamWait,
    /// What the connection has carried.
    pub carried: Arc<CarriedCounts>,
    /// What only a connection has that carries many requests at once.
    stream_timers: Option<StreamTimers>,
}

/// A request that is being answered, for as long as this lives.
#[derive(Debug)]
pub struct ActiveRequest {
    activity: Arc<ConnectionActivity>,
    /// The request among many; none where it is the only one.
    stream_timer: Option<Arc<StreamTimer>>,
    /// Counts the request at its end, where requests are counted.
    record: Option<RequestRecord>,
}

impl ActiveRequest {
    /// Has the request counted when this ends.
    pub fn set_record(&mut self, record: Option<RequestRecord>) {
        self.record = record;
    }

    /// The request and the others beside it, where there may be others.
    pub fn stream_timer(&self) -> Option<(&StreamTimer, &StreamTimers)> {
        Some((self.stream_timer.as_deref()?, self.activity.stream_timers.as_ref()?))
    }

    /// Notes if the visitor waits for the rest of a response body, which has a time limit.
    pub fn record_wait(&self, is_waiting: bool) {
        let wait = match &self.stream_timer {
            Some(stream_timer) => stream_timer.upstream_wait(),
            None => &self.activity.upstream_wait,
        };
        wait.set_waiting(is_waiting);
    }

    /// Something asked for more of the answer, and was given so many bytes.
    pub fn record_output(&mut self, length: Option<usize>) {
        let Some(stream_timers) = &self.activity.stream_timers else { return };
        if let Some(length) = length {
            let pieces = 1 + (length / EARNING_PIECE) as u64;
            stream_timers.earned.fetch_add(pieces * EARNED_BY_PIECE, Relaxed);
        }
        if let Some(stream_timer) = &self.stream_timer {
            stream_timers.record_offer(stream_timer, length.is_some());
        }
    }
}

impl ConnectionActivity {
    /// The activity of a connection that carries many requests at once.
    pub fn multiplexed(read_ahead: Arc<ReadAheadBudget>) -> Self {
        Self { stream_timers: Some(StreamTimers::new(read_ahead)), ..Self::default() }
    }

    /// Marks the beginning of an answer.
    pub fn track_request(self: &Arc<Self>) -> ActiveRequest {
        self.active_requests.fetch_add(1, Relaxed);
        self.seen.store(true, Relaxed);
        self.arrived.store(true, Relaxed);
        self.earn_frames(EARNED_BY_REQUEST);
        let stream_timer =
            self.stream_timers.as_ref().and_then(|_| StreamTimers::for_current_task());
        ActiveRequest { activity: self.clone(), stream_timer, record: None }
    }

    /// What is known of many answers, where there may be many.
    pub fn stream_timers(&self) -> Option<&StreamTimers> {
        self.stream_timers.as_ref()
    }

    /// How many frames that ask for nothing the visitor has earned.
    pub fn earned_frames(&self) -> u64 {
        self.stream_timers.as_ref().map_or(0, |stream_timers| stream_timers.earned.load(Relaxed))
    }

    fn earn_frames(&self, frames: u64) {
        if let Some(stream_timers) = &self.stream_timers {
            stream_timers.earned.fetch_add(frames, Relaxed);
        }
    }

    /// The body of a request cannot be read; where there are many, the others go on.
    pub fn body_failed(&self) {
        self.body_failed.store(self.stream_timers.is_none(), Relaxed);
    }

    /// Whether the body of the last request could not be read.
    pub fn has_failed_body(&self) -> bool {
        self.body_failed.load(Relaxed)
    }

    /// Says if an agent holds the request.
    pub fn set_held(&self, held: bool) {
        self.held.store(held, Relaxed);
    }

    /// Returns true if an agent holds the request.
    pub fn is_held(&self) -> bool {
        self.held.load(Relaxed)
    }

    /// The wait for the rest of a response body, if the connection carries one request at a time.
    pub fn upstream_wait(&self) -> &UpstreamWait {
        &self.upstream_wait
    }

    /// Returns true if the rest of a response body has not come for `limit` ticks; to be asked at every tick.
    fn is_upstream_stalled(&self, limit: u32) -> bool {
        // The upstream may wait for the rest of the request.
        if self.expects.load(Relaxed) == Expects::Body as u8 {
            self.upstream_wait.restart();
        }
        self.upstream_wait.count_tick(limit)
    }

    /// Whether a request is being answered.
    pub fn is_answering(&self) -> bool {
        self.active_requests.load(Relaxed) > 0
    }

    pub fn record_arrival(&self, expects: Expects) {
        self.arrived.store(true, Relaxed);
        self.starved.store(false, Relaxed);
        self.expects.store(expects as u8, Relaxed);
    }

    /// What the visitor has to send next.
    pub fn set_expected(&self, expects: Expects) {
        self.expects.store(expects as u8, Relaxed);
    }

    pub fn mark_starved(&self) {
        self.starved.store(true, Relaxed);
    }

    pub fn set_blocked(&self, blocked: bool) {
        self.blocked.store(blocked, Relaxed);
    }
}

impl Drop for ActiveRequest {
    fn drop(&mut self) {
        self.record_wait(false);
        self.activity.active_requests.fetch_sub(1, Relaxed);
    }
}

/// Counts the ticks of a connection.
#[derive(Debug)]
pub struct ActivityTimeouts {
    limits: TickLimits,
    reading: u32,
    writing: u32,
}

impl ActivityTimeouts {
    pub fn new(limits: TickLimits) -> Self {
        Self { limits, reading: 0, writing: 0 }
    }

    /// Whether the visitor has used up its time; to be asked at every tick.
    pub fn is_over(&mut self, activity: &ConnectionActivity) -> bool {
        let arrived = activity.arrived.swap(false, Relaxed);
        let active_requests = activity.active_requests.load(Relaxed) > 0;
        let limit = self.tick_limit(activity, arrived, active_requests);
        activity.earn_frames(self.limits.scale_to_tick(EARNED_BY_TICK));
        if let Some(stream_timers) = &activity.stream_timers {
            stream_timers.expire_stalled(self.limits.stall, self.limits.upstream_stall);
        }
        self.writing = if activity.blocked.load(Relaxed) { self.writing + 1 } else { 0 };
        self.reading = match limit {
            Some(_) => self.reading + 1,
            None => 0,
        };
        let is_upstream_stalled = activity.is_upstream_stalled(self.limits.upstream_stall);
        is_upstream_stalled
            || self.writing > self.limits.stall
            || limit.is_some_and(|limit| self.reading > limit)
    }

    /// How many ticks the present state may last; none when it is not the visitor's turn.
    fn tick_limit(
        &mut self,
        activity: &ConnectionActivity,
        arrived: bool,
        active_requests: bool,
    ) -> Option<u32> {
        if activity.upgraded.load(Relaxed) {
            return None;
        }
        let expects = activity.expects.load(Relaxed);
        if expects == Expects::Body as u8 {
            let waiting = activity.starved.load(Relaxed) && !arrived;
            return waiting.then_some(self.limits.stall);
        }
        if active_requests {
            return None;
        }
        if expects == Expects::Head as u8 || !activity.seen.load(Relaxed) {
            return Some(self.limits.head);
        }
        // The time between requests starts anew with each of them.
        if arrived {
            self.reading = 0;
        }
        Some(self.limits.idle)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Timeouts;

    fn ticks_until_over(activity: &ConnectionActivity) -> Option<usize> {
        let limits = TickLimits::from_timeouts(&Timeouts::default());
        let mut clock = ActivityTimeouts::new(limits);
        (1..=100).find(|_| clock.is_over(activity))
    }

    #[test]
    fn a_silent_visitor_has_less_time_than_one_who_came_before() {
        let silent = Arc::new(ConnectionActivity::default());
        let idle = Arc::new(ConnectionActivity::default());
        drop(idle.track_request());

        assert_eq!(ticks_until_over(&silent), Some(5));
        assert_eq!(ticks_until_over(&idle), Some(37));
    }

    #[test]
    fn nobody_is_hurried_while_the_answer_is_waited_for() {
        let activity = Arc::new(ConnectionActivity::default());
        let _answering = activity.track_request();

        assert_eq!(ticks_until_over(&activity), None);
    }

    #[test]
    fn a_head_and_a_body_must_go_on() {
        let activity = Arc::new(ConnectionActivity::default());
        activity.record_arrival(Expects::Head);
        assert_eq!(ticks_until_over(&activity), Some(5));

        let _answering = activity.track_request();
        activity.record_arrival(Expects::Body);
        assert_eq!(ticks_until_over(&activity), None, "nobody asks for more");
        activity.mark_starved();
        assert_eq!(ticks_until_over(&activity), Some(13));
    }

    #[test]
    fn a_response_body_that_stops_is_given_up() {
        let activity = Arc::new(ConnectionActivity::default());
        let limits =
            TickLimits { upstream_stall: 2, ..TickLimits::from_timeouts(&Timeouts::default()) };
        let mut clock = ActivityTimeouts::new(limits);
        let answering = activity.track_request();
        let mut ticks = || [(); 3].map(|()| clock.is_over(&activity));

        answering.record_wait(true);
        assert_eq!(ticks(), [false, false, true]);
        activity.set_expected(Expects::Body);
        assert_eq!(ticks(), [false; 3], "the request is not complete");
        activity.set_expected(Expects::Nothing);
        answering.record_wait(false);
        answering.record_wait(true);
        assert_eq!(ticks(), [false, false, true]);
        drop(answering);
        assert_eq!(ticks(), [false; 3], "the response has ended");
    }

    #[test]
    fn who_takes_no_bytes_is_given_up() {
        let activity = Arc::new(ConnectionActivity::default());
        let _answering = activity.track_request();
        activity.set_blocked(true);

        assert_eq!(ticks_until_over(&activity), Some(13));
    }
}
