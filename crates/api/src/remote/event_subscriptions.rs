//! Event subscriptions: which events are sent to which destinations.

use crate::macros::{resource, wire};
use crate::remote::Ref;
use crate::remote::event_sources::EventSource;
use crate::{Description, Metadata};

wire! {
    /// Which events are sent to which destinations.
    pub struct EventSubscription {
        item { prefix: "esb", noun: "event subscription", created: "When the event subscription was created.", description: "Human-readable description of the event subscription" }
        /// The types of events that are sent.
        pub sources: Option<Vec<EventSource>>,
        /// Where they are sent.
        pub destinations: Option<Vec<Ref>>,
    }

    /// A type of events that is to be sent.
    pub struct EventSourceReplace {
        /// The type, such as `ip_policy_created.v0`.
        pub r#type: String,
        /// An expression that chooses events; not offered by this service, which sends all of a type.
        pub filter: Option<String>,
        /// The fields to send; not offered by this service, which sends all.
        pub fields: Option<Vec<String>>,
    }
}

resource! {
    /// Event subscriptions: which events are sent to which destinations; only for admins.
    "event_subscriptions" {
        /// Create an event subscription; events from now on are sent.
        POST "/event_subscriptions" Create([
            description: Description,
            metadata: Metadata,
            /// The types of events to send.
            sources: Vec<EventSourceReplace>,
            /// The event destinations to send them to, 100 at most.
            destination_ids: Vec<String>,
        ]) -> EventSubscription;
        /// List the event subscriptions, newest first.
        GET "/event_subscriptions" List([before_id: String, limit: i64]) -> [event_subscriptions: EventSubscription];
        /// Fetch one event subscription.
        GET "/event_subscriptions/{id}" Get(id: String) -> EventSubscription;
        /// Change an event subscription.
        PATCH "/event_subscriptions/{id}" Update(id: String, [
            description: Description,
            metadata: Metadata,
            /// The types of events in place of those that there were; an empty list changes nothing.
            sources: Vec<EventSourceReplace>,
            /// The event destinations in place of those that there were; an empty list removes all.
            destination_ids: Vec<String>,
        ]) -> EventSubscription;
        /// Delete an event subscription; what waits because of it alone is not sent any more.
        DELETE "/event_subscriptions/{id}" Delete(id: String);
    }
}
