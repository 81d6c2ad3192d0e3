//! One captured request with its answer.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use chrono::{DateTime, Local, SecondsFormat, Utc};
use serde::{Deserialize, Serialize};

use ginnel_api::local::requests::{CapturedRequest, PolicyRule, RequestMessage, ResponseMessage};
use ginnel_api::{Base64, Flag, Note, Timestamp, Trailers};
use ginnel_http1::{self as http1, Body, HeadField, HeadWriter, head_lines};

use super::CapturedBody;
use super::stream::{BodyMarks, SocketLog, StreamKind};
use super::timing::{ExchangeMarks, ExchangeTiming};

/// What a record costs beside its bytes.
const RECORD_OVERHEAD_BYTES: usize = 512;
/// Maximum length of a message in a list of the agent API. A longer head is carried whole.
const MAX_LISTED_BYTES: usize = 1 << 20;

/// A captured request that may still be under way.
#[derive(Debug)]
pub struct CaptureRecord {
    /// Its place in the order of all records.
    pub(super) sequence: u32,
    /// 16 hexadecimal digits: the second of the start, and the sequence.
    pub id: String,
    /// The tunnel that received it.
    pub tunnel_name: String,
    /// Where it comes from.
    pub source: Arc<CaptureSource>,
    /// When it arrived.
    pub(super) start: DateTime<Utc>,
    /// When it changed last, in the count of all changes.
    pub(super) revision: AtomicU64,
    exchange: Mutex<CapturedExchange>,
}

/// What a visitor came through at the service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Via {
    /// The tunnel's own public address.
    Endpoint,
    /// An HTTPS edge, whose route chose this tunnel by its labels.
    HttpsEdge,
    /// An edge of another kind.
    Edge,
}

/// Where a request comes from.
#[derive(Debug, Clone, Default)]
pub struct CaptureSource {
    /// The address of the client, without its port.
    pub remote_addr: String,
    /// The record that the request repeats.
    pub replay_of: Option<String>,
    /// The schedule that repeats it.
    pub schedule_id: Option<String>,
    /// What the visitor came through; none for replays.
    pub via: Option<Via>,
    /// The identifier of the edge; empty where none led here, or the service did not say.
    pub edge_id: String,
    /// The identifier of the edge's route; empty likewise.
    pub route_id: String,
    /// The URL that an archive names for it, where it comes from one and not from a visitor.
    pub imported_from: Option<String>,
}

impl Via {
    /// What the service names it in the header of a connection.
    pub fn of_edge_type(edge_type: &str) -> Option<Self> {
        match edge_type {
            "0" => Some(Self::Endpoint),
            "1" | "2" => Some(Self::Edge),
            "3" => Some(Self::HttpsEdge),
            _ => None,
        }
    }
}

/// What was said, so far.
#[derive(Debug, Default, Clone)]
pub struct CapturedExchange {
    /// What was sent to the local service.
    pub request: CapturedMessage,
    /// What it answered; none while it has not.
    pub response: Option<CapturedMessage>,
    /// How long the exchange took; none while it lasts.
    pub took: Option<Duration>,
    pub(super) marks: ExchangeMarks,
    /// What its bodies are, where that comes one after the other.
    pub(super) stream: Option<StreamKind>,
    /// When the parts of the request's body came, in a stream.
    pub request_marks: BodyMarks,
    /// When the parts of the response's body came, in a stream.
    pub response_marks: BodyMarks,
    /// The messages of a WebSocket.
    pub socket: Option<SocketLog>,
    /// Whether the agent answered, because the local service did not.
    pub unanswered: bool,
    /// Whether the answer reached its end, or became another protocol.
    pub(super) complete: bool,
    /// Why the exchange failed; none while it has not.
    pub error: Option<String>,
    /// The mock that responded in place of the local service.
    pub mock_id: Option<String>,
    /// The hold that the request waits or has waited for.
    pub hold_id: Option<String>,
    /// Whether it waits now.
    pub is_held: bool,
    /// Whether it was changed while it waited.
    pub is_edited: bool,
    /// The rules of policies that acted on the request before it came.
    pub rules: Vec<PolicyRule>,
    /// Whether newer records do not displace it.
    pub is_pinned: bool,
    /// What somebody wrote about it; may be empty.
    pub note: String,
    /// Set when the record was let go while the exchange still lasted.
    pub(super) gone: bool,
    /// Whether it was let go because newer records needed its room.
    pub(super) is_displaced: bool,
}

