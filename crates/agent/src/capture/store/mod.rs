//! The records, bounded by bytes.

mod pins;
mod restore;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{broadcast, oneshot};

use super::file::InspectFile;
use super::record::{CaptureRecord, CaptureSource, CapturedExchange, CapturedMessage};
use super::recording::Recording;
use super::stream::StreamKind;

use ginnel_base::logging::ignore;
use ginnel_http1::Body;

pub use pins::PinError;
pub(crate) use restore::ImportedCapture;

/// Default of `inspect_body_limit`, unless a fifth of `inspect_db_size` is more.
const DEFAULT_BODY_LIMIT_BYTES: usize = 10 << 20;
/// Maximum size of the messages of a WebSocket, and of the times of a stream's parts, for each exchange.
const MAX_STREAM_BYTES: usize = 1 << 20;
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
    pub fn from_setting(size: i64) -> Option<Self> {
        match size {
            -1 => Some(Self::Nothing),
            0 => Some(Self::default()),
            _ => usize::try_from(size).ok().map(Self::Bytes),
        }
    }
}

/// The limits of a store.
#[derive(Debug, Clone, Copy)]
pub struct CaptureLimits {
    /// How much is captured in all.
    pub total: CaptureLimit,
    /// The maximum length of a body that is kept whole, in bytes.
    pub body: usize,
}

impl From<CaptureLimit> for CaptureLimits {
    fn from(total: CaptureLimit) -> Self {
        let fifth = match total {
            CaptureLimit::Nothing => 0,
            CaptureLimit::Bytes(bytes) => bytes / 5,
        };
        Self { total, body: DEFAULT_BODY_LIMIT_BYTES.max(fifth) }
    }
}

/// How much of one exchange is kept, in bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct ExchangeRoom {
    /// The maximum length of each body.
    pub body: usize,
    /// The maximum length of both bodies together.
    pub bodies: usize,
    /// The maximum size of the messages of a WebSocket, and of the times of the parts of each body.
    pub stream: usize,
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
pub struct CaptureSnapshot {
    /// The last change that can be seen here.
    pub revision: u64,
    /// The revision that was named; none where the removals after it are not all remembered.
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

/// The captured requests of an agent.
#[derive(Debug)]
pub struct CaptureStore {
    limits: CaptureLimits,
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
    /// How many times all records were removed.
    clearings: u64,
    /// The last records that were removed one by one, each with its revision.
    removals: VecDeque<(u64, String)>,
}

impl CaptureStore {
    /// No records yet.
    pub fn new(limits: impl Into<CaptureLimits>) -> Arc<Self> {
        Arc::new(Self::empty(limits.into(), None))
    }

    fn empty(limits: CaptureLimits, file: Option<InspectFile>) -> Self {
        let (changes, _) = broadcast::channel(MAX_QUEUED_CHANGES);
        let (ended, _) = broadcast::channel(MAX_QUEUED_CHANGES);
        Self { limits, inner: Mutex::default(), file, changes, ended, open: AtomicUsize::new(0) }
    }

    /// Where records survive a restart; none where they do not.
    pub(crate) fn file(&self) -> Option<&InspectFile> {
        self.file.as_ref()
    }

    /// Whether records of the file are still to come.
    #[cfg(test)]
    pub(crate) fn is_restoring(&self) -> bool {
        self.lock_state().is_restoring
    }

    /// Whether anything is captured.
    pub fn is_on(&self) -> bool {
        self.limits.total != CaptureLimit::Nothing
    }

    /// Whether all exchanges have ended, and listeners have been notified.
    pub fn is_idle(&self) -> bool {
        self.open.load(Ordering::Acquire) == 0
    }

    /// Opens a record.
    pub fn start_recording(self: &Arc<Self>, opening: NewCapture<'_>) -> Recording {
        let request = CapturedMessage::awaiting_body(opening.head, opening.body);
        self.open.fetch_add(1, Ordering::Relaxed);
        let mut inner = self.lock_state();
        inner.last = inner.last.wrapping_add(1);
        let tunnel_name = opening.tunnel_name.to_owned();
        let record = CaptureRecord::new(inner.last, tunnel_name, opening.source, request);
        let record = Arc::new(record);
        self.push_record(&mut inner, record.clone());
        drop(inner);
        self.notify_update(&record);
        let is_call = opening.body.is_chunked()
            && StreamKind::from_head(opening.head) == Some(StreamKind::Grpc);
        Recording::new(self.clone(), record, is_call)
    }

