//! The records, bounded by bytes.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use chrono::{DateTime, Utc};
use tokio::sync::{broadcast, oneshot};

use super::file::{FileLimits, InspectFile, InspectFileError};
use super::record::{CaptureRecord, CaptureSource, CapturedExchange, CapturedMessage, record_id};
use super::recording::Recording;
use super::stream::StreamKind;

use crate::http1::Body;
use crate::logging::ignore;

/// How much of each body is kept at most.
const MAX_BODY_BYTES: usize = 1 << 20;
/// How many records are pinned at most, and how much of the limit they may take together.
const MAX_PINNED: usize = 100;
const PINNED_SHARE: usize = 2;
/// How long a note may be, in bytes.
const MAX_NOTE_BYTES: usize = 2000;
/// How many changes a slow listener may lag behind before it has to look at everything anew.
const MAX_QUEUED_CHANGES: usize = 4096;
/// How many removals of single records are remembered for listeners.
const MAX_REMOVALS: usize = 1000;

/// How much is captured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CaptureLimit {
    /// Nothing at all.
    Nothing,
    /// So many bytes.
    Bytes(usize),
}

impl CaptureLimit {
    /// The meaning of `inspect_db_size`: 0 is 50 MB, -1 is nothing.
    pub fn of_setting(size: i64) -> Option<Self> {
        match size {
            -1 => Some(Self::Nothing),
            0 => Some(Self::default()),
            _ => usize::try_from(size).ok().map(Self::Bytes),
        }
    }
}

impl Default for CaptureLimit {
    fn default() -> Self {
        Self::Bytes(50 << 20)
    }
}

/// Something happened to the records.
#[derive(Debug, Clone)]
pub enum CaptureChange {
    /// A record was opened or answered.
    Updated(Arc<CaptureRecord>),
    /// The exchange of a record has ended; this comes once for each of them.
    Ended(Arc<CaptureRecord>),
    /// All records were removed.
    Cleared,
    /// One record was removed.
    Removed,
}

/// How full the store is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    /// The bytes that count.
    pub bytes: usize,
    /// How many may count; 0 when nothing is captured.
    pub limit: usize,
    /// How many records there are.
    pub records: usize,
    /// How many were let go to stay within the limit.
    pub evicted: u64,
}

/// The store at one moment: what several looks would see may not fit together.
#[derive(Debug)]
pub struct Snapshot {
    /// The last change that can be seen here.
    pub revision: u64,
    /// The revision that was named, where all removals after it can be told one by one.
    pub since: Option<u64>,
    /// The records that were removed one by one since then.
    pub removed: Vec<String>,
    /// The records, newest first.
    pub records: Vec<Arc<CaptureRecord>>,
    /// The oldest record that is kept and not pinned: of those before it only pinned ones are.
    pub oldest: Option<String>,
    /// How full the store was.
    pub usage: Usage,
}

/// What is known when a request arrives.
#[derive(Debug)]
pub struct NewCapture<'a> {
    /// The tunnel that received it.
    pub tunnel_name: &'a str,
    /// Where it comes from.
    pub source: Arc<CaptureSource>,
    /// The head as it is sent to the local service.
    pub head: &'a [u8],
    /// How the body is framed, none of which has come yet.
    pub body: &'a Body,
}

/// A record that comes from an archive.
#[derive(Debug)]
pub(in crate::agent) struct ImportedCapture {
    pub tunnel_name: String,
    pub source: CaptureSource,
    /// When it arrived, as the archive says.
    pub start: DateTime<Utc>,
    pub exchange: CapturedExchange,
}

/// Why a record is not pinned, or gets no note.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PinError {
    /// So many are pinned.
    #[error("pinned: {MAX_PINNED} requests are pinned, and no more may be")]
    TooMany,
    /// Those that are pinned would take more than so many bytes.
    #[error("pinned: requests that are pinned may take {0} bytes together, and this is more")]
    TooMuch(usize),
    /// The note is too long.
    #[error("note: is longer than {MAX_NOTE_BYTES} bytes")]
    LongNote,
}

