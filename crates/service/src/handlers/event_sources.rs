//! Event sources: the types of events of a subscription, which is what is stored.

use std::collections::BTreeSet;

use ginnel_api::remote::event_sources::{
    Create, Delete, EventSource, EventSourceList, Get, List, Update,
};
use ginnel_api::remote::event_subscriptions::{EventSourceReplace, EventSubscription};

use super::event_subscriptions::{admins_only, check_source, keep};
use super::{Context, Handler, OperationResult, on};
use crate::Refusal;
use crate::context::found;

pub(super) fn handlers() -> Vec<Handler> {
    vec![on(create), on(list), on(get), on(update), on(delete)]
}

async fn create(service: Context, params: Create) -> OperationResult<Create> {
    admins_only(&service.caller)?;
    let Create { subscription_id, r#type: name, filter, fields } = params;
    let source = EventSourceReplace { r#type: name.clone(), filter, fields };
    check_source(&service, "", &source)?;
    let changed = change(&service, subscription_id, move |types| {
        types.insert(source.r#type);
        Ok(())
    });
    source_of(changed.await?, &name)
}

async fn list(service: Context, params: List) -> OperationResult<List> {
    admins_only(&service.caller)?;
    let subscription: EventSubscription = service.find(params.subscription_id).await?;
    let uri = format!("{}/sources", subscription.uri);
    Ok(EventSourceList { sources: subscription.sources, uri })
}

async fn get(service: Context, params: Get) -> OperationResult<Get> {
    admins_only(&service.caller)?;
    source_of(service.find(params.subscription_id).await?, &params.r#type)
}

async fn update(service: Context, params: Update) -> OperationResult<Update> {
    admins_only(&service.caller)?;
    source_of(service.find(params.subscription_id).await?, &params.r#type)
}

async fn delete(service: Context, params: Delete) -> OperationResult<Delete> {
    admins_only(&service.caller)?;
    let changed = change(&service, params.subscription_id, move |types| {
        types.remove(&params.r#type).then_some(()).ok_or_else(Refusal::not_found)
    });
    changed.await.map(drop)
}

/// Changes the types of a subscription.
async fn change(
    service: &Context,
    subscription_id: String,
    work: impl FnOnce(&mut BTreeSet<String>) -> Result<(), Refusal> + Clone + Send + 'static,
) -> Result<EventSubscription, Refusal> {
    let changed = service.change(move |change| {
        let mut subscription: EventSubscription = found(change, &subscription_id)?;
        let sources = subscription.sources.take().unwrap_or_default().into_iter();
        let mut types = sources.filter_map(|source| source.r#type).collect();
        work(&mut types)?;
        keep(change, subscription, Some(types), None)
    });
    changed.await
}

fn source_of(subscription: EventSubscription, name: &str) -> Result<EventSource, Refusal> {
    let mut sources = subscription.sources.into_iter().flatten();
    sources.find(|source| source.r#type.as_deref() == Some(name)).ok_or_else(Refusal::not_found)
}
