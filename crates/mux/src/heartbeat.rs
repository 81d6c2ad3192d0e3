//! Heartbeats: how a side learns that the other is gone when the connection does not tell.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until, timeout_at};

use ginnel_base::logging::or_debug;

use crate::presence::Presence;
use crate::send_queue::End;
use crate::{MuxSession, SessionEnd, Stream};

/// Either side asks whether the other is there.
pub const HEARTBEAT: u32 = 0xffff_ffff;

/// How often it is looked in an interval whether something has come.
const LOOKS: u32 = 2;
/// After so many intervals a peer is asked from which bytes came all the time: it may send, and
/// take nothing.
const LONGEST_WAIT: u32 = 6;

/// How often it is looked whether a peer that was asked has sent something.
const PRESENCE_INTERVAL: Duration = Duration::from_millis(20);

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
    pub fn watch_latency(&self) -> watch::Receiver<Option<Duration>> {
        self.latency.clone()
    }
}

impl Drop for Heartbeat {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// When a side beats.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pace {
    /// Each interval: it shows how long a beat takes.
    Steady,
    /// When nothing has come of the peer for longer than an interval, and now and then.
    WhenSilent,
}

/// When beats go out, and when they are late.
#[derive(Debug, Clone, Copy)]
struct HeartbeatOptions {
    /// Time between two beats.
    interval: Duration,
    /// How late a beat may come back.
    tolerance: Duration,
    pace: Pace,
}

/// Opens the heartbeat stream and beats at once and then each `interval`. Ends the session when no
/// beat has come back for `interval + tolerance`, or the peer ends the stream.
///
/// It keeps no handle: a session that nobody else uses closes.
pub fn start_steady(session: &MuxSession, interval: Duration, tolerance: Duration) -> Heartbeat {
    start_with(session, HeartbeatOptions { interval, tolerance, pace: Pace::Steady })
}

/// As [`start_steady`], but after the first beat only when nothing has come of the peer for longer than an
/// interval, and now and then: peers beat as well, so that most need not be asked.
pub fn start_when_silent(
    session: &MuxSession,
    interval: Duration,
    tolerance: Duration,
) -> Heartbeat {
    start_with(session, HeartbeatOptions { interval, tolerance, pace: Pace::WhenSilent })
}

fn start_with(session: &MuxSession, options: HeartbeatOptions) -> Heartbeat {
    let (sender, latency) = watch::channel(None);
    let session = session.clone();
    let task = tokio::spawn(async move {
        let shared = Arc::clone(session.shared());
        let kind = Bytes::copy_from_slice(&HEARTBEAT.to_be_bytes());
        let opened = Box::pin(session.open_stream(kind)).await;
        let Some(mut stream) = or_debug!(opened, "no stream for heartbeats") else { return };
        stream.detach_session();
        drop(session);
        let ended = send_beats(stream, &shared.presence, options, &sender).await;
        shared.end(ended, End::AtOnce);
    });
    Heartbeat { latency, task }
}

/// Returns true if something comes from the peer within `limit`, which a beat asks for. Returns false at the end of the
/// session.
pub async fn is_answered_within(session: &MuxSession, limit: Duration) -> bool {
    let shared = session.shared();
    let before = shared.presence.read_count();
    let beating = async {
        let kind = Bytes::copy_from_slice(&HEARTBEAT.to_be_bytes());
        if let Ok(mut stream) = session.open_stream(kind).await {
            or_debug!(exchange_beat(&mut stream).await, "a peer does not send a beat back");
        }
        std::future::pending::<()>().await;
    };
    let looking = async {
        while shared.presence.read_count() == before {
            tokio::time::sleep(PRESENCE_INTERVAL).await;
        }
    };
    tokio::select! {
        () = looking => !session.is_ended(),
        () = beating => false,
        _ = session.wait_until_ended() => false,
        () = tokio::time::sleep(limit) => false,
    }
}

