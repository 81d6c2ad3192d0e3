//! Weighted backends: hold backends that hold no others.

use std::collections::BTreeMap;

use ginnel_api::id;
use ginnel_api::remote::backends::weighted::{Create, Update, WeightedBackend};
use ginnel_gateway::modules::backend::check_backend_id;

use super::backend;
use super::children::{check_count, set_children};
use crate::handlers::prelude::*;

/// The largest weight (remote API sheet, section 6).
const LARGEST_WEIGHT: i64 = 10_000;

backend! { WeightedBackend }

usual_handlers! { backends::weighted }

async fn create(service: Context, params: Create) -> OperationResult<Create> {
    let backends = check_children(params.backends.unwrap_or_default())?;
    let create = service.write_resource(move |change| {
        let backend = new_item!(change, params => WeightedBackend {});
        store_backend(change, backend, Some(backends))
    });
    create.await
}

async fn update(service: Context, params: Update) -> OperationResult<Update> {
    let backends = params.backends.map(check_children).transpose()?;
    let update = service.write_resource(move |change| {
        let backend = changed_item!(change, params => WeightedBackend { description, metadata });
        store_backend(change, backend, backends)
    });
    update.await
}

/// Stores a backend, with new children if there are any.
fn store_backend(
    change: &Transaction<'_>,
    mut backend: WeightedBackend,
    children: Option<BTreeMap<String, i64>>,
) -> Result<WeightedBackend> {
    if let Some(children) = children {
        set_children(change, &backend.id, children.keys())?;
        backend.backends = Some(children);
    }
    stored(change, backend)
}

fn check_children(children: BTreeMap<String, i64>) -> Result<BTreeMap<String, i64>> {
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
