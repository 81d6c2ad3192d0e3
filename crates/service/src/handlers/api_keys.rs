//! API keys: made with a token, shown without.

use ginnel_api::id::prefix;
use ginnel_api::remote::api_keys::{ApiKey, Create, Delete, Get, List, Update};

use super::{Context, Handler, OperationResult, on, resource};
use crate::accounts;
use crate::context::{found, remove};

resource! { ApiKey }

pub(super) fn handlers() -> Vec<Handler> {
    vec![on(create), on(list), on(get), on(update), on(delete)]
}

async fn create(service: Context, params: Create) -> OperationResult<Create> {
    let caller = service.caller.clone();
    let create = service.change(move |change| {
        let owner_id = accounts::owner(change, &caller, params.owner_id)?;
        let mut key = ApiKey {
            id: change.new_id(prefix::API_KEY)?,
            created_at: Some(change.now()),
            description: Some(params.description.unwrap_or_default()),
            metadata: Some(params.metadata.unwrap_or_default()),
            owner_id: Some(owner_id.clone()),
            ..ApiKey::default()
        };
        change.put(&key)?;
        key.token = Some(accounts::issue(change, &key.id, &owner_id)?);
        Ok(key)
    });
    create.await
}

async fn list(service: Context, params: List) -> OperationResult<List> {
    service.page::<List, _>(params.before_id, params.limit).await
}

async fn get(service: Context, params: Get) -> OperationResult<Get> {
    service.find(params.id).await
}

async fn update(service: Context, params: Update) -> OperationResult<Update> {
    let update = service.change(move |change| {
        let mut key: ApiKey = found(change, &params.id)?;
        key.description = params.description.or(key.description);
        key.metadata = params.metadata.or(key.metadata);
        change.put(&key)?;
        Ok(key)
    });
    update.await
}

async fn delete(service: Context, params: Delete) -> OperationResult<Delete> {
    service.write(move |change| remove::<ApiKey>(change, &params.id)).await
}
