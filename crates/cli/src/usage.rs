//! What is said of a command line that is none.

use clap::error::{ContextKind, ContextValue, ErrorKind};

use ginnel_settings as settings;

use super::error::{CliError, CommandResult};
use super::output;

/// Help and version are answers; everything else is a failure in one line.
pub(super) fn explain_usage_error(error: &clap::Error) -> CommandResult<()> {
    if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        output::print_line(error.render().to_string().trim_end());
        return Ok(());
    }
    let rendered = error.render().to_string();
    let lines = rendered.lines().map(str::trim);
    let usage: Vec<_> = lines
        .take_while(|line| !line.starts_with("Usage:") && !line.starts_with("For more"))
        .filter(|line| !line.is_empty())
        .map(|line| line.trim_start_matches("error: "))
        .collect();
    Err(CliError::usage(without_login(error, usage.join(" "))))
}

/// Returns the text about a wrong value without the password of an address, which need not have a scheme.
fn without_login(error: &clap::Error, text: String) -> String {
    match error.get(ContextKind::InvalidValue) {
        Some(ContextValue::String(value)) => settings::without_login(value.as_ref(), &text),
        _ => text,
    }
}
