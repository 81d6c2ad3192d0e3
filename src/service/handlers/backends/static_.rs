//! Static backends: one fixed address, with or without TLS.

use super::{Context, Handler, OperationResult, delete_unused, on, resource};
use crate::api::id::prefix;
use crate::api::remote::backends::static_::{
    Create, Delete, Get, List, StaticBackend, StaticBackendTls, Update,
};
use crate::service::check::{Flaw, host_port};
use crate::service::context::found;
use crate::service::{Refusal, code};

resource! { StaticBackend = STATIC }

pub(super) fn handlers() -> Vec<Handler> {
    vec![on(create), on(list), on(get), on(update), on(delete)]
}

async fn create(service: Context, params: Create) -> OperationResult<Create> {
    let address = checked_address(&params.address)?;
    let create = service.change(move |change| {
        let backend = StaticBackend {
            id: change.new_id(prefix::STATIC)?,
            created_at: Some(change.now()),
            description: Some(params.description.unwrap_or_default()),
            metadata: Some(params.metadata.unwrap_or_default()),
            address: Some(address),
            tls: Some(decided(params.tls.unwrap_or_default())),
            ..StaticBackend::default()
        };
        change.put(&backend)?;
        Ok(backend)
    });
    create.await
}

async fn list(service: Context, params: List) -> OperationResult<List> {
    service.page::<List, _>(params.before_id, params.limit).await
}

async fn get(service: Context, params: Get) -> OperationResult<Get> {
    service.find(params.id).await
}

async fn update(service: Context, mut params: Update) -> OperationResult<Update> {
    // Generated clients of Python send an empty one for what their caller left out.
    let address = params.address.take().filter(|address| !address.is_empty());
    params.address = address.as_deref().map(checked_address).transpose()?;
    let update = service.change(move |change| {
        let mut backend: StaticBackend = found(change, &params.id)?;
        backend.description = params.description.or(backend.description);
        backend.metadata = params.metadata.or(backend.metadata);
        backend.address = params.address.or(backend.address);
        backend.tls = params.tls.map(decided).or(backend.tls);
        change.put(&backend)?;
        Ok(backend)
    });
    update.await
}

async fn delete(service: Context, params: Delete) -> OperationResult<Delete> {
    service.write(move |change| delete_unused::<StaticBackend>(change, &params.id)).await
}

fn decided(tls: StaticBackendTls) -> StaticBackendTls {
    StaticBackendTls { enabled: Some(tls.enabled.unwrap_or(false)) }
}

/// The address in its normal form.
fn checked_address(address: &str) -> Result<String, Refusal> {
    if address.is_empty() {
        return Err(Refusal::new(code::ADDRESS_MISSING, "address: must not be empty"));
    }
    let parsed = host_port(address).map_err(|flaw| match flaw {
        Flaw::Form(problem) => {
            let message =
                format!("address: {address:?} is not of the form host:port: it {problem}");
            Refusal::new(code::ADDRESS_INVALID, message)
        }
        Flaw::Port(_) => {
            let message = format!("address: the port of {address:?} is not from 1 to 65535");
            Refusal::new(code::ADDRESS_PORT, message)
        }
    })?;
    Ok(format!("{}:{}", parsed.0, parsed.1))
}
