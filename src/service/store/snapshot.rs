//! A whole database as it was at one moment, to return to.

use rusqlite::types::Value;

use super::{StoreError, Transaction, View};

/// The tables with their columns; `resources` first, whose second column is the identifier.
const TABLES: &[(&str, usize)] =
    &[("resources", 3), ("links", 3), ("claims", 3), ("tokens", 3), ("meta", 2)];

/// A whole database as it was at one moment.
#[derive(Clone)]
pub struct Snapshot(Vec<Vec<Vec<Value>>>);

impl View<'_> {
    /// Everything that the database holds.
    pub fn snapshot(&self) -> Result<Snapshot, StoreError> {
        let rows = TABLES.iter().map(|(table, columns)| self.rows(table, *columns));
        Ok(Snapshot(rows.collect::<Result<_, _>>()?))
    }
}

impl Transaction<'_> {
    /// Makes the database hold what it held at the moment of the snapshot, and nothing else.
    pub fn restore(&self, snapshot: &Snapshot) -> Result<(), StoreError> {
        let before = self.rows("resources", 3)?;
        for ((table, columns), rows) in TABLES.iter().zip(&snapshot.0) {
            self.execute(&format!("DELETE FROM {table}"), ())?;
            let places = vec!["?"; *columns].join(", ");
            let insert = format!("INSERT INTO {table} VALUES ({places})");
            for row in rows {
                self.execute(&insert, rusqlite::params_from_iter(row))?;
            }
        }
        let after = snapshot.0.first().into_iter().flatten();
        for row in before.iter().chain(after) {
            if let Some(Value::Text(id)) = row.get(1) {
                self.note_change(id);
            }
        }
        Ok(())
    }
}
