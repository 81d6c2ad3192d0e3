//! The modules of a TCP edge: set, shown and removed on their own.

use super::modules;
use super::tcp::{Given, apply, keep};
use super::{Context, Handler, Reply, on};
use crate::api::remote::edges::modules::{BackendModuleChange, IpRestrictionChange, TrafficPolicy};
use crate::api::remote::edges::tcp::TcpEdge;
use crate::api::remote::edges::tcp_modules::{backend, ip_restriction, policy};
use crate::policy::Scope;
use crate::service::context::found;
use crate::service::{Refusal, policies};

/// Where a module stands in its edge.
type Slot<M> = fn(&mut TcpEdge) -> &mut Option<M>;

/// The operations that show and remove a module.
macro_rules! module {
    ($name:ident) => {{
        let slot: Slot<_> = |edge| &mut edge.$name;
        [
            on(move |service: Context, wanted: $name::Get| async move {
                slot(&mut service.find(&wanted.id)?).take().ok_or_else(Refusal::not_found)
            }),
            on(move |service, wanted: $name::Delete| unset(service, wanted.id, slot)),
        ]
    }};
}

pub(super) fn handlers() -> Vec<Handler> {
    let replace = [on(replace_backend), on(replace_ip_restriction), on(replace_policy)];
    let others = [module!(backend), module!(ip_restriction), module!(policy)];
    replace.into_iter().chain(others.into_iter().flatten()).collect()
}

async fn replace_backend(service: Context, wanted: backend::Replace) -> Reply<backend::Replace> {
    let (enabled, backend_id) = (wanted.enabled, Some(wanted.backend_id));
    let module = modules::backend(BackendModuleChange { enabled, backend_id })?;
    replace(service, wanted.id, module, Vec::new(), |edge| &mut edge.backend).await
}

async fn replace_ip_restriction(
    service: Context,
    wanted: ip_restriction::Replace,
) -> Reply<ip_restriction::Replace> {
    let (enabled, ip_policy_ids) = (wanted.enabled, Some(wanted.ip_policy_ids));
    let module = modules::ip_restriction(IpRestrictionChange { enabled, ip_policy_ids })?;
    replace(service, wanted.id, module, Vec::new(), |edge| &mut edge.ip_restriction).await
}

async fn replace_policy(service: Context, wanted: policy::Replace) -> Reply<policy::Replace> {
    let policy::Replace { id, enabled, inbound, outbound } = wanted;
    let given = TrafficPolicy { enabled, inbound, outbound };
    let (module, named) = policies::check(given, Scope::TcpEdge).await?;
    replace(service, id, module, named, |edge| &mut edge.policy).await
}

async fn replace<M: Send + 'static>(
    service: Context,
    id: String,
    module: M,
    named: Vec<String>,
    slot: Slot<M>,
) -> Result<M, Refusal> {
    let mut given = Given { named, ..Given::default() };
    *slot(&mut given.edge) = Some(module);
    let replace = service.change(move |change| {
        let mut edge: TcpEdge = found(change, &id)?;
        apply(change, &mut edge, given)?;
        Ok(edge)
    });
    slot(&mut replace.await?).take().ok_or_else(Refusal::not_found)
}

/// Removing what is not there is no error (remote API sheet, section 3).
async fn unset<M: Send + 'static>(
    service: Context,
    id: String,
    slot: Slot<M>,
) -> Result<(), Refusal> {
    let unset = service.write(move |change| {
        let mut edge: TcpEdge = found(change, &id)?;
        match slot(&mut edge).take() {
            Some(_) => keep(change, &edge),
            None => Ok(()),
        }
    });
    unset.await
}
