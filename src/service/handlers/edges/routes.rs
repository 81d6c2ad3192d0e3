//! Routes: each belongs to one edge and holds modules.

use super::modules::{self, check_references};
use super::{Context, Handler, Reply, backends, on};
use crate::api::id::prefix;
use crate::api::remote::edges::https::HttpsEdge;
use crate::api::remote::edges::routes::{Create, Delete, Get, HttpsEdgeRoute, Update};
use crate::policy::Scope;
use crate::policy::path::{self, Ambiguity};
use crate::service::address::Base;
use crate::service::context::{Resource, found, remove};
use crate::service::references::EDGE_OF_ROUTE;
use crate::service::store::{Document, Transaction, View};
use crate::service::{Refusal, code, policies};
/// The longest path, in bytes (remote API sheet, section 6).
const LONGEST_MATCH: usize = 1024;

/// What a request gives for a route, checked; what it leaves out is none.
#[derive(Default)]
pub(super) struct Given {
    pub route: HttpsEdgeRoute,
    /// IP policies that the traffic policy names.
    pub named: Vec<String>,
}

impl Document for HttpsEdgeRoute {
    const PREFIX: &'static str = prefix::HTTPS_ROUTE;

    fn id(&self) -> &str {
        &self.id
    }
}

impl Resource for HttpsEdgeRoute {
    fn locate(&mut self, base: &Base) {
        self.uri = base.of_route(self.edge_id.as_deref().unwrap_or_default(), &self.id);
        modules::locate(base, self.backend.as_mut(), self.ip_restriction.as_mut());
    }
}

/// Gathers what a `Create` or `Update` gives: both have the same fields.
macro_rules! given {
    ($wanted:ident, $match_type:expr, $match:expr) => {{
        let policy = match $wanted.policy {
            Some(policy) => Some(policies::check(policy, Scope::HttpsRoute).await?),
            None => None,
        };
        let (policy, named) = policy.unzip();
        let filter = match $wanted.user_agent_filter {
            Some(filter) => Some(policies::check_filter(filter).await?),
            None => None,
        };
        let header = modules::request_headers;
        let route = HttpsEdgeRoute {
            description: $wanted.description,
            metadata: $wanted.metadata,
            match_type: $match_type,
            r#match: $match,
            backend: $wanted.backend.map(modules::backend).transpose()?,
            ip_restriction: $wanted.ip_restriction.map(modules::ip_restriction).transpose()?,
            circuit_breaker: $wanted.circuit_breaker.map(modules::circuit_breaker).transpose()?,
            compression: $wanted.compression.map(modules::compression).transpose()?,
            request_headers: $wanted.request_headers.map(header).transpose()?,
            response_headers: $wanted
                .response_headers
                .map(modules::response_headers)
                .transpose()?,
            webhook_verification: $wanted
                .webhook_verification
                .map(modules::webhook_verification)
                .transpose()?,
            websocket_tcp_converter: $wanted
                .websocket_tcp_converter
                .map(modules::websocket_tcp_converter)
                .transpose()?,
            user_agent_filter: filter,
            policy,
            ..HttpsEdgeRoute::default()
        };
        Given { route, named: named.unwrap_or_default() }
    }};
}

/// Puts the fields that were given in place of those that were there.
macro_rules! replace {
    ($route:ident, $given:ident: $($field:ident),+ $(,)?) => {
        $( if $given.$field.is_some() { $route.$field = $given.$field; } )+
    };
}

pub(super) fn handlers() -> Vec<Handler> {
    vec![on(create), on(get), on(update), on(delete)]
}

