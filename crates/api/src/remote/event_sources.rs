//! Event sources: the types of events that an event subscription sends.

use crate::macros::{resource, wire};

wire! {
    /// A type of events that an event subscription sends.
    pub struct EventSource {
        /// The address of this event source.
        #[public(text)]
        pub uri: String,
        /// The type, such as `ip_policy_created.v0`.
        #[public(text)]
        pub r#type: Option<String>,
    }

    /// The types of events that an event subscription sends.
    pub struct EventSourceList {
        /// The types, in the order of their names.
        pub sources: Option<Vec<EventSource>>,
        /// The address of this list.
        pub uri: String,
    }
}

resource! {
    /// Event sources: the types of events that an event subscription sends; only for admins.
    "event_sources" {
        /// Add a type of events to an event subscription; one that it has changes nothing.
        POST "/event_subscriptions/{subscription_id}/sources" Create(
            subscription_id: String,
            /// The type, such as `ip_policy_created.v0`.
            r#type: String,
            [
                /// An expression that chooses events; not offered by this service, which sends all of a type.
                filter: String,
                /// The fields to send; not offered by this service, which sends all.
                fields: Vec<String>,
            ]
        ) -> EventSource;
        /// List the types of events of an event subscription.
        GET "/event_subscriptions/{subscription_id}/sources" List(subscription_id: String) -> EventSourceList;
        /// Fetch one type of events of an event subscription.
        GET "/event_subscriptions/{subscription_id}/sources/{type}" Get(
            subscription_id: String,
            r#type: String,
        ) -> EventSource;
        /// Return one type of events of an event subscription, which has nothing to change.
        PATCH "/event_subscriptions/{subscription_id}/sources/{type}" Update(
            subscription_id: String,
            r#type: String,
        ) -> EventSource;
        /// Remove a type of events from an event subscription.
        DELETE "/event_subscriptions/{subscription_id}/sources/{type}" Delete(
            subscription_id: String,
            r#type: String,
        );
    }
}
