//! Who may come, by address.
//!
//! Remote API sheet, section 7: the rules of all policies together; allowed is who is in an allowed
//! range and in no denied one. What a request says of its sender never counts.

use std::net::IpAddr;
use std::sync::Arc;

use crate::policy::Cidr;
use crate::service::edge::slot::Slot;

/// The rules of one IP policy; a policy that was deleted has none.
#[derive(Debug, Default)]
pub(in crate::service::edge) struct IpRules {
    pub allow: Vec<Cidr>,
    pub deny: Vec<Cidr>,
}

/// The policies that decide who may come.
#[derive(Debug)]
pub(in crate::service::edge) struct Restriction(pub Vec<Arc<Slot<IpRules>>>);

impl Restriction {
    /// Whether somebody from this address may come.
    pub(in crate::service::edge) fn allows(&self, address: IpAddr) -> bool {
        let mut allowed = false;
        for rules in &self.0 {
            let rules = rules.get();
            if rules.deny.iter().any(|range| range.contains(address)) {
                return false;
            }
            allowed |= rules.allow.iter().any(|range| range.contains(address));
        }
        allowed
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn rules(allow: &[&str], deny: &[&str]) -> Arc<Slot<IpRules>> {
        let ranges = |list: &[&str]| list.iter().map(|it| it.parse().unwrap()).collect();
        Arc::new(Slot::new(IpRules { allow: ranges(allow), deny: ranges(deny) }))
    }

    #[test]
    fn one_rule_must_allow_and_none_may_deny() {
        let both = Restriction(vec![rules(&["10.0.0.0/8"], &[]), rules(&[], &["10.1.0.0/16"])]);
        let allows = |address: &str| both.allows(address.parse().unwrap());

        assert!(allows("10.2.0.1"));
        assert!(allows("::ffff:10.2.0.1"));
        assert!(!allows("10.1.0.1"));
        assert!(!allows("192.0.2.1"));
        assert!(!Restriction(vec![rules(&[], &["10.1.0.0/16"])]).allows([10, 2, 0, 1].into()));
    }
}
