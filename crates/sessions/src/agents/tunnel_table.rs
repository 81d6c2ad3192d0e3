//! The tunnels that are online, by identifier and by their labels.
//!
//! A request for a tunnel group asks for the tunnels with some labels, so that must not take longer the
//! more tunnels there are.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use ginnel_base::address::{EndpointUrl, Scheme};
use ginnel_gateway::is_internal;

/// What a tunnel is found by.
pub trait Labeled {
    /// Unique identifier; tunnels are ordered by it.
    fn id(&self) -> &str;

    /// What tunnel groups find it by; none where it has an address of its own.
    fn labels(&self) -> Option<&BTreeMap<String, String>>;

    /// Whether it has all of these labels.
    fn has_all(&self, labels: &BTreeMap<String, String>) -> bool {
        self.labels()
            .is_some_and(|own| labels.iter().all(|(key, value)| own.get(key) == Some(value)))
    }
}

/// The tunnels that are online.
pub struct TunnelTable<T> {
    by_id: BTreeMap<String, Arc<T>>,
    /// The tunnels with a label, by its key and its value, in the order of their identifiers.
    by_label: HashMap<String, HashMap<String, Vec<Arc<T>>>>,
}

impl<T> Default for TunnelTable<T> {
    fn default() -> Self {
        Self { by_id: BTreeMap::new(), by_label: HashMap::new() }
    }
}

impl<T: Labeled> TunnelTable<T> {
    pub fn insert(&mut self, tunnel: Arc<T>) {
        for (key, value) in tunnel.labels().into_iter().flatten() {
            let values = self.by_label.entry(key.clone()).or_default();
            let tunnels = values.entry(value.clone()).or_default();
            if let Err(at) = find_position(tunnels, tunnel.id()) {
                tunnels.insert(at, tunnel.clone());
            }
        }
        self.by_id.insert(tunnel.id().to_owned(), tunnel);
    }

    pub fn remove(&mut self, id: &str) {
        let Some(tunnel) = self.by_id.remove(id) else { return };
        for (key, value) in tunnel.labels().into_iter().flatten() {
            self.remove_label(key, value, id);
        }
    }

    fn remove_label(&mut self, key: &str, value: &str, id: &str) {
        let Some(values) = self.by_label.get_mut(key) else { return };
        let Some(tunnels) = values.get_mut(value) else { return };
        if let Ok(at) = find_position(tunnels, id) {
            tunnels.remove(at);
        }
        if tunnels.is_empty() {
            values.remove(value);
        }
        if values.is_empty() {
            self.by_label.remove(key);
        }
    }

    pub fn get(&self, id: &str) -> Option<&Arc<T>> {
        self.by_id.get(id)
    }

    /// All tunnels, oldest first.
    pub fn values(&self) -> impl Iterator<Item = &Arc<T>> {
        self.by_id.values()
    }

    /// The tunnels that have all of these labels, oldest first; none for no labels.
    pub fn with_labels(&self, labels: &BTreeMap<String, String>) -> Vec<Arc<T>> {
        self.with_labels_from(labels, 0, usize::MAX, |_| true)
    }

    /// At most `most` of those of them that the filter lets through, beginning with the one after `skipped`, counted around.
    pub fn with_labels_from(
        &self,
        labels: &BTreeMap<String, String>,
        skipped: usize,
        most: usize,
        filter: impl Fn(&T) -> bool,
    ) -> Vec<Arc<T>> {
        let Some(fewest) = self.with_rarest(labels) else { return Vec::new() };
        if labels.len() == 1 {
            let found = cycle_from(fewest, skipped).filter(|tunnel| filter(tunnel));
            return found.take(most).cloned().collect();
        }
        let serving: Vec<_> = fewest.iter().filter(|tunnel| tunnel.has_all(labels)).collect();
        let found = cycle_from(&serving, skipped).filter(|tunnel| filter(tunnel));
        found.take(most).map(|tunnel| Arc::clone(tunnel)).collect()
    }

    /// The tunnels with the one of these labels that the fewest have.
    fn with_rarest(&self, labels: &BTreeMap<String, String>) -> Option<&[Arc<T>]> {
        let with = |(key, value)| -> &[Arc<T>] {
            let tunnels =
                self.by_label.get(key).and_then(|values: &HashMap<_, _>| values.get(value));
            tunnels.map(Vec::as_slice).unwrap_or_default()
        };
        labels.iter().map(with).min_by_key(|tunnels| tunnels.len())
    }
}

/// Where a tunnel is among those with a label, or belongs.
fn find_position<T: Labeled>(tunnels: &[Arc<T>], id: &str) -> Result<usize, usize> {
    tunnels.binary_search_by(|tunnel| tunnel.id().cmp(id))
}

/// The values, beginning with the one after `skipped`, counted around.
fn cycle_from<V>(values: &[V], skipped: usize) -> impl Iterator<Item = &V> {
    let first = skipped.checked_rem(values.len()).unwrap_or(0);
    let (before, after) = values.split_at(first);
    after.iter().chain(before)
}

