//! Endpoints of edges, found by time: an endpoint's identifier begins with the second of its edge.

use sha2::{Digest, Sha256};

use ginnel_api::id::{self, prefix};
use ginnel_api::remote::edges::https::HttpsEdge;
use ginnel_api::remote::edges::tcp::TcpEdge;
use ginnel_api::remote::edges::tls::TlsEdge;
use ginnel_api::remote::endpoints::Endpoint;
use ginnel_api::{Description, Metadata, Timestamp};
use ginnel_base::address::HostPortPattern;
use ginnel_store::{Document, StoreResult, View};

use super::{endpoint_at, reference_to};
use crate::check::host_port;
use crate::context::ServiceState;
use crate::references::routes_of;

/// How many edges are read at once.
const EDGE_PAGE: usize = 100;

/// At least `wanted` endpoints of edges older than the endpoint `before`, if there are as many, with all that
/// are newer than the last of them.
pub(super) fn endpoint_page(
    view: &View<'_>,
    shared: &ServiceState,
    before: Option<&str>,
    wanted: usize,
) -> StoreResult<Vec<Endpoint>> {
    let is_enough = |found: &[Endpoint], last_edge: &str| {
        // In which order those of one second are, edges do not say.
        let newest_left = id::sibling_id(prefix::ENDPOINT, last_edge, u128::MAX);
        let is_wanted = |it: &&Endpoint| {
            it.id > newest_left && before.is_none_or(|before| it.id.as_str() < before)
        };
        found.iter().filter(is_wanted).count() >= wanted
    };
    edge_endpoints(view, shared, before, is_enough)
}

/// The endpoint of an edge with this identifier.
pub(super) fn find_endpoint(
    view: &View<'_>,
    shared: &ServiceState,
    endpoint_id: &str,
) -> StoreResult<Option<Endpoint>> {
    let is_enough = |found: &[Endpoint], last_edge: &str| {
        let oldest = id::sibling_id(prefix::ENDPOINT, endpoint_id, 0);
        found.iter().any(|it| it.id == endpoint_id)
            || id::sibling_id(prefix::ENDPOINT, last_edge, 0) < oldest
    };
    let found = edge_endpoints(view, shared, Some(endpoint_id), is_enough)?;
    Ok(found.into_iter().find(|it| it.id == endpoint_id))
}

fn edge_endpoints(
    view: &View<'_>,
    shared: &ServiceState,
    from: Option<&str>,
    is_enough: impl Fn(&[Endpoint], &str) -> bool,
) -> StoreResult<Vec<Endpoint>> {
    let mut found =
        collect_endpoints(view, from, &is_enough, |edge| https_edge_endpoints(view, shared, edge))?;
    let missing = shared.publisher.missing_ports();
    found.extend(collect_endpoints(view, from, &is_enough, |edge| {
        Ok(tcp_edge_endpoints(&missing, edge))
    })?);
    found.extend(collect_endpoints(view, from, &is_enough, |edge| {
        Ok(tls_edge_endpoints(shared, &edge))
    })?);
    Ok(found)
}

/// What is made of edges of one kind, newest first, beginning with those of the second of an identifier.
fn collect_endpoints<E: Document>(
    view: &View<'_>,
    from: Option<&str>,
    is_enough: &impl Fn(&[Endpoint], &str) -> bool,
    endpoints: impl Fn(E) -> StoreResult<Vec<Endpoint>>,
) -> StoreResult<Vec<Endpoint>> {
    let mut before = from.map(|from| id::sibling_id(E::PREFIX, from, u128::MAX));
    let mut found = Vec::new();
    loop {
        let edges = view.document_page::<E>(before.as_deref(), EDGE_PAGE)?;
        let is_last = edges.len() < EDGE_PAGE;
        before = edges.last().map(|edge| edge.id().to_owned());
        for edge in edges {
            found.extend(endpoints(edge)?);
        }
        let is_done = |last: &String| is_enough(&found, last);
        if is_last || before.as_ref().is_some_and(is_done) {
            return Ok(found);
        }
    }
}

