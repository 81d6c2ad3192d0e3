//! Tests that need a process for themselves.

use std::process::Command;

/// Runs one ignored test of this binary in another process.
pub fn command(test: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([test, "--exact", "--ignored", "--nocapture"]);
    command
}
