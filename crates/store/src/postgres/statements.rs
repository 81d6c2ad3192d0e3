//! The statements that fetch and store the rows of many jobs at once.

use tokio_postgres::types::ToSql;

use super::overlay::{Layer, Lookup, LookupShape, TableRows};
use super::server::ServerCall;
use super::tables::storable_text;
use crate::schema::{ColumnType, Table};
use crate::tables::Value;
use crate::{StoreError, StoreResult};

/// The values of one column, of as many rows as there are.
pub(super) enum Column {
    Text(Vec<String>),
    Bytes(Vec<Vec<u8>>),
    Integer(Vec<i64>),
}

/// A statement with arrays for parameters.
pub(super) struct ArrayCall {
    pub sql: String,
    columns: Vec<Column>,
}

impl Column {
    fn for_type(kind: ColumnType) -> Self {
        match kind {
            ColumnType::Text => Self::Text(Vec::new()),
            ColumnType::Bytes => Self::Bytes(Vec::new()),
            ColumnType::Integer => Self::Integer(Vec::new()),
        }
    }

    fn push(&mut self, value: &Value) -> StoreResult<()> {
        match (self, value) {
            (Self::Text(texts), Value::Text(text)) => texts.push(storable_text(text).into_owned()),
            (Self::Bytes(all), Value::Bytes(bytes)) => all.push(bytes.clone()),
            (Self::Integer(numbers), Value::Integer(number)) => numbers.push(*number),
            _ => return Err(StoreError::Inconsistent("a value has another type than its column")),
        }
        Ok(())
    }

    fn as_param(&self) -> &(dyn ToSql + Sync) {
        match self {
            Self::Text(texts) => texts,
            Self::Bytes(all) => all,
            Self::Integer(numbers) => numbers,
        }
    }
}

impl ArrayCall {
    pub(super) fn call(&self) -> ServerCall<'_> {
        ServerCall { sql: &self.sql, params: self.columns.iter().map(Column::as_param).collect() }
    }
}

/// The values of rows by their columns.
fn collect_columns<'v>(
    table: &Table,
    names: &[&str],
    rows: impl IntoIterator<Item = &'v Vec<Value>>,
) -> StoreResult<Vec<Column>> {
    let kind_of = |name: &&str| {
        let column = table.columns.iter().find(|(known, _)| known == name);
        column.map_or(ColumnType::Text, |(_, kind)| *kind)
    };
    let mut columns: Vec<_> = names.iter().map(|name| Column::for_type(kind_of(name))).collect();
    for row in rows {
        for (column, value) in columns.iter_mut().zip(row) {
            column.push(value)?;
        }
    }
    Ok(columns)
}

/// What makes rows of arrays: `unnest(?1::text[], …)`.
fn unnest_sql(table: &Table, names: &[&str]) -> String {
    let places = names.iter().enumerate().map(|(at, name)| {
        let column = table.columns.iter().find(|(known, _)| known == name);
        format!("?{}::{}[]", at + 1, column.map_or("text", |(_, kind)| sql_type(*kind)))
    });
    format!("unnest({})", places.collect::<Vec<_>>().join(", "))
}

pub(super) fn sql_type(kind: ColumnType) -> &'static str {
    match kind {
        ColumnType::Text => "text",
        ColumnType::Bytes => "bytea",
        ColumnType::Integer => "bigint",
    }
}

/// Matches the columns `by` of a table `t` with those of `w`.
fn join_condition(by: &[&str]) -> String {
    let equal: Vec<_> = by.iter().map(|name| format!("t.{name} = w.{name}")).collect();
    equal.join(" AND ")
}

/// Stores what a layer says: what is removed first, for rows may be in the place of those.
pub(super) fn store_statements(layer: &Layer) -> StoreResult<Vec<ArrayCall>> {
    let removed = layer.removed.iter().map(|(shape, all)| delete_statement(shape, all));
    let rows =
        layer.rows.values().filter(|of_table| !of_table.rows.is_empty()).map(upsert_statement);
    removed.chain(rows).collect()
}

fn delete_statement<'v>(
    shape: &LookupShape,
    all: impl IntoIterator<Item = &'v Vec<Value>>,
) -> StoreResult<ArrayCall> {
    let LookupShape { table, by, .. } = shape;
    let name = table.name;
    if by.is_empty() {
        return Ok(ArrayCall { sql: format!("DELETE FROM {name}"), columns: Vec::new() });
    }
    let (rows, names, matches) = (unnest_sql(table, by), by.join(", "), join_condition(by));
    let sql = format!("DELETE FROM {name} AS t USING {rows} AS w({names}) WHERE {matches}");
    Ok(ArrayCall { sql, columns: collect_columns(table, by, all)? })
}

fn upsert_statement(TableRows { table, rows }: &TableRows) -> StoreResult<ArrayCall> {
    let names: Vec<_> = table.column_names().collect();
    let others = names.iter().filter(|name| !table.key.contains(name));
    let updates: Vec<_> = others.map(|name| format!("{name} = excluded.{name}")).collect();
    let conflict = match updates.as_slice() {
        [] => "NOTHING".to_owned(),
        updates => format!("UPDATE SET {}", updates.join(", ")),
    };
    let (name, key, all) = (table.name, table.key.join(", "), names.join(", "));
    let sql = format!(
        "INSERT INTO {name} ({all}) SELECT * FROM {} ON CONFLICT ({key}) DO {conflict}",
        unnest_sql(table, &names)
    );
    Ok(ArrayCall { sql, columns: collect_columns(table, &names, rows.values())? })
}

/// Fetches all that is looked up in the same way; a range is a statement of its own.
pub(super) fn fetch_statement(shape: &LookupShape, lookups: &[Lookup]) -> StoreResult<ArrayCall> {
    let LookupShape { table, by, range } = shape;
    let selected: Vec<_> = table.column_names().map(|name| format!("t.{name}")).collect();
    let (selected, name) = (selected.join(", "), table.name);
    let mut names = by.to_vec();
    let mut condition = join_condition(by);
    let mut aliases = names.join(", ");
    if let Some(range) = range {
        names.extend([*range, *range]);
        condition = format!("{condition} AND t.{range} >= w.range_from AND t.{range} < w.range_to");
        aliases = format!("{aliases}, range_from, range_to");
    }
    let rows = unnest_sql(table, &names);
    let sql =
        format!("SELECT {selected} FROM {rows} AS w({aliases}) JOIN {name} AS t ON {condition}");
    let columns = collect_columns(table, &names, lookups.iter().map(|lookup| &lookup.values))?;
    Ok(ArrayCall { sql, columns })
}
