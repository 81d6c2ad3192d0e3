//! What an agent may bind (remote API sheet, section 6, credentials).

use std::collections::BTreeMap;

use ginnel_gateway::PublicEndpoint;

/// The access list of a credential; an empty one allows everything.
#[derive(Debug, Clone)]
pub struct AccessList(pub Vec<String>);

impl AccessList {
    /// Whether the list allows an endpoint, by its host or else by its address.
    pub fn allows_endpoint(&self, endpoint: &PublicEndpoint) -> bool {
        match (endpoint.host(), endpoint.address()) {
            (Some(host), _) => self.allows_host(host),
            (None, Some(address)) => self.allows_host(&address.to_string()),
            (None, None) => self.allows_host(""),
        }
    }

    /// Whether the list allows a host or an address.
    pub fn allows_host(&self, host: &str) -> bool {
        let named = |entry: &str| match entry.strip_prefix("*.") {
            Some(parent) => {
                let below = host.strip_suffix(parent).and_then(|rest| rest.strip_suffix('.'));
                below.is_some_and(|label| !label.is_empty())
            }
            None => entry == host,
        };
        self.is_open() || self.bind_entries().any(named)
    }

    /// Whether the list allows all of these labels.
    pub fn allows_labels(&self, labels: &BTreeMap<String, String>) -> bool {
        let same = |spec: &str, found: &str| spec == "*" || spec == found;
        let named = |key: &str, value: &str| {
            self.bind_entries()
                .filter_map(|entry| entry.split_once('='))
                .any(|(wanted_key, spec)| same(wanted_key, key) && same(spec, value))
        };
        self.is_open() || labels.iter().all(|(key, value)| named(key, value))
    }

    /// Whether the list allows everything.
    pub fn is_open(&self) -> bool {
        self.0.is_empty() || self.0.iter().any(|entry| entry == "*")
    }

    fn bind_entries(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter_map(|entry| entry.strip_prefix("bind:"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(entries: &[&str]) -> AccessList {
        AccessList(entries.iter().map(|entry| (*entry).to_owned()).collect())
    }

    #[test]
    fn hosts_and_addresses_are_matched_whole_or_below_a_star() {
        let acl = list(&["bind:a.test", "bind:*.b.test", "bind:127.0.0.1:2000"]);

        for host in ["a.test", "x.b.test", "x.y.b.test", "127.0.0.1:2000"] {
            assert!(acl.allows_host(host), "{host}");
        }
        for host in ["x.a.test", "b.test", ".b.test", "xb.test", "127.0.0.1:2001"] {
            assert!(!acl.allows_host(host), "{host}");
        }
        assert!(list(&[]).allows_host("any") && list(&["*"]).allows_host("any"));
    }

    #[test]
    fn every_label_needs_an_entry() {
        let labels = |pairs: &[(&str, &str)]| {
            pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
        };
        let acl = list(&["bind:app=*", "bind:env=ci"]);

        assert!(acl.allows_labels(&labels(&[("app", "x"), ("env", "ci")])));
        assert!(!acl.allows_labels(&labels(&[("app", "x"), ("env", "live")])));
        assert!(!acl.allows_labels(&labels(&[("other", "x")])));
    }
}
