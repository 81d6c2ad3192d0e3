//! Where the key comes from: a file, the environment, or whoever sits at the terminal.

use std::io::IsTerminal;
use std::path::PathBuf;

#[cfg(unix)]
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};

use ginnel_api::{Secret, mask};
use ginnel_base::logging::or_debug;
use ginnel_net::secret_file::read_secret;

use crate::error::{CliError, CommandResult};

/// The key; none where the client shall look into the environment and say what is missing.
pub(super) fn find_key(file: Option<&PathBuf>) -> CommandResult<Option<Secret>> {
    if let Some(path) = file {
        let key = read_secret(path);
        let key = key.map_err(|error| CliError::usage(format!("{}: {error}", mask::path(path))))?;
        return Ok(Some(key));
    }
    let set = std::env::var_os("GINNEL_API_KEY").is_some_and(|key| !key.is_empty());
    if set || !std::io::stdin().is_terminal() || !std::io::stderr().is_terminal() {
        return Ok(None);
    }
    prompt_key().map(Some)
}

/// Asks for the key, and does not show what is typed.
#[cfg(unix)]
fn prompt_key() -> CommandResult<Secret> {
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
fn prompt_key() -> CommandResult<Secret> {
    Err(CliError::usage("no API key: set GINNEL_API_KEY or pass --api-key-file"))
}

/// A terminal that shows nothing of what is typed.
#[cfg(unix)]
struct EchoOff(Option<Termios>);

#[cfg(unix)]
impl EchoOff {
    fn new() -> Self {
        let before = tcgetattr(std::io::stdin()).ok();
        if let Some(mut quiet) = before.clone() {
            quiet.local_modes.remove(LocalModes::ECHO);
            set_mode(&quiet);
        }
        Self(before)
    }
}

#[cfg(unix)]
impl Drop for EchoOff {
    fn drop(&mut self) {
        if let Some(before) = &self.0 {
            set_mode(before);
        }
    }
}

#[cfg(unix)]
fn set_mode(mode: &Termios) {
    let set = tcsetattr(std::io::stdin(), OptionalActions::Flush, mode);
    or_debug!(set, "the terminal keeps its mode");
}
