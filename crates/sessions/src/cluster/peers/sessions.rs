//! The nodes that this one is connected to.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use tokio::sync::watch;

use ginnel_gateway::Target;
use ginnel_mux::MuxSession;

/// The sessions with other nodes, by the identifiers of these.
#[derive(Default)]
pub(super) struct PeerSessions(RwLock<BTreeMap<Arc<str>, Arc<PeerSession>>>);

/// A session with another node; there is one at a time.
pub(super) struct PeerSession {
    pub node_id: Arc<str>,
    /// The lower version of both.
    pub protocol_version: u32,
    pub mux: MuxSession,
    /// What requests for the hosts of its agents go to.
    pub target: Arc<dyn Target>,
    pub latency: watch::Receiver<Option<Duration>>,
    /// Whether its events are passed on already.
    pub is_followed: AtomicBool,
}

impl PeerSessions {
    /// The session with a node.
    pub(super) fn get(&self, node_id: &str) -> Option<Arc<PeerSession>> {
        let sessions = self.0.read().unwrap_or_else(PoisonError::into_inner);
        sessions.get(node_id).filter(|session| !session.mux.is_ended()).cloned()
    }

    /// All sessions.
    pub(super) fn all(&self) -> Vec<Arc<PeerSession>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    /// Notes a session; one that the node had before ends.
    pub(super) fn add(&self, session: Arc<PeerSession>) {
        let mut sessions = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(before) = sessions.insert(session.node_id.clone(), session) {
            before.mux.close();
        }
    }

    /// Notes that a session is over.
    pub(super) fn remove(&self, session: &Arc<PeerSession>) {
        let mut sessions = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if sessions.get(&session.node_id).is_some_and(|it| Arc::ptr_eq(it, session)) {
            sessions.remove(&session.node_id);
        }
    }
}
