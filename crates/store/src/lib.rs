//! The database of the service.
//!
//! Resources are JSON documents in tables that do not depend on their kinds, so a new resource needs no new SQL. `schema`
//! declares the tables, `select` the lookups, and `tables` the interface of an engine. There are two engines: `sqlite` for
//! one process, `postgres` for several nodes.
//!
//! # One write
//!
//! All writes go through one thread, which commits the waiting jobs together (one `fsync`). A job is answered after its
//! commit, so every acknowledged write is durable.
//!
//! # Invariants
//!
//! - SQL is written only in this crate.

mod age_clock;
mod age_reading;
mod audit;
mod batch_error;
mod changes;
mod copy;
mod documents;
mod error;
mod health;
mod job;
mod location;
mod metrics;
mod postgres;
mod schema;
mod select;
mod snapshot;
mod sqlite;
mod tables;
mod transaction;
mod view;
mod waiting_events;
mod writer;

use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

pub use age_clock::AgeClock;
use age_reading::StoredReading;
pub use audit::{EventQuery, StoredEvent};
pub use changes::{Changes, DocumentChange};
pub use copy::{CopiedTable, LeftOut};
pub use error::{StorageFault, StoreError, StoreResult};
pub use health::HealthEvents;
pub use job::{Job, ReadWork, TypedJob};
pub use location::DatabaseLocation;
pub use postgres::{
    ChangeNews, PostgresAddressError, PostgresOptions, has_tables, is_postgres_address,
};
pub use snapshot::Snapshot;
pub use sqlite::{
    BackupReport, CopyTarget, DatabaseReport, MissingLog, Overwrite, RestoreReport, back_up,
    check_file, examine_database, is_in_use, remove_leftover, restore_database,
};
pub use sqlite::{check_other, resolve_links};
pub use transaction::Transaction;
pub use view::{Document, StoredToken, View};
pub use waiting_events::{EventInStore, EventRow, WaitingTotals, waiting_destination};

use ginnel_api::Origin;
use ginnel_metrics::Families;

use job::{ReadJob, TypedRead};
use postgres::PostgresReaders;
use sqlite::{Locks, OpenDatabase, Readers};
use writer::Writer;

/// How much one change does of what is done for many.
const MAX_CHUNK: usize = 500;

/// A database, open for one process until [`Store::close`].
pub struct Store {
    readers: EngineReaders,
    writer: Writer,
    ages: AgeClock,
    // Held for the life of the store; declared last, so that it is given up last.
    _locks: Option<Locks>,
}

/// How a database is read, which is an engine's own.
enum EngineReaders {
    Sqlite(Readers),
    Postgres(Box<PostgresReaders>),
}

impl Store {
    /// Opens the database in a file, which is created if need be; without a path, one in memory.
    ///
    /// Blocks on the disk. What is wrong with a file is found out before anything is written to it.
    ///
    /// # Errors
    /// When the file cannot be used, with the reason; it is left as it was.
    pub fn open(path: Option<&Path>) -> StoreResult<Self> {
        Self::open_with(path, Origin::default())
    }

    /// As [`Store::open`]; identifiers, tokens and times are those of the origin.
    ///
    /// # Errors
    /// When the file cannot be used, with the reason; it is left as it was.
    pub fn open_with(path: Option<&Path>, origin: Origin) -> StoreResult<Self> {
        Self::open_filled(path, origin, MissingLog::Refuse, |_| Ok(()))
    }

