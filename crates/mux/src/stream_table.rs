//! The streams of a session, by id.

use std::collections::HashMap;
use std::sync::Arc;

use crate::frame::FrameError;
use crate::stream_cell::StreamCell;
use crate::{Code, Group, SessionEnd, Side};

/// The streams of a session that are not gone.
pub struct StreamTable {
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
    pub fn new(side: Side, limit: usize) -> Self {
        let next = match side {
            Side::Agent => 3,
            Side::Service => 2,
        };
        Self { side, entries: HashMap::new(), opened: 0, limit, next, last: 0, ended: None }
    }

    /// The id that the next opened stream gets.
    pub fn next_id(&self) -> Result<u32, SessionEnd> {
        match &self.ended {
            Some(ended) => Err(ended.clone()),
            None if self.next >= 1 << 31 => Err(SessionEnd::Exhausted),
            None => Ok(self.next),
        }
    }

    /// Notes a stream that this side opens under [`StreamTable::next_id`].
    pub fn open_stream(&mut self, group: Option<Group>) -> Arc<StreamCell> {
        let cell = Arc::new(StreamCell::new(self.next, group));
        self.entries.insert(self.next, StreamEntry::Live(Arc::clone(&cell)));
        self.opened += 1;
        self.next += 2;
        cell
    }

