//! `ginnel admin-key`: a way back to a database whose admin key is lost.

use std::path::PathBuf;

use clap::{Arg, ArgMatches, Command, value_parser};

use super::error::CliError;
use super::output::say;
use super::runtime;
use crate::service::store::StoreError;
use crate::service::{Error, new_admin_key};

pub(super) fn command() -> Command {
    let file = |name, help| {
        Arg::new(name).long(name).value_name("FILE").value_parser(value_parser!(PathBuf)).help(help)
    };
    let new = Command::new("new")
        .about("Make an admin key for a database that no service is using")
        .after_help(
            "The key is printed once; the other keys stay valid. A service that uses the database\n\
             must be stopped first: while it runs, make keys with `ginnel api api-keys create`.\n\n\
             Example:\n  ginnel admin-key new --path ginnel.db --out admin.key",
        )
        .arg(file("path", "The database").required(true))
        .arg(file(
            "out",
            "Write the key to a new file that only its owner can read, and print nothing",
        ));
    Command::new("admin-key")
        .about("Make a new admin key when the first one is lost")
        .subcommand_required(true)
        .subcommand(new)
}

pub(super) fn run(matches: &ArgMatches) -> Result<(), CliError> {
    let Some((_, matches)) = matches.subcommand() else { return Ok(()) };
    let path = matches.get_one::<PathBuf>("path").cloned().unwrap_or_default();
    let out = matches.get_one::<PathBuf>("out");
    let runtime = runtime::start()?;
    let made = runtime.block_on(new_admin_key(&path, out.map(PathBuf::as_path)));
    let key = made.map_err(explain)?;
    if out.is_none() {
        say(&key.0);
    }
    Ok(())
}

/// Says what to do about a database that is in use.
fn explain(error: Error) -> CliError {
    let in_use = matches!(error, Error::Store(StoreError::Locked(_)));
    let mut failure = CliError::from(error);
    if in_use {
        failure
            .message
            .push_str("; stop the service first, or use its API: ginnel api api-keys create");
    }
    failure
}
