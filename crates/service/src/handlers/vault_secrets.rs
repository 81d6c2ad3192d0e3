//! Secrets in vaults: the value goes in, and never comes out.

use ginnel_api::Secret;
use ginnel_api::id;
use ginnel_api::remote::Ref;
use ginnel_api::remote::vault_secrets::{Create, Update, VaultSecret};
use ginnel_api::remote::vaults::Vault;

use super::vaults::{check_name, check_secrets_unread};
use crate::context::wrong_prefix;
use crate::handlers::prelude::*;
use crate::vaults::{SECRET_NAMES, SECRETS_OF_VAULT, StoredSecret, VAULT_NAMES, secret_claim};

/// How many secrets a vault may have.
const MAX_SECRETS: usize = 1000;
/// How long a value may be, in bytes.
const MAX_VALUE_BYTES: usize = 16 << 10;

/// What is shown; what is stored is a `StoredSecret` of the same row.
impl StoredResource for VaultSecret {
    fn locate(&mut self, base: &Base) {
        self.uri = base.of(&self.id);
        let bots = [&mut self.created_by, &mut self.last_updated_by].into_iter().flatten();
        for one in bots.filter(|one| id::has_prefix(&one.id, prefix::BOT_USER)) {
            one.uri = base.of(&one.id);
        }
        if let Some(vault) = &mut self.vault {
            vault.uri = base.of(&vault.id);
        }
    }

    fn remove(change: &Transaction<'_>, id: &str, call: &RemovalContext) -> Result<()> {
        check_secrets_unread(change, &[find_or_refuse(change, id)?], "deleted")?;
        remove_or_refuse::<StoredSecret>(change, id)?;
        Ok(call.vault_key.forget_without_secrets(change)?)
    }
}

usual_handlers! { vault_secrets }

async fn create(service: Context, params: Create) -> OperationResult<Create> {
    check_name("name", &params.name)?;
    check_value(&params.value)?;
    let caller = caller_reference(&service);
    let key = service.shared.vault_key.clone();
    let create = service.write_resource(move |change| {
        let vault = vault_of(change, params.vault_id.as_deref(), params.vault_name.as_deref())?;
        let now = change.now();
        if change.referrers(&vault.id, SECRETS_OF_VAULT)?.len() >= MAX_SECRETS {
            let message =
                format!("vault_id: the vault has {MAX_SECRETS} secrets, which is the limit");
            return Err(Refusal::new(code::INVALID_VALUE, message));
        }
        let id = change.new_id(prefix::VAULT_SECRET)?;
        let sealed = key.seal(change, &id, &params.value.0)?;
        let shown = VaultSecret {
            id,
            created_at: Some(now.clone()),
            updated_at: Some(now),
            name: Some(params.name),
            description: Some(params.description.unwrap_or_default()),
            metadata: Some(params.metadata.unwrap_or_default()),
            created_by: caller.clone(),
            last_updated_by: caller,
            vault: Some(Ref { id: vault.id.clone(), ..Ref::default() }),
            vault_name: vault.name,
            ..VaultSecret::default()
        };
        let secret = StoredSecret { shown, sealed };
        claim_name(change, &secret)?;
        change.replace_references(&secret.shown.id, SECRETS_OF_VAULT, [vault.id.as_str()])?;
        change.put_document(&secret)?;
        Ok(secret.shown)
    });
    create.await
}

async fn update(service: Context, params: Update) -> OperationResult<Update> {
    params.name.as_deref().map_or(Ok(()), |name| check_name("name", name))?;
    params.value.as_ref().map_or(Ok(()), check_value)?;
    let caller = caller_reference(&service);
    let key = service.shared.vault_key.clone();
    let update = service.write_resource(move |change| {
        let mut secret: StoredSecret = find_or_refuse(change, &params.id)?;
        if let Some(name) = params.name.filter(|name| secret.name() != name) {
            check_secrets_unread(change, std::slice::from_ref(&secret), "renamed")?;
            secret.shown.name = Some(name);
            claim_name(change, &secret)?;
        }
        if let Some(value) = params.value {
            secret.sealed = key.seal(change, &params.id, &value.0)?;
        }
        let shown = &mut secret.shown;
        shown.description = params.description.or(shown.description.take());
        shown.metadata = params.metadata.or(shown.metadata.take());
        shown.updated_at = Some(change.now());
        shown.last_updated_by = caller;
        change.put_document(&secret)?;
        Ok(secret.shown)
    });
    update.await
}

/// The vault that a call names, by identifier or by name; generated clients send the other one empty.
fn vault_of(view: &View<'_>, id: Option<&str>, name: Option<&str>) -> Result<Vault> {
    let (id, name) = (id.filter(|id| !id.is_empty()), name.filter(|name| !name.is_empty()));
    let invalid = |message: String| Refusal::new(code::INVALID_VALUE, message);
    if id.is_none() && name.is_none() {
        return Err(invalid("vault_id or vault_name is required".to_owned()));
    }
    if let Some(id) = id.filter(|id| !id::has_prefix(id, prefix::VAULT)) {
        return Err(wrong_prefix("vault_id", id, prefix::VAULT));
    }
    let named = match name {
        Some(name) => match view.claimant(VAULT_NAMES, name)? {
            None => return Err(invalid(format!("vault_name: there is no vault {name:?}"))),
            named => named,
        },
        None => None,
    };
    if let (Some(id), Some(named)) = (id, &named)
        && id != named
    {
        return Err(invalid(format!("vault_name: names {named}, and vault_id is {id:?}")));
    }
    let id = named.as_deref().or(id).unwrap_or_default();
    view.find_document(id)?.ok_or_else(|| invalid(format!("vault_id: there is no vault {id:?}")))
}

fn claim_name(change: &Transaction<'_>, secret: &StoredSecret) -> Result<()> {
    let id = &secret.shown.id;
    change.release_claims(SECRET_NAMES, id)?;
    if change.claim_key(SECRET_NAMES, &secret_claim(secret.vault_id(), secret.name()), id)? {
        return Ok(());
    }
    let message = format!("name: another secret of the vault is called {:?}", secret.name());
    Err(Refusal::new(code::SECRET_NAME_TAKEN, message))
}

fn caller_reference(service: &Context) -> Option<Ref> {
    Some(Ref { id: service.caller.owner_id.clone(), ..Ref::default() })
}

/// The message never repeats the value.
fn check_value(value: &Secret) -> Result<()> {
    let problem = match value.0.len() {
        0 => "value: must not be empty".to_owned(),
        1..=MAX_VALUE_BYTES => return Ok(()),
        length => format!("value: is {length} bytes long, the limit is {MAX_VALUE_BYTES}"),
    };
    Err(Refusal::new(code::INVALID_VALUE, problem))
}
