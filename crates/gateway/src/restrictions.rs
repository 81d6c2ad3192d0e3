//! IP restrictions: from where visitors, agents and callers of the service's own pages and API may come.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::{ArcSwap, ArcSwapOption};

use ginnel_policy::ip_rules::IpRules;

use crate::modules::ip_policies;

/// What an IP restriction holds for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ingress {
    Dashboard,
    Api,
    Agent,
    Endpoints,
}

impl Ingress {
    pub const ALL: [Self; 4] = [Self::Dashboard, Self::Api, Self::Agent, Self::Endpoints];

    /// The name on the wire.
    pub fn name(self) -> &'static str {
        match self {
            Self::Dashboard => "dashboard",
            Self::Api => "api",
            Self::Agent => "agent",
            Self::Endpoints => "endpoints",
        }
    }

    /// The one with a name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|ingress| ingress.name() == name)
    }
}

/// The restrictions of each ingress, replaced as a whole when one of them changes; an address must be allowed
/// by all that are enforced.
#[derive(Debug, Default)]
pub struct IngressRestrictions([ArcSwapOption<Vec<IngressRestriction>>; 4]);

/// One restriction, with the rules of its IP policies as they are now.
#[derive(Debug)]
pub struct IngressRestriction {
    id: String,
    is_enforced: bool,
    policies: Vec<Arc<ArcSwap<IpRules>>>,
    /// How many addresses have come that it does not allow, and that came in.
    tolerated: AtomicU64,
}

impl IngressRestrictions {
    /// Whether somebody from this address may come in.
    pub fn allows_address(&self, ingress: Ingress, address: IpAddr) -> bool {
        let restrictions = self.0[ingress as usize].load();
        restrictions.as_ref().is_none_or(|all| all.iter().all(|one| one.allows_address(address)))
    }

    /// Whether everybody may come in.
    pub fn is_open(&self, ingress: Ingress) -> bool {
        self.0[ingress as usize].load().is_none()
    }

    /// Puts these restrictions in place of those that there were.
    pub fn replace(&self, ingress: Ingress, restrictions: Vec<IngressRestriction>) {
        let restrictions = (!restrictions.is_empty()).then(|| Arc::new(restrictions));
        self.0[ingress as usize].store(restrictions);
    }
}

impl IngressRestriction {
    pub fn new(id: String, is_enforced: bool, policies: Vec<Arc<ArcSwap<IpRules>>>) -> Self {
        Self { id, is_enforced, policies, tolerated: AtomicU64::new(0) }
    }

    fn allows_address(&self, address: IpAddr) -> bool {
        if ip_policies::allows_address(&self.policies, address) {
            return true;
        }
        if !self.is_enforced {
            self.warn_tolerated(address);
        }
        !self.is_enforced
    }

    /// Says what would be refused; of many, the first and then one each time that their number has doubled.
    fn warn_tolerated(&self, address: IpAddr) {
        let count = self.tolerated.fetch_add(1, Ordering::Relaxed) + 1;
        if count.is_power_of_two() {
            let restriction = self.id.as_str();
            tracing::warn!(restriction, %address, count, "an IP restriction would refuse an address");
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn restriction(allow: &str, is_enforced: bool) -> IngressRestriction {
        let rules = IpRules { allow: vec![allow.parse().unwrap()], deny: Vec::new() };
        let policies = vec![Arc::new(ArcSwap::from_pointee(rules))];
        IngressRestriction::new("ipx_1".to_owned(), is_enforced, policies)
    }

    fn admits(restrictions: &IngressRestrictions, address: &str) -> bool {
        restrictions.allows_address(Ingress::Api, address.parse().unwrap())
    }

    #[test]
    fn all_that_are_enforced_must_allow_an_address() {
        let restrictions = IngressRestrictions::default();
        assert!(restrictions.is_open(Ingress::Api) && admits(&restrictions, "192.0.2.1"));

        let both = vec![restriction("10.0.0.0/8", true), restriction("10.1.0.0/16", true)];
        restrictions.replace(Ingress::Api, both);

        assert!(admits(&restrictions, "::ffff:10.1.0.1") && !admits(&restrictions, "10.2.0.1"));
        assert!(restrictions.allows_address(Ingress::Agent, "192.0.2.1".parse().unwrap()));
        restrictions.replace(Ingress::Api, vec![restriction("10.0.0.0/8", false)]);
        assert!(admits(&restrictions, "192.0.2.1") && !restrictions.is_open(Ingress::Api));
        restrictions.replace(Ingress::Api, Vec::new());
        assert!(restrictions.is_open(Ingress::Api));
    }

    #[test]
    fn names_are_those_of_the_wire() {
        for ingress in Ingress::ALL {
            assert_eq!(Ingress::from_name(ingress.name()), Some(ingress));
        }
        assert_eq!(Ingress::from_name("ssh"), None);
    }
}
