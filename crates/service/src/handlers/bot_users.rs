//! Bot users: changed by admins only.

use ginnel_api::id::{self, prefix};
use ginnel_api::remote::api_keys::ApiKey;
use ginnel_api::remote::bot_users::{BotUser, Create, Delete, Get, List, Update};
use ginnel_api::remote::credentials::Credential;
use ginnel_store::Transaction;

use super::{Context, Handler, OperationResult, on, resource};
use crate::context::{found, remove};
use crate::{Refusal, code};

/// The longest name, in bytes.
const LONGEST_NAME: usize = 255;
/// Where names are unique.
const NAMES: &str = "bot_name";

resource! { BotUser }

pub(super) fn handlers() -> Vec<Handler> {
    vec![on(create), on(list), on(get), on(update), on(delete)]
}

pub(super) async fn create(service: Context, params: Create) -> OperationResult<Create> {
    admins_only(&service)?;
    check_name(&params.name)?;
    let create = service.change(move |change| {
        let bot = BotUser {
            id: change.new_id(prefix::BOT_USER)?,
            created_at: Some(change.now()),
            name: Some(params.name),
            active: Some(params.active.unwrap_or(true)),
            ..BotUser::default()
        };
        keep(change, &bot)?;
        Ok(bot)
    });
    create.await
}

async fn list(service: Context, params: List) -> OperationResult<List> {
    service.page::<List, _>(params.before_id, params.limit).await
}

async fn get(service: Context, params: Get) -> OperationResult<Get> {
    service.find(params.id).await
}

pub(super) async fn update(service: Context, params: Update) -> OperationResult<Update> {
    admins_only(&service)?;
    params.name.as_deref().map_or(Ok(()), check_name)?;
    let update = service.change(move |change| {
        let mut bot: BotUser = found(change, &params.id)?;
        bot.name = params.name.or(bot.name);
        bot.active = params.active.or(bot.active);
        keep(change, &bot)?;
        Ok(bot)
    });
    update.await
}

pub(super) async fn delete(service: Context, params: Delete) -> OperationResult<Delete> {
    admins_only(&service)?;
    let delete = service.write(move |change| {
        for owned in change.referrers(&params.id, "owner")? {
            if id::has_prefix(&owned, prefix::API_KEY) {
                change.remove::<ApiKey>(&owned)?;
            } else {
                change.remove::<Credential>(&owned)?;
            }
        }
        remove::<BotUser>(change, &params.id)
    });
    delete.await
}

fn keep(change: &Transaction<'_>, bot: &BotUser) -> Result<(), Refusal> {
    let name = bot.name.as_deref().unwrap_or_default();
    change.release(NAMES, &bot.id)?;
    if !change.claim(NAMES, name, &bot.id)? {
        let message = format!("name: another bot user is called {name:?}");
        return Err(Refusal::new(code::BOT_NAME_TAKEN, message));
    }
    Ok(change.put(bot)?)
}

fn admins_only(service: &Context) -> Result<(), Refusal> {
    if service.caller.admin {
        return Ok(());
    }
    Err(Refusal::new(code::BOT_NEEDS_ADMIN, "only an admin may change bot users"))
}

fn check_name(name: &str) -> Result<(), Refusal> {
    match name.len() {
        0 => Err(Refusal::new(code::BOT_NAME, "name: must not be empty")),
        1..=LONGEST_NAME => Ok(()),
        length => {
            let message = format!("name: is {length} bytes long, the limit is {LONGEST_NAME}");
            Err(Refusal::new(code::INVALID_VALUE, message))
        }
    }
}
