//! Copies a database to another place, which may be of the other engine, with its certificate authority:
//! that is in files beside a database in a file, and in the database itself on a server.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use ginnel_base::logging::or_debug;
use ginnel_gateway::tls::authority_key::AuthorityFiles;

use super::Error;
use super::authority::{self, StoredAuthority};
use super::cluster;
use super::store::{
    CopiedTable, DatabaseLocation, LeftOut, Store, StoreError, Transaction, check_other,
    resolve_links,
};

/// Copies a database as it is at one moment to a place where there is none; all of it or nothing.
///
/// Each table is read again from the copy, and its number of rows and a digest of them are compared with
/// what was read, before the copy is kept. Nodes, sessions and tunnels are left out, which are not those of
/// a service on the copy. A database of an older version is brought to the tables of this
/// one first, as by a start. Blocks on the disk and the network.
///
/// # Errors
/// When a service uses the file that is copied, the target is not empty or another authority is beside it,
/// the copy differs, or one of the two cannot be used.
pub fn copy_store(
    from: &DatabaseLocation,
    to: &DatabaseLocation,
) -> Result<Vec<CopiedTable>, Error> {
    copy_store_until(from, to, &AtomicBool::default())
}

/// As [`copy_store`], until `interrupted` is set.
///
/// # Errors
/// Also when it was interrupted; nothing is kept then.
pub fn copy_store_until(
    from: &DatabaseLocation,
    to: &DatabaseLocation,
    interrupted: &AtomicBool,
) -> Result<Vec<CopiedTable>, Error> {
    if let (DatabaseLocation::File(from), DatabaseLocation::File(to)) = (from, to) {
        check_other(from, to)?;
    }
    let source = from.open()?;
    let copied = authority_of(&source, from)
        .and_then(|found| copy_tables((&source, found), to, interrupted));
    source.close();
    copied
}

fn copy_tables(
    (source, authority): (&Store, Option<StoredAuthority>),
    to: &DatabaseLocation,
    interrupted: &AtomicBool,
) -> Result<Vec<CopiedTable>, Error> {
    let mut written = None;
    let copied = to.create_filled(|change| {
        if !change.is_empty()? {
            return Err(StoreError::NotEmpty(to.to_string().into()).into());
        }
        let left_out = LeftOut {
            settings: &[authority::CERTIFICATE, authority::KEY],
            interrupted: Some(interrupted),
            ..cluster::ROWS_OF_NODES
        };
        let copied = change.copy_from(source, &left_out)?;
        if let Some(authority) = authority {
            written = place_authority(change, to, authority)?;
        }
        if interrupted.load(Relaxed) {
            return Err(StoreError::Interrupted.into());
        }
        Ok(copied)
    });
    if let (Err(_), Some(files)) = (&copied, written) {
        // The error that led here is the one to report.
        or_debug!(files.remove(), "the authority of a copy that failed stays");
    }
    copied
}

fn authority_of(source: &Store, at: &DatabaseLocation) -> Result<Option<StoredAuthority>, Error> {
    let found = match at {
        DatabaseLocation::File(path) => AuthorityFiles::for_database(&resolve_links(path))
            .find_authority()
            .map_err(Error::Authority)?,
        DatabaseLocation::Server(_) => source
            .read_blocking(authority::find_stored)?
            .map(authority::parse_stored)
            .transpose()?,
    };
    Ok(found.map(|found| (found.pem().to_owned(), found.key_pem())))
}

/// Keeps the authority where a service looks for it; gives the files that were made for it. They get their
/// names before the database has its own, for a service that finds none makes another authority.
fn place_authority(
    change: &Transaction<'_>,
    at: &DatabaseLocation,
    authority: StoredAuthority,
) -> Result<Option<AuthorityFiles>, Error> {
    match at {
        DatabaseLocation::File(path) => {
            let files = AuthorityFiles::for_database(&resolve_links(path));
            let kept = files.store_authority(&authority::parse_stored(authority)?);
            Ok(kept.map_err(Error::Authority)?.then_some(files))
        }
        DatabaseLocation::Server(_) => {
            authority::store_authority(change, &authority)?;
            Ok(None)
        }
    }
}
