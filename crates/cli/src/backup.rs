//! `ginnel backup` and `ginnel restore`: copies of a database, and the way back.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use serde_json::{Value, json};

use ginnel_store::{self as store, BackupReport, Overwrite, RestoreReport, StoreError};

use super::error::{CliError, CommandResult};
use super::output::print_line;
use super::{download, operations};

const PATH: &str = "path";
const URL: &str = "url";
const FORCE: &str = "force";
const JSON: &str = "json";
const COPY: &str = "copy";

/// How long a service may take to make a copy, and to go on with sending it.
const SILENCE: Duration = Duration::from_secs(600);

pub(super) fn backup_command() -> Command {
    Command::new("backup")
        .about("Copy a database while a service uses it, and check the copy")
        .after_help(
            "The copy is one file that only its owner can read. It holds every change that was\n\
             answered before the command began, and has its name when it is checked and on disk.\n\
             With --url the service makes the copy and sends it. The key must be that of an admin;\n\
             it is taken from --api-key-file, from GINNEL_API_KEY, or asked for.\n\n\
             Examples:\n  ginnel backup --path ginnel.db ginnel-monday.db\n  \
             ginnel backup --url https://api.example.com ginnel-monday.db",
        )
        .arg(database_argument("The database").required(false).required_unless_present(URL))
        .arg(
            Arg::new(URL)
                .long(URL)
                .value_name("URL")
                .conflicts_with(PATH)
                .help("The management API of a running service, instead of the database"),
        )
        .arg(copy_argument("OUT", "The file for the copy"))
        .args(flag_arguments("Replace the file if there is one"))
        .args(remote_options())
}

/// The options that go with the URL of a service.
fn remote_options() -> impl Iterator<Item = Arg> {
    let help =
        "Maximum time without data from the service, as while it makes the copy; default: 600";
    let options = operations::remote_connection(help);
    options.map(|option| option.conflicts_with(PATH).help_heading("Options of --url"))
}

pub(super) fn restore_command() -> Command {
    Command::new("restore")
        .about("Replace a database that no service uses with a copy")
        .after_help(
            "The copy is checked before, and the database after. A database that is replaced stays\n\
             beside it, as <path>-replaced-<time>.\n\n\
             Example:\n  ginnel restore ginnel-monday.db --path ginnel.db --force",
        )
        .arg(copy_argument("IN", "The copy"))
        .arg(database_argument("The database"))
        .args(flag_arguments("Replace the database if there is one"))
}

pub(super) fn run_backup(matches: &ArgMatches) -> CommandResult<()> {
    let report = match matches.get_one::<String>(URL) {
        None => store::back_up(
            &read_path(matches, PATH),
            &read_path(matches, COPY),
            read_overwrite(matches),
        )
        .map_err(explain_existing)?,
        Some(url) => {
            let client = operations::remote_client(matches, url.clone(), SILENCE)?;
            download::download_backup(&client, &read_path(matches, COPY), read_overwrite(matches))?
        }
    };
    if matches.get_flag(JSON) {
        print_line(&as_json(&report).to_string());
    } else {
        print_line(&format!("copied to {}: {}", report.path.display(), summarize_report(&report)));
    }
    Ok(())
}

pub(super) fn run_restore(matches: &ArgMatches) -> CommandResult<()> {
    let report = store::restore_database(
        &read_path(matches, COPY),
        &read_path(matches, PATH),
        read_overwrite(matches),
    );
    let force = "use --force to move it aside and restore";
    let report = report.map_err(|error| with_remedy(error, force))?;
    let RestoreReport { restored, replaced, stray_log } = report;
    if matches.get_flag(JSON) {
        let mut line = as_json(&restored);
        line["replaced"] = json!(replaced);
        line["stray_log"] = json!(stray_log);
        print_line(&line.to_string());
        return Ok(());
    }
    print_line(&format!("restored {}: {}", restored.path.display(), summarize_report(&restored)));
    if let Some(replaced) = replaced {
        print_line(&format!("the database that was there is now {}", replaced.display()));
    }
    if let Some(log) = stray_log {
        print_line(&format!("a log that was there without its database is now {}", log.display()));
    }
    Ok(())
}

fn database_argument(help: &'static str) -> Arg {
    Arg::new(PATH)
        .long(PATH)
        .value_name("FILE")
        .value_parser(value_parser!(PathBuf))
        .required(true)
        .help(help)
}

fn copy_argument(name: &'static str, help: &'static str) -> Arg {
    Arg::new(COPY).value_name(name).value_parser(value_parser!(PathBuf)).required(true).help(help)
}

fn flag_arguments(force: &'static str) -> [Arg; 2] {
    let flag = |name: &'static str| Arg::new(name).long(name).action(ArgAction::SetTrue);
    [flag(FORCE).help(force), flag(JSON).help("Print what was copied as one JSON object")]
}

fn read_path(matches: &ArgMatches, name: &str) -> PathBuf {
    matches.get_one(name).cloned().unwrap_or_default()
}

fn read_overwrite(matches: &ArgMatches) -> Overwrite {
    if matches.get_flag(FORCE) { Overwrite::Yes } else { Overwrite::No }
}

fn summarize_report(report: &BackupReport) -> String {
    let rows = report.rows.iter().filter(|(_, rows)| *rows > 0);
    let rows: Vec<_> = rows.map(|(table, rows)| format!("{rows} {table}")).collect();
    format!("{} bytes, schema {}, {}", report.bytes, report.schema, rows.join(", "))
}

fn as_json(report: &BackupReport) -> Value {
    let rows: serde_json::Map<_, _> =
        report.rows.iter().map(|(table, rows)| ((*table).to_owned(), (*rows).into())).collect();
    json!({"path": report.path, "bytes": report.bytes, "schema": report.schema, "rows": rows})
}

/// Why a database was not copied.
pub(super) fn explain_existing(error: StoreError) -> CliError {
    with_remedy(error, "use --force to replace it")
}

/// Says what to do about it, where something can be done.
fn with_remedy(error: StoreError, force: &str) -> CliError {
    let remedy = match &error {
        StoreError::Exists(_) => Some(force),
        StoreError::Locked(_) => Some("stop the service first"),
        _ => None,
    };
    let mut failure = CliError::from(ginnel_service::Error::from(error));
    if let Some(remedy) = remedy {
        failure.message.push_str(&format!("; {remedy}"));
    }
    failure
}
