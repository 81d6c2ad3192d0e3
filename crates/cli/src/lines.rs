//! Lines of a log on their way to a thread that writes them, so that a slow reader does not stop the program.
//!
//! The log, the access log and the lines of commands share the thread; each has a [`LineSource`] of its own.

use std::io;
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use ginnel_base::logging::ignore;

use super::error::{CliError, CommandResult, Exit};
use super::log_file::LogOutput;

/// The lines that a thread writes.
pub(super) trait LineSource: Send + 'static {
    /// Waits for a while for whole lines, adds them, and returns their number. Returns `None` after the last ones.
    fn take_lines(&mut self, lines: &mut String) -> Option<u64>;

    /// Learns that the lines that it gave last were lost.
    fn count_lost(&mut self, lines: u64);
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
        if !lines.is_empty() && !output.write_lines(&lines) {
            source.count_lost(count);
        }
        lines = String::new();
    }
}

enum Entry {
    Text(String),
    Flush(SyncSender<()>),
}

/// A queue of texts for a thread that writes them.
#[derive(Clone)]
pub(super) struct LineWriter(SyncSender<Entry>);

impl LineWriter {
    /// Starts the thread; so many texts wait for it at most. `on_lost` is called when one cannot be written.
    pub fn start(
        max_queued: usize,
        output: LogOutput,
        on_lost: impl FnMut() + Send + 'static,
    ) -> CommandResult<Self> {
        let (queue, entries) = mpsc::sync_channel(max_queued);
        let started = start_writing("ginnel-lines", QueuedLines { entries, on_lost }, output);
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

/// The texts of a [`LineWriter`], one at a time.
struct QueuedLines<F> {
    entries: Receiver<Entry>,
    on_lost: F,
}

impl<F: FnMut() + Send + 'static> LineSource for QueuedLines<F> {
    fn take_lines(&mut self, lines: &mut String) -> Option<u64> {
        match self.entries.recv().ok()? {
            Entry::Text(text) => {
                lines.push_str(&text);
                Some(1)
            }
            // The lines before this entry have been written by now.
            Entry::Flush(done) => {
                ignore(done.try_send(()), "nobody waits any more");
                Some(0)
            }
        }
    }

    fn count_lost(&mut self, _: u64) {
        (self.on_lost)();
    }
}
