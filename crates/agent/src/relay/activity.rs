//! Whether a connection of a visitor carries something.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use ginnel_mux::{Code, StreamWatch};
use ginnel_net::{Shutdown, ShutdownPhase};

/// Whether a connection of a visitor carries a request, or bytes of another protocol.
#[derive(Debug, Default)]
pub struct Activity<'t> {
    /// Odd while it does; rises with each beginning and each end.
    turns: AtomicU32,
    /// How far its tunnel is on the way to the end.
    shutdown: Option<&'t Shutdown>,
    /// The stream that carries it.
    stream: Option<StreamWatch>,
}

/// An answer that only the end of its connection ends. Dropped before it is complete, it resets the
/// stream, so that no visitor takes what came for all of it.
#[derive(Debug)]
pub(super) struct UnframedAnswer<'a>(Option<&'a StreamWatch>);

impl UnframedAnswer<'_> {
    /// The answer came to its end.
    pub fn complete(mut self) {
        self.0 = None;
    }
}

impl Drop for UnframedAnswer<'_> {
    fn drop(&mut self) {
        if let Some(stream) = self.0 {
            stream.reset(Code::RESET);
        }
    }
}

impl<'t> Activity<'t> {
    /// Of a connection that ends with this shutdown, and that this stream carries.
    pub(crate) fn new(shutdown: &'t Shutdown, stream: StreamWatch) -> Self {
        Self { turns: AtomicU32::new(0), shutdown: Some(shutdown), stream: Some(stream) }
    }

    /// Of a request that nobody waits for, and that ends with this shutdown.
    pub(crate) fn without_visitor(shutdown: &'t Shutdown) -> Self {
        Self { shutdown: Some(shutdown), ..Self::default() }
    }

    /// An answer begins that only the end of its connection ends.
    pub(super) fn begin_unframed(&self) -> UnframedAnswer<'_> {
        UnframedAnswer(self.stream.as_ref())
    }

    /// Resets the stream, where there is one.
    pub(crate) fn reset_stream(&self) {
        if let Some(stream) = &self.stream {
            stream.reset(Code::RESET);
        }
    }

    /// Something begins.
    pub(crate) fn begin_turn(&self) {
        self.turns.fetch_or(1, Relaxed);
    }

    /// It has ended, if there was something.
    pub(super) fn end_turn(&self) {
        let turns = self.turns.load(Relaxed);
        // Only the connection itself changes it.
        self.turns.store(turns.wrapping_add(turns & 1), Relaxed);
    }

    /// Waits so long; true when the connection carried nothing in this time.
    pub(crate) async fn is_idle_for(&self, time: Duration) -> bool {
        let before = self.turns.load(Relaxed);
        tokio::time::sleep(time).await;
        before & 1 == 0 && self.turns.load(Relaxed) == before
    }

    /// Waits until everything in flight is to be finished.
    pub(super) fn wait_for_shutdown(&self) -> impl Future<Output = ()> + Send + use<> {
        let shutdown = self.shutdown.map(Shutdown::signal);
        async move {
            let Some(mut shutdown) = shutdown else { return std::future::pending().await };
            shutdown.wait_for(ShutdownPhase::Graceful).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_connection_is_idle_only_between_requests() {
        let activity = Activity::default();
        let short = Duration::from_millis(1);
        assert!(activity.is_idle_for(short).await);

        activity.begin_turn();
        assert!(!activity.is_idle_for(short).await);

        let looking = activity.is_idle_for(Duration::from_millis(20));
        let ending = async {
            activity.end_turn();
            activity.begin_turn();
            activity.end_turn();
        };
        assert!(!tokio::join!(looking, ending).0, "something was carried meanwhile");
        assert!(activity.is_idle_for(short).await);
    }
}
