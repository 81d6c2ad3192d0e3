//! The engine of several nodes: PostgreSQL.
//!
//! Each node has its one thread that writes, as with SQLite; the lock on one row makes the changes of all
//! nodes serial (`committer`). Each reads over a few connections (`pool`), and learns from `changes` what
//! the others have stored (`follower`).

mod address;
mod committer;
mod error;
mod fill;
mod follower;
mod migrate;
mod options;
mod overlay;
mod passwords;
mod pool;
mod server;
mod services;
mod statements;
mod tables;
mod tls;
mod tokens;
mod writes;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::timeout;

pub(super) use fill::fill_database;
pub use follower::ChangeNews;
pub use options::{PostgresAddressError, PostgresOptions, is_postgres_address};

use ginnel_api::Origin;
use ginnel_api::id::Ids;

use super::job::ReadJob;
use super::tables::Row;
use super::writer::Writer;
use super::{StoreError, StoreResult, View};
use committer::PostgresCommitter;
use follower::{Follower, FollowerState};
use pool::{MAX_READERS, ReaderPool};
use server::Server;
use tokens::BatchTokens;

/// How long a response is waited for after the database was closed.
const CLOSE_GRACE: Duration = Duration::from_secs(2);

/// A database on PostgreSQL, as it is read.
pub(super) struct PostgresReaders {
    pool: Arc<ReaderPool>,
    /// As many threads wait for responses at once.
    permits: Arc<Semaphore>,
    follower: Follower,
    server: Server,
}

/// Opens a database, whose tables are made if need be; waits for the server.
pub(super) fn open_database(
    options: PostgresOptions,
    origin: Origin,
) -> StoreResult<(PostgresReaders, Writer)> {
    let address = options.to_string();
    let server = Server::new(options)?;
    let session = server.connect(migrate::SETTINGS);
    let session = session.map_err(|error| StoreError::from(error).with_address(&address))?;
    let ids = migrate::prepare_tables(&session, Ids::from_origin(origin), &address)?;
    let tokens = Arc::new(BatchTokens::new()?);
    let state = Arc::new(FollowerState::new());
    let committer = PostgresCommitter::new(server.clone(), ids, tokens.clone(), state.clone());
    let writer = Writer::start(|_| Ok(committer))?;
    let follower = Follower::start(server.clone(), tokens, writer.shared(), state)?;
    let (pool, permits) =
        (Arc::new(ReaderPool::new(server.clone())), Arc::new(Semaphore::new(MAX_READERS)));
    Ok((PostgresReaders { pool, permits, follower, server }, writer))
}

/// True when the database has the tables of a service.
///
/// # Errors
/// When the server cannot be reached, or refuses.
pub fn has_tables(options: &PostgresOptions) -> StoreResult<bool> {
    let session = Server::new(options.clone())?.connect("");
    let session =
        session.map_err(|error| StoreError::from(error).with_address(&options.to_string()))?;
    let found = session.query("SELECT to_regclass('ginnel.cluster')::text", &[])?;
    Ok(found.first().map(|row| row.value(0)).transpose()?.flatten().is_some())
}

impl PostgresReaders {
    /// Reads from one state of the database; the thread waits for the server.
    pub(super) fn read_blocking(&self, work: &mut dyn FnMut(&View<'_>)) -> StoreResult<()> {
        self.pool.read(work)
    }

    /// As [`PostgresReaders::read_blocking`], on another thread; the job comes back with what it read.
    pub(super) async fn read(&self, mut job: Box<dyn ReadJob>) -> StoreResult<Box<dyn ReadJob>> {
        let Ok(permit) = timeout(pool::WAIT_TIMEOUT, self.permits.clone().acquire_owned()).await
        else {
            return Err(pool::pool_exhausted_error());
        };
        let permit = permit.map_err(|_| StoreError::Closed)?;
        let pool = self.pool.clone();
        let read = ginnel_base::tasks::spawn_blocking(move || {
            // The thread reads on when nobody waits for it any more.
            let _permit = permit;
            pool.read(&mut |view| job.run(view)).map(|()| job)
        });
        read.await.map_err(|_| StoreError::Panicked)?
    }

    /// Whether the changes of other nodes were seen a moment ago.
    pub(super) fn sees_changes(&self) -> bool {
        self.follower.sees_changes()
    }

    /// How well it is known what other nodes have changed.
    pub(super) fn change_news(&self) -> ChangeNews {
        self.follower.change_news()
    }

    /// Looks for changes less often the more nodes there are.
    pub(super) fn set_node_count(&self, nodes: usize) {
        self.follower.set_node_count(nodes);
    }

    /// Reads no more. Whoever waits for a server that does not respond, also to write, gives up soon.
    pub(super) fn close(&self) {
        self.server.close_after(CLOSE_GRACE);
        self.follower.stop();
        self.pool.close();
    }
}

#[cfg(any(test, feature = "test-support"))]
mod rounds;
#[cfg(any(test, feature = "test-support"))]
pub use rounds::count_rounds;
