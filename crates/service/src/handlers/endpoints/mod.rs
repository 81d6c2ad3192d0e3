//! Endpoints: what is online in public, of agents on whichever node, of edges, and of traffic policies alone.

mod cloud;
mod edges;

use ginnel_api::id::has_prefix;
use ginnel_api::remote::endpoints::{Endpoint, Get, List};
use ginnel_api::remote::{REGION, Ref};
use ginnel_api::{Operation, Text};
use ginnel_base::address::EndpointUrl;
use ginnel_gateway::{Gateway, is_internal};
use ginnel_store::StoreResult;

use crate::agents::{own_port, public_host, tunnel_row};
use crate::cloud_endpoint::CloudEndpoint;
use crate::cluster::{self, TunnelDocument};
use crate::context::check_before;
use crate::domains;
use crate::domains::HOSTPORTS_OWNER;
use crate::handlers::prelude::*;

/// As many as there are.
const ALL: usize = usize::MAX >> 1;
/// How many a page has where nobody says.
const PAGE_SIZE: usize = 100;

pub(super) fn handlers() -> Vec<Handler> {
    vec![on(cloud::create), on(list), on(get), on(cloud::update), on(cloud::delete)]
}

async fn list(service: Context, params: List) -> OperationResult<List> {
    check_before(params.before_id.as_deref(), prefix::ENDPOINT)?;
    let List { before_id, limit } = params;
    let wanted = limit.and_then(|it| usize::try_from(it).ok()).unwrap_or(PAGE_SIZE) + 1;
    let (shared, before) = (service.shared.clone(), before_id.clone());
    let tunnels = local_tunnels(&service);
    let read = service.read(move |view| {
        let mut online = tunnel_endpoints(view, tunnels)?;
        online.extend(edges::endpoint_page(view, &shared, before.as_deref(), wanted)?);
        let stored = view.document_page::<CloudEndpoint>(before.as_deref(), wanted)?.into_iter();
        online.extend(stored.map(|endpoint| cloud::to_endpoint(&shared.gateway, endpoint)));
        Ok(online)
    });
    let mut online = read.await?;
    online.sort_unstable_by(|one, other| one.id.cmp(&other.id));
    let mut page = service.page_of_online(&List::INFO, &before_id, limit, online, |it| &it.id);
    page.items = complete_all(&service, page.items).await?;
    Ok(page)
}

async fn get(service: Context, params: Get) -> OperationResult<Get> {
    let found = find_endpoint(&service, params.id).await?.ok_or_else(Refusal::not_found)?;
    complete_all(&service, vec![found]).await?.pop().ok_or_else(Refusal::not_found)
}

/// The endpoint with this identifier, of whichever kind.
async fn find_endpoint(service: &Context, id: String) -> Result<Option<Endpoint>> {
    let (shared, tunnels) = (service.shared.clone(), local_tunnels(service));
    let read = service.read(move |view| {
        if let Some(endpoint) = view.find_document::<CloudEndpoint>(&id)? {
            return Ok(Some(cloud::to_endpoint(&shared.gateway, endpoint)));
        }
        let of_tunnel = tunnel_endpoints(view, tunnels)?.into_iter().find(|it| it.id == id);
        Ok(match of_tunnel {
            Some(endpoint) => Some(endpoint),
            None => edges::find_endpoint(view, &shared, &id)?,
        })
    });
    read.await
}

/// The tunnels of this node; none where they are read with those of other nodes.
fn local_tunnels(service: &Context) -> Option<Vec<TunnelDocument>> {
    let registry = &service.shared.registry;
    match service.shared.cluster {
        Some(_) => None,
        None => Some(registry.tunnels().iter().map(|it| tunnel_row(it, None)).collect()),
    }
}

fn tunnel_endpoints(
    view: &View<'_>,
    here: Option<Vec<TunnelDocument>>,
) -> StoreResult<Vec<Endpoint>> {
    let tunnels = match here {
        Some(tunnels) => tunnels,
        None => cluster::row_page(view, None, ALL)?,
    };
    Ok(tunnels.into_iter().filter_map(tunnel_endpoint).collect())
}

