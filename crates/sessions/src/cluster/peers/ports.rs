//! Ports of endpoints that are at other nodes: a balancer sends their visitors to any node.

use std::collections::HashSet;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::time::sleep;

use super::link::Linker;
use super::target::EndpointTarget;
use crate::cluster::EndpointKey;

/// How often a port that something else has is tried again.
const RETRY_INTERVAL: Duration = Duration::from_secs(5);

/// Listens on the ports of all endpoints of other nodes, as they come and go.
pub(super) async fn maintain_ports(linker: Weak<Linker>) {
    let Some(mut changes) = linker.upgrade().map(|linker| linker.directory.subscribe()) else {
        return;
    };
    let mut held = HashSet::new();
    loop {
        let Some(strong) = linker.upgrade() else { return };
        update_ports(&strong, &mut held).await;
        let gateway = strong.services.gateway.clone();
        drop(strong);
        tokio::select! {
            changed = changes.changed() => if changed.is_err() { return },
            () = gateway.wait_for_port() => {}
            () = sleep(RETRY_INTERVAL) => {}
        }
    }
}

/// Listens where it is not yet listened, and nowhere else.
async fn update_ports(linker: &Linker, held: &mut HashSet<u16>) {
    let gateway = &linker.services.gateway;
    let needed: HashSet<_> = linker.directory.remote_ports().into_iter().collect();
    held.retain(|port| {
        let stays = needed.contains(port);
        if !stays {
            gateway.release_port(*port);
        }
        stays
    });
    for port in needed {
        if held.contains(&port) && gateway.is_relaying(port) {
            continue;
        }
        let target =
            EndpointTarget::new(&linker.directory, &linker.sessions, EndpointKey::port(port));
        match gateway.relay_port(port, Arc::new(target)).await {
            Ok(()) => drop(held.insert(port)),
            // The node that has it may be on the same machine, or an agent of this node has it as well.
            Err(err) => tracing::debug!(port, %err, "cannot listen for another node"),
        }
    }
}