/// The bytes of a request or an answer.
#[derive(Debug, Default, Clone)]
pub struct CapturedMessage {
    /// Start line and headers with the empty line after them.
    pub head: Vec<u8>,
    /// The body, without the framing of chunks.
    pub body: CapturedBody,
    /// How long the whole body was.
    pub body_length: u64,
    /// Whether the body came in chunks.
    pub chunked: bool,
    /// Whether it ended before its end came.
    pub cut_off: bool,
    /// Whether the body is kept without the `Content-Encoding` that the head names.
    pub is_decoded: bool,
    /// Whether more of the body is still to come.
    pub(super) is_pending: bool,
    /// The lines after the last chunk with the empty one; empty where there are none.
    pub trailer: Vec<u8>,
}

/// The bytes of a message as far as there is room for them.
struct RawMessage {
    bytes: Vec<u8>,
    /// If true, the end of the body is missing.
    is_cut: bool,
}

impl CaptureRecord {
    pub(super) fn new(
        sequence: u32,
        tunnel_name: String,
        source: Arc<CaptureSource>,
        request: CapturedMessage,
    ) -> Self {
        let start = Utc::now();
        let exchange = CapturedExchange { request, ..CapturedExchange::default() };
        Self::restored(sequence, record_id(start, sequence), tunnel_name, source, start, exchange)
    }

    /// A record that was kept elsewhere.
    pub(super) fn restored(
        sequence: u32,
        id: String,
        tunnel_name: String,
        source: Arc<CaptureSource>,
        start: DateTime<Utc>,
        exchange: CapturedExchange,
    ) -> Self {
        let (revision, exchange) = (AtomicU64::default(), Mutex::new(exchange));
        Self { sequence, id, tunnel_name, source, start, revision, exchange }
    }

    /// What the record counts against the limit.
    pub(super) fn memory_cost(&self) -> usize {
        self.lock_exchange().memory_cost()
    }

    /// When it arrived, by the clock of this machine's time zone.
    pub fn local_start(&self) -> DateTime<Local> {
        self.start.with_timezone(&Local)
    }

    /// When it changed last, in the count of all changes.
    pub fn revision(&self) -> u64 {
        self.revision.load(Ordering::Acquire)
    }

    /// What was said, so far.
    pub fn lock_exchange(&self) -> MutexGuard<'_, CapturedExchange> {
        self.exchange.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The record as the agent API shows it.
    pub fn to_captured_request(&self) -> CapturedRequest {
        self.show_request(usize::MAX)
    }

    /// The record as lists of the agent API show it, which do not carry long bodies.
    pub fn to_listed_request(&self) -> CapturedRequest {
        self.show_request(MAX_LISTED_BYTES)
    }

    fn show_request(&self, most: usize) -> CapturedRequest {
        let exchange = self.lock_exchange();
        let nanoseconds = exchange.took.map_or(0, |took| took.as_nanos());
        CapturedRequest {
            uri: format!("/api/requests/http/{}", self.id),
            id: self.id.clone(),
            tunnel_name: self.tunnel_name.clone(),
            remote_addr: self.source.remote_addr.clone(),
            start: Timestamp(self.local_start().to_rfc3339_opts(SecondsFormat::Secs, false)),
            duration: i64::try_from(nanoseconds).unwrap_or(i64::MAX),
            request: exchange.request.to_request_message(most),
            response: exchange.response.as_ref().map(|response| response.to_response_message(most)),
            error: Note(exchange.error.clone().unwrap_or_default()),
            mock_id: Note(exchange.mock_id.clone().unwrap_or_default()),
            hold_id: Note(exchange.hold_id.clone().unwrap_or_default()),
            replay_of: Note(self.source.replay_of.clone().unwrap_or_default()),
            schedule_id: Note(self.source.schedule_id.clone().unwrap_or_default()),
            edited: Flag(exchange.is_edited),
            timings: exchange.timing().map(ExchangeTiming::to_timings),
            stream: Note(exchange.stream_kind().map_or("", StreamKind::name).to_owned()),
            grpc_status: exchange.grpc_status().map(i64::from),
            edge_id: Note(self.source.edge_id.clone()),
            route_id: Note(self.source.route_id.clone()),
            rules: Some(exchange.rules.clone()).filter(|rules| !rules.is_empty()),
            pinned: Flag(exchange.is_pinned),
            note: Note(exchange.note.clone()),
            imported: Flag(self.source.imported_from.is_some()),
        }
    }
}

