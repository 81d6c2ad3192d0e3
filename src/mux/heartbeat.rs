//! Heartbeats: how a side learns that the other is gone when the connection does not tell.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until, timeout_at};

use crate::logging::or_debug;
use crate::mux::send_queue::End;
use crate::mux::{MuxSession, SessionEnd, Stream};

/// Either side asks whether the other is there.
pub const HEARTBEAT: u32 = 0xffff_ffff;

/// Beats until it is dropped, or the session is over.
pub struct Heartbeat {
    latency: watch::Receiver<Option<Duration>>,
    task: JoinHandle<()>,
}

impl Heartbeat {
    /// How long the last beat took; `None` before the first came back.
    pub fn latency(&self) -> Option<Duration> {
        *self.latency.borrow()
    }

    /// The latency as it changes.
    pub fn watch(&self) -> watch::Receiver<Option<Duration>> {
        self.latency.clone()
    }
}

impl Drop for Heartbeat {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Opens the heartbeat stream and beats at once and then each `interval`. Ends the session when no
/// beat has come back for `interval + tolerance`, or the peer ends the stream.
///
/// It keeps no handle: a session that nobody else uses closes.
pub fn keep(session: &MuxSession, interval: Duration, tolerance: Duration) -> Heartbeat {
    let (sender, latency) = watch::channel(None);
    let session = session.clone();
    let task = tokio::spawn(async move {
        let shared = Arc::clone(session.shared());
        let kind = Bytes::copy_from_slice(&HEARTBEAT.to_be_bytes());
        let Some(mut stream) = or_debug!(session.open(kind).await, "no stream for heartbeats")
        else {
            return;
        };
        stream.disown();
        drop(session);
        let ended = beat(stream, interval, tolerance, &sender).await;
        shared.end(ended, End::AtOnce);
    });
    Heartbeat { latency, task }
}

/// Sends the peer's beats back until it ends the stream or the session is over.
pub async fn answer(mut stream: Stream) {
    stream.disown();
    let mut beat = [0; 4];
    while stream.read_exact(&mut beat).await.is_ok() {
        if stream.write_all(&beat).await.is_err() {
            return;
        }
    }
}

async fn beat(
    mut stream: Stream,
    interval: Duration,
    tolerance: Duration,
    latency: &watch::Sender<Option<Duration>>,
) -> SessionEnd {
    let mut last_seen = Instant::now();
    loop {
        let sent = Instant::now();
        match timeout_at(last_seen + interval + tolerance, exchange(&mut stream)).await {
            Ok(Ok(())) => latency.send_replace(Some(sent.elapsed())),
            Ok(Err(err)) => {
                tracing::debug!(%err, "heartbeats have ended");
                return SessionEnd::HeartbeatEnded;
            }
            Err(_) => return SessionEnd::Silent,
        };
        last_seen = Instant::now();
        sleep_until(sent + interval).await;
    }
}

async fn exchange(stream: &mut Stream) -> io::Result<()> {
    let mut beat = [0; 4];
    getrandom::fill(&mut beat).map_err(|error| io::Error::other(error.to_string()))?;
    stream.write_all(&beat).await?;
    let mut answer = [0; 4];
    stream.read_exact(&mut answer).await?;
    match answer == beat {
        true => Ok(()),
        false => Err(io::Error::new(io::ErrorKind::InvalidData, "another beat came back")),
    }
}
