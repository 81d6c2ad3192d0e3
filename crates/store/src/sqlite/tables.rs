//! Rows in SQLite.

use std::cell::RefCell;

use rusqlite::ToSql;
use rusqlite::types::{ToSqlOutput, ValueRef};

use ginnel_base::logging::or_debug;

use super::database::{Database, execute_statement};
use crate::batch_error::BatchError;
use crate::schema::Table;
use crate::select::Select;
use crate::tables::{Keep, Param, ReadTables, Row, Value, WriteTables};
use crate::{StoreError, StoreResult, View};

/// How much a result may hold before it is compared with the size of the database.
const UNCHECKED_RESULT_BYTES: u64 = 1 << 20;
/// What a row takes in a file at least, apart from its values.
const MIN_ROW_BYTES: u64 = 4;

/// The tables of a database, in the transaction that is open.
pub(super) struct SqliteTables<'connection> {
    database: &'connection Database,
    /// Why a statement failed, where the storage was the reason.
    failure: RefCell<Option<BatchError>>,
}

/// Reads from one state of the database.
pub(super) fn run_read(database: &Database, work: &mut dyn FnMut(&View<'_>)) -> StoreResult<()> {
    execute_statement(database, "BEGIN")?;
    let _end = EndOfRead(database);
    work(&View::from_tables(&SqliteTables::from_database(database)));
    Ok(())
}

/// Ends a transaction that only reads, also when the reader panics.
struct EndOfRead<'connection>(&'connection Database);

impl Drop for EndOfRead<'_> {
    fn drop(&mut self) {
        // It has nothing to lose.
        or_debug!(execute_statement(self.0, "COMMIT"), "cannot end a read");
    }
}

impl<'connection> SqliteTables<'connection> {
    pub(super) fn from_database(database: &'connection Database) -> Self {
        Self { database, failure: RefCell::default() }
    }

    /// Why a statement failed, where the storage was the reason.
    pub(super) fn into_failure(self) -> Option<BatchError> {
        self.failure.into_inner()
    }

    fn execute_sql(&self, sql: &str, values: &[Param<'_>]) -> StoreResult<()> {
        self.database.start_timeout();
        let run =
            |mut it: rusqlite::CachedStatement<'_>| it.execute(rusqlite::params_from_iter(values));
        let done = self.database.prepare_cached(sql).and_then(run);
        done.map(drop).map_err(StoreError::from).inspect_err(|error| self.record_failure(error))
    }

    fn record_failure(&self, error: &StoreError) {
        if let Some(fault) = error.fault() {
            let problem = error.to_string();
            self.failure.replace(Some(BatchError { fault: Some(fault), problem, file: None }));
        }
    }

    /// How many bytes the database has.
    fn database_size(&self) -> StoreResult<u64> {
        let number = |sql: &str| -> Result<i64, rusqlite::Error> {
            self.database.start_timeout();
            self.database.prepare_cached(sql)?.query_row((), |row| row.get(0))
        };
        let size = number("PRAGMA page_count")?.saturating_mul(number("PRAGMA page_size")?);
        Ok(u64::try_from(size).unwrap_or(0))
    }
}

impl ReadTables for SqliteTables<'_> {
    fn select_rows(
        &self,
        select: &'static Select,
        values: &[Param<'_>],
        keep: Keep<'_>,
    ) -> StoreResult<()> {
        self.query_rows(select.sql(), values, keep)
    }

    fn query_rows(&self, sql: &str, values: &[Param<'_>], keep: Keep<'_>) -> StoreResult<()> {
        let mut size = ResultSize::for_tables(self);
        self.database.start_timeout();
        let mut query = self.database.prepare_cached(sql)?;
        let columns = query.column_count();
        let mut rows = query.query(rusqlite::params_from_iter(values))?;
        while let Some(row) = rows.next()? {
            size.add_row(row, columns)?;
            keep(row)?;
        }
        Ok(())
    }
}

impl WriteTables for SqliteTables<'_> {
    fn put_row(&self, table: &'static Table, row: &[Param<'_>]) -> StoreResult<()> {
        self.execute_sql(&put_sql(table), row)
    }

    fn delete_rows(
        &self,
        table: &'static Table,
        by: &'static [&'static str],
        values: &[Param<'_>],
    ) -> StoreResult<()> {
        let conditions: Vec<_> = by.iter().map(|name| format!(" AND {name} = ?")).collect();
        self.execute_sql(
            &format!("DELETE FROM {} WHERE TRUE{}", table.name, conditions.concat()),
            values,
        )
    }
}

