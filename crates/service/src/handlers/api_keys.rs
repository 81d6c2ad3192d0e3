//! API keys: made with a token, shown without.

use ginnel_api::remote::api_keys::{ApiKey, Create, Update};

use crate::accounts;
use crate::handlers::prelude::*;

resource! { ApiKey }

usual_handlers! { api_keys }

async fn create(service: Context, params: Create) -> OperationResult<Create> {
    let caller = service.caller.clone();
    let create = service.write_resource(move |change| {
        let owner_id = accounts::resolve_owner(change, &caller, params.owner_id)?;
        let mut key = new_item!(change, params => ApiKey {
            owner_id: Some(owner_id.clone()),
        });
        change.put_document(&key)?;
        key.token = Some(accounts::issue_token(change, &key.id, &owner_id)?);
        Ok(key)
    });
    create.await
}

async fn update(service: Context, params: Update) -> OperationResult<Update> {
    let update = service.write_resource(move |change| {
        stored(change, changed_item!(change, params => ApiKey { description, metadata }))
    });
    update.await
}
