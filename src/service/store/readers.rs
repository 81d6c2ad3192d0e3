//! Connections for reading.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rusqlite::Connection;

use super::{Error, View, open};

/// How many connections are kept open while nobody reads.
const KEPT: usize = 8;

/// Connections for reading; as many are in use as threads read at once.
pub(super) enum Readers {
    /// Connections of their own to the file.
    File { path: PathBuf, idle: Mutex<Idle> },
    /// The one connection of a database in memory; empty once closed.
    Shared(Arc<Mutex<Option<Connection>>>),
}

/// Connections that nobody reads on.
#[derive(Default)]
pub(super) struct Idle {
    connections: Vec<Connection>,
    closed: bool,
}

impl Readers {
    pub(super) fn of(path: &Path) -> Self {
        Self::File { path: path.to_owned(), idle: Mutex::default() }
    }

    pub(super) fn shared(connection: Arc<Mutex<Option<Connection>>>) -> Self {
        Self::Shared(connection)
    }

    pub(super) fn read<T, E: From<Error>>(
        &self,
        work: impl FnOnce(&View<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        match self {
            Self::Shared(shared) => {
                let guard = shared.lock().unwrap_or_else(PoisonError::into_inner);
                let connection = guard.as_ref().ok_or(Error::Closed)?;
                work(&View::reading(connection)?)
            }
            Self::File { path, idle } => {
                let connection = take(path, idle)?;
                let result = work(&View::reading(&connection)?);
                give_back(idle, connection);
                result
            }
        }
    }

    /// Closes what is idle; what is in use closes when it is given back.
    pub(super) fn close(&self) {
        if let Self::File { idle, .. } = self {
            let mut idle = idle.lock().unwrap_or_else(PoisonError::into_inner);
            idle.closed = true;
            idle.connections.clear();
        }
    }
}

fn take(path: &Path, idle: &Mutex<Idle>) -> Result<Connection, Error> {
    let mut idle = idle.lock().unwrap_or_else(PoisonError::into_inner);
    if idle.closed {
        return Err(Error::Closed);
    }
    match idle.connections.pop() {
        Some(connection) => Ok(connection),
        None => {
            drop(idle);
            open::reader(path)
        }
    }
}

fn give_back(idle: &Mutex<Idle>, connection: Connection) {
    let mut idle = idle.lock().unwrap_or_else(PoisonError::into_inner);
    if !idle.closed && idle.connections.len() < KEPT {
        idle.connections.push(connection);
    }
}
