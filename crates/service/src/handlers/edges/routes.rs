//! Routes: each belongs to one edge and holds modules.

use ginnel_api::remote::edges::https::HttpsEdge;
use ginnel_api::remote::edges::modules::*;
use ginnel_api::remote::edges::route_modules as operations;
use ginnel_api::remote::edges::routes::{Create, Delete, Get, HttpsEdgeRoute, Update};
use ginnel_gateway::modules::edge_module::EdgeModule;
use ginnel_policy::Scope;
use ginnel_policy::path::{Ambiguity, RequestPath};

use super::backends;
use super::modules::{self, CheckedModules, ModuleHolder};
use super::modules::{check_modules, module_handlers, module_references};
use crate::handlers::prelude::*;
use crate::references::EDGE_OF_ROUTE;

/// The longest path (remote API sheet, section 6).
const MAX_MATCH_BYTES: usize = 1024;

impl StoredResource for HttpsEdgeRoute {
    fn locate(&mut self, base: &Base) {
        self.uri = base.of_route(self.edge_id.as_deref().unwrap_or_default(), &self.id);
        modules::fill_uris(base, route_modules!(module_references, [self]));
    }
}

impl ModuleHolder for HttpsEdgeRoute {
    /// The identifiers of the edge and of the route.
    type Path = (String, String);

    const SCOPE: Scope = Scope::HttpsRoute;

    fn find(view: &View<'_>, (edge_id, id): &Self::Path) -> Result<Self> {
        route_of(view, edge_id, id)
    }

    fn has_two_policies(&self) -> bool {
        self.policy.is_some() && self.traffic_policy.is_some()
    }

    fn store_with_links(&self, change: &Transaction<'_>) -> Result<()> {
        let backend = self.backend.as_ref().and_then(|module| module.backend.as_ref());
        change.replace_references(
            &self.id,
            backends::TARGET,
            backend.map(|backend| backend.id.as_str()),
        )?;
        Ok(change.put_document(self)?)
    }
}

pub(super) fn handlers() -> Vec<Handler> {
    let routes = [on(create), on(get), on(update), on(delete)];
    let modules = route_modules!(module_handlers, [HttpsEdgeRoute, operations, (edge_id, id)]);
    routes.into_iter().chain(modules.into_iter().flatten()).collect()
}

