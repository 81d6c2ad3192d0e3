//! Pins, which keep a record longer than others, and notes.

use std::sync::Arc;

use super::{CaptureRecord, CaptureState, CaptureStore};

/// How many records are pinned at most, and how much of the limit they may take together.
const MAX_PINNED: usize = 100;
pub(super) const PINNED_SHARE: usize = 2;
/// How long a note may be, in bytes.
const MAX_NOTE_BYTES: usize = 2000;

/// Why a record is not pinned, or gets no note.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
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

impl CaptureStore {
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
        let mut inner = self.lock_state();
        let Some(record) = inner.find_position(id).and_then(|at| inner.records.get(at)).cloned()
        else {
            return Ok(None);
        };
        if is_pinned == Some(true) && !record.lock_exchange().is_pinned {
            self.check_room(&inner, &record)?;
        }
        let mut exchange = record.lock_exchange();
        inner.bytes -= exchange.memory_cost();
        exchange.is_pinned = is_pinned.unwrap_or(exchange.is_pinned);
        if let Some(note) = note {
            exchange.note = note;
        }
        inner.bytes += exchange.memory_cost();
        drop(exchange);
        self.evict_oldest(&mut inner);
        drop(inner);
        self.notify_update(&record);
        self.save_record(&record);
        Ok(Some(record))
    }

    /// Whether another record may be pinned.
    fn check_room(&self, inner: &CaptureState, record: &CaptureRecord) -> Result<(), PinError> {
        let (count, bytes) = inner.pinned_usage();
        let most = self.max_bytes() / PINNED_SHARE;
        match () {
            () if count >= MAX_PINNED => Err(PinError::TooMany),
            () if bytes + record.memory_cost() > most => Err(PinError::TooMuch(most)),
            () => Ok(()),
        }
    }
}

impl CaptureState {
    /// How many records are pinned, and what they take.
    pub(super) fn pinned_usage(&self) -> (usize, usize) {
        let pinned = self.records.iter().filter(|record| record.lock_exchange().is_pinned);
        pinned.fold((0, 0), |(count, bytes), it| (count + 1, bytes + it.memory_cost()))
    }
}