    /// As [`Store::open_with`]; a file that is created gets its name when it holds what `fill` stores.
    ///
    /// # Errors
    /// When the file cannot be used, or what `fill` returns; there is no file then if there was none.
    pub fn open_filled<E: From<StoreError>>(
        path: Option<&Path>,
        origin: Origin,
        missing_log: MissingLog,
        fill: impl FnOnce(&Transaction<'_>) -> Result<(), E>,
    ) -> Result<Self, E> {
        let opened = match path {
            Some(path) => sqlite::open_file(path, origin, missing_log, fill)?,
            None => sqlite::open_memory(origin)?,
        };
        Ok(Self::from_opened(opened)?)
    }

    /// Opens the database in a file that must exist.
    ///
    /// # Errors
    /// When the file cannot be used, with the reason; it is left as it was.
    pub fn open_existing(path: &Path) -> StoreResult<Self> {
        Self::from_opened(sqlite::open_existing(path)?)
    }

    fn from_opened(opened: OpenDatabase) -> StoreResult<Self> {
        let (readers, writer, locks) = sqlite::start_engine(opened)?;
        Ok(Self {
            readers: EngineReaders::Sqlite(readers),
            writer,
            ages: AgeClock::default(),
            _locks: locks,
        })
    }

    /// Opens a database on PostgreSQL; its tables are made if need be. Blocks on the network.
    ///
    /// # Errors
    /// When the server cannot be reached, refuses, or has a database of a newer version.
    pub fn open_postgres(options: PostgresOptions, origin: Origin) -> StoreResult<Self> {
        let (readers, writer) = postgres::open_database(options, origin)?;
        Ok(Self {
            readers: EngineReaders::Postgres(Box::new(readers)),
            writer,
            ages: AgeClock::default(),
            _locks: None,
        })
    }

    /// Opens a database on PostgreSQL that has the tables of a service. Blocks on the network.
    ///
    /// # Errors
    /// When it has none, and as those of [`Store::open_postgres`].
    pub fn open_existing_postgres(options: PostgresOptions) -> StoreResult<Self> {
        if !postgres::has_tables(&options)? {
            return Err(StoreError::Missing(options.to_string().into()));
        }
        Self::open_postgres(options, Origin::default())
    }

    /// The clock that decides how old stored data is.
    pub fn age_clock(&self) -> &AgeClock {
        &self.ages
    }

    /// Starts the clock that decides how old stored data is; `is_trusted` says that an operator vouches for it.
    ///
    /// # Errors
    /// If the database cannot be read or written.
    pub async fn start_clock(&self, origin: Origin, is_trusted: bool) -> StoreResult<()> {
        // A seeded clock stands still, and leaps where a test wants it to.
        let is_seeded = origin.is_seeded();
        self.ages.set_origin(origin);
        let now = self.read_clock().await?;
        if is_seeded {
            return Ok(());
        }
        let stored = self.read(|view| view.age_reading()).await?;
        let mut reading = self.ages.start_watch(stored.filter(|_| !is_trusted), now);
        if is_trusted {
            self.ages.record_confirmations(stored.map_or(0, |stored| stored.confirmations));
            reading = self.ages.end_pause(now).unwrap_or(reading);
        }
        self.store_reading(reading, false).await.map(drop)
    }

    /// Ends the pause after a leap of the clock, since an operator vouches for the clock. Returns the time by that
    /// clock, and the rest of the pause that has ended.
    ///
    /// # Errors
    /// If the database cannot be read or written.
    pub async fn confirm_clock(&self) -> StoreResult<(SystemTime, Duration)> {
        let now = self.query_clock().await?;
        let stored = self.read(|view| view.age_reading()).await?;
        let pause = self.ages.remaining_pause().unwrap_or_default();
        self.ages.record_confirmations(stored.map_or(0, |stored| stored.confirmations));
        if let Some(reading) = self.ages.end_pause(now) {
            self.store_reading(reading, false).await?;
        }
        Ok((now, pause))
    }

    /// Returns the time by the clock of the database, as of the last reading. If the clock of resources is seeded, it is
    /// that of the machine: certificates are of the real time.
    pub fn wall_time(&self) -> SystemTime {
        self.ages.origin().wall_time()
    }

    /// Returns the time by which ages are computed, or `None` during a pause after a leap of the clock.
    ///
    /// # Errors
    /// If the database cannot be read or written.
    pub async fn age_time(&self) -> StoreResult<Option<SystemTime>> {
        let now = self.read_clock().await?;
        if let Some((reading, has_leapt)) = self.ages.observe_time(now) {
            let confirmations = self.store_reading(reading, has_leapt).await?;
            if has_leapt {
                self.ages.record_confirmations(confirmations);
            }
        }
        if self.ages.remaining_pause().is_some()
            && let Some(stored) = self.read(|view| view.age_reading()).await?
        {
            self.ages.merge_reading(stored);
        }
        Ok(self.ages.remaining_pause().is_none().then_some(now))
    }

    /// Reads the clock of the database, which was asked a moment ago; that of the machine if it has none.
    async fn read_clock(&self) -> StoreResult<SystemTime> {
        match self.ages.is_due(Instant::now()) {
            true => self.query_clock().await,
            false => Ok(self.ages.origin().now()),
        }
    }

    /// Asks the database for its time, and makes the origin follow it.
    async fn query_clock(&self) -> StoreResult<SystemTime> {
        let origin = self.ages.origin();
        if let Some(time) = self.database_time().await? {
            origin.follow_clock(time);
        }
        self.ages.record_query(Instant::now());
        Ok(origin.now())
    }

    /// Stores a reading; returns the number of confirmations of all nodes.
    async fn store_reading(&self, reading: StoredReading, has_leapt: bool) -> StoreResult<u64> {
        let keep = move |change: &Transaction<'_>| -> StoreResult<u64> {
            let kept = match change.age_reading()? {
                Some(stored) => reading.merged_with(stored, has_leapt),
                None => reading,
            };
            change.store_setting(age_reading::SETTING, &serde_json::to_string(&kept)?)?;
            Ok(kept.confirmations)
        };
        self.write(keep).await
    }

