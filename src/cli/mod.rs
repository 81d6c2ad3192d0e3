//! The `ginnel` command: one file per subcommand.

mod access_log;
mod admin;
mod admin_key;
mod agent;
mod backup;
mod completion;
mod config;
mod doctor;
mod download;
mod error;
mod grace;
mod lines;
mod log_file;
mod logging;
mod marks;
mod ngrok;
mod notify;
mod operations;
mod output;
mod policy;
mod reference;
mod runtime;
mod serve;
mod serve_reload;
mod settings;
mod signals;
mod store;
mod usage;

use std::ffi::OsString;

use clap::{ArgMatches, Command};

pub use error::Exit;
pub use ngrok::set_interpreter;

use error::CliError;

/// What a subcommand is: how it is called, and what it does.
struct Subcommand {
    command: fn() -> Command,
    run: fn(&ArgMatches) -> Result<(), CliError>,
}

/// Every subcommand, in the order of the help.
const SUBCOMMANDS: &[Subcommand] = &[
    Subcommand { command: serve::command, run: serve::run },
    Subcommand { command: operations::reload, run: operations::run_reload },
    Subcommand { command: operations::cluster, run: operations::run_cluster },
    Subcommand { command: admin_key::command, run: admin_key::run },
    Subcommand { command: backup::backup, run: backup::run_backup },
    Subcommand { command: backup::restore, run: backup::run_restore },
    Subcommand { command: store::command, run: store::run },
    Subcommand { command: doctor::command, run: doctor::run },
    Subcommand { command: agent::agent, run: agent::run_agent },
    Subcommand { command: agent::http, run: agent::run_http },
    Subcommand { command: agent::tcp, run: agent::run_tcp },
    Subcommand { command: agent::tls, run: agent::run_tls },
    Subcommand { command: agent::start, run: agent::run_start },
    Subcommand { command: agent::dev, run: agent::run_dev },
    Subcommand { command: config::command, run: config::run },
    Subcommand { command: operations::api, run: operations::run_api },
    Subcommand { command: operations::local, run: operations::run_local },
    Subcommand { command: ngrok::compat, run: ngrok::run_compat },
    Subcommand { command: policy::command, run: policy::run },
    Subcommand { command: completion::command, run: completion::run },
    Subcommand { command: reference::command, run: reference::run },
];

const AFTER_HELP: &str = "\
Examples:
  ginnel dev http 8080
  ginnel serve --path ginnel.db --port 4000
  ginnel api api-keys list --output json

Exit codes: 0 success, 1 failure, 2 wrong usage or configuration, 3 address in use,
4 unusable database, 5 key or authtoken refused, 6 not found, 7 request refused,
8 server error, 9 no response.";

/// Runs the command; `arguments` start with the name of the program. Gives the exit code.
///
/// By the name of `ngrok` it is a program with the grammar of that one, of which each failure is code 1.
///
/// What it has to say goes to standard output, and why it failed to standard error, in one line.
/// Blocks until the work is done; a service that it serves ends with SIGTERM or SIGINT.
pub fn main(arguments: impl IntoIterator<Item = impl Into<OsString> + Clone>) -> u8 {
    let arguments: Vec<OsString> = arguments.into_iter().map(Into::into).collect();
    if ngrok::is_called(&arguments) {
        return ngrok::main(arguments);
    }
    let done = run(arguments).and_then(|()| match output::unsaid() {
        Some(why) => Err(CliError::new(Exit::Failed, format!("standard output: {why}"))),
        None => Ok(()),
    });
    let exit = match done {
        Ok(()) => Exit::Clean,
        Err(failure) => {
            output::complain(&failure.message);
            failure.exit
        }
    };
    exit as u8
}

fn run(arguments: Vec<OsString>) -> Result<(), CliError> {
    let matches = match command().try_get_matches_from(arguments) {
        Ok(matches) => matches,
        Err(error) => return usage::explain(&error),
    };
    let Some((name, matches)) = matches.subcommand() else {
        return Err(CliError::usage("no command given; try `ginnel --help`"));
    };
    let known = SUBCOMMANDS.iter().find(|known| (known.command)().get_name() == name);
    // That of the service is a setting, which may stand in a file.
    let log = (name != "serve").then(|| logging::LogOptions::of_flags(matches));
    let _log = log.map(|options| logging::LogWriter::start(&options)).transpose()?;
    known.map_or(Ok(()), |known| (known.run)(matches))
}

fn command() -> Command {
    Command::new("ginnel")
        .about("Tunnels, their management API and their agent, on your own machine")
        .version(env!("CARGO_PKG_VERSION"))
        .after_help(AFTER_HELP)
        .subcommands(SUBCOMMANDS.iter().map(|known| (known.command)()))
}
