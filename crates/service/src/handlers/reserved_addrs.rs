//! Reserved addresses: TCP ports that belong to their owner.

use std::sync::Arc;

use tokio::runtime::Handle;

use ginnel_api::id::has_prefix;
use ginnel_api::remote::edges::tcp::TcpEdge;
use ginnel_api::remote::reserved_addrs::{Create, ReservedAddr, Update};
use ginnel_store::{Changes, StoreError};

use crate::accounts::{self, Caller};
use crate::check::host_port;
use crate::cluster::EndpointKey;
use crate::context::ServiceState;
use crate::domains::{ADDRESS, HOSTPORTS_OWNER, PORTS, address_at};
use crate::handlers::prelude::*;
use crate::references::HOSTPORTS;

/// How many free ports are tried until one is reserved by nobody.
const MAX_TRIED_PORTS: usize = 16;

impl StoredResource for ReservedAddr {
    fn locate(&mut self, base: &Base) {
        self.uri = base.of(&self.id);
    }

    /// An edge that lost its address would lose its port to others.
    fn remove(change: &Transaction<'_>, id: &str, call: &RemovalContext) -> Result<()> {
        check_owner(&find_or_refuse(change, id)?, &call.caller)?;
        check_unused(change, id, &[ADDRESS], "reserved address", code::ADDR_IN_USE)?;
        remove_or_refuse::<Self>(change, id)
    }
}

usual_handlers! { reserved_addrs }

async fn create(service: Context, params: Create) -> OperationResult<Create> {
    let requested = params.port.map(check_port).transpose()?;
    let (shared, caller) = (service.shared.clone(), service.caller.clone());
    // Before the change, which may be made more than once, and must read the same each time.
    let tried = if requested.is_some() { 0 } else { MAX_TRIED_PORTS };
    let candidates: Vec<u16> = (0..tried).map_while(|_| shared.gateway.free_port()).collect();
    let create = service.write_resource(move |change| {
        let owner_id = accounts::resolve_owner(change, &caller, params.owner_id)?;
        let port = match requested {
            Some(port) => check_free(change, port, &owner_id).map(|()| port)?,
            None => find_unreserved(change, &candidates)?,
        };
        let address = new_item!(change, params => ReservedAddr {
            addr: Some(shared.gateway.address_of(port)),
            region: Some(params.region.unwrap_or_default()),
            owner_id: Some(owner_id.clone()),
        });
        let has_edge = adopt_edges(change, &address.id, port, &owner_id, caller.admin)?;
        check_online(&shared, port, &owner_id, has_edge)?;
        change.claim_key(PORTS, &port.to_string(), &address.id)?;
        stored(change, address)
    });
    let address = create.await?;
    end_tunnel_of_another(&service.shared, &address);
    Ok(address)
}

async fn update(service: Context, params: Update) -> OperationResult<Update> {
    let caller = service.caller.clone();
    let update = service.write_resource(move |change| {
        let mut address: ReservedAddr = find_or_refuse(change, &params.id)?;
        check_owner(&address, &caller)?;
        address.description = params.description.or(address.description);
        address.metadata = params.metadata.or(address.metadata);
        stored(change, address)
    });
    update.await
}

fn check_owner(address: &ReservedAddr, caller: &Caller) -> Result<()> {
    if caller.admin || address.owner_id.as_ref() == Some(&caller.owner_id) {
        return Ok(());
    }
    let message = "only its owner or an admin may change a reserved address";
    Err(Refusal::new(code::ADDR_NEEDS_OWNER, message))
}

fn check_port(port: i64) -> Result<u16> {
    u16::try_from(port).ok().filter(|port| *port > 0).ok_or_else(|| {
        let message = format!("port: {port} is not from 1 to 65535");
        Refusal::new(code::INVALID_VALUE, message)
    })
}

fn check_free(change: &Transaction<'_>, port: u16, owner_id: &str) -> Result<()> {
    let Some(address) = address_at(change, port)? else { return Ok(()) };
    let whose = match address.owner_id.as_deref() == Some(owner_id) {
        true => "its owner",
        false => "another owner",
    };
    let message = format!("port: {port} is reserved by {whose} already");
    Err(Refusal::new(code::ADDR_DUPLICATE, message))
}

/// The first of these ports that nobody has reserved.
fn find_unreserved(change: &Transaction<'_>, candidates: &[u16]) -> Result<u16> {
    for port in candidates {
        if change.claimant(PORTS, &port.to_string())?.is_none() {
            return Ok(*port);
        }
    }
    Err(Refusal::new(code::ADDR_ONLINE, "port: the service found no free port; name one"))
}

