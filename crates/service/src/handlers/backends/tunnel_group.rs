//! Tunnel group backends: which tunnels match is found out when they are shown.

use std::collections::BTreeMap;

use ginnel_api::id::prefix;
use ginnel_api::remote::Ref;
use ginnel_api::remote::backends::tunnel_group::{
    Create, Delete, Get, List, MAX_LABEL_BYTES, MOST_LABELS, TunnelGroupBackend, Update,
};

use super::{Context, Handler, OperationResult, delete_unused, on};
use crate::Refusal;
use crate::address::Base;
use crate::code::{self, ErrorCode};
use crate::context::{StoredResource, found};

impl StoredResource for TunnelGroupBackend {
    fn locate(&mut self, base: &Base) {
        self.uri = base.of(&self.id);
    }
}

pub(super) fn handlers() -> Vec<Handler> {
    vec![on(create), on(list), on(get), on(update), on(delete)]
}

async fn create(service: Context, params: Create) -> OperationResult<Create> {
    let labels = check_labels(params.labels.unwrap_or_default())?;
    let create = service.change(move |change| {
        let backend = TunnelGroupBackend {
            id: change.new_id(prefix::TUNNEL_GROUP)?,
            created_at: Some(change.now()),
            description: Some(params.description.unwrap_or_default()),
            metadata: Some(params.metadata.unwrap_or_default()),
            labels: Some(labels),
            ..TunnelGroupBackend::default()
        };
        change.put(&backend)?;
        Ok(backend)
    });
    Ok(with_tunnels(&service, create.await?))
}

async fn list(service: Context, params: List) -> OperationResult<List> {
    let mut page = service.page::<List, _>(params.before_id, params.limit).await?;
    page.items = page.items.into_iter().map(|backend| with_tunnels(&service, backend)).collect();
    Ok(page)
}

async fn get(service: Context, params: Get) -> OperationResult<Get> {
    Ok(with_tunnels(&service, service.find(params.id).await?))
}

async fn update(service: Context, params: Update) -> OperationResult<Update> {
    let labels = params.labels.map(check_labels).transpose()?;
    let update = service.change(move |change| {
        let mut backend: TunnelGroupBackend = found(change, &params.id)?;
        backend.description = params.description.or(backend.description);
        backend.metadata = params.metadata.or(backend.metadata);
        backend.labels = labels.or(backend.labels);
        change.put(&backend)?;
        Ok(backend)
    });
    Ok(with_tunnels(&service, update.await?))
}

/// The backend with the tunnels that serve its labels now.
fn with_tunnels(service: &Context, mut backend: TunnelGroupBackend) -> TunnelGroupBackend {
    let labels = backend.labels.clone().unwrap_or_default();
    let serving = service.shared.registry.serving(&labels).into_iter();
    let base = &service.shared.base;
    let refer = |id: &str| Ref { id: id.to_owned(), uri: base.of(id) };
    backend.tunnels = Some(serving.map(|tunnel| refer(&tunnel.id)).collect());
    backend
}

async fn delete(service: Context, params: Delete) -> OperationResult<Delete> {
    service.write(move |change| delete_unused::<TunnelGroupBackend>(change, &params.id)).await
}

fn check_labels(labels: BTreeMap<String, String>) -> Result<BTreeMap<String, String>, Refusal> {
    if labels.len() > MOST_LABELS {
        let message = format!("labels: has {} entries, the limit is {MOST_LABELS}", labels.len());
        return Err(Refusal::new(code::LABELS_TOO_MANY, message));
    }
    for (key, value) in &labels {
        check_label(key, "a key", code::LABEL_KEY)?;
        check_label(value, "a value", code::LABEL_VALUE)?;
    }
    Ok(labels)
}

fn check_label(text: &str, what: &str, length: ErrorCode) -> Result<(), Refusal> {
    if text.is_empty() || text.len() > MAX_LABEL_BYTES {
        let message =
            format!("labels: {what} has {} bytes, not 1 to {MAX_LABEL_BYTES}", text.len());
        return Err(Refusal::new(length, message));
    }
    if text.contains('=') {
        let message = format!("labels: {what} holds an equals sign: {text:?}");
        return Err(Refusal::new(code::LABEL_EQUALS_SIGN, message));
    }
    Ok(())
}
