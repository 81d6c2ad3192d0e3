//! Requests by the class of their response.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// How requests end: without a response, or with one of such a status.
const CODES: [&str; 6] = ["none", "1xx", "2xx", "3xx", "4xx", "5xx"];

/// How many requests ended in which way.
#[derive(Debug, Default)]
pub struct CodeCounts([AtomicU64; CODES.len()]);

impl CodeCounts {
    /// Counts a request with this status; 0 where there was no response.
    pub fn count_status(&self, status: u16) {
        let class = usize::from(status / 100).min(CODES.len() - 1);
        self.0[class].fetch_add(1, Relaxed);
    }

    /// The classes that there were, and how often.
    pub fn nonzero_counts(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let counts = CODES.into_iter().zip(&self.0);
        counts.map(|(code, count)| (code, count.load(Relaxed))).filter(|(_, count)| *count > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_status_has_its_class() {
        let counts = CodeCounts::default();
        for status in [0, 101, 200, 204, 302, 404, 503, 999] {
            counts.count_status(status);
        }

        let counted: Vec<_> = counts.nonzero_counts().collect();

        let expected = [("none", 1), ("1xx", 1), ("2xx", 2), ("3xx", 1), ("4xx", 1), ("5xx", 2)];
        assert_eq!(counted, expected);
    }
}
