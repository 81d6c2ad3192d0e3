//! The engine of one process: SQLite, in a file or in memory.
//!
//! All writes go through one thread; reads run on connections of their own and never wait for it. A
//! database in memory has one connection for both.

mod copy;
mod create;
mod database;
mod examine;
mod lock;
mod migrate;
mod open;
mod place;
mod readers;
mod restore;
mod start;
mod state;
mod tables;
mod target;
mod writer;

use std::path::Path;

pub use copy::{BackupReport, Overwrite};
pub use examine::{DatabaseReport, examine_database, is_in_use};
pub use open::MissingLog;
pub use restore::restore_database;

pub use target::{CopyTarget, RestoreReport, remove_leftover};

pub(super) use open::{Locks, OpenDatabase, create_file, open_existing, open_file, open_memory};
pub use place::{check_other, resolve_links};
pub(super) use readers::Readers;
pub(super) use start::start_engine;
pub(super) use state::STATE;

use super::StoreResult;

/// Finds what keeps a file from being opened, as far as that can be known without changing anything.
///
/// # Errors
/// When it cannot be used, with the reason; that a service uses it is no such reason. Whether its log is there
/// is for whoever has locked it to say: a service may be using it under another name.
pub fn check_file(path: &Path) -> StoreResult<()> {
    let path = place::resolve_links(path);
    place::check_place(&path)?;
    open::check_unlocked_start(&path)
}

/// As [`super::Store::back_up`], of a file that a service may be using, in this process or another one.
///
/// # Errors
/// As [`super::Store::back_up`], or when the file is no database of a service, or lacks its log.
pub fn back_up(path: &Path, to: &Path, overwrite: Overwrite) -> StoreResult<BackupReport> {
    let path = &place::resolve_links(path);
    place::check_other(path, to)?;
    state::check_log(path)?;
    let source = open::open_existing_source(path)?;
    target::write_copy(&source, to, overwrite).map_err(|error| place::translate_error(error, path))
}
