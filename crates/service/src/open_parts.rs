//! The parts of a service that are closed in order: the gateway, the node, and the database.

use std::sync::Arc;

use ginnel_base::logging::or_debug;
use ginnel_gateway::Gateway;

use super::cluster::Cluster;
use super::store::Store;

/// The parts that are open. Dropping them takes no more traffic; [`OpenParts::close`] also waits until the database
/// is closed.
pub(super) struct OpenParts {
    pub store: Arc<Store>,
    /// The node, if the database has nodes.
    pub cluster: Option<Arc<Cluster>>,
    pub gateway: Option<Gateway>,
}

impl OpenParts {
    pub(super) fn new(store: Store) -> Self {
        Self { store: Arc::new(store), cluster: None, gateway: None }
    }

    /// Closes all parts after a start that failed.
    pub(super) async fn close(self) {
        if let Some(gateway) = &self.gateway {
            gateway.close();
        }
        self.leave_cluster().await;
        self.close_store().await;
    }

    /// Tells other nodes, if there are any, that this one stops.
    pub(super) async fn leave_cluster(&self) {
        if let Some(cluster) = &self.cluster {
            cluster.stop().await;
        }
    }

    /// Closes the database.
    pub(super) async fn close_store(&self) {
        let store = self.store.clone();
        // Fails only if closing panics, and no caller is left to hear of it.
        or_debug!(
            ginnel_base::tasks::spawn_blocking(move || store.close()).await,
            "closing the database broke"
        );
    }
}

impl Drop for OpenParts {
    fn drop(&mut self) {
        if let Some(cluster) = &self.cluster {
            cluster.close();
        }
        if let Some(gateway) = &self.gateway {
            gateway.close();
        }
    }
}
