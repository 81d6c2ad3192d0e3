//! One record while it is written.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ginnel_api::local::requests::PolicyRule;
use ginnel_http1::Body;

use super::CapturedBody;
use super::record::{CaptureRecord, CapturedExchange, CapturedMessage};
use super::store::CaptureStore;
use super::stream::{BodyMarks, SocketLog, SocketMessage, StreamKind};

/// Why an exchange failed of which nobody said more: it was dropped with its tunnel.
const ABANDONED: &str = "the tunnel was stopped before the response was complete";

/// Writes one record; dropping it ends the exchange, which has failed unless it was said to be
/// complete.
#[derive(Debug)]
pub struct Recording {
    captures: Arc<CaptureStore>,
    record: Arc<CaptureRecord>,
    started: Instant,
    /// Whether the parts of bodies have times.
    is_stream: AtomicBool,
}

impl Recording {
    pub(super) fn new(
        captures: Arc<CaptureStore>,
        record: Arc<CaptureRecord>,
        is_call: bool,
    ) -> Self {
        if is_call {
            record.lock_exchange().stream = Some(StreamKind::Grpc);
        }
        let is_stream = AtomicBool::new(is_call);
        Self { captures, record, started: Instant::now(), is_stream }
    }

    /// The record that is written.
    pub fn record(&self) -> &Arc<CaptureRecord> {
        &self.record
    }

    /// There is a connection to the local service, which took from `began` on; none where it failed.
    pub fn mark_connected(&self, began: Instant, connected: Option<Instant>) {
        let since_start = |moment: Instant| moment.saturating_duration_since(self.started);
        let mut exchange = self.record.lock_exchange();
        exchange.marks.connecting = Some(since_start(began));
        exchange.marks.connected = connected.map(since_start);
    }

    /// More of the request's body.
    pub fn request_body(&self, bytes: &[u8]) {
        let at = self.part_time();
        self.captures.change_record(&self.record, |exchange, room| {
            let most = room.body.min(room.bodies.saturating_sub(exchange.response_body_bytes()));
            let CapturedExchange { request, request_marks, .. } = exchange;
            request.append_body(bytes, most)
                + record_mark(request_marks, request.body_length, at, room.stream)
        });
        self.notify_part(at);
    }

    /// How much of the request's body has come.
    pub fn request_length(&self) -> u64 {
        self.record.lock_exchange().request.body_length
    }

    /// How much of the answer's body has come.
    pub fn response_length(&self) -> u64 {
        self.record.lock_exchange().response.as_ref().map_or(0, |response| response.body_length)
    }

    /// Whether a gRPC call has ended with an error.
    pub fn is_failed_call(&self) -> bool {
        self.record.lock_exchange().grpc_status().is_some_and(|status| status != 0)
    }

    /// How much of the bodies of request and response has come, and of the messages of a WebSocket.
    pub fn body_lengths(&self) -> [u64; 2] {
        let exchange = self.record.lock_exchange();
        let [asked, answered] = exchange.socket.as_ref().map_or([0, 0], |socket| socket.bytes);
        let response = exchange.response.as_ref().map_or(0, |response| response.body_length);
        [exchange.request.body_length + asked, response + answered]
    }

    /// The request's body has come to its end, with these lines after it.
    pub fn request_complete(&self, trailer: &[u8]) {
        if has_fields(trailer) {
            self.captures
                .change_record(&self.record, |exchange, _| exchange.request.set_trailer(trailer));
        }
        self.record.lock_exchange().request.is_pending = false;
    }

    /// The answer has reached its end, or becomes another protocol.
    pub fn mark_complete(&self) {
        let mut exchange = self.record.lock_exchange();
        exchange.complete = true;
        exchange.end_response();
    }

    /// The exchange has failed; what was said first counts.
    pub fn mark_failed(&self, error: &str) {
        self.record.lock_exchange().mark_failed(error);
    }

