//! Brings a database of SQLite to the newest schema: all at once, or not at all.

use std::path::{Path, PathBuf};

use chrono::Utc;
use rusqlite::Connection;

use ginnel_base::files;

use super::copy::Overwrite;
use super::target;
use crate::schema::{self, ColumnType, Index, MIGRATIONS, Migration, SchemaChange, Table};
use crate::{StoreError, StoreResult};

/// Marks a file as ours: "ginl".
pub(super) const APPLICATION_ID: i64 = 0x6769_6e6c;

/// Brings a database of some schema, 0 for an empty one, to the newest.
pub(super) fn migrate_schema(connection: &Connection, schema: i64) -> StoreResult<()> {
    apply_migrations(connection, schema, MIGRATIONS)
}

/// True when a migration is about to change a database that holds something.
pub(super) fn needs_migration(schema: i64) -> bool {
    schema != 0 && schema != schema::NEWEST
}

/// Refuses what is not ours or too new; gives the schema.
pub(crate) fn check_owner(connection: &Connection, path: &Path) -> StoreResult<i64> {
    let number = |name: &str| connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
    let found = number("user_version")?;
    let application = number("application_id")?;
    let empty = !connection.prepare("SELECT 1 FROM sqlite_schema")?.exists(())?;
    if application != APPLICATION_ID && !(application == 0 && found == 0 && empty) {
        return Err(StoreError::Foreign(path.to_owned()));
    }
    if !(0..=schema::NEWEST).contains(&found) {
        return Err(StoreError::Newer { path: path.to_owned(), found, known: schema::NEWEST });
    }
    Ok(found)
}

/// Copies a database that a migration is about to change to a file beside it.
///
/// # Errors
/// When there is no verified copy; the database must not be changed then.
pub(super) fn back_up(source: &Connection, path: &Path, schema: i64) -> StoreResult<()> {
    // One that was made in this second is of a start that was killed before it changed anything.
    let copy = backup_path(path, schema);
    let written = target::write_copy(source, &copy, Overwrite::Yes);
    let report = written.map_err(|error| StoreError::MigrationBackup {
        path: copy.clone(),
        source: Box::new(error),
    })?;
    let (bytes, newest) = (report.bytes, schema::NEWEST);
    let copy = copy.display();
    tracing::warn!(bytes, "{copy} keeps the database as it was before schema {newest}");
    Ok(())
}

/// Where the copy is that is made before a migration: the name says which schema it has and when it
/// was made, in UTC.
fn backup_path(path: &Path, schema: i64) -> PathBuf {
    let now = Utc::now().format("%Y%m%dT%H%M%SZ");
    files::with_suffix(path, &format!("-schema-{schema}-{now}.backup"))
}

fn apply_migrations(
    connection: &Connection,
    schema: i64,
    migrations: &[Migration],
) -> StoreResult<()> {
    let newest = migrations.last().map_or(0, |migration| migration.number);
    if schema == newest {
        return Ok(());
    }
    let transaction = connection.unchecked_transaction()?;
    for migration in migrations.iter().filter(|migration| migration.number > schema) {
        for change in migration.changes {
            transaction.execute_batch(&change_sql(change))?;
        }
    }
    transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
    transaction.pragma_update(None, "user_version", newest)?;
    transaction.commit()?;
    Ok(())
}

/// A change in the words of SQLite.
fn change_sql(change: &SchemaChange) -> String {
    match change {
        SchemaChange::CreateTable(Table { name, columns, key }) => {
            let columns =
                columns.iter().map(|(name, kind)| format!("{name} {} NOT NULL, ", sql_type(*kind)));
            let (columns, key) = (columns.collect::<String>(), key.join(", "));
            format!("CREATE TABLE {name} ({columns}PRIMARY KEY ({key})) STRICT, WITHOUT ROWID")
        }
        SchemaChange::CreateIndex(Index { name, table, columns }) => {
            format!("CREATE INDEX {name} ON {table} ({})", columns.join(", "))
        }
    }
}

fn sql_type(kind: ColumnType) -> &'static str {
    match kind {
        ColumnType::Text => "TEXT",
        ColumnType::Bytes => "BLOB",
        ColumnType::Integer => "INTEGER",
    }
}

#[cfg(test)]
mod tests {
    use super::SchemaChange::CreateTable;
    use super::*;
    use crate::schema::ColumnType::Text;

    const NOTES: Table = Table { name: "notes", columns: &[("id", Text)], key: &["id"] };
    const MARKS: Table = Table { name: "marks", columns: &[("id", Text)], key: &["id"] };

    fn schema_of(connection: &Connection) -> (i64, Vec<String>) {
        let number = connection.pragma_query_value(None, "user_version", |row| row.get(0)).unwrap();
        let mut query = connection.prepare("SELECT name FROM sqlite_schema ORDER BY name").unwrap();
        let names = query.query_map((), |row| row.get(0)).unwrap();
        (number, names.collect::<Result<_, _>>().unwrap())
    }

    #[test]
    fn migrations_that_are_missing_are_applied_at_once() {
        let connection = Connection::open_in_memory().unwrap();
        let first = Migration { number: 1, changes: &[CreateTable(NOTES)] };
        apply_migrations(&connection, 0, &[first]).unwrap();
        connection.execute("INSERT INTO notes VALUES ('kept')", ()).unwrap();

        let second = Migration { number: 2, changes: &[CreateTable(MARKS)] };
        apply_migrations(&connection, 1, &[first, second]).unwrap();

        assert_eq!(schema_of(&connection), (2, vec!["marks".to_owned(), "notes".to_owned()]));
        let kept: String =
            connection.query_row("SELECT id FROM notes", (), |row| row.get(0)).unwrap();
        assert_eq!(kept, "kept");
    }

    #[test]
    fn a_migration_that_fails_leaves_nothing_of_itself_or_of_those_before() {
        let connection = Connection::open_in_memory().unwrap();
        let first = Migration { number: 1, changes: &[CreateTable(NOTES)] };
        apply_migrations(&connection, 0, &[first]).unwrap();

        let second = Migration { number: 2, changes: &[CreateTable(MARKS)] };
        let broken = Migration { number: 3, changes: &[CreateTable(NOTES)] };
        let applied = apply_migrations(&connection, 1, &[first, second, broken]);

        assert!(applied.is_err());
        assert_eq!(schema_of(&connection), (1, vec!["notes".to_owned()]));
    }

    #[test]
    fn the_tables_of_a_new_database_are_those_of_the_migrations() {
        let connection = Connection::open_in_memory().unwrap();

        migrate_schema(&connection, 0).unwrap();

        let (number, names) = schema_of(&connection);
        assert_eq!(number, schema::NEWEST);
        for table in schema::tables_of(schema::NEWEST) {
            assert!(names.contains(&table.name.to_owned()), "{}", table.name);
        }
    }
}