    /// Returns the time of the database server, or `None` if the database is a file.
    ///
    /// # Errors
    /// If the server does not respond.
    async fn database_time(&self) -> StoreResult<Option<SystemTime>> {
        match &self.readers {
            EngineReaders::Sqlite(_) => Ok(None),
            EngineReaders::Postgres(_) => self.read(|view| view.server_time()).await.map(Some),
        }
    }

    /// True while writes are refused because the file has lost its name; reads go on.
    pub fn is_read_only(&self) -> bool {
        self.writer.health().is_read_only()
    }

    /// Why changes are not stored, as of the last one; none where they are.
    pub fn fault_message(&self) -> Option<String> {
        self.writer.health().fault_message()
    }

    /// Writes the figures of the database.
    ///
    /// # Errors
    /// What the encoder returns.
    pub fn collect_metrics(&self, families: &mut Families<'_>) -> std::fmt::Result {
        self.writer.metrics().collect(self.fault_message().is_none(), families)
    }

    /// What becomes wrong with the storage from now on, and what is right again.
    pub fn health_events(&self) -> HealthEvents {
        self.writer.health().events()
    }

    /// Reads from one consistent state of the database. Where that takes long, as it does over a network,
    /// it happens on another thread.
    ///
    /// # Errors
    /// What `work` returns, or that the database cannot be read.
    pub async fn read<W, T, E>(&self, work: W) -> Result<T, E>
    where
        W: FnOnce(&View<'_>) -> Result<T, E> + Send + 'static,
        T: Send + 'static,
        E: From<StoreError> + Send + 'static,
    {
        self.read_boxed(Box::new(work)).await
    }

    /// As [`Store::read`], for work whose type is erased.
    ///
    /// # Errors
    /// If the work fails, or the database cannot be read.
    pub async fn read_boxed<T, E>(&self, work: ReadWork<T, E>) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<StoreError> + Send + 'static,
    {
        let mut read = TypedRead::new(work);
        match &self.readers {
            EngineReaders::Sqlite(readers) => {
                readers.read(&mut |view| read.run(view))?;
                read.into_result()
            }
            EngineReaders::Postgres(readers) => {
                TypedRead::downcast_result(readers.read(Box::new(read)).await?)
            }
        }
    }

    /// As [`Store::read`], on the calling thread, which must not be one that serves.
    ///
    /// # Errors
    /// What `work` returns, or that the database cannot be read.
    pub fn read_blocking<T, E: From<StoreError>>(
        &self,
        work: impl FnOnce(&View<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        let (mut work, mut result) = (Some(work), None);
        let mut run = |view: &View<'_>| result = work.take().map(|work| work(view));
        match &self.readers {
            EngineReaders::Sqlite(readers) => readers.read(&mut run)?,
            EngineReaders::Postgres(readers) => readers.read_blocking(&mut run)?,
        }
        result.unwrap_or_else(|| Err(StoreError::Closed.into()))
    }

    /// Changes the database; the answer comes when the change is on disk.
    ///
    /// When `work` fails, nothing of it is kept. It runs whether or not the caller waits for it, and may
    /// run more than once; what it does counts once.
    ///
    /// # Errors
    /// What `work` returns, or that the change could not be made durable.
    pub async fn write<W, T, E>(&self, work: W) -> Result<T, E>
    where
        W: FnOnce(&Transaction<'_>) -> Result<T, E> + Clone + Send + 'static,
        T: Send + 'static,
        E: From<StoreError> + Send + 'static,
    {
        self.writer.write(work).await
    }

    /// Does something with each of many, a few in each change, so that nobody waits long for the lock.
    ///
    /// # Errors
    /// The first failure; what was changed before it stays.
    pub async fn change_each(
        &self,
        ids: Vec<String>,
        work: impl Fn(&Transaction<'_>, &str) -> StoreResult<()> + Clone + Send + 'static,
    ) -> StoreResult<()> {
        for chunk in ids.chunks(MAX_CHUNK) {
            let (chunk, work) = (chunk.to_vec(), work.clone());
            let change =
                move |change: &Transaction<'_>| change.for_each(&chunk, |id| work(change, id));
            self.write(change).await?;
        }
        Ok(())
    }

    /// Runs a job, which comes back when what it has changed is on disk, or failed.
    ///
    /// # Errors
    /// When the store is closed.
    pub async fn run_job(&self, job: Box<dyn Job>) -> StoreResult<Box<dyn Job>> {
        self.writer.run_job(job).await
    }

    /// How many commits there have been; it grows before a change is answered.
    ///
    /// What was read after this number was taken is still true while the number is the same.
    pub fn commit_count(&self) -> u64 {
        self.writer.commit_count()
    }

    /// How often something may have been changed that watchers did not get, as by a commit that failed
    /// nobody knows how; none while the changes of other nodes cannot be seen.
    ///
    /// What was read after this number was taken is true for as long as it is the same and watchers get
    /// no change of it. Of a change on another node, they get it within a second.
    pub fn doubt_count(&self) -> Option<u64> {
        let sees_all = match &self.readers {
            EngineReaders::Sqlite(_) => true,
            EngineReaders::Postgres(readers) => readers.sees_changes(),
        };
        sees_all.then(|| self.writer.doubt_count())
    }

    /// How well it is known here what other nodes have changed; none where there are no others.
    pub fn change_news(&self) -> Option<ChangeNews> {
        match &self.readers {
            EngineReaders::Sqlite(_) => None,
            EngineReaders::Postgres(readers) => Some(readers.change_news()),
        }
    }

    /// Says how many nodes share the database server, which is looked at for changes less often the more
    /// there are.
    pub fn set_node_count(&self, nodes: usize) {
        match &self.readers {
            EngineReaders::Sqlite(_) => {}
            EngineReaders::Postgres(readers) => readers.set_node_count(nodes),
        }
    }

    /// Calls `watcher` after every commit with what it has changed, on the thread that writes and before
    /// the changes are answered; of other nodes, with all that they have changed, or [`Changes::All`] where
    /// that is not known. Watchers are called one after the other, in the order in which they came; they
    /// may read, but not wait for a write.
    pub fn watch_changes(&self, watcher: impl Fn(&Changes) + Send + Sync + 'static) {
        self.writer.watch_changes(Box::new(watcher));
    }

    /// Copies the database as it is now to a file, while others read and write.
    ///
    /// The copy holds every change that was answered before this was called. It is opened, checked and
    /// counted, and on disk, before it has its name. Blocks on the disk.
    ///
    /// # Errors
    /// When the file exists and may not be overwritten, or there is no verified copy; no file has the
    /// name then that did not have it before.
    pub fn back_up(&self, to: &Path, overwrite: Overwrite) -> StoreResult<BackupReport> {
        match &self.readers {
            EngineReaders::Sqlite(readers) => readers.back_up(to, overwrite),
            EngineReaders::Postgres(_) => Err(StoreError::NoFile),
        }
    }

    /// Has writes fail at once, from now on, that wait for the lock of another program.
    pub fn end_lock_waits(&self) {
        self.writer.end_lock_waits();
    }

    /// Finishes what was handed in and closes the database; later writes fail, later reads may.
    ///
    /// Blocks on the disk.
    pub fn close(&self) {
        // The last connection to close moves the log into the file, so the writer's comes last.
        match &self.readers {
            EngineReaders::Sqlite(readers) => readers.close(),
            EngineReaders::Postgres(readers) => readers.close(),
        }
        self.writer.close();
    }
}

#[cfg(any(test, feature = "test-support"))]
pub use postgres::count_rounds;
