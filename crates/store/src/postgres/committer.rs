//! Commits to PostgreSQL: many changes, two round trips.
//!
//! The first flight takes the lock that makes the writes of all nodes serial, which is the row of
//! `cluster`, and then fetches what the jobs are known to read. That it is two statements is what the
//! correctness rests on: at READ COMMITTED each statement sees what was committed before it began. One
//! statement that locked and read would read what was true before it waited for the lock, and so would
//! one before the lock; both lose changes of other nodes (`tests/rust/service/store/postgres.rs`).
//!
//! Then the jobs run on an overlay. The second flight stores what they have changed, notes the changed
//! identifiers with a token of the batch, and commits. Where the response to that is lost, the version
//! is counted up first, which waits until the lost transaction is over, and only then is its token looked
//! for: a look without that may come before a commit that is still on its way.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ginnel_api::id::Ids;

use super::error::ServerError;
use super::follower::FollowerState;
use super::overlay::{JobEnd, Lookup, LookupShape, Overlay, StoredRow};
use super::server::{Rows, Server, ServerCall, ServerSession};
use super::statements::{self, ArrayCall};
use super::tokens::BatchTokens;
use super::writes::{JobFailure, JobTables};
use crate::batch_error::BatchError;
use crate::job::Job;
use crate::tables::{Row, Value};
use crate::writer::{Batch, Committer, QueuedJob, WriterShared};
use crate::{StorageFault, StoreError, StoreResult, Transaction};

/// How long a batch may take, with everything that is tried again.
const BATCH_TIMEOUT: Duration = Duration::from_secs(10);
/// How much of that is kept for finding out whether a change was stored.
const RESOLUTION_TIME: Duration = Duration::from_secs(2);
/// How long is waited before it is tried again, at first and at most.
const MIN_PAUSE: Duration = Duration::from_millis(20);
const MAX_PAUSE: Duration = Duration::from_millis(500);
/// How many rounds of reads a batch makes for all its jobs together.
pub(super) const MAX_ROUNDS: usize = 16;
/// How many changes are kept for nodes that have not seen them yet.
const KEPT_CHANGES: i64 = 100_000;
/// How many versions pass between two removals of older ones.
const PRUNING_INTERVAL: i64 = 1000;

/// What holds for statements that write. A node that hangs while it holds the lock loses it. The
/// isolation is the one that the order of the statements is made for, whatever the server's default is.
const SETTINGS: &str =
    "SET search_path = ginnel; SET default_transaction_isolation = 'read committed';
    SET statement_timeout = '10s'; SET lock_timeout = '5s';
    SET idle_in_transaction_session_timeout = '2s'; SET jit = off; SET enable_seqscan = off;
    SET enable_hashjoin = off; SET enable_mergejoin = off;
    SELECT set_config('synchronous_commit', 'on', false)
        WHERE current_setting('synchronous_commit') = 'off'";
const BEGIN: &str = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE";
const LOCK: &str = "UPDATE cluster SET version = version + 1 RETURNING version, last_id";

/// Commits to a database of PostgreSQL.
pub(super) struct PostgresCommitter {
    server: Server,
    ids: Ids,
    session: Option<ServerSession>,
    tokens: Arc<BatchTokens>,
    /// Who notifies other nodes.
    follower: Arc<FollowerState>,
    /// Whether they should hear at once of the last batch.
    is_urgent: bool,
}

/// Why an attempt has failed.
enum BatchAttemptError {
    /// Nothing is stored.
    Failed(ServerError),
    /// Nobody knows whether the version is stored.
    Unknown { version: i64, error: ServerError },
    /// There is nothing to try again.
    Final(StoreError),
}

impl From<ServerError> for BatchAttemptError {
    fn from(error: ServerError) -> Self {
        Self::Failed(error)
    }
}

impl From<StoreError> for BatchAttemptError {
    fn from(error: StoreError) -> Self {
        Self::Final(error)
    }
}

impl From<JobFailure> for BatchAttemptError {
    fn from(failure: JobFailure) -> Self {
        match failure {
            JobFailure::Server(error) => Self::Failed(error),
            JobFailure::Store(error) => Self::Final(error),
        }
    }
}

