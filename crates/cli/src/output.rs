//! Standard output and standard error, which may be gone.

use std::io::{ErrorKind, Write};
use std::sync::OnceLock;

use clap::Command;
use clap_complete::{Shell, generate};

use ginnel_base::logging::ignore;

use super::error::{CliError, CommandResult, Exit};

/// Why something could not be said.
static WRITE_ERROR: OnceLock<String> = OnceLock::new();

/// Says something on standard output; a reader who has left does not matter.
pub(super) fn print_line(line: &str) {
    ignore(try_print_line(line), "why it could not be said is kept for the end");
}

/// Says what makes a shell complete a command of this name.
pub(super) fn write_completion(shell: Shell, mut command: Command, name: &str) {
    let mut script = Vec::new();
    generate(shell, &mut command, name, &mut script);
    print_line(String::from_utf8_lossy(&script).trim_end());
}

/// Says something on standard output; false when nobody can have read it.
pub(super) fn try_print_line(line: &str) -> bool {
    let mut output = std::io::stdout().lock();
    let said = writeln!(output, "{line}").and_then(|()| output.flush());
    if let Err(error) = &said
        && error.kind() != ErrorKind::BrokenPipe
    {
        ignore(WRITE_ERROR.set(error.to_string()), "the first error is the one to report");
    }
    said.is_ok()
}

/// Checks that all lines were printed. A reader that has left does not count as a failure.
///
/// # Errors
/// If a line was lost, such as on a full disk.
pub(super) fn check_written() -> CommandResult<()> {
    match WRITE_ERROR.get() {
        Some(why) => Err(CliError::new(Exit::Failed, format!("standard output: {why}"))),
        None => Ok(()),
    }
}

/// Says in one line on standard error what went wrong.
pub(super) fn eprint_line(message: &str) {
    eprint_line_as("ginnel", message);
}

/// The same for a program of another name, or with another word before the line.
pub(super) fn eprint_line_as(name: &str, message: &str) {
    let message = message.replace(['\n', '\r'], " ");
    let said = writeln!(std::io::stderr(), "{name}: {message}");
    ignore(said, "nobody is left who reads it");
}
