//! How the sessions with the service are, and what is remembered over sessions.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use chrono::{DateTime, Local};
use tokio::sync::watch;

use ginnel_mux::MuxSession;

use crate::slot::{PerSlot, SessionSlot};

/// How many failures are remembered.
const MAX_FAILURES: usize = 50;

/// Whether the agent has a session with the service.
#[derive(Debug, Clone)]
pub enum SessionState {
    /// Connecting for the first time.
    Connecting,
    /// Connected, where the service has several nodes to two of them.
    Online(OnlineSessions),
    /// The connection was lost; connecting again.
    Reconnecting,
    /// Refused for good, or stopped.
    Offline,
}

/// The sessions that are online, at least one.
#[derive(Debug, Clone, Default)]
pub struct OnlineSessions(PerSlot<Option<OnlineSession>>);

/// A connection to the service.
#[derive(Clone)]
pub struct OnlineSession {
    pub(crate) session: MuxSession,
    pub(crate) slot: SessionSlot,
    pub(crate) latency: watch::Receiver<Option<Duration>>,
    /// The region that the service named.
    pub region: String,
    /// The node that it leads to; none where the service has no nodes.
    pub node: Option<Arc<str>>,
}

/// What is remembered over connections.
#[derive(Debug, Default)]
pub struct SessionHistory {
    /// How often a session was lost and made again.
    pub reconnects: u64,
    /// Why the service refuses the authtoken, once it did.
    pub refusal: Option<String>,
    /// When the service is tried again, or was tried last.
    pub next_attempt: Option<DateTime<Local>>,
    /// Recent errors, newest last.
    pub failures: VecDeque<SessionFailure>,
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
    pub(crate) fn add_failure(&mut self, reason: String) {
        if self.failures.len() == MAX_FAILURES {
            self.failures.pop_front();
        }
        self.failures.push_back(SessionFailure { at: Local::now(), reason });
    }
}

impl std::fmt::Debug for OnlineSession {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = f.debug_struct("Online");
        shown.field("region", &self.region).field("node", &self.node).finish_non_exhaustive()
    }
}

impl OnlineSession {
    /// How long the last heartbeat took; none before the first came back.
    pub fn latency(&self) -> Option<Duration> {
        *self.latency.borrow()
    }
}

impl OnlineSessions {
    /// Each of them.
    pub fn iter(&self) -> impl Iterator<Item = &OnlineSession> {
        self.0.iter().flatten()
    }

    /// The nodes that they lead to; none where the service has no nodes.
    pub fn node_names(&self) -> impl Iterator<Item = &str> {
        self.iter().filter_map(|online| online.node.as_deref())
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

    /// The sessions that are online.
    pub fn sessions(&self) -> impl Iterator<Item = &OnlineSession> {
        let online = match self {
            Self::Online(sessions) => Some(sessions),
            _ => None,
        };
        online.into_iter().flat_map(OnlineSessions::iter)
    }

    /// Notes that a session is online.
    pub(crate) fn insert(&mut self, online: OnlineSession) {
        let mut sessions = match self {
            Self::Online(sessions) => std::mem::take(sessions),
            _ => OnlineSessions::default(),
        };
        let slot = online.slot;
        *sessions.0.get_mut(slot) = Some(online);
        *self = Self::Online(sessions);
    }

    /// Notes that a session is not online, or no more.
    pub(crate) fn remove(&mut self, slot: SessionSlot) {
        let Self::Online(sessions) = self else { return };
        *sessions.0.get_mut(slot) = None;
        if sessions.iter().next().is_none() {
            *self = Self::Reconnecting;
        }
    }
}

/// What is remembered over sessions, shared.
pub(crate) type SharedSessionHistory = Mutex<SessionHistory>;
