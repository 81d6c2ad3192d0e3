//! Looks after other nodes: fences whoever has lapsed, and removes what is left of whoever has ended.
//!
//! Who looks never waits for the database, so that the time between two looks says whether the process was
//! stopped. Who fences and cleans, which may take long, does not keep the node from beating.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tokio::sync::watch;

use ginnel_base::logging::or_debug;

use super::member::{Cluster, MAX_NEWS_AGE, RETRY_PAUSE};
use super::node::LEASE;
use super::{cleaning, membership};

/// How often it is looked for what has lapsed.
pub(super) const LOOK_INTERVAL: Duration = Duration::from_millis(500);

/// When what others do could be seen; none while it cannot.
pub(super) type ClearAt = Option<Instant>;

impl Cluster {
    /// Judges whether the silence of others says anything.
    pub(super) async fn watch_news(self: Arc<Self>, clear: watch::Sender<ClearAt>) {
        let mut watch = ClusterWatch::new(Instant::now());
        loop {
            tokio::time::sleep(LOOK_INTERVAL).await;
            let now = Instant::now();
            let news = watch.judge_news(now, self.news_age());
            clear.send_replace((news == NewsState::Clear).then_some(now));
            if let NewsState::Regained { after } = news {
                self.directory.renew_leases(now);
                if after >= LEASE {
                    self.outdated.notify_one();
                }
            }
        }
    }

    /// Does for other nodes what is to be done, while it can be seen what they do.
    pub(super) async fn maintain_cluster(self: Arc<Self>, mut clear: watch::Receiver<ClearAt>) {
        while clear.changed().await.is_ok() {
            let Some(at) = *clear.borrow_and_update() else { continue };
            self.remove_unknown_rows().await;
            self.fence_lapsed(at).await;
            self.remove_ended(at).await;
        }
    }

    /// Removes what the database has of this node again, and this node knows to be over.
    async fn remove_unknown_rows(&self) {
        if !self.is_untidy.swap(false, Ordering::AcqRel) {
            return;
        }
        let tidied = cleaning::remove_unknown(&self.store, &self.rows).await;
        if or_debug!(tidied, "rows that this node had removed are there again").is_none() {
            self.is_untidy.store(true, Ordering::Release);
            tokio::time::sleep(RETRY_PAUSE).await;
        }
    }

    async fn fence_lapsed(&self, at: Instant) {
        for node in self.directory.lapsed_nodes(at) {
            let (owner, beat) = (node.owner(), node.state.beat);
            let name = &node.record.name;
            let fenced =
                self.store.write(move |change| membership::fence_node(change, &owner, beat));
            match fenced.await {
                Ok(true) => {
                    tracing::warn!(node = name, "a node has lapsed; its agents may come here")
                }
                Ok(false) => {}
                Err(err) => {
                    tracing::debug!(%err, node = name, "a node that has lapsed is not fenced")
                }
            }
        }
    }

    async fn remove_ended(&self, at: Instant) {
        for node in self.directory.ended_nodes(at, cleaning::RESERVATION) {
            let cleaned = cleaning::remove_node(&self.store, &node).await;
            or_debug!(cleaned, "what a node has left stays for now");
        }
    }
}

/// Whether what others do can be seen.
#[derive(Debug, PartialEq)]
enum NewsState {
    Clear,
    Blind,
    /// For the first time after a while in which nobody's silence said anything.
    Regained {
        after: Duration,
    },
}

/// Since when this node could not see what others do.
struct ClusterWatch {
    looked: Instant,
    blind: Option<Instant>,
}

impl ClusterWatch {
    fn new(now: Instant) -> Self {
        Self { looked: now, blind: None }
    }

    /// Judges by the age of news, and by how long ago this was asked: a process that was stopped has seen
    /// nothing meanwhile.
    fn judge_news(&mut self, now: Instant, age: Duration) -> NewsState {
        let before = std::mem::replace(&mut self.looked, now);
        if now.duration_since(before) > MAX_NEWS_AGE {
            self.blind.get_or_insert(before);
        }
        if age > MAX_NEWS_AGE {
            self.blind.get_or_insert(now.checked_sub(age).unwrap_or(now));
            return NewsState::Blind;
        }
        let since = self.blind.take();
        since.map_or(NewsState::Clear, |since| NewsState::Regained {
            after: now.duration_since(since),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_could_not_look_or_was_stopped_begins_leases_anew() {
        let began = Instant::now();
        let at = |seconds| began + Duration::from_secs(seconds);
        let (fresh, old) = (Duration::from_millis(100), Duration::from_secs(5));
        let mut watch = ClusterWatch::new(began);

        assert_eq!(watch.judge_news(at(1), fresh), NewsState::Clear);
        assert_eq!(watch.judge_news(at(2), old), NewsState::Blind);
        let regained = watch.judge_news(at(3), fresh);
        let NewsState::Regained { after } = regained else { unreachable!("{regained:?}") };
        assert!(after >= Duration::from_secs(1));
        assert_eq!(watch.judge_news(at(4), fresh), NewsState::Clear);

        // As after SIGSTOP: the thread that follows changes may be the first to run again.
        let after = Duration::from_secs(20);
        assert_eq!(watch.judge_news(at(24), fresh), NewsState::Regained { after });
        assert_eq!(watch.judge_news(at(25), fresh), NewsState::Clear);
    }
}
