//! TLS edges: found by name as HTTPS edges are, they carry bytes as TCP edges do.

use ginnel_api::id::prefix;
use ginnel_api::remote::edges::modules::*;
use ginnel_api::remote::edges::tls::{Create, Delete, Get, List, TlsEdge, Update};
use ginnel_api::remote::edges::tls_modules as operations;
use ginnel_gateway::modules::edge_module::EdgeModule;
use ginnel_gateway::modules::tls_termination::ends_at_edge;
use ginnel_policy::Scope;
use ginnel_store::{Transaction, View};

use super::hostports::{self, NamesOwner};
use super::modules::{self, CheckedModules, ModuleHolder};
use super::modules::{check_modules, module_handlers, module_references};
use super::{Context, Handler, OperationResult, backends, on};
use crate::address::Base;
use crate::context::{StoredResource, found, remove};
use crate::{Refusal, code};

impl StoredResource for TlsEdge {
    fn locate(&mut self, base: &Base) {
        self.uri = base.of(&self.id);
        modules::locate(base, tls_modules!(module_references, [self]));
    }
}

impl ModuleHolder for TlsEdge {
    type Path = (String,);

    const SCOPE: Scope = Scope::TcpEdge;

    fn find(view: &View<'_>, (id,): &Self::Path) -> Result<Self, Refusal> {
        found(view, id)
    }

    fn has_two_policies(&self) -> bool {
        self.policy.is_some() && self.traffic_policy.is_some()
    }

    fn keep(&self, change: &Transaction<'_>) -> Result<(), Refusal> {
        check_modules_together(self)?;
        let backend = self.backend.as_ref().and_then(|module| module.backend.as_ref());
        change.link(&self.id, backends::TARGET, backend.map(|backend| backend.id.as_str()))?;
        modules::link_authorities(change, &self.id, self.mutual_tls.as_ref())?;
        Ok(change.put(self)?)
    }
}

pub(super) fn handlers() -> Vec<Handler> {
    let edges = [on(create), on(list), on(get), on(update), on(delete)];
    let modules = tls_modules!(module_handlers, [TlsEdge, operations, (id)]);
    edges.into_iter().chain(modules.into_iter().flatten()).collect()
}

async fn create(service: Context, call: Create) -> OperationResult<Create> {
    let hostports = hostports::checked(call.hostports)?;
    check_hostports(&service, hostports.as_deref())?;
    let modules = CheckedModules::<TlsEdge>::check(&service, |modules, checker| {
        tls_modules!(check_modules, [call, modules, checker])
    });
    let modules = modules.await?;
    let _held = modules.compiled();
    let owner = NamesOwner::of(&service);
    let create = service.change(move |change| {
        let mut edge = TlsEdge {
            id: change.new_id(prefix::TLS_EDGE)?,
            created_at: Some(change.now()),
            description: call.description.or(Some("".into())),
            metadata: call.metadata.or(Some("".into())),
            ..TlsEdge::default()
        };
        modules.set(change, &mut edge)?;
        claim(change, &mut edge, hostports, &owner)?;
        edge.keep(change)?;
        Ok(edge)
    });
    create.await
}

async fn list(service: Context, params: List) -> OperationResult<List> {
    service.page::<List, _>(params.before_id, params.limit).await
}

async fn get(service: Context, params: Get) -> OperationResult<Get> {
    service.find(params.id).await
}

async fn update(service: Context, call: Update) -> OperationResult<Update> {
    let hostports = hostports::checked(call.hostports)?;
    check_hostports(&service, hostports.as_deref())?;
    let modules = CheckedModules::<TlsEdge>::check(&service, |modules, checker| {
        tls_modules!(check_modules, [call, modules, checker])
    });
    let modules = modules.await?;
    let _held = modules.compiled();
    let owner = NamesOwner::of(&service);
    let update = service.change(move |change| {
        let mut edge: TlsEdge = found(change, &call.id)?;
        modules.set(change, &mut edge)?;
        claim(change, &mut edge, hostports, &owner)?;
        edge.description = call.description.or(edge.description.take());
        edge.metadata = call.metadata.or(edge.metadata.take());
        edge.keep(change)?;
        Ok(edge)
    });
    update.await
}

async fn delete(service: Context, params: Delete) -> OperationResult<Delete> {
    service.write(move |change| remove::<TlsEdge>(change, &params.id)).await
}

fn check_hostports(service: &Context, hostports: Option<&[String]>) -> Result<(), Refusal> {
    let hostports = hostports.unwrap_or_default();
    hostports::check_tls_names(hostports)?;
    hostports::check_names(service, hostports)
}

fn claim(
    change: &Transaction<'_>,
    edge: &mut TlsEdge,
    hostports: Option<Vec<String>>,
    owner: &NamesOwner,
) -> Result<(), Refusal> {
    let Some(hostports) = hostports else { return Ok(()) };
    owner.claim(change, &edge.id, &hostports)?;
    edge.hostports = Some(hostports);
    Ok(())
}

/// Refuses to ask visitors for certificates where their handshake is with somebody else.
fn check_modules_together(edge: &TlsEdge) -> Result<(), Refusal> {
    let asks = edge.mutual_tls.as_ref().is_some_and(EdgeModule::is_enabled);
    let ends = edge.tls_termination.as_ref().is_some_and(ends_at_edge);
    if asks && !ends {
        let message = "mutual_tls: needs tls_termination with terminate_at edge, which must be \
                       set before and stay as long";
        return Err(Refusal::new(code::INVALID_VALUE, message));
    }
    Ok(())
}
