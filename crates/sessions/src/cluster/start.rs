//! How a service becomes a node, and connects to the others.

use std::sync::Arc;

use ginnel_base::address::HostPort;
use ginnel_store::Store;

use super::member::{Cluster, NodeOptions};
use super::peers::{BoundPeerListener, PeerServices, Peers};
use super::settings::ClusterSettings;
use crate::Error;

impl Cluster {
    /// Makes the service a node, if its database has nodes. The listener for others is open before they
    /// hear of it.
    pub async fn start_node(
        store: &Arc<Store>,
        settings: &ClusterSettings,
    ) -> Result<(Option<Arc<Self>>, Option<BoundPeerListener>), Error> {
        let (listener, peer_address) = match &settings.peer_addr {
            Some(address) if store.change_news().is_some() => listen(address, settings).await?,
            _ => (None, None),
        };
        let node = NodeOptions { name: settings.node_name.clone(), peer_address };
        Ok((Self::join(store, node).await?, listener))
    }
}

/// Listens for other nodes; with it comes the address that they connect to.
async fn listen(
    address: &HostPort,
    settings: &ClusterSettings,
) -> Result<(Option<BoundPeerListener>, Option<String>), Error> {
    let own = settings.peer_listen_addr.as_ref();
    let (key, listens_at) = match own {
        Some(own) => ("peer_listen_addr", own),
        None => ("peer_addr", address),
    };
    let listener = BoundPeerListener::bind(listens_at).await;
    let failed = |source| Error::PeerAddress { key, address: listens_at.to_string(), source };
    let listener = listener.map_err(failed)?;
    let public = own.map_or_else(|| listener.public_address(), |_| address.to_string());
    Ok((Some(listener), Some(public)))
}

impl Peers {
    /// Connects to the other nodes, if there can be any, and lets the gateway find their tunnels.
    pub fn connect(
        listener: Option<BoundPeerListener>,
        services: PeerServices,
    ) -> Result<Option<Arc<Self>>, Error> {
        let (gateway, cluster) = (services.gateway.clone(), services.cluster.clone());
        let (Some(listener), Some(cluster)) = (listener, cluster) else {
            gateway.find_tunnels_in(services.registry);
            return Ok(None);
        };
        let peers =
            listener.start_accepting(cluster.directory.clone(), gateway.authority(), services)?;
        let routing = peers.routing();
        gateway.find_tunnels_in(routing.clone());
        gateway.find_hosts_in(routing);
        Ok(Some(Arc::new(peers)))
    }
}
