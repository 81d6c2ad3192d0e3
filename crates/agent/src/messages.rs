//! The messages of a captured stream: of a WebSocket, of server-sent events, or of a gRPC call.
//!
//! Those of a WebSocket were put together while they passed. Events and gRPC messages are read in the bodies
//! that were captured, whenever somebody asks.

use std::time::Duration;

use chrono::{DateTime, Local, SecondsFormat};

use ginnel_api::local::requests::StreamMessage;
use ginnel_api::{Base64, Flag, Note, Timestamp};

use super::capture::{
    BodyMarks, CapturedExchange, CapturedMessage, SocketLog, SocketMessage, StreamKind, StreamSide,
};
use super::protobuf::{BytesDisplay, DecodedMessage, ProtoFiles};

/// What stands before each message of gRPC: a flag, and the length in four bytes.
const GRPC_PREFIX_BYTES: usize = 5;
/// What may stand before the first event.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// A message of a stream.
#[derive(Debug, Clone)]
pub(super) struct StreamItem {
    /// Its place in the stream, from 1.
    pub index: u64,
    pub side: StreamSide,
    /// `text`, `binary`, `ping`, `pong`, `close`, `event` or `grpc`.
    pub kind: &'static str,
    /// When it was whole, since the request arrived; none where that is not known.
    pub at: Option<Duration>,
    /// How long it was on its way, in bytes.
    pub size: u64,
    pub data: Vec<u8>,
    /// The type of an event; empty where it names none.
    pub event: String,
    /// The identifier of an event; empty where it names none.
    pub event_id: String,
    /// Why a WebSocket is closed.
    pub code: Option<u16>,
    /// Whether it is compressed, and was not understood.
    pub is_compressed: bool,
    /// Whether less is kept than there was.
    pub is_cut: bool,
}

impl StreamItem {
    fn new(side: StreamSide, kind: &'static str, at: Option<Duration>, data: Vec<u8>) -> Self {
        let (event, event_id) = (String::new(), String::new());
        let size = data.len() as u64;
        let (code, is_compressed, is_cut) = (None, false, false);
        Self { index: 0, side, kind, at, size, data, event, event_id, code, is_compressed, is_cut }
    }
}

impl StreamItem {
    /// The message as the local API shows it, of an exchange that began then.
    pub fn into_stream_message(self, start: DateTime<Local>) -> StreamMessage {
        let time = |at: Duration| (start + at).to_rfc3339_opts(SecondsFormat::Micros, false);
        let number = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        StreamMessage {
            index: number(self.index),
            sender: self.side.name().to_owned(),
            kind: self.kind.to_owned(),
            time: self.at.map(|at| Timestamp(time(at))),
            size: number(self.size),
            data: Base64(self.data.into()),
            event: Note(self.event),
            event_id: Note(self.event_id),
            code: self.code.map(i64::from),
            compressed: Flag(self.is_compressed),
            truncated: Flag(self.is_cut),
            ..StreamMessage::default()
        }
    }
}

/// What a message of gRPC to this target says, if a proto file describes it.
pub(super) fn decode_message(
    files: &ProtoFiles,
    target: &str,
    item: &StreamItem,
    bytes: BytesDisplay,
) -> Option<DecodedMessage> {
    let is_whole = item.kind == "grpc" && !item.is_compressed && !item.is_cut;
    is_whole.then(|| files.decode_message(target, item.side, &item.data, bytes))?
}

/// The messages behind an index, oldest first, and so many at most.
pub(super) fn items_after(
    exchange: &CapturedExchange,
    after: u64,
    limit: usize,
) -> Vec<StreamItem> {
    let all = match (exchange.stream_kind(), exchange.response.as_ref()) {
        (Some(StreamKind::WebSocket), _) => {
            return exchange
                .socket
                .as_ref()
                .map_or_else(Vec::new, |log| socket_items(log, after, limit));
        }
        (Some(StreamKind::Events), Some(response)) => {
            let content = response.decode_content();
            // The marks are places in the body as it was sent.
            let marks = content.removed.is_empty().then_some(&exchange.response_marks);
            parse_events(&content.bytes, marks)
        }
        (Some(StreamKind::Grpc), response) => {
            let asked = (StreamSide::Client, Some(&exchange.request), &exchange.request_marks);
            let answered = (StreamSide::Server, response, &exchange.response_marks);
            let both = [asked, answered].into_iter();
            let mut calls: Vec<_> = both
                .flat_map(|(side, message, marks)| {
                    message
                        .map_or_else(Vec::new, |message| parse_grpc_messages(side, message, marks))
                })
                .collect();
            // What has no time came after the last one that was noted.
            calls.sort_by_key(|item| (item.at.is_none(), item.at));
            calls
        }
        _ => Vec::new(),
    };
    let numbered = all.into_iter().zip(1..).map(|(item, index)| StreamItem { index, ..item });
    numbered.skip_while(|item| item.index <= after).take(limit).collect()
}

