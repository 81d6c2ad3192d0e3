//! Where a database is: in a file, or on a server.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use super::postgres::{PostgresAddressError, PostgresOptions, is_postgres_address};
use super::{Store, StoreError, StoreResult, Transaction, postgres, sqlite};

/// Where a database is.
#[derive(Debug, Clone)]
pub enum DatabaseLocation {
    /// In a file of SQLite.
    File(PathBuf),
    /// On a server of PostgreSQL.
    Server(Box<PostgresOptions>),
}

impl DatabaseLocation {
    /// Opens the database, which must exist. Blocks on the disk or the network.
    ///
    /// # Errors
    /// When there is none, or it cannot be used.
    pub fn open(&self) -> StoreResult<Store> {
        match self {
            Self::File(path) => Store::open_existing(path),
            Self::Server(options) => Store::open_existing_postgres((**options).clone()),
        }
    }

    /// Makes a file, which must not be there, or the tables on a server, which may be, with what `fill`
    /// stores: all of it or nothing. Blocks on the disk or the network.
    ///
    /// # Errors
    /// When that cannot be done, or what `fill` returns; the file or the server is as it was then.
    pub fn create_filled<T, E: From<StoreError>>(
        &self,
        fill: impl FnOnce(&Transaction<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        match self {
            Self::File(path) => sqlite::create_file(path, fill),
            Self::Server(options) => postgres::fill_database(options, fill),
        }
    }
}

/// What has the form of an address is one of a server; anything else is the path of a file.
impl FromStr for DatabaseLocation {
    type Err = PostgresAddressError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match is_postgres_address(text) || text.contains("://") {
            true => Ok(Self::Server(Box::new(text.parse()?))),
            false => Ok(Self::File(text.into())),
        }
    }
}

impl fmt::Display for DatabaseLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => path.display().fmt(f),
            Self::Server(options) => options.fmt(f),
        }
    }
}
