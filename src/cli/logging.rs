//! Writes log records on standard error, as far as `GINNEL_LOG` asks for them.

use std::io::Write;
use std::thread::JoinHandle;
use std::time::Duration;

use chrono::{DateTime, SecondsFormat, Utc};

use crate::api::mask;
use crate::logging::{self, LogLevel, LogRecord, TARGETS, ignore, or_debug};

/// The variable that names a level.
pub(super) const LEVEL_VARIABLE: &str = "GINNEL_LOG";
/// How long the writer waits for records at a time.
const WAIT: Duration = Duration::from_secs(3600);

/// Writes records until it is dropped, on a thread of its own: a terminal may be slow.
pub(super) struct LogWriter {
    writing: Option<JoinHandle<()>>,
    /// Dropped when no more records are to come.
    last: std::sync::mpsc::Sender<()>,
}

impl LogWriter {
    /// Starts to write; none where nobody asked for it.
    pub(super) fn start() -> Option<Self> {
        logging::set_levels(&[level()?; TARGETS.len()]);
        let (last, over) = std::sync::mpsc::channel::<()>();
        let write = move || {
            while over.try_recv() == Err(std::sync::mpsc::TryRecvError::Empty) {
                write_lines(logging::take(Some(WAIT)));
            }
            write_lines(logging::take(None));
        };
        let writing = std::thread::Builder::new().name("ginnel-log".to_owned()).spawn(write);
        Some(Self { writing: or_debug!(writing, "cannot start the log's thread"), last })
    }
}

impl Drop for LogWriter {
    fn drop(&mut self) {
        let (last, _) = std::sync::mpsc::channel();
        drop(std::mem::replace(&mut self.last, last));
        logging::wake();
        if let Some(writing) = self.writing.take() {
            ignore(writing.join(), "a writer that panicked has written that itself");
        }
    }
}

/// The level that the environment asks for.
fn level() -> Option<LogLevel> {
    match std::env::var(LEVEL_VARIABLE).ok()?.trim().to_lowercase().as_str() {
        "debug" => Some(LogLevel::Debug),
        "info" => Some(LogLevel::Info),
        "warning" => Some(LogLevel::Warn),
        _ => None,
    }
}

fn write_lines(records: Vec<LogRecord>) {
    let mut lines = String::new();
    for record in records {
        let time = DateTime::<Utc>::from(record.time).to_rfc3339_opts(SecondsFormat::Millis, true);
        let record = record.masked(mask::text);
        let (level, target) = (record.level.name(), record.target);
        lines.push_str(&format!("{time} {level} ginnel.{target} {}\n", record.line()));
    }
    if !lines.is_empty() {
        ignore(std::io::stderr().write_all(lines.as_bytes()), "nobody is left who reads it");
    }
}
