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
        change.link(&note.id, "role", ["target"])?;
        change.claim("space", &note.id, &note.id)?;
        change.put_token(&note.id, &[0, 255, number as u8], "owner")?;
        change.set("last", &note.id)?;
        change.put(&note)
    });
    change.await.unwrap();
}

/// All that the database holds, as its readers see it.
fn content(store: &Store) -> String {
    let all = store.read_blocking(|view| {
        let notes: Vec<Note> = view.page(None, 99)?;
        let ids: Vec<String> = notes.iter().map(|note| note.id.clone()).collect();
        let tokens: Result<Vec<_>, _> = ids.iter().map(|id| view.token(id)).collect();
        let claims = view.claims("space")?;
        let links = view.referrers("target", "role")?;
        Ok::<_, StoreError>(format!(
            "{notes:?} {:?} {claims} {links:?} {:?}",
            tokens?,
            view.setting("last")?
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
            (content(&store), store.read_blocking(|view| view.snapshot()).unwrap());

        fill(&store, 3).await;
        store.write(|change| change.remove::<Note>("note_001")).await.unwrap();
        assert_ne!(content(&store), before);
        let earlier = snapshot.clone();
        store.write(move |change| change.restore(&earlier)).await.unwrap();
        assert_eq!(content(&store), before);

        // Twice is as good as once.
        store.write(move |change| change.restore(&snapshot)).await.unwrap();
        assert_eq!(content(&store), before);
    }
}

async fn watchers_hear_of_documents_from_before_and_after(engine: Engine) {
    let store = engine.store();
    fill(&store, 1).await;
    let snapshot = store.read_blocking(|view| view.snapshot()).unwrap();
    store.write(|change| change.remove::<Note>("note_001")).await.unwrap();
    fill(&store, 2).await;
    let heard: Arc<Mutex<Vec<String>>> = Arc::default();
    let log = heard.clone();
    store.watch(move |changed| log.lock().unwrap().extend(ids(changed)));

    store.write(move |change| change.restore(&snapshot)).await.unwrap();

    assert_eq!(*heard.lock().unwrap(), ["note_002", "note_001"]);
}
