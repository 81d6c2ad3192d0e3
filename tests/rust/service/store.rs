//! The store on its own: what it keeps, and which files it leaves alone.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use ginnel_api::Origin;
use ginnel_store::{Changes, Document, MissingLog, StorageFault, Store, StoreError};

use rusqlite::Connection;
use serde::{Deserialize, Serialize};

use super::support::Folder;
use crate::engines::{Engine, on_each_engine};

on_each_engine!(a_failed_change_leaves_nothing_behind,);

mod copy;
mod migrations;
mod postgres;
mod postgres_tls;
mod snapshot;
mod transaction;
mod view;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Note {
    id: String,
    text: String,
}

impl Document for Note {
    const PREFIX: &'static str = "note";

    fn id(&self) -> &str {
        &self.id
    }
}

/// The identifiers of what has changed, which is known here.
fn ids(changes: &Changes) -> Vec<String> {
    match changes {
        Changes::Of(ids) => ids.clone(),
        Changes::All => panic!("nobody knows what has changed"),
    }
}

fn note(number: u32) -> Note {
    Note { id: format!("note_{number:03}"), text: "hello".to_owned() }
}

async fn put(store: &Store, note: Note) {
    store.write(move |change| change.put_document(&note)).await.unwrap();
}

fn filled(folder: &Folder) -> PathBuf {
    let path = folder.file("db");
    let store = Store::open(Some(&path)).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        for number in 0..200 {
            put(&store, note(number)).await;
        }
    });
    store.close();
    path
}

/// Tries to open a file that must be left alone; gives the error.
fn refused(path: &Path) -> StoreError {
    let before = fs::read(path).unwrap_or_default();
    let Err(error) = Store::open(Some(path)) else { panic!("{} was opened", path.display()) };
    assert_eq!(fs::read(path).unwrap_or_default(), before, "the file was touched");
    assert!(!error.to_string().contains('\n'), "{error}");
    error
}

#[tokio::test]
async fn documents_links_and_claims_are_kept_and_go_together() {
    for path in [None, Some(Folder::new())] {
        let file = path.as_ref().map(|folder| folder.file("db"));
        let store = Store::open(file.as_deref()).unwrap();
        put(&store, note(1)).await;
        store
            .write(|change| -> Result<(), StoreError> {
                assert!(change.claim_key("space", "key", "note_001")?);
                assert!(!change.claim_key("space", "key", "note_002")?);
                change.replace_references("note_001", "role", ["other_1", "other_2"])
            })
            .await
            .unwrap();

        let (found, referrers) = store
            .read_blocking(|view| -> Result<_, StoreError> {
                Ok((view.find_document::<Note>("note_001")?, view.referrers("other_1", "role")?))
            })
            .unwrap();
        let removed =
            store.write(|change| change.remove_document::<Note>("note_001")).await.unwrap();
        let left = store
            .read_blocking(|view| -> Result<_, StoreError> {
                Ok((view.claimant("space", "key")?, view.referrers("other_1", "role")?))
            })
            .unwrap();

        assert_eq!(found, Some(note(1)));
        assert_eq!(referrers, ["note_001"]);
        assert!(removed);
        assert_eq!(left, (None, Vec::new()));
    }
}

async fn a_failed_change_leaves_nothing_behind(engine: Engine) {
    let store = engine.store();

    let failed = store
        .write(|change| -> Result<(), StoreError> {
            change.put_document(&note(1))?;
            Err(StoreError::Closed)
        })
        .await;

    assert!(failed.is_err());
    assert_eq!(store.read_blocking(|view| view.find_document::<Note>("note_001")).unwrap(), None);
}

#[tokio::test]
async fn a_closed_store_says_so() {
    for folder in [None, Some(Folder::new())] {
        let file = folder.as_ref().map(|folder| folder.file("db"));
        let store = Store::open(file.as_deref()).unwrap();
        store.close();

        assert!(matches!(store.write(|c| c.put_document(&note(1))).await, Err(StoreError::Closed)));
        assert!(matches!(
            store.read_blocking(|view| view.find_document::<Note>("x")),
            Err(StoreError::Closed)
        ));
    }
}