/// The captured requests of an agent.
#[derive(Debug)]
pub struct CaptureStore {
    limit: CaptureLimit,
    inner: Mutex<CaptureState>,
    /// Where records survive a restart; none where they do not.
    file: Option<InspectFile>,
    changes: broadcast::Sender<CaptureChange>,
    ended: broadcast::Sender<Arc<CaptureRecord>>,
    /// How many exchanges have not ended.
    open: AtomicUsize,
}

#[derive(Debug, Default)]
struct CaptureState {
    /// In the order of their sequence.
    records: VecDeque<Arc<CaptureRecord>>,
    bytes: usize,
    last: u32,
    /// Whether records of the file are still to come.
    is_restoring: bool,
    evicted: u64,
    /// How many changes there were.
    revision: u64,
    /// The revision of the last removal of all records, or the last one of a record that is forgotten.
    cleared: u64,
    /// The last records that were removed one by one, each with its revision.
    removals: VecDeque<(u64, String)>,
}

impl CaptureStore {
    /// No records yet.
    pub fn new(limit: CaptureLimit) -> Arc<Self> {
        Arc::new(Self::empty(limit, None))
    }

    /// The records of a file, which gets those that come.
    ///
    /// # Errors
    /// When the file cannot be used.
    pub(in crate::agent) fn with_file(
        limit: CaptureLimit,
        path: &Path,
        limits: FileLimits,
    ) -> Result<Arc<Self>, InspectFileError> {
        if limit == CaptureLimit::Nothing {
            return Err(InspectFileError::NothingCaptured);
        }
        let (file, opened) = InspectFile::open(path, limits)?;
        let store = Arc::new(Self::empty(limit, Some(file)));
        {
            let mut inner = store.lock();
            (inner.last, inner.is_restoring) = (opened.last, true);
        }
        let restored = Arc::downgrade(&store);
        let take = move |records| restored.upgrade().is_some_and(|it| it.restore(records));
        opened.start(Box::new(take))?;
        Ok(store)
    }

    /// Adds records of the file, each before those that came after it; none when there are no more. Gives
    /// whether to go on: not where there is no room, or all records were removed meanwhile.
    fn restore(&self, records: Option<Vec<CaptureRecord>>) -> bool {
        let mut inner = self.lock();
        let Some(records) = records.filter(|_| inner.is_restoring) else {
            inner.is_restoring = false;
            return false;
        };
        let mut last = None;
        for record in records {
            let is_pinned = record.exchange().is_pinned;
            let (taken, most) = match is_pinned {
                true => (inner.pinned().1, self.bytes() / PINNED_SHARE),
                false => (inner.bytes, self.bytes()),
            };
            if taken + record.cost() > most {
                if is_pinned {
                    continue;
                }
                // Older ones would stand where newer ones are missing.
                inner.is_restoring = false;
                break;
            }
            let place = inner.records.binary_search_by_key(&record.sequence, |it| it.sequence);
            let Err(at) = place else { continue };
            let revision = inner.next_revision();
            record.revision.store(revision, Ordering::Release);
            inner.bytes += record.cost();
            let record = Arc::new(record);
            inner.records.insert(at, record.clone());
            self.evict(&mut inner);
            last = Some(record);
        }
        let goes_on = inner.is_restoring;
        drop(inner);
        if let Some(record) = last {
            // Whoever listens looks at all that has changed.
            ignore(self.changes.send(CaptureChange::Updated(record)), "nobody may be listening");
        }
        goes_on
    }

    fn empty(limit: CaptureLimit, file: Option<InspectFile>) -> Self {
        let (changes, _) = broadcast::channel(MAX_QUEUED_CHANGES);
        let (ended, _) = broadcast::channel(MAX_QUEUED_CHANGES);
        Self { limit, inner: Mutex::default(), file, changes, ended, open: AtomicUsize::new(0) }
    }