impl CapturedExchange {
    /// Sets the response. Its type decides if its body is a stream, however the body is framed.
    pub fn set_response(&mut self, response: CapturedMessage) {
        self.stream = self.stream.or_else(|| StreamKind::from_head(&response.head));
        self.response = Some(response);
    }

    /// What comes one after the other; none where that is all at once.
    pub fn stream_kind(&self) -> Option<StreamKind> {
        if self.socket.is_some() { Some(StreamKind::WebSocket) } else { self.stream }
    }

    /// How a gRPC call ended; 0 is well, and none where it has not ended, or is none.
    pub fn grpc_status(&self) -> Option<u16> {
        let response = self.response.as_ref().filter(|_| self.stream == Some(StreamKind::Grpc))?;
        let mut fields = response.trailers().into_iter().chain(response.headers());
        let (_, status) = fields.find(|(name, _)| name.eq_ignore_ascii_case("grpc-status"))?;
        status.trim().parse().ok()
    }

    /// Whether it broke off, or ended with an error: by its status, or that of a gRPC call.
    pub fn is_failed(&self) -> bool {
        let is_error = |response: &CapturedMessage| {
            response.start_line()[1].parse::<u16>().is_ok_and(|status| status >= 500)
        };
        self.error.is_some()
            || self.unanswered
            || self.response.as_ref().is_some_and(is_error)
            || self.grpc_status().is_some_and(|status| status != 0)
    }

    /// An exchange that came to its end elsewhere.
    pub(crate) fn ended(marks: ExchangeMarks, took: Duration) -> Self {
        Self { marks, took: Some(took), complete: true, ..Self::default() }
    }

    /// What the exchange counts against the limit.
    pub(super) fn memory_cost(&self) -> usize {
        RECORD_OVERHEAD_BYTES
            + self.request.memory_cost()
            + self.note.len()
            + self.response.as_ref().map_or(0, CapturedMessage::memory_cost)
            + self.request_marks.memory_cost()
            + self.response_marks.memory_cost()
            + self.socket.as_ref().map_or(0, SocketLog::memory_cost)
            + self.rules.iter().map(rule_cost).sum::<usize>()
    }

    /// Where the time went; none while the exchange lasts.
    pub fn timing(&self) -> Option<ExchangeTiming> {
        self.took.map(|took| self.marks.split_timing(took))
    }
}

/// The identifier of a record.
pub(super) fn record_id(time: DateTime<Utc>, sequence: u32) -> String {
    // Seconds since 1970 need 32 bits until 2106.
    format!("{:08x}{sequence:08x}", time.timestamp() & 0xffff_ffff)
}

/// What a rule counts against the limit.
fn rule_cost(rule: &PolicyRule) -> usize {
    let expressions = rule.expressions.iter().flatten();
    let texts = expressions.chain(&rule.actions).chain([&rule.name.0, &rule.module]);
    size_of::<PolicyRule>() + texts.map(|text| size_of::<String>() + text.len()).sum::<usize>()
}

impl CapturedMessage {
    /// A message whose body follows.
    pub fn new(head: &[u8], chunked: bool) -> Self {
        Self { head: head.to_vec(), chunked, ..Self::default() }
    }

