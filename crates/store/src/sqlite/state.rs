//! Whether a database was closed, as it says itself.
//!
//! The last changes of a database that was not closed are in the log beside it. A copy of the file alone
//! lacks them and looks whole, so the file says that it is open from before its first change until it is
//! closed.

use std::path::{Path, PathBuf};

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use rusqlite::{Connection, OpenFlags, OptionalExtension};

use ginnel_base::files;

use crate::{StoreError, StoreResult};

/// The setting that says it.
pub(crate) const STATE: &str = "state";
const OPEN: &str = "open";
const CLOSED: &str = "closed";

/// What stands for itself in the path of a URI.
const PLAIN: &AsciiSet = &NON_ALPHANUMERIC.remove(b'/').remove(b'-').remove(b'_').remove(b'.');

/// Has the file say that it is open; its log is on disk by then.
pub(super) fn set_open(connection: &Connection) -> StoreResult<()> {
    connection.execute(
        "INSERT INTO meta (name, value) VALUES (?1, ?2)
         ON CONFLICT DO UPDATE SET value = excluded.value",
        (STATE, OPEN),
    )?;
    // In the file itself, for the log is what may be missing.
    connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", (), |_| Ok(()))?;
    Ok(())
}

/// Says that the database is closed, if it has ever said that it is open.
pub(super) fn set_closed(connection: &Connection) -> StoreResult<()> {
    connection.execute("UPDATE meta SET value = ?2 WHERE name = ?1", (STATE, CLOSED))?;
    Ok(())
}

/// Refuses a file that was not closed and has no log beside it: what is missing is unknown.
pub(super) fn check_log(path: &Path) -> StoreResult<()> {
    if log_path(path).exists() || !is_marked_open(path) {
        return Ok(());
    }
    Err(StoreError::LogMissing { path: path.to_owned(), log: log_path(path) })
}

fn log_path(path: &Path) -> PathBuf {
    files::with_suffix(path, "-wal")
}

/// What the file says, without its log. What cannot be read is for others to judge.
fn is_marked_open(path: &Path) -> bool {
    let Some(path) = path.to_str() else { return false };
    // Otherwise SQLite makes an empty log, and the next start would take that for the one that is missing.
    let uri = format!("file:{}?immutable=1", utf8_percent_encode(path, PLAIN));
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY
        | OpenFlags::SQLITE_OPEN_NO_MUTEX
        | OpenFlags::SQLITE_OPEN_URI;
    let read = || {
        let connection = Connection::open_with_flags(uri, flags)?;
        let sql = "SELECT value FROM meta WHERE name = ?1";
        connection.query_row(sql, [STATE], |row| row.get::<_, String>(0)).optional()
    };
    matches!(read(), Ok(Some(state)) if state == OPEN)
}
