//! Tunnels that cannot be online at the same time.

use std::collections::BTreeMap;

use ginnel_agent::config::AgentConfig;
use ginnel_agent::definition::{BindMessage, Definition};
use ginnel_service::requested_address;

/// Returns a problem for each of these tunnels that has the name or asks for the public address of an earlier one.
/// Tunnels that all have `pooling_enabled` may share an address.
pub(crate) fn find_conflicts<'t>(
    config: &AgentConfig,
    tunnels: impl IntoIterator<Item = (&'t str, &'t Definition)>,
) -> Vec<String> {
    let mut taken = TakenByTunnels::default();
    let mut problems = Vec::new();
    for (name, definition) in tunnels {
        let Some(entry) = config.tunnels.get(name) else { continue };
        if let Some(problem) = taken.add_tunnel(entry.key(), definition) {
            problems.push(format!("{}: {problem}", entry.place()));
        }
    }
    problems
}

/// Names and addresses of tunnels, with the keys of the tunnels that have them.
#[derive(Default)]
struct TakenByTunnels {
    names: BTreeMap<String, String>,
    addresses: BTreeMap<String, (String, bool)>,
}

impl TakenByTunnels {
    /// Adds the names and addresses of a tunnel, or returns the reason why one of them is taken.
    fn add_tunnel(&mut self, key: String, definition: &Definition) -> Option<String> {
        for (suffix, _) in definition.bound_protocols() {
            let name = format!("{}{suffix}", definition.name);
            if let Some(other) = self.names.insert(name.clone(), key.clone()) {
                return Some(format!("the name {name:?} is that of {other} as well; rename one"));
            }
        }
        let messages = definition.bind_messages();
        let addresses = messages.iter().filter_map(|message| match message {
            BindMessage::Endpoint(bind) => requested_address(bind),
            BindMessage::Labeled(_) => None,
        });
        for address in addresses {
            let taken = (key.clone(), definition.pooling);
            match self.addresses.insert(address.clone(), taken) {
                Some((other, pools)) if !(pools && definition.pooling) => {
                    return Some(format!(
                        "asks for {address}, as {other} does; give each its own address, or set pooling_enabled \
                         in both to share it"
                    ));
                }
                _ => {}
            }
        }
        None
    }
}
