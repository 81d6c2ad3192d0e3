//! Bot users: changed by admins only.

use super::{Context, Handler, OperationResult, on, resource};
use crate::api::id::{self, prefix};
use crate::api::remote::api_keys::ApiKey;
use crate::api::remote::bot_users::{BotUser, Create, Delete, Get, List, Update};
use crate::api::remote::credentials::Credential;
use crate::service::context::{found, remove};
use crate::service::store::Transaction;
use crate::service::{Refusal, code};

/// The longest name, in bytes.
const LONGEST_NAME: usize = 255;
/// Where names are unique.
const NAMES: &str = "bot_name";

resource! { BotUser = BOT_USER }

pub(super) fn handlers() -> Vec<Handler> {
    vec![on(create), on(list), on(get), on(update), on(delete)]
}

async fn create(service: Context, wanted: Create) -> OperationResult<Create> {
    admins_only(&service)?;
    check_name(&wanted.name)?;
    let create = service.change(move |change| {
        let bot = BotUser {
            id: change.new_id(prefix::BOT_USER)?,
            created_at: Some(change.now()),
            name: Some(wanted.name),
            active: Some(wanted.active.unwrap_or(true)),
            ..BotUser::default()
        };
        keep(change, &bot)?;
        Ok(bot)
    });
    create.await
}

async fn list(service: Context, wanted: List) -> OperationResult<List> {
    service.page::<List, _>(wanted.before_id, wanted.limit)
}

async fn get(service: Context, wanted: Get) -> OperationResult<Get> {
    service.find(&wanted.id)
}

async fn update(service: Context, wanted: Update) -> OperationResult<Update> {
    admins_only(&service)?;
    wanted.name.as_deref().map_or(Ok(()), check_name)?;
    let update = service.change(move |change| {
        let mut bot: BotUser = found(change, &wanted.id)?;
        bot.name = wanted.name.or(bot.name);
        bot.active = wanted.active.or(bot.active);
        keep(change, &bot)?;
        Ok(bot)
    });
    update.await
}

async fn delete(service: Context, wanted: Delete) -> OperationResult<Delete> {
    admins_only(&service)?;
    let delete = service.write(move |change| {
        for owned in change.referrers(&wanted.id, "owner")? {
            if id::has_prefix(&owned, prefix::API_KEY) {
                change.remove::<ApiKey>(&owned)?;
            } else {
                change.remove::<Credential>(&owned)?;
            }
        }
        remove::<BotUser>(change, &wanted.id)
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