/// Notes which edges and cloud endpoints have the port already; refuses it when one of them is another owner's.
fn adopt_edges(
    change: &Transaction<'_>,
    id: &str,
    port: u16,
    owner_id: &str,
    is_admin: bool,
) -> Result<bool> {
    let mut has_edge = false;
    let of_cloud = change.claimant(HOSTPORTS, &format!(":{port}"))?;
    for id_of_edge in edges_at(change, port)?.into_iter().chain(of_cloud) {
        let owners = change.references(&id_of_edge, HOSTPORTS_OWNER)?;
        // Whose an edge of an older version is, nobody has noted.
        let is_known = is_admin || !owners.is_empty();
        if !is_known || owners.iter().any(|owner| owner != owner_id) {
            let message = format!("port: {port} is in use by {id_of_edge} of another owner");
            return Err(Refusal::new(code::ADDR_ONLINE, message));
        }
        let known = change.references(&id_of_edge, ADDRESS)?;
        change.replace_references(
            &id_of_edge,
            ADDRESS,
            known.iter().map(String::as_str).chain([id]),
        )?;
        has_edge = true;
    }
    Ok(has_edge)
}

/// The TCP edges that have a port.
fn edges_at(change: &Transaction<'_>, port: u16) -> Result<Vec<String>> {
    let has_port = |edge: &TcpEdge| {
        let mut hostports = edge.hostports.iter().flatten();
        hostports.any(|text| host_port(text).is_ok_and(|(_, its)| its == port))
    };
    let edges = change.all_documents::<TcpEdge>()?.into_iter().filter(has_port);
    Ok(edges.map(|edge| edge.id).collect())
}

/// Refuses a port that an agent of another owner has, or a program that is none of the owner's.
fn check_online(shared: &ServiceState, port: u16, owner_id: &str, has_edge: bool) -> Result<()> {
    let here = shared.registry.holder_of_port(port);
    if let Some((_, holder_id, tunnel)) = &here {
        return match tunnel {
            Some(tunnel) if *holder_id != owner_id => Err(in_use_refusal(port, tunnel)),
            _ => Ok(()),
        };
    }
    let others =
        shared.cluster.as_ref().map(|it| it.directory.claimed_at(&EndpointKey::port(port)));
    if let Some(tunnel) = others.unwrap_or_default().first() {
        return match *tunnel.account_id == *owner_id {
            true => Ok(()),
            false => Err(in_use_refusal(port, &tunnel.id)),
        };
    }
    if has_edge || shared.gateway.can_listen(port) {
        return Ok(());
    }
    let message = format!("port: the service cannot listen on {port}");
    Err(Refusal::new(code::ADDR_ONLINE, message))
}

fn in_use_refusal(port: u16, tunnel_id: &str) -> Refusal {
    let message = format!("port: {port} is in use by the tunnel {tunnel_id}");
    Refusal::new(code::ADDR_ONLINE, message)
}

/// Ends tunnels of this node whose ports others have reserved at another, from now on.
pub(crate) fn follow_reservations(state: &Arc<ServiceState>) {
    let (follower, runtime) = (Arc::downgrade(state), Handle::current());
    state.store.watch_changes(move |changes| {
        let Some(changed) = changes.filter_ids(|id| has_prefix(id, prefix::RESERVED_ADDR)) else {
            return;
        };
        let Some(state) = follower.upgrade() else { return };
        runtime.spawn(async move {
            let read = state.store.read(move |view| match changed {
                Changes::Of(ids) => view.find_documents::<ReservedAddr>(&ids),
                Changes::All => view.all_documents(),
            });
            match read.await {
                Ok(addresses) => addresses.iter().for_each(|it| end_tunnel_of_another(&state, it)),
                Err(err) => {
                    let err: StoreError = err;
                    tracing::warn!(%err, "cannot look up who has reserved the ports of tunnels");
                }
            }
        });
    });
}

/// Ends what came online between the look at the tunnels and the commit, and takes the port from an agent
/// that is gone.
fn end_tunnel_of_another(state: &ServiceState, address: &ReservedAddr) {
    let port = address.addr.as_deref().and_then(|text| host_port(text).ok());
    let Some((_, port)) = port else { return };
    let registry = &state.registry;
    // Several of an account may share it.
    while let Some((bind_id, holder_id, _)) = registry.holder_of_port(port) {
        if address.owner_id.as_deref() == Some(&holder_id) {
            return;
        }
        tracing::info!(bind = bind_id, "an endpoint ends: its port was reserved by another");
        if registry.drop_bind(&bind_id).is_none() {
            tracing::debug!(bind = bind_id, "nobody served it");
        }
    }
}
