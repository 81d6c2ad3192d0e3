//! The answers of a connection that carries many at once, each with a time of its own: an answer of
//! which the visitor takes nothing for too long is given up, whatever moves beside it.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::task::{Context, Poll};

use tokio::sync::Notify;

use ginnel_base::logging::ignore;

use crate::message::read_ahead::{PollAhead, ReadAheadBudget};
use crate::message::upstream_wait::UpstreamWait;

/// How many requests are looked through at least before those that have ended are forgotten.
const MIN_REMEMBERED_STREAMS: usize = 64;

tokio::task_local! {
    /// The request that the present task answers.
    static STREAM_TIMER: Arc<StreamTimer>;
}

/// What is known of many answers on one connection.
#[derive(Debug, Default)]
pub struct StreamTimers {
    /// How many frames that ask for nothing the visitor has earned.
    pub earned: AtomicU64,
    /// How many ticks have passed.
    ticks: AtomicU32,
    streams: Mutex<Vec<Weak<StreamTimer>>>,
    read_ahead: Arc<ReadAheadBudget>,
}

/// One of many requests.
#[derive(Default)]
pub struct StreamTimer {
    /// The tick, counted from 1, since when the visitor could take more and did not; 0 when it is
    /// not its turn.
    offered: AtomicU32,
    /// The wait for the rest of the response body.
    upstream_wait: UpstreamWait,
    /// Told when the visitor or the upstream has used up its time.
    over: Notify,
    /// The body of the answer.
    ahead: OnceLock<Arc<dyn PollAhead>>,
}

impl fmt::Debug for StreamTimer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Part").field("offered", &self.offered).finish_non_exhaustive()
    }
}

impl StreamTimers {
    pub fn new(read_ahead: Arc<ReadAheadBudget>) -> Self {
        Self { read_ahead, ..Self::default() }
    }

    /// How much of all responses is read ahead.
    pub fn read_ahead_budget(&self) -> Arc<ReadAheadBudget> {
        self.read_ahead.clone()
    }

    /// The request that the present task answers.
    pub fn for_current_task() -> Option<Arc<StreamTimer>> {
        STREAM_TIMER.try_with(Arc::clone).ok()
    }

    /// Notes that a part was given something that waits for the visitor, or that it has nothing.
    pub fn record_offer(&self, stream_timer: &StreamTimer, something: bool) {
        let now = self.ticks.load(Relaxed) + 1;
        stream_timer.offered.store(if something { now } else { 0 }, Relaxed);
    }

    /// Gives up the responses whose visitor paused for `stall` ticks, or whose upstream paused for `upstream_stall`
    /// ticks. Must be called at every tick.
    pub fn expire_stalled(&self, stall: u32, upstream_stall: u32) {
        let now = self.ticks.fetch_add(1, Relaxed) + 1;
        let mut streams = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
        streams.retain(|stream_timer| {
            let Some(stream_timer) = stream_timer.upgrade() else { return false };
            let offered = stream_timer.offered.load(Relaxed);
            let is_untaken = offered > 0 && now.saturating_sub(offered) > stall;
            if stream_timer.upstream_wait.count_tick(upstream_stall) || is_untaken {
                stream_timer.over.notify_one();
            }
            true
        });
    }

    pub fn start_timer(&self) -> Arc<StreamTimer> {
        let stream_timer = Arc::new(StreamTimer::default());
        let mut streams = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
        if streams.len() >= MIN_REMEMBERED_STREAMS && streams.len() == streams.capacity() {
            streams.retain(|stream_timer| stream_timer.strong_count() > 0);
        }
        streams.push(Arc::downgrade(&stream_timer));
        stream_timer
    }
}

impl StreamTimer {
    /// Has the body of the response read ahead of the visitor from now on.
    pub fn read_ahead(&self, body: Arc<dyn PollAhead>) {
        ignore(self.ahead.set(body), "a request has one response");
    }

    /// Runs a request as the one that its task answers.
    pub fn scope_request<F: Future>(
        self: Arc<Self>,
        request: F,
    ) -> impl Future<Output = F::Output> {
        STREAM_TIMER.scope(self, request)
    }

    /// Goes on with a request; what its visitor does not take is read meanwhile.
    pub fn poll<F: Future>(&self, request: Pin<&mut F>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let polled = request.poll(cx);
        if polled.is_pending()
            && let Some(ahead) = self.ahead.get()
        {
            ahead.poll_ahead(cx);
        }
        polled
    }

    /// The wait for the rest of the response body.
    pub fn upstream_wait(&self) -> &UpstreamWait {
        &self.upstream_wait
    }

    /// Waits until the visitor or the upstream has used up its time.
    pub async fn is_over(&self) {
        self.over.notified().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STALL: u32 = 12;
    const UPSTREAM_STALL: u32 = 120;

    fn is_over(stream_timer: &StreamTimer) -> bool {
        let mut over = std::pin::pin!(stream_timer.is_over());
        let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
        over.as_mut().poll(&mut cx).is_ready()
    }

    #[test]
    fn each_answer_has_its_own_time() {
        let stream_timers = StreamTimers::default();
        let [moving, stalled, thinking] = [(); 3].map(|()| stream_timers.start_timer());
        stream_timers.record_offer(&stalled, true);
        stream_timers.record_offer(&thinking, true);
        stream_timers.record_offer(&thinking, false);

        for _ in 0..STALL {
            stream_timers.record_offer(&moving, true);
            stream_timers.expire_stalled(STALL, UPSTREAM_STALL);
        }
        assert!(!is_over(&stalled));
        stream_timers.expire_stalled(STALL, UPSTREAM_STALL);
        stream_timers.expire_stalled(STALL, UPSTREAM_STALL);

        assert!(is_over(&stalled));
        assert!(!is_over(&moving) && !is_over(&thinking));
    }

    #[test]
    fn requests_that_have_ended_are_forgotten() {
        let stream_timers = StreamTimers::default();
        for _ in 0..10_000 {
            stream_timers.start_timer();
        }

        let streams = stream_timers.streams.lock().unwrap_or_else(PoisonError::into_inner);
        assert!(streams.len() <= 2 * MIN_REMEMBERED_STREAMS, "{}", streams.len());
    }
}
