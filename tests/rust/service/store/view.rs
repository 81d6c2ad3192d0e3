//! What is read from one state of the database.

use ginnel_store::{StorageFault, Store, StoreError};

use rusqlite::Connection;

use super::{Note, note, put};
use crate::engines::{Engine, on_each_engine};
use crate::service::support::Folder;

on_each_engine!(pages_go_from_the_newest_to_the_oldest, a_document_exists_under_its_own_kind,);

fn ids(notes: Vec<Note>) -> Vec<String> {
    notes.into_iter().map(|note| note.id).collect()
}

async fn pages_go_from_the_newest_to_the_oldest(engine: Engine) {
    let store = engine.store();
    for number in 1..=5 {
        put(&store, note(number)).await;
    }
    let page = |before: Option<&str>, limit| {
        ids(store.read_blocking(|view| view.document_page::<Note>(before, limit)).unwrap())
    };

    assert_eq!(page(None, 2), ["note_005", "note_004"]);
    assert_eq!(page(Some("note_004"), 2), ["note_003", "note_002"]);
    assert_eq!(page(Some("note_002"), 2), ["note_001"]);
    assert_eq!(page(Some("note_001"), 2), [""; 0]);
    assert_eq!(page(Some("note_0035"), 1), ["note_003"], "it need not be there");
    assert_eq!(page(None, 0), [""; 0]);
    assert_eq!(page(None, usize::MAX).len(), 5);
}

async fn a_document_exists_under_its_own_kind(engine: Engine) {
    let store = engine.store();
    put(&store, note(1)).await;
    let exists = |id: &str| store.read_blocking(|view| view.exists(id)).unwrap();

    assert!(exists("note_001"));
    for id in ["note_002", "label_001", "001", "note", "", "_"] {
        assert!(!exists(id), "{id:?}");
    }
}

#[tokio::test]
async fn a_read_sees_one_state_whatever_is_written_meanwhile() {
    let folder = Folder::new();
    let store = Store::open(Some(&folder.file("db"))).unwrap();
    put(&store, note(1)).await;
    let handle = tokio::runtime::Handle::current();

    std::thread::scope(|scope| {
        let read = scope.spawn(|| {
            store.read_blocking(|view| {
                let before = view.document_page::<Note>(None, 9)?.len();
                handle.block_on(put(&store, note(2)));
                Ok::<_, StoreError>((before, view.document_page::<Note>(None, 9)?.len()))
            })
        });
        assert_eq!(read.join().unwrap().unwrap(), (1, 1));
    });

    assert_eq!(store.read_blocking(|view| view.document_page::<Note>(None, 9)).unwrap().len(), 2);
}

#[test]
fn what_others_have_broken_is_named_as_damage() {
    type Fault = (&'static str, &'static str);
    let faults: [Fault; 4] = [
        ("no JSON", "UPDATE resources SET body = '{' WHERE id = 'note_001'"),
        ("other JSON", "UPDATE resources SET body = '[]' WHERE id = 'note_001'"),
        ("bytes", "UPDATE resources SET body = CAST(x'ff' AS TEXT) WHERE id = 'note_001'"),
        ("another identifier", "UPDATE resources SET body = '{\"id\": \"zzz\", \"text\": \"\"}'"),
    ];
    for (name, statement) in faults {
        let folder = Folder::new();
        let path = super::filled(&folder);
        Connection::open(&path).unwrap().execute_batch(statement).unwrap();
        let store = Store::open(Some(&path)).unwrap();

        let page = store.read_blocking(|view| view.document_page::<Note>(None, 1000));

        let fault = page.err().and_then(|error: StoreError| error.fault());
        assert_eq!(fault, Some(StorageFault::Damaged), "{name}");
    }
}
