//! HTTPS edges: shown with their routes, deleted with them.

use super::{Context, Handler, Reply, certificate_authorities, hostports, modules, on};
use crate::api::id::prefix;
use crate::api::remote::edges::https::{Create, Delete, Get, HttpsEdge, List, Update};
use crate::api::remote::edges::routes::HttpsEdgeRoute;
use crate::service::Refusal;
use crate::service::address::Base;
use crate::service::context::{Resource, found, remove};
use crate::service::references::{EDGE_OF_ROUTE, routes_of};
use crate::service::store::{Document, Transaction};

impl Document for HttpsEdge {
    const PREFIX: &'static str = prefix::HTTPS_EDGE;

    fn id(&self) -> &str {
        &self.id
    }
}

impl Resource for HttpsEdge {
    fn locate(&mut self, base: &Base) {
        self.uri = base.of(&self.id);
        let module = self.mutual_tls.as_mut().and_then(|it| it.certificate_authorities.as_mut());
        for authority in module.into_iter().flatten() {
            authority.uri = base.of(&authority.id);
        }
        for route in self.routes.iter_mut().flatten() {
            route.locate(base);
        }
    }
}

pub(super) fn handlers() -> Vec<Handler> {
    vec![on(create), on(list), on(get), on(update), on(delete)]
}

/// Gathers what a `Create` or `Update` gives: both have the same fields.
macro_rules! given {
    ($service:ident, $wanted:ident) => {{
        hostports::check($wanted.hostports.as_deref().unwrap_or_default())?;
        hostports::check_names(&$service, $wanted.hostports.as_deref().unwrap_or_default())?;
        HttpsEdge {
            description: $wanted.description,
            metadata: $wanted.metadata,
            hostports: $wanted.hostports,
            mutual_tls: $wanted.mutual_tls.map(modules::mutual_tls).transpose()?,
            tls_termination: $wanted.tls_termination.map(modules::tls_termination).transpose()?,
            ..HttpsEdge::default()
        }
    }};
}

async fn create(service: Context, wanted: Create) -> Reply<Create> {
    let given = given!(service, wanted);
    let create = service.change(move |change| {
        let mut edge = HttpsEdge {
            id: change.new_id(prefix::HTTPS_EDGE)?,
            created_at: Some(change.now()),
            description: Some("".into()),
            metadata: Some("".into()),
            ..HttpsEdge::default()
        };
        apply(change, &mut edge, given)?;
        edge.routes = Some(Vec::new());
        Ok(edge)
    });
    create.await
}

async fn list(service: Context, wanted: List) -> Reply<List> {
    let mut page = service.page::<List, HttpsEdge>(wanted.before_id, wanted.limit)?;
    service.read(|view| {
        for edge in &mut page.items {
            edge.routes = Some(routes_of(view, &edge.id)?);
        }
        Ok(())
    })?;
    page.items = page.items.into_iter().map(|edge| service.located(edge)).collect();
    Ok(page)
}

async fn get(service: Context, wanted: Get) -> Reply<Get> {
    let edge = service.read(|view| {
        let mut edge: HttpsEdge = found(view, &wanted.id)?;
        edge.routes = Some(routes_of(view, &edge.id)?);
        Ok(edge)
    })?;
    Ok(service.located(edge))
}

async fn update(service: Context, wanted: Update) -> Reply<Update> {
    let given = given!(service, wanted);
    let update = service.change(move |change| {
        let mut edge: HttpsEdge = found(change, &wanted.id)?;
        apply(change, &mut edge, given)?;
        edge.routes = Some(routes_of(change, &edge.id)?);
        Ok(edge)
    });
    update.await
}

async fn delete(service: Context, wanted: Delete) -> Reply<Delete> {
    let delete = service.write(move |change| {
        for route in change.referrers(&wanted.id, EDGE_OF_ROUTE)? {
            change.remove::<HttpsEdgeRoute>(&route)?;
        }
        remove::<HttpsEdge>(change, &wanted.id)
    });
    delete.await
}

/// Changes an edge as asked, and stores it.
pub(super) fn apply(
    change: &Transaction<'_>,
    edge: &mut HttpsEdge,
    given: HttpsEdge,
) -> Result<(), Refusal> {
    for id in authorities(&given) {
        certificate_authorities::check_exists(change, id)?;
    }
    if let Some(hostports) = given.hostports {
        hostports::claim(change, &edge.id, &hostports)?;
        edge.hostports = Some(hostports);
    }
    edge.description = given.description.or(edge.description.take());
    edge.metadata = given.metadata.or(edge.metadata.take());
    edge.mutual_tls = given.mutual_tls.or(edge.mutual_tls.take());
    edge.tls_termination = given.tls_termination.or(edge.tls_termination.take());
    keep(change, edge)
}

/// Stores an edge, and what it refers to.
pub(super) fn keep(change: &Transaction<'_>, edge: &HttpsEdge) -> Result<(), Refusal> {
    change.link(&edge.id, certificate_authorities::AUTHORITY, authorities(edge))?;
    Ok(change.put(edge)?)
}

/// The authorities that vouch for the visitors of an edge.
fn authorities(edge: &HttpsEdge) -> impl Iterator<Item = &str> {
    let module = edge.mutual_tls.as_ref().and_then(|it| it.certificate_authorities.as_ref());
    module.into_iter().flatten().map(|authority| authority.id.as_str())
}