#[test]
fn what_was_answered_survives_an_end_without_closing() {
    let folder = Folder::new();
    let (path, copy) = (folder.file("db"), folder.file("copy"));
    let store = Store::open(Some(&path)).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(put(&store, note(1)));

    // What a process that is killed now leaves behind.
    for end in ["", "-wal"] {
        fs::copy(folder.file(&format!("db{end}")), folder.file(&format!("copy{end}"))).unwrap();
    }
    let copy = Store::open(Some(&copy)).unwrap();

    assert_eq!(
        copy.read_blocking(|view| view.find_document::<Note>("note_001")).unwrap(),
        Some(note(1))
    );
}

#[test]
fn a_new_database_is_for_its_owner_alone() {
    let folder = Folder::new();

    let path = filled(&folder);

    assert_eq!(fs::metadata(path).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn a_file_of_something_else_is_refused() {
    let folder = Folder::new();
    let (text, short, empty) = (folder.file("text"), folder.file("short"), folder.file("empty"));
    fs::write(&text, "hello ".repeat(1000)).unwrap();
    fs::write(&short, "SQLite format 3\0").unwrap();
    fs::write(&empty, "").unwrap();

    assert!(matches!(refused(&text), StoreError::NotADatabase(_)));
    assert!(matches!(refused(&short), StoreError::Damaged { .. }));
    assert!(matches!(refused(&folder.path), StoreError::NotAFile(_)));
    assert!(matches!(refused(&folder.file("no/db")), StoreError::MissingDirectory(_)));
    assert!(matches!(refused(&text.join("db")), StoreError::MissingDirectory(_)));
    assert!(Store::open(Some(&empty)).is_ok(), "an empty file is a new database");
}

#[test]
fn a_database_of_another_program_is_refused() {
    let folder = Folder::new();
    let (plain, marked) = (folder.file("plain"), folder.file("marked"));
    Connection::open(&plain).unwrap().execute_batch("CREATE TABLE t (a)").unwrap();
    let other = Connection::open(&marked).unwrap();
    other.pragma_update(None, "application_id", 7).unwrap();
    drop(other);

    assert!(matches!(refused(&plain), StoreError::Foreign(_)));
    assert!(matches!(refused(&marked), StoreError::Foreign(_)));
}

#[test]
fn a_newer_database_is_refused() {
    let folder = Folder::new();
    let path = filled(&folder);
    Connection::open(&path).unwrap().pragma_update(None, "user_version", 99).unwrap();

    assert!(matches!(refused(&path), StoreError::Newer { found: 99, .. }));
}

#[test]
fn a_damaged_database_is_refused() {
    let folder = Folder::new();
    let path = filled(&folder);
    let whole = fs::read(&path).unwrap();
    let mut garbled = whole.clone();
    let middle = garbled.len() / 2;
    garbled[middle..middle + 6000].fill(0x5a);

    for (name, bytes) in [("garbled", &garbled[..]), ("cut", &whole[..whole.len() / 2])] {
        let path = folder.file(name);
        fs::write(&path, bytes).unwrap();
        let error = refused(&path);
        assert!(matches!(error, StoreError::Damaged { .. }), "{name}: {error}");
    }
}

#[test]
fn a_database_in_use_is_refused() {
    let folder = Folder::new();
    let path = filled(&folder);

    let first = Store::open(Some(&path)).unwrap();
    assert!(matches!(refused(&path), StoreError::Locked(_)));
    first.close();
    drop(first);
    let other = Connection::open(&path).unwrap();
    other.execute_batch("PRAGMA locking_mode = EXCLUSIVE; BEGIN IMMEDIATE; COMMIT").unwrap();
    assert!(matches!(refused(&path), StoreError::Locked(_)));
    drop(other);

    assert!(Store::open(Some(&path)).is_ok());
}

#[test]
fn a_read_only_database_is_refused() {
    let folder = Folder::new();
    let path = filled(&folder);
    let mode = |path: &Path, mode| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    };

    mode(&path, 0o444);
    assert!(matches!(refused(&path), StoreError::ReadOnly(_)));
    mode(&path, 0o644);
    mode(&folder.path, 0o555);
    assert!(matches!(refused(&path), StoreError::ReadOnlyDirectory(_)));
    mode(&folder.path, 0o755);

    assert!(Store::open(Some(&path)).is_ok());
}

/// A document of 64 KiB.
fn big(number: u32) -> Note {
    Note { id: format!("note_{number:05}"), text: "x".repeat(64 << 10) }
}

fn log_size(path: &Path) -> u64 {
    fs::metadata(path.with_file_name("db-wal")).unwrap().len()
}

#[test]
fn the_log_shrinks_when_a_reader_of_another_program_has_left() {
    let folder = Folder::new();
    let path = filled(&folder);
    let store = Store::open(Some(&path)).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let reader = Connection::open(&path).unwrap();
    reader.execute_batch("BEGIN; SELECT count(*) FROM resources").unwrap();
    reader.query_row("SELECT count(*) FROM resources", (), |_| Ok(())).unwrap();

    runtime.block_on(async {
        for number in 0..400 {
            put(&store, big(number)).await;
        }
    });
    let held = log_size(&path);
    reader.execute_batch("COMMIT").unwrap();
    runtime.block_on(async {
        for number in 400..800 {
            put(&store, big(number)).await;
        }
    });
    let left = log_size(&path);
    drop(reader);
    store.close();

    assert!(left < 8 << 20, "{left}");
    assert!(held > 24 << 20, "the reader holds the log: {held}");
    assert!(!path.with_file_name("db-wal").exists());
}

#[test]
fn readers_that_follow_each_other_do_not_hold_the_log() {
    let folder = Folder::new();
    let path = filled(&folder);
    let store = Store::open(Some(&path)).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let done = std::sync::atomic::AtomicBool::new(false);
    let mut largest = 0;

    std::thread::scope(|scope| {
        for _ in 0..3 {
            // There is always one that reads: each begins before another ends.
            scope.spawn(|| {
                while !done.load(std::sync::atomic::Ordering::Relaxed) {
                    let read = store.read_blocking(|view| {
                        std::thread::sleep(std::time::Duration::from_millis(5));
                        view.find_document::<Note>("note_001")
                    });
                    assert!(read.unwrap().is_some());
                }
            });
        }
        runtime.block_on(async {
            for number in 0..800 {
                put(&store, big(number)).await;
                largest = largest.max(log_size(&path));
            }
        });
        done.store(true, std::sync::atomic::Ordering::Relaxed);
    });

    assert!(largest < 24 << 20, "{largest}");
    assert!(log_size(&path) < 20 << 20);
}

#[tokio::test]
async fn what_cannot_be_stored_says_why() {
    let folder = Folder::new();
    let path = folder.file("db");
    let store = Store::open(Some(&path)).unwrap();
    put(&store, note(1)).await;
    fs::rename(&path, folder.file("elsewhere")).unwrap();

    let written = store.write(|change| change.put_document(&note(900))).await;

    let error = written.unwrap_err();
    assert_eq!(error.fault(), Some(StorageFault::Detached));
    assert!(error.to_string().ends_with("the file of the database is gone"), "{error}");
    let mut health = store.health_events();
    fs::rename(folder.file("elsewhere"), &path).unwrap();
    put(&store, note(901)).await;
    assert_eq!(health.next().await.unwrap(), "changes are stored again");
    fs::remove_file(&path).unwrap();
    assert!(store.write(|change| change.put_document(&note(902))).await.is_err());
    assert!(health.next().await.unwrap().contains(&path.display().to_string()));
    assert!(store.is_read_only());
    assert!(store.read_blocking(|view| view.find_document::<Note>("note_001")).unwrap().is_some());
}

#[test]
fn a_database_is_whole_before_it_has_its_name() {
    let folder = Folder::new();
    let path = folder.file("db");

    let failed = Store::open_filled(Some(&path), Origin::default(), MissingLog::Refuse, |change| {
        assert!(!path.exists());
        change.put_document(&note(1))?;
        Err(StoreError::Closed)
    });
    assert!(matches!(failed, Err(StoreError::Closed)));
    assert_eq!(fs::read_dir(&folder.path).unwrap().count(), 1, "the file of the lock alone");
    fs::write(folder.file("db-unfinished"), "of a process that was killed").unwrap();
    let store = Store::open_filled(Some(&path), Origin::default(), MissingLog::Refuse, |change| {
        change.put_document(&note(2))
    });
    let store = store.unwrap();

    assert_eq!(store.read_blocking(|view| view.find_document::<Note>("note_001")).unwrap(), None);
    assert_eq!(
        store.read_blocking(|view| view.find_document::<Note>("note_002")).unwrap(),
        Some(note(2))
    );
    assert!(!folder.file("db-unfinished").exists());
}
