//! Requests that wait because of a hold.

use std::collections::BTreeMap;

use super::requests::RequestMessage;
use crate::macros::{resource, wire};
use crate::{Base64, Timestamp};

wire! {
    /// A request that waits.
    pub struct HeldRequest {
        /// The identifier of the captured request.
        pub id: String,
        /// The path of this resource.
        pub uri: String,
        /// The hold that makes it wait.
        pub hold_id: String,
        /// The tunnel that received it.
        pub tunnel_name: String,
        /// When it arrived.
        pub start: Timestamp,
        /// When it is let go, if nobody does anything.
        pub until: Timestamp,
        /// What is to be sent to the local service. A body that is truncated cannot be kept by a change.
        pub request: RequestMessage,
    }
}

resource! {
    /// Requests that wait because of a hold.
    "held_requests" {
        /// List the requests that wait, oldest first.
        GET "/requests/held" List() -> [held_requests: HeldRequest];
        /// Fetch one request that waits.
        GET "/requests/held/{id}" Get(
            /// The identifier of the captured request.
            id: String
        ) -> HeldRequest;
        /// Let a request go to the local service, as it is or changed.
        POST "/requests/held/{id}/release" Release(
            /// The identifier of the captured request.
            id: String,
            [
            /// Another method.
            method: String,
            /// Another target: path and query.
            target: String,
            /// Other headers: each name with its values in order. `Host` stays unless it is among them.
            headers: BTreeMap<String, Vec<String>>,
            /// Another body, as text.
            body: String,
            /// Another body, as bytes.
            body_base64: Base64,
        ]);
        /// Refuse a request: the visitor gets a response of the agent.
        POST "/requests/held/{id}/refuse" Refuse(
            /// The identifier of the captured request.
            id: String,
            [
            /// The status of the response, 400 to 599; 403 by default.
            status: i64,
            /// The text of the response.
            body: String,
        ]);
        /// Let all requests go that wait.
        POST "/requests/held" Flush();
    }
}
