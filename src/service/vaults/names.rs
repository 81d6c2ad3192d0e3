//! By which names secrets are found, and which policies read them.

use crate::policy::secrets::SecretName;
use crate::service::store::{StoreError, Transaction, View};
use crate::service::{Refusal, code};

/// Where names of vaults are unique.
pub(in crate::service) const VAULT_NAMES: &str = "vault_name";
/// Where names of secrets are unique, with [`secret_claim`].
pub(in crate::service) const SECRET_NAMES: &str = "secret_name";
/// The role of a vault for its secrets.
pub(in crate::service) const SECRETS_OF_VAULT: &str = "vault";
/// The fields with policies that may read secrets, and the role of what each reads.
const ROLES: [(&str, &str); 2] =
    [("policy", "secret_of_policy"), ("traffic_policy", "secret_of_traffic_policy")];

/// What a secret claims in its vault.
pub(in crate::service) fn secret_claim(vault_id: &str, name: &str) -> String {
    format!("{vault_id}/{name}")
}

/// Notes which secrets the policy in a field of `holder` reads, in place of those before.
///
/// # Errors
/// When there is no such secret.
pub(in crate::service) fn link(
    change: &Transaction<'_>,
    holder: &str,
    field: &str,
    names: &[SecretName],
) -> Result<(), Refusal> {
    let Some((_, role)) = ROLES.iter().find(|(known, _)| *known == field) else { return Ok(()) };
    let ids = names.iter().map(|name| find(change, field, name));
    let ids = ids.collect::<Result<Vec<_>, Refusal>>()?;
    Ok(change.link(holder, role, ids.iter().map(String::as_str))?)
}

/// The edges, routes and cloud endpoints whose policies read a secret.
pub(in crate::service) fn readers(view: &View<'_>, id: &str) -> Result<Vec<String>, StoreError> {
    let mut holders = Vec::new();
    for (_, role) in ROLES {
        holders.extend(view.referrers(id, role)?);
    }
    holders.sort();
    Ok(holders)
}

fn find(view: &View<'_>, field: &str, name: &SecretName) -> Result<String, Refusal> {
    let refused = |message| Err(Refusal::new(code::POLICY_SECRET, message));
    let Some(vault) = view.claimant(VAULT_NAMES, &name.vault)? else {
        return refused(format!("{field}: {name}: there is no vault {:?}", name.vault));
    };
    match view.claimant(SECRET_NAMES, &secret_claim(&vault, &name.name))? {
        Some(id) => Ok(id),
        None => refused(format!(
            "{field}: {name}: the vault {:?} has no secret {:?}",
            name.vault, name.name
        )),
    }
}