    /// Rules of policies have acted on the request before it came.
    pub fn set_rules(&self, rules: Vec<PolicyRule>) {
        self.captures.recount_record(&self.record, |exchange, _| exchange.rules = rules);
    }

    /// A mock responds in place of the local service.
    pub fn set_mock(&self, id: &str) {
        self.record.lock_exchange().mock_id = Some(id.to_owned());
    }

    /// The request waits from now on.
    pub fn begin_hold(&self, id: &str) {
        let mut exchange = self.record.lock_exchange();
        exchange.hold_id = Some(id.to_owned());
        exchange.is_held = true;
        // It is in the record as soon as it was read.
        exchange.request.cut_off = exchange.request.is_pending;
        drop(exchange);
        self.captures.notify_update(&self.record);
    }

    /// The request that waits, with what has come of its body.
    pub fn record_held_request(&self, message: &CapturedMessage) {
        self.captures.recount_record(&self.record, |exchange, room| {
            let head = CapturedMessage { body: CapturedBody::default(), ..message.clone() };
            exchange.request = CapturedMessage { body_length: 0, ..head };
            exchange.request.append_body(&message.body.bytes(), room.body.min(room.bodies));
        });
        self.captures.notify_update(&self.record);
    }

    /// The request waits no more.
    pub fn end_hold(&self) {
        self.record.lock_exchange().is_held = false;
        self.captures.notify_update(&self.record);
    }

    /// The request that waited goes on as it came; its body follows.
    pub fn resume_request(&self, head: &[u8], body: &Body) {
        let request = CapturedMessage::awaiting_body(head, body);
        self.captures.recount_record(&self.record, |exchange, _| exchange.request = request);
    }

    /// Another request goes on in place of the one that came; its body follows.
    pub fn edit_request(&self, head: &[u8], body: &Body) {
        self.record.lock_exchange().is_edited = true;
        let request = CapturedMessage::awaiting_body(head, body);
        self.captures.recount_record(&self.record, |exchange, _| exchange.request = request);
    }

    /// The head of the final answer, whose body is framed so.
    pub fn response_head(&self, head: &[u8], body: &Body) {
        let first_byte = self.started.elapsed();
        self.captures.change_record(&self.record, |exchange, _| {
            let message = CapturedMessage::awaiting_body(head, body);
            let cost = message.memory_cost();
            exchange.set_response(message);
            self.is_stream.store(exchange.stream.is_some(), Ordering::Relaxed);
            exchange.marks.first_byte = Some(first_byte);
            cost
        });
        self.captures.notify_update(&self.record);
    }

    /// The answer of the agent, which has none of the local service to pass on.
    pub fn record_agent_response(&self, answer: &[u8], error: &str) {
        let end = answer.windows(4).position(|four| four == b"\r\n\r\n");
        let (head, body) = answer.split_at(end.map_or(answer.len(), |at| at + 4));
        let mut exchange = self.record.lock_exchange();
        exchange.unanswered = true;
        exchange.complete = true;
        exchange.mark_failed(error);
        drop(exchange);
        self.response_head(head, &Body::NONE);
        self.response_body(body);
    }

    /// More of the answer's body.
    pub fn response_body(&self, bytes: &[u8]) {
        let at = self.part_time();
        self.captures.change_record(&self.record, |exchange, room| {
            let CapturedExchange { request, response, response_marks, .. } = exchange;
            let Some(response) = response else { return 0 };
            let most = room.body.min(room.bodies.saturating_sub(request.body.len()));
            let kept = response.append_body(bytes, most);
            kept + record_mark(response_marks, response.body_length, at, room.stream)
        });
        self.notify_part(at);
    }

    /// The connection becomes a WebSocket.
    pub fn begin_socket(&self) {
        self.record.lock_exchange().socket = Some(SocketLog::default());
    }

    /// A message of a WebSocket; when it came is noted here.
    pub fn socket_message(&self, message: SocketMessage) {
        let message = SocketMessage { at: self.started.elapsed(), ..message };
        self.captures.recount_record(&self.record, |exchange, room| {
            exchange.socket.get_or_insert_default().push_message(message, room.stream);
        });
        self.captures.notify_update(&self.record);
    }

