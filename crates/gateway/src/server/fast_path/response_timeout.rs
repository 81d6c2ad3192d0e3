//! A time limit that is set anew for each request.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep_until};

/// A time limit that is set anew for each request, which is cheap: the timer is set only when it
/// has run out too early.
pub struct ResponseTimeout {
    limit: Duration,
    until: Instant,
    timer: Pin<Box<Sleep>>,
}

impl ResponseTimeout {
    pub fn new(limit: Duration) -> Self {
        let until = Instant::now() + limit;
        Self { limit, until, timer: Box::pin(sleep_until(until)) }
    }

    /// Starts anew.
    pub fn reset_deadline(&mut self) {
        self.until = Instant::now() + self.limit;
    }

    /// Ready when the time is over.
    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while self.timer.as_mut().poll(cx).is_ready() {
            if Instant::now() >= self.until {
                return Poll::Ready(());
            }
            self.timer.as_mut().reset(self.until);
        }
        Poll::Pending
    }
}
