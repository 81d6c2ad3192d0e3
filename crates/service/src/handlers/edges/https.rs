//! HTTPS edges: shown with their routes, deleted with them.

use ginnel_api::remote::edges::https::{Create, Delete, Get, HttpsEdge, List, Update};
use ginnel_api::remote::edges::https_modules as operations;
use ginnel_api::remote::edges::modules::*;
use ginnel_api::remote::edges::routes::HttpsEdgeRoute;
use ginnel_gateway::modules::edge_module::{EdgeModule, ModuleChecker};
use ginnel_policy::Scope;
use ginnel_store::StoreResult;

use super::edge::{self, Edge, edge_handlers};
use super::hostports;
use super::modules::{self, CheckedModules, ModuleHolder};
use super::modules::{check_modules, module_handlers, module_references};
use crate::handlers::prelude::*;
use crate::references::{EDGE_OF_ROUTE, routes_of};

impl StoredResource for HttpsEdge {
    fn locate(&mut self, base: &Base) {
        self.uri = base.of(&self.id);
        modules::fill_uris(base, https_modules!(module_references, [self]));
        for route in self.routes.iter_mut().flatten() {
            route.locate(base);
        }
    }

    fn complete(&mut self, view: &View<'_>, _: bool) -> StoreResult<()> {
        self.routes = Some(routes_of(view, &self.id)?);
        Ok(())
    }

    fn remove(change: &Transaction<'_>, id: &str, _: &RemovalContext) -> Result<()> {
        let routes = change.referrers(id, EDGE_OF_ROUTE)?;
        change
            .for_each(&routes, |route| change.remove_document::<HttpsEdgeRoute>(route).map(drop))?;
        remove_or_refuse::<Self>(change, id)
    }
}

impl ModuleHolder for HttpsEdge {
    type Path = (String,);

    const SCOPE: Scope = Scope::HttpsRoute;

    fn find(view: &View<'_>, (id,): &Self::Path) -> Result<Self> {
        find_or_refuse(view, id)
    }

    fn store_with_links(&self, change: &Transaction<'_>) -> Result<()> {
        modules::link_authorities(change, &self.id, self.mutual_tls.as_ref())?;
        Ok(change.put_document(self)?)
    }
}

impl Edge for HttpsEdge {
    fn check_hostports(service: &Context, hostports: &[String]) -> Result<()> {
        hostports::check_names(service, hostports)
    }

    fn hostports(&mut self) -> &mut Option<Vec<String>> {
        &mut self.hostports
    }
}

edge_handlers! { https_modules, HttpsEdge, operations }
