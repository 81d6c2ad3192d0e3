//! Lines on their way to a thread that writes them: a reader who reads no more stops nobody else.

use std::sync::mpsc::{self, Receiver, SyncSender};
use std::thread;
use std::time::Duration;

use ginnel_base::logging::ignore;

use super::error::{CliError, Exit};

enum Entry {
    Text(String),
    Flush(SyncSender<()>),
}

/// A queue of texts, and the thread that writes them.
#[derive(Clone)]
pub(super) struct LineWriter(SyncSender<Entry>);

impl LineWriter {
    /// Starts the thread; so many texts wait for it at most.
    pub fn start(
        max_queued: usize,
        write: impl FnMut(&str) + Send + 'static,
    ) -> Result<Self, CliError> {
        let (queue, entries) = mpsc::sync_channel(max_queued);
        let thread = thread::Builder::new().name("ginnel-lines".to_owned());
        let started = thread.spawn(move || write_entries(&entries, write));
        started.map_err(|error| CliError::new(Exit::Failed, format!("the log: {error}")))?;
        Ok(Self(queue))
    }

    /// Adds whole lines; false where there is no place for them.
    pub fn add_lines(&self, text: String) -> bool {
        self.0.try_send(Entry::Text(text)).is_ok()
    }

    /// Waits until what was added is written, but not for ever.
    pub fn flush(&self, timeout: Duration) {
        let (done, flushed) = mpsc::sync_channel(1);
        if self.0.try_send(Entry::Flush(done)).is_ok() {
            ignore(flushed.recv_timeout(timeout), "a reader who reads no more is not waited for");
        }
    }
}

fn write_entries(entries: &Receiver<Entry>, mut write: impl FnMut(&str)) {
    while let Ok(entry) = entries.recv() {
        match entry {
            Entry::Text(text) => write(&text),
            Entry::Flush(done) => ignore(done.try_send(()), "nobody waits any more"),
        }
    }
}
