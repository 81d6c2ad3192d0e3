//! TCP edges: they hold their modules themselves.

use ginnel_api::remote::edges::modules::*;
use ginnel_api::remote::edges::tcp::{Create, Delete, Get, List, TcpEdge, Update};
use ginnel_api::remote::edges::tcp_modules as operations;
use ginnel_gateway::modules::edge_module::{EdgeModule, ModuleChecker};
use ginnel_policy::Scope;

use super::edge::{self, Edge, HostportsOwner, edge_handlers};
use super::modules::{self, CheckedModules, ModuleHolder};
use super::modules::{check_modules, module_handlers, module_references};
use super::{backends, hostports};
use crate::handlers::prelude::*;

impl StoredResource for TcpEdge {
    fn locate(&mut self, base: &Base) {
        self.uri = base.of(&self.id);
        modules::fill_uris(base, tcp_modules!(module_references, [self]));
    }
}

impl ModuleHolder for TcpEdge {
    type Path = (String,);

    const SCOPE: Scope = Scope::TcpEdge;

    fn find(view: &View<'_>, (id,): &Self::Path) -> Result<Self> {
        find_or_refuse(view, id)
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

impl Edge for TcpEdge {
    /// Which ports are free is known only once the edge has an identifier.
    fn check_hostports(_: &Context, _: &[String]) -> Result<()> {
        Ok(())
    }

    fn hostports(&mut self) -> &mut Option<Vec<String>> {
        &mut self.hostports
    }

    fn claim(
        &mut self,
        change: &Transaction<'_>,
        hostports: Option<Vec<String>>,
        owner: &HostportsOwner,
    ) -> Result<()> {
        if let Some(hostports) = hostports {
            hostports::claim_hostports(change, &self.id, &hostports)?;
            hostports::take_addresses(change, &self.id, &hostports, &owner.owner_id)?;
            self.hostports = Some(hostports);
        }
        let hostports = self.hostports.as_deref().unwrap_or_default();
        hostports::check_ports(&owner.publisher, &self.id, hostports)
    }
}

edge_handlers! { tcp_modules, TcpEdge, operations }
