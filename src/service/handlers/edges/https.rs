//! HTTPS edges: shown with their routes, deleted with them.

use super::routes::{EDGE, routes_of};
use super::{Context, Handler, Reply, hostports, on};
use crate::api::id::prefix;
use crate::api::remote::edges::https::{Create, Delete, Get, HttpsEdge, List, Update};
use crate::api::remote::edges::routes::HttpsEdgeRoute;
use crate::service::address::Base;
use crate::service::context::{Resource, found, remove};
use crate::service::store::Document;

impl Document for HttpsEdge {
    const PREFIX: &'static str = prefix::HTTPS_EDGE;

    fn id(&self) -> &str {
        &self.id
    }
}

impl Resource for HttpsEdge {
    fn locate(&mut self, base: &Base) {
        self.uri = base.of(&self.id);
        for route in self.routes.iter_mut().flatten() {
            route.locate(base);
        }
    }
}

pub(super) fn handlers() -> Vec<Handler> {
    vec![on(create), on(list), on(get), on(update), on(delete)]
}

async fn create(service: Context, wanted: Create) -> Reply<Create> {
    hostports::check(wanted.hostports.as_deref().unwrap_or_default())?;
    hostports::check_names(&service, wanted.hostports.as_deref().unwrap_or_default())?;
    let create = service.change(move |change| {
        let mut edge = HttpsEdge {
            id: change.new_id(prefix::HTTPS_EDGE)?,
            created_at: Some(change.now()),
            description: Some(wanted.description.unwrap_or_default()),
            metadata: Some(wanted.metadata.unwrap_or_default()),
            hostports: wanted.hostports,
            ..HttpsEdge::default()
        };
        hostports::claim(change, &edge.id, edge.hostports.as_deref().unwrap_or_default())?;
        change.put(&edge)?;
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
    hostports::check(wanted.hostports.as_deref().unwrap_or_default())?;
    hostports::check_names(&service, wanted.hostports.as_deref().unwrap_or_default())?;
    let update = service.change(move |change| {
        let mut edge: HttpsEdge = found(change, &wanted.id)?;
        edge.description = wanted.description.or(edge.description);
        edge.metadata = wanted.metadata.or(edge.metadata);
        if let Some(hostports) = wanted.hostports {
            hostports::claim(change, &edge.id, &hostports)?;
            edge.hostports = Some(hostports);
        }
        change.put(&edge)?;
        edge.routes = Some(routes_of(change, &edge.id)?);
        Ok(edge)
    });
    update.await
}

async fn delete(service: Context, wanted: Delete) -> Reply<Delete> {
    let delete = service.write(move |change| {
        for route in change.referrers(&wanted.id, EDGE)? {
            change.remove::<HttpsEdgeRoute>(&route)?;
        }
        remove::<HttpsEdge>(change, &wanted.id)
    });
    delete.await
}
