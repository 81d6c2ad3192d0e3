//! Tunnel group backends: which tunnels match is found out when they are shown.

use std::collections::BTreeMap;

use ginnel_api::remote::Ref;
use ginnel_api::remote::backends::tunnel_group::{
    Create, MAX_LABEL_BYTES, MOST_LABELS, TunnelGroupBackend, Update,
};

use super::delete_unused;
use crate::code::ErrorCode;
use crate::context::ServiceState;
use crate::handlers::prelude::*;

impl StoredResource for TunnelGroupBackend {
    fn locate(&mut self, base: &Base) {
        self.uri = base.of(&self.id);
    }

    /// The tunnels that serve its labels now.
    fn observe(&mut self, service: &ServiceState) {
        let labels = self.labels.clone().unwrap_or_default();
        let refer = |id: &str| Ref { id: id.to_owned(), uri: service.base.of(id) };
        let serving = service.registry.tunnels_with_labels(&labels);
        self.tunnels = Some(serving.iter().map(|tunnel| refer(&tunnel.id)).collect());
    }

    fn remove(change: &Transaction<'_>, id: &str, _: &RemovalContext) -> Result<()> {
        delete_unused::<Self>(change, id)
    }
}

usual_handlers! { backends::tunnel_group }

async fn create(service: Context, params: Create) -> OperationResult<Create> {
    let labels = check_labels(params.labels.unwrap_or_default())?;
    let create = service.write_resource(move |change| {
        stored(
            change,
            new_item!(change, params => TunnelGroupBackend {
                labels: Some(labels),
            }),
        )
    });
    create.await
}

async fn update(service: Context, params: Update) -> OperationResult<Update> {
    let labels = params.labels.map(check_labels).transpose()?;
    let update = service.write_resource(move |change| {
        let mut backend = changed_item!(
            change, params => TunnelGroupBackend { description, metadata }
        );
        backend.labels = labels.or(backend.labels);
        stored(change, backend)
    });
    update.await
}

fn check_labels(labels: BTreeMap<String, String>) -> Result<BTreeMap<String, String>> {
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

fn check_label(text: &str, what: &str, length: ErrorCode) -> Result<()> {
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