    /// Where records survive a restart; none where they do not.
    pub(in crate::agent) fn file(&self) -> Option<&InspectFile> {
        self.file.as_ref()
    }

    /// Whether records of the file are still to come.
    #[cfg(test)]
    pub(in crate::agent) fn is_restoring(&self) -> bool {
        self.lock().is_restoring
    }

    /// Whether anything is captured.
    pub fn is_on(&self) -> bool {
        self.limit != CaptureLimit::Nothing
    }

    /// Whether all exchanges have ended, and who listens was told.
    pub fn is_idle(&self) -> bool {
        self.open.load(Ordering::Acquire) == 0
    }

    /// Opens a record.
    pub fn open(self: &Arc<Self>, opening: NewCapture<'_>) -> Recording {
        let request = CapturedMessage::awaiting(opening.head, opening.body);
        self.open.fetch_add(1, Ordering::Relaxed);
        let mut inner = self.lock();
        inner.last = inner.last.wrapping_add(1);
        let tunnel_name = opening.tunnel_name.to_owned();
        let record = CaptureRecord::new(inner.last, tunnel_name, opening.source, request);
        let record = Arc::new(record);
        self.push(&mut inner, record.clone());
        drop(inner);
        self.tell(&record);
        let is_call = *opening.body == Body::CHUNKED
            && StreamKind::of_head(opening.head) == Some(StreamKind::Grpc);
        Recording::new(self.clone(), record, is_call)
    }

    /// The newest records of a tunnel, or of all, newest first.
    pub fn list(&self, limit: usize, tunnel_name: Option<&str>) -> Vec<Arc<CaptureRecord>> {
        let inner = self.lock();
        let matching = |record: &&Arc<CaptureRecord>| {
            tunnel_name.is_none_or(|name| record.tunnel_name == name)
        };
        inner.records.iter().rev().filter(matching).take(limit).cloned().collect()
    }

    /// The record with this identifier.
    pub fn find(&self, id: &str) -> Option<Arc<CaptureRecord>> {
        let inner = self.lock();
        inner.records.get(inner.position(id)?).cloned()
    }

    /// Removes all records; those under way are not recorded any further. Where there is a file, it is
    /// said when that is empty, or why it is not.
    pub fn clear(&self) -> Option<oneshot::Receiver<Result<(), String>>> {
        let mut inner = self.lock();
        for record in std::mem::take(&mut inner.records) {
            record.exchange().let_go();
        }
        inner.bytes = 0;
        inner.is_restoring = false;
        inner.removals.clear();
        inner.cleared = inner.next_revision();
        drop(inner);
        let emptied = self.file.as_ref().map(InspectFile::clear);
        ignore(self.changes.send(CaptureChange::Cleared), "nobody may be listening");
        emptied
    }

    /// Pins a record, or does not any more, and says something about it; none where it is not kept.
    ///
    /// # Errors
    /// When no more may be pinned, or the note is too long.
    pub fn annotate(
        &self,
        id: &str,
        is_pinned: Option<bool>,
        note: Option<String>,
    ) -> Result<Option<Arc<CaptureRecord>>, PinError> {
        if note.as_ref().is_some_and(|note| note.len() > MAX_NOTE_BYTES) {
            return Err(PinError::LongNote);
        }
        let mut inner = self.lock();
        let Some(record) = inner.position(id).and_then(|at| inner.records.get(at)).cloned() else {
            return Ok(None);
        };
        if is_pinned == Some(true) && !record.exchange().is_pinned {
            self.check_room(&inner, &record)?;
        }
        let mut exchange = record.exchange();
        inner.bytes -= exchange.cost();
        exchange.is_pinned = is_pinned.unwrap_or(exchange.is_pinned);
        if let Some(note) = note {
            exchange.note = note;
        }
        inner.bytes += exchange.cost();
        drop(exchange);
        self.evict(&mut inner);
        drop(inner);
        self.tell(&record);
        self.save(&record);
        Ok(Some(record))
    }

