//! A time limit that is set anew for each request.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep_until};

/// A time limit that is set anew for each request, which is cheap: the timer is set only when it
/// has run out too early.
pub struct ResponseTimeout(Option<RunningTimeout>);

struct RunningTimeout {
    limit: Duration,
    until: Instant,
    timer: Pin<Box<Sleep>>,
}

impl ResponseTimeout {
    /// Starts a time limit. Without one, the time is never over.
    pub fn new(limit: Option<Duration>) -> Self {
        Self(limit.map(|limit| {
            let until = Instant::now() + limit;
            RunningTimeout { limit, until, timer: Box::pin(sleep_until(until)) }
        }))
    }

    /// Starts anew.
    pub fn reset_deadline(&mut self) {
        if let Some(running) = &mut self.0 {
            running.until = Instant::now() + running.limit;
        }
    }

    /// Ready when the time is over.
    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(running) = &mut self.0 else { return Poll::Pending };
        while running.timer.as_mut().poll(cx).is_ready() {
            if Instant::now() >= running.until {
                return Poll::Ready(());
            }
            running.timer.as_mut().reset(running.until);
        }
        Poll::Pending
    }
}
