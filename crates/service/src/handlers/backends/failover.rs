//! Failover backends: their children exist, are there once, and never lead back.

use std::collections::HashSet;

use ginnel_api::id::prefix;
use ginnel_api::remote::backends::failover::{Create, Delete, FailoverBackend, Get, List, Update};
use ginnel_gateway::modules::backend::check_backend_id;
use ginnel_store::Transaction;

use super::children::{check_count, hold};
use super::{Context, Handler, OperationResult, delete_unused, on, resource};
use crate::context::found;
use crate::{Refusal, code};

resource! { FailoverBackend }

pub(super) fn handlers() -> Vec<Handler> {
    vec![on(create), on(list), on(get), on(update), on(delete)]
}

async fn create(service: Context, params: Create) -> OperationResult<Create> {
    let backends = check_children(params.backends.unwrap_or_default())?;
    let create = service.change(move |change| {
        let backend = FailoverBackend {
            id: change.new_id(prefix::FAILOVER)?,
            created_at: Some(change.now()),
            description: Some(params.description.unwrap_or_default()),
            metadata: Some(params.metadata.unwrap_or_default()),
            ..FailoverBackend::default()
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
        let mut backend: FailoverBackend = found(change, &params.id)?;
        backend.description = params.description.or(backend.description);
        backend.metadata = params.metadata.or(backend.metadata);
        keep(change, backend, backends)
    });
    update.await
}

async fn delete(service: Context, params: Delete) -> OperationResult<Delete> {
    service.write(move |change| delete_unused::<FailoverBackend>(change, &params.id)).await
}

/// Stores a backend, with new children if there are any.
fn keep(
    change: &Transaction<'_>,
    mut backend: FailoverBackend,
    children: Option<Vec<String>>,
) -> Result<FailoverBackend, Refusal> {
    if let Some(children) = children {
        hold(change, &backend.id, children.iter())?;
        backend.backends = Some(children);
    }
    change.put(&backend)?;
    Ok(backend)
}

fn check_children(children: Vec<String>) -> Result<Vec<String>, Refusal> {
    check_count(children.len(), code::INVALID_VALUE)?;
    let mut seen = HashSet::new();
    for (index, child) in children.iter().enumerate() {
        let place = format!("backends[{index}]");
        check_backend_id(&place, child)?;
        if !seen.insert(child) {
            let message = format!("{place}: {child:?} is there twice");
            return Err(Refusal::new(code::INVALID_VALUE, message));
        }
    }
    Ok(children)
}