async fn create(service: Context, wanted: Create) -> Reply<Create> {
    check_match(&wanted.match_type, &wanted.r#match)?;
    let given = given!(wanted, Some(wanted.match_type), Some(wanted.r#match));
    let create = service.change(move |change| {
        let edge: HttpsEdge = found(change, &wanted.edge_id)?;
        let mut route = HttpsEdgeRoute {
            id: change.new_id(prefix::HTTPS_ROUTE)?,
            edge_id: Some(edge.id.clone()),
            created_at: Some(change.now()),
            description: Some("".into()),
            metadata: Some("".into()),
            ..HttpsEdgeRoute::default()
        };
        change.link(&route.id, EDGE_OF_ROUTE, [edge.id.as_str()])?;
        apply(change, &mut route, given)?;
        Ok(route)
    });
    create.await
}

async fn get(service: Context, wanted: Get) -> Reply<Get> {
    let route = service.read(|view| route_of(view, &wanted.edge_id, &wanted.id))?;
    Ok(service.located(route))
}

async fn update(service: Context, wanted: Update) -> Reply<Update> {
    let kind = wanted.match_type.as_deref().unwrap_or("path_prefix");
    check_match(kind, wanted.r#match.as_deref().unwrap_or("/"))?;
    let given = given!(wanted, wanted.match_type, wanted.r#match);
    let update = service.change(move |change| {
        let mut route = route_of(change, &wanted.edge_id, &wanted.id)?;
        apply(change, &mut route, given)?;
        Ok(route)
    });
    update.await
}

async fn delete(service: Context, wanted: Delete) -> Reply<Delete> {
    let delete = service.write(move |change| {
        route_of(change, &wanted.edge_id, &wanted.id)?;
        remove::<HttpsEdgeRoute>(change, &wanted.id)
    });
    delete.await
}

/// A route, if it belongs to the edge in the path.
pub(super) fn route_of(
    view: &View<'_>,
    edge_id: &str,
    id: &str,
) -> Result<HttpsEdgeRoute, Refusal> {
    let route: HttpsEdgeRoute = found(view, id)?;
    if route.edge_id.as_deref() == Some(edge_id) { Ok(route) } else { Err(Refusal::not_found()) }
}

/// Changes a route as asked, and stores it.
pub(super) fn apply(
    change: &Transaction<'_>,
    route: &mut HttpsEdgeRoute,
    given: Given,
) -> Result<(), Refusal> {
    let Given { route: given, named } = given;
    check_references(change, given.backend.as_ref(), given.ip_restriction.as_ref(), &named)?;
    let rematch = given.match_type.is_some() || given.r#match.is_some();
    replace!(
        route, given: description, metadata, match_type, r#match, backend, ip_restriction,
        circuit_breaker, compression, request_headers, response_headers, webhook_verification,
        websocket_tcp_converter, user_agent_filter, policy,
    );
    if rematch {
        claim_match(change, route)?;
    }
    keep(change, route)
}

/// Stores a route, and what it refers to.
pub(super) fn keep(change: &Transaction<'_>, route: &HttpsEdgeRoute) -> Result<(), Refusal> {
    let backend = route.backend.as_ref().and_then(|module| module.backend.as_ref());
    change.link(&route.id, backends::TARGET, backend.map(|backend| backend.id.as_str()))?;
    Ok(change.put(route)?)
}

fn claim_match(change: &Transaction<'_>, route: &HttpsEdgeRoute) -> Result<(), Refusal> {
    let space = format!("match:{}", route.edge_id.as_deref().unwrap_or_default());
    let kind = route.match_type.as_deref().unwrap_or_default();
    let path = route.r#match.as_deref().unwrap_or_default();
    change.release(&space, &route.id)?;
    if !change.claim(&space, &format!("{kind} {}", path::normalized(path)), &route.id)? {
        let message = format!("match: another route of the edge has {kind} {path:?}");
        return Err(Refusal::new(code::MATCH_DUPLICATE, message));
    }
    Ok(())
}

/// What is ambiguous in a path, so that no request gets to it.
fn ambiguity(kind: &str, path: &str) -> Option<Ambiguity> {
    // The last segment of a prefix may go on: `/.` leads to `/.well-known`.
    if kind == "path_prefix" { path::ambiguity(&format!("{path}x")) } else { path::ambiguity(path) }
}

fn check_match(kind: &str, path: &str) -> Result<(), Refusal> {
    let (code, message) = if !matches!(kind, "exact_path" | "path_prefix") {
        let message = format!("match_type: {kind:?} is neither exact_path nor path_prefix");
        (code::MATCH_TYPE, message)
    } else if path.is_empty() {
        (code::MATCH_MISSING, "match: must not be empty".to_owned())
    } else if !path.starts_with('/') {
        (code::MATCH_SLASH, format!("match: {path:?} does not start with /"))
    } else if path.len() > LONGEST_MATCH {
        let message = format!("match: is {} bytes long, the limit is {LONGEST_MATCH}", path.len());
        (code::MATCH_TOO_LONG, message)
    } else if let Some(ambiguity) = ambiguity(kind, path) {
        let content = ambiguity.content();
        (code::INVALID_VALUE, format!("match: {path:?} is ambiguous: it holds {content}"))
    } else {
        return Ok(());
    };
    Err(Refusal::new(code, message))
}
