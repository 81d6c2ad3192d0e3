//! Where the key comes from: a file, the environment, or whoever sits at the terminal.

use std::io::IsTerminal;
use std::path::PathBuf;

use crate::api::{Secret, mask};
use crate::cli::failure::Failure;

/// The key; none where the client shall look into the environment and say what is missing.
pub(super) fn find(file: Option<&PathBuf>) -> Result<Option<Secret>, Failure> {
    if let Some(path) = file {
        let key = std::fs::read_to_string(path)
            .map_err(|error| Failure::usage(format!("{}: {error}", mask::path(path))))?;
        return Ok(Some(Secret(key.trim().to_owned())));
    }
    let set = std::env::var_os("GINNEL_API_KEY").is_some_and(|key| !key.is_empty());
    if set || !std::io::stdin().is_terminal() || !std::io::stderr().is_terminal() {
        return Ok(None);
    }
    ask().map(Some)
}

/// Asks for the key, and does not show what is typed.
#[cfg(unix)]
fn ask() -> Result<Secret, Failure> {
    use std::io::Write;
    let quiet = Quiet::new();
    let mut line = String::new();
    let mut terminal = std::io::stderr();
    let read = write!(terminal, "API key: ")
        .and_then(|()| terminal.flush())
        .and_then(|()| std::io::stdin().read_line(&mut line));
    drop(quiet);
    let _ = writeln!(terminal);
    read.map_err(|error| Failure::usage(format!("no key: {error}")))?;
    Ok(Secret(line.trim().to_owned()))
}

#[cfg(not(unix))]
fn ask() -> Result<Secret, Failure> {
    Err(Failure::usage("no API key: set GINNEL_API_KEY or pass --api-key-file"))
}

/// A terminal that shows nothing of what is typed.
#[cfg(unix)]
struct Quiet(Option<libc::termios>);

#[cfg(unix)]
impl Quiet {
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
impl Drop for Quiet {
    fn drop(&mut self) {
        if let Some(before) = &self.0 {
            // SAFETY: the settings that the terminal had.
            unsafe { libc::tcsetattr(libc::STDIN_FILENO, libc::TCSAFLUSH, before) };
        }
    }
}
