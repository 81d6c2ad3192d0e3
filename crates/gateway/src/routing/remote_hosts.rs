//! The hosts of other nodes, as the service knows them.

use std::sync::Arc;

use crate::upstream::target::Target;

/// How well what has a name fits a host: the name itself before a wildcard, a longer wildcard before a
/// shorter one; of one name, the port that was asked for before another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct HostRank {
    name: usize,
    is_port: bool,
}

impl HostRank {
    /// Of the host's own name.
    pub fn exact(is_port: bool) -> Self {
        Self { name: usize::MAX, is_port }
    }

    /// Of `*.` before this name.
    pub fn wild(parent: &str, is_port: bool) -> Self {
        Self { name: parent.len(), is_port }
    }

    /// Whether nothing fits better.
    pub fn is_best(self) -> bool {
        self == Self::exact(true)
    }
}

/// Knows which hosts the agents of other nodes serve.
pub trait RemoteHosts: Send + Sync + 'static {
    /// The node that serves a host, in lower case, for requests that come to this port: 443 for HTTPS, 80
    /// for HTTP unless the visitor has named another; and how well its name fits. None where no other node
    /// serves it, or none that can be reached. Those whose keys are among `failed` come last.
    fn find_host(
        &self,
        host: &str,
        port: u16,
        failed: &[String],
    ) -> Option<(HostRank, Arc<dyn Target>)>;

    /// Returns true if the TLS of a host's visitors ends only at another node.
    fn end_tls(&self) -> bool;

    /// The endpoint of another node that serves a host if the TLS of visitors ends only there, and how well
    /// its name fits.
    fn find_tls(&self, host: &str) -> Option<(HostRank, Arc<dyn Target>)>;

    /// The endpoint at a port of its own at another node, if another node has one there.
    fn at_port(&self, port: u16) -> Option<Arc<dyn Target>>;

    /// How well the name of a host fits that other nodes serve, of which none can be reached now.
    fn cut_off(&self, host: &str, port: u16) -> Option<HostRank>;
}
