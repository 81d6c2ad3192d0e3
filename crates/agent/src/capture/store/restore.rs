//! Records that do not come from a tunnel: those of a file, and those of an archive.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use chrono::{DateTime, Utc};

use ginnel_base::logging::ignore;

use super::pins::PINNED_SHARE;
use super::{CaptureChange, CaptureLimit, CaptureLimits, CaptureStore};
use crate::capture::file::{FileLimits, InspectFile, InspectFileError};
use crate::capture::record::{CaptureRecord, CaptureSource, CapturedExchange, record_id};

/// A record that comes from an archive.
#[derive(Debug)]
pub(crate) struct ImportedCapture {
    pub tunnel_name: String,
    pub source: CaptureSource,
    /// When it arrived, as the archive says.
    pub start: DateTime<Utc>,
    pub exchange: CapturedExchange,
}

impl CaptureStore {
    /// The records of a file, which gets those that come.
    ///
    /// # Errors
    /// When the file cannot be used.
    pub(crate) fn with_file(
        limits: impl Into<CaptureLimits>,
        path: &Path,
        file_limits: FileLimits,
    ) -> Result<Arc<Self>, InspectFileError> {
        let limits = limits.into();
        if limits.total == CaptureLimit::Nothing {
            return Err(InspectFileError::NothingCaptured);
        }
        let (file, opened) = InspectFile::open(path, file_limits)?;
        let store = Arc::new(Self::empty(limits, Some(file)));
        {
            let mut inner = store.lock_state();
            (inner.last, inner.is_restoring) = (opened.last, true);
        }
        let restored = Arc::downgrade(&store);
        let take = move |records| restored.upgrade().is_some_and(|it| it.restore_records(records));
        opened.start_worker(Box::new(take))?;
        Ok(store)
    }

    /// Reports why [`CaptureStore::with_file`] would refuse a file. Neither makes nor changes it.
    ///
    /// # Errors
    /// With the reason.
    pub(crate) fn check_file(limit: CaptureLimit, path: &Path) -> Result<(), String> {
        let checked = match limit {
            CaptureLimit::Nothing => Err(InspectFileError::NothingCaptured),
            CaptureLimit::Bytes(_) => InspectFile::check_path(path),
        };
        checked.map_err(|error| error.to_string())
    }

    /// Adds records of the file, each before those that came after it; none when there are no more. Gives
    /// whether to go on: not where there is no room, or all records were removed meanwhile.
    fn restore_records(&self, records: Option<Vec<CaptureRecord>>) -> bool {
        let mut inner = self.lock_state();
        let Some(records) = records.filter(|_| inner.is_restoring) else {
            inner.is_restoring = false;
            return false;
        };
        let mut last = None;
        for record in records {
            let is_pinned = record.lock_exchange().is_pinned;
            let (taken, most) = match is_pinned {
                true => (inner.pinned_usage().1, self.max_bytes() / PINNED_SHARE),
                false => (inner.bytes, self.max_bytes()),
            };
            if taken + record.memory_cost() > most {
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
            inner.bytes += record.memory_cost();
            let record = Arc::new(record);
            inner.records.insert(at, record.clone());
            self.evict_oldest(&mut inner);
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

    /// Adds records that come from elsewhere, and says what they are called; waits for the disk.
    pub(crate) fn import_captures(&self, captures: Vec<ImportedCapture>) -> Vec<String> {
        let mut ids = Vec::new();
        for capture in captures {
            let mut inner = self.lock_state();
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
            self.push_record(&mut inner, record.clone());
            drop(inner);
            self.notify_update(&record);
            if let Some(file) = &self.file {
                file.save_waiting(&record);
            }
            ids.push(id);
        }
        ids
    }
}
