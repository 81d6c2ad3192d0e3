//! Copies from one engine to the other, and back.

use std::path::Path;

use ginnel_service::{Error, copy_store};
use ginnel_store::{CopiedTable, DatabaseLocation, Store, StoreError};

use super::{Note, note, put};
use crate::engines;
use crate::service::support::Folder;

fn file(path: &Path) -> DatabaseLocation {
    DatabaseLocation::File(path.to_owned())
}

/// A new, empty database on the server.
fn server() -> DatabaseLocation {
    DatabaseLocation::Server(Box::new(engines::new_database()))
}

/// A file with more rows than are copied at once, and with all that a column may hold.
async fn filled(path: &Path) {
    let store = Store::open(Some(path)).unwrap();
    let filling = store.write(|change| -> Result<(), StoreError> {
        for number in 0..1203 {
            change.put_document(&note(number))?;
            change.replace_references(&note(number).id, "role", ["target", "\u{fffd}ther"])?;
        }
        change.put_token("note_001", &[0, 255, 39, 92], "owner")?;
        change.claim_key("space", "'; DROP TABLE claims; --", "note_001")?;
        change.store_setting("odd", "\u{1f600}\\x00 ?1 $1\n")
    });
    filling.await.unwrap();
    store.close();
}

fn rows(copied: &[CopiedTable], table: &str) -> u64 {
    copied.iter().find(|it| it.name == table).unwrap().rows
}

fn tables(place: &DatabaseLocation) -> usize {
    match place {
        DatabaseLocation::File(path) => usize::from(path.exists()),
        DatabaseLocation::Server(options) => {
            let name = options.to_string();
            let name = name.rsplit('/').next().unwrap();
            let sql =
                "SELECT count(*) FROM information_schema.tables WHERE table_schema = 'ginnel'";
            engines::server().psql(name, sql).parse().unwrap()
        }
    }
}

#[tokio::test]
async fn a_copy_there_and_back_is_equal() {
    let folder = Folder::new();
    let (original, there, back) = (file(&folder.file("db")), server(), file(&folder.file("back")));
    filled(&folder.file("db")).await;

    let first = copy_store(&original, &there).unwrap();
    let second = copy_store(&there, &back).unwrap();
    let third = copy_store(&back, &file(&folder.file("third"))).unwrap();

    assert_eq!(first, second);
    assert_eq!(first, third);
    assert_eq!(rows(&first, "resources"), 1203);
    assert_eq!(rows(&first, "links"), 2406);
    let (one, other) = (original.open().unwrap(), back.open().unwrap());
    let content = |store: &Store| {
        let read = store.read_blocking(|view| {
            let notes: Vec<Note> = view.document_page(None, 2000)?;
            let referrers = view.referrers("target", "role")?;
            Ok::<_, StoreError>((
                notes,
                referrers,
                view.find_token("note_001")?,
                view.find_setting("odd")?,
            ))
        });
        read.unwrap()
    };
    assert_eq!(content(&one), content(&other));
    assert_eq!(content(&one), content(&there.open().unwrap()));
}

#[tokio::test]
async fn identifiers_of_the_copy_are_larger_than_those_copied() {
    let folder = Folder::new();
    let there = server();
    let store = Store::open(Some(&folder.file("db"))).unwrap();
    // As of a clock that was set back since.
    let future = "note_Z00000000000000000000000000".to_owned();
    put(&store, Note { id: future.clone(), text: String::new() }).await;
    drop(store);

    copy_store(&file(&folder.file("db")), &there).unwrap();

    let store = there.open().unwrap();
    let next = store.write(|change| change.new_id("note")).await.unwrap();
    assert!(next > future, "{next}");
}

#[tokio::test]
async fn a_target_that_is_not_empty_is_left_as_it_is() {
    let folder = Folder::new();
    let (original, there) = (file(&folder.file("db")), server());
    filled(&folder.file("db")).await;
    put(&Store::open(Some(&folder.file("other"))).unwrap(), note(7)).await;
    copy_store(&file(&folder.file("other")), &there).unwrap();

    for target in [file(&folder.file("other")), there] {
        let refused = copy_store(&original, &target);

        let is_expected =
            matches!(refused, Err(Error::Store(StoreError::NotEmpty(_) | StoreError::Exists(_))));
        assert!(is_expected, "{refused:?}");
        let kept = target.open().unwrap();
        let kept: Vec<Note> = kept.read_blocking(|view| view.document_page(None, 9)).unwrap();
        assert_eq!(kept, [note(7)]);
    }
}

#[tokio::test]
async fn a_copy_that_fails_leaves_nothing() {
    let folder = Folder::new();
    let path = folder.file("db");
    filled(&path).await;
    let damaged = rusqlite::Connection::open(&path).unwrap();
    // The tables are strict, but for who says otherwise: the copy meets it after hundreds of rows.
    damaged
        .execute_batch(
            "PRAGMA writable_schema = ON;
         UPDATE sqlite_schema SET sql = replace(sql, 'STRICT, ', '') WHERE name = 'resources';",
        )
        .unwrap();
    drop(damaged);
    let damaged = rusqlite::Connection::open(&path).unwrap();
    damaged.execute("INSERT INTO resources VALUES ('zzz', 'zzz_1', x'00ff')", ()).unwrap();
    drop(damaged);

    for target in [server(), file(&folder.file("copy"))] {
        let failed = copy_store(&file(&path), &target);

        assert!(failed.is_err(), "{failed:?}");
        assert_eq!(tables(&target), 0);
    }
    let left: Vec<_> = std::fs::read_dir(folder.file("."))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.starts_with("copy") && name != "copy-lock")
        .collect();
    assert_eq!(left, Vec::<String>::new());
}

#[tokio::test]
async fn a_file_that_a_service_holds_is_not_copied() {
    let folder = Folder::new();
    filled(&folder.file("db")).await;
    let held = Store::open(Some(&folder.file("db"))).unwrap();
    let there = server();

    let refused = copy_store(&file(&folder.file("db")), &there);

    assert!(matches!(refused, Err(Error::Store(StoreError::Locked(_)))), "{refused:?}");
    assert_eq!(tables(&there), 0);
    held.close();
}

#[tokio::test]
async fn a_source_that_is_not_there_is_not_made() {
    let folder = Folder::new();
    for source in [file(&folder.file("db")), server()] {
        let refused = copy_store(&source, &file(&folder.file("copy")));

        assert!(matches!(refused, Err(Error::Store(StoreError::Missing(_)))), "{refused:?}");
        assert_eq!((tables(&source), folder.file("copy").exists()), (0, false));
    }
}
