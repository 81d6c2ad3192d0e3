//! The rules of IP policies, which modules hold on to.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;

use crate::policy::ip_rules::IpRules;

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