async fn create(service: Context, call: Create) -> OperationResult<Create> {
    check_match(&call.match_type, &call.r#match)?;
    let modules = CheckedModules::<HttpsEdgeRoute>::check(&service, |modules, checker| {
        route_modules!(check_modules, [call, modules, checker])
    });
    let modules = modules.await?;
    let _held = modules.compiled();
    let create = service.write_resource(move |change| {
        let edge: HttpsEdge = find_or_refuse(change, &call.edge_id)?;
        let mut route = HttpsEdgeRoute {
            id: change.new_id(prefix::HTTPS_ROUTE)?,
            edge_id: Some(edge.id.clone()),
            created_at: Some(change.now()),
            description: call.description.or(Some("".into())),
            metadata: call.metadata.or(Some("".into())),
            match_type: Some(call.match_type),
            r#match: Some(call.r#match),
            ..HttpsEdgeRoute::default()
        };
        change.replace_references(&route.id, EDGE_OF_ROUTE, [edge.id.as_str()])?;
        modules.apply_to(change, &mut route)?;
        claim_match(change, &route)?;
        route.store_with_links(change)?;
        Ok(route)
    });
    create.await
}

async fn get(service: Context, params: Get) -> OperationResult<Get> {
    let route = service.read(move |view| route_of(view, &params.edge_id, &params.id)).await?;
    Ok(service.with_addresses(route))
}

async fn update(service: Context, mut call: Update) -> OperationResult<Update> {
    drop_empty_defaults(&mut call);
    let kind = call.match_type.as_deref().unwrap_or("path_prefix");
    check_match(kind, call.r#match.as_deref().unwrap_or("/"))?;
    let modules = CheckedModules::<HttpsEdgeRoute>::check(&service, |modules, checker| {
        route_modules!(check_modules, [call, modules, checker])
    });
    let modules = modules.await?;
    let _held = modules.compiled();
    let update = service.write_resource(move |change| {
        let mut route = route_of(change, &call.edge_id, &call.id)?;
        modules.apply_to(change, &mut route)?;
        let rematch = call.match_type.is_some() || call.r#match.is_some();
        route.description = call.description.or(route.description.take());
        route.metadata = call.metadata.or(route.metadata.take());
        route.match_type = call.match_type.or(route.match_type.take());
        route.r#match = call.r#match.or(route.r#match.take());
        if rematch {
            claim_match(change, &route)?;
        }
        route.store_with_links(change)?;
        Ok(route)
    });
    update.await
}

async fn delete(service: Context, params: Delete) -> OperationResult<Delete> {
    let delete = service.write(move |change| {
        route_of(change, &params.edge_id, &params.id)?;
        remove_or_refuse::<HttpsEdgeRoute>(change, &params.id)
    });
    delete.await
}

/// Takes out the texts that a generated client of Python sends for what its caller left out: all four of an
/// update are empty then, and two of them can only be empty so.
fn drop_empty_defaults(call: &mut Update) {
    let is_empty = |text: &Option<String>| text.as_ref().is_some_and(String::is_empty);
    if !is_empty(&call.match_type) && !is_empty(&call.r#match) {
        return;
    }
    call.match_type = call.match_type.take().filter(|text| !text.is_empty());
    call.r#match = call.r#match.take().filter(|text| !text.is_empty());
    call.description = call.description.take().filter(|text| !text.0.is_empty());
    call.metadata = call.metadata.take().filter(|text| !text.0.is_empty());
}

/// A route, if it belongs to the edge in the path.
fn route_of(view: &View<'_>, edge_id: &str, id: &str) -> Result<HttpsEdgeRoute> {
    let route: HttpsEdgeRoute = find_or_refuse(view, id)?;
    if route.edge_id.as_deref() == Some(edge_id) { Ok(route) } else { Err(Refusal::not_found()) }
}

fn claim_match(change: &Transaction<'_>, route: &HttpsEdgeRoute) -> Result<()> {
    let space = format!("match:{}", route.edge_id.as_deref().unwrap_or_default());
    let kind = route.match_type.as_deref().unwrap_or_default();
    let path = route.r#match.as_deref().unwrap_or_default();
    change.release_claims(&space, &route.id)?;
    if !change.claim_key(
        &space,
        &format!("{kind} {}", RequestPath::new(path).normal()),
        &route.id,
    )? {
        let message = format!("match: another route of the edge has {kind} {path:?}");
        return Err(Refusal::new(code::MATCH_DUPLICATE, message));
    }
    Ok(())
}

/// What is ambiguous in a path, so that no request gets to it.
fn path_ambiguity(kind: &str, path: &str) -> Option<Ambiguity> {
    // The last segment of a prefix may go on: `/.` leads to `/.well-known`.
    let extended = format!("{path}x");
    RequestPath::new(if kind == "path_prefix" { &extended } else { path }).ambiguity()
}

fn check_match(kind: &str, path: &str) -> Result<()> {
    let (code, message) = if !matches!(kind, "exact_path" | "path_prefix") {
        let message = format!("match_type: {kind:?} is neither exact_path nor path_prefix");
        (code::MATCH_TYPE, message)
    } else if path.is_empty() {
        (code::MATCH_MISSING, "match: must not be empty".to_owned())
    } else if !path.starts_with('/') {
        (code::MATCH_SLASH, format!("match: {path:?} does not start with /"))
    } else if path.len() > MAX_MATCH_BYTES {
        let message =
            format!("match: is {} bytes long, the limit is {MAX_MATCH_BYTES}", path.len());
        (code::MATCH_TOO_LONG, message)
    } else if let Some(ambiguity) = path_ambiguity(kind, path) {
        let content = ambiguity.content();
        (code::INVALID_VALUE, format!("match: {path:?} is ambiguous: it holds {content}"))
    } else {
        return Ok(());
    };
    Err(Refusal::new(code, message))
}
