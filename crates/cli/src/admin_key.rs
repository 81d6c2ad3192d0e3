//! `ginnel admin-key`: a way back to a database whose admin key is lost.

use std::path::PathBuf;

use clap::{Arg, ArgGroup, ArgMatches, Command, value_parser};

use ginnel_service::{Error, new_admin_key};
use ginnel_store::{DatabaseLocation, PostgresAddressError, StoreError};

use super::error::{CliError, CommandResult};
use super::output::print_line;
use super::runtime;

pub(super) fn command() -> Command {
    let file = |name, help| {
        Arg::new(name).long(name).value_name("FILE").value_parser(value_parser!(PathBuf)).help(help)
    };
    let new = Command::new("new")
        .about("Make an admin key for a database")
        .after_help(
            "The key is printed once; the other keys stay valid. A service that uses the database in\n\
             a file must be stopped first: while it runs, make keys with `ginnel api api-keys create`.\n\
             Services that share a database on PostgreSQL run on, and take the key.\n\n\
             Examples:\n  ginnel admin-key new --path ginnel.db --out admin.key\n  \
             ginnel admin-key new --store postgres://ginnel@db.example/tunnels",
        )
        .arg(file("path", "The database in a file"))
        .arg(
            Arg::new("store")
                .long("store")
                .value_name("URL")
                .help("The database on PostgreSQL, postgres://USER@HOST/NAME, without a password"),
        )
        .group(ArgGroup::new("database").args(["path", "store"]).required(true))
        .arg(file(
            "out",
            "Write the key to a new file that only its owner can read, and print nothing",
        ));
    Command::new("admin-key")
        .about("Make a new admin key when the first one is lost")
        .subcommand_required(true)
        .subcommand(new)
}

pub(super) fn run(matches: &ArgMatches) -> CommandResult<()> {
    let Some((_, matches)) = matches.subcommand() else { return Ok(()) };
    let database = database_location(matches)?;
    let out = matches.get_one::<PathBuf>("out");
    let runtime = runtime::start_runtime()?;
    let made = runtime.block_on(new_admin_key(&database, out.map(PathBuf::as_path)));
    let key = made.map_err(with_remedy)?;
    if out.is_none() {
        print_line(&key.0);
    }
    Ok(())
}

fn database_location(matches: &ArgMatches) -> CommandResult<DatabaseLocation> {
    match matches.get_one::<String>("store") {
        Some(address) => {
            let options = address.parse().map_err(|problem: PostgresAddressError| {
                CliError::usage(format!("--store: {problem}"))
            })?;
            Ok(DatabaseLocation::Server(Box::new(options)))
        }
        None => Ok(DatabaseLocation::File(matches.get_one("path").cloned().unwrap_or_default())),
    }
}

/// Says what to do about a database that is in use.
fn with_remedy(error: Error) -> CliError {
    let in_use = matches!(error, Error::Store(StoreError::Locked(_)));
    let mut failure = CliError::from(error);
    if in_use {
        failure
            .message
            .push_str("; stop the service first, or use its API: ginnel api api-keys create");
    }
    failure
}
