//! Connections that have become something other than HTTP.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::sync::oneshot;

use ginnel_base::logging::{ignore, or_debug};
use ginnel_http1::GoingAway;
use ginnel_net::{ResetOnClose, ShutdownPhase, ShutdownSignal, copy_both_until};

use crate::Io;
use crate::message::connection_activity::ConnectionActivity;
use crate::message::visitor_stream::VisitorStream;
use crate::modules::websocket_tcp;
use crate::upstream::http1::Http1Connection;

/// The bytes that are copied at a time.
const COPY_BUFFER_BYTES: usize = 8 << 10;

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
    pub async fn stream(self) -> Option<VisitorStream> {
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
    /// How long an upstream may think before it answers.
    pub response_timeout: Duration,
    /// How long opening a connection to an upstream may take.
    pub dial_timeout: Duration,
}

impl UpgradeContext {
    /// Lets a visitor and an upstream talk until one of them ends, each direction on its own. At a
    /// graceful stop, a visitor who speaks WebSocket is told so in a close frame.
    pub fn join(&self, visitor: VisitorUpgrade, link: Http1Connection, is_websocket: bool) {
        let shutdown = is_websocket.then(|| self.shutdown());
        self.carry_on(talk(visitor, link, shutdown, self.shutdown.clone()));
    }

    /// Lets a visitor and a target talk, the one in messages and the other in bytes.
    pub fn convert(&self, visitor: VisitorUpgrade, target: Io) {
        self.carry_on(websocket_tcp::convert(visitor, target, self.shutdown()));
    }

    /// Waits for a graceful stop.
    fn shutdown(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut shutdown = self.shutdown.clone();
        async move { shutdown.wait_for(ShutdownPhase::Graceful).await }
    }

    fn carry_on(&self, talk: impl Future<Output = ()> + Send + 'static) {
        self.activity.upgraded.store(true, Relaxed);
        let mut shutdown = self.shutdown.clone();
        tokio::spawn(async move { shutdown.run_until(ShutdownPhase::Forced, talk).await });
    }
}

async fn talk(
    visitor: VisitorUpgrade,
    link: Http1Connection,
    shutdown: Option<impl Future<Output = ()> + Send>,
    mut forced: ShutdownSignal,
) {
    let Some(mut visitor) = visitor.stream().await else { return };
    let (upstream, said) = link.into_raw();
    let (reads, writes) = tokio::io::split(upstream);
    let reads = std::io::Cursor::new(said).chain(reads);
    let stop = forced.wait_for(ShutdownPhase::Forced);
    // How it ends concerns the two, who see it.
    let (copied, reads, writes) = match shutdown {
        None => {
            let mut target = tokio::io::join(reads, writes);
            let copied = copy_both_until(&mut visitor, &mut target, COPY_BUFFER_BYTES, stop).await;
            let (reads, writes) = target.into_inner();
            (copied, reads, writes)
        }
        Some(shutdown) => {
            let mut target = tokio::io::join(GoingAway::new(reads, shutdown), writes);
            let copied = copy_both_until(&mut visitor, &mut target, COPY_BUFFER_BYTES, stop).await;
            let (reads, writes) = target.into_inner();
            (copied, reads.into_inner(), writes)
        }
    };
    if let Err(broken) = &copied {
        if broken.is_first_cut_off {
            visitor.reset_on_close();
        }
        if broken.is_second_cut_off {
            let (_, reads) = reads.into_inner();
            reads.unsplit(writes).reset_on_close();
        }
    }
    or_debug!(copied, "a WebSocket broke");
}
