//! Fills a database in one transaction.
//!
//! Where the response to its end is lost, the server is asked what became of it.

use std::cell::RefCell;
use std::time::{Duration, Instant};

use ginnel_api::id::Ids;
use ginnel_base::logging::or_debug;

use super::error::ServerError;
use super::migrate;
use super::options::PostgresOptions;
use super::overlay::Overlay;
use super::server::{Server, ServerSession};
use super::writes::{JobFailure, JobTables};
use crate::tables::Row;
use crate::{StorageFault, StoreError, StoreResult, Transaction};

/// What holds while a database is filled. The rows come from elsewhere, which takes its time.
const SETTINGS: &str =
    "SET search_path = ginnel; SET lock_timeout = '5s'; SET statement_timeout = '60s';
    SET idle_in_transaction_session_timeout = '60s'; SET jit = off; SET enable_seqscan = off;
    SELECT set_config('synchronous_commit', 'on', false)
        WHERE current_setting('synchronous_commit') = 'off'";
/// How long a response may take: longer than a statement.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(70);
/// How long the server is asked what became of a transaction, after which time the transaction is ended,
/// and how long is waited in between.
const RESOLVE_TIMEOUT: Duration = Duration::from_secs(30);
const END_AFTER: Duration = Duration::from_secs(3);
const RESOLVE_PAUSE: Duration = Duration::from_millis(100);

/// Makes the tables that are missing and stores what `fill` does; all of it is kept or nothing. Nodes that
/// use the database wait meanwhile.
pub(crate) fn fill_database<T, E: From<StoreError>>(
    options: &PostgresOptions,
    fill: impl FnOnce(&Transaction<'_>) -> Result<T, E>,
) -> Result<T, E> {
    let address = options.to_string();
    let server = Server::new(options.clone())?;
    let session = server.connect(SETTINGS).map_err(StoreError::from)?;
    let session = session.with_timeout(RESPONSE_TIMEOUT);
    session.execute("BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE").map_err(StoreError::from)?;
    let filled = fill_open(&session, &address, fill).inspect_err(|_| {
        // Without it, the server takes it all back when the connection ends.
        or_debug!(session.execute("ROLLBACK"), "a transaction that failed is not ended");
    })?;
    commit_fill(&server, session)?;
    Ok(filled)
}

fn commit_fill(server: &Server, session: ServerSession) -> StoreResult<()> {
    let rows = session.query("SELECT pg_current_xact_id()::text", &[])?;
    let row = rows.first().ok_or(StoreError::Inconsistent("a transaction has no identifier"))?;
    let transaction = row.text(0)?.to_owned();
    let Err(error) = session.execute("COMMIT") else { return Ok(()) };
    tracing::info!("it is not known whether the database was filled: {error}");
    drop(session);
    match is_committed(server, &transaction) {
        Ok(true) => Ok(()),
        Ok(false) => Err(error.into()),
        Err(unknown) => Err(StoreError::Server {
            fault: Some(StorageFault::Uncertain),
            problem: format!(
                "it is not known whether the database was filled ({error}), and the server cannot be asked: \
                 {unknown}; if it was, it is whole, and to fill it again is refused"
            ),
        }),
    }
}

/// Whether a transaction was committed whose connection is gone; waits until it has ended.
fn is_committed(server: &Server, transaction: &str) -> Result<bool, ServerError> {
    let began = Instant::now();
    let deadline = began + RESOLVE_TIMEOUT;
    loop {
        let is_late = began.elapsed() >= END_AFTER;
        match server
            .connect(SETTINGS)
            .and_then(|session| transaction_status(&session, transaction, is_late))
        {
            Ok(Some(is_committed)) => return Ok(is_committed),
            Ok(None) if Instant::now() >= deadline => return Err(ServerError::Unanswered),
            Err(error) if Instant::now() >= deadline || !error.is_transient() => return Err(error),
            Ok(None) => {}
            Err(error) => tracing::debug!("the server cannot be asked yet: {error}"),
        }
        std::thread::sleep(RESOLVE_PAUSE);
    }
}

/// Whether a transaction was committed; none while it has not ended, which it is made to if it `is_late`.
fn transaction_status(
    session: &ServerSession,
    transaction: &str,
    is_late: bool,
) -> Result<Option<bool>, ServerError> {
    let sql = "SELECT pg_xact_status(?1::text::xid8)";
    let rows = session.query(sql, &[&transaction])?;
    let status: Option<&str> = rows.first().and_then(|row| row.get(0));
    match status {
        Some("in progress") if is_late => {
            let sql = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                WHERE backend_xid = ?1::text::xid8::xid";
            session.query(sql, &[&transaction])?;
            Ok(None)
        }
        Some("committed") => Ok(Some(true)),
        Some("aborted") => Ok(Some(false)),
        _ => Ok(None),
    }
}

fn fill_open<T, E: From<StoreError>>(
    session: &ServerSession,
    address: &str,
    fill: impl FnOnce(&Transaction<'_>) -> Result<T, E>,
) -> Result<T, E> {
    let ids = migrate::prepare_within(session, Ids::default(), address)?;
    let overlay = RefCell::new(Overlay::default());
    let tables = JobTables::over_connection(&overlay, session);
    let filled = fill(&Transaction::new(&tables, &ids));
    tables.finish_job(filled.is_ok()).map_err(|failure| match failure {
        JobFailure::Server(error) => StoreError::from(error),
        JobFailure::Store(error) => error,
    })?;
    let filled = filled?;
    let sql = "UPDATE cluster SET version = version + 1, last_id = ?1";
    session.query(sql, &[&ids.latest_id()]).map_err(StoreError::from)?;
    Ok(filled)
}