impl PostgresCommitter {
    pub(super) fn new(
        server: Server,
        ids: Ids,
        tokens: Arc<BatchTokens>,
        follower: Arc<FollowerState>,
    ) -> Self {
        Self { server, ids, session: None, tokens, follower, is_urgent: false }
    }

    /// Tries until the batch is stored, is refused for good, or has taken too long.
    fn commit_in_time(
        &mut self,
        batch: &mut Batch<'_>,
        shared: &WriterShared,
    ) -> StoreResult<Vec<String>> {
        let deadline = Instant::now() + BATCH_TIMEOUT;
        let mut pause = MIN_PAUSE;
        loop {
            let token = self.tokens.next()?;
            let error = match self.attempt_commit(batch, &token, deadline - RESOLUTION_TIME) {
                Ok(changed) => return Ok(changed),
                Err(BatchAttemptError::Final(error)) => {
                    // A transaction may still be open there.
                    self.session = None;
                    return Err(error);
                }
                Err(BatchAttemptError::Failed(error)) => {
                    self.tokens.forget_batch(&token);
                    error
                }
                Err(BatchAttemptError::Unknown { version, error }) => {
                    tracing::info!("it is not known whether a change was stored: {error}");
                    let resolved = self.is_stored(version, &token, deadline);
                    let stored = resolved.inspect_err(|_| self.abandon_batch(&token, shared))?;
                    self.tokens.forget_batch(&token);
                    match stored {
                        Some(changed) => {
                            self.follower.record_stored(version, &token);
                            return Ok(changed);
                        }
                        None => error,
                    }
                }
            };
            // A transaction may still be open there.
            self.session = None;
            let is_over = Instant::now() + pause >= deadline - RESOLUTION_TIME;
            let is_over = is_over || shared.is_closing();
            if error.is_of_values() && batch.jobs.len() > 1 {
                tracing::debug!("changes are made one by one: {error}");
                return Ok(self.commit_each(batch, shared));
            }
            if is_over || !error.is_transient() {
                return Err(error.into());
            }
            tracing::debug!("a change is tried again: {error}");
            std::thread::sleep(pause);
            pause = (pause * 2).min(MAX_PAUSE);
        }
    }

    /// Stores the jobs of a batch one by one, so that one whose values the server refuses fails alone; gives
    /// what they have changed.
    fn commit_each(&mut self, batch: &mut Batch<'_>, shared: &WriterShared) -> Vec<String> {
        let (mut done, mut changed) = (Vec::with_capacity(batch.jobs.len()), Vec::new());
        let mut lost: Option<BatchError> = None;
        batch.takes_more = false;
        for job in std::mem::take(&mut batch.jobs) {
            batch.jobs.push(job);
            let stored = match &lost {
                Some(error) => Err(error.clone()),
                None => self.commit_in_time(batch, shared).map_err(BatchError::from),
            };
            match stored {
                Ok(ids) => changed.extend(ids),
                Err(error) => {
                    batch.jobs.iter_mut().for_each(|job| job.job.fail(error.clone().into()));
                    // Where the server is away, the others do not wait for it in turn.
                    if error.fault.is_some() {
                        shared.record_doubt();
                        lost = Some(error);
                    }
                }
            }
            done.append(&mut batch.jobs);
        }
        batch.takes_more = true;
        batch.jobs = done;
        changed
    }

    /// Leaves it to the follower to find out what became of a batch.
    fn abandon_batch(&self, token: &[u8], shared: &WriterShared) {
        if let Some(changed) = self.tokens.abandon_batch(token) {
            shared.record_commit(changed);
        }
    }

    /// The connection, over which no response is waited for beyond this moment.
    fn ensure_session(&mut self, deadline: Instant) -> Result<&ServerSession, ServerError> {
        let session = match self.session.take() {
            Some(session) if !session.is_closed() => session,
            _ => {
                let limit = deadline.saturating_duration_since(Instant::now());
                self.server.connect_within(SETTINGS, limit)?
            }
        };
        Ok(self.session.insert(session.with_deadline(deadline)))
    }

