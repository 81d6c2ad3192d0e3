//! Lines of a log on their way to a thread that writes them, so that a slow reader does not stop the program.
//!
//! The log, the access log and the lines of commands share the thread; each has a [`LineSource`] of its own.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tokio::sync::Notify;

use ginnel_base::logging::ignore;

use super::error::{CliError, CommandResult, Exit};
use super::log_file::LogOutput;

/// The lines that a thread writes.
pub(super) trait LineSource: Send + 'static {
    /// Waits for a while for whole lines, adds them, and returns their number. Returns `None` after the last ones.
    fn take_lines(&mut self, lines: &mut String) -> Option<u64>;

    /// Learns that the lines that it gave last were lost. If `is_reader_gone` is true, no line will be read again.
    fn count_lost(&mut self, lines: u64, is_reader_gone: bool);
}

/// Starts a thread that writes the lines of a source up to the last one.
///
/// # Errors
/// If the system gives no thread.
pub(super) fn start_writing(
    name: &str,
    source: impl LineSource,
    output: LogOutput,
) -> io::Result<JoinHandle<()>> {
    thread::Builder::new().name(name.to_owned()).spawn(move || write_lines(source, output))
}

fn write_lines(mut source: impl LineSource, mut output: LogOutput) {
    let mut lines = String::new();
    while let Some(count) = source.take_lines(&mut lines) {
        output.reopen_if_requested();
        if !lines.is_empty()
            && let Err(error) = output.write_lines(&lines)
        {
            source.count_lost(count, output.is_reader_gone(&error));
        }
        lines = String::new();
    }
}

enum Entry {
    /// Whole lines, and the number of lines that are lost if they cannot be written.
    Text(String, u64),
    Flush(SyncSender<()>),
}

/// A queue of texts for a thread that writes them.
#[derive(Clone)]
pub(super) struct LineWriter {
    queue: SyncSender<Entry>,
    losses: Arc<LineLosses>,
}

/// The lines that were lost.
#[derive(Default)]
struct LineLosses {
    /// The number of lost lines that has not been taken.
    lines: AtomicU64,
    reader_left: Notify,
}

impl LineWriter {
    /// Starts the thread. At most `max_queued` texts wait for it.
    ///
    /// # Errors
    /// If the system gives no thread.
    pub fn start(max_queued: usize, output: LogOutput) -> CommandResult<Self> {
        let (queue, entries) = mpsc::sync_channel(max_queued);
        let losses = Arc::<LineLosses>::default();
        let lines = QueuedLines { entries, losses: losses.clone() };
        let started = start_writing("ginnel-lines", lines, output);
        started.map_err(|error| CliError::new(Exit::Failed, format!("the log: {error}")))?;
        Ok(Self { queue, losses })
    }

    /// Adds whole lines. They are lost if the queue is full.
    pub fn add_lines(&self, text: String) {
        let count = count_lines(&text);
        self.add_counted(text, count);
    }

    /// Adds whole lines, without which `count` lines are lost: more than these if they report earlier losses.
    pub fn add_counted(&self, text: String, count: u64) {
        if self.queue.try_send(Entry::Text(text, count)).is_err() {
            self.losses.lines.fetch_add(count, Relaxed);
        }
    }

    /// Returns the number of lines that were lost since the last call.
    pub fn take_lost(&self) -> u64 {
        self.losses.lines.swap(0, Relaxed)
    }

    /// Waits until the reader of a stream has left. Never returns for files.
    pub async fn reader_left(&self) {
        self.losses.reader_left.notified().await;
    }

    /// Waits until what was added is written, but not for ever.
    pub fn flush(&self, timeout: Duration) {
        let (done, flushed) = mpsc::sync_channel(1);
        if self.queue.try_send(Entry::Flush(done)).is_ok() {
            ignore(flushed.recv_timeout(timeout), "a reader who reads no more is not waited for");
        }
    }
}

/// Returns the number of whole lines of a text.
pub(super) fn count_lines(text: &str) -> u64 {
    text.bytes().filter(|byte| *byte == b'\n').count() as u64
}

/// The texts of a [`LineWriter`], one at a time.
struct QueuedLines {
    entries: Receiver<Entry>,
    losses: Arc<LineLosses>,
}

impl LineSource for QueuedLines {
    fn take_lines(&mut self, lines: &mut String) -> Option<u64> {
        match self.entries.recv().ok()? {
            Entry::Text(text, count) => {
                lines.push_str(&text);
                Some(count)
            }
            // The lines before this entry have been written by now.
            Entry::Flush(done) => {
                ignore(done.try_send(()), "nobody waits any more");
                Some(0)
            }
        }
    }

    fn count_lost(&mut self, lines: u64, is_reader_gone: bool) {
        self.losses.lines.fetch_add(lines, Relaxed);
        if is_reader_gone {
            self.losses.reader_left.notify_one();
        }
    }
}
