//! Settings of a node.

use ginnel_base::address::HostPort;
use ginnel_settings::settings;

settings! {
    /// The name of a node, and the addresses at which other nodes reach it.
    #[derive(Debug, Clone)]
    pub struct ClusterSettings {
    }

    /// The settings of the node.
    rows {
        node_name: Option<String> = None,
            "node_name", "NAME",
            "The name of this node, if several share a database on PostgreSQL",
            when_unset("the name of the machine");
        peer_addr: Option<HostPort> = None,
            "peer_addr", "HOST:PORT",
            "The address at which other nodes reach this one";
        peer_listen_addr: Option<HostPort> = None,
            "peer_listen_addr", "HOST:PORT",
            "The address to listen on for other nodes, if they reach this one at another",
            when_unset("that of peer_addr");
    }
}