    fn attempt_commit(
        &mut self,
        batch: &mut Batch<'_>,
        token: &[u8],
        deadline: Instant,
    ) -> Result<Vec<String>, BatchAttemptError> {
        let predicted = predict_lookups(&self.ids, &mut batch.jobs);
        self.ensure_session(deadline)?;
        let Some(session) = &self.session else { return Err(StoreError::Closed.into()) };
        let (version, last_id, fetched) = lock_and_fetch(session, &predicted)?;
        // While others had the lock, more jobs have come.
        batch.take_more();
        self.ids.continue_after(&last_id);
        let mut overlay = Overlay::default();
        fetched.into_iter().for_each(|(lookup, rows)| overlay.set_fetched(lookup, rows));
        let (ids, changed) = (&self.ids, Vec::new());
        let mut run = BatchRun { session, ids, overlay, changed, is_urgent: false };
        run.run_jobs(&mut batch.jobs)?;
        let BatchRun { mut overlay, changed, is_urgent, .. } = run;
        self.is_urgent = is_urgent;
        let layer = overlay.take_done();
        let changes = statements::store_statements(&layer)?;
        let end = EndOfBatch { version, token, changed: &changed, last_id: self.ids.latest_id() };
        // Noted before: when the response is lost, the follower may see the version first.
        self.tokens.begin_batch(token);
        end.commit_changes(session, &changes)?;
        self.tokens.forget_batch(token);
        self.follower.record_stored(version, token);
        Ok(changed)
    }

    /// Finds out whether a version was stored by the batch with this token; gives what it has changed.
    fn is_stored(
        &mut self,
        version: i64,
        token: &[u8],
        deadline: Instant,
    ) -> StoreResult<Option<Vec<String>>> {
        loop {
            self.session = None;
            let looked = self.ensure_session(deadline).and_then(|session| {
                // Waits for the lock, so the transaction in question has ended when this has.
                session.execute("UPDATE cluster SET version = version + 1")?;
                let sql = "SELECT ids FROM changes WHERE version = ?1 AND token = ?2";
                session.query(sql, &[&version, &token])
            });
            match looked {
                Ok(rows) => return rows.first().map(|row| ids_of(row.text(0)?)).transpose(),
                Err(error) if Instant::now() < deadline && !self.server.is_closed() => {
                    tracing::debug!("cannot look for a change yet: {error}");
                    std::thread::sleep(MIN_PAUSE);
                }
                Err(error) => {
                    let problem = format!("it is not known whether the change was stored: {error}");
                    return Err(StoreError::Server {
                        fault: Some(StorageFault::Uncertain),
                        problem,
                    });
                }
            }
        }
    }
}

impl Committer for PostgresCommitter {
    fn commit_batch(
        &mut self,
        batch: &mut Batch<'_>,
        shared: &WriterShared,
    ) -> Result<Vec<String>, BatchError> {
        Ok(self.commit_in_time(batch, shared)?)
    }

    fn tidy_up(&mut self, _: &WriterShared) {
        if self.is_urgent {
            self.follower.record_commit();
        }
    }

    fn close(self) -> Result<(), BatchError> {
        Ok(())
    }
}

/// What the jobs read first, as far as that can be known without reading.
fn predict_lookups(ids: &Ids, jobs: &mut [QueuedJob]) -> HashSet<Lookup> {
    let mut unfetched = HashSet::new();
    let overlay = std::cell::RefCell::new(Overlay::default());
    for job in jobs {
        overlay.borrow_mut().begin_job();
        let tables = JobTables::on_overlay(&overlay);
        job.job.run(&Transaction::new(&tables, ids));
        // What it changes is forgotten: it must read what others store until it runs again.
        overlay.borrow_mut().end_job(false, &mut unfetched);
    }
    unfetched
}

type FetchedRows = Vec<(Lookup, Vec<StoredRow>)>;

/// Takes the lock, and fetches behind it; gives the new version and the last identifier.
fn lock_and_fetch(
    session: &ServerSession,
    lookups: &HashSet<Lookup>,
) -> Result<(i64, String, FetchedRows), BatchAttemptError> {
    let fetches = LookupFetch::for_lookups(lookups)?;
    let mut calls = vec![ServerCall { sql: LOCK, params: Vec::new() }];
    calls.extend(fetches.iter().map(|fetch| fetch.call.call()));
    let mut results = session.run_pipelined(Some(BEGIN), &calls, None)?.into_iter();
    results.next().transpose()?;
    let locked = results.next().transpose()?.unwrap_or_default();
    let row = locked.first().ok_or(StoreError::Inconsistent("the database has no version"))?;
    let (version, last_id) = (row.integer(0)?, row.text(1)?.to_owned());
    let responses = results.collect::<Result<Vec<_>, _>>()?;
    let fetched = fetches.iter().zip(&responses).map(|(fetch, rows)| fetch.assign_rows(rows));
    let fetched = fetched.collect::<Result<Vec<_>, _>>()?.concat();
    Ok((version, last_id, fetched))
}

