//! Records as a file keeps them: their bytes in columns, and the rest as JSON.

use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use ginnel_api::local::requests::PolicyRule;

use crate::capture::record::{
    CaptureRecord, CaptureSource, CapturedExchange, CapturedMessage, Via,
};
use crate::capture::stream::{BodyMarks, SocketLog, SocketMessage, StreamKind, StreamSide};
use crate::capture::timing::ExchangeMarks;

/// A record in the form of a row.
#[derive(Debug, PartialEq)]
pub(super) struct StoredRecord {
    pub sequence: u32,
    pub id: String,
    pub start: DateTime<Utc>,
    pub is_pinned: bool,
    /// What is known beside the bytes, as JSON.
    pub facts: String,
    pub parts: StoredParts,
}

/// The bytes of a record: each a column.
#[derive(Debug, Default, PartialEq)]
pub(super) struct StoredParts {
    pub request_head: Vec<u8>,
    pub request_body: Vec<u8>,
    pub request_trailer: Vec<u8>,
    pub response_head: Vec<u8>,
    pub response_body: Vec<u8>,
    pub response_trailer: Vec<u8>,
    /// The messages of a WebSocket, one after the other.
    pub messages: Vec<u8>,
}

/// What is known of a record beside its bytes. What a later version adds has a default.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct StoredFacts {
    tunnel_name: String,
    remote_addr: String,
    replay_of: Option<String>,
    schedule_id: Option<String>,
    via: Option<Via>,
    edge_id: String,
    route_id: String,
    imported_from: Option<String>,
    request: MessageFacts,
    response: Option<MessageFacts>,
    took: Duration,
    marks: ExchangeMarks,
    stream: Option<StreamKind>,
    request_marks: BodyMarks,
    response_marks: BodyMarks,
    socket: Option<SocketFacts>,
    unanswered: bool,
    complete: bool,
    error: Option<String>,
    mock_id: Option<String>,
    hold_id: Option<String>,
    is_edited: bool,
    rules: Vec<PolicyRule>,
    note: String,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct MessageFacts {
    body_length: u64,
    chunked: bool,
    cut_off: bool,
    is_decoded: bool,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct SocketFacts {
    dropped: u64,
    bytes: [u64; 2],
    messages: Vec<SocketMessageFacts>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct SocketMessageFacts {
    is_server: bool,
    opcode: u8,
    at: Duration,
    size: u64,
    /// How many bytes are kept.
    kept: usize,
    is_cut: bool,
    is_compressed: bool,
}

impl StoredRecord {
    /// A record as a row; none where it is kept no more, or its exchange lasts.
    pub fn from_record(record: &CaptureRecord) -> Option<Self> {
        let exchange = record.lock_exchange();
        let took = exchange.took.filter(|_| !exchange.gone)?;
        let facts = StoredFacts::from_exchange(record, &exchange, took);
        Some(Self {
            sequence: record.sequence,
            id: record.id.clone(),
            start: record.start,
            is_pinned: exchange.is_pinned,
            // Texts, numbers and lists of them always make JSON.
            facts: serde_json::to_string(&facts).unwrap_or_default(),
            parts: StoredParts::from_exchange(&exchange),
        })
    }

    /// The record.
    ///
    /// # Errors
    /// When the row was not written by [`StoredRecord::from_record`].
    pub fn into_record(self) -> Result<CaptureRecord, serde_json::Error> {
        let facts: StoredFacts = serde_json::from_str(&self.facts)?;
        let source = CaptureSource {
            remote_addr: facts.remote_addr,
            replay_of: facts.replay_of,
            schedule_id: facts.schedule_id,
            via: facts.via,
            edge_id: facts.edge_id,
            route_id: facts.route_id,
            imported_from: facts.imported_from,
        };
        let exchange = CapturedExchange {
            request: facts.request.into_message(
                self.parts.request_head,
                self.parts.request_body,
                self.parts.request_trailer,
            ),
            response: facts.response.map(|response| {
                response.into_message(
                    self.parts.response_head,
                    self.parts.response_body,
                    self.parts.response_trailer,
                )
            }),
            took: Some(facts.took),
            marks: facts.marks,
            stream: facts.stream,
            request_marks: facts.request_marks,
            response_marks: facts.response_marks,
            socket: facts.socket.map(|socket| socket.into_log(&self.parts.messages)),
            unanswered: facts.unanswered,
            complete: facts.complete,
            error: facts.error,
            mock_id: facts.mock_id,
            hold_id: facts.hold_id,
            is_edited: facts.is_edited,
            rules: facts.rules,
            is_pinned: self.is_pinned,
            note: facts.note,
            ..CapturedExchange::default()
        };
        Ok(CaptureRecord::restored(
            self.sequence,
            self.id,
            facts.tunnel_name,
            Arc::new(source),
            self.start,
            exchange,
        ))
    }

    /// How many bytes it takes.
    pub fn size(&self) -> usize {
        self.id.len()
            + self.facts.len()
            + self.parts.as_columns().map(Vec::len).iter().sum::<usize>()
    }
}

impl StoredFacts {
    fn from_exchange(record: &CaptureRecord, exchange: &CapturedExchange, took: Duration) -> Self {
        let source = record.source.as_ref().clone();
        Self {
            tunnel_name: record.tunnel_name.clone(),
            remote_addr: source.remote_addr,
            replay_of: source.replay_of,
            schedule_id: source.schedule_id,
            via: source.via,
            edge_id: source.edge_id,
            route_id: source.route_id,
            imported_from: source.imported_from,
            request: MessageFacts::from_message(&exchange.request),
            response: exchange.response.as_ref().map(MessageFacts::from_message),
            took,
            marks: exchange.marks,
            stream: exchange.stream,
            request_marks: exchange.request_marks.clone(),
            response_marks: exchange.response_marks.clone(),
            socket: exchange.socket.as_ref().map(SocketFacts::from_log),
            unanswered: exchange.unanswered,
            complete: exchange.complete,
            error: exchange.error.clone(),
            mock_id: exchange.mock_id.clone(),
            hold_id: exchange.hold_id.clone(),
            is_edited: exchange.is_edited,
            rules: exchange.rules.clone(),
            note: exchange.note.clone(),
        }
    }
}

impl StoredParts {
    fn from_exchange(exchange: &CapturedExchange) -> Self {
        let request = &exchange.request;
        let [response_head, response_body, response_trailer] =
            exchange.response.as_ref().map_or_else(Default::default, |response| {
                [
                    response.head.clone(),
                    response.body.bytes().into_owned(),
                    response.trailer.clone(),
                ]
            });
        let messages = exchange.socket.iter().flat_map(|socket| &socket.messages);
        Self {
            request_head: request.head.clone(),
            request_body: request.body.bytes().into_owned(),
            request_trailer: request.trailer.clone(),
            response_head,
            response_body,
            response_trailer,
            messages: messages.flat_map(|message| message.data.iter().copied()).collect(),
        }
    }

    /// The columns in their order.
    pub fn as_columns(&self) -> [&Vec<u8>; 7] {
        [
            &self.request_head,
            &self.request_body,
            &self.request_trailer,
            &self.response_head,
            &self.response_body,
            &self.response_trailer,
            &self.messages,
        ]
    }
}

impl MessageFacts {
    fn from_message(message: &CapturedMessage) -> Self {
        Self {
            body_length: message.body_length,
            chunked: message.chunked,
            cut_off: message.cut_off,
            is_decoded: message.is_decoded,
        }
    }

    fn into_message(self, head: Vec<u8>, body: Vec<u8>, trailer: Vec<u8>) -> CapturedMessage {
        CapturedMessage {
            head,
            body: body.into(),
            body_length: self.body_length,
            chunked: self.chunked,
            cut_off: self.cut_off,
            is_decoded: self.is_decoded,
            trailer,
            ..CapturedMessage::default()
        }
    }
}

impl SocketFacts {
    fn from_log(log: &SocketLog) -> Self {
        let messages = log.messages.iter().map(|message| SocketMessageFacts {
            is_server: message.side == StreamSide::Server,
            opcode: message.opcode,
            at: message.at,
            size: message.size,
            kept: message.data.len(),
            is_cut: message.is_cut,
            is_compressed: message.is_compressed,
        });
        Self { dropped: log.dropped, bytes: log.bytes, messages: messages.collect() }
    }

    fn into_log(self, mut data: &[u8]) -> SocketLog {
        let mut log = SocketLog::default();
        for facts in self.messages {
            let (kept, rest) = data.split_at(facts.kept.min(data.len()));
            data = rest;
            let message = SocketMessage {
                side: if facts.is_server { StreamSide::Server } else { StreamSide::Client },
                opcode: facts.opcode,
                at: facts.at,
                size: facts.size,
                data: kept.to_vec(),
                is_cut: facts.is_cut,
                is_compressed: facts.is_compressed,
            };
            log.push_message(message, usize::MAX);
        }
        (log.dropped, log.bytes) = (self.dropped, self.bytes);
        log
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::capture::{CaptureLimit, CaptureStore, NewCapture};
    use ginnel_http1::Body;

    #[test]
    fn a_record_comes_back_as_it_was() {
        let captures = CaptureStore::new(CaptureLimit::default());
        let source = CaptureSource {
            remote_addr: "192.0.2.1".to_owned(),
            via: Some(Via::HttpsEdge),
            edge_id: "edghts_1".to_owned(),
            ..CaptureSource::default()
        };
        let recording = captures.start_recording(NewCapture {
            tunnel_name: "web",
            source: Arc::new(source),
            head: b"POST /a HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n",
            body: &Body::CHUNKED,
        });
        recording.request_body(b"hello \xff");
        recording.request_complete(b"x-sum: 7\r\n\r\n");
        recording
            .set_rules(vec![PolicyRule { module: "policy".to_owned(), ..PolicyRule::default() }]);
        recording.response_head(b"HTTP/1.1 101 Switching\r\n\r\n", &Body::NONE);
        recording.begin_socket();
        for (side, data) in [(StreamSide::Client, &b"one"[..]), (StreamSide::Server, b"three")] {
            recording.socket_message(SocketMessage {
                side,
                opcode: 1,
                at: Duration::ZERO,
                size: data.len() as u64,
                data: data.to_vec(),
                is_cut: false,
                is_compressed: false,
            });
        }
        recording.mark_complete();
        let record = recording.record().clone();
        assert_eq!(StoredRecord::from_record(&record), None, "it lasts");
        drop(recording);

        let stored = StoredRecord::from_record(&record).unwrap();
        let restored = stored.into_record().unwrap();

        assert_eq!(restored.to_captured_request(), record.to_captured_request());
        assert_eq!(restored.lock_exchange().memory_cost(), record.lock_exchange().memory_cost());
        assert_eq!(StoredRecord::from_record(&restored), StoredRecord::from_record(&record));
        let exchange = restored.lock_exchange();
        let messages: Vec<_> = exchange
            .socket
            .iter()
            .flat_map(|log| &log.messages)
            .map(|it| it.data.clone())
            .collect();
        assert_eq!(messages, [b"one".to_vec(), b"three".to_vec()]);
    }

    #[test]
    fn what_is_no_record_is_an_error() {
        let stored = StoredRecord {
            sequence: 1,
            id: "x".to_owned(),
            start: Utc::now(),
            is_pinned: false,
            facts: "{\"took\": 1}".to_owned(),
            parts: StoredParts::default(),
        };

        assert!(stored.into_record().is_err());
    }
}
