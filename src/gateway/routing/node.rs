//! Hosts that another node serves, and visitors that another node has taken.
//!
//! A visitor may come to any node. The node that has the visitor's connection ends TLS and finds out that
//! the host is an agent's of another node: then the requests go there as they came, over a connection
//! that says who the visitor is, and that node does all that the endpoint wants done. It looks no further,
//! so that there is one hop at most.

use std::net::IpAddr;
use std::sync::Arc;

use arc_swap::ArcSwap;
use tracing::Instrument;

use crate::gateway::http::connection::HostSelection;
use crate::gateway::http::server;
use crate::gateway::routing::backend::{Backend, BackendKind};
use crate::gateway::routing::target::{Target, Visitor};
use crate::gateway::routing::virtual_host::{Route, VirtualHost};
use crate::gateway::{Gateway, GatewayState, Io, tcp};
use crate::net::tls::ClientSocket;
use crate::net::{Permit, ShutdownPhase};

/// Knows which hosts the agents of other nodes serve.
pub trait RemoteHosts: Send + Sync + 'static {
    /// Where the requests for a host go, in lower case, that come to this port: 443 for HTTPS, 80 for HTTP
    /// unless the visitor has named another; none where no other node serves it, or none that can be
    /// reached.
    fn find(&self, host: &str, port: u16) -> Option<Arc<NodeRoute>>;
}

/// Leads to another node, for all hosts that it serves.
pub struct NodeRoute(Arc<VirtualHost>);

/// What is done with the traffic of an agent's endpoint.
pub struct EndpointTraffic(pub(super) Arc<ArcSwap<VirtualHost>>);

impl NodeRoute {
    pub(crate) fn virtual_host(&self) -> &Arc<VirtualHost> {
        &self.0
    }
}

impl Gateway {
    /// Says who knows the hosts of other nodes.
    pub fn find_hosts_in(&self, remote: Arc<dyn RemoteHosts>) {
        self.0.remote_hosts.store(Arc::new(Some(remote)));
    }

    /// Leads to another node; `node` opens connections to it.
    pub fn node_route(&self, node: Arc<dyn Target>) -> NodeRoute {
        let backend = Backend { id: "".into(), kind: BackendKind::Upstream(self.upstream(node)) };
        NodeRoute(Arc::new(VirtualHost::of(Route {
            id: "".into(),
            edge_id: "".into(),
            modules: None,
            host_header: None,
            backend: Arc::new(ArcSwap::from_pointee(backend)),
            metrics: None,
        })))
    }

    /// Serves the requests of a visitor that another node has taken, and who speaks HTTP; returns when
    /// the connection is over.
    pub async fn serve_relayed(&self, io: Io, visitor: Visitor) {
        let Some(permit) = self.admit(visitor.peer.ip()) else { return };
        let (gateway, socket) = (self.0.clone(), ClientSocket::Relayed(io));
        let (span, mut shutdown) = (relayed(&visitor), self.0.shutdown.signal());
        let serving = server::http1(
            gateway,
            HostSelection::Relayed,
            (socket, permit),
            visitor,
            shutdown.clone(),
        );
        shutdown.run_until(ShutdownPhase::Forced, serving.instrument(span)).await;
    }

    /// Carries the bytes of a visitor that another node has taken to an endpoint of this one; returns when
    /// the connection is over.
    pub async fn carry_relayed(&self, io: Io, visitor: Visitor, endpoint: EndpointTraffic) {
        let Some(_permit) = self.admit(visitor.peer.ip()) else { return };
        let (socket, shutdown) = (ClientSocket::Relayed(io), self.0.shutdown.signal());
        let carrying = tcp::pass(&self.0, &endpoint.0, socket, &visitor, shutdown);
        carrying.instrument(relayed(&visitor)).await;
    }

    /// Counts a connection that another node has taken among those of visitors.
    fn admit(&self, address: IpAddr) -> Option<Permit> {
        self.0.limit.admit(address)
    }
}

impl GatewayState {
    /// Where a host is served by an agent of another node; none where nobody is, or where there are no
    /// other nodes.
    pub(crate) fn remote_host(&self, host: &str, port: u16) -> Option<Arc<VirtualHost>> {
        let remote = self.remote_hosts.load();
        let route = (**remote).as_ref()?.find(host, port)?;
        Some(route.virtual_host().clone())
    }

    /// Whether there may be other nodes.
    pub(crate) fn has_remote_hosts(&self) -> bool {
        self.remote_hosts.load().is_some()
    }
}

fn relayed(visitor: &Visitor) -> tracing::Span {
    tracing::debug_span!("relayed connection", peer = %visitor.peer)
}
