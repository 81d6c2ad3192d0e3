//! The log of a program called `ngrok`: the lines and keys that wrappers of it read.

use std::path::Path;
use std::time::Duration;

use chrono::{Local, SecondsFormat};

use ginnel_agent::config::{NgrokLogConfig, NgrokLogFormat, NgrokLogLevel};
use ginnel_api::mask;
use ginnel_base::logging::{LogFormat, LogValue};

use crate::error::CommandResult;
use crate::lines::LineWriter;
use crate::log_file::LogOutput;

/// How many lines wait for the reader of the log; more are dropped and counted.
const MAX_QUEUED_LINES: usize = 4096;
/// How long the end of the program waits for the reader of the log.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);

/// A log; clones of an `Arc` write to the same.
pub(crate) struct NgrokLog {
    /// None where nothing is written.
    lines: Option<LineWriter>,
    format: NgrokLogFormat,
    level: NgrokLogLevel,
    is_terminal: bool,
}

/// Names and values behind the message.
pub(super) type LineFields<'f> = &'f [(&'static str, &'f str)];

impl NgrokLog {
    /// Opens a log.
    pub(super) fn open(config: &NgrokLogConfig) -> CommandResult<Self> {
        let output = match config.output.as_deref() {
            None | Some("" | "false") => None,
            Some("stdout") => Some(LogOutput::stdout()),
            Some("stderr") => Some(LogOutput::stderr()),
            Some(path) => Some(LogOutput::open_file(Path::new(path))?),
        };
        let is_terminal = output.as_ref().is_some_and(LogOutput::is_terminal);
        let lines = output.map(|output| LineWriter::start(MAX_QUEUED_LINES, output)).transpose()?;
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
            let lost = lines.take_lost();
            if lost > 0 {
                let fields = [("obj", "app"), ("count", &*lost.to_string())];
                let notice = self.format_line(NgrokLogLevel::Warn, "lines were dropped", &fields);
                lines.add_counted(notice, lost);
            }
            lines.add_lines(self.format_line(level, message, fields));
        }
    }

    /// Waits for a moment until everything is written.
    pub(super) fn flush(&self) {
        if let Some(lines) = &self.lines {
            lines.flush(FLUSH_TIMEOUT);
        }
    }

    /// Returns the writer of the lines, if there is a log.
    pub(crate) fn line_writer(&self) -> Option<&LineWriter> {
        self.lines.as_ref()
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
