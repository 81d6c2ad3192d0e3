//! Which labels agents had that were lost a moment ago: visitors wait for them.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

/// How long it is known; nobody waits longer.
const KNOWN_TIME: Duration = Duration::from_secs(10);
/// Of how many tunnels it is known.
const MAX_TUNNELS: usize = 1024;

/// The labels of tunnels whose agents were lost, the oldest first.
#[derive(Default)]
pub struct LostLabels(VecDeque<(BTreeMap<String, String>, Instant)>);

impl LostLabels {
    /// Notes that the agent of a tunnel with these labels is lost.
    pub fn add(&mut self, labels: Option<&BTreeMap<String, String>>) {
        while self.0.front().is_some_and(|(_, since)| since.elapsed() > KNOWN_TIME) {
            self.0.pop_front();
        }
        if self.0.len() >= MAX_TUNNELS {
            self.0.pop_front();
        }
        self.0.extend(labels.map(|labels| (labels.clone(), Instant::now())));
    }

    /// When a tunnel with all of these labels was lost, the last of several.
    pub fn lost_at(&self, labels: &BTreeMap<String, String>) -> Option<Instant> {
        let has_all = |own: &BTreeMap<String, String>| {
            labels.iter().all(|(key, value)| own.get(key) == Some(value))
        };
        let mut newest_first = self.0.iter().rev();
        newest_first.find(|(own, _)| has_all(own)).map(|(_, since)| *since)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn a_tunnel_is_known_by_all_of_its_labels_and_the_last_ones_stay() {
        let mut lost = LostLabels::default();
        lost.add(Some(&labels(&[("app", "it"), ("zone", "a")])));

        assert!(lost.lost_at(&labels(&[("app", "it")])).is_some());
        assert!(lost.lost_at(&labels(&[("app", "it"), ("zone", "b")])).is_none());
        assert!(lost.lost_at(&labels(&[("other", "it")])).is_none());
        for _ in 0..MAX_TUNNELS {
            lost.add(Some(&labels(&[("other", "it")])));
        }
        assert!(lost.lost_at(&labels(&[("app", "it")])).is_none());
    }
}
