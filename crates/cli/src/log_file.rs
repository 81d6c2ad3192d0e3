//! Files and streams that logs are written to. Files are begun anew after they were moved away.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use ginnel_api::mask;
use ginnel_base::files;
use ginnel_base::logging;

use super::error::{CliError, CommandResult};
use super::output::eprint_line;

/// How many files there are.
static FILES: AtomicU64 = AtomicU64::new(0);
/// How often they were to be opened again.
static REOPENED: AtomicU64 = AtomicU64::new(0);

/// Has all log files be opened again; false where there are none.
pub(super) fn reopen_logs() -> bool {
    REOPENED.fetch_add(1, Relaxed);
    logging::wake_readers();
    FILES.load(Relaxed) > 0
}

/// Finds out whether a file can be opened, which is not made for that.
///
/// # Errors
/// With the reason.
pub(super) fn check_writable(path: &Path) -> Result<(), String> {
    let checked = match path.metadata() {
        Ok(found) if found.is_dir() => Err(ErrorKind::IsADirectory.into()),
        Ok(found) if found.is_file() => OpenOptions::new().append(true).open(path).map(drop),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            files::parent_folder(path).metadata().map(drop)
        }
        found => found.map(drop),
    };
    checked.map_err(|error| describe_error(path, &error))
}

/// Where lines of a log go.
enum LogTarget {
    Stdout,
    Stderr,
    File(LogFile),
}

/// A place for the lines of a log. It reports once when lines are lost, until one is written again.
pub(super) struct LogOutput {
    target: LogTarget,
    /// If true, the place is a terminal.
    is_terminal: bool,
    /// If true, the present failure has been reported.
    is_reported: bool,
}

impl LogOutput {
    /// Returns the standard output.
    pub(super) fn stdout() -> Self {
        Self::new(LogTarget::Stdout, io::stdout().is_terminal())
    }

    /// Returns the standard error.
    pub(super) fn stderr() -> Self {
        Self::new(LogTarget::Stderr, io::stderr().is_terminal())
    }

    /// Opens a file, which is created if it is missing.
    ///
    /// # Errors
    /// If the file cannot be opened.
    pub(super) fn open_file(path: &Path) -> CommandResult<Self> {
        Ok(Self::new(LogTarget::File(LogFile::open(path)?), false))
    }

    fn new(target: LogTarget, is_terminal: bool) -> Self {
        Self { target, is_terminal, is_reported: false }
    }

    /// Returns true if lines are drawn on a terminal.
    pub(super) fn is_terminal(&self) -> bool {
        self.is_terminal
    }

    /// Opens a file again if that was requested.
    pub(super) fn reopen_if_requested(&mut self) {
        if let LogTarget::File(file) = &mut self.target {
            file.reopen_if_requested();
        }
    }

    /// Writes whole lines.
    ///
    /// # Errors
    /// If the lines are lost. The first failure is reported here.
    pub(super) fn write_lines(&mut self, lines: &str) -> io::Result<()> {
        let written = match &mut self.target {
            LogTarget::Stdout => write_to(&mut io::stdout().lock(), lines),
            LogTarget::Stderr => write_to(&mut io::stderr().lock(), lines),
            LogTarget::File(file) => file.write_lines(lines),
        };
        match &written {
            Ok(()) => self.is_reported = false,
            Err(error) if !self.is_reported => {
                self.is_reported = true;
                self.report_loss(error);
            }
            Err(_) => {}
        }
        written
    }

    fn report_loss(&self, error: &io::Error) {
        match &self.target {
            LogTarget::Stdout => eprint_line(&format!("cannot write standard output: {error}")),
            // Standard error cannot report its own failure. A log in a file can.
            LogTarget::Stderr => tracing::warn!(err = %error, "cannot write standard error"),
            LogTarget::File(file) => eprint_line(&describe_error(&file.path, error)),
        }
    }

    /// Returns true if a failure means that the reader of a stream has left, so that no line will be read again.
    pub(super) fn is_reader_gone(&self, error: &io::Error) -> bool {
        let is_stream = !matches!(self.target, LogTarget::File(_));
        let is_closed = matches!(
            error.kind(),
            ErrorKind::BrokenPipe | ErrorKind::ConnectionReset | ErrorKind::ConnectionAborted
        );
        // A terminal that was closed returns EIO.
        is_stream && (is_closed || self.is_terminal)
    }
}

fn write_to(stream: &mut impl Write, lines: &str) -> io::Result<()> {
    stream.write_all(lines.as_bytes()).and_then(|()| stream.flush())
}

/// A file at whose end lines are added.
struct LogFile {
    path: PathBuf,
    file: File,
    /// As of when it was opened.
    reopened: u64,
}

impl LogFile {
    /// Opens a file, which is made if need be.
    fn open(path: &Path) -> CommandResult<Self> {
        let reopened = REOPENED.load(Relaxed);
        let file =
            open_append(path).map_err(|error| CliError::usage(describe_error(path, &error)))?;
        FILES.fetch_add(1, Relaxed);
        Ok(Self { path: path.to_owned(), file, reopened })
    }

    /// Opens the file again where that was asked for; the one before stays if it cannot be.
    fn reopen_if_requested(&mut self) {
        let reopened = REOPENED.load(Relaxed);
        if reopened == self.reopened {
            return;
        }
        self.reopened = reopened;
        match open_append(&self.path) {
            Ok(file) => self.file = file,
            Err(error) => eprint_line(&describe_error(&self.path, &error)),
        }
    }

    fn write_lines(&mut self, lines: &str) -> io::Result<()> {
        self.reopen_if_requested();
        self.file.write_all(lines.as_bytes())
    }
}

impl Drop for LogFile {
    fn drop(&mut self) {
        FILES.fetch_sub(1, Relaxed);
    }
}

/// A log may say who asks for what: it is for its owner, and for the owner's group.
fn open_append(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.append(true).create(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o640);
    options.open(path)
}

fn describe_error(path: &Path, error: &io::Error) -> String {
    format!("cannot write the log {}: {error}", mask::path(path))
}
