//! The streams of a session, by id.

use std::collections::HashMap;
use std::sync::Arc;

use crate::mux::frame::FrameError;
use crate::mux::stream_cell::StreamCell;
use crate::mux::{Code, Group, SessionEnd, Side};

/// The streams of a session that are not gone.
pub(crate) struct StreamTable {
    side: Side,
    entries: HashMap<u32, StreamEntry>,
    /// How many of them this side opened.
    opened: usize,
    /// How many of them the peer may open.
    limit: usize,
    /// The id for the next stream of this side.
    next: u32,
    /// The highest id that the peer used.
    last: u32,
    ended: Option<SessionEnd>,
}

#[derive(Clone)]
enum StreamEntry {
    Live(Arc<StreamCell>),
    /// Opened, finished and dropped by this side: it counts until the peer has finished too.
    Forgotten,
}

impl StreamTable {
    pub(crate) fn new(side: Side, limit: usize) -> Self {
        let next = match side {
            Side::Agent => 3,
            Side::Service => 2,
        };
        Self { side, entries: HashMap::new(), opened: 0, limit, next, last: 0, ended: None }
    }

    /// The id that the next opened stream gets.
    pub(crate) fn next_id(&self) -> Result<u32, SessionEnd> {
        match &self.ended {
            Some(ended) => Err(ended.clone()),
            None if self.next >= 1 << 31 => Err(SessionEnd::Exhausted),
            None => Ok(self.next),
        }
    }

    /// Notes a stream that this side opens under [`StreamTable::next_id`].
    pub(crate) fn open(&mut self, group: Option<Group>) -> Arc<StreamCell> {
        let cell = Arc::new(StreamCell::new(self.next, group));
        self.entries.insert(self.next, StreamEntry::Live(Arc::clone(&cell)));
        self.opened += 1;
        self.next += 2;
        cell
    }

    /// Checks whether the peer may open a stream under this id. `Ok(Err)`: that stream is refused.
    pub(crate) fn admit(&self, id: u32) -> Result<Result<(), Code>, FrameError> {
        if self.is_ours(id) {
            return Err(FrameError::ForeignId);
        }
        if self.entries.contains_key(&id) {
            return Err(FrameError::OpenedTwice);
        }
        let accepted = self.entries.len() - self.opened;
        Ok(if accepted < self.limit { Ok(()) } else { Err(Code::REFUSED) })
    }

    /// Notes a stream that the peer opened; `None` when the session is over.
    pub(crate) fn accept(&mut self, id: u32) -> Option<Arc<StreamCell>> {
        if self.ended.is_some() {
            return None;
        }
        let cell = Arc::new(StreamCell::new(id, None));
        self.entries.insert(id, StreamEntry::Live(Arc::clone(&cell)));
        self.last = self.last.max(id);
        Some(cell)
    }

    /// Lets the peer have so many streams open.
    pub(crate) fn set_limit(&mut self, limit: usize) {
        self.limit = limit;
    }

    /// Removes the streams of a group and gives them back.
    pub(crate) fn remove_group(&mut self, group: Group) -> Vec<Arc<StreamCell>> {
        let of_group = |entry: &StreamEntry| match entry {
            StreamEntry::Live(cell) => (cell.group == Some(group)).then_some(cell.id),
            StreamEntry::Forgotten => None,
        };
        let ids: Vec<u32> = self.entries.values().filter_map(of_group).collect();
        ids.into_iter().filter_map(|id| self.remove(id)).collect()
    }

    /// The stream with this id.
    pub(crate) fn find(&self, id: u32) -> Option<Arc<StreamCell>> {
        match self.entries.get(&id) {
            Some(StreamEntry::Live(cell)) => Some(Arc::clone(cell)),
            Some(StreamEntry::Forgotten) | None => None,
        }
    }

    /// The stream that a DATA frame is for. One that was forgotten is gone with that: the frame ends
    /// it, or the answer to it does.
    pub(crate) fn receiver(&mut self, id: u32) -> Option<Arc<StreamCell>> {
        let found = self.find(id);
        if found.is_none() {
            self.remove(id);
        }
        found
    }

    /// The stream is gone.
    pub(crate) fn remove(&mut self, id: u32) -> Option<Arc<StreamCell>> {
        let entry = self.entries.remove(&id)?;
        if self.is_ours(id) {
            self.opened -= 1;
        }
        match entry {
            StreamEntry::Live(cell) => Some(cell),
            StreamEntry::Forgotten => None,
        }
    }

    /// The stream's owner is gone, and the peer was told; the peer may still send.
    pub(crate) fn forget(&mut self, id: u32) {
        if !self.is_ours(id) {
            self.remove(id);
        } else if let Some(entry) = self.entries.get_mut(&id) {
            *entry = StreamEntry::Forgotten;
        }
    }

    /// Streams that this side opened and that are not gone.
    pub(crate) fn opened(&self) -> usize {
        self.opened
    }

    /// Streams of both sides that are not gone.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// The highest id that the peer used.
    pub(crate) fn last(&self) -> u32 {
        self.last
    }

    /// Takes no more streams and gives back those that there are; `None` when that was done before.
    pub(crate) fn end(&mut self, why: SessionEnd) -> Option<Vec<Arc<StreamCell>>> {
        if self.ended.is_some() {
            return None;
        }
        self.ended = Some(why);
        self.opened = 0;
        let entries = std::mem::take(&mut self.entries).into_values();
        Some(
            entries
                .filter_map(|entry| match entry {
                    StreamEntry::Live(cell) => Some(cell),
                    StreamEntry::Forgotten => None,
                })
                .collect(),
        )
    }

    fn is_ours(&self, id: u32) -> bool {
        let is_odd = id % 2 == 1;
        is_odd == (self.side == Side::Agent)
    }
}