fn socket_items(log: &SocketLog, after: u64, limit: usize) -> Vec<StreamItem> {
    let skipped = usize::try_from(after.saturating_sub(log.dropped)).unwrap_or(usize::MAX);
    let numbered = log.messages.iter().zip(log.dropped + 1..).skip(skipped).take(limit);
    numbered.map(|(message, index)| StreamItem { index, ..socket_item(message) }).collect()
}

fn socket_item(message: &SocketMessage) -> StreamItem {
    let kind = match message.opcode {
        1 => "text",
        8 => "close",
        9 => "ping",
        10 => "pong",
        _ => "binary",
    };
    let code = match (message.opcode, message.data.as_slice()) {
        (8, [first, second, ..]) => Some(u16::from_be_bytes([*first, *second])),
        _ => None,
    };
    // The reason stands behind the code.
    let start = if code.is_some() { 2 } else { 0 };
    let data = message.data.get(start..).unwrap_or_default().to_vec();
    StreamItem {
        size: message.size,
        code,
        is_compressed: message.is_compressed,
        is_cut: message.is_cut,
        ..StreamItem::new(message.side, kind, Some(message.at), data)
    }
}

/// The events of a stream, as browsers read them (HTML, section 9.2.6).
fn parse_events(body: &[u8], marks: Option<&BodyMarks>) -> Vec<StreamItem> {
    let (mut events, mut begin, mut data) = (Vec::new(), 0, Vec::new());
    let (mut kind, mut id) = (String::new(), String::new());
    let mut end = if body.starts_with(BYTE_ORDER_MARK) { BYTE_ORDER_MARK.len() } else { 0 };
    while let Some((line, length)) = line_at(body.get(end..).unwrap_or_default()) {
        end += length;
        if line.is_empty() {
            // Without data it is none.
            if !data.is_empty() {
                let at = marks.and_then(|marks| marks.arrival_time(end as u64));
                let mut event = StreamItem::new(StreamSide::Server, "event", at, data.join(&b'\n'));
                event.size = (end - begin) as u64;
                (event.event, event.event_id) = (kind.clone(), id.clone());
                events.push(event);
            }
            begin = end;
            data.clear();
            kind.clear();
            id.clear();
            continue;
        }
        let (name, value) = split_field(line);
        let text = || String::from_utf8_lossy(value).into_owned();
        match name {
            b"data" => data.push(value),
            b"event" => kind = text(),
            b"id" if !value.contains(&0) => id = text(),
            _ => {}
        }
    }
    events
}

/// The first line, and how long it is with its end; none where that is not there yet.
fn line_at(bytes: &[u8]) -> Option<(&[u8], usize)> {
    let at = bytes.iter().position(|byte| matches!(byte, b'\n' | b'\r'))?;
    let (line, rest) = bytes.split_at(at);
    Some((line, at + if rest.starts_with(b"\r\n") { 2 } else { 1 }))
}

/// The name and the value of a field.
fn split_field(line: &[u8]) -> (&[u8], &[u8]) {
    let at = line.iter().position(|byte| *byte == b':').unwrap_or(line.len());
    let (name, value) = line.split_at(at);
    let value = value.strip_prefix(b":").unwrap_or(value);
    (name, value.strip_prefix(b" ").unwrap_or(value))
}

