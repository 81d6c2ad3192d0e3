//! The secrets that webhooks are signed with: kept apart from destinations, so that nothing can show them.

use std::iter;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde::{Deserialize, Serialize};

use ginnel_api::Secret;
use ginnel_api::id::prefix;
use ginnel_store::{Document, StoreResult, Transaction, View};

/// What stands before the base64 of a secret.
const SECRET_PREFIX: &str = "whsec_";
/// How many bytes a secret has, at least and at most.
const MIN_SECRET_BYTES: usize = 24;
const MAX_SECRET_BYTES: usize = 64;
/// How many a secret has that is made here.
const NEW_SECRET_BYTES: usize = 32;

/// How long a secret is signed with after it was replaced, in seconds: receivers have that long to learn the new
/// one.
const OVERLAP_SECONDS: i64 = 24 * 60 * 60;

/// The secret of a destination.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct DestinationSecret {
    id: String,
    secret: Secret,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    previous: Option<PreviousSecret>,
}

/// The secret that a destination had before.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct PreviousSecret {
    secret: Secret,
    /// The second of Unix until which events are signed with it as well.
    until: i64,
}

impl Document for DestinationSecret {
    const PREFIX: &'static str = prefix::EVENT_DESTINATION_SECRET;

    fn id(&self) -> &str {
        &self.id
    }
}

impl DestinationSecret {
    /// The secret of a destination, if it has one.
    pub fn find(view: &View<'_>, destination_id: &str) -> StoreResult<Option<Self>> {
        view.find_document(&secret_id(destination_id))
    }

    /// Gives a destination a secret, in place of the one that it has.
    pub fn store_rotated(
        change: &Transaction<'_>,
        destination_id: &str,
        secret: Secret,
    ) -> StoreResult<()> {
        let previous = match Self::find(change, destination_id)? {
            Some(stored) if stored.secret == secret => stored.previous,
            Some(stored) => {
                let now = change.now().unix_seconds().and_then(|now| i64::try_from(now).ok());
                let until = now.unwrap_or_default().saturating_add(OVERLAP_SECONDS);
                Some(PreviousSecret { secret: stored.secret, until })
            }
            None => None,
        };
        change.put_document(&Self { id: secret_id(destination_id), secret, previous })
    }

    /// Gives a destination a secret that is the only one.
    pub fn reset(
        change: &Transaction<'_>,
        destination_id: &str,
        secret: Secret,
    ) -> StoreResult<()> {
        change.put_document(&Self { id: secret_id(destination_id), secret, previous: None })
    }

    /// The secret, without the one before it.
    pub fn into_secret(self) -> Secret {
        self.secret
    }

    /// The secrets that events are signed with at a second of Unix, the newest first.
    pub(super) fn valid_at(&self, second: i64) -> impl Iterator<Item = &Secret> {
        let previous = self.previous.as_ref().filter(|previous| second < previous.until);
        iter::once(&self.secret).chain(previous.map(|previous| &previous.secret))
    }

    /// Removes the secret of a destination, if it has one.
    pub fn remove(change: &Transaction<'_>, destination_id: &str) -> StoreResult<()> {
        change.remove_document::<Self>(&secret_id(destination_id)).map(drop)
    }
}

fn secret_id(destination_id: &str) -> String {
    let part = destination_id.rsplit_once('_').map_or(destination_id, |(_, part)| part);
    format!("{}_{part}", prefix::EVENT_DESTINATION_SECRET)
}

/// The bytes that a secret stands for.
pub(super) fn key_of(secret: &Secret) -> Option<Vec<u8>> {
    let text = secret.0.strip_prefix(SECRET_PREFIX)?;
    let key = BASE64_STANDARD.decode(text).ok()?;
    (MIN_SECRET_BYTES..=MAX_SECRET_BYTES).contains(&key.len()).then_some(key)
}

/// What is wrong with a secret, for a sentence behind the name of the field.
pub(crate) fn check_secret(secret: &Secret) -> Result<(), String> {
    key_of(secret).map(drop).ok_or_else(|| {
        format!(
            "must be {SECRET_PREFIX} and base64 of {MIN_SECRET_BYTES} to {MAX_SECRET_BYTES} bytes"
        )
    })
}

/// A new secret.
pub(crate) fn new_secret() -> StoreResult<Secret> {
    let mut bytes = [0; NEW_SECRET_BYTES];
    getrandom::fill(&mut bytes)?;
    Ok(Secret(format!("{SECRET_PREFIX}{}", BASE64_STANDARD.encode(bytes))))
}

#[cfg(test)]
mod tests {
    use chrono::Utc;

    use super::*;
    use ginnel_store::Store;

    #[test]
    fn a_secret_that_was_replaced_is_signed_with_for_a_day() {
        let store = Store::open(None).unwrap();
        let put = |secret: &'static str| {
            let work = move |change: &Transaction<'_>| {
                DestinationSecret::store_rotated(change, "ed_1", Secret(secret.to_owned()))
            };
            tokio::runtime::Builder::new_current_thread()
                .build()
                .unwrap()
                .block_on(store.write(work))
                .unwrap();
        };
        let at = |seconds: i64| {
            let stored = store.read_blocking(|view| DestinationSecret::find(view, "ed_1"));
            let stored = stored.unwrap().unwrap();
            stored
                .valid_at(Utc::now().timestamp() + seconds)
                .map(|it| it.0.clone())
                .collect::<Vec<_>>()
        };

        put("one");
        assert_eq!(at(0), ["one"]);
        put("two");
        put("two");
        assert_eq!(at(OVERLAP_SECONDS - 60), ["two", "one"]);
        assert_eq!(at(OVERLAP_SECONDS + 60), ["two"]);
        put("three");
        assert_eq!(at(0), ["three", "two"], "one of them at most");
        let reset = |change: &Transaction<'_>| {
            DestinationSecret::reset(change, "ed_1", Secret("three".to_owned()))
        };
        tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap()
            .block_on(store.write(reset))
            .unwrap();
        assert_eq!(at(0), ["three"]);
    }

    #[test]
    fn a_secret_is_base64_of_enough_bytes_behind_its_prefix() {
        assert!(new_secret().is_ok_and(|secret| check_secret(&secret).is_ok()));
        let short = BASE64_STANDARD.encode([0; 23]);
        let long = BASE64_STANDARD.encode([0; 65]);
        for wrong in ["", "swordfish", "whsec_", "whsec_!", &format!("whsec_{short}"), &long] {
            assert!(check_secret(&Secret(wrong.to_owned())).is_err(), "{wrong}");
        }
    }
}
