//! All rows of a database for another one, whatever their engines, and the proof that both are equal.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use sha2::{Digest, Sha256};

use ginnel_base::hex;

use super::schema::{self, Table};
use super::sqlite::STATE;
use super::tables::{Param, Value};
use super::{Store, StoreError, StoreResult, Transaction, View};

/// How many rows are copied at once.
const ROWS_AT_ONCE: usize = 500;

/// What was copied of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopiedTable {
    /// Its name.
    pub name: &'static str,
    /// How many rows it has.
    pub rows: u64,
    /// SHA-256 of its rows in the order of their keys, in hexadecimal digits.
    pub digest: String,
}

/// What is not copied.
#[derive(Debug, Default, Clone, Copy)]
pub struct LeftOut<'a> {
    /// Set when the rest is not wanted any more.
    pub interrupted: Option<&'a AtomicBool>,
    /// Settings with these names.
    pub settings: &'a [&'a str],
    /// Documents of these kinds.
    pub kinds: &'a [&'a str],
    /// Links in these roles.
    pub roles: &'a [&'a str],
    /// Claims in these spaces.
    pub spaces: &'a [&'a str],
}

impl LeftOut<'_> {
    fn includes_row(&self, table: &Table, row: &TableRow) -> bool {
        let (column, names) = match table.name {
            name if name == schema::META.name => ("name", self.settings),
            name if name == schema::RESOURCES.name => ("kind", self.kinds),
            name if name == schema::LINKS.name => ("role", self.roles),
            name if name == schema::CLAIMS.name => ("space", self.spaces),
            _ => return false,
        };
        let value = table.column_position(column).and_then(|at| row.get(at));
        matches!(value, Some(Value::Text(name)) if names.contains(&name.as_str()))
    }
}

/// The values of a row, in the order of the columns of its table.
type TableRow = Vec<Value>;

impl Transaction<'_> {
    /// Stores all rows that another database holds at one moment, and reads them again; all but those in
    /// `left_out`, and the settings that an engine keeps for itself.
    ///
    /// # Errors
    /// When this database is not empty, what is read again differs, or one of the two fails.
    pub fn copy_from(
        &self,
        source: &Store,
        left_out: &LeftOut<'_>,
    ) -> StoreResult<Vec<CopiedTable>> {
        let own = LeftOut { settings: &[STATE], ..LeftOut::default() };
        let is_copied = |table: &Table, row: &TableRow| {
            !left_out.includes_row(table, row) && !own.includes_row(table, row)
        };
        let tables = || schema::tables_of(schema::NEWEST);
        let copied: Vec<_> = source.read_blocking(|view| {
            let copy = |table| {
                let is_copied = |row: &TableRow| is_copied(table, row);
                self.copy_table(view, table, (is_copied, left_out.interrupted))
            };
            tables().map(copy).collect::<StoreResult<_>>()
        })?;
        for (table, original) in tables().zip(&copied) {
            let mut digest = TableDigest::default();
            self.each_page(table, |rows| {
                rows.iter().for_each(|row| digest.add_row(row));
                Ok(())
            })?;
            if digest.into_copied_table(table) != *original {
                return Err(StoreError::CopyDiffers(table.name));
            }
        }
        Ok(copied)
    }

    fn copy_table(
        &self,
        source: &View<'_>,
        table: &'static Table,
        (is_copied, interrupted): (impl Fn(&TableRow) -> bool, Option<&AtomicBool>),
    ) -> StoreResult<CopiedTable> {
        let mut digest = TableDigest::default();
        source.each_page(table, |rows| {
            if interrupted.is_some_and(|it| it.load(Relaxed)) {
                return Err(StoreError::Interrupted);
            }
            for row in rows.into_iter().filter(&is_copied) {
                self.continue_ids_after(table, &row);
                self.tables.put_row(table, &row.iter().map(Value::as_param).collect::<Vec<_>>())?;
                digest.add_row(&row);
            }
            self.tables.flush()
        })?;
        Ok(digest.into_copied_table(table))
    }

    /// Has the identifiers that are made later be larger than that of a row.
    fn continue_ids_after(&self, table: &Table, row: &[Value]) {
        if let Some(Value::Text(id)) = table.column_position("id").and_then(|at| row.get(at)) {
            self.ids.continue_after(id);
        }
    }
}

impl View<'_> {
    /// True when no table has a row.
    pub fn is_empty(&self) -> StoreResult<bool> {
        let mut found = false;
        for table in schema::tables_of(schema::NEWEST) {
            let sql = format!("SELECT 1 FROM {} LIMIT 1", table.name);
            self.query_rows(&sql, &[], &mut |_| {
                found = true;
                Ok(())
            })?;
        }
        Ok(!found)
    }

    /// Hands over the rows of a table, some at a time, in the order of their keys.
    fn each_page(
        &self,
        table: &Table,
        mut keep: impl FnMut(Vec<TableRow>) -> StoreResult<()>,
    ) -> StoreResult<()> {
        let mut last: Option<TableRow> = None;
        loop {
            let rows = self.page_after(table, last.as_ref())?;
            let is_last = rows.len() < ROWS_AT_ONCE;
            last = rows.last().cloned();
            keep(rows)?;
            if is_last {
                return Ok(());
            }
        }
    }

    fn page_after(&self, table: &Table, last: Option<&TableRow>) -> StoreResult<Vec<TableRow>> {
        let key = table.key.iter().filter_map(|name| table.column_position(name));
        let values: Vec<Param<'_>> = match last {
            Some(last) => key.filter_map(|at| last.get(at)).map(Value::as_param).collect(),
            None => Vec::new(),
        };
        let width = table.columns.len();
        let mut rows: Vec<TableRow> = Vec::new();
        self.query_rows(&page_sql(table, last.is_some()), &values, &mut |row| {
            let values = (0..width).filter_map(|at| row.value(at).transpose());
            rows.push(values.collect::<Result<_, _>>()?);
            Ok(())
        })?;
        Ok(rows)
    }
}

/// Rows in the order of the key; the first ones, or those after a key.
fn page_sql(table: &Table, is_later: bool) -> String {
    let (columns, key) =
        (table.column_names().collect::<Vec<_>>().join(", "), table.key.join(", "));
    let places: Vec<_> = (1..=table.key.len()).map(|at| format!("?{at}")).collect();
    let after = match is_later {
        true => format!(" WHERE ({key}) > ({})", places.join(", ")),
        false => String::new(),
    };
    format!("SELECT {columns} FROM {}{after} ORDER BY {key} LIMIT {ROWS_AT_ONCE}", table.name)
}

/// What tells whether two tables have the same rows.
#[derive(Default)]
struct TableDigest {
    rows: u64,
    hash: Sha256,
}

impl TableDigest {
    fn add_row(&mut self, row: &[Value]) {
        self.rows += 1;
        for value in row {
            match value {
                // PostgreSQL cannot hold this character, and stores another one in its place.
                Value::Text(text) => self.add_bytes(text.replace('\0', "\u{fffd}").as_bytes()),
                Value::Bytes(bytes) => self.add_bytes(bytes),
                Value::Integer(number) => self.add_bytes(&number.to_be_bytes()),
            }
        }
    }

    /// The length first, so that no two rows are the same bytes.
    fn add_bytes(&mut self, bytes: &[u8]) {
        self.hash.update((bytes.len() as u64).to_be_bytes());
        self.hash.update(bytes);
    }

    fn into_copied_table(self, table: &Table) -> CopiedTable {
        CopiedTable { name: table.name, rows: self.rows, digest: hex(self.hash.finalize()) }
    }
}
