//! The log of a program called `ngrok`: the lines and keys that wrappers of it read.

use std::io::IsTerminal;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use chrono::{Local, SecondsFormat};
use tokio::sync::Notify;

use ginnel_agent::config::{NgrokLogConfig, NgrokLogFormat, NgrokLogLevel};
use ginnel_api::mask;
use ginnel_base::logging::{LogFormat, LogValue};

use crate::error::CommandResult;
use crate::lines::LineWriter;
use crate::log_file::{LogFile, LogOutput};

/// How many lines wait for the reader of the log; more are dropped and counted.
const MAX_QUEUED_LINES: usize = 4096;
/// How long the end of the program waits for the reader of the log.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);

/// A log; clones of an `Arc` write to the same.
pub(crate) struct NgrokLog {
    /// None where nothing is written.
    lines: Option<LogLines>,
    format: NgrokLogFormat,
    level: NgrokLogLevel,
    is_terminal: bool,
}

/// Lines for the thread that writes them.
struct LogLines {
    writer: LineWriter,
    /// How many lines found no place.
    dropped: AtomicU64,
    broken: Arc<Notify>,
}

impl LogLines {
    fn start(output: LogOutput) -> CommandResult<Self> {
        let broken = Arc::<Notify>::default();
        let is_broken = broken.clone();
        // A file may be there again later.
        let is_lasting = !matches!(output, LogOutput::File(_));
        let writer = LineWriter::start(MAX_QUEUED_LINES, output, move || {
            if is_lasting {
                is_broken.notify_one();
            }
        })?;
        Ok(Self { writer, dropped: AtomicU64::new(0), broken })
    }

    fn add_line(&self, line: String) {
        let dropped = self.dropped.swap(0, Relaxed);
        let line = match dropped {
            0 => line,
            count => format!("{line}lvl=warn msg=\"lines were dropped\" obj=app count={count}\n"),
        };
        if !self.writer.add_lines(line) {
            self.dropped.fetch_add(dropped + 1, Relaxed);
        }
    }
}

/// Names and values behind the message.
pub(super) type LineFields<'f> = &'f [(&'static str, &'f str)];

impl NgrokLog {
    /// Opens a log.
    pub(super) fn open(config: &NgrokLogConfig) -> CommandResult<Self> {
        let (output, is_terminal) = match config.output.as_deref() {
            None | Some("" | "false") => (None, false),
            Some("stdout") => (Some(LogOutput::Stdout), std::io::stdout().is_terminal()),
            Some("stderr") => (Some(LogOutput::Stderr), std::io::stderr().is_terminal()),
            Some(path) => (Some(LogOutput::File(LogFile::open(Path::new(path))?)), false),
        };
        let lines = output.map(LogLines::start).transpose()?;
        Ok(Self { lines, format: config.format, level: config.level, is_terminal })
    }

    /// Whether anything is written.
    pub(super) fn is_on(&self) -> bool {
        self.lines.is_some()
    }

    /// Whether lines of a level are written.
    pub(super) fn is_enabled(&self, level: NgrokLogLevel) -> bool {
        self.is_on() && level >= self.level
    }

    /// Writes a line.
    pub(super) fn write_line(&self, level: NgrokLogLevel, message: &str, fields: LineFields<'_>) {
        if let Some(lines) = self.lines.as_ref().filter(|_| level >= self.level) {
            lines.add_line(self.format_line(level, message, fields));
        }
    }

    /// Waits for a moment until everything is written.
    pub(super) fn flush(&self) {
        if let Some(lines) = &self.lines {
            lines.writer.flush(FLUSH_TIMEOUT);
        }
    }

    /// Waits until nobody reads standard output or error any more, where the log goes there.
    pub(crate) async fn reader_left(&self) {
        match &self.lines {
            Some(lines) => lines.broken.notified().await,
            None => std::future::pending().await,
        }
    }

    fn format_line(&self, level: NgrokLogLevel, message: &str, fields: LineFields<'_>) -> String {
        let is_drawn = self.format == NgrokLogFormat::Term && self.is_terminal;
        let now = Local::now();
        let time = match self.format {
            _ if is_drawn => now.format("%m-%d|%H:%M:%S").to_string(),
            NgrokLogFormat::Json => now.to_rfc3339_opts(SecondsFormat::Millis, false),
            _ => now.format("%Y-%m-%dT%H:%M:%S%z").to_string(),
        };
        let fields = fields.iter().map(|(name, value)| (*name, mask::text(value).into_owned()));
        let mut line = String::new();
        if is_drawn {
            line.push_str(&format!("{}[{time}] {message} ", level.word().to_uppercase()));
            let fields = fields.map(|(name, value)| (name, LogValue::Text(value)));
            LogFormat::Logfmt.write_fields(fields, &mut line);
            return line;
        }
        let head = [("t", time), ("lvl", level.word().to_owned()), ("msg", message.to_owned())];
        let all = head.into_iter().chain(fields);
        let all = all.map(|(name, value)| (name, LogValue::Text(value)));
        let format = match self.format {
            NgrokLogFormat::Json => LogFormat::Json,
            NgrokLogFormat::Term | NgrokLogFormat::Logfmt => LogFormat::Logfmt,
        };
        format.write_fields(all, &mut line);
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(format: NgrokLogFormat, is_terminal: bool) -> String {
        let log = NgrokLog { lines: None, format, level: NgrokLogLevel::Info, is_terminal };
        log.format_line(
            NgrokLogLevel::Error,
            "it broke",
            &[("obj", "web"), ("err", "it's \"x\"\n")],
        )
    }

    #[test]
    fn lines_have_the_keys_that_wrappers_read() {
        let logfmt = text(NgrokLogFormat::Term, false);
        let json = text(NgrokLogFormat::Json, false);
        let drawn = text(NgrokLogFormat::Term, true);

        let rest = " lvl=eror msg=\"it broke\" obj=web err=\"it's \\\"x\\\"\\n\"\n";
        assert!(logfmt.starts_with("t=20") && logfmt.ends_with(rest), "{logfmt}");
        let rest = "\"lvl\":\"eror\",\"msg\":\"it broke\",\"obj\":\"web\",\"err\":\"it's \\\"x\\\"\\n\"}\n";
        assert!(json.starts_with("{\"t\":\"20") && json.ends_with(rest), "{json}");
        let rest = "] it broke obj=web err=\"it's \\\"x\\\"\\n\"\n";
        assert!(drawn.starts_with("EROR[") && drawn.ends_with(rest), "{drawn}");
    }
}