/// Stores a row in place of the one with its key.
fn put_sql(table: &Table) -> String {
    let names: Vec<_> = table.column_names().collect();
    let places = vec!["?"; names.len()].join(", ");
    let values = names.iter().filter(|name| !table.key.contains(name));
    let updates: Vec<_> = values.map(|name| format!("{name} = excluded.{name}")).collect();
    let conflict = match updates.as_slice() {
        [] => "NOTHING".to_owned(),
        updates => format!("UPDATE SET {}", updates.join(", ")),
    };
    let (name, names) = (table.name, names.join(", "));
    format!("INSERT INTO {name} ({names}) VALUES ({places}) ON CONFLICT DO {conflict}")
}

impl ToSql for Param<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self {
            Self::Text(text) => ValueRef::Text(text.as_bytes()),
            Self::Bytes(bytes) => ValueRef::Blob(bytes),
            Self::Integer(number) => ValueRef::Integer(*number),
        }))
    }
}

impl Row for rusqlite::Row<'_> {
    fn text(&self, column: usize) -> StoreResult<&str> {
        Ok(self.get_ref(column)?.as_str().map_err(rusqlite::Error::from)?)
    }

    fn bytes(&self, column: usize) -> StoreResult<&[u8]> {
        Ok(self.get_ref(column)?.as_blob().map_err(rusqlite::Error::from)?)
    }

    fn integer(&self, column: usize) -> StoreResult<i64> {
        Ok(self.get(column)?)
    }

    fn value(&self, column: usize) -> StoreResult<Option<Value>> {
        Ok(match self.get_ref(column)? {
            ValueRef::Null => None,
            ValueRef::Integer(number) => Some(Value::Integer(number)),
            ValueRef::Text(_) => Some(Value::Text(self.text(column)?.to_owned())),
            ValueRef::Blob(bytes) => Some(Value::Bytes(bytes.to_owned())),
            ValueRef::Real(_) => return Err(StoreError::Inconsistent("a column holds a fraction")),
        })
    }
}

/// How much a result holds; a whole database never gives more than it has bytes.
struct ResultSize<'tables> {
    tables: &'tables SqliteTables<'tables>,
    bytes: u64,
    /// How many bytes there may be; looked up again when there are more.
    limit: u64,
}

impl<'tables> ResultSize<'tables> {
    fn for_tables(tables: &'tables SqliteTables<'tables>) -> Self {
        Self { tables, bytes: 0, limit: UNCHECKED_RESULT_BYTES }
    }

    fn add_row(&mut self, row: &rusqlite::Row<'_>, columns: usize) -> StoreResult<()> {
        self.bytes += MIN_ROW_BYTES;
        for column in 0..columns {
            self.bytes += bytes_of(row.get_ref(column)?);
        }
        if self.bytes > self.limit {
            self.limit = self.tables.database_size()?;
        }
        if self.bytes > self.limit {
            return Err(StoreError::Inconsistent(
                "a table has more rows than the file has room for",
            ));
        }
        Ok(())
    }
}

fn bytes_of(value: ValueRef<'_>) -> u64 {
    match value {
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => bytes.len() as u64,
        ValueRef::Null | ValueRef::Integer(_) | ValueRef::Real(_) => 0,
    }
}

#[cfg(test)]
mod tests {
    use rusqlite::Connection;

    use super::*;
    use crate::StorageFault;

    /// A table without an end, as a damaged one may be.
    const ENDLESS: &str = "WITH RECURSIVE endless (text) AS (
        SELECT 'once more' UNION ALL SELECT text FROM endless) SELECT text FROM endless";

    fn texts(database: &Database, sql: &str) -> StoreResult<Vec<String>> {
        let mut found = Vec::new();
        SqliteTables::from_database(database).query_rows(sql, &[], &mut |row| {
            found.push(row.text(0)?.to_owned());
            Ok(())
        })?;
        Ok(found)
    }

    #[test]
    fn a_result_is_no_larger_than_the_database() {
        let database = Database::new(Connection::open_in_memory().unwrap()).unwrap();

        let found = texts(&database, ENDLESS);

        assert!(matches!(found, Err(StoreError::Inconsistent(_))));
    }

    #[test]
    fn a_statement_ends_in_time() {
        let database = Database::new(Connection::open_in_memory().unwrap()).unwrap();
        database.expire();

        let counted = database.query_row(&format!("SELECT count(*) FROM ({ENDLESS})"), (), |row| {
            row.get::<_, i64>(0)
        });

        assert_eq!(StoreError::from(counted.unwrap_err()).fault(), Some(StorageFault::Timeout));
        assert_eq!(texts(&database, "SELECT 'in time'").unwrap(), ["in time"]);
    }
}
