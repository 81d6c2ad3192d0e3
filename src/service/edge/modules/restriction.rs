//! Who may come, by address.

use std::net::IpAddr;
use std::sync::Arc;

pub(in crate::service::edge) use crate::policy::ip_rules::IpRules;
use crate::policy::ip_rules::decide;
use crate::service::edge::slot::Slot;

/// The policies that decide who may come; a policy that was deleted has no rules.
#[derive(Debug)]
pub(in crate::service::edge) struct Restriction(pub Vec<Arc<Slot<IpRules>>>);

impl Restriction {
    /// Whether somebody from this address may come.
    pub(in crate::service::edge) fn allows(&self, address: IpAddr) -> bool {
        let rules: Vec<_> = self.0.iter().map(|rules| rules.get()).collect();
        decide(address, rules.iter().map(|rules| &**rules)).allowed
    }
}
