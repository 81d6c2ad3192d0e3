//! Rows in PostgreSQL, as the jobs of a batch see them.

use std::cell::{Cell, RefCell};

use tokio_postgres::types::ToSql;

use super::error::ServerError;
use super::overlay::{self, Layer, Overlay};
use super::server::{Rows, ServerCall, ServerSession};
use super::statements::{self, ArrayCall};
use super::tables::pass_rows;
use crate::schema::Table;
use crate::select::Select;
use crate::tables::{Keep, Param, ReadTables, WriteTables};
use crate::{StoreError, StoreResult};

/// The tables that a job reads and changes.
pub(super) struct JobTables<'a> {
    overlay: &'a RefCell<Overlay>,
    /// Where everything goes that the overlay cannot know; none where a job must do without.
    session: Option<&'a ServerSession>,
    /// Why the server has ended the transaction.
    failure: Cell<Option<JobFailure>>,
}

/// Why a batch cannot go on.
pub(super) enum JobFailure {
    Server(ServerError),
    Store(StoreError),
}

impl<'a> JobTables<'a> {
    pub(super) fn on_overlay(overlay: &'a RefCell<Overlay>) -> Self {
        Self { overlay, session: None, failure: Cell::default() }
    }

    pub(super) fn over_connection(
        overlay: &'a RefCell<Overlay>,
        session: &'a ServerSession,
    ) -> Self {
        Self { overlay, session: Some(session), failure: Cell::default() }
    }

    /// Stores what the job has changed since its last query, if it was made.
    pub(super) fn finish_job(self, is_made: bool) -> Result<(), JobFailure> {
        if let Some(failure) = self.failure.take() {
            return Err(failure);
        }
        let layer = self.overlay.borrow_mut().take_current();
        match (self.session, is_made) {
            (Some(session), true) => store_layer(session, &layer),
            _ => Ok(()),
        }
    }

    /// Runs a query over the connection, which sees what the job has changed by then.
    fn fetch_rows(
        &self,
        session: &ServerSession,
        sql: &str,
        values: &[Param<'_>],
    ) -> Result<Rows, JobFailure> {
        store_layer(session, &self.overlay.borrow_mut().take_current())?;
        let params: Vec<_> = values.iter().map(|value| value as &(dyn ToSql + Sync)).collect();
        session.query(sql, &params).map_err(JobFailure::Server)
    }

    fn query_over(
        &self,
        session: &ServerSession,
        sql: &str,
        values: &[Param<'_>],
        keep: Keep<'_>,
    ) -> StoreResult<()> {
        match self.fetch_rows(session, sql, values) {
            Ok(rows) => pass_rows(&rows, keep),
            Err(failure) => Err(self.record_failure(failure)),
        }
    }

    /// Notes why the batch cannot go on; gives what the job is to end with.
    fn record_failure(&self, failure: JobFailure) -> StoreError {
        let problem = match &failure {
            JobFailure::Server(error) => error.to_string(),
            JobFailure::Store(error) => error.to_string(),
        };
        self.failure.set(Some(failure));
        StoreError::Server { fault: None, problem }
    }
}

fn store_layer(session: &ServerSession, layer: &Layer) -> Result<(), JobFailure> {
    if layer.is_empty() {
        return Ok(());
    }
    let calls = statements::store_statements(layer).map_err(JobFailure::Store)?;
    let calls: Vec<ServerCall<'_>> = calls.iter().map(ArrayCall::call).collect();
    let results = session.run_pipelined(None, &calls, None).map_err(JobFailure::Server)?;
    results.into_iter().try_for_each(|result| result.map(drop)).map_err(JobFailure::Server)
}

impl ReadTables for JobTables<'_> {
    fn select_rows(
        &self,
        select: &'static Select,
        values: &[Param<'_>],
        keep: Keep<'_>,
    ) -> StoreResult<()> {
        if let Some(session) = self.session {
            return self.query_over(session, select.sql(), values, keep);
        }
        let mut overlay = self.overlay.borrow_mut();
        overlay::pass_rows(select, &overlay.select_rows(select, values)?, keep)
    }

    fn query_rows(&self, sql: &str, values: &[Param<'_>], keep: Keep<'_>) -> StoreResult<()> {
        if let Some(session) = self.session {
            return self.query_over(session, sql, values, keep);
        }
        self.overlay.borrow_mut().record_query();
        Err(StoreError::Unfetched)
    }

    fn answers_queries(&self) -> bool {
        self.session.is_some()
    }
}

impl WriteTables for JobTables<'_> {
    fn put_row(&self, table: &'static Table, row: &[Param<'_>]) -> StoreResult<()> {
        self.overlay.borrow_mut().put_row(table, row);
        Ok(())
    }

    fn delete_rows(
        &self,
        table: &'static Table,
        by: &'static [&'static str],
        values: &[Param<'_>],
    ) -> StoreResult<()> {
        self.overlay.borrow_mut().delete_rows(table, by, values);
        Ok(())
    }

    fn flush(&self) -> StoreResult<()> {
        let Some(session) = self.session else { return Ok(()) };
        let layer = self.overlay.borrow_mut().take_current();
        store_layer(session, &layer).map_err(|failure| self.record_failure(failure))
    }

    fn record_new_id(&self, id: &str) {
        self.overlay.borrow_mut().record_new_id(id);
    }
}