    /// Whether another record may be pinned.
    fn check_room(&self, inner: &CaptureState, record: &CaptureRecord) -> Result<(), PinError> {
        let (count, bytes) = inner.pinned();
        let most = self.bytes() / PINNED_SHARE;
        match () {
            () if count >= MAX_PINNED => Err(PinError::TooMany),
            () if bytes + record.cost() > most => Err(PinError::TooMuch(most)),
            () => Ok(()),
        }
    }

    /// Adds records that come from elsewhere, and says what they are called; waits for the disk.
    pub(in crate::agent) fn import(&self, captures: Vec<ImportedCapture>) -> Vec<String> {
        let mut ids = Vec::new();
        for capture in captures {
            let mut inner = self.lock();
            inner.last = inner.last.wrapping_add(1);
            let id = record_id(Utc::now(), inner.last);
            let ImportedCapture { tunnel_name, source, start, exchange } = capture;
            let record = CaptureRecord::restored(
                inner.last,
                id.clone(),
                tunnel_name,
                Arc::new(source),
                start,
                exchange,
            );
            let record = Arc::new(record);
            self.push(&mut inner, record.clone());
            drop(inner);
            self.tell(&record);
            if let Some(file) = &self.file {
                file.save_waiting(&record);
            }
            ids.push(id);
        }
        ids
    }

    /// How much of a body is kept at most.
    pub(in crate::agent) fn max_body_bytes(&self) -> usize {
        self.body()
    }

    /// Removes one record, which is not recorded any further; false where it is not kept.
    pub fn remove(&self, id: &str) -> bool {
        let mut inner = self.lock();
        let Some(at) = inner.position(id) else { return false };
        let Some(record) = inner.records.remove(at) else { return false };
        let mut exchange = record.exchange();
        inner.bytes -= exchange.cost();
        exchange.let_go();
        drop(exchange);
        if let Some(file) = &self.file {
            file.remove(record.sequence);
        }
        let revision = inner.next_revision();
        inner.removals.push_back((revision, record.id.clone()));
        if inner.removals.len() > MAX_REMOVALS {
            inner.cleared = inner.removals.pop_front().map_or(inner.cleared, |(first, _)| first);
        }
        drop(inner);
        ignore(self.changes.send(CaptureChange::Removed), "nobody may be listening");
        true
    }

    /// How full the store is.
    pub fn usage(&self) -> Usage {
        self.usage_of(&self.lock())
    }

    fn usage_of(&self, inner: &CaptureState) -> Usage {
        Usage {
            bytes: inner.bytes,
            limit: self.bytes(),
            records: inner.records.len(),
            evicted: inner.evicted,
        }
    }

    /// How many changes there were.
    pub fn revision(&self) -> u64 {
        self.lock().revision
    }

    /// All that is kept at one moment, and what was removed since somebody looked.
    pub fn snapshot(&self, since: Option<u64>) -> Snapshot {
        let inner = self.lock();
        let known = |since: &u64| (inner.cleared..=inner.revision).contains(since);
        let since = since.filter(known);
        let removals = inner.removals.iter().filter(|(at, _)| since.is_some_and(|it| *at > it));
        Snapshot {
            revision: inner.revision,
            since,
            removed: removals.map(|(_, id)| id.clone()).collect(),
            records: inner.records.iter().rev().cloned().collect(),
            oldest: inner.oldest(),
            usage: self.usage_of(&inner),
        }
    }

    /// What happens to the records from now on.
    pub fn subscribe(&self) -> broadcast::Receiver<CaptureChange> {
        self.changes.subscribe()
    }

    /// The records whose exchanges end from now on.
    pub fn subscribe_ended(&self) -> broadcast::Receiver<Arc<CaptureRecord>> {
        self.ended.subscribe()
    }

