//! TCP edges: they hold their modules themselves.

use std::sync::Arc;

use ginnel_api::id::prefix;
use ginnel_api::remote::edges::modules::*;
use ginnel_api::remote::edges::tcp::{Create, Delete, Get, List, TcpEdge, Update};
use ginnel_api::remote::edges::tcp_modules as operations;
use ginnel_gateway::modules::edge_module::EdgeModule;
use ginnel_policy::Scope;
use ginnel_store::{Transaction, View};

use super::modules::{self, CheckedModules, ModuleHolder};
use super::modules::{check_modules, module_handlers, module_references};
use super::{Context, Handler, OperationResult, backends, hostports, on};
use crate::Refusal;
use crate::address::Base;
use crate::context::{StoredResource, found, remove};
use crate::publish::Publisher;

impl StoredResource for TcpEdge {
    fn locate(&mut self, base: &Base) {
        self.uri = base.of(&self.id);
        modules::locate(base, tcp_modules!(module_references, [self]));
    }
}

impl ModuleHolder for TcpEdge {
    type Path = (String,);

    const SCOPE: Scope = Scope::TcpEdge;

    fn find(view: &View<'_>, (id,): &Self::Path) -> Result<Self, Refusal> {
        found(view, id)
    }

    fn has_two_policies(&self) -> bool {
        self.policy.is_some() && self.traffic_policy.is_some()
    }

    fn keep(&self, change: &Transaction<'_>) -> Result<(), Refusal> {
        let backend = self.backend.as_ref().and_then(|module| module.backend.as_ref());
        change.link(&self.id, backends::TARGET, backend.map(|backend| backend.id.as_str()))?;
        Ok(change.put(self)?)
    }
}

pub(super) fn handlers() -> Vec<Handler> {
    let edges = [on(create), on(list), on(get), on(update), on(delete)];
    let modules = tcp_modules!(module_handlers, [TcpEdge, operations, (id)]);
    edges.into_iter().chain(modules.into_iter().flatten()).collect()
}

async fn create(service: Context, call: Create) -> OperationResult<Create> {
    let hostports = hostports::checked(call.hostports)?;
    let modules = CheckedModules::<TcpEdge>::check(&service, |modules, checker| {
        tcp_modules!(check_modules, [call, modules, checker])
    });
    let modules = modules.await?;
    let _held = modules.compiled();
    let owner = PortsOwner::of(&service);
    let create = service.change(move |change| {
        let mut edge = TcpEdge {
            id: change.new_id(prefix::TCP_EDGE)?,
            created_at: Some(change.now()),
            description: call.description.or(Some("".into())),
            metadata: call.metadata.or(Some("".into())),
            ..TcpEdge::default()
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
    let modules = CheckedModules::<TcpEdge>::check(&service, |modules, checker| {
        tcp_modules!(check_modules, [call, modules, checker])
    });
    let modules = modules.await?;
    let _held = modules.compiled();
    let owner = PortsOwner::of(&service);
    let update = service.change(move |change| {
        let mut edge: TcpEdge = found(change, &call.id)?;
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
    service.write(move |change| remove::<TcpEdge>(change, &params.id)).await
}

/// Who gives an edge ports, and who knows which are free.
#[derive(Clone)]
struct PortsOwner {
    owner_id: String,
    publisher: Arc<Publisher>,
}

impl PortsOwner {
    fn of(service: &Context) -> Self {
        let owner_id = service.caller.owner_id.clone();
        Self { owner_id, publisher: service.shared.publisher.clone() }
    }
}

/// Gives an edge its ports, if the call has some, and makes sure that it can listen on those it has.
fn claim(
    change: &Transaction<'_>,
    edge: &mut TcpEdge,
    hostports: Option<Vec<String>>,
    owner: &PortsOwner,
) -> Result<(), Refusal> {
    if let Some(hostports) = hostports {
        hostports::claim(change, &edge.id, &hostports)?;
        hostports::take_addresses(change, &edge.id, &hostports, &owner.owner_id)?;
        edge.hostports = Some(hostports);
    }
    let hostports = edge.hostports.as_deref().unwrap_or_default();
    hostports::check_ports(&owner.publisher, &edge.id, hostports)
}
