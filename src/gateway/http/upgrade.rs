//! Connections that have become something other than HTTP.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, copy_bidirectional};
use tokio::sync::watch;

use crate::gateway::Io;
use crate::gateway::http::connection_activity::ConnectionActivity;
use crate::gateway::listener::shutdown::{ShutdownPhase, ShutdownSignal};
use crate::gateway::modules::websocket_tcp;
use crate::gateway::upstream::http1::Http1Connection;
use crate::http1::GoingAway;

/// What carries on behind an upgraded connection.
pub(crate) struct UpgradeContext {
    /// Says when everything must end.
    pub shutdown: ShutdownSignal,
    /// The state of the visitor's connection, which is no longer HTTP then.
    pub activity: Arc<ConnectionActivity>,
    /// How long an upstream may think before it answers.
    pub response_timeout: Duration,
    /// Held by what carries on: a graceful stop waits for it.
    pub carried: watch::Receiver<()>,
}

impl UpgradeContext {
    /// Lets a visitor and an upstream talk until one of them ends, each direction on its own. At a
    /// graceful stop, a visitor who speaks WebSocket is told so in a close frame.
    pub(crate) fn join(&self, visitor: OnUpgrade, link: Http1Connection, is_websocket: bool) {
        let shutdown = is_websocket.then(|| self.shutdown());
        self.carry_on(talk(visitor, link, shutdown));
    }

    /// Lets a visitor and a target talk, the one in messages and the other in bytes.
    pub(crate) fn convert(&self, visitor: OnUpgrade, target: Io) {
        self.carry_on(websocket_tcp::convert(visitor, target, self.shutdown()));
    }

    /// Waits for a graceful stop.
    fn shutdown(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut shutdown = self.shutdown.clone();
        async move { shutdown.wait_for(ShutdownPhase::Graceful).await }
    }

    fn carry_on(&self, talk: impl Future<Output = ()> + Send + 'static) {
        self.activity.upgraded.store(true, Relaxed);
        let (mut shutdown, carried) = (self.shutdown.clone(), self.carried.clone());
        tokio::spawn(async move {
            tokio::select! {
                () = talk => {}
                () = shutdown.wait_for(ShutdownPhase::Forced) => {}
            }
            drop(carried);
        });
    }
}

async fn talk(
    visitor: OnUpgrade,
    link: Http1Connection,
    shutdown: Option<impl Future<Output = ()> + Send>,
) {
    let (visitor, upstream) = tokio::join!(visitor, link.into_raw());
    let (Ok(visitor), Some((upstream, said))) = (visitor, upstream) else { return };
    let (reads, writes) = tokio::io::split(upstream);
    let reads = std::io::Cursor::new(said).chain(reads);
    let mut visitor = TokioIo::new(visitor);
    // How it ends concerns the two, who see it.
    let _ = match shutdown {
        None => copy_bidirectional(&mut visitor, &mut tokio::io::join(reads, writes)).await,
        Some(shutdown) => {
            let reads = GoingAway::new(reads, shutdown);
            copy_bidirectional(&mut visitor, &mut tokio::io::join(reads, writes)).await
        }
    };
}
