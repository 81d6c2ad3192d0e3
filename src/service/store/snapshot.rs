//! A whole database as it was at one moment, to return to.

use rusqlite::types::Value;

use super::schema::{self, Table};
use super::{StoreError, Transaction, View};

/// The table of the documents; its second column is the identifier.
const DOCUMENTS: &str = "resources";

/// A whole database as it was at one moment: the rows of each table.
#[derive(Clone)]
pub struct Snapshot(Vec<(&'static Table, Vec<Vec<Value>>)>);

impl View<'_> {
    /// Everything that the database holds.
    pub fn snapshot(&self) -> Result<Snapshot, StoreError> {
        let rows = schema::tables_of(schema::NEWEST)
            .map(|table| Ok((table, self.rows(table.name, table.columns.len())?)));
        Ok(Snapshot(rows.collect::<Result<_, StoreError>>()?))
    }
}

impl Transaction<'_> {
    /// Makes the database hold what it held at the moment of the snapshot, and nothing else.
    pub fn restore(&self, snapshot: &Snapshot) -> Result<(), StoreError> {
        for (table, rows) in &snapshot.0 {
            if table.name == DOCUMENTS {
                self.note_documents(&self.rows(table.name, table.columns.len())?);
                self.note_documents(rows);
            }
            self.replace_rows(table, rows)?;
        }
        Ok(())
    }

    fn replace_rows(&self, table: &Table, rows: &[Vec<Value>]) -> Result<(), StoreError> {
        self.execute(&format!("DELETE FROM {}", table.name), ())?;
        let places = vec!["?"; table.columns.len()].join(", ");
        let insert = format!("INSERT INTO {} VALUES ({places})", table.name);
        for row in rows {
            self.execute(&insert, rusqlite::params_from_iter(row))?;
        }
        Ok(())
    }

    fn note_documents(&self, rows: &[Vec<Value>]) {
        for row in rows {
            if let Some(Value::Text(id)) = row.get(1) {
                self.note_change(id);
            }
        }
    }
}
