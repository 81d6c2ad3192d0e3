//! Changes of documents, links, claims, tokens and settings.

use std::sync::{Arc, Mutex};

use ginnel_store::{Store, StoreError, Transaction, View};

use super::{Note, ids, note};
use crate::engines::{Engine, on_each_engine};

on_each_engine!(
    a_document_takes_the_place_of_the_one_with_its_identifier,
    documents_of_different_kinds_do_not_meet,
    removing_takes_all_of_a_document_and_nothing_of_others,
    links_of_a_role_are_replaced_together,
    a_claim_is_held_by_one_until_it_is_released,
    a_token_is_stored_once,
    a_setting_keeps_the_last_value,
    identifiers_and_tokens_are_new_each_time,
    watchers_hear_of_what_was_stored_and_removed_and_of_nothing_else,
    a_watcher_that_panics_harms_neither_the_change_nor_the_next_watcher,
);

/// Another kind of document, with identifiers of its own.
#[derive(Debug, PartialEq, serde::Serialize, serde::Deserialize)]
struct Label(String);

impl ginnel_store::Document for Label {
    const PREFIX: &'static str = "label";

    fn id(&self) -> &str {
        &self.0
    }
}

/// Makes a change that succeeds.
async fn change<T: Send + 'static>(
    store: &Store,
    work: impl FnOnce(&Transaction<'_>) -> Result<T, StoreError> + Clone + Send + 'static,
) -> T {
    store.write(work).await.unwrap()
}