    fn bytes(&self) -> usize {
        match self.limit {
            CaptureLimit::Nothing => 0,
            CaptureLimit::Bytes(bytes) => bytes,
        }
    }

    /// How much of one body is kept: so little that one exchange never fills the store.
    fn body(&self) -> usize {
        MAX_BODY_BYTES.min(self.bytes() / 4)
    }

    /// Changes a record and counts what it grew by; the change gets how much of a body is kept.
    pub(super) fn change(
        &self,
        record: &Arc<CaptureRecord>,
        change: impl FnOnce(&mut CapturedExchange, usize) -> usize,
    ) {
        // The order of the locks is that of `clear`: the store, then the record.
        let mut inner = self.lock();
        let mut exchange = record.exchange();
        if exchange.gone {
            return;
        }
        inner.bytes += change(&mut exchange, self.body());
        drop(exchange);
        self.evict(&mut inner);
    }

    /// Changes a record in a way that may make it smaller, and counts the difference; the change gets how
    /// much of a body is kept.
    pub(super) fn recount(
        &self,
        record: &CaptureRecord,
        change: impl FnOnce(&mut CapturedExchange, usize),
    ) {
        let mut inner = self.lock();
        let mut exchange = record.exchange();
        if exchange.gone {
            return;
        }
        inner.bytes -= exchange.cost();
        change(&mut exchange, self.body());
        inner.bytes += exchange.cost();
        drop(exchange);
        self.evict(&mut inner);
    }

    /// Adds a record, and makes room for it.
    fn push(&self, inner: &mut CaptureState, record: Arc<CaptureRecord>) {
        inner.bytes += record.cost();
        inner.records.push_back(record);
        self.evict(inner);
    }

    /// Lets the oldest records go until there is room: those that are pinned last.
    fn evict(&self, inner: &mut CaptureState) {
        let (mut at, mut spares_pinned) = (0, true);
        while inner.bytes > self.bytes() {
            let Some(record) = inner.records.get(at).cloned() else {
                if !std::mem::replace(&mut spares_pinned, false) {
                    return;
                }
                at = 0;
                continue;
            };
            let mut exchange = record.exchange();
            if exchange.is_pinned && spares_pinned {
                at += 1;
                continue;
            }
            if at > 0 && at + 1 == inner.records.len() {
                // What is pinned has grown: it leaves the newest its room.
                drop(exchange);
                (at, spares_pinned) = (0, false);
                continue;
            }
            inner.bytes -= exchange.cost();
            exchange.let_go();
            exchange.is_displaced = true;
            inner.records.remove(at);
            inner.evicted += 1;
        }
    }

    /// Has a record written whose exchange has ended.
    fn save(&self, record: &Arc<CaptureRecord>) {
        if let Some(file) = &self.file {
            file.save(record);
        }
    }

    /// Counts a change of a record, and says so.
    pub(super) fn tell(&self, record: &Arc<CaptureRecord>) {
        self.tell_change(record, CaptureChange::Updated);
    }

    /// Counts the last change of a record, and says so.
    pub(super) fn tell_end(&self, record: &Arc<CaptureRecord>) {
        self.tell_change(record, CaptureChange::Ended);
        self.save(record);
        if self.ended.receiver_count() > 0 {
            ignore(self.ended.send(record.clone()), "nobody may be listening");
        }
        self.open.fetch_sub(1, Ordering::Release);
    }

    fn tell_change(
        &self,
        record: &Arc<CaptureRecord>,
        change: impl FnOnce(Arc<CaptureRecord>) -> CaptureChange,
    ) {
        // Under the lock, so that who has seen a revision has seen all before it.
        let mut inner = self.lock();
        record.revision.store(inner.next_revision(), Ordering::Release);
        drop(inner);
        if self.changes.receiver_count() > 0 {
            ignore(self.changes.send(change(record.clone())), "nobody may be listening");
        }
    }

