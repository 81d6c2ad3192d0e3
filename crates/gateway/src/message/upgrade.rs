//! Connections that have become something other than HTTP.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;

use ginnel_base::logging::ignore;
use ginnel_net::{ShutdownPhase, ShutdownSignal};

use crate::message::connection_activity::ConnectionActivity;
use crate::message::visitor_stream::VisitorStream;

/// The visitor's side of another protocol, which is there as soon as the visitor was told.
#[derive(Clone)]
pub struct VisitorUpgrade(Arc<Mutex<Option<oneshot::Receiver<VisitorStream>>>>);

/// Hands a visitor's connection over to whoever speaks the other protocol.
pub struct UpgradeSender(oneshot::Sender<VisitorStream>);

impl VisitorUpgrade {
    /// Both sides of a connection that may speak something else.
    pub fn new() -> (UpgradeSender, Self) {
        let (sender, receiver) = oneshot::channel();
        (UpgradeSender(sender), Self(Arc::new(Mutex::new(Some(receiver)))))
    }

    /// The connection, once; none when the visitor left before.
    pub async fn into_stream(self) -> Option<VisitorStream> {
        let receiver = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        receiver?.await.ok()
    }
}

impl UpgradeSender {
    /// The visitor has been told.
    pub fn send(self, stream: VisitorStream) {
        ignore(self.0.send(stream), "who was to speak may have gone");
    }
}

/// What carries on behind an upgraded connection.
pub struct UpgradeContext {
    /// Says when everything must end; a graceful stop waits for what carries on.
    pub shutdown: ShutdownSignal,
    /// The state of the visitor's connection, which is no longer HTTP then.
    pub activity: Arc<ConnectionActivity>,
    /// Maximum time until an upstream begins its response. `None` removes the limit.
    pub response_timeout: Option<Duration>,
    /// How long opening a connection to an upstream may take.
    pub dial_timeout: Duration,
}

impl UpgradeContext {
    /// The maximum time until an upstream begins its response.
    pub fn response_limit(&self) -> Duration {
        self.response_timeout.unwrap_or(Duration::MAX)
    }

    /// Waits for a graceful stop.
    pub fn graceful_stop(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut shutdown = self.shutdown.clone();
        async move { shutdown.wait_for(ShutdownPhase::Graceful).await }
    }

    /// Runs the exchange of an upgraded connection until it ends, or until a forced stop.
    pub fn spawn_until_shutdown(&self, talk: impl Future<Output = ()> + Send + 'static) {
        self.activity.upgraded.store(true, Relaxed);
        let mut shutdown = self.shutdown.clone();
        tokio::spawn(async move { shutdown.run_until(ShutdownPhase::Forced, talk).await });
    }
}
