//! By which names secrets are found, and which policies read them.

use ginnel_policy::secrets::SecretName;
use ginnel_store::{StoreResult, Transaction, View};

use crate::{Refusal, Result, code};

/// Where names of vaults are unique.
pub(crate) const VAULT_NAMES: &str = "vault_name";
/// Where names of secrets are unique, with [`secret_claim`].
pub(crate) const SECRET_NAMES: &str = "secret_name";
/// The role of a vault for its secrets.
pub(crate) const SECRETS_OF_VAULT: &str = "vault";
/// The fields with policies that may read secrets, and the role of what each reads.
const ROLES: [(&str, &str); 2] =
    [("policy", "secret_of_policy"), ("traffic_policy", "secret_of_traffic_policy")];

/// What a secret claims in its vault.
pub(crate) fn secret_claim(vault_id: &str, name: &str) -> String {
    format!("{vault_id}/{name}")
}

/// Notes which secrets the policy in a field of `holder` reads, in place of those before.
///
/// # Errors
/// When there is no such secret.
pub(crate) fn link_secrets(
    change: &Transaction<'_>,
    holder: &str,
    field: &str,
    names: &[SecretName],
) -> Result<()> {
    let Some((_, role)) = ROLES.iter().find(|(known, _)| *known == field) else { return Ok(()) };
    let mut ids = Vec::new();
    let mut missing = None;
    change.for_each(names, |name| {
        match find_secret(change, field, name)? {
            Ok(id) => ids.push(id),
            Err(message) => drop(missing.get_or_insert(message)),
        }
        Ok(())
    })?;
    if let Some(message) = missing {
        return Err(Refusal::new(code::POLICY_SECRET, message));
    }
    Ok(change.replace_references(holder, role, ids.iter().map(String::as_str))?)
}

/// The edges, routes and cloud endpoints whose policies read a secret.
pub(crate) fn secret_readers(view: &View<'_>, id: &str) -> StoreResult<Vec<String>> {
    let mut holders = Vec::new();
    for (_, role) in ROLES {
        holders.extend(view.referrers(id, role)?);
    }
    holders.sort();
    Ok(holders)
}

/// The identifier of a secret, or which part of its name leads nowhere.
fn find_secret(
    view: &View<'_>,
    field: &str,
    name: &SecretName,
) -> StoreResult<Result<String, String>> {
    let Some(vault) = view.claimant(VAULT_NAMES, &name.vault)? else {
        return Ok(Err(format!("{field}: {name}: there is no vault {:?}", name.vault)));
    };
    let secret = view.claimant(SECRET_NAMES, &secret_claim(&vault, &name.name))?;
    Ok(secret.ok_or_else(|| {
        format!("{field}: {name}: the vault {:?} has no secret {:?}", name.vault, name.name)
    }))
}
