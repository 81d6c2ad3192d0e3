//! Tunnels: what connected agents offer.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Context, Handler, OperationResult, on};
use crate::api::Operation;
use crate::api::id::prefix;
use crate::api::remote::Ref;
use crate::api::remote::backends::tunnel_group::TunnelGroupBackend;
use crate::api::remote::tunnels::{Get, List, Tunnel};
use crate::service::Refusal;
use crate::service::agents::{self, TunnelKind};
use crate::service::context::check_before;

pub(super) fn handlers() -> Vec<Handler> {
    vec![on(list), on(get)]
}

async fn list(service: Context, params: List) -> OperationResult<List> {
    check_before(params.before_id.as_deref(), prefix::TUNNEL)?;
    let online = service.shared.registry.tunnels();
    let page =
        service.page_of_online(&List::INFO, &params.before_id, params.limit, online, |it| &it.id);
    let groups = labels_of_groups(&service).await?;
    let items = page.items.iter().map(|tunnel| show(&service, tunnel, &groups)).collect();
    Ok(page.with_items(items))
}

async fn get(service: Context, params: Get) -> OperationResult<Get> {
    let found = service.shared.registry.tunnel(&params.id).ok_or_else(Refusal::not_found)?;
    Ok(show(&service, &found, &labels_of_groups(&service).await?))
}

/// The labels of each tunnel group backend.
type Groups = Vec<(String, BTreeMap<String, String>)>;

async fn labels_of_groups(service: &Context) -> Result<Groups, Refusal> {
    let read = service.read(|view| {
        let all = view.page::<TunnelGroupBackend>(None, usize::MAX >> 1)?;
        Ok(all.into_iter().map(|group| (group.id, group.labels.unwrap_or_default())).collect())
    });
    read.await
}

fn show(service: &Context, tunnel: &Arc<agents::OnlineTunnel>, groups: &Groups) -> Tunnel {
    let base = &service.shared.base;
    let refer = |id: &str| Ref { id: id.to_owned(), uri: base.of(id) };
    let shown = Tunnel {
        id: tunnel.id.clone(),
        started_at: Some(tunnel.started_at.clone()),
        metadata: Some(tunnel.metadata.clone()),
        region: Some("local".to_owned()),
        tunnel_session: Some(refer(&tunnel.session.id)),
        forwards_to: Some(tunnel.forwards_to.clone()),
        ..Tunnel::default()
    };
    match &tunnel.kind {
        TunnelKind::Endpoint { endpoint_id, url, proto, .. } => Tunnel {
            public_url: Some(url.clone()),
            proto: Some(proto.clone()),
            endpoint: Some(refer(endpoint_id)),
            ..shown
        },
        TunnelKind::Labeled(labels) => {
            let serves = groups.iter().filter(|(_, params)| tunnel.serves(params));
            let backends = serves.map(|(id, _)| refer(id)).collect();
            Tunnel { labels: Some(labels.clone()), backends: Some(backends), ..shown }
        }
    }
}
