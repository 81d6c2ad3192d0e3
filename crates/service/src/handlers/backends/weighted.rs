//! Weighted backends: hold backends that hold no others.

use std::collections::BTreeMap;

use ginnel_api::id::{self, prefix};
use ginnel_api::remote::backends::weighted::{Create, Delete, Get, List, Update, WeightedBackend};
use ginnel_gateway::modules::backend::check_backend_id;
use ginnel_store::Transaction;

use super::children::{check_count, hold};
use super::{Context, Handler, OperationResult, delete_unused, on, resource};
use crate::context::found;
use crate::{Refusal, code};

/// The largest weight (remote API sheet, section 6).
const LARGEST_WEIGHT: i64 = 10_000;

resource! { WeightedBackend }

pub(super) fn handlers() -> Vec<Handler> {
    vec![on(create), on(list), on(get), on(update), on(delete)]
}

async fn create(service: Context, params: Create) -> OperationResult<Create> {
    let backends = check_children(params.backends.unwrap_or_default())?;
    let create = service.change(move |change| {
        let backend = WeightedBackend {
            id: change.new_id(prefix::WEIGHTED)?,
            created_at: Some(change.now()),
            description: Some(params.description.unwrap_or_default()),
            metadata: Some(params.metadata.unwrap_or_default()),
            ..WeightedBackend::default()
        };
        keep(change, backend, Some(backends))
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
    let backends = params.backends.map(check_children).transpose()?;
    let update = service.change(move |change| {
        let mut backend: WeightedBackend = found(change, &params.id)?;
        backend.description = params.description.or(backend.description);
        backend.metadata = params.metadata.or(backend.metadata);
        keep(change, backend, backends)
    });
    update.await
}

async fn delete(service: Context, params: Delete) -> OperationResult<Delete> {
    service.write(move |change| delete_unused::<WeightedBackend>(change, &params.id)).await
}

/// Stores a backend, with new children if there are any.
fn keep(
    change: &Transaction<'_>,
    mut backend: WeightedBackend,
    children: Option<BTreeMap<String, i64>>,
) -> Result<WeightedBackend, Refusal> {
    if let Some(children) = children {
        hold(change, &backend.id, children.keys())?;
        backend.backends = Some(children);
    }
    change.put(&backend)?;
    Ok(backend)
}

fn check_children(children: BTreeMap<String, i64>) -> Result<BTreeMap<String, i64>, Refusal> {
    check_count(children.len(), code::WEIGHTED_TOO_MANY)?;
    for (child, weight) in &children {
        check_backend_id("backends", child)?;
        if [prefix::WEIGHTED, prefix::FAILOVER].iter().any(|kind| id::has_prefix(child, kind)) {
            let message = format!("backends: {child:?} holds backends itself");
            return Err(Refusal::new(code::WEIGHTED_CHILD, message));
        }
        if !(0..=LARGEST_WEIGHT).contains(weight) {
            let message = format!("backends.{child}: {weight} is not from 0 to {LARGEST_WEIGHT}");
            return Err(Refusal::new(code::WEIGHT, message));
        }
    }
    Ok(children)
}
