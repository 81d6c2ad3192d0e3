//! Standard output and standard error, which may be gone.

use std::io::Write;

/// Says something on standard output; a reader who has left does not matter.
pub(super) fn say(line: &str) {
    let mut output = std::io::stdout().lock();
    let _ = writeln!(output, "{line}").and_then(|()| output.flush());
}

/// Says in one line on standard error what went wrong.
pub(super) fn complain(message: &str) {
    let message = message.replace(['\n', '\r'], " ");
    let _ = writeln!(std::io::stderr(), "ginnel: {message}");
}
