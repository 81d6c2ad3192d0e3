//! One record while it is written.

use std::sync::Arc;
use std::time::Instant;

use super::Body;
use super::record::{Exchange, Message, Record};
use super::store::Captures;

/// Writes one record; dropping it ends the exchange.
#[derive(Debug)]
pub struct Recording {
    captures: Arc<Captures>,
    record: Arc<Record>,
    started: Instant,
}

impl Recording {
    pub(super) fn new(captures: Arc<Captures>, record: Arc<Record>) -> Self {
        Self { captures, record, started: Instant::now() }
    }

    /// The record that is written.
    pub fn record(&self) -> &Arc<Record> {
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

    /// The rest of the request's body will not come.
    pub fn request_cut_off(&self) {
        self.record.exchange().request.cut_off = true;
    }

    /// The head of the final answer.
    pub fn response_head(&self, head: &[u8], chunked: bool) {
        self.captures.change(&self.record, |exchange, _| {
            let message = Message::new(head, chunked);
            let cost = message.cost();
            exchange.response = Some(message);
            cost
        });
        self.captures.tell(&self.record);
    }

    /// The answer of the agent, which has none of the local service to pass on.
    pub fn answered_by_agent(&self, answer: &[u8]) {
        let end = answer.windows(4).position(|four| four == b"\r\n\r\n");
        let (head, body) = answer.split_at(end.map_or(answer.len(), |at| at + 4));
        self.record.exchange().unanswered = true;
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
        exchange.took = Some(self.started.elapsed());
        exchange.request.body.settle();
        if let Some(response) = &mut exchange.response {
            response.body.settle();
        }
        drop(exchange);
        self.captures.tell(&self.record);
    }
}

impl Exchange {
    /// Keeps nothing of the bodies, although the exchange may last, or somebody may look at it: they
    /// do not count any more.
    pub(super) fn let_go(&mut self) {
        self.gone = true;
        self.request.body = Body::default();
        if let Some(response) = &mut self.response {
            response.body = Body::default();
        }
    }
}

impl Message {
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
