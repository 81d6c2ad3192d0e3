//! One record while it is written.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::CapturedBody;
use super::record::{CaptureRecord, CapturedExchange, CapturedMessage};
use super::store::CaptureStore;

/// Why an exchange failed of which nobody said more: it was dropped with its tunnel.
const ABANDONED: &str = "the tunnel was stopped before the response was complete";

/// Writes one record; dropping it ends the exchange, which has failed unless it was said to be
/// complete.
#[derive(Debug)]
pub struct Recording {
    captures: Arc<CaptureStore>,
    record: Arc<CaptureRecord>,
    started: Instant,
}

impl Recording {
    pub(super) fn new(captures: Arc<CaptureStore>, record: Arc<CaptureRecord>) -> Self {
        Self { captures, record, started: Instant::now() }
    }

    /// The record that is written.
    pub fn record(&self) -> &Arc<CaptureRecord> {
        &self.record
    }

    /// More of the request's body.
    pub fn request_body(&self, bytes: &[u8]) {
        self.captures.change(&self.record, |exchange, most| exchange.request.push(bytes, most));
    }

    /// The lines that came after the request's body.
    pub fn request_trailer(&self, lines: &[u8]) {
        self.captures.change(&self.record, |exchange, _| exchange.request.end_with(lines));
    }

    /// How much of the request's body has come.
    pub fn request_length(&self) -> u64 {
        self.record.exchange().request.body_length
    }

    /// How much of the answer's body has come.
    pub fn response_length(&self) -> u64 {
        self.record.exchange().response.as_ref().map_or(0, |response| response.body_length)
    }

    /// The rest of the request's body will not come.
    pub fn request_cut_off(&self) {
        self.record.exchange().request.cut_off = true;
    }

    /// The answer has reached its end, or becomes another protocol.
    pub fn complete(&self) {
        self.record.exchange().complete = true;
    }

    /// The exchange has failed; what was said first counts.
    pub fn fail(&self, error: &str) {
        self.record.exchange().fail(error);
    }

    /// The head of the final answer.
    pub fn response_head(&self, head: &[u8], chunked: bool) {
        self.captures.change(&self.record, |exchange, _| {
            let message = CapturedMessage::new(head, chunked);
            let cost = message.cost();
            exchange.response = Some(message);
            cost
        });
        self.captures.tell(&self.record);
    }

    /// The answer of the agent, which has none of the local service to pass on.
    pub fn answered_by_agent(&self, answer: &[u8], error: &str) {
        let end = answer.windows(4).position(|four| four == b"\r\n\r\n");
        let (head, body) = answer.split_at(end.map_or(answer.len(), |at| at + 4));
        let mut exchange = self.record.exchange();
        exchange.unanswered = true;
        exchange.complete = true;
        exchange.fail(error);
        drop(exchange);
        self.response_head(head, false);
        self.response_body(body);
    }

    /// More of the answer's body.
    pub fn response_body(&self, bytes: &[u8]) {
        self.captures.change(&self.record, |exchange, most| match &mut exchange.response {
            Some(response) => response.push(bytes, most),
            None => 0,
        });
    }

    /// The lines that came after the answer's body.
    pub fn response_trailer(&self, lines: &[u8]) {
        self.captures.change(&self.record, |exchange, _| match &mut exchange.response {
            Some(response) => response.end_with(lines),
            None => 0,
        });
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        let mut exchange = self.record.exchange();
        exchange.end(self.started.elapsed());
        drop(exchange);
        self.captures.tell_end(&self.record);
    }
}

impl CapturedExchange {
    fn fail(&mut self, error: &str) {
        self.error.get_or_insert_with(|| error.to_owned());
    }

    fn end(&mut self, took: Duration) {
        self.took = Some(took);
        if !self.complete {
            self.fail(ABANDONED);
        }
        self.request.body.settle();
        if let Some(response) = &mut self.response {
            response.cut_off |= !self.complete;
            response.body.settle();
        }
    }

    /// Keeps nothing of the bodies, although the exchange may last, or somebody may look at it: they
    /// do not count any more.
    pub(super) fn let_go(&mut self) {
        self.gone = true;
        self.request.body = CapturedBody::default();
        if let Some(response) = &mut self.response {
            response.body = CapturedBody::default();
        }
    }
}

impl CapturedMessage {
    /// Keeps more of the body, `most` bytes in all; says how many were added.
    fn push(&mut self, bytes: &[u8], most: usize) -> usize {
        self.body_length += bytes.len() as u64;
        let room = most.saturating_sub(self.body.len());
        let kept = bytes.get(..room).unwrap_or(bytes);
        self.body.push(kept);
        kept.len()
    }

    /// Keeps what came after the body; says what that costs.
    fn end_with(&mut self, lines: &[u8]) -> usize {
        let before = self.cost();
        self.trailer = lines.to_vec();
        self.cost() - before
    }
}
