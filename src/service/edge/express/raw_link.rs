//! A connection to an agent that carries requests as bytes.

use std::pin::Pin;
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, ReadBuf};

use crate::service::edge::Io;
use crate::service::edge::link::Named;
use crate::service::edge::pool::Idle;

/// A connection to an agent that carries requests as bytes.
pub(in crate::service::edge) struct RawLink {
    pub(super) io: Io,
    named: Option<Named>,
    idle_since: Option<Instant>,
}

impl RawLink {
    /// A connection that has carried nothing.
    pub(super) fn new(io: Io, named: Option<Named>) -> Self {
        Self { io, named, idle_since: None }
    }

    /// Whether it has carried a request before.
    pub(super) fn is_used(&self) -> bool {
        self.idle_since.is_some()
    }

    /// Marks the beginning of an idle time.
    pub(super) fn rest(&mut self) {
        self.idle_since = Some(Instant::now());
    }
}

impl Idle for RawLink {
    fn named(&self) -> Option<&Named> {
        self.named.as_ref()
    }

    fn idle(&self) -> Option<Duration> {
        self.idle_since.map(|since| since.elapsed())
    }

    fn is_usable(&mut self) -> bool {
        let mut byte = [0];
        let cx = &mut Context::from_waker(Waker::noop());
        // Neither an end nor a word is expected.
        Pin::new(&mut self.io).poll_read(cx, &mut ReadBuf::new(&mut byte)).is_pending()
    }
}