    /// The newest records of a tunnel, or of all, newest first.
    pub fn list(&self, limit: usize, tunnel_name: Option<&str>) -> Vec<Arc<CaptureRecord>> {
        let inner = self.lock_state();
        let matching = |record: &&Arc<CaptureRecord>| {
            tunnel_name.is_none_or(|name| record.tunnel_name == name)
        };
        inner.records.iter().rev().filter(matching).take(limit).cloned().collect()
    }

    /// The record with this identifier.
    pub fn find(&self, id: &str) -> Option<Arc<CaptureRecord>> {
        let inner = self.lock_state();
        inner.records.get(inner.find_position(id)?).cloned()
    }

    /// Removes all records; those under way are not recorded any further. Where there is a file, it is
    /// said when that is empty, or why it is not.
    pub fn clear(&self) -> Option<oneshot::Receiver<Result<(), String>>> {
        let mut inner = self.lock_state();
        for record in std::mem::take(&mut inner.records) {
            record.lock_exchange().discard_content();
        }
        inner.bytes = 0;
        inner.is_restoring = false;
        inner.removals.clear();
        inner.cleared = inner.next_revision();
        inner.clearings += 1;
        drop(inner);
        let emptied = self.file.as_ref().map(InspectFile::clear);
        ignore(self.changes.send(CaptureChange::Cleared), "nobody may be listening");
        emptied
    }

    /// How many times all records were removed, also for those who hold one that was displaced before.
    pub(crate) fn clear_count(&self) -> u64 {
        self.lock_state().clearings
    }

    /// The length up to which the bodies of an exchange are kept whole, however long the other one is.
    pub(crate) fn max_body_bytes(&self) -> usize {
        let room = self.exchange_room();
        room.body.min(room.bodies / 2)
    }

