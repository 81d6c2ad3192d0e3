//! Upstreams that have agreed to another protocol than HTTP.

use tokio::io::AsyncReadExt;

use ginnel_base::logging::or_debug;
use ginnel_http1::GoingAway;
use ginnel_net::{ResetOnClose, ShutdownPhase, ShutdownSignal, copy_both_until};

use crate::message::upgrade::{UpgradeContext, VisitorUpgrade};
use crate::upstream::http1::Http1Connection;

/// The bytes that are copied at a time.
const COPY_BUFFER_BYTES: usize = 8 << 10;

impl UpgradeContext {
    /// Lets a visitor and an upstream talk until one of them ends, each direction on its own. At a
    /// graceful stop, a visitor who speaks WebSocket gets a close frame.
    pub fn join_connections(
        &self,
        visitor: VisitorUpgrade,
        link: Http1Connection,
        is_websocket: bool,
    ) {
        let shutdown = is_websocket.then(|| self.graceful_stop());
        self.spawn_until_shutdown(talk(visitor, link, shutdown, self.shutdown.clone()));
    }
}

async fn talk(
    visitor: VisitorUpgrade,
    link: Http1Connection,
    shutdown: Option<impl Future<Output = ()> + Send>,
    mut forced: ShutdownSignal,
) {
    let Some(mut visitor) = visitor.into_stream().await else { return };
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
