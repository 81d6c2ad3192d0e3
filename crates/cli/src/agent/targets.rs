//! The local services behind an agent's tunnels: whether they accept connections.
//!
//! A target is tried by a TCP connection that is closed at once. No request is sent.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio::task::JoinHandle;

use ginnel_agent::{Agent, LocalUpstream};

/// Pause between two rounds, and so between two attempts at a target that accepts no connections.
const ROUND_INTERVAL: Duration = Duration::from_millis(500);
/// Bounds of the pause between two attempts at a target that accepts connections. The pause doubles,
/// because some servers log each connection without data.
const MIN_PAUSE: Duration = Duration::from_secs(1);
const MAX_PAUSE: Duration = Duration::from_secs(30);

/// Targets by address, and whether each accepts connections.
pub(super) type TargetStates = BTreeMap<String, bool>;

/// Tries the targets of all tunnels until it is dropped.
pub(super) struct TargetWatch {
    /// `None` before the first round is over.
    states: watch::Receiver<Option<TargetStates>>,
    task: JoinHandle<()>,
}

impl TargetWatch {
    /// Starts to try the targets of the agent's tunnels.
    pub fn start(agent: &Agent) -> Self {
        let (sender, states) = watch::channel(None);
        let upstreams = agent.upstream_source();
        let task = ginnel_base::tasks::spawn(async move {
            let mut targets = Targets::default();
            while !sender.is_closed() {
                targets.try_due(upstreams()).await;
                sender.send_if_modified(|known| {
                    let states = Some(targets.states());
                    let is_changed = *known != states;
                    *known = states;
                    is_changed
                });
                tokio::time::sleep(ROUND_INTERVAL).await;
            }
        });
        Self { states, task }
    }

    /// Returns the states that are known so far.
    pub fn states(&self) -> TargetStates {
        self.states.borrow().clone().unwrap_or_default()
    }

    /// Returns the states after the first round.
    pub async fn first_states(&mut self) -> TargetStates {
        let states = self.states.wait_for(Option::is_some).await;
        states.ok().and_then(|states| states.clone()).unwrap_or_default()
    }

    /// Waits until a state has changed.
    pub async fn wait_for_change(&mut self) {
        if self.states.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

impl Drop for TargetWatch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Describes a target for people.
pub(super) fn describe_target(address: &str, accepts: bool) -> String {
    match accepts {
        true => format!("{address} accepts connections"),
        false => format!("{address} does not accept connections"),
    }
}

/// The targets that have been tried, by address.
#[derive(Default)]
struct Targets(BTreeMap<String, WatchedTarget>);

struct WatchedTarget {
    accepts: bool,
    pause: Duration,
    due: Instant,
}

impl Targets {
    /// Tries the targets whose pause is over, and forgets those that no tunnel leads to any more.
    async fn try_due(&mut self, upstreams: Vec<LocalUpstream>) {
        let by_address =
            upstreams.into_iter().map(|upstream| (upstream.address().to_string(), upstream));
        let by_address: BTreeMap<_, _> = by_address.collect();
        self.0.retain(|address, _| by_address.contains_key(address));
        for (address, upstream) in by_address {
            let known = self.0.get(&address);
            if known.is_some_and(|target| target.due > Instant::now()) {
                continue;
            }
            if let Some(accepts) = upstream.accepts_connections().await {
                let target = WatchedTarget::after_attempt(known, accepts);
                self.0.insert(address, target);
            }
        }
    }

    fn states(&self) -> TargetStates {
        self.0.iter().map(|(address, target)| (address.clone(), target.accepts)).collect()
    }
}

impl WatchedTarget {
    /// Returns the target after an attempt.
    fn after_attempt(known: Option<&Self>, accepts: bool) -> Self {
        let pause = match known {
            _ if !accepts => Duration::ZERO,
            Some(known) if known.accepts => (known.pause * 2).min(MAX_PAUSE),
            _ => MIN_PAUSE,
        };
        Self { accepts, pause, due: Instant::now() + pause }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_that_accepts_connections_is_tried_less_and_less_often() {
        let mut target = WatchedTarget::after_attempt(None, true);
        let mut pauses = vec![target.pause.as_secs()];
        for _ in 0..6 {
            target = WatchedTarget::after_attempt(Some(&target), true);
            pauses.push(target.pause.as_secs());
        }

        assert_eq!(pauses, [1, 2, 4, 8, 16, 30, 30]);
        let stopped = WatchedTarget::after_attempt(Some(&target), false);
        assert_eq!(stopped.pause, Duration::ZERO);
        assert_eq!(WatchedTarget::after_attempt(Some(&stopped), true).pause, MIN_PAUSE);
    }
}
