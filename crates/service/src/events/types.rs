//! Which types of events there are: those of the resources, and those of traffic.

use std::collections::BTreeSet;

use ginnel_api::spelling::nearest_name;

use super::object::EventObject;

/// A request of a visitor was answered.
pub(super) const HTTP_REQUEST_COMPLETE: &str = "http_request_complete.v0";
/// A connection of a visitor that carried bytes has ended.
pub(super) const TCP_CONNECTION_CLOSED: &str = "tcp_connection_closed.v0";
/// The types of traffic.
pub(super) const OF_TRAFFIC: [&str; 2] = [HTTP_REQUEST_COMPLETE, TCP_CONNECTION_CLOSED];

/// The types of events.
#[derive(Debug)]
pub(crate) struct EventTypes(BTreeSet<String>);

impl EventTypes {
    /// Those of resources, and those of traffic.
    pub(super) fn from_objects(objects: &[EventObject]) -> Self {
        let traffic = OF_TRAFFIC.iter().map(|&name| name.to_owned());
        Self(objects.iter().flat_map(EventObject::event_types).chain(traffic).collect())
    }

    /// What is wrong with the name of a type, for a sentence behind the name of the field.
    pub fn check_name(&self, name: &str) -> Result<(), String> {
        if self.0.contains(name) {
            return Ok(());
        }
        let known = self.0.iter().map(String::as_str);
        let meant = nearest_name(name, known).map(|meant| format!("; did you mean {meant:?}?"));
        let meant = meant.unwrap_or_else(|| {
            "; docs/guides/events.md#types-of-events has all of them".to_owned()
        });
        Err(format!("there is no type of events {name:?}{meant}"))
    }

    /// All names, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }
}