/// Those that have a route with a backend: the others are not served.
fn https_edge_endpoints(
    view: &View<'_>,
    shared: &ServiceState,
    edge: HttpsEdge,
) -> StoreResult<Vec<Endpoint>> {
    if !routes_of(view, &edge.id)?.iter().any(|route| route.backend.is_some()) {
        return Ok(Vec::new());
    }
    let hostports = edge.hostports.iter().flatten();
    let online = hostports.filter_map(|hostport| {
        edge_endpoint(hostport, &url_of_host(shared, hostport)?, (&edge).into())
    });
    Ok(online.collect())
}

/// Those that have a backend, and listen.
fn tcp_edge_endpoints(missing: &[(String, u16)], edge: TcpEdge) -> Vec<Endpoint> {
    if edge.backend.is_none() {
        return Vec::new();
    }
    let hostports = edge.hostports.iter().flatten();
    let online = hostports.filter_map(|hostport| {
        let (_, port) = host_port(hostport).ok()?;
        let is_missing = missing.iter().any(|(id, its)| *id == edge.id && *its == port);
        let endpoint = edge_endpoint(hostport, &format!("tcp://{hostport}"), (&edge).into());
        endpoint.filter(|_| !is_missing)
    });
    online.collect()
}

/// Those that have a backend, where there is a port for TLS.
fn tls_edge_endpoints(shared: &ServiceState, edge: &TlsEdge) -> Vec<Endpoint> {
    let port = shared.gateway.tls_port().filter(|_| edge.backend.is_some());
    let hostports = port.and(edge.hostports.as_ref()).into_iter().flatten();
    let online = hostports.filter_map(|hostport| {
        let host = HostPortPattern::parse(hostport).ok()?.host_pattern();
        edge_endpoint(hostport, &format!("tls://{host}:{}", port?), edge.into())
    });
    online.collect()
}

/// What an endpoint shows of its edge.
struct EdgeText {
    id: String,
    created_at: Option<Timestamp>,
    description: Option<Description>,
    metadata: Option<Metadata>,
}

macro_rules! edges {
    ($($Edge:ident),+) => {$(
        impl From<&$Edge> for EdgeText {
            fn from(edge: &$Edge) -> Self {
                Self {
                    id: edge.id.clone(),
                    created_at: edge.created_at.clone(),
                    description: edge.description.clone(),
                    metadata: edge.metadata.clone(),
                }
            }
        }
    )+};
}

edges! { HttpsEdge, TcpEdge, TlsEdge }

/// The address of an edge's host on the shared ports; none where there is no such port.
fn url_of_host(shared: &ServiceState, hostport: &str) -> Option<String> {
    let place = HostPortPattern::parse(hostport).ok()?;
    match place.port() {
        80 => shared.gateway.url_of(&place.host_pattern(), false),
        443 => shared.gateway.url_of(&place.host_pattern(), true),
        _ => Some(format!("https://{hostport}")),
    }
}

fn edge_endpoint(hostport: &str, url: &str, edge: EdgeText) -> Option<Endpoint> {
    let place = HostPortPattern::parse(hostport).ok()?;
    Some(Endpoint {
        id: endpoint_id(&edge.id, hostport),
        created_at: edge.created_at,
        r#type: Some("edge".to_owned()),
        metadata: edge.metadata,
        description: edge.description.map(|text| text.0),
        edge: reference_to(&edge.id),
        ..endpoint_at(url, (&place.host_pattern(), place.port()))
    })
}

/// An identifier that is always the same for one `host:port` of an edge.
fn endpoint_id(edge_id: &str, hostport: &str) -> String {
    let digest = Sha256::digest(format!("{edge_id} {}", hostport.to_ascii_lowercase()));
    let payload = digest.iter().take(16).fold(0, |sum, byte| sum << 8 | u128::from(*byte));
    id::sibling_id(prefix::ENDPOINT, edge_id, payload)
}
