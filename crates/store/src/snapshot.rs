//! A whole database as it was at one moment, to return to.

use super::schema::{self, Table};
use super::tables::Value;
use super::{StoreResult, Transaction, View};

/// The table of the documents; its second column is the identifier.
const DOCUMENTS: &str = "resources";

/// A whole database as it was at one moment: the rows of each table.
#[derive(Clone)]
pub struct Snapshot(Vec<(&'static Table, Vec<Vec<Value>>)>);

impl View<'_> {
    /// Everything that the database holds.
    pub fn take_snapshot(&self) -> StoreResult<Snapshot> {
        let rows =
            schema::tables_of(schema::NEWEST).map(|table| Ok((table, self.table_rows(table)?)));
        Ok(Snapshot(rows.collect::<StoreResult<_>>()?))
    }
}

impl Transaction<'_> {
    /// Makes the database hold what it held at the moment of the snapshot, and nothing else.
    pub fn restore_snapshot(&self, snapshot: &Snapshot) -> StoreResult<()> {
        for (table, rows) in &snapshot.0 {
            if table.name == DOCUMENTS {
                self.record_documents(&self.table_rows(table)?);
                self.record_documents(rows);
            }
            self.replace_rows(table, rows)?;
        }
        Ok(())
    }

    fn replace_rows(&self, table: &'static Table, rows: &[Vec<Value>]) -> StoreResult<()> {
        self.tables.delete_rows(table, &[], &[])?;
        rows.iter().try_for_each(|row| {
            self.tables.put_row(table, &row.iter().map(Value::as_param).collect::<Vec<_>>())
        })
    }

    fn record_documents(&self, rows: &[Vec<Value>]) {
        for row in rows {
            if let Some(Value::Text(id)) = row.get(1) {
                self.record_change(id);
            }
        }
    }
}
