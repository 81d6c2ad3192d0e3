//! What an engine offers: the rows of tables, to read and to change.
//!
//! What is read and changed is said in the words of `schema` and `select`, so an engine need not have a
//! statement of its own for any kind of row. What cannot be said so is SQL that all engines understand.

use super::StoreResult;
use super::schema::Table;
use super::select::Select;

/// A value of a column.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Value {
    Text(String),
    Bytes(Vec<u8>),
    Integer(i64),
}

/// A value that a statement is run with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Param<'a> {
    Text(&'a str),
    Bytes(&'a [u8]),
    Integer(i64),
}

impl Value {
    pub(super) fn as_param(&self) -> Param<'_> {
        match self {
            Self::Text(text) => Param::Text(text),
            Self::Bytes(bytes) => Param::Bytes(bytes),
            Self::Integer(number) => Param::Integer(*number),
        }
    }
}

impl From<Param<'_>> for Value {
    fn from(param: Param<'_>) -> Self {
        match param {
            Param::Text(text) => Self::Text(text.to_owned()),
            Param::Bytes(bytes) => Self::Bytes(bytes.to_owned()),
            Param::Integer(number) => Self::Integer(number),
        }
    }
}

/// A row that was read; its columns are counted from 0.
pub(super) trait Row {
    fn text(&self, column: usize) -> StoreResult<&str>;
    fn bytes(&self, column: usize) -> StoreResult<&[u8]>;
    fn integer(&self, column: usize) -> StoreResult<i64>;
    /// None where the column is empty, which only the result of a calculation can be.
    fn value(&self, column: usize) -> StoreResult<Option<Value>>;
}

/// Gets the rows of a result, one after the other; must not use the tables meanwhile.
pub(super) type Keep<'a> = &'a mut dyn FnMut(&dyn Row) -> StoreResult<()>;

/// Rows of one consistent state.
pub(super) trait ReadTables {
    /// Hands over the rows with these values.
    fn select_rows(
        &self,
        select: &'static Select,
        values: &[Param<'_>],
        keep: Keep<'_>,
    ) -> StoreResult<()>;

    /// Hands over the result of a query; its parameters are `?1` and so on.
    fn query_rows(&self, sql: &str, values: &[Param<'_>], keep: Keep<'_>) -> StoreResult<()>;

    /// Whether queries have results here: a change that needs one may have to be made again.
    fn answers_queries(&self) -> bool {
        true
    }
}

/// Rows that can be changed.
pub(super) trait WriteTables: ReadTables {
    /// Stores a row, in place of the one with its key if there is one.
    fn put_row(&self, table: &'static Table, row: &[Param<'_>]) -> StoreResult<()>;

    /// Removes the rows with these values in these columns.
    fn delete_rows(
        &self,
        table: &'static Table,
        by: &'static [&'static str],
        values: &[Param<'_>],
    ) -> StoreResult<()>;

    /// Hands what was put so far to the engine, where it is collected before.
    fn flush(&self) -> StoreResult<()> {
        Ok(())
    }

    /// Hears of an identifier that was made by this change, and that no row has yet.
    fn record_new_id(&self, _id: &str) {}
}
