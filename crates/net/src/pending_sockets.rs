//! Sockets whose peers have not authenticated, and the choice of the one that makes room for others.
//!
//! The address with the most of them loses its newest one. So an address cannot keep others out with sockets that do
//! nothing, and the sockets of an address that has few are safe.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use tokio::sync::Notify;

use crate::SourceAddress;

/// The number of a socket: newer ones have higher numbers.
pub(crate) type SocketNumber = u64;

/// The sockets whose peers have not authenticated.
#[derive(Default)]
pub(crate) struct PendingSockets {
    by_source: HashMap<SourceAddress, BTreeMap<SocketNumber, Arc<Notify>>>,
    next: SocketNumber,
}

impl PendingSockets {
    /// Adds a socket. `evicted` is notified when it has to go.
    pub fn add(&mut self, source: SourceAddress) -> (SocketNumber, Arc<Notify>) {
        let (number, evicted) = (self.next, Arc::<Notify>::default());
        self.next += 1;
        self.by_source.entry(source).or_default().insert(number, evicted.clone());
        (number, evicted)
    }

    /// Removes a socket that has authenticated or is closed. Returns false if it had to go before.
    pub fn remove(&mut self, source: SourceAddress, number: SocketNumber) -> bool {
        let Some(sockets) = self.by_source.get_mut(&source) else { return false };
        let was_there = sockets.remove(&number).is_some();
        if sockets.is_empty() {
            self.by_source.remove(&source);
        }
        was_there
    }

    /// Evicts a socket for a newcomer, and returns its address. Returns `None` if no other address has as many sockets as
    /// that of the newcomer would have.
    pub fn evict_for(&mut self, newcomer: SourceAddress) -> Option<SourceAddress> {
        // If several addresses have equally many, the socket that has waited for the longest time goes.
        let rank = |sockets: &BTreeMap<SocketNumber, _>| {
            (sockets.len(), Reverse(sockets.last_key_value().map(|(number, _)| *number)))
        };
        let others = self.by_source.iter().filter(|(source, _)| **source != newcomer);
        let (source, sockets) = others.max_by_key(|(_, sockets)| rank(sockets))?;
        let own = self.by_source.get(&newcomer).map_or(0, BTreeMap::len);
        if sockets.len() <= own {
            return None;
        }
        let (source, number) = (*source, *sockets.last_key_value()?.0);
        let evicted = self.by_source.get_mut(&source)?.remove(&number)?;
        if self.by_source.get(&source).is_some_and(BTreeMap::is_empty) {
            self.by_source.remove(&source);
        }
        evicted.notify_one();
        Some(source)
    }
}
