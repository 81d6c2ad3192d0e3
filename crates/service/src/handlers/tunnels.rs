//! Tunnels: what connected agents offer, on whichever node.

use std::collections::BTreeMap;

use ginnel_api::Operation;
use ginnel_api::remote::backends::tunnel_group::TunnelGroupBackend;
use ginnel_api::remote::tunnels::{Get, List, Tunnel};
use ginnel_api::remote::{REGION, Ref};

use crate::agents::tunnel_row;
use crate::cluster::{self, TunnelDocument};
use crate::context::check_before;
use crate::handlers::prelude::*;

pub(super) fn handlers() -> Vec<Handler> {
    vec![on(list), on(get)]
}

async fn list(service: Context, params: List) -> OperationResult<List> {
    check_before(params.before_id.as_deref(), prefix::TUNNEL)?;
    let List { before_id, limit } = params;
    let page = match service.shared.cluster {
        Some(_) => service.page_of_rows::<TunnelDocument>(&List::INFO, before_id, limit).await?,
        None => {
            let online = service.shared.registry.tunnels();
            let page = service.page_of_online(&List::INFO, &before_id, limit, online, |it| &it.id);
            let rows = page.items.iter().map(|tunnel| tunnel_row(tunnel, None)).collect();
            page.with_items(rows)
        }
    };
    let groups = labels_of_groups(&service).await?;
    let items = page.items.iter().map(|tunnel| show_tunnel(&service, tunnel, &groups)).collect();
    Ok(page.with_items(items))
}

async fn get(service: Context, params: Get) -> OperationResult<Get> {
    let found = match service.shared.cluster {
        Some(_) => service.read(move |view| Ok(cluster::find_row(view, &params.id)?)).await?,
        None => service.shared.registry.find_tunnel(&params.id).map(|it| tunnel_row(&it, None)),
    };
    let found = found.ok_or_else(Refusal::not_found)?;
    Ok(show_tunnel(&service, &found, &labels_of_groups(&service).await?))
}

/// The labels of each tunnel group backend.
type Groups = Vec<(String, BTreeMap<String, String>)>;

async fn labels_of_groups(service: &Context) -> Result<Groups> {
    let read = service.read(|view| {
        let all = view.all_documents::<TunnelGroupBackend>()?;
        Ok(all.into_iter().map(|group| (group.id, group.labels.unwrap_or_default())).collect())
    });
    read.await
}

fn show_tunnel(service: &Context, tunnel: &TunnelDocument, groups: &Groups) -> Tunnel {
    let base = &service.shared.base;
    let refer = |id: &str| Ref { id: id.to_owned(), uri: base.of(id) };
    let shown = Tunnel {
        id: tunnel.id.clone(),
        started_at: Some(tunnel.started_at.clone()),
        metadata: Some(tunnel.metadata.clone()),
        region: Some(REGION.to_owned()),
        tunnel_session: Some(refer(&tunnel.session_id)),
        forwards_to: Some(tunnel.forwards_to.clone()),
        ..Tunnel::default()
    };
    if let Some(endpoint) = &tunnel.endpoint {
        return Tunnel {
            public_url: Some(endpoint.url.clone()),
            proto: Some(endpoint.proto.clone()),
            endpoint: Some(refer(&endpoint.id)),
            ..shown
        };
    }
    let labels = tunnel.labels.clone().unwrap_or_default();
    let serves = |asked: &BTreeMap<String, String>| {
        !asked.is_empty() && asked.iter().all(|(key, value)| labels.get(key) == Some(value))
    };
    let backends = groups.iter().filter(|(_, asked)| serves(asked)).map(|(id, _)| refer(id));
    Tunnel { backends: Some(backends.collect()), labels: Some(labels.clone()), ..shown }
}
