//! Service users: the accounts of bot users by their newer name, kept by the same functions.

use ginnel_api::remote::bot_users::{self, BotUser};
use ginnel_api::remote::service_users::{Create, ServiceUser, Update};

use super::bot_users as bots;
use crate::accounts::Caller;
use crate::handlers::prelude::*;

/// The list that shows them.
const LIST: &str = "/service_users";

/// Read from the rows of bot users; what is stored is a [`BotUser`].
impl StoredResource for ServiceUser {
    fn locate(&mut self, base: &Base) {
        self.uri = base.path_url(&format!("{LIST}/{}", self.id));
    }

    fn check_writer(caller: &Caller) -> Result<()> {
        BotUser::check_writer(caller)
    }

    fn remove(change: &Transaction<'_>, id: &str, call: &RemovalContext) -> Result<()> {
        BotUser::remove(change, id, call)
    }
}

fn service_user(bot: BotUser) -> ServiceUser {
    let BotUser { id, uri, created_at, name, active } = bot;
    ServiceUser { id, uri, created_at, name, active }
}

usual_handlers! { service_users }

async fn create(service: Context, params: Create) -> OperationResult<Create> {
    let Create { name, active } = params;
    let bot = bots::create(service.clone(), bot_users::Create { name, active }).await?;
    Ok(service.with_addresses(service_user(bot)))
}

async fn update(service: Context, params: Update) -> OperationResult<Update> {
    let Update { id, name, active } = params;
    let bot = bots::update(service.clone(), bot_users::Update { id, name, active }).await?;
    Ok(service.with_addresses(service_user(bot)))
}
