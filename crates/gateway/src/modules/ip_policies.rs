//! The rules of IP policies, which modules hold on to.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;

use ginnel_policy::ip_rules::{IpRules, decide_access};

/// The rules of IP policies by identifier, whether the policies exist or not.
#[derive(Debug, Default)]
pub struct IpPolicies(Mutex<HashMap<String, Arc<ArcSwap<IpRules>>>>);

impl IpPolicies {
    /// Where the rules of a policy are found; a policy that does not exist has none.
    pub fn policy_rules(&self, id: &str) -> Arc<ArcSwap<IpRules>> {
        let mut policies = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        policies.entry(id.to_owned()).or_default().clone()
    }
}

/// Whether somebody from an address may come by the rules of these policies together, as they are now.
pub fn allows_address(policies: &[Arc<ArcSwap<IpRules>>], address: IpAddr) -> bool {
    let rules: Vec<_> = policies.iter().map(|rules| rules.load_full()).collect();
    decide_access(address, rules.iter().map(|rules| &**rules)).allowed
}
