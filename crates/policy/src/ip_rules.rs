//! Who may come, by address.
//!
//! Traffic policy sheet, section 11: the rules of all policies together; allowed is who is in an
//! allowed range and in no denied one. What a request says of its sender never counts.

use std::net::IpAddr;

use super::cidr::Cidr;

/// Ranges that may come in, and ranges that may not.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct IpRules {
    /// The ranges that may come in.
    pub allow: Vec<Cidr>,
    /// The ranges that may not, even if allowed.
    pub deny: Vec<Cidr>,
}

/// Whether an address may come in, and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IpDecision {
    /// Whether it may.
    pub allowed: bool,
    /// The most specific range that decided; none where no range holds the address.
    pub matched: Option<Cidr>,
}

/// Whether an address may come in by all these rules together.
pub fn decide_access<'r>(
    address: IpAddr,
    rules: impl IntoIterator<Item = &'r IpRules>,
) -> IpDecision {
    let (mut allow, mut deny) = (None, None);
    for rules in rules {
        keep_most_specific(&mut deny, &rules.deny, address);
        keep_most_specific(&mut allow, &rules.allow, address);
    }
    IpDecision { allowed: deny.is_none() && allow.is_some(), matched: deny.or(allow) }
}

/// Keeps the most specific range that holds the address.
fn keep_most_specific(best: &mut Option<Cidr>, ranges: &[Cidr], address: IpAddr) {
    for range in ranges.iter().filter(|range| range.contains(address)) {
        if best.is_none_or(|best| range.bits() > best.bits()) {
            *best = Some(*range);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(allow: &[&str], deny: &[&str]) -> IpRules {
        let ranges = |list: &[&str]| list.iter().map(|it| it.parse().unwrap()).collect();
        IpRules { allow: ranges(allow), deny: ranges(deny) }
    }

    fn decide_with(rules: &[IpRules], address: &str) -> (bool, String) {
        let IpDecision { allowed, matched } = decide_access(address.parse().unwrap(), rules);
        (allowed, matched.map_or_else(String::new, |it| it.to_string()))
    }

    #[test]
    fn one_rule_must_allow_and_none_may_deny() {
        let both = [rules(&["10.0.0.0/8"], &[]), rules(&["10.2.0.0/16"], &["10.1.0.0/16"])];

        assert_eq!(decide_with(&both, "10.3.0.1"), (true, "10.0.0.0/8".into()));
        assert_eq!(decide_with(&both, "::ffff:10.2.0.1"), (true, "10.2.0.0/16".into()));
        assert_eq!(decide_with(&both, "10.1.0.1"), (false, "10.1.0.0/16".into()));
        assert_eq!(decide_with(&both, "192.0.2.1"), (false, String::new()));
        assert_eq!(decide_with(&[], "192.0.2.1"), (false, String::new()));
        assert!(!decide_with(&[rules(&[], &["10.1.0.0/16"])], "10.2.0.1").0);
    }
}