/// Lookups of one shape, which one statement fetches.
struct LookupFetch {
    lookups: Vec<Lookup>,
    call: ArrayCall,
}

impl LookupFetch {
    fn for_lookups(lookups: &HashSet<Lookup>) -> StoreResult<Vec<Self>> {
        let mut shapes: HashMap<LookupShape, Vec<Lookup>> = HashMap::new();
        for lookup in lookups {
            shapes.entry(lookup.shape).or_default().push(lookup.clone());
        }
        let fetch = |(shape, lookups): (LookupShape, Vec<Lookup>)| {
            Ok(Self { call: statements::fetch_statement(&shape, &lookups)?, lookups })
        };
        shapes.into_iter().map(fetch).collect()
    }

    /// Gives each lookup its rows.
    fn assign_rows(&self, rows: &Rows) -> StoreResult<FetchedRows> {
        let rows = rows.iter().map(stored_row).collect::<Result<Vec<_>, _>>()?;
        let of = |lookup: &Lookup| {
            let matches = |row: &&StoredRow| lookup.shape.matches_row(row, &lookup.values);
            let mut found: Vec<_> = rows.iter().filter(matches).cloned().collect();
            // Ranges may overlap, and each gives its rows.
            found.sort();
            found.dedup();
            (lookup.clone(), found)
        };
        if self.lookups.iter().any(|lookup| lookup.shape.range.is_some()) {
            return Ok(self.lookups.iter().map(of).collect());
        }
        Ok(self.sort_by_value(rows))
    }

    /// As [`LookupFetch::assign_rows`], where a row belongs to one lookup.
    fn sort_by_value(&self, rows: Vec<StoredRow>) -> FetchedRows {
        let mut groups: HashMap<Vec<Value>, Vec<StoredRow>> = HashMap::new();
        for row in rows {
            let shape = self.lookups.first().map(|lookup| lookup.shape);
            let values = shape.map(|shape| shape.values_of(&row)).unwrap_or_default();
            groups.entry(values).or_default().push(row);
        }
        let of = |lookup: &Lookup| {
            (lookup.clone(), groups.get(&lookup.values).cloned().unwrap_or_default())
        };
        self.lookups.iter().map(of).collect()
    }
}

fn stored_row(row: &tokio_postgres::Row) -> StoreResult<StoredRow> {
    (0..row.len()).filter_map(|column| row.value(column).transpose()).collect()
}

/// The jobs of a batch, under the lock.
struct BatchRun<'a> {
    session: &'a ServerSession,
    ids: &'a Ids,
    overlay: Overlay,
    changed: Vec<String>,
    is_urgent: bool,
}

