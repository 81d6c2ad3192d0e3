//! Fills a database in one transaction.

use std::cell::RefCell;
use std::time::Duration;

use super::migrate;
use super::options::PostgresOptions;
use super::overlay::Overlay;
use super::server::{Server, ServerSession};
use super::writes::{JobFailure, JobTables};
use crate::api::id::Ids;
use crate::logging::or_debug;
use crate::service::store::{StorageFault, StoreError, Transaction};

/// What holds while a database is filled. The rows come from elsewhere, which takes its time.
const SETTINGS: &str =
    "SET search_path = ginnel; SET lock_timeout = '5s'; SET statement_timeout = '60s';
    SET idle_in_transaction_session_timeout = '60s'; SET jit = off; SET enable_seqscan = off;
    SELECT set_config('synchronous_commit', 'on', false)
        WHERE current_setting('synchronous_commit') = 'off'";
/// How long a response may take: longer than a statement.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(70);

/// Makes the tables that are missing and stores what `fill` does; all of it is kept or nothing. Nodes that
/// use the database wait meanwhile.
pub(in crate::service::store) fn fill<T, E: From<StoreError>>(
    options: &PostgresOptions,
    fill: impl FnOnce(&Transaction<'_>) -> Result<T, E>,
) -> Result<T, E> {
    let address = options.to_string();
    let session = Server::new(options.clone())?.connect(SETTINGS).map_err(StoreError::from)?;
    let session = session.with_timeout(RESPONSE_TIMEOUT);
    session.execute("BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE").map_err(StoreError::from)?;
    let filled = fill_open(&session, &address, fill).inspect_err(|_| {
        // Without it, the server takes it all back when the connection ends.
        or_debug!(session.execute("ROLLBACK"), "a transaction that failed is not ended");
    })?;
    session.execute("COMMIT").map_err(|error| StoreError::Server {
        fault: Some(StorageFault::Uncertain),
        problem: format!("it is not known whether the database was filled: {error}"),
    })?;
    Ok(filled)
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
    tables.finish(filled.is_ok()).map_err(|failure| match failure {
        JobFailure::Server(error) => StoreError::from(error),
        JobFailure::Store(error) => error,
    })?;
    let filled = filled?;
    let sql = "UPDATE cluster SET version = version + 1, last_id = ?1";
    session.query(sql, &[&ids.latest()]).map_err(StoreError::from)?;
    Ok(filled)
}
