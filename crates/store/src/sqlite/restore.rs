//! Puts a copy of a database in its place.

use std::path::Path;

use super::copy::{self, Overwrite};
use super::target::{CopyTarget, RestoreReport};
use super::{open, place, state};
use crate::StoreResult;

/// Makes a database of a copy, which is checked before, and again in its new place.
///
/// A database that has the name is moved aside with its log. At each moment, a process that is killed
/// leaves the one or the other under the name. Blocks on the disk.
///
/// # Errors
/// When the copy is no whole database, a service uses the name, or there is a database that may not be
/// replaced; what is there stays then.
pub fn restore_database(
    from: &Path,
    path: &Path,
    overwrite: Overwrite,
) -> StoreResult<RestoreReport> {
    let from = &place::resolve_links(from);
    place::check_other(from, path)?;
    place::check_place(&place::resolve_links(path))?;
    state::check_log(from)?;
    let source = open::open_existing_source(from)?;
    copy::verify_database(from).map_err(|error| place::translate_error(error, from))?;
    CopyTarget::for_database(path, overwrite)?.fill_from(&source)
}
