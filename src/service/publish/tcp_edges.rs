//! TCP edges.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use arc_swap::ArcSwap;

use crate::api::remote::edges::tcp::TcpEdge;
use crate::gateway::Gateway;
use crate::gateway::listener::GatewayListener;
use crate::gateway::modules::Modules;
use crate::gateway::routing::virtual_host::{Route, VirtualHost};
use crate::policy::Scope;
use crate::service::check::host_port;
use crate::service::publish::State;
use crate::service::publish::https_edges::enabled;
use crate::service::store::{self, View};

/// An edge, and the ports on which it listens.
pub(crate) struct TcpListeners {
    virtual_host: Arc<ArcSwap<VirtualHost>>,
    /// None where listening failed; it is tried again.
    listeners: BTreeMap<u16, Option<GatewayListener>>,
}

impl State {
    pub(crate) fn refresh_stream(&mut self, view: &View<'_>, id: &str) -> Result<(), store::Error> {
        let Some(edge) = view.find::<TcpEdge>(id)? else {
            self.streams.remove(id);
            self.shared.remove(id);
            return Ok(());
        };
        let ports = ports(edge.hostports.as_deref().unwrap_or_default());
        let restriction = enabled(edge.ip_restriction, |it| it.enabled);
        let modules = Modules {
            restriction: restriction.map(|it| self.restriction(it)),
            policy: self.rules(id, edge.policy, Scope::TcpEdge),
            ..Modules::default()
        };
        let modules = Some(modules).filter(|modules| !modules.is_empty());
        let route = Route {
            id: "".into(),
            edge_id: id.into(),
            modules,
            host_header: None,
            backend: self.target(edge.backend),
        };
        let make = || TcpListeners { virtual_host: Arc::default(), listeners: BTreeMap::new() };
        let stream = self.streams.entry(id.to_owned()).or_insert_with(make);
        stream.virtual_host.store(Arc::new(VirtualHost::of(route)));
        stream.listeners.retain(|port, _| ports.contains(port));
        for port in ports {
            stream.listeners.entry(port).or_default();
        }
        stream.listen(&self.gateway);
        Ok(())
    }
}

impl TcpListeners {
    /// Whether it listens on a port.
    pub(crate) fn has(&self, port: u16) -> bool {
        self.listeners.get(&port).is_some_and(Option::is_some)
    }

    /// Listens where it does not yet.
    pub(crate) fn listen(&mut self, gateway: &Gateway) {
        for (port, listener) in self.listeners.iter_mut().filter(|(_, listener)| listener.is_none())
        {
            *listener = gateway.listen_for_bytes(*port, self.virtual_host.clone()).ok();
        }
    }
}

/// The ports of an edge; connections of bytes name no host.
pub(crate) fn ports(hostports: &[String]) -> BTreeSet<u16> {
    hostports.iter().filter_map(|text| host_port(text).ok()).map(|(_, port)| port).collect()
}
