//! Endpoints: what is online in public, of agents on whichever node and of edges.

use std::collections::HashSet;

use sha2::{Digest, Sha256};

use super::{Context, Handler, OperationResult, on};
use crate::api::id::{self, prefix};
use crate::api::remote::Ref;
use crate::api::remote::edges::https::HttpsEdge;
use crate::api::remote::edges::routes::HttpsEdgeRoute;
use crate::api::remote::edges::tcp::TcpEdge;
use crate::api::remote::endpoints::{Endpoint, Get, List};
use crate::api::{Description, Metadata, Operation, Text, Timestamp};
use crate::gateway::is_internal;
use crate::service::Refusal;
use crate::service::address::Base;
use crate::service::agents::{own_port, public_host, tunnel_row};
use crate::service::check::host_port;
use crate::service::cluster::{self, TunnelDocument};
use crate::service::context::{ServiceState, check_before};
use crate::service::domains;
use crate::service::domains::HOSTPORTS_OWNER;
use crate::service::store::{StoreError, View};

/// As many as there are.
const ALL: usize = usize::MAX >> 1;

pub(super) fn handlers() -> Vec<Handler> {
    vec![on(list), on(get)]
}

async fn list(service: Context, params: List) -> OperationResult<List> {
    check_before(params.before_id.as_deref(), prefix::ENDPOINT)?;
    let online = online(&service).await?;
    let List { before_id, limit } = params;
    let mut page = service.page_of_online(&List::INFO, &before_id, limit, online, |it| &it.id);
    page.items = completed(&service, page.items).await?;
    Ok(page)
}

async fn get(service: Context, params: Get) -> OperationResult<Get> {
    let online = online(&service).await?;
    let found = online.into_iter().filter(|endpoint| endpoint.id == params.id).collect();
    completed(&service, found).await?.pop().ok_or_else(Refusal::not_found)
}

/// The endpoints of tunnels and of edges, oldest first.
async fn online(service: &Context) -> Result<Vec<Endpoint>, Refusal> {
    let shared = service.shared.clone();
    let here = match shared.cluster {
        Some(_) => None,
        None => Some(shared.registry.tunnels().iter().map(|it| tunnel_row(it, None)).collect()),
    };
    let read = service.read(move |view| {
        let tunnels: Vec<TunnelDocument> = match here {
            Some(tunnels) => tunnels,
            None => cluster::page(view, None, ALL)?,
        };
        let mut online: Vec<_> = tunnels.into_iter().filter_map(of_tunnel).collect();
        online.extend(of_https_edges(view, &shared)?);
        online.extend(of_tcp_edges(view, &shared)?);
        Ok(online)
    });
    let mut online = read.await?;
    online.sort_unstable_by(|one, other| one.id.cmp(&other.id));
    Ok(online)
}

fn of_tunnel(tunnel: TunnelDocument) -> Option<Endpoint> {
    let endpoint = tunnel.endpoint?;
    let hostport = endpoint.url.split_once("://").map_or("", |(_, place)| place);
    let usual = if endpoint.proto == "http" { 80 } else { 443 };
    let place = hostport.rsplit_once(':').and_then(|(host, port)| Some((host, port.parse().ok()?)));
    let place = place.unwrap_or((hostport, usual));
    Some(Endpoint {
        id: endpoint.id,
        created_at: Some(tunnel.started_at),
        r#type: Some("ephemeral".to_owned()),
        metadata: Some(Text(tunnel.metadata)),
        principal: refer(&tunnel.account_id),
        tunnel: refer(&tunnel.id),
        tunnel_session: refer(&tunnel.session_id),
        pooling_enabled: Some(endpoint.pooled),
        upstream_url: Some(tunnel.forwards_to),
        upstream_protocol: Some(if tunnel.http2 { "http2" } else { "http1" }.to_owned()),
        ..at(&endpoint.url, place)
    })
}

/// Those that have a route with a backend: the others are not served.
fn of_https_edges(view: &View<'_>, shared: &ServiceState) -> Result<Vec<Endpoint>, StoreError> {
    let routes = view.all::<HttpsEdgeRoute>()?.into_iter();
    let served = routes.filter(|route| route.backend.is_some());
    let served: HashSet<_> = served.filter_map(|route| route.edge_id).collect();
    let edges = view.all::<HttpsEdge>()?.into_iter();
    let online = edges.filter(|edge| served.contains(&edge.id)).flat_map(|edge| {
        let hostports = edge.hostports.clone().unwrap_or_default();
        hostports.into_iter().filter_map(move |hostport| {
            let url = url_of_host(shared, &hostport)?;
            of_edge(&hostport, &url, EdgeText::of_https(&edge))
        })
    });
    Ok(online.collect())
}

