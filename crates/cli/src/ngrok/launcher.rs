//! `ginnel compat`: writes a launcher for callers that start another program.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};

use ginnel_api::mask;
use ginnel_base::files;
use ginnel_base::logging::ignore;

use super::places::NAME;
use crate::error::{CliError, CommandResult, Exit};
use crate::output::print_line;

/// The Python that runs this command.
static INTERPRETER: OnceLock<PathBuf> = OnceLock::new();
/// By this a launcher of ours is known.
const HEAD: &str = "#!/bin/sh\n# A launcher of ginnel, written by `ginnel compat ngrok`.\n";
/// For everybody to run.
const PROGRAM_MODE: u32 = 0o755;

/// Says which Python runs the command, so that launchers can start the same.
pub fn set_interpreter(path: PathBuf) {
    ignore(INTERPRETER.set(path), "a process has one interpreter");
}

pub(crate) fn command() -> Command {
    let ngrok = Command::new(NAME)
        .about("Write a launcher: a program that callers may start in place of ngrok")
        .arg(
            Arg::new("path")
                .required(true)
                .value_name("PATH")
                .value_parser(value_parser!(PathBuf))
                .help("File to write; in a folder, its name is ngrok"),
        )
        .arg(
            Arg::new("force")
                .long("force")
                .action(ArgAction::SetTrue)
                .help("Replace a file that is none of our launchers"),
        );
    Command::new("compat")
        .about("Stand in for other programs")
        .after_help("Example:\n  ginnel compat ngrok ~/.local/share/ginnel/ngrok")
        .subcommand_required(true)
        .subcommand(ngrok)
}

pub(crate) fn run(matches: &ArgMatches) -> CommandResult<()> {
    let Some((_, matches)) = matches.subcommand() else {
        return Err(CliError::usage("no command given; try `ginnel compat --help`"));
    };
    let path = matches.get_one::<PathBuf>("path").cloned().unwrap_or_default();
    let path = if path.is_dir() { path.join(NAME) } else { path };
    let Some(interpreter) = INTERPRETER.get() else {
        return Err(CliError::new(
            Exit::Failed,
            "only the command of the Python package can do this",
        ));
    };
    if !matches.get_flag("force") && !is_ours(&path).map_err(|error| path_error(&path, &error))? {
        let problem = "is another file; pass --force to replace it";
        return Err(CliError::usage(format!("{}: {problem}", mask::path(&path))));
    }
    let made = std::fs::create_dir_all(files::parent_folder(&path));
    let text = launcher_script(&interpreter.to_string_lossy());
    let written = made.and_then(|()| files::write_atomic(&path, text.as_bytes(), PROGRAM_MODE));
    written.map_err(|error| path_error(&path, &error))?;
    print_line(&format!("{} starts ginnel", mask::path(&path)));
    Ok(())
}

/// Whether the file is a launcher, or there is none.
fn is_ours(path: &Path) -> std::io::Result<bool> {
    match std::fs::read(path) {
        Ok(content) => Ok(content.starts_with(HEAD.as_bytes())),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(true),
        Err(error) => Err(error),
    }
}

/// The launcher. Modules in the folder of the caller do not come before those of Python (`-P`).
fn launcher_script(interpreter: &str) -> String {
    let quoted = interpreter.replace('\'', r"'\''");
    format!("{HEAD}exec '{quoted}' -P -m ginnel._ngrok \"$@\"\n")
}

fn path_error(path: &Path, error: &std::io::Error) -> CliError {
    CliError::new(Exit::Failed, format!("{}: {error}", mask::path(path)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_cannot_end_its_quotes() {
        assert!(
            launcher_script("/a'b/python")
                .ends_with("exec '/a'\\''b/python' -P -m ginnel._ngrok \"$@\"\n")
        );
    }
}
