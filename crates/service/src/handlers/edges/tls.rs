//! TLS edges: found by name as HTTPS edges are, they carry bytes as TCP edges do.

use ginnel_api::remote::edges::modules::*;
use ginnel_api::remote::edges::tls::{Create, Delete, Get, List, TlsEdge, Update};
use ginnel_api::remote::edges::tls_modules as operations;
use ginnel_gateway::modules::edge_module::{EdgeModule, ModuleChecker};
use ginnel_gateway::modules::tls_termination::ends_at_edge;
use ginnel_policy::Scope;

use super::edge::{self, Edge, edge_handlers};
use super::modules::{self, CheckedModules, ModuleHolder};
use super::modules::{check_modules, module_handlers, module_references};
use super::{backends, hostports};
use crate::handlers::prelude::*;

impl StoredResource for TlsEdge {
    fn locate(&mut self, base: &Base) {
        self.uri = base.of(&self.id);
        modules::fill_uris(base, tls_modules!(module_references, [self]));
    }
}

impl ModuleHolder for TlsEdge {
    type Path = (String,);

    const SCOPE: Scope = Scope::TcpEdge;

    fn find(view: &View<'_>, (id,): &Self::Path) -> Result<Self> {
        find_or_refuse(view, id)
    }

    fn has_two_policies(&self) -> bool {
        self.policy.is_some() && self.traffic_policy.is_some()
    }

    fn store_with_links(&self, change: &Transaction<'_>) -> Result<()> {
        check_modules_together(self)?;
        let backend = self.backend.as_ref().and_then(|module| module.backend.as_ref());
        change.replace_references(
            &self.id,
            backends::TARGET,
            backend.map(|backend| backend.id.as_str()),
        )?;
        modules::link_authorities(change, &self.id, self.mutual_tls.as_ref())?;
        Ok(change.put_document(self)?)
    }
}

impl Edge for TlsEdge {
    fn check_hostports(service: &Context, hostports: &[String]) -> Result<()> {
        hostports::check_tls_names(hostports)?;
        hostports::check_names(service, hostports)
    }

    fn hostports(&mut self) -> &mut Option<Vec<String>> {
        &mut self.hostports
    }
}

edge_handlers! { tls_modules, TlsEdge, operations }

/// Refuses to ask visitors for certificates where their handshake is with somebody else.
fn check_modules_together(edge: &TlsEdge) -> Result<()> {
    let asks = edge.mutual_tls.as_ref().is_some_and(EdgeModule::is_enabled);
    let ends = edge.tls_termination.as_ref().is_some_and(ends_at_edge);
    if asks && !ends {
        let message = "mutual_tls: needs tls_termination with terminate_at edge, which must be \
                       set before and stay as long";
        return Err(Refusal::new(code::INVALID_VALUE, message));
    }
    Ok(())
}
