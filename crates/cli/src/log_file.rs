//! Files that logs are written to, and begun anew when somebody has moved them away.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use ginnel_api::mask;
use ginnel_base::files;
use ginnel_base::logging;

use super::error::{CliError, CommandResult};
use super::output::{eprint_line, try_print_line};

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
pub(super) enum LogOutput {
    /// Standard output, whose failure the end of the command reports.
    Console,
    Stdout,
    Stderr,
    File(LogFile),
}

impl LogOutput {
    /// Opens a file again where that was asked for.
    pub(super) fn reopen_if_requested(&mut self) {
        if let Self::File(file) = self {
            file.reopen_if_requested();
        }
    }

    /// Writes whole lines; false when they are lost.
    pub(super) fn write_lines(&mut self, lines: &str) -> bool {
        match self {
            Self::Console => try_print_line(lines.trim_end()),
            // Nobody is left who could be told.
            Self::Stdout => {
                let mut output = io::stdout().lock();
                output.write_all(lines.as_bytes()).and_then(|()| output.flush()).is_ok()
            }
            Self::Stderr => io::stderr().write_all(lines.as_bytes()).is_ok(),
            Self::File(file) => file.write_lines(lines),
        }
    }
}

/// A file at whose end lines are added.
pub(super) struct LogFile {
    path: PathBuf,
    file: File,
    /// As of when it was opened.
    reopened: u64,
    /// Whether somebody knows that lines are lost.
    is_reported: bool,
}

impl LogFile {
    /// Opens a file, which is made if need be.
    pub(super) fn open(path: &Path) -> CommandResult<Self> {
        let reopened = REOPENED.load(Relaxed);
        let file =
            open_append(path).map_err(|error| CliError::usage(describe_error(path, &error)))?;
        FILES.fetch_add(1, Relaxed);
        Ok(Self { path: path.to_owned(), file, reopened, is_reported: false })
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

    fn write_lines(&mut self, lines: &str) -> bool {
        self.reopen_if_requested();
        let written = self.file.write_all(lines.as_bytes());
        match &written {
            Ok(()) => self.is_reported = false,
            Err(error) if !self.is_reported => {
                eprint_line(&describe_error(&self.path, error));
                self.is_reported = true;
            }
            Err(_) => {}
        }
        written.is_ok()
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