    /// Checks whether the peer may open a stream under this id. `Ok(Err)`: that stream is refused.
    pub fn check_admission(&self, id: u32) -> Result<Result<(), Code>, FrameError> {
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
    pub fn accept_stream(&mut self, id: u32) -> Option<Arc<StreamCell>> {
        if self.ended.is_some() {
            return None;
        }
        let cell = Arc::new(StreamCell::new(id, None));
        self.entries.insert(id, StreamEntry::Live(Arc::clone(&cell)));
        self.last = self.last.max(id);
        Some(cell)
    }

    /// Lets the peer have so many streams open.
    pub fn set_limit(&mut self, limit: usize) {
        self.limit = limit;
    }

    /// Removes the streams of a group and gives them back.
    pub fn remove_group(&mut self, group: Group) -> Vec<Arc<StreamCell>> {
        let of_group = |entry: &StreamEntry| match entry {
            StreamEntry::Live(cell) => (cell.group == Some(group)).then_some(cell.id),
            StreamEntry::Forgotten => None,
        };
        let ids: Vec<u32> = self.entries.values().filter_map(of_group).collect();
        ids.into_iter().filter_map(|id| self.remove(id)).collect()
    }

    /// The stream with this id.
    pub fn find(&self, id: u32) -> Option<Arc<StreamCell>> {
        match self.entries.get(&id) {
            Some(StreamEntry::Live(cell)) => Some(Arc::clone(cell)),
            Some(StreamEntry::Forgotten) | None => None,
        }
    }

    /// The stream that a DATA frame is for. One that was forgotten is gone with that: the frame ends
    /// it, or the answer to it does.
    pub fn find_receiver(&mut self, id: u32) -> Option<Arc<StreamCell>> {
        let found = self.find(id);
        if found.is_none() {
            self.remove(id);
        }
        found
    }

    /// The stream is gone.
    pub fn remove(&mut self, id: u32) -> Option<Arc<StreamCell>> {
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
    pub fn forget(&mut self, id: u32) {
        if !self.is_ours(id) {
            self.remove(id);
        } else if let Some(entry) = self.entries.get_mut(&id) {
            *entry = StreamEntry::Forgotten;
        }
    }

    /// Streams that this side opened and that are not gone.
    pub fn opened_count(&self) -> usize {
        self.opened
    }

    /// Streams of both sides that are not gone.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// The highest id that the peer used.
    pub fn last_peer_id(&self) -> u32 {
        self.last
    }

    /// Takes no more streams and gives back those that there are; `None` when that was done before.
    pub fn end(&mut self, why: SessionEnd) -> Option<Vec<Arc<StreamCell>>> {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> StreamTable {
        StreamTable::new(Side::Service, 2)
    }

    fn open(table: &mut StreamTable) -> u32 {
        table.open_stream(None).id
    }

    #[test]
    fn the_ids_of_each_side_are_its_own() {
        let (mut agent, mut service) = (StreamTable::new(Side::Agent, 1), table());

        assert_eq!([open(&mut agent), open(&mut agent), open(&mut agent)], [3, 5, 7]);
        assert_eq!([open(&mut service), open(&mut service), open(&mut service)], [2, 4, 6]);
        assert_eq!(agent.check_admission(9), Err(FrameError::ForeignId));
        assert_eq!(agent.check_admission(2), Ok(Ok(())));
        assert_eq!(service.check_admission(2), Err(FrameError::ForeignId));
        assert_eq!(service.check_admission(9), Ok(Ok(())));
    }

    #[test]
    fn no_id_is_used_twice_and_there_is_an_end_of_them() {
        let mut table = table();
        table.next = (1 << 31) - 2;

        assert_eq!(table.next_id().unwrap(), (1 << 31) - 2);
        open(&mut table);

        assert!(matches!(table.next_id(), Err(SessionEnd::Exhausted)));
    }

    #[test]
    fn the_peer_has_so_many_streams_and_ours_are_not_among_them() {
        let mut table = table();
        (0..5).for_each(|_| drop(table.open_stream(None)));
        for id in [3, 5] {
            assert_eq!(table.check_admission(id), Ok(Ok(())));
            table.accept_stream(id).unwrap();
        }

        assert_eq!(table.check_admission(7), Ok(Err(Code::REFUSED)));
        assert_eq!(table.check_admission(3), Err(FrameError::OpenedTwice));
        table.remove(5);
        assert_eq!(table.check_admission(7), Ok(Ok(())));
        table.accept_stream(7).unwrap();
        table.set_limit(3);
        assert_eq!(table.check_admission(9), Ok(Ok(())));
        assert_eq!((table.opened_count(), table.len()), (5, 7));
    }

    #[test]
    fn the_highest_id_of_the_peer_is_known_whatever_the_order() {
        let mut table = table();
        assert_eq!(table.last_peer_id(), 0);

        for id in [5, 9, 3] {
            table.accept_stream(id).unwrap();
        }
        open(&mut table);
        table.remove(9);

        assert_eq!(table.last_peer_id(), 9);
    }

    #[test]
    fn a_forgotten_stream_of_ours_counts_until_something_comes_for_it() {
        let mut table = table();
        let id = open(&mut table);
        assert_eq!(table.find(id).unwrap().id, id);

        table.forget(id);
        assert!(table.find(id).is_none());
        assert_eq!((table.opened_count(), table.len()), (1, 1));

        assert!(table.find_receiver(id).is_none());
        assert_eq!((table.opened_count(), table.len()), (0, 0));
    }

    #[test]
    fn a_forgotten_stream_of_the_peer_is_gone() {
        let mut table = table();
        table.accept_stream(3).unwrap();

        table.forget(3);
        table.forget(5);

        assert_eq!((table.opened_count(), table.len()), (0, 0));
        assert_eq!(table.check_admission(3), Ok(Ok(())));
    }

    #[test]
    fn data_reach_a_stream_that_lives_and_leave_it_there() {
        let mut table = table();
        table.accept_stream(3).unwrap();

        assert_eq!(table.find_receiver(3).unwrap().id, 3);
        assert_eq!(table.find_receiver(3).unwrap().id, 3);
        assert!(table.find_receiver(5).is_none());
        assert_eq!(table.len(), 1);
    }

    #[test]
    fn a_removed_stream_is_given_back_once() {
        let mut table = table();
        let (ours, forgotten) = (open(&mut table), open(&mut table));
        table.forget(forgotten);

        assert_eq!(table.remove(ours).unwrap().id, ours);
        assert!(table.remove(ours).is_none());
        assert_eq!(table.opened_count(), 1);
        assert!(table.remove(forgotten).is_none());
        assert_eq!(table.opened_count(), 0);
    }

    #[test]
    fn a_group_is_removed_and_nothing_else() {
        let mut table = table();
        let [one, other] = [0, 1].map(Group::new);
        for group in [Some(one), Some(other), None, Some(one), Some(one)] {
            table.open_stream(group);
        }
        table.accept_stream(3).unwrap();
        table.forget(10);

        let mut removed: Vec<u32> = table.remove_group(one).iter().map(|cell| cell.id).collect();

        removed.sort_unstable();
        assert_eq!(removed, [2, 8]);
        assert_eq!((table.opened_count(), table.len()), (3, 4));
    }

    #[test]
    fn the_end_gives_back_what_lives_and_lets_nothing_in() {
        let mut table = table();
        let (ours, forgotten) = (open(&mut table), open(&mut table));
        table.forget(forgotten);
        table.accept_stream(3).unwrap();

        let ended = table.end(SessionEnd::PeerClosed).unwrap();

        let mut ids: Vec<u32> = ended.iter().map(|cell| cell.id).collect();
        ids.sort_unstable();
        assert_eq!(ids, [ours, 3]);
        assert_eq!((table.opened_count(), table.len()), (0, 0));
        assert!(table.accept_stream(5).is_none());
        assert!(table.end(SessionEnd::Closed).is_none());
        assert!(matches!(table.next_id(), Err(SessionEnd::PeerClosed)));
    }
}
