//! Rows in PostgreSQL, as readers see them.

use std::cell::{Cell, RefCell};

use bytes::BytesMut;
use tokio_postgres::types::{IsNull, ToSql, Type, to_sql_checked};

use super::error::ServerError;
use super::pool::ReaderPool;
use super::server::{Rows, ServerCall, ServerSession};
use crate::select::Select;
use crate::tables::{Keep, Param, ReadTables, Row, Value};
use crate::{StoreError, StoreResult};

/// A transaction that only reads sees one state from its first statement on.
const BEGIN: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";

/// One state of the tables, which begins with the first statement.
pub(super) struct PostgresReader<'pool> {
    pool: &'pool ReaderPool,
    session: RefCell<Option<ServerSession>>,
    has_begun: Cell<bool>,
}

impl<'pool> PostgresReader<'pool> {
    pub(super) fn new(pool: &'pool ReaderPool) -> StoreResult<Self> {
        let session = RefCell::new(Some(pool.take_session()?));
        Ok(Self { pool, session, has_begun: Cell::new(false) })
    }

    fn fetch_rows(&self, sql: &str, values: &[Param<'_>]) -> StoreResult<Rows> {
        let mut session = self.session.borrow_mut();
        let current = session.take().ok_or(StoreError::Closed)?;
        match run_query(&current, !self.has_begun.get(), sql, values) {
            Ok(rows) => {
                *session = Some(current);
                self.has_begun.set(true);
                Ok(rows)
            }
            // A connection that nobody has used for a while may be gone. Nothing was read over it yet, and
            // not much time has passed.
            Err(error)
                if !self.has_begun.get()
                    && error.is_transient()
                    && !matches!(error, ServerError::Unanswered) =>
            {
                drop(current);
                let fresh = self.pool.connect()?;
                let rows = run_query(&fresh, true, sql, values)?;
                *session = Some(fresh);
                self.has_begun.set(true);
                Ok(rows)
            }
            Err(error) => Err(error.into()),
        }
    }
}

fn run_query(
    session: &ServerSession,
    begins: bool,
    sql: &str,
    values: &[Param<'_>],
) -> Result<Rows, ServerError> {
    let params = values.iter().map(|value| value as &(dyn ToSql + Sync)).collect();
    let calls = [ServerCall { sql, params }];
    let results = session.run_pipelined(begins.then_some(BEGIN), &calls, None)?;
    results.into_iter().try_fold(Rows::new(), |_, result| result)
}

impl Drop for PostgresReader<'_> {
    fn drop(&mut self) {
        let session = self.session.borrow_mut().take();
        if let (Some(session), true) = (&session, self.has_begun.get()) {
            session.send_without_waiting("COMMIT");
        }
        self.pool.return_session(session);
    }
}

impl ReadTables for PostgresReader<'_> {
    fn select_rows(
        &self,
        select: &'static Select,
        values: &[Param<'_>],
        keep: Keep<'_>,
    ) -> StoreResult<()> {
        self.query_rows(select.sql(), values, keep)
    }

    fn query_rows(&self, sql: &str, values: &[Param<'_>], keep: Keep<'_>) -> StoreResult<()> {
        pass_rows(&self.fetch_rows(sql, values)?, keep)
    }
}

/// Hands over the rows of a response.
pub(super) fn pass_rows(rows: &Rows, keep: Keep<'_>) -> StoreResult<()> {
    rows.iter().try_for_each(|row| keep(row))
}

/// A text as it may be stored: this server takes every character but one.
pub(super) fn storable_text(text: &str) -> std::borrow::Cow<'_, str> {
    match text.contains('\0') {
        true => text.replace('\0', "\u{fffd}").into(),
        false => text.into(),
    }
}

impl ToSql for Param<'_> {
    fn to_sql(
        &self,
        kind: &Type,
        out: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn std::error::Error + Sync + Send>> {
        match self {
            Self::Text(text) => storable_text(text).as_ref().to_sql(kind, out),
            Self::Bytes(bytes) => bytes.to_sql(kind, out),
            Self::Integer(number) => number.to_sql(kind, out),
        }
    }

    fn accepts(kind: &Type) -> bool {
        [Type::TEXT, Type::BYTEA, Type::INT8].contains(kind)
    }

    to_sql_checked!();
}

impl Row for tokio_postgres::Row {
    fn text(&self, column: usize) -> StoreResult<&str> {
        self.try_get(column).map_err(column_type_error)
    }

    fn bytes(&self, column: usize) -> StoreResult<&[u8]> {
        self.try_get(column).map_err(column_type_error)
    }

    fn integer(&self, column: usize) -> StoreResult<i64> {
        self.try_get(column).map_err(column_type_error)
    }

    fn value(&self, column: usize) -> StoreResult<Option<Value>> {
        let kind = self.columns().get(column).map(|column| column.type_().clone());
        let value = match kind {
            Some(Type::BYTEA) => {
                self.try_get::<_, Option<Vec<u8>>>(column).map(|it| it.map(Value::Bytes))
            }
            Some(Type::INT8) => {
                self.try_get::<_, Option<i64>>(column).map(|it| it.map(Value::Integer))
            }
            _ => self.try_get::<_, Option<String>>(column).map(|it| it.map(Value::Text)),
        };
        value.map_err(column_type_error)
    }
}

fn column_type_error(_: tokio_postgres::Error) -> StoreError {
    StoreError::Inconsistent("a column has another type")
}
