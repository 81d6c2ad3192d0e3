//! The log of a program called `ngrok`: the lines and keys that wrappers of it read.

use std::io::IsTerminal;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use chrono::{Local, SecondsFormat};

use crate::agent::config::{NgrokLogConfig, NgrokLogFormat, NgrokLogLevel};
use crate::api::mask;
use crate::cli::error::CliError;
use crate::cli::log_file::{LogFile, LogOutput};
use crate::logging::{LogFormat, LogValue, ignore};

/// A log; clones of an `Arc` write to the same.
pub(in crate::cli) struct NgrokLog {
    /// None where nothing is written.
    output: Option<Mutex<LogOutput>>,
    format: NgrokLogFormat,
    level: NgrokLogLevel,
    is_terminal: bool,
}

/// Names and values behind the message.
pub(super) type LineFields<'f> = &'f [(&'static str, &'f str)];

impl NgrokLog {
    /// Opens a log.
    pub(super) fn open(config: &NgrokLogConfig) -> Result<Self, CliError> {
        let (output, is_terminal) = match config.output.as_deref() {
            None | Some("" | "false") => (None, false),
            Some("stdout") => (Some(LogOutput::Stdout), std::io::stdout().is_terminal()),
            Some("stderr") => (Some(LogOutput::Stderr), std::io::stderr().is_terminal()),
            Some(path) => (Some(LogOutput::File(LogFile::open(Path::new(path))?)), false),
        };
        let output = output.map(Mutex::new);
        Ok(Self { output, format: config.format, level: config.level, is_terminal })
    }

    /// Whether anything is written.
    pub(super) fn is_on(&self) -> bool {
        self.output.is_some()
    }

    /// Whether lines of a level are written.
    pub(super) fn has(&self, level: NgrokLogLevel) -> bool {
        self.is_on() && level >= self.level
    }

    /// Writes a line.
    pub(super) fn line(&self, level: NgrokLogLevel, message: &str, fields: LineFields<'_>) {
        let Some(output) = self.output.as_ref().filter(|_| level >= self.level) else { return };
        let line = self.text(level, message, fields);
        let mut output = output.lock().unwrap_or_else(PoisonError::into_inner);
        output.follow();
        // A reader who has left does not matter.
        ignore(output.write(&line).then_some(()).ok_or("lost"), "nobody is left who could be told");
    }

    fn text(&self, level: NgrokLogLevel, message: &str, fields: LineFields<'_>) -> String {
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
        let log = NgrokLog { output: None, format, level: NgrokLogLevel::Info, is_terminal };
        log.text(NgrokLogLevel::Error, "it broke", &[("obj", "web"), ("err", "it's \"x\"\n")])
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
