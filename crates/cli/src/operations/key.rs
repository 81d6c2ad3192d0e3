//! Where the key comes from: a file, the environment, or whoever sits at the terminal.

use std::io::IsTerminal;
use std::path::PathBuf;

use ginnel_api::{Secret, mask};
use ginnel_base::logging::or_debug;
use ginnel_net::secret_file::read_secret;

use crate::error::CliError;

/// The key; none where the client shall look into the environment and say what is missing.
pub(super) fn find(file: Option<&PathBuf>) -> Result<Option<Secret>, CliError> {
    if let Some(path) = file {
        let key = read_secret(path);
        let key = key.map_err(|error| CliError::usage(format!("{}: {error}", mask::path(path))))?;
        return Ok(Some(key));
    }
    let set = std::env::var_os("GINNEL_API_KEY").is_some_and(|key| !key.is_empty());
    if set || !std::io::stdin().is_terminal() || !std::io::stderr().is_terminal() {
        return Ok(None);
    }
    ask().map(Some)
}

/// Asks for the key, and does not show what is typed.
#[cfg(unix)]
fn ask() -> Result<Secret, CliError> {
    use std::io::Write;
    let quiet = EchoOff::new();
    let mut line = String::new();
    let mut terminal = std::io::stderr();
    let read = write!(terminal, "API key: ")
        .and_then(|()| terminal.flush())
        .and_then(|()| std::io::stdin().read_line(&mut line));
    drop(quiet);
    or_debug!(writeln!(terminal), "the terminal is gone");
    read.map_err(|error| CliError::usage(format!("no key: {error}")))?;
    Ok(Secret(line.trim().to_owned()))
}

#[cfg(not(unix))]
fn ask() -> Result<Secret, CliError> {
    Err(CliError::usage("no API key: set GINNEL_API_KEY or pass --api-key-file"))
}

/// A terminal that shows nothing of what is typed.
#[cfg(unix)]
struct EchoOff(Option<libc::termios>);

#[cfg(unix)]
impl EchoOff {
    fn new() -> Self {
        // SAFETY: the structure is plain data, and filled by the call before it is used.
        unsafe {
            let mut before: libc::termios = std::mem::zeroed();
            if libc::tcgetattr(libc::STDIN_FILENO, &raw mut before) != 0 {
                return Self(None);
            }
            let mut quiet = before;
            quiet.c_lflag &= !libc::ECHO;
            libc::tcsetattr(libc::STDIN_FILENO, libc::TCSAFLUSH, &raw const quiet);
            Self(Some(before))
        }
    }
}

#[cfg(unix)]
impl Drop for EchoOff {
    fn drop(&mut self) {
        if let Some(before) = &self.0 {
            // SAFETY: the settings that the terminal had.
            unsafe { libc::tcsetattr(libc::STDIN_FILENO, libc::TCSAFLUSH, before) };
        }
    }
}
