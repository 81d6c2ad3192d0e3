//! Connections that have become something other than HTTP.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, copy_bidirectional};

use super::bell::{Call, Listener};
use super::link::Link;
use super::pulse::Pulse;
use super::{Io, converter};

/// What carries on behind an upgraded connection.
pub(super) struct Tasks {
    /// Says when everything must end.
    pub bell: Listener,
    /// The state of the visitor's connection, which is no longer HTTP then.
    pub pulse: Arc<Pulse>,
    /// How long an upstream may think before it answers.
    pub think: Duration,
}

impl Tasks {
    /// Lets a visitor and an upstream talk until one of them ends, each direction on its own.
    pub(super) fn join(&self, visitor: OnUpgrade, link: Link) {
        self.carry_on(talk(visitor, link));
    }

    /// Lets a visitor and a target talk, the one in messages and the other in bytes.
    pub(super) fn convert(&self, visitor: OnUpgrade, target: Io) {
        self.carry_on(converter::convert(visitor, target));
    }

    fn carry_on(&self, talk: impl Future<Output = ()> + Send + 'static) {
        self.pulse.upgraded.store(true, Relaxed);
        let mut bell = self.bell.clone();
        tokio::spawn(async move {
            tokio::select! {
                () = talk => {}
                () = bell.wait_for(Call::Cut) => {}
            }
        });
    }
}

async fn talk(visitor: OnUpgrade, link: Link) {
    let (visitor, upstream) = tokio::join!(visitor, link.into_raw());
    let (Ok(visitor), Some((upstream, said))) = (visitor, upstream) else { return };
    let (reads, writes) = tokio::io::split(upstream);
    let mut upstream = tokio::io::join(std::io::Cursor::new(said).chain(reads), writes);
    // How it ends concerns the two, who see it.
    let _ = copy_bidirectional(&mut TokioIo::new(visitor), &mut upstream).await;
}
