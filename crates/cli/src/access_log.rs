//! One line for each request of a visitor: `--access-log`.

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;
use std::{io, iter};

use ginnel_base::tasks::spawn_blocking;

use ginnel_base::logging::{LogFormat, LogValue, count_dropped_access, ignore};
use ginnel_gateway::{Event, EventDelivery, EventSubscriber};

use super::error::{CliError, CommandResult, Exit};
use super::lines::{LineSource, start_writing};
use super::log_file::LogOutput;

/// How many lines wait for the file; more are dropped, and counted.
const MAX_QUEUED_LINES: usize = 8192;
/// How many lines are written at once.
const MAX_LINES_AT_ONCE: usize = 512;
/// How often it is looked whether the file was to be opened again.
const REOPEN_INTERVAL: Duration = Duration::from_secs(1);
/// What stands for standard output.
const STDOUT: &str = "-";

/// Whether lines go to standard output.
pub(super) fn is_stdout(path: &Path) -> bool {
    path == Path::new(STDOUT)
}

/// Where lines go.
pub(super) fn open_output(path: &Path) -> CommandResult<LogOutput> {
    match is_stdout(path) {
        true => Ok(LogOutput::stdout()),
        false => LogOutput::open_file(path),
    }
}

/// How lines are written: as the log is, but for programs.
pub(super) fn line_format(log: Option<LogFormat>) -> LogFormat {
    log.filter(|it| *it == LogFormat::Json).unwrap_or(LogFormat::Logfmt)
}

/// Writes lines until there are no more events.
pub(super) struct AccessLog {
    following: tokio::task::JoinHandle<()>,
    writing: JoinHandle<()>,
}

impl AccessLog {
    /// Writes a line for each event from now on.
    pub(super) fn start(
        events: EventSubscriber,
        output: LogOutput,
        format: LogFormat,
    ) -> CommandResult<Self> {
        let (lines, queue) = sync_channel(MAX_QUEUED_LINES);
        let writing = start_writing("ginnel-access-log", AccessLines { queue, format }, output);
        let failed = |error: io::Error| CliError::new(Exit::Failed, error.to_string());
        let writing = writing.map_err(failed)?;
        Ok(Self { following: ginnel_base::tasks::spawn(enqueue_events(events, lines)), writing })
    }

    /// Waits until everything is written, once the service has stopped.
    pub(super) async fn finish(self) {
        ignore(self.following.await, "it ends with the events");
        let written = spawn_blocking(|| self.writing.join()).await;
        ignore(written, "a writer that panicked has written that itself");
    }
}

/// Puts events into the queue; nobody waits for it.
async fn enqueue_events(mut events: EventSubscriber, lines: SyncSender<Arc<Event>>) {
    while let Some(received) = events.next().await {
        match received {
            EventDelivery::Missed(missed) => count_lost(missed),
            EventDelivery::Event(event) => {
                if let Err(TrySendError::Full(_)) = lines.try_send(event) {
                    count_lost(1);
                }
            }
        }
    }
}

fn count_lost(lines: u64) {
    if count_dropped_access(lines) == 0 {
        tracing::warn!("lines of the access log are dropped: more are made than are written");
    }
}

/// The lines of the events in a queue.
struct AccessLines {
    queue: Receiver<Arc<Event>>,
    format: LogFormat,
}

impl LineSource for AccessLines {
    fn take_lines(&mut self, lines: &mut String) -> Option<u64> {
        let first = match self.queue.recv_timeout(REOPEN_INTERVAL) {
            Ok(event) => event,
            Err(RecvTimeoutError::Timeout) => return Some(0),
            Err(RecvTimeoutError::Disconnected) => return None,
        };
        let mut count = 0;
        for event in iter::once(first).chain(self.queue.try_iter().take(MAX_LINES_AT_ONCE)) {
            self.format.write_fields(line_fields(&event.masked()), lines);
            count += 1;
        }
        Some(count)
    }

    fn count_lost(&mut self, lines: u64, _is_reader_gone: bool) {
        count_dropped_access(lines);
    }
}

/// What a line says: no query, no header but the host, no body.
fn line_fields(event: &Event) -> impl Iterator<Item = (&'static str, LogValue)> {
    let text = |text: &str| Some(LogValue::Text(text.to_owned()));
    let integer = |count| LogValue::Integer(i64::try_from(count).unwrap_or(i64::MAX));
    let maybe = |value: &Option<String>| value.as_deref().and_then(text);
    let path = event.path.as_deref().and_then(|path| path.split('?').next());
    [
        ("ts", text(&event.time)),
        ("request_id", maybe(&event.request_id)),
        ("peer", text(&event.peer.to_string())),
        ("proto", text(&event.proto)),
        ("method", maybe(&event.method)),
        ("host", maybe(&event.host)),
        ("path", path.and_then(text)),
        ("status", event.status.map(|status| LogValue::Integer(status.into()))),
        ("dur_ms", Some(LogValue::Float(event.duration_ms))),
        ("received_bytes", event.received_bytes.map(integer)),
        ("sent_bytes", event.sent_bytes.map(integer)),
        ("edge", maybe(&event.edge_id)),
        ("route", maybe(&event.route_id)),
        ("backend", maybe(&event.backend_id)),
        ("module", event.module.as_deref().and_then(text)),
        ("rule", maybe(&event.rule)),
        ("action", maybe(&event.action)),
        ("err", maybe(&event.code)),
    ]
    .into_iter()
    .filter_map(|(name, value)| Some((name, value?)))
}