    /// Removes one record, which is not recorded any further; false where it is not kept.
    pub fn remove(&self, id: &str) -> bool {
        let mut inner = self.lock_state();
        let Some(at) = inner.find_position(id) else { return false };
        let Some(record) = inner.records.remove(at) else { return false };
        let mut exchange = record.lock_exchange();
        inner.bytes -= exchange.memory_cost();
        exchange.discard_content();
        drop(exchange);
        if let Some(file) = &self.file {
            file.remove_record(record.sequence);
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
        self.usage_of(&self.lock_state())
    }

    fn usage_of(&self, inner: &CaptureState) -> Usage {
        Usage {
            bytes: inner.bytes,
            limit: self.max_bytes(),
            records: inner.records.len(),
            evicted: inner.evicted,
        }
    }

    /// How many changes there were.
    pub fn revision(&self) -> u64 {
        self.lock_state().revision
    }

    /// All that is kept at one moment, and what was removed since somebody looked.
    pub fn snapshot_since(&self, since: Option<u64>) -> CaptureSnapshot {
        let inner = self.lock_state();
        let known = |since: &u64| (inner.cleared..=inner.revision).contains(since);
        let since = since.filter(known);
        let removals = inner.removals.iter().filter(|(at, _)| since.is_some_and(|it| *at > it));
        CaptureSnapshot {
            revision: inner.revision,
            since,
            removed: removals.map(|(_, id)| id.clone()).collect(),
            records: inner.records.iter().rev().cloned().collect(),
            oldest: inner.oldest_id(),
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

    fn max_bytes(&self) -> usize {
        match self.limits.total {
            CaptureLimit::Nothing => 0,
            CaptureLimit::Bytes(bytes) => bytes,
        }
    }

    /// How much of one exchange is kept: so little that its heads still have room.
    fn exchange_room(&self) -> ExchangeRoom {
        let quarter = self.max_bytes() / 4;
        ExchangeRoom {
            body: self.limits.body,
            bodies: 3 * quarter,
            stream: MAX_STREAM_BYTES.min(quarter),
        }
    }

    /// Changes a record, and counts the bytes that it grew by. `change` gets the room of the exchange.
    pub(super) fn change_record(
        &self,
        record: &Arc<CaptureRecord>,
        change: impl FnOnce(&mut CapturedExchange, ExchangeRoom) -> usize,
    ) {
        // The order of the locks is that of `clear`: the store, then the record.
        let mut inner = self.lock_state();
        let mut exchange = record.lock_exchange();
        if exchange.gone {
            return;
        }
        inner.bytes += change(&mut exchange, self.exchange_room());
        drop(exchange);
        self.evict_oldest(&mut inner);
    }

    /// Changes a record in a way that may make it smaller, and counts the difference. `change` gets the room of the
    /// exchange.
    pub(super) fn recount_record(
        &self,
        record: &CaptureRecord,
        change: impl FnOnce(&mut CapturedExchange, ExchangeRoom),
    ) {
        let mut inner = self.lock_state();
        let mut exchange = record.lock_exchange();
        if exchange.gone {
            return;
        }
        inner.bytes -= exchange.memory_cost();
        change(&mut exchange, self.exchange_room());
        inner.bytes += exchange.memory_cost();
        drop(exchange);
        self.evict_oldest(&mut inner);
    }

    /// Adds a record, and makes room for it.
    fn push_record(&self, inner: &mut CaptureState, record: Arc<CaptureRecord>) {
        inner.bytes += record.memory_cost();
        inner.records.push_back(record);
        self.evict_oldest(inner);
    }

    /// Lets the oldest records go until there is room: those that are pinned last.
    fn evict_oldest(&self, inner: &mut CaptureState) {
        let (mut at, mut spares_pinned) = (0, true);
        while inner.bytes > self.max_bytes() {
            let Some(record) = inner.records.get(at).cloned() else {
                if !std::mem::replace(&mut spares_pinned, false) {
                    return;
                }
                at = 0;
                continue;
            };
            let mut exchange = record.lock_exchange();
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
            inner.bytes -= exchange.memory_cost();
            exchange.discard_content();
            exchange.is_displaced = true;
            inner.records.remove(at);
            inner.evicted += 1;
        }
    }

    /// Has a record written whose exchange has ended.
    fn save_record(&self, record: &Arc<CaptureRecord>) {
        if let Some(file) = &self.file {
            file.save_record(record);
        }
    }

    /// Counts a change of a record, and says so.
    pub(super) fn notify_update(&self, record: &Arc<CaptureRecord>) {
        self.notify_change(record, CaptureChange::Updated);
    }

    /// Counts the last change of a record, and says so.
    pub(super) fn notify_ended(&self, record: &Arc<CaptureRecord>) {
        self.notify_change(record, CaptureChange::Ended);
        self.save_record(record);
        if self.ended.receiver_count() > 0 {
            ignore(self.ended.send(record.clone()), "nobody may be listening");
        }
        self.open.fetch_sub(1, Ordering::Release);
    }

    fn notify_change(
        &self,
        record: &Arc<CaptureRecord>,
        change: impl FnOnce(Arc<CaptureRecord>) -> CaptureChange,
    ) {
        // Under the lock, so that who has seen a revision has seen all before it.
        let mut inner = self.lock_state();
        record.revision.store(inner.next_revision(), Ordering::Release);
        drop(inner);
        if self.changes.receiver_count() > 0 {
            ignore(self.changes.send(change(record.clone())), "nobody may be listening");
        }
    }

    fn lock_state(&self) -> MutexGuard<'_, CaptureState> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CaptureState {
    /// Where the record with this identifier stands.
    fn find_position(&self, id: &str) -> Option<usize> {
        let sequence = u32::from_str_radix(id.get(8..16)?, 16).ok()?;
        let at = self.records.binary_search_by_key(&sequence, |record| record.sequence).ok()?;
        (self.records[at].id == id).then_some(at)
    }

    /// The identifier of the oldest record that is kept and not pinned: of those before it only pinned ones
    /// are.
    fn oldest_id(&self) -> Option<String> {
        let oldest = self.records.iter().find(|record| !record.lock_exchange().is_pinned);
        oldest.or(self.records.back()).map(|record| record.id.clone())
    }

    fn next_revision(&mut self) -> u64 {
        self.revision += 1;
        self.revision
    }
}
