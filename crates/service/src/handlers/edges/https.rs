//! HTTPS edges: shown with their routes, deleted with them.

use ginnel_api::id::prefix;
use ginnel_api::remote::edges::https::{Create, Delete, Get, HttpsEdge, List, Update};
use ginnel_api::remote::edges::https_modules as operations;
use ginnel_api::remote::edges::modules::*;
use ginnel_api::remote::edges::routes::HttpsEdgeRoute;
use ginnel_gateway::modules::edge_module::EdgeModule;
use ginnel_policy::Scope;
use ginnel_store::{StoreError, Transaction, View};

use super::hostports::{self, NamesOwner};
use super::modules::{self, CheckedModules, ModuleHolder};
use super::modules::{check_modules, module_handlers, module_references};
use super::{Context, Handler, OperationResult, on};
use crate::Refusal;
use crate::address::Base;
use crate::context::{StoredResource, found, remove};
use crate::references::{EDGE_OF_ROUTE, routes_of};

impl StoredResource for HttpsEdge {
    fn locate(&mut self, base: &Base) {
        self.uri = base.of(&self.id);
        modules::locate(base, https_modules!(module_references, [self]));
        for route in self.routes.iter_mut().flatten() {
            route.locate(base);
        }
    }
}

impl ModuleHolder for HttpsEdge {
    type Path = (String,);

    const SCOPE: Scope = Scope::HttpsRoute;

    fn find(view: &View<'_>, (id,): &Self::Path) -> Result<Self, Refusal> {
        found(view, id)
    }

    fn keep(&self, change: &Transaction<'_>) -> Result<(), Refusal> {
        modules::link_authorities(change, &self.id, self.mutual_tls.as_ref())?;
        Ok(change.put(self)?)
    }
}

pub(super) fn handlers() -> Vec<Handler> {
    let edges = [on(create), on(list), on(get), on(update), on(delete)];
    let modules = https_modules!(module_handlers, [HttpsEdge, operations, (id)]);
    edges.into_iter().chain(modules.into_iter().flatten()).collect()
}

async fn create(service: Context, call: Create) -> OperationResult<Create> {
    let hostports = hostports::checked(call.hostports)?;
    check_hostports(&service, hostports.as_deref())?;
    let modules = CheckedModules::<HttpsEdge>::check(&service, |modules, checker| {
        https_modules!(check_modules, [call, modules, checker])
    });
    let modules = modules.await?;
    let owner = NamesOwner::of(&service);
    let create = service.change(move |change| {
        let mut edge = HttpsEdge {
            id: change.new_id(prefix::HTTPS_EDGE)?,
            created_at: Some(change.now()),
            description: call.description.or(Some("".into())),
            metadata: call.metadata.or(Some("".into())),
            ..HttpsEdge::default()
        };
        modules.set(change, &mut edge)?;
        claim(change, &mut edge, hostports, &owner)?;
        edge.keep(change)?;
        edge.routes = Some(Vec::new());
        Ok(edge)
    });
    create.await
}

async fn list(service: Context, params: List) -> OperationResult<List> {
    let mut page = service.page::<List, HttpsEdge>(params.before_id, params.limit).await?;
    let mut edges = std::mem::take(&mut page.items);
    let read = service.read(move |view| {
        for edge in &mut edges {
            edge.routes = Some(routes_of(view, &edge.id)?);
        }
        Ok(edges)
    });
    page.items = read.await?.into_iter().map(|edge| service.located(edge)).collect();
    Ok(page)
}

async fn get(service: Context, params: Get) -> OperationResult<Get> {
    let read = service.read(move |view| Ok(with_routes(view, found(view, &params.id)?)?));
    Ok(service.located(read.await?))
}

/// An edge as responses show it.
pub(in crate::handlers) fn with_routes(
    view: &View<'_>,
    mut edge: HttpsEdge,
) -> Result<HttpsEdge, StoreError> {
    edge.routes = Some(routes_of(view, &edge.id)?);
    Ok(edge)
}

async fn update(service: Context, call: Update) -> OperationResult<Update> {
    let hostports = hostports::checked(call.hostports)?;
    check_hostports(&service, hostports.as_deref())?;
    let modules = CheckedModules::<HttpsEdge>::check(&service, |modules, checker| {
        https_modules!(check_modules, [call, modules, checker])
    });
    let modules = modules.await?;
    let owner = NamesOwner::of(&service);
    let update = service.change(move |change| {
        let mut edge: HttpsEdge = found(change, &call.id)?;
        modules.set(change, &mut edge)?;
        claim(change, &mut edge, hostports, &owner)?;
        edge.description = call.description.or(edge.description.take());
        edge.metadata = call.metadata.or(edge.metadata.take());
        edge.keep(change)?;
        edge.routes = Some(routes_of(change, &edge.id)?);
        Ok(edge)
    });
    update.await
}

async fn delete(service: Context, params: Delete) -> OperationResult<Delete> {
    let delete = service.write(move |change| {
        let routes = change.referrers(&params.id, EDGE_OF_ROUTE)?;
        change.for_each(&routes, |route| change.remove::<HttpsEdgeRoute>(route).map(drop))?;
        remove::<HttpsEdge>(change, &params.id)
    });
    delete.await
}

fn check_hostports(service: &Context, hostports: Option<&[String]>) -> Result<(), Refusal> {
    let hostports = hostports.unwrap_or_default();
    hostports::check_names(service, hostports)
}

fn claim(
    change: &Transaction<'_>,
    edge: &mut HttpsEdge,
    hostports: Option<Vec<String>>,
    owner: &NamesOwner,
) -> Result<(), Refusal> {
    let Some(hostports) = hostports else { return Ok(()) };
    owner.claim(change, &edge.id, &hostports)?;
    edge.hostports = Some(hostports);
    Ok(())
}
