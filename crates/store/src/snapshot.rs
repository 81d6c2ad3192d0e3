//! A whole database as it was at one moment, to return to.

use super::schema::{self, Table};
use super::tables::Value;
use super::{StoreError, Transaction, View};

/// The table of the documents; its second column is the identifier.
const DOCUMENTS: &str = "resources";

/// A whole database as it was at one moment: the rows of each table.
#[derive(Clone)]
pub struct Snapshot(Vec<(&'static Table, Vec<Vec<Value>>)>);

impl View<'_> {
    /// Everything that the database holds.
    pub fn snapshot(&self) -> Result<Snapshot, StoreError> {
        let rows = schema::tables_of(schema::NEWEST).map(|table| Ok((table, self.rows(table)?)));
        Ok(Snapshot(rows.collect::<Result<_, StoreError>>()?))
    }
}

impl Transaction<'_> {
    /// Makes the database hold what it held at the moment of the snapshot, and nothing else.
    pub fn restore(&self, snapshot: &Snapshot) -> Result<(), StoreError> {
        for (table, rows) in &snapshot.0 {
            if table.name == DOCUMENTS {
                self.note_documents(&self.rows(table)?);
                self.note_documents(rows);
            }
            self.replace_rows(table, rows)?;
        }
        Ok(())
    }

    fn replace_rows(&self, table: &'static Table, rows: &[Vec<Value>]) -> Result<(), StoreError> {
        self.tables.delete(table, &[], &[])?;
        rows.iter().try_for_each(|row| {
            self.tables.put(table, &row.iter().map(Value::as_param).collect::<Vec<_>>())
        })
    }

    fn note_documents(&self, rows: &[Vec<Value>]) {
        for row in rows {
            if let Some(Value::Text(id)) = row.get(1) {
                self.note_change(id);
            }
        }
    }
}
