//! Captured requests: look at them, send them again.

use std::collections::BTreeMap;

use crate::api::macros::{resource, wire};
use crate::api::{Base64, Flag, Note, Timestamp, Trailers};

wire! {
    /// A request that an HTTP tunnel received, with its response.
    pub struct CapturedRequest {
        /// The path of this resource.
        pub uri: String,
        /// 16 hexadecimal digits; later requests sort after earlier ones.
        pub id: String,
        /// The tunnel that received the request.
        pub tunnel_name: String,
        /// The address of the client, without its port.
        pub remote_addr: String,
        /// When the request arrived.
        pub start: Timestamp,
        /// How long the exchange took, in nanoseconds; 0 until the response is complete.
        pub duration: i64,
        /// What was sent to the local service.
        pub request: RequestMessage,
        /// What the local service answered; none while it has not.
        pub response: Option<ResponseMessage>,
        /// Why the exchange ended before the request and its response were complete, or why the agent
        /// answered in place of the local service; absent on success.
        pub error: Note,
    }

    /// The request of a captured exchange.
    pub struct RequestMessage {
        /// The method.
        pub method: String,
        /// The version of the protocol, such as `HTTP/1.1`.
        pub proto: String,
        /// The headers: each name with its values in order.
        pub headers: BTreeMap<String, Vec<String>>,
        /// The target: path and query.
        pub uri: String,
        /// Start line, headers and body, as they were sent to the local service.
        pub raw: Base64,
        /// True when the body is not complete: it was longer than what is kept, or was cut off.
        pub truncated: Flag,
        /// The headers that came after the body: each name with its values in order.
        pub trailers: Trailers,
    }

    /// The response of a captured exchange.
    pub struct ResponseMessage {
        /// Status code and text.
        pub status: String,
        /// The status code.
        pub status_code: i64,
        /// The version of the protocol, such as `HTTP/1.1`.
        pub proto: String,
        /// The headers: each name with its values in order.
        pub headers: BTreeMap<String, Vec<String>>,
        /// Start line, headers and body, as the local service sent them.
        pub raw: Base64,
        /// True when the body is not complete: it was longer than what is kept, or was cut off.
        pub truncated: Flag,
        /// The headers that came after the body: each name with its values in order.
        pub trailers: Trailers,
    }
}

resource! {
    /// Captured requests.
    "requests" {
        /// List captured requests, newest first.
        GET "/requests/http" List([
            /// How many to return at most, 50 by default.
            limit: i64,
            /// Only those of this tunnel.
            tunnel_name: String,
        ]) -> [requests: CapturedRequest];
        /// Fetch one captured request.
        GET "/requests/http/{id}" Get(
            /// The identifier of the captured request.
            id: String
        ) -> CapturedRequest;
        /// Send a captured request again, to the local service of a tunnel.
        POST "/requests/http" Replay(
            /// The identifier of the captured request.
            id: String,
            [
            /// The tunnel to use instead of the one that received the request.
            tunnel_name: String,
        ]);
        /// Remove all captured requests.
        DELETE "/requests/http" Clear();
    }
}
