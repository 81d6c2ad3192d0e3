//! Failover backends: their children exist, are there once, and never lead back.

use std::collections::HashSet;

use ginnel_api::remote::backends::failover::{Create, FailoverBackend, Update};
use ginnel_gateway::modules::backend::check_backend_id;

use super::backend;
use super::children::{check_count, set_children};
use crate::handlers::prelude::*;

backend! { FailoverBackend }

usual_handlers! { backends::failover }

async fn create(service: Context, params: Create) -> OperationResult<Create> {
    let backends = check_children(params.backends.unwrap_or_default())?;
    let create = service.write_resource(move |change| {
        let backend = new_item!(change, params => FailoverBackend {});
        store_backend(change, backend, Some(backends))
    });
    create.await
}

async fn update(service: Context, params: Update) -> OperationResult<Update> {
    let backends = params.backends.map(check_children).transpose()?;
    let update = service.write_resource(move |change| {
        let backend = changed_item!(change, params => FailoverBackend { description, metadata });
        store_backend(change, backend, backends)
    });
    update.await
}

/// Stores a backend, with new children if there are any.
fn store_backend(
    change: &Transaction<'_>,
    mut backend: FailoverBackend,
    children: Option<Vec<String>>,
) -> Result<FailoverBackend> {
    if let Some(children) = children {
        set_children(change, &backend.id, children.iter())?;
        backend.backends = Some(children);
    }
    stored(change, backend)
}

fn check_children(children: Vec<String>) -> Result<Vec<String>> {
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
