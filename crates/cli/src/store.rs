//! `ginnel store`: moves a database between a file and PostgreSQL.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use clap::{Arg, ArgAction, ArgMatches, Command};
use serde_json::{Map, Value, json};
use tokio::runtime::Builder;

use ginnel_service::{Error, copy_store_until};
use ginnel_store::{CopiedTable, DatabaseLocation, PostgresAddressError, StoreError};

use super::error::{CliError, CommandResult, Exit};
use super::output::{eprint_line, print_line};
use super::signals::Signals;

const FROM: &str = "from";
const TO: &str = "to";
const JSON: &str = "json";

pub(super) fn command() -> Command {
    let place = |name: &'static str, help| {
        Arg::new(name).long(name).value_name("FILE|URL").required(true).help(help)
    };
    let copy = Command::new("copy")
        .about("Copy a database to another place, from a file to PostgreSQL or back")
        .after_help(
            "All resources, keys and audit events are copied, and the certificate authority, so that keys\n\
             and addresses stay and agents trust the copy; nodes and what is online are left out. The copy\n\
             is compared with the original before it is kept; when that fails, nothing is. A service that\n\
             uses a file must be stopped first. Of a database on PostgreSQL, one moment is copied: stop its\n\
             services to miss nothing.\n\n\
             Examples:\n  ginnel store copy --from ginnel.db --to postgres://ginnel@db.example/tunnels\n  \
             ginnel store copy --from postgres://ginnel@db.example/tunnels --to ginnel.db",
        )
        .arg(place(FROM, "The database: a file, or postgres://USER@HOST/NAME without a password"))
        .arg(place(TO, "The place of the copy: a file that does not exist, or an empty database"))
        .arg(
            Arg::new(JSON)
                .long(JSON)
                .action(ArgAction::SetTrue)
                .help("Print what was copied as one JSON object"),
        );
    Command::new("store")
        .about("Move a database between a file and PostgreSQL")
        .subcommand_required(true)
        .subcommand(copy)
}

pub(super) fn run(matches: &ArgMatches) -> CommandResult<()> {
    let Some((_, matches)) = matches.subcommand() else { return Ok(()) };
    let (from, to) = (read_location(matches, FROM)?, read_location(matches, TO)?);
    let copied = copy_until_signal(&from, &to)?;
    if matches.get_flag(JSON) {
        print_line(&as_json(&to, &copied).to_string());
    } else {
        print_line(&format!("copied to {to}: {}", summarize_tables(&copied)));
    }
    Ok(())
}

/// Copies until a signal comes, and leaves nothing then; a second one does not wait for that.
fn copy_until_signal(
    from: &DatabaseLocation,
    to: &DatabaseLocation,
) -> CommandResult<Vec<CopiedTable>> {
    let runtime = Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| CliError::new(Exit::Failed, error.to_string()))?;
    let mut signals = runtime.block_on(async { Signals::new() })?;
    let interrupted = Arc::<AtomicBool>::default();
    let flag = interrupted.clone();
    std::thread::spawn(move || {
        runtime.block_on(async {
            signals.next().await;
            flag.store(true, Relaxed);
            signals.next().await;
        });
        eprint_line(&CliError::second_signal().message);
        std::process::exit(Exit::Failed as i32);
    });
    copy_store_until(from, to, &interrupted).map_err(with_remedy)
}

fn read_location(matches: &ArgMatches, name: &str) -> CommandResult<DatabaseLocation> {
    let text: &String = matches.get_one(name).ok_or_else(|| CliError::usage(name))?;
    let place = text.parse();
    place.map_err(|problem: PostgresAddressError| CliError::usage(format!("--{name}: {problem}")))
}

fn summarize_tables(copied: &[CopiedTable]) -> String {
    let filled = copied.iter().filter(|table| table.rows > 0);
    let words: Vec<_> = filled.map(|table| format!("{} {}", table.rows, table.name)).collect();
    words.join(", ")
}

fn as_json(to: &DatabaseLocation, copied: &[CopiedTable]) -> Value {
    let by_name = |value: fn(&CopiedTable) -> Value| -> Map<String, Value> {
        copied.iter().map(|table| (table.name.to_owned(), value(table))).collect()
    };
    let (rows, digests) =
        (by_name(|table| table.rows.into()), by_name(|table| table.digest.clone().into()));
    json!({"to": to.to_string(), "rows": rows, "sha256": digests})
}

/// Says what to do about it, where something can be done.
fn with_remedy(error: Error) -> CliError {
    let is_in_use = matches!(error, Error::Store(StoreError::Locked(_)));
    let mut failure = CliError::from(error);
    if is_in_use {
        failure.message.push_str("; stop the service first");
    }
    failure
}
