//! Looks at a database without changing it.

use std::path::Path;

use rusqlite::Connection;
use rustix::fs::statvfs;
use serde_json::Value;

use ginnel_api::id::prefix;
use ginnel_api::remote::backends::static_::StaticBackend;
use ginnel_base::files;
use ginnel_base::logging::or_debug;

use super::copy::{self, BackupReport};
use super::lock::NameLock;
use super::{open, place, state};
use crate::StoreResult;
use crate::age_reading::{SETTING, StoredReading};

/// What was seen of a database.
#[derive(Debug, Clone, PartialEq)]
pub struct DatabaseReport {
    /// What it holds.
    pub content: BackupReport,
    /// The size of the log beside it.
    pub log_bytes: u64,
    /// How much space the folder has left, where that can be known.
    pub free_bytes: Option<u64>,
    /// True while a service has it open.
    pub is_in_use: bool,
    /// The rest of the pause after a leap of the clock, in seconds.
    pub deletion_pause: u64,
    /// The static backends that can be read.
    pub static_backends: Vec<StaticBackend>,
    /// The documents that may have a traffic policy, each with the prefix of its identifier.
    pub policy_owners: Vec<(String, Value)>,
}

/// Checks all of a database, which a service may be using.
///
/// # Errors
/// When it is no whole database of a service.
pub fn examine_database(path: &Path) -> StoreResult<DatabaseReport> {
    let path = &place::resolve_links(path);
    state::check_log(path)?;
    let source = open::open_existing_source(path)?;
    let content = copy::check_integrity(&source, path)
        .map_err(|error| place::translate_error(error, path))?;
    // A database that was closed has none.
    let log_bytes = files::with_suffix(path, "-wal").metadata().map_or(0, |log| log.len());
    let is_in_use = is_in_use(path);
    let deletion_pause = deletion_pause(&source);
    let free_bytes = free_bytes(path);
    let static_backends = static_backends(&source);
    let policy_owners = policy_owners(&source)?;
    Ok(DatabaseReport {
        content,
        log_bytes,
        free_bytes,
        is_in_use,
        deletion_pause,
        static_backends,
        policy_owners,
    })
}

fn static_backends(source: &Connection) -> Vec<StaticBackend> {
    let read = || {
        let mut statement =
            source.prepare("SELECT id, body FROM resources WHERE kind = ?1 ORDER BY id")?;
        let rows = statement.query_map([prefix::STATIC], |row| Ok((row.get(0)?, row.get(1)?)))?;
        rows.collect::<Result<Vec<(String, String)>, rusqlite::Error>>()
    };
    let rows = or_debug!(read(), "the static backends cannot be read").unwrap_or_default();
    let backends = rows
        .into_iter()
        .filter_map(|(id, body)| Some(StaticBackend { id, ..serde_json::from_str(&body).ok()? }));
    backends.collect()
}

/// The kinds of documents that may have a traffic policy.
const POLICY_OWNERS: [&str; 4] =
    [prefix::ENDPOINT, prefix::HTTPS_ROUTE, prefix::TCP_EDGE, prefix::TLS_EDGE];

fn policy_owners(source: &Connection) -> StoreResult<Vec<(String, Value)>> {
    let sql = "SELECT kind, body FROM resources WHERE kind IN (?1, ?2, ?3, ?4) ORDER BY kind, id";
    let mut query = source.prepare(sql)?;
    let rows = query.query_map(POLICY_OWNERS, |row| Ok((row.get(0)?, row.get::<_, String>(1)?)))?;
    rows.map(|row| {
        let (kind, body) = row?;
        Ok((kind, serde_json::from_str(&body)?))
    })
    .collect()
}

fn deletion_pause(source: &Connection) -> u64 {
    let sql = "SELECT value FROM meta WHERE name = ?1";
    let text = source.query_row(sql, [SETTING], |row| row.get::<_, String>(0));
    let reading = text.ok().and_then(|text| serde_json::from_str::<StoredReading>(&text).ok());
    reading.map_or(0, |reading| reading.pause)
}

/// True while a service has the database open.
pub fn is_in_use(path: &Path) -> bool {
    NameLock::is_taken(&place::resolve_links(path))
}

#[cfg(unix)]
fn free_bytes(path: &Path) -> Option<u64> {
    let space = or_debug!(statvfs(files::parent_folder(path)), "the free space is unknown")?;
    Some(space.f_bavail.saturating_mul(space.f_frsize))
}

#[cfg(not(unix))]
fn free_bytes(_: &Path) -> Option<u64> {
    None
}
