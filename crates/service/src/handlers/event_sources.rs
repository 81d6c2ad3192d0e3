//! Event sources: the types of events of a subscription, which is what is stored.

use std::collections::BTreeSet;

use ginnel_api::remote::event_sources::{
    Create, Delete, EventSource, EventSourceList, Get, List, Update,
};
use ginnel_api::remote::event_subscriptions::{EventSourceReplace, EventSubscription};

use super::event_subscriptions::{check_admin, check_source, store_subscription};
use crate::handlers::prelude::*;

pub(super) fn handlers() -> Vec<Handler> {
    vec![on(create), on(list), on(get), on(update), on(delete)]
}

async fn create(service: Context, params: Create) -> OperationResult<Create> {
    check_admin(&service.caller)?;
    let Create { subscription_id, r#type: name, filter, fields } = params;
    let source = EventSourceReplace { r#type: name.clone(), filter, fields };
    check_source(&service, "", &source)?;
    let changed = change_types(&service, subscription_id, move |types| {
        types.insert(source.r#type);
        Ok(())
    });
    source_of(changed.await?, &name)
}

async fn list(service: Context, params: List) -> OperationResult<List> {
    check_admin(&service.caller)?;
    let subscription: EventSubscription = service.find_resource(params.subscription_id).await?;
    let uri = format!("{}/sources", subscription.uri);
    Ok(EventSourceList { sources: subscription.sources, uri })
}

async fn get(service: Context, params: Get) -> OperationResult<Get> {
    check_admin(&service.caller)?;
    source_of(service.find_resource(params.subscription_id).await?, &params.r#type)
}

async fn update(service: Context, params: Update) -> OperationResult<Update> {
    check_admin(&service.caller)?;
    source_of(service.find_resource(params.subscription_id).await?, &params.r#type)
}

async fn delete(service: Context, params: Delete) -> OperationResult<Delete> {
    check_admin(&service.caller)?;
    let changed = change_types(&service, params.subscription_id, move |types| {
        types.remove(&params.r#type).then_some(()).ok_or_else(Refusal::not_found)
    });
    changed.await.map(drop)
}

/// Changes the types of a subscription.
async fn change_types(
    service: &Context,
    subscription_id: String,
    work: impl FnOnce(&mut BTreeSet<String>) -> Result<()> + Clone + Send + 'static,
) -> Result<EventSubscription> {
    let changed = service.write_resource(move |change| {
        let mut subscription: EventSubscription = find_or_refuse(change, &subscription_id)?;
        let sources = subscription.sources.take().unwrap_or_default().into_iter();
        let mut types = sources.filter_map(|source| source.r#type).collect();
        work(&mut types)?;
        store_subscription(change, subscription, Some(types), None)
    });
    changed.await
}

fn source_of(subscription: EventSubscription, name: &str) -> Result<EventSource> {
    let mut sources = subscription.sources.into_iter().flatten();
    sources.find(|source| source.r#type.as_deref() == Some(name)).ok_or_else(Refusal::not_found)
}
