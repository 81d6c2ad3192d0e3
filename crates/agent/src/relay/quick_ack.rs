//! Acknowledges at once what local services send in pieces.
//!
//! Many write the head of an answer and then its body, and hold the second back until the first was
//! acknowledged (Nagle's algorithm), while the kernel holds acknowledgements back: 40 ms for every
//! answer. So while an answer has begun and is not complete, it acknowledges before it waits.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll};

use socket2::SockRef;
use tokio::io::{AsyncRead, ReadBuf};
use tokio::net::tcp::OwnedReadHalf;

use ginnel_base::logging::ignore;
use ginnel_http1::reuse::ask_kernel;

const IDLE: u8 = 0;
const WAITING: u8 = 1;
const BEGUN: u8 = 2;

/// Tells the reader of a connection when an answer is waited for.
#[derive(Debug, Clone, Default)]
pub struct ResponseWait(Arc<AtomicU8>);

impl ResponseWait {
    /// An answer is waited for from now on.
    pub(super) fn begin(&self) {
        self.0.store(WAITING, Ordering::Relaxed);
    }

    /// The answer is complete.
    pub(super) fn end(&self) {
        self.0.store(IDLE, Ordering::Relaxed);
    }
}

/// The receiving half of a connection to a local service.
pub(super) struct QuickAckReader {
    read: OwnedReadHalf,
    response_wait: ResponseWait,
}

impl QuickAckReader {
    pub fn new(read: OwnedReadHalf, response_wait: ResponseWait) -> Self {
        Self { read, response_wait }
    }

    fn enable_quick_ack(&self) {
        #[cfg(any(target_os = "linux", target_os = "android"))]
        {
            let set = SockRef::from(self.read.as_ref()).set_tcp_quickack(true);
            ignore(set, "without it things are slow, but right");
        }
    }
}

impl AsyncRead for QuickAckReader {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = Pin::new(&mut self.read).poll_read(cx, buffer);
        let read = ask_kernel(SockRef::from(self.read.as_ref()), cx, buffer, read);
        let state = &self.response_wait.0;
        match state.load(Ordering::Relaxed) {
            WAITING if read.is_ready() => state.store(BEGUN, Ordering::Relaxed),
            BEGUN if read.is_pending() => {
                state.store(WAITING, Ordering::Relaxed);
                self.enable_quick_ack();
            }
            _ => {}
        }
        read
    }
}