    fn lock(&self) -> MutexGuard<'_, CaptureState> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CaptureState {
    /// Where the record with this identifier stands.
    fn position(&self, id: &str) -> Option<usize> {
        let sequence = u32::from_str_radix(id.get(8..16)?, 16).ok()?;
        let at = self.records.binary_search_by_key(&sequence, |record| record.sequence).ok()?;
        (self.records[at].id == id).then_some(at)
    }

    /// How many records are pinned, and what they take.
    fn pinned(&self) -> (usize, usize) {
        let pinned = self.records.iter().filter(|record| record.exchange().is_pinned);
        pinned.fold((0, 0), |(count, bytes), it| (count + 1, bytes + it.cost()))
    }

    /// The identifier of the oldest record that is kept and not pinned: of those before it only pinned ones
    /// are.
    fn oldest(&self) -> Option<String> {
        let oldest = self.records.iter().find(|record| !record.exchange().is_pinned);
        oldest.or(self.records.back()).map(|record| record.id.clone())
    }

    fn next_revision(&mut self) -> u64 {
        self.revision += 1;
        self.revision
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::agent::capture::{SocketMessage, StreamSide};

    const HEAD: &[u8] = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n";

    fn open(captures: &Arc<CaptureStore>, tunnel_name: &str) -> Recording {
        captures.open(NewCapture {
            tunnel_name,
            source: Arc::default(),
            head: HEAD,
            body: &Body::NONE,
        })
    }

    /// What the records cost, counted anew.
    fn counted(captures: &CaptureStore) -> usize {
        let cost = |record: &Arc<CaptureRecord>| record.cost();
        captures.list(usize::MAX, None).iter().map(cost).sum()
    }

    #[test]
    fn records_are_listed_newest_first_and_by_tunnel() {
        let captures = CaptureStore::new(CaptureLimit::default());
        let ids = ["a", "b", "a"].map(|tunnel| open(&captures, tunnel).record().id.clone());

        let listed = |limit, tunnel| {
            captures.list(limit, tunnel).iter().map(|r| r.id.clone()).collect::<Vec<_>>()
        };

        assert_eq!(listed(9, None), [&*ids[2], &*ids[1], &*ids[0]]);
        assert_eq!(listed(1, Some("a")), [&*ids[2]]);
        assert_eq!(captures.find(&ids[1]).unwrap().tunnel_name, "b");
        assert!(captures.find("0000000000000001").is_none());
        assert!(captures.find("é").is_none());
    }

    #[test]
    fn the_oldest_go_first_and_the_count_stays_right() {
        let captures = CaptureStore::new(CaptureLimit::Bytes(10_000));

        for size in [0, 10, 4_000, 2_000, 9_999, 100] {
            let recording = open(&captures, "a");
            recording.request_body(&vec![b'x'; size]);
            recording.response_head(b"HTTP/1.1 200 OK\r\n\r\n", &Body::NONE);
            recording.response_body(&vec![b'y'; size]);
            assert!(captures.usage().bytes <= 10_000, "{:?}", captures.usage());
            assert_eq!(captures.usage().bytes, counted(&captures));
        }

        let newest = captures.list(1, None);
        assert_eq!(newest[0].exchange().request.body_length, 100);
        assert_eq!(captures.usage().records as u64 + captures.usage().evicted, 6);
    }

    #[test]
    fn a_body_beyond_the_cap_is_cut_and_marked() {
        let captures = CaptureStore::new(CaptureLimit::Bytes(4_000));
        let recording = open(&captures, "a");

        recording.request_body(&[b'x'; 600]);
        recording.request_body(&[b'x'; 600]);

        let shown = recording.record().show();
        assert_eq!(shown.request.truncated, crate::api::Flag(true));
        assert_eq!(recording.record().exchange().request.body.len(), 1_000);
    }

    #[test]
    fn what_was_let_go_takes_no_memory_although_it_lasts() {
        let captures = CaptureStore::new(CaptureLimit::Bytes(4_000));
        let lasting = open(&captures, "a");
        lasting.request_body(&[b'x'; 900]);
        lasting.response_head(b"HTTP/1.1 200 OK\r\n\r\n", &Body::NONE);
        lasting.response_body(&[b'x'; 900]);

        (0..2).for_each(|_| open(&captures, "a").request_body(&[b'x'; 1_000]));

        assert_eq!(captures.usage().evicted, 1);
        let exchange = lasting.record().exchange();
        assert!(exchange.request.body.is_empty());
        assert!(exchange.response.as_ref().unwrap().body.is_empty());
        assert!(exchange.request.is_truncated());
    }

    #[test]
    fn a_request_that_is_replaced_counts_as_what_it_is_now() {
        let captures = CaptureStore::new(CaptureLimit::default());
        let recording = open(&captures, "a");

        for head in
            ["PUT /longer-than-before HTTP/1.1\r\nHost: x\r\n\r\n", "GET / HTTP/1.1\r\n\r\n"]
        {
            recording.edit_request(head.as_bytes(), &Body::NONE);
            assert_eq!(captures.usage().bytes, counted(&captures));
        }

        assert_eq!(recording.record().exchange().request.start_line()[0], "GET");
    }

    #[test]
    fn a_request_in_chunks_that_replaces_another_is_shown_without_them() {
        let captures = CaptureStore::new(CaptureLimit::default());
        let recording = open(&captures, "a");
        let head = b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n";

        recording.edit_request(head, &Body::CHUNKED);
        recording.request_body(b"hello");
        recording.request_complete(b"x-sum: 7\r\n\r\n");

        let shown = recording.record().show().request;
        assert!(shown.raw.0.ends_with(b"Content-Length: 5\r\n\r\nhello"), "{shown:?}");
        assert_eq!(shown.trailers.0["X-Sum"], ["7"]);
    }

    #[test]
    fn messages_and_the_times_of_parts_count() {
        let captures = CaptureStore::new(CaptureLimit::Bytes(20_000));
        let recording = open(&captures, "a");
        recording.response_head(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n",
            &Body::CHUNKED,
        );
        recording.begin_stream();
        recording.response_body(b"data: 1\n\n");
        assert_eq!(captures.usage().bytes, counted(&captures));
        recording.begin_socket();

        for size in [10, 1_000, 3_000, 2_000, 9_000, 1] {
            recording.socket_message(SocketMessage {
                side: StreamSide::Client,
                opcode: 1,
                at: Duration::ZERO,
                size: size as u64,
                data: vec![b'x'; size],
                is_cut: false,
                is_compressed: false,
            });
            assert_eq!(captures.usage().bytes, counted(&captures));
        }

        let exchange = recording.record().exchange();
        let socket = exchange.socket.as_ref().unwrap();
        assert_eq!((socket.messages.len(), socket.dropped, socket.bytes), (1, 5, [15_011, 0]));
        drop(exchange);
        open(&captures, "a").request_body(&[b'x'; 5_000]);
        (0..40).for_each(|_| drop(open(&captures, "a")));
        assert_eq!(captures.usage().bytes, counted(&captures));
    }

    #[test]
    fn a_body_that_never_came_to_its_end_is_marked() {
        let captures = CaptureStore::new(CaptureLimit::default());

        for (is_whole, is_held) in [(false, false), (false, true), (true, false), (true, true)] {
            let recording = captures.open(NewCapture {
                tunnel_name: "a",
                source: Arc::default(),
                head: b"POST / HTTP/1.1\r\nContent-Length: 5\r\n\r\n",
                body: &Body::Length(5),
            });
            let record = recording.record().clone();
            let is_cut = || record.exchange().request.is_truncated();
            if is_held {
                recording.hold("h");
                assert!(is_cut() && record.exchange().is_held, "it is not in the record yet");
            }
            if is_whole {
                recording.end_hold();
                recording.request_body(b"hello");
                recording.request_complete(b"");
            }
            drop(recording);

            assert_eq!((is_cut(), record.exchange().is_held), (!is_whole, false));
        }
    }

    #[test]
    fn what_was_cleared_grows_no_more() {
        let captures = CaptureStore::new(CaptureLimit::default());
        let recording = open(&captures, "a");

        captures.clear();
        recording.request_body(b"late");

        assert_eq!((captures.usage().records, captures.usage().bytes), (0, 0));
    }

    #[test]
    fn a_record_that_is_removed_counts_no_more_and_is_named_to_who_asks() {
        let captures = CaptureStore::new(CaptureLimit::default());
        let recordings: Vec<_> = (0..3).map(|_| open(&captures, "web")).collect();
        let ids: Vec<_> = recordings.iter().map(|one| one.record().id.clone()).collect();
        let before = captures.revision();

        assert!(captures.remove(&ids[1]));

        assert!(!captures.remove(&ids[1]) && !captures.remove("00"));
        recordings[1].response_body(b"nobody keeps this");
        let listed: Vec<_> = captures.list(9, None).iter().map(|one| one.id.clone()).collect();
        assert_eq!(listed, [ids[2].clone(), ids[0].clone()]);
        assert_eq!(captures.usage().bytes, counted(&captures));
        let snapshot = captures.snapshot(Some(before));
        assert_eq!(snapshot.since, Some(before));
        assert_eq!(snapshot.removed, [ids[1].clone()]);
        assert_eq!((snapshot.records.len(), snapshot.usage), (2, captures.usage()));
        assert!(captures.snapshot(Some(snapshot.revision)).removed.is_empty());
        assert_eq!(captures.snapshot(Some(snapshot.revision + 1)).since, None);
    }

    #[test]
    fn removals_beyond_those_that_are_remembered_make_pages_begin_anew() {
        let captures = CaptureStore::new(CaptureLimit::default());
        let before = captures.revision();

        for _ in 0..=MAX_REMOVALS {
            let recording = open(&captures, "web");
            assert!(captures.remove(&recording.record().id));
        }

        let snapshot = captures.snapshot(Some(before));
        assert_eq!((snapshot.since, snapshot.removed.len()), (None, 0));
        let told = |since: &u64| captures.snapshot(Some(*since)).since.is_some();
        let first = (before..=snapshot.revision).find(told);
        assert_eq!(captures.snapshot(first).removed.len(), MAX_REMOVALS);
    }

    #[test]
    fn listeners_hear_of_the_start_the_answer_and_the_end() {
        let captures = CaptureStore::new(CaptureLimit::default());
        let mut changes = captures.subscribe();

        let recording = open(&captures, "a");
        recording.response_head(b"HTTP/1.1 200 OK\r\n\r\n", &Body::NONE);
        drop(recording);

        let received: Vec<_> = std::iter::from_fn(|| changes.try_recv().ok()).collect();
        assert!(
            matches!(
                received[..],
                [CaptureChange::Updated(_), CaptureChange::Updated(_), CaptureChange::Ended(_)]
            ),
            "{received:?}"
        );
    }

    #[test]
    fn an_exchange_that_nobody_completed_has_failed() {
        let captures = CaptureStore::new(CaptureLimit::default());

        for complete in [true, false] {
            let recording = open(&captures, "a");
            recording.response_head(b"HTTP/1.1 200 OK\r\n\r\n", &Body::NONE);
            if complete {
                recording.complete();
            }
            let record = recording.record().clone();
            drop(recording);

            let exchange = record.exchange();
            let cut_off = exchange.response.as_ref().unwrap().cut_off;
            assert_eq!((exchange.error.is_none(), cut_off), (complete, !complete));
        }
    }
}
