//! Writes log records: on standard error as far as `GINNEL_LOG` or `--log-level` ask for them, or in a
//! file.

use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use clap::{Arg, ArgMatches, value_parser};

use ginnel_api::mask;
use ginnel_base::logging::{self, LogFormat, LogLevel, LogLevels, count_dropped, ignore, or_debug};

use super::error::CommandResult;
use super::lines::{LineSource, start_writing};
use super::log_file::LogOutput;
use super::output::eprint_line;

/// The variable that names a level.
pub(super) const LEVEL_VARIABLE: &str = "GINNEL_LOG";
/// How long the writer waits for records at a time.
const WAIT: Duration = Duration::from_secs(3600);

/// The options of commands that run for long.
pub(super) fn log_arguments() -> [Arg; 3] {
    let option = |name, value, help| Arg::new(name).long(name).value_name(value).help(help);
    [
        option(
            "log-level",
            "LEVELS",
            "Levels to log: error, warn, info, debug, trace or off, also by target, such as \
             info,gateway=debug; default: GINNEL_LOG, or info if a format or a file is given",
        )
        .value_parser(|text: &str| text.parse::<LogLevels>()),
        option("log-format", "FORMAT", "Format of the log; default: term")
            .value_parser(LogFormat::NAMES),
        option(
            "log-file",
            "FILE",
            "File to append the log to, instead of standard error; opened again on SIGHUP",
        )
        .value_parser(value_parser!(PathBuf)),
    ]
}

/// What is logged, and where.
#[derive(Debug, Default)]
pub(super) struct LogOptions {
    pub levels: Option<LogLevels>,
    pub format: Option<LogFormat>,
    pub file: Option<PathBuf>,
}

impl LogOptions {
    /// From which levels on something is logged: as it is said, by the environment, or as is usual where
    /// a form or a file is asked for.
    fn effective_levels(&self) -> Option<LogLevels> {
        let is_asked = self.file.is_some() || self.format.is_some();
        let usual = || is_asked.then_some(LogLevels::for_all(LogLevel::Info));
        self.levels.or_else(environment_levels).or_else(usual)
    }

    /// Returns true if records are written at all.
    pub(super) fn is_on(&self) -> bool {
        self.effective_levels().is_some()
    }

    /// Applies levels that have changed since the log was started.
    pub(super) fn apply_levels(&self) {
        logging::set_levels(
            &self.effective_levels().unwrap_or(LogLevels::for_all(LogLevel::Off)).0,
        );
    }

    /// The options that the flags of a command give; those of `ginnel serve` are settings.
    pub(super) fn from_flags(matches: &ArgMatches) -> Self {
        let matches = innermost_matches(matches);
        let format = matches.try_get_one::<String>("log-format").ok().flatten();
        Self {
            levels: matches.try_get_one::<LogLevels>("log-level").ok().flatten().copied(),
            format: format.and_then(|name| LogFormat::from_name(name)),
            file: matches.try_get_one::<PathBuf>("log-file").ok().flatten().cloned(),
        }
    }
}

/// Writes records until it is dropped, on a thread of its own: a terminal may be slow.
pub(super) struct LogWriter {
    writing: Option<JoinHandle<()>>,
    /// Dropped when no more records are to come.
    last: Sender<()>,
}

impl LogWriter {
    /// Starts to write; none where nobody asked for it.
    pub(super) fn start(options: &LogOptions) -> CommandResult<Option<Self>> {
        let Some(levels) = options.effective_levels() else { return Ok(None) };
        Self::start_with(options, levels).map(Some)
    }

    /// The same where levels may be raised later, though nobody has asked for a log yet.
    pub(super) fn start_ready(options: &LogOptions) -> CommandResult<Self> {
        Self::start_with(
            options,
            options.effective_levels().unwrap_or(LogLevels::for_all(LogLevel::Off)),
        )
    }

    fn start_with(options: &LogOptions, levels: LogLevels) -> CommandResult<Self> {
        let LogOptions { format, file, .. } = options;
        let output = match file {
            Some(path) => LogOutput::open_file(path)?,
            None => LogOutput::stderr(),
        };
        logging::set_levels(&levels.0);
        let (last, over) = channel();
        let records = LogRecordLines { over, format: format.unwrap_or_default(), is_last: false };
        let writing = start_writing("ginnel-log", records, output);
        Ok(Self { writing: or_debug!(writing, "cannot start the log's thread"), last })
    }
}

impl Drop for LogWriter {
    fn drop(&mut self) {
        let (last, _) = channel();
        drop(std::mem::replace(&mut self.last, last));
        logging::wake_readers();
        if let Some(writing) = self.writing.take() {
            ignore(writing.join(), "a writer that panicked has written that itself");
        }
    }
}

/// The options of the subcommand that runs.
fn innermost_matches(matches: &ArgMatches) -> &ArgMatches {
    matches.subcommand().map_or(matches, |(_, matches)| innermost_matches(matches))
}

/// The level that the environment asks for.
fn environment_levels() -> Option<LogLevels> {
    let text = std::env::var(LEVEL_VARIABLE).ok().filter(|text| !text.trim().is_empty())?;
    match text.trim().parse() {
        Ok(levels) => Some(levels),
        Err(problem) => {
            eprint_line(&format!("{LEVEL_VARIABLE}: {problem}"));
            None
        }
    }
}

/// The lines of the records of this process.
struct LogRecordLines {
    /// Disconnected when no more records are to come.
    over: Receiver<()>,
    format: LogFormat,
    /// True once the last records were taken.
    is_last: bool,
}

impl LineSource for LogRecordLines {
    fn take_lines(&mut self, lines: &mut String) -> Option<u64> {
        if self.is_last {
            return None;
        }
        self.is_last = self.over.try_recv() != Err(TryRecvError::Empty);
        let records = logging::take_records(Some(WAIT).filter(|_| !self.is_last));
        let count = records.len() as u64;
        for record in records {
            self.format.write_record(&record.mask_texts(mask::text), lines);
        }
        Some(count)
    }

    fn count_lost(&mut self, lines: u64, _is_reader_gone: bool) {
        count_dropped(lines);
    }
}
