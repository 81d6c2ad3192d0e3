//! Databases of every schema that there has been.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use ginnel_store::{Store, StoreError};

use rusqlite::Connection;

use super::super::support::Folder;

/// Files as the versions of each schema wrote them, each with the same few resources.
const STORES: &str = "tests/data/stores";

fn schema_of(path: &Path) -> i64 {
    let database = Connection::open(path).unwrap();
    database.pragma_query_value(None, "user_version", |row| row.get(0)).unwrap()
}

/// The tables and indexes, whatever the spaces between their words.
fn tables_of(path: &Path) -> Vec<String> {
    let database = Connection::open(path).unwrap();
    let sql = "SELECT name FROM sqlite_schema WHERE name NOT LIKE 'sqlite_%' ORDER BY name";
    let mut names = database.prepare(sql).unwrap();
    let names = names.query_map((), |row| row.get::<_, String>(0)).unwrap();
    let columns = names.map(|name| {
        let name = name.unwrap();
        let mut query = database.prepare(&format!("PRAGMA table_xinfo({name})")).unwrap();
        let columns = query.query_map((), |row| {
            Ok((row.get::<_, String>(1)?, row.get::<_, String>(2)?, row.get::<_, i64>(5)?))
        });
        format!("{name}: {:?}", columns.unwrap().collect::<Result<Vec<_>, _>>().unwrap())
    });
    columns.collect()
}

fn rows_of(path: &Path, table: &str) -> i64 {
    let database = Connection::open(path).unwrap();
    database.query_row(&format!("SELECT count(*) FROM {table}"), (), |row| row.get(0)).unwrap()
}

/// A copy of the file of a schema.
fn stored(folder: &Folder, schema: i64) -> PathBuf {
    let path = folder.file(&format!("schema-{schema}.db"));
    fs::copy(format!("{STORES}/schema-{schema}.sqlite"), &path).unwrap();
    path
}

/// The copies that were made before a migration.
fn backups(path: &Path) -> Vec<PathBuf> {
    let name = path.file_name().unwrap().to_str().unwrap();
    let files = fs::read_dir(path.parent().unwrap()).unwrap().map(|entry| entry.unwrap().path());
    let is_backup = |file: &PathBuf| {
        let file = file.file_name().unwrap().to_str().unwrap();
        file.starts_with(&format!("{name}-schema-"))
    };
    files.filter(is_backup).collect()
}

fn new_database(folder: &Folder) -> PathBuf {
    let path = folder.file("new.db");
    Store::open(Some(&path)).unwrap().close();
    path
}

#[test]
fn a_database_of_each_schema_is_brought_to_the_newest_and_keeps_its_content() {
    let folder = Folder::new();
    let new = new_database(&folder);
    let newest = schema_of(&new);

    let kept = fs::read_dir(STORES).unwrap().filter(|file| {
        let path = file.as_ref().unwrap().path();
        path.extension().is_some_and(|it| it == "sqlite")
    });
    let kept = kept.count() as i64;
    assert!(kept >= newest - 1, "keep a file of each schema before a migration is added");
    for schema in 1..=kept {
        let path = stored(&folder, schema);
        assert_eq!(schema_of(&path), schema);
        let rows = ["resources", "links", "claims", "tokens"].map(|table| rows_of(&path, table));
        assert_eq!(rows, [12, 7, 4, 4], "schema {schema}");

        Store::open(Some(&path)).unwrap().close();

        assert_eq!(schema_of(&path), newest);
        assert_eq!(tables_of(&path), tables_of(&new));
        let kept = ["resources", "links", "claims", "tokens"].map(|table| rows_of(&path, table));
        assert_eq!(kept, rows, "schema {schema}");
    }
}

#[test]
fn a_database_is_copied_before_it_is_migrated() {
    let folder = Folder::new();
    let path = stored(&folder, 1);
    let before = fs::read(&path).unwrap();

    Store::open(Some(&path)).unwrap().close();

    let [backup] = &backups(&path)[..] else { panic!("{:?}", backups(&path)) };
    let name = backup.file_name().unwrap().to_str().unwrap();
    assert!(name.starts_with("schema-1.db-schema-1-20") && name.ends_with("Z.backup"), "{name}");
    assert_eq!(fs::metadata(backup).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!((schema_of(backup), rows_of(backup, "resources")), (1, 12));
    assert_eq!(fs::read(backup).unwrap().len(), before.len());
    // It is one file, which opens like any other.
    assert!(!folder.file(&format!("{name}-wal")).exists());
    Store::open(Some(backup)).unwrap().close();
}

#[test]
fn a_database_of_the_newest_schema_is_not_copied() {
    let folder = Folder::new();
    let path = new_database(&folder);

    Store::open(Some(&path)).unwrap().close();

    assert_eq!(backups(&path), Vec::<PathBuf>::new());
}

#[test]
fn what_is_only_in_the_log_is_in_the_copy_and_migrated() {
    let folder = Folder::new();
    let path = stored(&folder, 1);
    let killed = folder.file("killed.db");
    let database = Connection::open(&path).unwrap();
    database.pragma_update(None, "journal_mode", "WAL").unwrap();
    database.execute("INSERT INTO meta VALUES ('late', 'in the log')", ()).unwrap();
    fs::copy(&path, &killed).unwrap();
    fs::copy(folder.file("schema-1.db-wal"), folder.file("killed.db-wal")).unwrap();

    Store::open(Some(&killed)).unwrap().close();

    let late = |path: &Path| {
        let sql = "SELECT value FROM meta WHERE name = 'late'";
        Connection::open(path).unwrap().query_row(sql, (), |row| row.get::<_, String>(0)).unwrap()
    };
    assert_eq!(late(&killed), "in the log");
    assert_eq!(late(&backups(&killed)[0]), "in the log");
}

#[test]
fn a_database_that_cannot_be_copied_is_not_migrated() {
    let folder = Folder::new();
    let path = stored(&folder, 1);
    let database = Connection::open(&path).unwrap();
    // An index that lacks a row is seen by the full check alone.
    database.execute_batch("PRAGMA writable_schema = ON").unwrap();
    let sql = "UPDATE sqlite_schema SET rootpage = (SELECT rootpage FROM sqlite_schema
               WHERE name = 'claims_owner') WHERE name = 'links_to'";
    database.execute(sql, ()).unwrap();
    drop(database);

    let Err(error) = Store::open(Some(&path)) else { panic!("it was opened") };

    assert!(
        matches!(error, StoreError::MigrationBackup { .. } | StoreError::Damaged { .. }),
        "{error}"
    );
    assert_eq!(schema_of(&path), 1);
    assert_eq!(backups(&path), Vec::<PathBuf>::new());
}

#[test]
fn a_database_of_a_newer_schema_is_refused_and_left_as_it_was() {
    let folder = Folder::new();
    let path = new_database(&folder);
    let newer = schema_of(&path) + 1;
    Connection::open(&path).unwrap().pragma_update(None, "user_version", newer).unwrap();
    let before = fs::read(&path).unwrap();

    let Err(error) = Store::open(Some(&path)) else { panic!("it was opened") };

    assert!(matches!(error, StoreError::Newer { found, .. } if found == newer), "{error}");
    assert_eq!(fs::read(&path).unwrap(), before);
    assert_eq!(backups(&path), Vec::<PathBuf>::new());
}
