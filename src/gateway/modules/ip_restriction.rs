//! Who may come, by address.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;

pub(crate) use crate::policy::ip_rules::IpRules;
use crate::policy::ip_rules::decide;

/// The rules of IP policies by identifier, whether the policies exist or not.
#[derive(Debug, Default)]
pub(crate) struct IpPolicies(Mutex<HashMap<String, Arc<ArcSwap<IpRules>>>>);

impl IpPolicies {
    /// Where the rules of a policy are found; a policy that does not exist has none.
    pub(crate) fn of(&self, id: &str) -> Arc<ArcSwap<IpRules>> {
        let mut policies = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        policies.entry(id.to_owned()).or_default().clone()
    }
}

/// The policies that decide who may come; a policy that was deleted has no rules.
#[derive(Debug)]
pub(crate) struct IpRestrictions(pub Vec<Arc<ArcSwap<IpRules>>>);

impl IpRestrictions {
    /// Whether somebody from this address may come.
    pub(crate) fn allows(&self, address: IpAddr) -> bool {
        let rules: Vec<_> = self.0.iter().map(|rules| rules.load_full()).collect();
        decide(address, rules.iter().map(|rules| &**rules)).allowed
    }
}
