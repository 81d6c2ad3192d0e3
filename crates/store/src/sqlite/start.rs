//! Starts the thread that writes to a database.

use std::sync::Arc;

use super::open::{Connections, Locks, OpenDatabase};
use super::readers::Readers;
use super::writer::{SqliteCommitter, WriterConnection};
use crate::StoreResult;
use crate::writer::Writer;

/// Gives what reads and what writes, and what is to be held as long as these are in use.
pub(crate) fn start_engine(opened: OpenDatabase) -> StoreResult<(Readers, Writer, Option<Locks>)> {
    let OpenDatabase { connections, ids, locks } = opened;
    let (readers, connection) = match connections {
        Connections::File(file) => {
            let (database, place) = *file;
            let place = Arc::new(place);
            (Readers::from_file(place.clone())?, WriterConnection::from_database(database, place))
        }
        Connections::Memory(shared) => {
            (Readers::from_shared(shared.clone()), WriterConnection::Shared(shared))
        }
    };
    let writer = Writer::start(|shared| SqliteCommitter::new(connection, ids, shared))?;
    Ok((readers, writer, locks))
}