    /// A message whose body is framed so, and follows.
    pub fn awaiting_body(head: &[u8], body: &Body) -> Self {
        let message = Self::new(head, body.is_chunked());
        Self { is_pending: !body.is_done(), ..message }
    }

    /// Whether the whole body has come and is kept.
    pub fn is_whole(&self) -> bool {
        !self.is_pending && !self.is_truncated()
    }

    /// Whether less than the whole body is kept.
    pub fn is_truncated(&self) -> bool {
        self.cut_off || !self.is_decoded && self.body_length > self.body.len() as u64
    }

    /// The message with at most so many bytes of its body; it is truncated if there are more.
    pub fn beginning(&self, most: usize) -> Cow<'_, Self> {
        if self.body.len() <= most {
            return Cow::Borrowed(self);
        }
        let mut bytes = Vec::new();
        self.body.append_within(&mut bytes, most);
        Cow::Owned(Self {
            head: self.head.clone(),
            body: bytes.into(),
            cut_off: true,
            trailer: self.trailer.clone(),
            ..*self
        })
    }

    /// What the message counts against the limit: its bytes, and its headers once more for the form
    /// in which they are shown.
    pub(super) fn memory_cost(&self) -> usize {
        2 * (self.head.len() + self.trailer.len()) + self.body.len()
    }

    /// The whole message; a body that came in chunks has a `Content-Length` instead.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.to_bytes_within(usize::MAX).bytes
    }

    fn to_bytes_within(&self, most: usize) -> RawMessage {
        let is_framed_anew = self.chunked || self.is_decoded;
        let mut bytes = if is_framed_anew { self.unchunked_head() } else { self.head.clone() };
        let is_cut = self.body.append_within(&mut bytes, most);
        RawMessage { bytes, is_cut }
    }

    /// The parts of the first line: three of a request, and as many of an answer.
    pub fn start_line(&self) -> [Cow<'_, str>; 3] {
        self.exact_start_line().map(String::from_utf8_lossy)
    }

    /// The parts of the first line as they came.
    pub fn exact_start_line(&self) -> [&[u8]; 3] {
        let mut parts = self.first_line().splitn(3, |byte| *byte == b' ');
        std::array::from_fn(|_| parts.next().unwrap_or_default())
    }

    fn first_line(&self) -> &[u8] {
        self.head.split(|byte| *byte == b'\n').next().unwrap_or_default().trim_ascii_end()
    }

    /// The status of an answer with its reason: `404 Not Found`.
    pub fn status_text(&self) -> Cow<'_, str> {
        let line = self.first_line();
        let version = line.iter().position(|byte| *byte == b' ').map_or(line.len(), |at| at + 1);
        String::from_utf8_lossy(&line[version..])
    }

    /// The headers in their order, with the names as they were written.
    pub fn headers(&self) -> Vec<(String, String)> {
        headers_to_text(self.exact_headers())
    }

    /// The headers with the bytes of their values, which need not be text.
    pub fn exact_headers(&self) -> Vec<(String, Vec<u8>)> {
        parse_headers(http1::after_first_line(&self.head))
    }

    /// The headers that came after the body.
    pub fn trailers(&self) -> Vec<(String, String)> {
        headers_to_text(self.exact_trailers())
    }

    /// The headers that came after the body, with the bytes of their values.
    pub fn exact_trailers(&self) -> Vec<(String, Vec<u8>)> {
        parse_headers(&self.trailer)
    }

    /// Whether the head says that the body comes in chunks.
    pub fn names_chunks(&self) -> bool {
        let is_named = |(name, value): &(String, String)| {
            name.eq_ignore_ascii_case("transfer-encoding")
                && value.to_ascii_lowercase().contains("chunked")
        };
        self.headers().iter().any(is_named)
    }

    fn unchunked_head(&self) -> Vec<u8> {
        let mut head = Vec::with_capacity(self.head.len() + 32);
        let mut writer = HeadWriter::resume(&mut head);
        for line in head_lines(&self.head) {
            let is_of_coding = self.is_decoded
                && (line.has_name("content-encoding") || line.has_name("content-length"));
            if !line.has_name("transfer-encoding") && !line.has_name("trailer") && !is_of_coding {
                writer.lines(line.0);
            }
        }
        let length = if self.is_decoded { self.body.len() as u64 } else { self.body_length };
        writer.display_field("Content-Length", length).end();
        head
    }

    /// The request as the agent API shows it, in `most` bytes unless its head is longer.
    pub fn to_request_message(&self, most: usize) -> RequestMessage {
        let raw = self.to_bytes_within(most);
        let [method, uri, proto] = self.start_line().map(Cow::into_owned);
        RequestMessage {
            method,
            proto,
            headers: group_headers(
                self.headers().into_iter().filter(|(name, _)| !name.eq_ignore_ascii_case("host")),
            ),
            uri,
            truncated: Flag(self.is_truncated() || raw.is_cut),
            raw: Base64(raw.bytes.into()),
            trailers: Trailers(group_headers(self.trailers())),
        }
    }

    fn to_response_message(&self, most: usize) -> ResponseMessage {
        let raw = self.to_bytes_within(most);
        let [proto, code, _] = self.start_line();
        ResponseMessage {
            status: self.status_text().into_owned(),
            status_code: code.parse().unwrap_or_default(),
            proto: proto.into_owned(),
            headers: group_headers(self.headers()),
            truncated: Flag(self.is_truncated() || raw.is_cut),
            raw: Base64(raw.bytes.into()),
            trailers: Trailers(group_headers(self.trailers())),
        }
    }
}