/// The messages of one side of a gRPC call.
fn parse_grpc_messages(
    side: StreamSide,
    message: &CapturedMessage,
    marks: &BodyMarks,
) -> Vec<StreamItem> {
    let (body, mut items, mut begin) = (message.body.bytes(), Vec::new(), 0);
    while let Some([flag, prefix @ ..]) =
        body.get(begin..).and_then(|rest| rest.first_chunk::<GRPC_PREFIX_BYTES>())
    {
        let [a, b, c, d] = *prefix;
        let length = u32::from_be_bytes([a, b, c, d]) as usize;
        let (data_begin, end) = (begin + GRPC_PREFIX_BYTES, begin + GRPC_PREFIX_BYTES + length);
        let whole = body.get(data_begin..end);
        if whole.is_none() && !message.is_truncated() {
            // The rest is still to come.
            break;
        }
        let data = whole.or(body.get(data_begin..)).unwrap_or_default().to_vec();
        let mut item = StreamItem::new(side, "grpc", marks.arrival_time(end as u64), data);
        (item.size, item.is_compressed, item.is_cut) =
            (length as u64, flag & 1 == 1, whole.is_none());
        items.push(item);
        begin = end;
    }
    items
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::capture::{Body, CaptureLimit, CaptureStore, NewCapture};

    #[test]
    fn events_are_read_as_browsers_read_them() {
        let body = b": a comment\r\n\r\nid: 7\nevent: sale\ndata: {\"a\":1}\ndata:  two\n\n\
            data\n\ndata: late\r\r\nretry: 5\n\ndata: not yet\n";

        let read = parse_events(body, None);

        let shown: Vec<_> = read
            .iter()
            .map(|it| (it.event_id.as_str(), it.event.as_str(), String::from_utf8_lossy(&it.data)))
            .collect();
        assert_eq!(
            shown,
            [("7", "sale", "{\"a\":1}\n two".into()), ("", "", "".into()), ("", "", "late".into()),]
        );
    }

    #[test]
    fn what_browsers_pass_over_is_no_event() {
        let body = b"\xef\xbb\xbfdata: first\n\nid: 7\nevent: none\n\nid: a\0b\ndata: last\n\n";

        let read = parse_events(body, None);

        let shown: Vec<_> = read.iter().map(|it| (it.data.as_slice(), &*it.event_id)).collect();
        assert_eq!(shown, [(&b"first"[..], ""), (&b"last"[..], "")]);
    }

    #[test]
    fn messages_without_a_time_come_last() {
        let message = |body: &[u8]| {
            let mut message = CapturedMessage::new(b"", true);
            message.body = body.to_vec().into();
            message.body_length = body.len() as u64;
            message
        };
        let captures = CaptureStore::new(CaptureLimit::default());
        let recording = captures.start_recording(NewCapture {
            tunnel_name: "web",
            source: Arc::default(),
            head: b"POST / HTTP/1.1\r\nContent-Type: application/grpc\r\n\r\n",
            body: &Body::CHUNKED,
        });
        let mut exchange = recording.record().lock_exchange().clone();
        exchange.request = message(b"\0\0\0\0\x01a\0\0\0\0\x01b");
        exchange.response = Some(message(b"\0\0\0\0\x01c"));
        exchange.request_marks.push_mark(6, Duration::from_millis(1), usize::MAX);
        exchange.response_marks.push_mark(6, Duration::from_millis(2), usize::MAX);

        let read = items_after(&exchange, 0, 9);

        let data: Vec<_> = read.iter().map(|it| it.data.as_slice()).collect();
        assert_eq!(data, [b"a", b"c", b"b"]);
    }

    #[test]
    fn calls_are_parted_by_their_lengths() {
        let mut message = CapturedMessage::new(b"", true);
        message.body = b"\0\0\0\0\x02hi\x01\0\0\0\x03abc\0\0\0\0\x05cut".to_vec().into();
        message.body_length = message.body.len() as u64;
        let read = |message: &CapturedMessage| {
            let items = parse_grpc_messages(StreamSide::Client, message, &BodyMarks::default());
            let shown = |it: StreamItem| (it.data, it.is_compressed, it.is_cut, it.size);
            items.into_iter().map(shown).collect::<Vec<_>>()
        };

        let mut expected =
            vec![(b"hi".to_vec(), false, false, 2), (b"abc".to_vec(), true, false, 3)];
        assert_eq!(read(&message), expected);
        message.cut_off = true;
        expected.push((b"cut".to_vec(), false, true, 5));
        assert_eq!(read(&message), expected);
    }
}