impl BatchRun<'_> {
    /// Runs all jobs; those that read what is not here wait for the next round, and those that need
    /// queries for the end.
    fn run_jobs(&mut self, jobs: &mut [QueuedJob]) -> Result<(), BatchAttemptError> {
        let mut waiting: Vec<_> = jobs.iter_mut().collect();
        let mut querying = Vec::new();
        for _ in 0..MAX_ROUNDS {
            let mut unfetched = HashSet::new();
            let mut next = Vec::new();
            for job in waiting {
                match self.run_one(&mut *job.job, &mut unfetched) {
                    JobEnd::Done => {}
                    JobEnd::Unfetched => next.push(job),
                    JobEnd::NeedsQuery => querying.push(job),
                }
            }
            if next.is_empty() {
                return querying.into_iter().try_for_each(|job| self.run_querying(&mut *job.job));
            }
            self.fetch_rows(&unfetched)?;
            waiting = next;
        }
        // What reads on and on does so over the connection, one statement after the other.
        querying.extend(waiting);
        querying.into_iter().try_for_each(|job| self.run_querying(&mut *job.job))
    }

    fn run_one(&mut self, job: &mut dyn Job, unfetched: &mut HashSet<Lookup>) -> JobEnd {
        self.overlay.begin_job();
        let overlay = std::cell::RefCell::new(std::mem::take(&mut self.overlay));
        let tables = JobTables::on_overlay(&overlay);
        let transaction = Transaction::new(&tables, self.ids);
        let is_made = job.run(&transaction);
        let (is_urgent, changed) = (transaction.is_urgent(), transaction.into_changed());
        self.overlay = overlay.into_inner();
        let end = self.overlay.end_job(is_made, unfetched);
        if end == JobEnd::Done && is_made {
            self.is_urgent |= is_urgent;
            self.changed.extend(changed);
        }
        end
    }

    fn fetch_rows(&mut self, lookups: &HashSet<Lookup>) -> Result<(), BatchAttemptError> {
        let fetches = LookupFetch::for_lookups(lookups)?;
        let calls: Vec<_> = fetches.iter().map(|fetch| fetch.call.call()).collect();
        let responses = self.session.run_pipelined(None, &calls, None)?;
        for (fetch, rows) in fetches.iter().zip(responses) {
            for (lookup, rows) in fetch.assign_rows(&rows?)? {
                self.overlay.set_fetched(lookup, rows);
            }
        }
        Ok(())
    }

    /// Runs a job over the connection, one statement after the other, and undoes it alone if it fails.
    fn run_querying(&mut self, job: &mut dyn Job) -> Result<(), BatchAttemptError> {
        let layer = self.overlay.take_done();
        let calls = statements::store_statements(&layer)?;
        let calls: Vec<_> = calls.iter().map(ArrayCall::call).collect();
        let results = self.session.run_pipelined(None, &calls, Some("SAVEPOINT job"))?;
        results.into_iter().try_for_each(|result| result.map(drop))?;
        self.overlay.begin_job();
        let overlay = std::cell::RefCell::new(std::mem::take(&mut self.overlay));
        let tables = JobTables::over_connection(&overlay, self.session);
        let transaction = Transaction::new(&tables, self.ids);
        let is_made = job.run(&transaction);
        let (is_urgent, changed) = (transaction.is_urgent(), transaction.into_changed());
        let stored = tables.finish_job(is_made);
        self.overlay = overlay.into_inner();
        stored?;
        match is_made {
            true => {
                self.is_urgent |= is_urgent;
                self.changed.extend(changed);
            }
            false => self.session.execute("ROLLBACK TO SAVEPOINT job")?,
        }
        Ok(())
    }
}

/// What a batch ends with.
struct EndOfBatch<'a> {
    version: i64,
    token: &'a [u8],
    changed: &'a [String],
    last_id: String,
}

impl EndOfBatch<'_> {
    fn commit_changes(
        &self,
        session: &ServerSession,
        changes: &[ArrayCall],
    ) -> Result<(), BatchAttemptError> {
        let Self { version, token, changed, last_id } = self;
        let ids = serde_json::to_string(changed).map_err(StoreError::from)?;
        let oldest = version - KEPT_CHANGES;
        let mut calls: Vec<_> = changes.iter().map(ArrayCall::call).collect();
        let sql = "INSERT INTO changes (version, token, ids) VALUES (?1, ?2, ?3)";
        calls.push(ServerCall { sql, params: vec![version, token, &ids] });
        calls.push(ServerCall { sql: "UPDATE cluster SET last_id = ?1", params: vec![last_id] });
        if version % PRUNING_INTERVAL == 0 {
            let sql = "DELETE FROM changes WHERE version < ?1";
            calls.push(ServerCall { sql, params: vec![&oldest] });
        }
        let unknown = |error| BatchAttemptError::Unknown { version: *version, error };
        let results = session.run_pipelined(None, &calls, Some("COMMIT")).map_err(unknown)?;
        for result in results {
            match result {
                Ok(_) => {}
                // What was refused has ended the transaction, whatever came after it.
                Err(error) if error.is_refusal() => return Err(BatchAttemptError::Failed(error)),
                Err(error) => return Err(unknown(error)),
            }
        }
        Ok(())
    }
}

fn ids_of(text: &str) -> StoreResult<Vec<String>> {
    Ok(serde_json::from_str(text)?)
}

impl Drop for PostgresCommitter {
    fn drop(&mut self) {
        if let Some(session) = self.session.take() {
            session.send_without_waiting("ROLLBACK");
        }
    }
}
