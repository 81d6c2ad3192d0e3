//! What the registry holds under its lock, and how its parts change together.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Instant;

use ginnel_gateway::PublicEndpoint;
use ginnel_mux::protocol::message::Hidden;
use ginnel_net::SourceAddress;

use crate::accounts::AuthenticatedAgent;
use crate::agents::access::AccessList;
use crate::agents::lost_labels::LostLabels;
use crate::agents::online_agent::OnlineAgent;
use crate::agents::rows;
use crate::agents::tunnel::{OnlineTunnel, TunnelKind};
use crate::agents::tunnel_table::{Labeled, TunnelTable};
use crate::cluster::Cluster;

#[derive(Default)]
pub(super) struct RegistryState {
    /// By identifier, so in the order of their start.
    pub(super) sessions: BTreeMap<String, Arc<OnlineAgent>>,
    /// The same by the digests of what agents name to come back: one each, but for those that were left
    /// behind.
    pub(super) clients: HashMap<String, Vec<Arc<OnlineAgent>>>,
    /// How many of them come from where.
    pub(super) sources: HashMap<SourceAddress, usize>,
    /// The identifiers of the binds that a session had; some of them may be another's now.
    pub(super) binds_of_sessions: HashMap<String, HashSet<String>>,
    pub(super) tunnels: TunnelTable<OnlineTunnel>,
    pub(super) binds: HashMap<String, RegisteredEndpoint>,
    pub(super) lost_labels: LostLabels,
    /// Announces all that to other nodes; none where there are none.
    pub(super) cluster: Option<Arc<Cluster>>,
}

/// An address that an agent has, or had a moment ago.
pub(super) struct RegisteredEndpoint {
    pub(super) token: Hidden,
    /// Whose address it is.
    pub(super) agent: AuthenticatedAgent,
    pub(super) endpoint: Option<PublicEndpoint>,
    pub(super) tunnel: Option<Arc<OnlineTunnel>>,
    /// Since when nobody serves it.
    pub(super) idle: Option<Instant>,
}

impl RegistryState {
    /// Takes a session off the lists of sessions.
    pub(super) fn remove_session(&mut self, online: &OnlineAgent) {
        if self.sessions.remove(&online.id).is_some() {
            if let Some(cluster) = &self.cluster {
                cluster.remove_row(&online.id);
            }
            self.remove_source(SourceAddress::from_ip(online.ip));
        }
        let client = rows::client_digest(&online.client_id);
        let Some(clients) = self.clients.get_mut(&client) else { return };
        clients.retain(|other| other.id != online.id);
        if clients.is_empty() {
            self.clients.remove(&client);
        }
    }

    pub(super) fn remove_source(&mut self, source: SourceAddress) {
        if let Entry::Occupied(mut sessions) = self.sources.entry(source) {
            *sessions.get_mut() -= 1;
            if *sessions.get() == 0 {
                sessions.remove();
            }
        }
    }

    /// Ends the tunnel of a bind, if it is one of this session; the address of the bind waits.
    pub(super) fn suspend_bind(&mut self, online: &OnlineAgent, bind_id: String) {
        let Entry::Occupied(mut bound) = self.binds.entry(bind_id) else { return };
        let Some(tunnel) = bound.get().tunnel_of(online) else { return };
        self.tunnels.remove(&tunnel.id);
        if let Some(cluster) = &self.cluster {
            cluster.remove_lost(&tunnel.id);
        }
        bound.get_mut().detach_tunnel();
        // Labels are no address that would have to be kept.
        if bound.get().endpoint.is_none() {
            bound.remove();
            self.lost_labels.add(tunnel.labels());
        }
    }

    /// Adds a tunnel, with its endpoint if it has one.
    pub(super) fn add_tunnel(
        &mut self,
        tunnel: Arc<OnlineTunnel>,
        endpoint: Option<&PublicEndpoint>,
    ) {
        if let Some(cluster) = &self.cluster {
            cluster.add_tunnel(rows::tunnel_row(&tunnel, endpoint));
        }
        self.tunnels.insert(tunnel);
    }

    pub(super) fn remove_tunnel(&mut self, id: &str) {
        self.tunnels.remove(id);
        if let Some(cluster) = &self.cluster {
            cluster.remove_row(id);
        }
    }

    /// Removes a bind, whose address nobody is to have any more.
    pub(super) fn remove_bind(&mut self, bind_id: &str) -> Option<RegisteredEndpoint> {
        let bound = self.binds.remove(bind_id)?;
        if let Some(cluster) = &self.cluster {
            cluster.release_bind(bind_id);
        }
        Some(bound)
    }

    pub(super) fn retain_binds(&mut self, mut stays: impl FnMut(&mut RegisteredEndpoint) -> bool) {
        let cluster = &self.cluster;
        self.binds.retain(|bind_id, bound| {
            let stays = stays(bound);
            if let Some(cluster) = cluster.as_ref().filter(|_| !stays) {
                cluster.release_bind(bind_id);
            }
            stays
        });
    }

    /// Notes that a session has a bind.
    pub(super) fn record_bind(&mut self, session_id: String, bind_id: &str) {
        self.binds_of_sessions.entry(session_id).or_default().insert(bind_id.to_owned());
    }
}

impl RegisteredEndpoint {
    /// The tunnel that serves it, if it is one of this session.
    pub(super) fn tunnel_of(&self, online: &OnlineAgent) -> Option<Arc<OnlineTunnel>> {
        self.tunnel.as_ref().filter(|tunnel| tunnel.session.id == online.id).cloned()
    }

    pub(super) fn is_allowed(&self, access: &AccessList) -> bool {
        match (&self.endpoint, &self.tunnel) {
            (Some(endpoint), _) => access.allows_endpoint(endpoint),
            (None, Some(tunnel)) => match &tunnel.kind {
                TunnelKind::Labeled(labels) => access.allows_labels(labels),
                TunnelKind::Endpoint { .. } => true,
            },
            (None, None) => true,
        }
    }

    pub(super) fn detach_tunnel(&mut self) {
        self.tunnel = None;
        self.idle = Some(Instant::now());
        if let Some(endpoint) = &self.endpoint {
            endpoint.retarget(None);
        }
    }
}
