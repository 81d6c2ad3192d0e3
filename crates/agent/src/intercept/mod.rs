//! What happens to requests before they reach the local service: the agent responds itself, or makes them
//! wait.
//!
//! `rules` keeps both kinds of rules; `matcher` says which requests one is for. `mock` makes responses, with
//! the values that `template` takes from the request, and `hold` knows the requests that wait. The relay asks
//! for each request, at the price of one load where there is no rule.

mod hold;
mod matcher;
mod mock;
mod pattern;
mod rules;
mod template;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Map, Value};
use tokio::sync::watch;

pub use hold::{HeldRequests, HoldDecision, HoldTicket, HoldTime, WaitingRequest};
pub use matcher::RequestView;
pub use mock::{MadeResponse, MockFault, MockResponse};
pub use rules::{InterceptRule, InterceptRules, RuleAction, RuleError};
pub use template::TemplateValues;

/// The mocks and holds of an agent, and the requests that wait.
#[derive(Debug)]
pub struct Interceptors {
    mocks: InterceptRules<MockResponse>,
    holds: InterceptRules<HoldTime>,
    held: Arc<HeldRequests>,
    /// Whether any rule is switched on.
    is_on: AtomicBool,
    /// Held while rules are changed, so that what is switched on is what the last change left.
    changing: Mutex<()>,
    changes: watch::Sender<u64>,
}

impl Default for Interceptors {
    fn default() -> Self {
        let changes = watch::Sender::new(0);
        Self {
            mocks: InterceptRules::default(),
            holds: InterceptRules::default(),
            held: Arc::new(HeldRequests::new(changes.clone())),
            is_on: AtomicBool::new(false),
            changing: Mutex::default(),
            changes,
        }
    }
}

impl Interceptors {
    /// Whether there is anything to ask for.
    pub fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    /// The mock that responds to a request.
    pub fn match_mock(
        &self,
        request: &RequestView<'_>,
    ) -> Option<Arc<InterceptRule<MockResponse>>> {
        let is_left = |mock: &InterceptRule<MockResponse>| {
            mock.action.has_uses_left(mock.hits()).then_some(())
        };
        let (found, ()) = self.mocks.find_match(request, is_left)?;
        self.notify_change();
        Some(found)
    }

    /// A place for a request that a hold makes wait; none where there is no such hold, or no place left.
    pub fn match_hold(&self, request: &RequestView<'_>) -> Option<HoldTicket> {
        // Under the lock of the rules, so that whoever removes one finds the places of all its requests.
        let found =
            self.holds.find_match(request, |hold| self.held.take_place(&hold.id, hold.action));
        found.map(|(_, ticket)| ticket)
    }

    /// The mocks.
    pub fn mocks(&self) -> &InterceptRules<MockResponse> {
        &self.mocks
    }

    /// The holds.
    pub fn holds(&self) -> &InterceptRules<HoldTime> {
        &self.holds
    }

    /// The requests that wait.
    pub fn held(&self) -> &Arc<HeldRequests> {
        &self.held
    }

    /// Counts what has changed.
    pub fn watch_changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Adds a mock; `from_file` says that it stands in the configuration file.
    ///
    /// # Errors
    /// When a field is unusable, the identifier is another's, or there are too many.
    pub fn add_mock(
        &self,
        fields: Map<String, Value>,
        from_file: bool,
    ) -> Result<Arc<InterceptRule<MockResponse>>, RuleError> {
        self.change_rules(|| self.mocks.add(fields, from_file))
    }

    /// Adds a hold.
    ///
    /// # Errors
    /// As for a mock.
    pub fn add_hold(
        &self,
        fields: Map<String, Value>,
    ) -> Result<Arc<InterceptRule<HoldTime>>, RuleError> {
        self.change_rules(|| self.holds.add(fields, false))
    }

    /// Changes a mock.
    ///
    /// # Errors
    /// When there is none, or a field is unusable.
    pub fn update_mock(
        &self,
        id: &str,
        fields: Map<String, Value>,
    ) -> Result<Arc<InterceptRule<MockResponse>>, RuleError> {
        self.change_rules(|| self.mocks.update(id, fields))
    }

    /// Changes a hold; one that is switched off lets its requests go.
    ///
    /// # Errors
    /// As for a mock.
    pub fn update_hold(
        &self,
        id: &str,
        fields: Map<String, Value>,
    ) -> Result<Arc<InterceptRule<HoldTime>>, RuleError> {
        let hold = self.change_rules(|| self.holds.update(id, fields))?;
        if !hold.is_enabled {
            self.held.release_matching(Some(id));
        }
        Ok(hold)
    }

    /// Removes a mock, or all of them; false where there was none.
    pub fn remove_mock(&self, id: Option<&str>) -> bool {
        self.change_rules(|| self.mocks.remove(id))
    }

    /// Removes a hold, or all of them, and lets their requests go; false where there was none.
    pub fn remove_hold(&self, id: Option<&str>) -> bool {
        let removed = self.change_rules(|| self.holds.remove(id));
        self.held.release_matching(id);
        removed
    }

    fn change_rules<T>(&self, change: impl FnOnce() -> T) -> T {
        let changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let outcome = change();
        let is_on = self.mocks.has_enabled() || self.holds.has_enabled();
        self.is_on.store(is_on, Ordering::Relaxed);
        drop(changing);
        self.notify_change();
        outcome
    }

    fn notify_change(&self) {
        self.changes.send_modify(|changes| *changes += 1);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_switched_on_stays_on_whoever_else_changes_rules() {
        let interceptors = Interceptors::default();
        let fields = |enabled: bool| json!({"enabled": enabled}).as_object().unwrap().clone();
        let ids = ["a", "b"];
        for id in ids {
            interceptors.add_mock(json!({"id": id}).as_object().unwrap().clone(), false).unwrap();
        }

        for round in 0..500 {
            let on = ids[round % 2];
            std::thread::scope(|scope| {
                for id in ids {
                    let (interceptors, fields) = (&interceptors, &fields);
                    scope.spawn(move || {
                        interceptors.update_mock(id, fields(id != on)).unwrap();
                        interceptors.update_mock(id, fields(id == on)).unwrap();
                    });
                }
            });
            assert!(interceptors.is_on(), "{on} is on");
        }
    }
}