/// Sends the peer's beats back until it ends the stream or the session is over.
pub async fn echo_beats(mut stream: Stream) {
    stream.detach_session();
    let mut beat = [0; 4];
    while stream.read_exact(&mut beat).await.is_ok() {
        if stream.write_all(&beat).await.is_err() {
            return;
        }
    }
}

async fn send_beats(
    mut stream: Stream,
    presence: &Presence,
    options: HeartbeatOptions,
    latency: &watch::Sender<Option<Duration>>,
) -> SessionEnd {
    let HeartbeatOptions { interval, tolerance, pace } = options;
    let mut last_seen = Instant::now();
    loop {
        let sent = Instant::now();
        let late = (last_seen + interval + tolerance).max(sent + tolerance);
        match timeout_at(late, exchange_beat(&mut stream)).await {
            Ok(Ok(())) => latency.send_replace(Some(sent.elapsed())),
            Ok(Err(err)) => {
                tracing::debug!(%err, "heartbeats have ended");
                return SessionEnd::HeartbeatEnded;
            }
            Err(_) => return SessionEnd::Silent,
        };
        last_seen = match pace {
            Pace::Steady => {
                let seen = Instant::now();
                sleep_until(sent + interval).await;
                presence.request_review();
                seen
            }
            Pace::WhenSilent => wait_for_silence(presence, interval).await,
        };
    }
}

/// Waits until it is time to ask a peer that may have sent meanwhile; says when something may
/// have come last.
async fn wait_for_silence(presence: &Presence, interval: Duration) -> Instant {
    presence.take_received();
    let mut silence = Silence::new(Instant::now(), interval);
    loop {
        sleep_until(silence.looked + interval / LOOKS).await;
        presence.request_review();
        if silence.is_over(Instant::now(), presence.take_received()) {
            return silence.last_seen;
        }
    }
}

/// What is known of a peer that is not asked.
struct Silence {
    interval: Duration,
    began: Instant,
    /// When it was last looked whether something has come.
    looked: Instant,
    /// When something may have come last, at the earliest.
    last_seen: Instant,
}

impl Silence {
    fn new(now: Instant, interval: Duration) -> Self {
        Self { interval, began: now, looked: now, last_seen: now }
    }

    /// Whether the peer is to be asked, after another look.
    fn is_over(&mut self, now: Instant, is_received: bool) -> bool {
        let looked = std::mem::replace(&mut self.looked, now);
        if is_received {
            self.last_seen = looked;
        }
        // One look more than an interval: a beat of the peer may be on its way.
        let longest = self.interval + self.interval / LOOKS;
        now - self.last_seen >= longest || now - self.began >= self.interval * LONGEST_WAIT
    }
}

async fn exchange_beat(stream: &mut Stream) -> io::Result<()> {
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

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: Duration = Duration::from_secs(10);

    /// The seconds after which a peer is asked that sends in these seconds, and those in which it may
    /// have sent last.
    fn asked_after(sent: &[u64]) -> (u64, u64) {
        let began = Instant::now();
        let mut silence = Silence::new(began, INTERVAL);
        let mut before = Duration::ZERO;
        loop {
            let now = before + INTERVAL / LOOKS;
            let came = |second: &u64| (before..now).contains(&Duration::from_secs(*second));
            if silence.is_over(began + now, sent.iter().any(came)) {
                return (now.as_secs(), (silence.last_seen - began).as_secs());
            }
            before = now;
        }
    }

    #[test]
    fn a_silent_peer_is_asked_soon_after_an_interval() {
        assert_eq!(asked_after(&[]), (15, 0));
        assert_eq!(asked_after(&[6]), (20, 5));
    }

    #[test]
    fn a_peer_that_beats_is_asked_seldom() {
        assert_eq!(asked_after(&[1, 11, 21, 31, 41, 51]), (60, 50));
        assert_eq!(asked_after(&[9, 19, 29, 39, 49, 59]), (60, 55));
    }
}