/// The headers of these lines, in their order.
fn parse_headers(lines: &[u8]) -> Vec<(String, Vec<u8>)> {
    let owned = |field: &HeadField<'_>| (field.name.to_owned(), field.value.to_vec());
    http1::read_fields(lines, |fields| fields.iter().map(owned).collect()).unwrap_or_default()
}

fn headers_to_text(headers: Vec<(String, Vec<u8>)>) -> Vec<(String, String)> {
    let text = |value: Vec<u8>| String::from_utf8_lossy(&value).into_owned();
    headers.into_iter().map(|(name, value)| (name, text(value))).collect()
}

fn group_headers(
    headers: impl IntoIterator<Item = (String, String)>,
) -> BTreeMap<String, Vec<String>> {
    let mut grouped = BTreeMap::<String, Vec<String>>::new();
    for (name, value) in headers {
        grouped.entry(canonical_name(&name)).or_default().push(value);
    }
    grouped
}

/// A header's name with each word capitalised: `User-Agent`.
fn canonical_name(name: &str) -> String {
    let mut start = true;
    name.chars()
        .map(|letter| {
            let shown =
                if start { letter.to_ascii_uppercase() } else { letter.to_ascii_lowercase() };
            start = letter == '-';
            shown
        })
        .collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_body_in_chunks_is_shown_with_its_length() {
        let head = b"POST /a?b HTTP/1.1\r\nHost: x\r\ntransfer-encoding: chunked\r\nX: 1\r\n\r\n";
        let mut message = CapturedMessage::new(head, true);
        message.body = b"hello".to_vec().into();
        message.body_length = 5;

        let raw = String::from_utf8(message.to_bytes()).unwrap();

        assert_eq!(raw, "POST /a?b HTTP/1.1\r\nHost: x\r\nX: 1\r\nContent-Length: 5\r\n\r\nhello");
    }

    #[test]
    fn headers_are_grouped_under_canonical_names_without_the_host() {
        let message = CapturedMessage::new(
            b"GET / HTTP/1.1\r\nHOST: x\r\nx-tWo: 1\r\nX-Two: 2\r\n\r\n",
            false,
        );

        let shown = message.to_request_message(usize::MAX);

        assert_eq!(shown.headers.len(), 1);
        assert_eq!(shown.headers["X-Two"], ["1", "2"]);
    }

    #[test]
    fn a_status_without_a_reason_is_its_number() {
        let shown =
            CapturedMessage::new(b"HTTP/1.1 204\r\n\r\n", false).to_response_message(usize::MAX);

        assert_eq!((shown.status.as_str(), shown.status_code), ("204", 204));
    }
}
