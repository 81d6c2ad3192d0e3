//! Bot users: changed by admins only.

use ginnel_api::id;
use ginnel_api::remote::api_keys::ApiKey;
use ginnel_api::remote::bot_users::{BotUser, Create, Update};
use ginnel_api::remote::credentials::Credential;

use crate::accounts::Caller;
use crate::handlers::prelude::*;

/// The longest name, in bytes.
const LONGEST_NAME: usize = 255;
/// Where names are unique.
const NAMES: &str = "bot_name";

impl StoredResource for BotUser {
    fn locate(&mut self, base: &Base) {
        self.uri = base.of(&self.id);
    }

    fn check_writer(caller: &Caller) -> Result<()> {
        caller.check_admin(code::BOT_NEEDS_ADMIN, "change bot users")
    }

    fn remove(change: &Transaction<'_>, id: &str, _: &RemovalContext) -> Result<()> {
        for owned in change.referrers(id, "owner")? {
            if id::has_prefix(&owned, prefix::API_KEY) {
                change.remove_document::<ApiKey>(&owned)?;
            } else {
                change.remove_document::<Credential>(&owned)?;
            }
        }
        remove_or_refuse::<Self>(change, id)
    }
}

usual_handlers! { bot_users }

pub(super) async fn create(service: Context, params: Create) -> OperationResult<Create> {
    BotUser::check_writer(&service.caller)?;
    check_name(&params.name)?;
    let create = service.write_resource(move |change| {
        let bot = BotUser {
            id: change.new_id(prefix::BOT_USER)?,
            created_at: Some(change.now()),
            name: Some(params.name),
            active: Some(params.active.unwrap_or(true)),
            ..BotUser::default()
        };
        store_bot(change, &bot)?;
        Ok(bot)
    });
    create.await
}

pub(super) async fn update(service: Context, params: Update) -> OperationResult<Update> {
    BotUser::check_writer(&service.caller)?;
    params.name.as_deref().map_or(Ok(()), check_name)?;
    let update = service.write_resource(move |change| {
        let bot = changed_item!(change, params => BotUser { name, active });
        store_bot(change, &bot)?;
        Ok(bot)
    });
    update.await
}

fn store_bot(change: &Transaction<'_>, bot: &BotUser) -> Result<()> {
    let name = bot.name.as_deref().unwrap_or_default();
    change.release_claims(NAMES, &bot.id)?;
    if !change.claim_key(NAMES, name, &bot.id)? {
        let message = format!("name: another bot user is called {name:?}");
        return Err(Refusal::new(code::BOT_NAME_TAKEN, message));
    }
    Ok(change.put_document(bot)?)
}

fn check_name(name: &str) -> Result<()> {
    match name.len() {
        0 => Err(Refusal::new(code::BOT_NAME, "name: must not be empty")),
        1..=LONGEST_NAME => Ok(()),
        length => {
            let message = format!("name: is {length} bytes long, the limit is {LONGEST_NAME}");
            Err(Refusal::new(code::INVALID_VALUE, message))
        }
    }
}
