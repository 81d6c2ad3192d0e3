//! Going back to an earlier state of a whole database.

use std::sync::{Arc, Mutex};

use ginnel_store::{Store, StoreError};

use super::{Note, ids, note};
use crate::engines::{Engine, on_each_engine};
use crate::service::support::Folder;

on_each_engine!(watchers_hear_of_documents_from_before_and_after,);

async fn fill(store: &Store, number: u32) {
    let change = store.write(move |change| {
        let note = note(number);
        change.replace_references(&note.id, "role", ["target"])?;
        change.claim_key("space", &note.id, &note.id)?;
        change.put_token(&note.id, &[0, 255, number as u8], "owner")?;
        change.store_setting("last", &note.id)?;
        change.put_document(&note)
    });
    change.await.unwrap();
}

/// All that the database holds, as its readers see it.
fn content(store: &Store) -> String {
    let all = store.read_blocking(|view| {
        let notes: Vec<Note> = view.document_page(None, 99)?;
        let ids: Vec<String> = notes.iter().map(|note| note.id.clone()).collect();
        let tokens: Result<Vec<_>, _> = ids.iter().map(|id| view.find_token(id)).collect();
        let claims = view.count_claims("space")?;
        let links = view.referrers("target", "role")?;
        Ok::<_, StoreError>(format!(
            "{notes:?} {:?} {claims} {links:?} {:?}",
            tokens?,
            view.find_setting("last")?
        ))
    });
    all.unwrap()
}

#[tokio::test]
async fn a_database_holds_what_it_held_and_nothing_else() {
    for folder in [None, Some(Folder::new())] {
        let path = folder.as_ref().map(|folder| folder.file("db"));
        let store = Store::open(path.as_deref()).unwrap();
        fill(&store, 1).await;
        fill(&store, 2).await;
        let (before, snapshot) =
            (content(&store), store.read_blocking(|view| view.take_snapshot()).unwrap());

        fill(&store, 3).await;
        store.write(|change| change.remove_document::<Note>("note_001")).await.unwrap();
        assert_ne!(content(&store), before);
        let earlier = snapshot.clone();
        store.write(move |change| change.restore_snapshot(&earlier)).await.unwrap();
        assert_eq!(content(&store), before);

        // Twice is as good as once.
        store.write(move |change| change.restore_snapshot(&snapshot)).await.unwrap();
        assert_eq!(content(&store), before);
    }
}

async fn watchers_hear_of_documents_from_before_and_after(engine: Engine) {
    let store = engine.store();
    fill(&store, 1).await;
    let snapshot = store.read_blocking(|view| view.take_snapshot()).unwrap();
    store.write(|change| change.remove_document::<Note>("note_001")).await.unwrap();
    fill(&store, 2).await;
    let heard: Arc<Mutex<Vec<String>>> = Arc::default();
    let log = heard.clone();
    store.watch_changes(move |changed| log.lock().unwrap().extend(ids(changed)));

    store.write(move |change| change.restore_snapshot(&snapshot)).await.unwrap();

    assert_eq!(*heard.lock().unwrap(), ["note_002", "note_001"]);
}
