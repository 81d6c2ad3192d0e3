//! The secrets that webhooks are signed with: kept apart from destinations, so that nothing can show them.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde::{Deserialize, Serialize};

use crate::api::Secret;
use crate::api::id::prefix;
use crate::service::store::{Document, StoreError, Transaction, View};

/// What stands before the base64 of a secret.
const SECRET_PREFIX: &str = "whsec_";
/// How many bytes a secret has, at least and at most.
const MIN_SECRET_BYTES: usize = 24;
const MAX_SECRET_BYTES: usize = 64;
/// How many a secret has that is made here.
const NEW_SECRET_BYTES: usize = 32;

/// The secret of a destination.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::service) struct DestinationSecret {
    id: String,
    secret: Secret,
}

impl Document for DestinationSecret {
    const PREFIX: &'static str = prefix::EVENT_DESTINATION_SECRET;

    fn id(&self) -> &str {
        &self.id
    }
}

impl DestinationSecret {
    /// The secret of a destination, if it has one.
    pub fn find(view: &View<'_>, destination_id: &str) -> Result<Option<Secret>, StoreError> {
        let stored = view.find::<Self>(&secret_id(destination_id))?;
        Ok(stored.map(|stored| stored.secret))
    }

    /// Gives a destination a secret, in place of the one that it has.
    pub fn put(
        change: &Transaction<'_>,
        destination_id: &str,
        secret: Secret,
    ) -> Result<(), StoreError> {
        change.put(&Self { id: secret_id(destination_id), secret })
    }

    /// Removes the secret of a destination, if it has one.
    pub fn remove(change: &Transaction<'_>, destination_id: &str) -> Result<(), StoreError> {
        change.remove::<Self>(&secret_id(destination_id)).map(drop)
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
pub(in crate::service) fn check_secret(secret: &Secret) -> Result<(), String> {
    key_of(secret).map(drop).ok_or_else(|| {
        format!(
            "must be {SECRET_PREFIX} and base64 of {MIN_SECRET_BYTES} to {MAX_SECRET_BYTES} bytes"
        )
    })
}

/// A new secret.
pub(in crate::service) fn new_secret() -> Result<Secret, StoreError> {
    let mut bytes = [0; NEW_SECRET_BYTES];
    getrandom::fill(&mut bytes)?;
    Ok(Secret(format!("{SECRET_PREFIX}{}", BASE64_STANDARD.encode(bytes))))
}

#[cfg(test)]
mod tests {
    use super::*;

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
