//! The database: whether it is whole, and has room.

use std::path::Path;

use ginnel_store::{self as store, DatabaseReport, PostgresOptions, StorageFault, StoreError};

use super::backends;
use super::finding::Finding;
use super::{clock, policies};

/// A log larger than this is kept from shrinking by somebody who reads.
const LARGE_LOG_BYTES: u64 = 64 << 20;
/// With less space than this, changes may soon not be stored.
const LITTLE_SPACE_BYTES: u64 = 1 << 30;

/// True while a service has the database open.
pub(super) fn is_in_use(path: &Path) -> bool {
    store::is_in_use(path)
}

/// Looks at all of a database, which may be in use.
pub(super) fn examine_database(path: &Path) -> Vec<Finding> {
    match store::examine_database(path) {
        Ok(report) => {
            let findings =
                [integrity_finding(path, &report), log_finding(&report), space_finding(&report)];
            // As of the last time that it was stored.
            let pause = clock::pause_warning("the service", report.deletion_pause);
            let others = pause.into_iter().chain(policies::examine_stored(&report.policy_owners));
            findings.into_iter().chain(others).chain(unverified_finding(&report)).collect()
        }
        Err(error) => vec![unusable_finding(&error)],
    }
}

/// Looks whether a server of PostgreSQL responds, and has the tables of a service.
pub(super) fn examine_server(options: &PostgresOptions) -> Finding {
    match store::has_tables(options) {
        Ok(true) => Finding::ok("database", format!("{options} has the tables of a service")),
        Ok(false) => Finding::warning("database", format!("{options} has no tables yet"))
            .with_remedy("a service makes them at its first start"),
        Err(error) => Finding::problem("database", error.to_string()).with_remedy(
            "look whether the server runs, and whether address, user and password are right",
        ),
    }
}

fn integrity_finding(path: &Path, report: &DatabaseReport) -> Finding {
    let (bytes, schema) = (report.content.bytes, report.content.schema);
    let in_use = if report.is_in_use { ", in use by a service" } else { "" };
    let path = path.display();
    Finding::ok("database", format!("{path} is whole: {bytes} bytes, schema {schema}{in_use}"))
}

fn log_finding(report: &DatabaseReport) -> Finding {
    let bytes = report.log_bytes;
    if bytes <= LARGE_LOG_BYTES {
        return Finding::ok("log", format!("the log beside the database has {bytes} bytes"));
    }
    let message = format!("the log beside the database has grown to {bytes} bytes");
    Finding::warning("log", message)
        .with_remedy("end programs that keep a read transaction of the database open")
}

fn unverified_finding(report: &DatabaseReport) -> Option<Finding> {
    backends::unverified_names(&report.static_backends)
        .map(|names| backends::unverified_warning(&names))
}

fn space_finding(report: &DatabaseReport) -> Finding {
    let Some(free) = report.free_bytes else {
        return Finding::warning("space", "the free space of the folder is unknown");
    };
    let message = format!("{} MiB are free for the database", free >> 20);
    if free < report.content.bytes {
        return Finding::problem("space", format!("{message}, less than it has itself"))
            .with_remedy(
                "make room: a newer version copies the database before it changes its tables",
            );
    }
    if free < LITTLE_SPACE_BYTES {
        return Finding::warning("space", message).with_remedy("make room, or move the database");
    }
    Finding::ok("space", message)
}

fn unusable_finding(error: &StoreError) -> Finding {
    let remedy = match error {
        StoreError::Missing(_) => "a service makes it at its first start",
        StoreError::Newer { .. } => {
            "install the version of ginnel that has written it, or a newer one"
        }
        StoreError::LogMissing { .. } => "see the guide on backups",
        StoreError::NotADatabase(_) => "stop the service and restore a backup: ginnel restore",
        error if error.fault() == Some(StorageFault::Damaged) => {
            "stop the service and restore a backup: ginnel restore"
        }
        _ => "look at the path and its permissions, and run this as the user of the service",
    };
    match error {
        // Nothing is wrong before the first start.
        StoreError::Missing(_) => {
            Finding::warning("database", error.to_string()).with_remedy(remedy)
        }
        _ => Finding::problem("database", error.to_string()).with_remedy(remedy),
    }
}
