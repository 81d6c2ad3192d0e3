//! The command as a program called `ngrok`, for callers that start one: its grammar, its log lines, its
//! exit codes. `ginnel compat ngrok PATH` (`launcher`) writes what starts it.
//!
//! What runs is the same agent: `run` makes a plan of the command line and of files, `follow` writes what
//! happens into `log`.

mod argv;
mod config_file;
mod diagnose;
mod follow;
mod launcher;
mod log;
mod places;
mod remote_file;
mod run;
mod tunnel_flags;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use clap_complete::Shell;

pub(super) use follow::EventFollower;
pub use launcher::set_interpreter;
pub(super) use launcher::{command as compat, run as run_compat};
pub(super) use log::NgrokLog;
use places::NAME;
use run::AUTHTOKEN;

use ginnel_api::Secret;

use super::dashes;
use super::error::{CliError, CommandResult};
use super::help;
use super::logging::{LogOptions, LogWriter};
use super::operations;
use super::output::{self, print_line, write_completion};
use super::usage;

/// The version whose grammar this is, for callers that look at it, and ours.
const VERSION: &str = concat!("version 3.16.0+ginnel.", env!("CARGO_PKG_VERSION"));
const API_KEY: &str = ":api-key";
/// The variables that may hold the key of the management API, in their order.
const API_KEY_VARIABLES: [&str; 2] = ["GINNEL_API_KEY", "NGROK_API_KEY"];
/// All errors end the program with this code.
const FAILED: u8 = 1;
const NO_SERVICE: &str = "service: this program does not install itself; have systemd or another \
    supervisor run `start --all --config FILE` (docs/operate/deploy.md of ginnel has a unit to start from)";
const CREDITS: &str = "\
ginnel stands in for this program; it is not made by, and has nothing to do with, ngrok, Inc.
The licences of what it is made of are in THIRD-PARTY-LICENSES.txt, which is part of the package.";

/// Whether the program was started by this name.
pub(super) fn is_called(arguments: &[OsString]) -> bool {
    let program = arguments.first().map(Path::new);
    program.and_then(Path::file_stem).is_some_and(|stem| stem == NAME)
}

/// Runs the program; gives its exit code.
pub(super) fn main(arguments: Vec<OsString>) -> u8 {
    match run(arguments).and_then(|()| output::check_written()) {
        Ok(()) => 0,
        Err(error) => {
            output::eprint_line_as("ERROR", &error.message);
            FAILED
        }
    }
}

fn run(arguments: Vec<OsString>) -> CommandResult<()> {
    let command = command();
    let arguments = dashes::lengthen_dashes(&command, arguments)?;
    let matches = match command.try_get_matches_from(arguments) {
        Ok(matches) => matches,
        Err(error) => return usage::explain_usage_error(&error),
    };
    let Some((name, matches)) = matches.subcommand() else {
        print_line(self::command().render_long_help().to_string().trim_end());
        return Ok(());
    };
    argv::wipe_secrets(secret_values(matches).iter().map(String::as_str));
    // Where GINNEL_LOG asks for it.
    let _log = LogWriter::start(&LogOptions::default())?;
    match name {
        "start" => run::run_start(matches),
        "config" => config_file::run(matches),
        "authtoken" => config_file::run_authtoken(matches),
        "api" => operations::run_api_as_wire(matches, api_key(matches)?),
        "diagnose" => diagnose::run(matches),
        "completion" => print_completion(matches),
        "service" => Err(CliError::usage(NO_SERVICE)),
        "credits" => print_text(CREDITS),
        "version" => print_text(&format!("{NAME} {VERSION}")),
        "update" => print_text("There is nothing to update: ginnel comes with its Python package."),
        proto => run::run_tunnel(proto, matches),
    }
}

fn print_text(text: &str) -> CommandResult<()> {
    print_line(text);
    Ok(())
}

fn print_completion(matches: &ArgMatches) -> CommandResult<()> {
    let shell = matches.get_one::<Shell>("shell").copied().or_else(Shell::from_env);
    let shell = shell.unwrap_or(Shell::Bash);
    write_completion(shell, command(), NAME);
    Ok(())
}

pub(crate) fn command() -> Command {
    let config = Arg::new("config").long("config").value_name("FILE").action(ArgAction::Append);
    let config = config.value_parser(value_parser!(PathBuf)).global(true);
    let key = Arg::new(API_KEY).long("api-key").value_name("KEY").global(true);
    let command = Command::new(NAME)
        .about("ginnel, where a program called ngrok is expected")
        .version(VERSION)
        .arg(config.help("A configuration file; may be given more than once"))
        .args(run::log_arguments())
        .subcommands([
            run::start_command(),
            run::tunnel_command("http", "Make a local web service public"),
            run::tunnel_command("tcp", "Make a local TCP port public"),
            run::tunnel_command("tls", "Make a local TLS port public"),
            config_file::command(),
            config_file::authtoken_command().hide(true),
            operations::api_command().arg(key.help("The key of the management API")),
            diagnose::command(),
            Command::new("completion").about("Print a completion script for a shell").arg(
                Arg::new("shell")
                    .value_parser(value_parser!(Shell))
                    .help("The shell; the one of $SHELL by default"),
            ),
            Command::new("service")
                .about("Say how to run an agent as a service of the system")
                .arg(Arg::new("action").num_args(0..).help("Any action; none has an effect")),
            Command::new("credits").about("Print the credits"),
            Command::new("version").about("Print the version"),
            Command::new("update").about("Say that there is nothing to update"),
        ]);
    help::list_all(command)
}

/// The key for `api`: from the command line, the environment or a configuration file.
fn api_key(matches: &ArgMatches) -> CommandResult<Option<Secret>> {
    let argument = matches.get_one::<String>(API_KEY).cloned();
    let variables = API_KEY_VARIABLES.iter().filter_map(|name| std::env::var(name).ok());
    let known = argument.or_else(|| variables.into_iter().find(|key| !key.is_empty()));
    match known {
        Some(key) => Ok(Some(Secret(key))),
        None => Ok(run::load_config(matches)?.config.api_key),
    }
}

/// What stands on the command line and should not be seen by others.
fn secret_values(matches: &ArgMatches) -> Vec<String> {
    let ids = [AUTHTOKEN, API_KEY, config_file::SECRET];
    let ids = ids.into_iter().chain(tunnel_flags::secret_flags());
    let own = ids.filter_map(|id| matches.try_get_many::<String>(id).ok().flatten());
    let own: Vec<_> = own.flatten().cloned().collect();
    let inner = matches.subcommand().map(|(_, inner)| secret_values(inner)).unwrap_or_default();
    own.into_iter().chain(inner).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_grammar_is_sound() {
        let mut command = command();
        command.build();
        // Among other things, that no two options share a name.
        command.debug_assert();
    }
}