fn tunnel_endpoint(tunnel: TunnelDocument) -> Option<Endpoint> {
    let endpoint = tunnel.endpoint?;
    let usual = if endpoint.proto == "http" { 80 } else { 443 };
    let place = EndpointUrl::parse(&endpoint.url).ok();
    let host = place.as_ref().map(EndpointUrl::host_pattern).unwrap_or_default();
    let port = place.and_then(|place| place.port).unwrap_or(usual);
    Some(Endpoint {
        id: endpoint.id,
        created_at: Some(tunnel.started_at),
        r#type: Some("ephemeral".to_owned()),
        metadata: Some(Text(tunnel.metadata)),
        description: Some(tunnel.description),
        principal: reference_to(&tunnel.account_id),
        tunnel: reference_to(&tunnel.id),
        tunnel_session: reference_to(&tunnel.session_id),
        pooling_enabled: Some(endpoint.pool.is_some()),
        upstream_url: Some(tunnel.forwards_to),
        upstream_protocol: Some(if tunnel.http2 { "http2" } else { "http1" }.to_owned()),
        ..endpoint_at(&endpoint.url, (&host, port))
    })
}

/// What is known of every endpoint at an address.
fn endpoint_at(url: &str, (host, port): (&str, u16)) -> Endpoint {
    let proto = url.split(':').next().map(str::to_owned);
    Endpoint {
        url: Some(url.to_owned()),
        public_url: Some(url.to_owned()),
        proto: proto.clone(),
        scheme: proto,
        hostport: Some(format!("{host}:{port}")),
        host: Some(host.to_owned()),
        port: Some(port.into()),
        description: Some(String::new()),
        bindings: Some(vec![binding_of(host).to_owned()]),
        pooling_enabled: Some(false),
        region: Some(REGION.to_owned()),
        ..Endpoint::default()
    }
}

/// Who can reach a host.
fn binding_of(host: &str) -> &'static str {
    if is_internal(host) { "internal" } else { "public" }
}

fn reference_to(id: &str) -> Option<Ref> {
    Some(Ref { id: id.to_owned(), ..Ref::default() })
}

/// A cloud endpoint as responses show it.
pub(super) fn shown_cloud(
    view: &View<'_>,
    gateway: &Gateway,
    base: &Base,
    endpoint: CloudEndpoint,
) -> StoreResult<Endpoint> {
    Ok(with_addresses(complete_endpoint(view, cloud::to_endpoint(gateway, endpoint))?, base))
}

/// Adds what is only looked up for those that are shown.
async fn complete_all(service: &Context, endpoints: Vec<Endpoint>) -> Result<Vec<Endpoint>> {
    let base = service.shared.base.clone();
    let read = service.read(move |view| {
        let complete = endpoints.into_iter().map(|endpoint| complete_endpoint(view, endpoint));
        let complete = complete.map(|endpoint| Ok(with_addresses(endpoint?, &base)));
        complete.collect::<Result<Vec<_>>>()
    });
    read.await
}

fn complete_endpoint(view: &View<'_>, mut endpoint: Endpoint) -> StoreResult<Endpoint> {
    if let Some(edge) = &endpoint.edge {
        let owners = view.references(&edge.id, HOSTPORTS_OWNER)?;
        endpoint.principal = owners.first().and_then(|owner| reference_to(owner));
    }
    let url = endpoint.url.as_deref().unwrap_or_default();
    if let Some(host) = public_host(url) {
        let domain = domains::reservation_of(view, host)?;
        endpoint.domain = domain.and_then(|domain| reference_to(&domain.id));
    }
    // TLS edges share a port, which is in their addresses all the same.
    let is_shared =
        endpoint.edge.as_ref().is_some_and(|edge| has_prefix(&edge.id, prefix::TLS_EDGE));
    if let Some(port) = own_port(url).filter(|_| !is_shared) {
        let address = domains::address_at(view, port)?;
        endpoint.tcp_addr = address.and_then(|address| reference_to(&address.id));
    }
    Ok(endpoint)
}

fn with_addresses(mut endpoint: Endpoint, base: &Base) -> Endpoint {
    endpoint.uri = base.of(&endpoint.id);
    endpoint.updated_at = endpoint.updated_at.or_else(|| endpoint.created_at.clone());
    let Endpoint { principal, tunnel, tunnel_session, edge, domain, tcp_addr, .. } = &mut endpoint;
    for one in [principal, tunnel, tunnel_session, edge, domain, tcp_addr].into_iter().flatten() {
        one.uri = base.of(&one.id);
    }
    endpoint
}
