//! Vaults: named once, and deleted with their secrets.

use ginnel_api::remote::vault_secrets::VaultSecret;
use ginnel_api::remote::vaults::{Create, Delete, Get, GetSecretsByVault, List, Update, Vault};
use ginnel_api::{Operation, Page};
use ginnel_policy::secrets::{NAME_LENGTH, is_name};

use crate::context::check_before;
use crate::handlers::prelude::*;
use crate::vaults::{SECRETS_OF_VAULT, StoredSecret, VAULT_NAMES, secret_readers};

/// How many secrets a page has by default.
const PAGE_ITEMS: usize = 100;
/// How many of those who read a secret a refusal names.
const MAX_NAMED_READERS: usize = 10;

impl StoredResource for Vault {
    fn locate(&mut self, base: &Base) {
        self.uri = base.of(&self.id);
    }

    fn remove(change: &Transaction<'_>, id: &str, call: &RemovalContext) -> Result<()> {
        let vault: Self = find_or_refuse(change, id)?;
        check_unread(change, &vault, "deleted")?;
        let secrets = change.referrers(id, SECRETS_OF_VAULT)?;
        change.for_each(&secrets, |id| change.remove_document::<StoredSecret>(id).map(drop))?;
        remove_or_refuse::<Self>(change, id)?;
        Ok(call.vault_key.forget_without_secrets(change)?)
    }
}

pub(super) fn handlers() -> Vec<Handler> {
    vec![
        on(create),
        list::<List>(),
        on(get_secrets_by_vault),
        get::<Get>(),
        on(update),
        delete::<Delete>(),
    ]
}

async fn create(service: Context, params: Create) -> OperationResult<Create> {
    check_name("name", &params.name)?;
    let caller = service.caller.owner_id.clone();
    let create = service.write_resource(move |change| {
        let now = change.now();
        let vault = Vault {
            id: change.new_id(prefix::VAULT)?,
            created_at: Some(now.clone()),
            updated_at: Some(now),
            name: Some(params.name),
            description: Some(params.description.unwrap_or_default()),
            metadata: Some(params.metadata.unwrap_or_default()),
            created_by: Some(caller.clone()),
            last_updated_by: Some(caller),
            ..Vault::default()
        };
        claim_name(change, &vault)?;
        stored(change, vault)
    });
    create.await
}

async fn get_secrets_by_vault(
    service: Context,
    params: GetSecretsByVault,
) -> OperationResult<GetSecretsByVault> {
    let GetSecretsByVault { id, before_id: before, limit } = params;
    check_before(before.as_deref(), prefix::VAULT_SECRET)?;
    let limit = limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(PAGE_ITEMS);
    let uri = service.shared.base.path_url(&format!("/vaults/{id}/secrets"));
    let read = service.read(move |view| {
        find_or_refuse::<Vault>(view, &id)?;
        let ids = view.referrers(&id, SECRETS_OF_VAULT)?.into_iter();
        let ids = ids.filter(|id| before.as_ref().is_none_or(|before| id < before));
        // One more than is shown tells whether there is a next page.
        let ids: Vec<_> = ids.take(limit + 1).collect();
        let mut secrets: Vec<VaultSecret> = view.find_documents(&ids)?;
        secrets.sort_by(|one, other| other.id.cmp(&one.id));
        Ok(secrets)
    });
    let mut secrets = read.await?;
    let has_more = secrets.len() > limit;
    secrets.truncate(limit);
    let items: Vec<_> = secrets.into_iter().map(|secret| service.with_addresses(secret)).collect();
    let last = items.last().filter(|_| has_more);
    let next_page_uri = last.map(|last| format!("{uri}?before_id={}&limit={limit}", last.id));
    let field = GetSecretsByVault::INFO.list_field().to_owned();
    Ok(Page { field, items, uri, next_page_uri, is_whole: false })
}

async fn update(service: Context, params: Update) -> OperationResult<Update> {
    params.name.as_deref().map_or(Ok(()), |name| check_name("name", name))?;
    let caller = service.caller.owner_id.clone();
    let update = service.write_resource(move |change| {
        let mut vault: Vault = find_or_refuse(change, &params.id)?;
        let renamed = params.name.filter(|name| vault.name.as_ref() != Some(name));
        if let Some(name) = renamed {
            check_unread(change, &vault, "renamed")?;
            vault.name = Some(name.clone());
            claim_name(change, &vault)?;
            for mut secret in secrets_of(change, &vault.id)? {
                secret.shown.vault_name = Some(name.clone());
                change.put_document(&secret)?;
            }
        }
        vault.description = params.description.or(vault.description);
        vault.metadata = params.metadata.or(vault.metadata);
        vault.updated_at = Some(change.now());
        vault.last_updated_by = Some(caller);
        stored(change, vault)
    });
    update.await
}

/// Refuses what would take a secret away from a policy.
fn check_unread(change: &Transaction<'_>, vault: &Vault, verb: &str) -> Result<()> {
    check_secrets_unread(change, &secrets_of(change, &vault.id)?, verb)
}

/// Refuses to take away the first of these secrets that a policy reads.
pub(super) fn check_secrets_unread(
    change: &Transaction<'_>,
    secrets: &[StoredSecret],
    verb: &str,
) -> Result<()> {
    let mut in_use = None;
    change.for_each(secrets, |secret| {
        let readers = secret_readers(change, &secret.shown.id)?;
        if in_use.is_none() && !readers.is_empty() {
            in_use = Some((secret.shown.clone(), readers));
        }
        Ok(())
    })?;
    let Some((secret, readers)) = in_use else { return Ok(()) };
    let (vault, name) = (secret.vault_name.unwrap_or_default(), secret.name.unwrap_or_default());
    let named = readers.iter().take(MAX_NAMED_READERS).map(String::as_str).collect::<Vec<_>>();
    let more = readers.len().saturating_sub(MAX_NAMED_READERS);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let message = format!(
        "the secret {vault}/{name} cannot be {verb}: the policy of {}{more} reads it",
        named.join(", ")
    );
    Err(Refusal::new(code::SECRET_IN_USE, message))
}

fn secrets_of(change: &Transaction<'_>, vault_id: &str) -> Result<Vec<StoredSecret>> {
    let ids = change.referrers(vault_id, SECRETS_OF_VAULT)?;
    let mut secrets = Vec::new();
    change.for_each(&ids, |id| {
        secrets.extend(change.find_document::<StoredSecret>(id)?);
        Ok(())
    })?;
    Ok(secrets)
}

fn claim_name(change: &Transaction<'_>, vault: &Vault) -> Result<()> {
    let name = vault.name.as_deref().unwrap_or_default();
    change.release_claims(VAULT_NAMES, &vault.id)?;
    if change.claim_key(VAULT_NAMES, name, &vault.id)? {
        return Ok(());
    }
    let message = format!("name: another vault is called {name:?}");
    Err(Refusal::new(code::VAULT_NAME_TAKEN, message))
}

/// Policies name vaults and secrets, so that names are short and plain.
pub(super) fn check_name(field: &str, name: &str) -> Result<()> {
    if is_name(name) {
        return Ok(());
    }
    let shown: String = name.chars().take(NAME_LENGTH).collect();
    let message = format!(
        "{field}: {shown:?} is not a name: 1 to {NAME_LENGTH} letters, digits, _, - and . are allowed"
    );
    Err(Refusal::new(code::INVALID_VALUE, message))
}