/// Those that have a backend, and listen.
fn of_tcp_edges(view: &View<'_>, shared: &ServiceState) -> Result<Vec<Endpoint>, StoreError> {
    let missing = shared.publisher.missing_ports();
    let edges = view.all::<TcpEdge>()?.into_iter();
    let online = edges.filter(|edge| edge.backend.is_some()).flat_map(|edge| {
        let hostports = edge.hostports.clone().unwrap_or_default();
        let missing = &missing;
        hostports.into_iter().filter_map(move |hostport| {
            let (_, port) = host_port(&hostport).ok()?;
            let is_missing = missing.iter().any(|(id, its)| *id == edge.id && *its == port);
            let endpoint =
                of_edge(&hostport, &format!("tcp://{hostport}"), EdgeText::of_tcp(&edge));
            endpoint.filter(|_| !is_missing)
        })
    });
    Ok(online.collect())
}

/// What an endpoint shows of its edge.
struct EdgeText {
    id: String,
    created_at: Option<Timestamp>,
    description: Option<Description>,
    metadata: Option<Metadata>,
}

impl EdgeText {
    fn of_https(edge: &HttpsEdge) -> Self {
        Self {
            id: edge.id.clone(),
            created_at: edge.created_at.clone(),
            description: edge.description.clone(),
            metadata: edge.metadata.clone(),
        }
    }

    fn of_tcp(edge: &TcpEdge) -> Self {
        Self {
            id: edge.id.clone(),
            created_at: edge.created_at.clone(),
            description: edge.description.clone(),
            metadata: edge.metadata.clone(),
        }
    }
}

/// The address of an edge's host on the shared ports; none where there is no such port.
fn url_of_host(shared: &ServiceState, hostport: &str) -> Option<String> {
    let (host, port) = hostport.rsplit_once(':')?;
    match port {
        "80" => shared.gateway.url_of(host, false),
        "443" => shared.gateway.url_of(host, true),
        _ => Some(format!("https://{hostport}")),
    }
}

fn of_edge(hostport: &str, url: &str, edge: EdgeText) -> Option<Endpoint> {
    let (host, port) = hostport.rsplit_once(':')?;
    Some(Endpoint {
        id: endpoint_id(&edge.id, hostport),
        created_at: edge.created_at,
        r#type: Some("edge".to_owned()),
        metadata: edge.metadata,
        description: edge.description.map(|text| text.0),
        edge: refer(&edge.id),
        ..at(url, (host, port.parse().ok()?))
    })
}

/// An identifier that is always the same for one `host:port` of an edge.
fn endpoint_id(edge_id: &str, hostport: &str) -> String {
    let digest = Sha256::digest(format!("{edge_id} {}", hostport.to_ascii_lowercase()));
    let payload = digest.iter().take(16).fold(0, |sum, byte| sum << 8 | u128::from(*byte));
    id::beside(prefix::ENDPOINT, edge_id, payload)
}

/// What is known of every endpoint at an address.
fn at(url: &str, (host, port): (&str, u16)) -> Endpoint {
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
        bindings: Some(vec![if is_internal(host) { "internal" } else { "public" }.to_owned()]),
        pooling_enabled: Some(false),
        region: Some("local".to_owned()),
        ..Endpoint::default()
    }
}

fn refer(id: &str) -> Option<Ref> {
    Some(Ref { id: id.to_owned(), ..Ref::default() })
}

/// Adds what is only looked up for those that are shown.
async fn completed(service: &Context, endpoints: Vec<Endpoint>) -> Result<Vec<Endpoint>, Refusal> {
    let base = service.shared.base.clone();
    let read = service.read(move |view| {
        let complete = endpoints.into_iter().map(|endpoint| complete(view, endpoint));
        let complete = complete.map(|endpoint| Ok(located(endpoint?, &base)));
        complete.collect::<Result<Vec<_>, Refusal>>()
    });
    read.await
}

fn complete(view: &View<'_>, mut endpoint: Endpoint) -> Result<Endpoint, StoreError> {
    if let Some(edge) = &endpoint.edge {
        let owners = view.references(&edge.id, HOSTPORTS_OWNER)?;
        endpoint.principal = owners.first().and_then(|owner| refer(owner));
    }
    let url = endpoint.url.as_deref().unwrap_or_default();
    if let Some(host) = public_host(url) {
        let domain = domains::reservation_of(view, host)?;
        endpoint.domain = domain.and_then(|domain| refer(&domain.id));
    }
    if let Some(port) = own_port(url) {
        let address = domains::address_at(view, port)?;
        endpoint.tcp_addr = address.and_then(|address| refer(&address.id));
    }
    Ok(endpoint)
}

fn located(mut endpoint: Endpoint, base: &Base) -> Endpoint {
    endpoint.uri = base.of(&endpoint.id);
    endpoint.updated_at.clone_from(&endpoint.created_at);
    let Endpoint { principal, tunnel, tunnel_session, edge, domain, tcp_addr, .. } = &mut endpoint;
    for one in [principal, tunnel, tunnel_session, edge, domain, tcp_addr].into_iter().flatten() {
        one.uri = base.of(&one.id);
    }
    endpoint
}
