//! Who an agent is, and what it may bind (remote API sheet, section 6, credentials).

use std::collections::BTreeMap;

use crate::service::accounts::Agent;

/// Whether the access list of an agent's credential lets it bind a host or an address.
pub(super) fn may_bind(agent: &Agent, host: &str) -> bool {
    let named = |entry: &str| match entry.strip_prefix("*.") {
        Some(parent) => {
            let below = host.strip_suffix(parent).and_then(|rest| rest.strip_suffix('.'));
            below.is_some_and(|label| !label.is_empty())
        }
        None => entry == host,
    };
    is_open(agent) || bound(agent).any(named)
}

/// Whether it lets it bind all of these labels.
pub(super) fn may_bind_labels(agent: &Agent, labels: &BTreeMap<String, String>) -> bool {
    let same = |wanted: &str, found: &str| wanted == "*" || wanted == found;
    let named = |key: &str, value: &str| {
        bound(agent)
            .filter_map(|entry| entry.split_once('='))
            .any(|(wanted_key, wanted)| same(wanted_key, key) && same(wanted, value))
    };
    is_open(agent) || labels.iter().all(|(key, value)| named(key, value))
}

fn is_open(agent: &Agent) -> bool {
    agent.acl.is_empty() || agent.acl.iter().any(|entry| entry == "*")
}

fn bound(agent: &Agent) -> impl Iterator<Item = &str> {
    agent.acl.iter().filter_map(|entry| entry.strip_prefix("bind:"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agent(acl: &[&str]) -> Agent {
        let acl = acl.iter().map(|entry| (*entry).to_owned()).collect();
        Agent { credential_id: String::new(), owner_id: String::new(), acl }
    }

    #[test]
    fn hosts_and_addresses_are_matched_whole_or_below_a_star() {
        let acl = agent(&["bind:a.test", "bind:*.b.test", "bind:127.0.0.1:2000"]);

        for host in ["a.test", "x.b.test", "x.y.b.test", "127.0.0.1:2000"] {
            assert!(may_bind(&acl, host), "{host}");
        }
        for host in ["x.a.test", "b.test", ".b.test", "xb.test", "127.0.0.1:2001"] {
            assert!(!may_bind(&acl, host), "{host}");
        }
        assert!(may_bind(&agent(&[]), "any") && may_bind(&agent(&["*"]), "any"));
    }

    #[test]
    fn every_label_needs_an_entry() {
        let labels = |pairs: &[(&str, &str)]| {
            pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
        };
        let acl = agent(&["bind:app=*", "bind:env=ci"]);

        assert!(may_bind_labels(&acl, &labels(&[("app", "x"), ("env", "ci")])));
        assert!(!may_bind_labels(&acl, &labels(&[("app", "x"), ("env", "live")])));
        assert!(!may_bind_labels(&acl, &labels(&[("other", "x")])));
    }
}
