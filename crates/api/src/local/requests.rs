//! Captured requests: look at them, send them again.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::macros::{resource, wire};
use crate::{Base64, Flag, Note, Timestamp, Trailers};

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
        /// The mock that responded in place of the local service; absent where none did.
        pub mock_id: Note,
        /// The hold that the request waits or has waited for; absent where there was none.
        pub hold_id: Note,
        /// The request that this one repeats; absent where it is no replay.
        pub replay_of: Note,
        /// The replay schedule that sent the request; absent where none did.
        pub schedule_id: Note,
        /// True when the request was changed while it waited.
        pub edited: Flag,
        /// Where the time went; none until the exchange has ended.
        pub timings: Option<Timings>,
        /// What comes one after the other: `websocket`, `events` or `grpc`; else absent.
        pub stream: Note,
        /// The status of a gRPC call that has ended; 0 is success.
        pub grpc_status: Option<i64>,
        /// The edge that led here; absent where none did, or the service did not say.
        pub edge_id: Note,
        /// The route of that edge; absent likewise.
        pub route_id: Note,
        /// The rules of traffic policies that acted on the request before it came here, in order; none
        /// where none did, or the service did not say. What a policy denies never comes here.
        pub rules: Option<Vec<PolicyRule>>,
        /// True when newer requests do not displace it.
        pub pinned: Flag,
        /// What somebody wrote about it; absent where nobody has.
        pub note: Note,
        /// True when it comes from an archive, and not from a visitor.
        pub imported: Flag,
    }

    /// A rule of a traffic policy that acted on a request.
    pub struct PolicyRule {
        /// The module that the rule is of, such as `policy`.
        pub module: String,
        /// The number of the rule among those for requests, from 0.
        pub index: i64,
        /// What its author calls it; absent where it has no name, or a long one.
        pub name: Note,
        /// The expressions, all of them true; none where there are none, they are long, or the policy
        /// is that of an edge.
        pub expressions: Option<Vec<String>>,
        /// The types of its actions, in order.
        pub actions: Vec<String>,
    }

    /// A request that was sent.
    pub struct SentRequest {
        /// The identifier of the captured request; none where the tunnel is not inspected.
        pub id: Option<String>,
    }

    /// A message of a captured stream.
    pub struct StreamMessage {
        /// Its place in the stream, from 1.
        pub index: i64,
        /// Who sent it: `client` or `server`.
        pub sender: String,
        /// `text`, `binary`, `ping`, `pong` or `close` of a WebSocket; `event`; `grpc`.
        pub kind: String,
        /// When it was whole; none where that is not known.
        pub time: Option<Timestamp>,
        /// How many bytes it took, compressed or not.
        pub size: i64,
        /// What it says, without the compression of a WebSocket; of a close, the reason.
        pub data: Base64,
        /// The type of an event; absent where it names none.
        pub event: Note,
        /// The identifier of an event; absent where it names none.
        pub event_id: Note,
        /// Why a WebSocket is closed.
        pub code: Option<i64>,
        /// True when it is compressed, and could not be read.
        pub compressed: Flag,
        /// True when less is kept than there was.
        pub truncated: Flag,
        /// The full name of the type of a gRPC message; absent where no proto file describes it.
        pub message_type: Note,
        /// The gRPC message by the names of its fields; none where no proto file describes it.
        pub message: Option<Value>,
    }

    /// What came of an archive.
    pub struct ImportedRequests {
        /// The identifiers of the new captured requests, in the order of the archive.
        pub ids: Vec<String>,
        /// How many entries were left out.
        pub skipped: i64,
        /// The reasons, and the unreadable parts of other entries: the first 20.
        pub problems: Vec<String>,
        /// Fields that have a value and were not kept, such as `entries[].serverIPAddress`.
        pub ignored: Vec<String>,
    }

    /// Where the time of an exchange went, in nanoseconds; the parts make its duration.
    pub struct Timings {
        /// Until the agent began to connect to the local service: while the request was held, or until
        /// a mock responded.
        pub waited: i64,
        /// Until there was a connection; 0 for one that was kept.
        pub connected: i64,
        /// Until the response began.
        pub first_byte: i64,
        /// Until the response ended.
        pub body: i64,
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
        /// List the messages of a stream, oldest first: WebSocket, server-sent events, gRPC.
        GET "/requests/http/{id}/messages" Messages(
            /// The identifier of the captured request.
            id: String,
            [
            /// Only messages after the one with this index.
            after: i64,
            /// How many to return at most, 50 by default.
            limit: i64,
        ]) -> [messages: StreamMessage];
        /// Send a captured request again, to the local service of a tunnel.
        POST "/requests/http" Replay(
            /// The identifier of the captured request.
            id: String,
            [
            /// The tunnel to use instead of the one that received the request.
            tunnel_name: String,
            /// Where to send it instead of the tunnel's local service: `host:port` or a URL. Hosts other
            /// than this machine's own and those of its tunnels must stand in `replay_allow_hosts`.
            addr: String,
            /// How many times to send it, one after the other, 1 to 100.
            times: i64,
            /// Milliseconds between two of these times, at most 60,000.
            interval: i64,
        ]);
        /// Send a new request to the local service of a tunnel, and capture it.
        POST "/requests/send" Send(
            /// The method.
            method: String,
            /// The target: path and query.
            target: String,
            [
            /// The headers: each name with its values in order. `Host` is that of the local service by
            /// default.
            headers: BTreeMap<String, Vec<String>>,
            /// The body, as text.
            body: String,
            /// The body, as bytes.
            body_base64: Base64,
            /// Headers to send after the body, which goes in chunks then.
            trailers: BTreeMap<String, Vec<String>>,
            /// The tunnel; the oldest one by default.
            tunnel_name: String,
            /// Where to send it instead of the tunnel's local service: `host:port` or a URL. Hosts other
            /// than this machine's own and those of its tunnels must stand in `replay_allow_hosts`.
            addr: String,
        ]) -> SentRequest;
        /// Add the requests of an archive (HAR 1.2), of at most 64 MiB; nothing is sent.
        ///
        /// The body is the archive itself. Entries that are no exchanges of HTTP are left out.
        POST "/requests/import" Load(
            /// What the archive holds: an object with `entries`.
            log: Map<String, Value>
        ) -> ImportedRequests;
        /// Pin a captured request, or write a note about it; omitted fields keep their value.
        ///
        /// Newer requests do not displace one that is pinned.
        PATCH "/requests/http/{id}" Update(
            /// The identifier of the captured request.
            id: String,
            [
            /// Whether it is pinned. At most 100 are, and they take half of the room together.
            pinned: bool,
            /// What is to be known about it, at most 2,000 bytes; empty for nothing.
            note: String,
        ]) -> CapturedRequest;
        /// Remove one captured request; what it is still to get is not recorded any further.
        DELETE "/requests/http/{id}" Delete(
            /// The identifier of the captured request.
            id: String
        );
        /// Remove all captured requests.
        DELETE "/requests/http" Clear();
    }
}
