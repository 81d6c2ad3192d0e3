//! Edges of all kinds: one way to claim their hosts and ports, and to check their modules.

use std::sync::Arc;

use ginnel_gateway::modules::edge_module::{InvalidModule, ModuleChecker};
use ginnel_store::Transaction;

use super::hostports;
use super::modules::{CheckedModules, ModuleHolder};
use crate::Result;
use crate::context::Context;
use crate::domains::DomainClaim;
use crate::publish::Publisher;

/// An edge: a holder of modules that has hosts and ports.
pub(super) trait Edge: ModuleHolder {
    /// Rejects hosts and ports that edges of this kind cannot have now.
    fn check_hostports(service: &Context, hostports: &[String]) -> Result<()>;

    /// The hosts and ports that it has.
    fn hostports(&mut self) -> &mut Option<Vec<String>>;

    /// Gives the edge the hosts and ports of a call, if it has some.
    fn claim(
        &mut self,
        change: &Transaction<'_>,
        hostports: Option<Vec<String>>,
        owner: &HostportsOwner,
    ) -> Result<()> {
        let Some(hostports) = hostports else { return Ok(()) };
        owner.claim_names(change, self.id(), &hostports)?;
        *self.hostports() = Some(hostports);
        Ok(())
    }
}

/// The owner of the hosts and ports that an edge gets.
#[derive(Clone)]
pub(super) struct HostportsOwner {
    pub owner_id: String,
    only_reserved: bool,
    pub publisher: Arc<Publisher>,
}

impl HostportsOwner {
    fn of(service: &Context) -> Self {
        Self {
            owner_id: service.caller.owner_id.clone(),
            only_reserved: service.shared.reserved_domains_only,
            publisher: service.shared.publisher.clone(),
        }
    }

    /// Gives an edge these hosts instead of the ones that it had.
    fn claim_names(
        &self,
        change: &Transaction<'_>,
        edge_id: &str,
        hostports: &[String],
    ) -> Result<()> {
        hostports::claim_hostports(change, edge_id, hostports)?;
        let Self { owner_id, only_reserved, .. } = self;
        let domains = DomainClaim { owner_id, only_reserved: *only_reserved };
        hostports::take_domains(change, edge_id, hostports, &domains)
    }
}

/// Stores the edge that `edge` returns, a new one or a changed one, with the hosts, ports and modules of the call.
pub(super) async fn keep<E: Edge>(
    service: Context,
    hostports: Option<Vec<String>>,
    check: impl FnOnce(&mut CheckedModules<E>, &ModuleChecker) -> Result<(), InvalidModule>
    + Send
    + 'static,
    edge: impl FnOnce(&Transaction<'_>) -> Result<E> + Clone + Send + 'static,
) -> Result<E> {
    let hostports = hostports::normalize_hostports(hostports)?;
    E::check_hostports(&service, hostports.as_deref().unwrap_or_default())?;
    let modules = CheckedModules::check(&service, check).await?;
    let _held = modules.compiled();
    let owner = HostportsOwner::of(&service);
    let keep = service.write_resource(move |change| {
        let mut edge = edge(change)?;
        modules.apply_to(change, &mut edge)?;
        edge.claim(change, hostports, &owner)?;
        edge.store_with_links(change)?;
        Ok(edge)
    });
    keep.await
}

/// The handlers of edges of one kind, and of their modules: `$table` is the table of its modules.
macro_rules! edge_handlers {
    ($table:ident, $Edge:ident, $operations:ident) => {
        pub(super) fn handlers() -> Vec<Handler> {
            let edges = [on(create), list::<List>(), get::<Get>(), on(update), delete::<Delete>()];
            let modules = $table!(module_handlers, [$Edge, $operations, (id)]);
            edges.into_iter().chain(modules.into_iter().flatten()).collect()
        }

        async fn create(service: Context, call: Create) -> OperationResult<Create> {
            let check = move |modules: &mut CheckedModules<$Edge>, checker: &ModuleChecker| {
                $table!(check_modules, [call, modules, checker])
            };
            let edge = move |change: &Transaction<'_>| Ok(new_item!(change, call => $Edge {}));
            edge::keep(service, call.hostports, check, edge).await
        }

        async fn update(service: Context, call: Update) -> OperationResult<Update> {
            let check = move |modules: &mut CheckedModules<$Edge>, checker: &ModuleChecker| {
                $table!(check_modules, [call, modules, checker])
            };
            let edge = move |change: &Transaction<'_>| {
                Ok(changed_item!(change, call => $Edge { description, metadata }))
            };
            edge::keep(service, call.hostports, check, edge).await
        }
    };
}

pub(super) use edge_handlers;