/// The host name in the address of a tunnel; none for an address of numbers, or a name that only policies
/// lead to.
pub fn public_host(url: &str) -> Option<&str> {
    let parsed = EndpointUrl::parse(url).ok()?;
    let host = url.split("://").nth(1)?.split(':').next()?;
    Some(host).filter(|host| parsed.host.ip().is_none() && !is_internal(host))
}

/// The port in the address of a tunnel that has it for itself: names for HTTP share theirs.
pub fn own_port(url: &str) -> Option<u16> {
    let url = EndpointUrl::parse(url).ok()?;
    let is_own = match url.scheme {
        Scheme::Http | Scheme::Https => url.host.ip().is_some(),
        _ => !is_internal(&url.host_pattern()),
    };
    url.port.filter(|_| is_own)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_for_http_and_inside_the_service_have_no_port_of_their_own() {
        let ports = [
            ("tcp://127.0.0.1:7000", Some(7000)),
            ("tls://a.test:7001", Some(7001)),
            ("http://[::1]:7002", Some(7002)),
            ("https://a.test:8443", None),
            ("https://a.test", None),
            ("tcp://a.internal:7003", None),
        ];

        for (url, port) in ports {
            assert_eq!(own_port(url), port, "{url}");
        }
    }

    struct Tunnel(String, Option<BTreeMap<String, String>>);

    impl Labeled for Tunnel {
        fn id(&self) -> &str {
            &self.0
        }

        fn labels(&self) -> Option<&BTreeMap<String, String>> {
            self.1.as_ref()
        }
    }

    fn labels(text: &str) -> BTreeMap<String, String> {
        let pairs = text.split_whitespace().filter_map(|label| label.split_once('='));
        pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
    }

    /// Tunnels `a`, `b`, … with these labels, put in from last to first; `-` has an address.
    fn table(of: &[&str]) -> TunnelTable<Tunnel> {
        let mut table = TunnelTable::default();
        for (id, text) in ('a'..).zip(of).collect::<Vec<_>>().into_iter().rev() {
            let labels = (*text != "-").then(|| labels(text));
            table.insert(Arc::new(Tunnel(id.to_string(), labels)));
        }
        table
    }

    fn ids(tunnels: &[Arc<Tunnel>]) -> String {
        tunnels.iter().map(|tunnel| tunnel.id()).collect()
    }

    #[test]
    fn tunnels_are_found_by_all_labels_that_are_asked_for_oldest_first() {
        let table =
            table(&["app=shop", "-", "app=shop zone=a", "app=mail zone=a", "zone=a app=shop"]);
        let serving = |text: &str| ids(&table.with_labels(&labels(text)));

        assert_eq!(serving("app=shop"), "ace");
        assert_eq!(serving("zone=a"), "cde");
        assert_eq!(serving("app=shop zone=a"), "ce");
        assert_eq!(serving("app=shop zone=b"), "");
        assert_eq!(serving("app=other"), "");
        assert_eq!(serving(""), "", "no labels are served by nobody");
        assert_eq!(table.values().map(|tunnel| tunnel.id()).collect::<String>(), "abcde");
    }

    #[test]
    fn a_few_are_found_in_turn() {
        let table = table(&["app=shop", "app=shop x=1", "app=shop x=1"]);
        let serving =
            |text: &str, skipped| ids(&table.with_labels_from(&labels(text), skipped, 2, |_| true));

        assert_eq!(
            [0, 1, 2, 3].map(|skipped| serving("app=shop", skipped)),
            ["ab", "bc", "ca", "ab"]
        );
        assert_eq!([0, 1].map(|skipped| serving("app=shop x=1", skipped)), ["bc", "cb"]);
        assert_eq!(serving("app=mail", 7), "");
    }

    #[test]
    fn a_tunnel_that_is_gone_is_found_by_nothing() {
        let mut table = table(&["app=shop", "app=shop zone=a", "-"]);

        for gone in ["b", "c", "none"] {
            table.remove(gone);
        }

        assert_eq!(ids(&table.with_labels(&labels("app=shop"))), "a");
        assert_eq!(ids(&table.with_labels(&labels("zone=a"))), "");
        assert!(table.get("b").is_none() && table.get("c").is_none());
        table.remove("a");
        assert!(table.by_label.is_empty(), "nothing is kept of labels that nobody has");
    }

    #[test]
    fn a_tunnel_that_is_put_in_twice_is_there_once() {
        let mut table = table(&["app=shop"]);

        table.insert(Arc::new(Tunnel("a".to_owned(), Some(labels("app=shop")))));
        assert_eq!(ids(&table.with_labels(&labels("app=shop"))), "a");

        table.remove("a");
        assert_eq!(ids(&table.with_labels(&labels("app=shop"))), "");
    }
}
