//! The names of edges at the shared ports.

use std::sync::Arc;

use arc_swap::ArcSwap;

use ginnel_base::address::HostPortPattern;
use ginnel_gateway::routing::hosts::HostChanges;
use ginnel_gateway::routing::virtual_host::VirtualHost;

/// What is served at names, and the names that it has.
#[derive(Default)]
pub(super) struct PublishedNames {
    pub virtual_host: Arc<ArcSwap<VirtualHost>>,
    names: Vec<(String, u16)>,
}

impl PublishedNames {
    /// Takes these names in place of those it had; false when one of them is another's.
    pub(super) fn replace_with(
        &mut self,
        changes: &mut HostChanges<'_>,
        names: Vec<(String, u16)>,
    ) -> bool {
        for (name, port) in self.names.iter().filter(|name| !names.contains(name)) {
            changes.remove_claim(name, *port, &self.virtual_host);
        }
        self.names = names;
        self.claim_all(changes)
    }

    /// Takes the names that it should have; one that an agent's endpoint has stays there, and then
    /// this is false.
    pub(super) fn claim_all(&self, changes: &mut HostChanges<'_>) -> bool {
        let mut has_all = true;
        for (name, port) in &self.names {
            has_all &= changes.add_claim(name, *port, &self.virtual_host, false);
        }
        has_all
    }

    /// Gives up its names, and serves nothing more.
    pub(super) fn release_all(mut self, changes: &mut HostChanges<'_>) {
        self.replace_with(changes, Vec::new());
        self.virtual_host.store(Arc::new(VirtualHost::default()));
    }
}

/// The names and ports in `host:port`, in lower case; a host may start with `*.`.
pub(super) fn names_of(hostports: Option<&[String]>) -> Vec<(String, u16)> {
    let hostports = hostports.unwrap_or_default().iter();
    hostports
        .filter_map(|text| HostPortPattern::parse(text).ok())
        .map(|it| (it.host_pattern(), it.port()))
        .collect()
}
