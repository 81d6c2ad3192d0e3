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
mod writer;

use std::path::Path;

pub use copy::{BackupReport, Overwrite};
pub use examine::{DatabaseReport, examine, is_in_use};
pub use open::MissingLog;
pub use restore::{RestoreReport, restore};

pub(super) use open::{
    Locks, OpenDatabase, existing as open_existing, file as open_file, memory as open_memory,
    new_file,
};
pub(in crate::service) use place::resolve;
pub(super) use readers::Readers;
pub(super) use start::start;
pub(super) use state::STATE;

use super::StoreError;

/// As [`super::Store::back_up`], of a file that a service may be using, in this process or another one.
///
/// # Errors
/// As [`super::Store::back_up`], or when the file is no database of a service.
pub fn back_up(path: &Path, to: &Path, overwrite: Overwrite) -> Result<BackupReport, StoreError> {
    let source = open::existing_source(path)?;
    copy::write(&source, to, overwrite).map_err(|error| open::explain(error, path))
}