fn look<T>(store: &Store, work: impl FnOnce(&View<'_>) -> Result<T, StoreError>) -> T {
    store.read_blocking(work).unwrap()
}

async fn a_document_takes_the_place_of_the_one_with_its_identifier(engine: Engine) {
    let store = engine.store();

    change(&store, |change| change.put_document(&note(1))).await;
    change(&store, |change| {
        change.put_document(&Note { text: "changed".to_owned(), ..note(1) })?;
        assert_eq!(change.find_document::<Note>("note_001")?.unwrap().text, "changed");
        change.put_document(&note(2))
    })
    .await;

    let texts: Vec<_> = look(&store, |view| view.document_page::<Note>(None, 9))
        .into_iter()
        .map(|note| (note.id, note.text))
        .collect();
    let expected = [("note_002", "hello"), ("note_001", "changed")];
    assert_eq!(texts, expected.map(|(id, text)| (id.to_owned(), text.to_owned())));
}

async fn documents_of_different_kinds_do_not_meet(engine: Engine) {
    let store = engine.store();
    change(&store, |change| {
        change.put_document(&Label("note_001".to_owned()))?;
        change.put_document(&note(1))
    })
    .await;

    assert!(change(&store, |change| change.remove_document::<Label>("note_001")).await);

    assert_eq!(look(&store, |view| view.find_document::<Label>("note_001")), None);
    assert_eq!(look(&store, |view| view.find_document::<Note>("note_001")), Some(note(1)));
}

async fn removing_takes_all_of_a_document_and_nothing_of_others(engine: Engine) {
    let store = engine.store();
    change(&store, |change| {
        for id in ["note_001", "note_002"] {
            change.replace_references(id, "role", ["target"])?;
            assert!(change.claim_key("space", id, id)?);
            change.put_token(id, id.as_bytes(), "owner")?;
        }
        change.put_document(&note(1))?;
        change.put_document(&note(2))
    })
    .await;

    assert!(change(&store, |change| change.remove_document::<Note>("note_001")).await);
    assert!(!change(&store, |change| change.remove_document::<Note>("note_001")).await);

    let left = look(&store, |view| {
        assert_eq!(view.claimant("space", "note_001")?, None);
        assert_eq!(view.find_token("note_001")?, None);
        Ok((
            view.referrers("target", "role")?,
            view.claimant("space", "note_002")?,
            view.find_token("note_002")?.map(|token| (token.hash, token.owner_id)),
        ))
    });
    let other = "note_002".to_owned();
    let token = (other.clone().into_bytes(), "owner".to_owned());
    assert_eq!(left, (vec![other.clone()], Some(other), Some(token)));
}

async fn links_of_a_role_are_replaced_together(engine: Engine) {
    let store = engine.store();
    change(&store, |change| {
        change.replace_references("from", "role", ["a", "b", "b"])?;
        change.replace_references("from", "other role", ["a"])?;
        change.replace_references("other", "role", ["b"])?;
        change.replace_references("from", "role", ["b", "c"])
    })
    .await;

    let references = |from: &str, role: &str| {
        let mut found = look(&store, |view| view.references(from, role));
        found.sort();
        found
    };
    assert_eq!(references("from", "role"), ["b", "c"]);
    assert_eq!(references("from", "other role"), ["a"]);
    assert_eq!(look(&store, |view| view.referrers("b", "role")), ["other", "from"]);

    change(&store, |change| change.replace_references("from", "role", [])).await;
    assert_eq!(references("from", "role"), [""; 0]);
}

async fn a_claim_is_held_by_one_until_it_is_released(engine: Engine) {
    let store = engine.store();
    let claim = |key: &'static str, owner: &'static str| {
        change(&store, move |change| change.claim_key("space", key, owner))
    };
    assert!(claim("key", "one").await);
    assert!(claim("key", "one").await, "it is held by the same");
    assert!(!claim("key", "two").await);
    assert!(claim("key of two", "two").await);
    assert!(change(&store, |change| change.claim_key("other space", "key", "one")).await);
    assert_eq!(look(&store, |view| view.count_claims("space")), 2);

    change(&store, |change| change.release_claims("space", "one")).await;

    assert_eq!(look(&store, |view| view.count_claims("space")), 1);
    assert_eq!(
        look(&store, |view| view.claimant("other space", "key")).as_deref(),
        Some("one"),
        "only the claims of that space are released"
    );
    assert!(claim("key", "two").await);
}

async fn a_token_is_stored_once(engine: Engine) {
    let store = engine.store();
    change(&store, |change| change.put_token("ak_1", b"hash", "usr_1")).await;

    let again = store.write(|change| change.put_token("ak_1", b"other", "usr_2")).await;

    assert!(matches!(again, Err(StoreError::Duplicate(_))), "{again:?}");
    let token = look(&store, |view| view.find_token("ak_1")).unwrap();
    assert_eq!((token.hash.as_slice(), token.owner_id.as_str()), (&b"hash"[..], "usr_1"));
}

async fn a_setting_keeps_the_last_value(engine: Engine) {
    let store = engine.store();
    assert_eq!(look(&store, |view| view.find_setting("name")), None);

    for value in ["one", "two"] {
        change(&store, move |change| change.store_setting("name", value)).await;
    }

    assert_eq!(look(&store, |view| view.find_setting("name")).as_deref(), Some("two"));
}

async fn identifiers_and_tokens_are_new_each_time(engine: Engine) {
    let store = engine.store();

    let (ids, tokens) = change(&store, |change| {
        let ids = (0..50).map(|_| change.new_id("note")).collect::<Result<Vec<_>, _>>()?;
        let tokens = (0..2).map(|_| change.new_token(&ids[0])).collect::<Result<Vec<_>, _>>()?;
        Ok((ids, tokens))
    })
    .await;

    assert!(ids.is_sorted_by(|one, next| one < next), "{ids:?}");
    assert!(ids.iter().all(|id| id.starts_with("note_")));
    assert_ne!(tokens[0], tokens[1]);
}

async fn watchers_hear_of_what_was_stored_and_removed_and_of_nothing_else(engine: Engine) {
    let store = engine.store();
    let heard: Arc<Mutex<Vec<Vec<String>>>> = Arc::default();
    let log = heard.clone();
    store.watch_changes(move |changed| log.lock().unwrap().push(ids(changed)));
    let before = store.commit_count();

    change(&store, |change| {
        change.put_document(&note(1))?;
        change.put_document(&note(2))
    })
    .await;
    let refused = store.write(|change| {
        change.put_document(&note(3))?;
        Err::<(), _>(StoreError::Closed)
    });
    assert!(refused.await.is_err());
    change(&store, |change| change.store_setting("name", "value")).await;
    change(&store, |change| change.remove_document::<Note>("note_404")).await;
    change(&store, |change| change.remove_document::<Note>("note_001")).await;

    let expected = [&["note_001", "note_002"][..], &["note_001"]];
    assert_eq!(
        *heard.lock().unwrap(),
        expected.map(|ids| ids.iter().map(ToString::to_string).collect::<Vec<_>>())
    );
    assert_eq!(store.commit_count(), before + 5);
}

async fn a_watcher_that_panics_harms_neither_the_change_nor_the_next_watcher(engine: Engine) {
    let store = engine.store();
    let heard: Arc<Mutex<usize>> = Arc::default();
    let count = heard.clone();
    store.watch_changes(|_| std::panic::resume_unwind(Box::new("on purpose")));
    store.watch_changes(move |changed| *count.lock().unwrap() += ids(changed).len());

    change(&store, |change| change.put_document(&note(1))).await;
    change(&store, |change| change.put_document(&note(2))).await;

    assert_eq!(*heard.lock().unwrap(), 2);
    assert_eq!(look(&store, |view| view.find_document::<Note>("note_002")), Some(note(2)));
}
