//! The answers of a connection that carries many at once, each with a time of its own: an answer of
//! which the visitor takes nothing for too long is given up, whatever moves beside it.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::task::{Context, Poll};

use hyper::rt::Executor;
use tokio::sync::Notify;

use crate::gateway::http::body::Body;
use crate::gateway::http::connection_timer::{Pulse, STALL};
use crate::gateway::http::read_ahead::{ReadAhead, ReadAheadBudget};

/// How many requests are looked through at least before those that have ended are forgotten.
const REMEMBERED: usize = 64;

tokio::task_local! {
    /// The request that the present task answers.
    static PART: Arc<Part>;
}

/// What is known of many answers on one connection.
#[derive(Debug, Default)]
pub(crate) struct Many {
    /// How many frames that ask for nothing the visitor has earned.
    pub earned: AtomicU64,
    /// How many ticks have passed.
    ticks: AtomicU32,
    parts: Mutex<Vec<Weak<Part>>>,
    read_ahead: Arc<ReadAheadBudget>,
}

/// One of many requests.
#[derive(Default)]
pub(crate) struct Part {
    /// The tick, counted from 1, since when the visitor could take more and did not; 0 when it is
    /// not its turn.
    offered: AtomicU32,
    /// Told when the visitor has used up its time.
    over: Notify,
    /// The body of the answer.
    ahead: OnceLock<Arc<ReadAhead>>,
}

impl fmt::Debug for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Part").field("offered", &self.offered).finish_non_exhaustive()
    }
}

impl Many {
    pub(crate) fn new(read_ahead: Arc<ReadAheadBudget>) -> Self {
        Self { read_ahead, ..Self::default() }
    }

    /// The request that the present task answers.
    pub(crate) fn present() -> Option<Arc<Part>> {
        PART.try_with(Arc::clone).ok()
    }

    /// Notes that a part was given something that waits for the visitor, or that it has nothing.
    pub(crate) fn offers(&self, part: &Part, something: bool) {
        let now = self.ticks.load(Relaxed) + 1;
        part.offered.store(if something { now } else { 0 }, Relaxed);
    }

    /// Gives up the answers whose time is over; to be asked at every tick.
    pub(crate) fn tick(&self) {
        let now = self.ticks.fetch_add(1, Relaxed) + 1;
        let mut parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        parts.retain(|part| {
            let Some(part) = part.upgrade() else { return false };
            let offered = part.offered.load(Relaxed);
            if offered > 0 && now.saturating_sub(offered) > u32::from(STALL) {
                part.over.notify_one();
            }
            true
        });
    }

    fn begin(&self) -> Arc<Part> {
        let part = Arc::new(Part::default());
        let mut parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        if parts.len() >= REMEMBERED && parts.len() == parts.capacity() {
            parts.retain(|part| part.strong_count() > 0);
        }
        parts.push(Arc::downgrade(&part));
        part
    }
}

impl Part {
    /// Has the body of the answer read ahead of the visitor from now on.
    pub(crate) fn read_ahead(&self, body: Body, many: &Many) -> Arc<ReadAhead> {
        let ahead = ReadAhead::new(body, many.read_ahead.clone());
        // A request has one answer.
        let _ = self.ahead.set(ahead.clone());
        ahead
    }

    /// Goes on with a request; what its visitor does not take is read meanwhile.
    fn poll<F: Future>(&self, request: Pin<&mut F>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let polled = request.poll(cx);
        if polled.is_pending()
            && let Some(ahead) = self.ahead.get()
        {
            ahead.read(cx);
        }
        polled
    }

    /// Waits until the visitor has used up its time.
    async fn is_over(&self) {
        self.over.notified().await;
    }
}

/// Runs the requests of a connection, and ends those that are given up.
#[derive(Clone)]
pub(crate) struct Runner(pub Arc<Pulse>);

impl<F> Executor<F> for Runner
where
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, request: F) {
        let Some(many) = self.0.many() else {
            tokio::spawn(request);
            return;
        };
        let part = many.begin();
        let request = PART.scope(part.clone(), request);
        tokio::spawn(async move {
            // Whoever lets go of a stream in the middle resets it.
            let mut request = pin!(request);
            tokio::select! {
                _ = poll_fn(|cx| part.poll(request.as_mut(), cx)) => {}
                () = part.is_over() => {}
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_over(part: &Part) -> bool {
        let mut over = std::pin::pin!(part.is_over());
        let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
        over.as_mut().poll(&mut cx).is_ready()
    }

    #[test]
    fn each_answer_has_its_own_time() {
        let many = Many::default();
        let [moving, stalled, thinking] = [(); 3].map(|()| many.begin());
        many.offers(&stalled, true);
        many.offers(&thinking, true);
        many.offers(&thinking, false);

        for _ in 0..STALL {
            many.offers(&moving, true);
            many.tick();
        }
        assert!(!is_over(&stalled));
        many.tick();
        many.tick();

        assert!(is_over(&stalled));
        assert!(!is_over(&moving) && !is_over(&thinking));
    }

    #[test]
    fn requests_that_have_ended_are_forgotten() {
        let many = Many::default();
        for _ in 0..10_000 {
            many.begin();
        }

        let parts = many.parts.lock().unwrap_or_else(PoisonError::into_inner);
        assert!(parts.len() <= 2 * REMEMBERED, "{}", parts.len());
    }
}