    /// Reads the head of the response; none while there is none.
    pub fn with_response_head<T>(&self, read: impl FnOnce(&[u8]) -> T) -> Option<T> {
        self.record.lock_exchange().response.as_ref().map(|response| read(&response.head))
    }

    /// The time of a part of a body; none where nobody notes it.
    fn part_time(&self) -> Option<Duration> {
        self.is_stream.load(Ordering::Relaxed).then(|| self.started.elapsed())
    }

    fn notify_part(&self, at: Option<Duration>) {
        if at.is_some() {
            self.captures.notify_update(&self.record);
        }
    }

    /// The answer's body has come to its end, with these lines after it.
    pub fn response_complete(&self, trailer: &[u8]) {
        if has_fields(trailer) {
            self.captures.change_record(&self.record, |exchange, _| match &mut exchange.response {
                Some(response) => response.set_trailer(trailer),
                None => 0,
            });
        }
        self.record.lock_exchange().end_response();
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        let mut exchange = self.record.lock_exchange();
        exchange.mark_ended(self.started.elapsed());
        drop(exchange);
        self.captures.notify_ended(&self.record);
    }
}

impl CapturedExchange {
    fn response_body_bytes(&self) -> usize {
        self.response.as_ref().map_or(0, |response| response.body.len())
    }

    fn mark_failed(&mut self, error: &str) {
        self.error.get_or_insert_with(|| error.to_owned());
    }

    fn end_response(&mut self) {
        if let Some(response) = &mut self.response {
            response.is_pending = false;
        }
    }

    fn mark_ended(&mut self, took: Duration) {
        self.took = Some(took);
        self.is_held = false;
        self.request.cut_off |= self.request.is_pending;
        self.request.is_pending = false;
        if !self.complete {
            self.mark_failed(ABANDONED);
        }
        self.request.body.shrink_to_fit();
        if let Some(response) = &mut self.response {
            response.cut_off |= !self.complete;
            response.is_pending = false;
            response.body.shrink_to_fit();
        }
    }

    /// Whether somebody deleted the record; one that newer records displaced was not.
    pub(crate) fn is_deleted(&self) -> bool {
        self.gone && !self.is_displaced
    }

    /// Keeps nothing of the bodies, although the exchange may last, or somebody may look at it: they
    /// do not count any more.
    pub(super) fn discard_content(&mut self) {
        self.gone = true;
        self.request_marks.clear();
        self.response_marks.clear();
        if let Some(socket) = &mut self.socket {
            socket.clear();
        }
        self.request.body = CapturedBody::default();
        if let Some(response) = &mut self.response {
            response.body = CapturedBody::default();
        }
    }
}

/// Notes when so much of a body was there, `most` bytes of notes in all; says what that costs.
fn record_mark(marks: &mut BodyMarks, length: u64, at: Option<Duration>, most: usize) -> usize {
    let before = marks.memory_cost();
    at.into_iter().for_each(|at| marks.push_mark(length, at, most));
    marks.memory_cost() - before
}

/// Whether the lines after a body are more than the empty one.
fn has_fields(trailer: &[u8]) -> bool {
    trailer.len() > b"\r\n".len()
}

impl CapturedMessage {
    /// Keeps more of the body, `most` bytes in all; says how many were added.
    fn append_body(&mut self, bytes: &[u8], most: usize) -> usize {
        self.body_length += bytes.len() as u64;
        let room = most.saturating_sub(self.body.len());
        let kept = bytes.get(..room).unwrap_or(bytes);
        self.body.push(kept);
        kept.len()
    }

    /// Keeps what came after the body; says what that costs.
    fn set_trailer(&mut self, lines: &[u8]) -> usize {
        let before = self.memory_cost();
        self.trailer = lines.to_vec();
        self.memory_cost() - before
    }
}
