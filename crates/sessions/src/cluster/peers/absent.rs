//! Nodes with which there should be a session, and is none: visitors of their agents are refused here.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::cluster::directory::KnownNode;

/// How long a session may take to be made before it is said that there is none.
const TOLERANCE: Duration = Duration::from_secs(5);

/// The nodes with which there is no session now.
#[derive(Default)]
pub(super) struct AbsentNodes(Mutex<HashMap<Arc<str>, Absence>>);

struct Absence {
    name: String,
    since: Instant,
    /// Why this node could not connect, where it is the one that does.
    cause: Option<String>,
    is_told: bool,
}

/// A node with which there has been no session for a while.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnreachableNode {
    pub id: Arc<str>,
    pub name: String,
    pub since: Instant,
    /// Why, as far as this node knows.
    pub cause: String,
}

impl AbsentNodes {
    /// Notes why a session could not be made.
    pub(super) fn record_failure(&self, node: &KnownNode, cause: String, now: Instant) {
        let mut absent = self.lock_nodes();
        let absence =
            absent.entry(node.id.clone()).or_insert_with(|| Absence::from_node(node, now));
        absence.cause = Some(cause);
    }

    /// Notes which nodes there is no session with now; says it once of each that stays away.
    pub(super) fn record_absent(&self, absent: &[KnownNode], now: Instant) {
        let mut known = self.lock_nodes();
        known.retain(|id, _| absent.iter().any(|node| node.id == *id));
        for node in absent {
            let absence =
                known.entry(node.id.clone()).or_insert_with(|| Absence::from_node(node, now));
            if absence.is_late(now) && !absence.is_told {
                absence.is_told = true;
                let (name, address) = (&node.record.name, &node.record.peer_address);
                let err = absence.cause();
                tracing::warn!(node = name, address, err, "there is no session with another node");
            }
        }
    }

    /// Those that have been away for a while.
    pub(super) fn late_nodes(&self, now: Instant) -> Vec<UnreachableNode> {
        let absent = self.lock_nodes();
        let late = absent.iter().filter(|(_, absence)| absence.is_late(now));
        let mut late: Vec<_> = late.map(|(id, absence)| absence.to_unreachable_node(id)).collect();
        late.sort_by(|one, other| one.name.cmp(&other.name));
        late
    }

    fn lock_nodes(&self) -> MutexGuard<'_, HashMap<Arc<str>, Absence>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Absence {
    fn from_node(node: &KnownNode, since: Instant) -> Self {
        Self { name: node.record.name.clone(), since, cause: None, is_told: false }
    }

    fn is_late(&self, now: Instant) -> bool {
        now.duration_since(self.since) >= TOLERANCE
    }

    fn cause(&self) -> &str {
        self.cause.as_deref().unwrap_or("it is the one that connects, and does not")
    }

    fn to_unreachable_node(&self, id: &Arc<str>) -> UnreachableNode {
        let (id, name, since) = (id.clone(), self.name.clone(), self.since);
        UnreachableNode { id, name, since, cause: self.cause().to_owned() }
    }
}
