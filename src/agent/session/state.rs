//! How the session with the service is, and what is remembered over sessions.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::time::Duration;

use chrono::{DateTime, Local};
use tokio::sync::watch;

use crate::mux::MuxSession;
use crate::protocol::message::Hidden;

/// How many failures are remembered.
const MAX_FAILURES: usize = 50;

/// How the session with the service is.
#[derive(Debug, Clone)]
pub enum SessionState {
    /// Connecting for the first time.
    Connecting,
    /// Connected.
    Online(OnlineSession),
    /// The connection was lost; connecting again.
    Reconnecting,
    /// Refused for good, or stopped.
    Offline,
}

/// A connection to the service.
#[derive(Clone)]
pub struct OnlineSession {
    pub(in crate::agent) session: MuxSession,
    pub(super) latency: watch::Receiver<Option<Duration>>,
    /// The region that the service named.
    pub region: String,
}

/// What is remembered over connections.
#[derive(Debug, Default)]
pub struct SessionHistory {
    /// How often the session was lost and made again.
    pub reconnects: u64,
    /// Why the service refuses the authtoken, once it did.
    pub refusal: Option<String>,
    /// Recent errors, newest last.
    pub failures: VecDeque<SessionFailure>,
    pub(super) client_id: String,
    pub(super) cookie: Hidden,
}

/// Something that went wrong.
#[derive(Debug, Clone)]
pub struct SessionFailure {
    /// When.
    pub at: DateTime<Local>,
    /// What.
    pub reason: String,
}

impl SessionHistory {
    pub(super) fn add_failure(&mut self, reason: String) {
        if self.failures.len() == MAX_FAILURES {
            self.failures.pop_front();
        }
        self.failures.push_back(SessionFailure { at: Local::now(), reason });
    }
}

impl std::fmt::Debug for OnlineSession {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Online").field("region", &self.region).finish_non_exhaustive()
    }
}

impl OnlineSession {
    /// How long the last heartbeat took; none before the first came back.
    pub fn latency(&self) -> Option<Duration> {
        *self.latency.borrow()
    }
}

impl SessionState {
    /// The word for it in the agent API.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Connecting => "connecting",
            Self::Online(_) => "online",
            Self::Reconnecting => "reconnecting",
            Self::Offline => "offline",
        }
    }
}

/// What is remembered over sessions, shared.
pub(in crate::agent) type SharedSessionHistory = Mutex<SessionHistory>;
