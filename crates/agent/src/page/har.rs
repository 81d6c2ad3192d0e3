//! Exports in the HTTP Archive format, version 1.2.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use chrono::SecondsFormat;
use serde_json::{Map, Value, json};
use tokio::sync::mpsc;

use ginnel_api::mask::{self, CallMask, CallSide};
use ginnel_net::ChannelBody;

use super::body_view::ArchiveText;
use super::messages::mask_data;
use super::view::{HeaderView, MessageView, TimingView, call_mask, public_url};
use crate::archive::{RAW_TARGET, encode_message, is_kept_by_url};
use crate::capture::{CaptureRecord, CapturedMessage, ExchangeTiming, SocketLog, SocketMessage};
use crate::inner::AgentInner;

/// Takes the next piece; false when nobody reads any more.
pub(super) type SendChunk<'a> = &'a dyn Fn(String) -> bool;

/// The body of a response that `write` writes while it is read: small bodies may be large ones without their encoding,
/// and many of them more than there is memory.
pub(super) fn body_of(write: impl FnOnce(SendChunk<'_>) + Send + 'static) -> ChannelBody {
    let (sender, pieces) = mpsc::channel(1);
    ginnel_base::tasks::spawn_blocking(move || {
        write(&|piece| sender.blocking_send(piece.into()).is_ok());
    });
    ChannelBody(pieces)
}

/// Writes the archive of some records, oldest first.
pub(super) fn write_archive<'a>(
    shared: &AgentInner,
    records: impl IntoIterator<Item = &'a CaptureRecord>,
    reveal: bool,
    send: SendChunk<'_>,
) {
    let creator = json!({"name": "ginnel", "version": env!("CARGO_PKG_VERSION")});
    let comment = if reveal { "" } else { "secrets are masked" };
    let mut before = format!(
        "{{\"log\":{{\"version\":\"1.2\",\"creator\":{creator},\"comment\":\"{comment}\",\"pages\":[],\"entries\":["
    );
    for record in records {
        if !send(format!("{before}{}", encode_entry(shared, record, reveal))) {
            return;
        }
        before = ",\n".to_owned();
    }
    let opening = if before.starts_with(',') { "" } else { &before };
    send(format!("{opening}]}}}}"));
}

fn encode_entry(shared: &AgentInner, record: &CaptureRecord, reveal: bool) -> Value {
    let exchange = record.lock_exchange().clone();
    let timings = encode_timings(exchange.timing());
    let took: f64 = timings.values().filter_map(Value::as_f64).sum();
    let mut entry = json!({
        "startedDateTime": record.local_start().to_rfc3339_opts(SecondsFormat::Millis, false),
        "time": took,
        "request": encode_request(shared, record, &exchange.request, reveal),
        "response": encode_response(exchange.response.as_ref(), &call_mask(&exchange.request), reveal),
        "cache": {},
        "timings": timings,
        "_id": record.id,
        "_tunnel": record.tunnel_name,
        "_clientAddress": record.source.remote_addr,
    });
    if let Some(error) = &exchange.error {
        // Browsers have this field. The comment is for readers that show only fields of the format.
        entry["response"]["_error"] = error.as_str().into();
        entry["response"]["comment"] = error.as_str().into();
    }
    if !exchange.note.is_empty() {
        entry["comment"] = exchange.note.as_str().into();
    }
    if let Some(log) = &exchange.socket {
        entry["_resourceType"] = "websocket".into();
        entry["_webSocketMessages"] = encode_messages(record, log, reveal);
    }
    if let Some(original) = &record.source.replay_of {
        entry["_replayOf"] = original.as_str().into();
    }
    entry
}

/// Returns the messages of a WebSocket as Chrome writes them. The oldest ones may be missing.
fn encode_messages(record: &CaptureRecord, log: &SocketLog, reveal: bool) -> Value {
    let encode = |message: &SocketMessage| {
        let data = match reveal {
            true => Some(message.data.clone()),
            false => mask_data(message.data.clone(), message.opcode == 1, message.is_compressed).0,
        };
        encode_message(message, record.local_start().to_utc(), data)
    };
    log.messages.iter().map(encode).collect()
}

/// The parts of the time: what did not happen is left out, and the agent sends while it waits.
fn encode_timings(timing: Option<ExchangeTiming>) -> Map<String, Value> {
    let parts = timing.map_or([0.0; 4], |timing| {
        let TimingView { waited, connected, first_byte, body } = timing.into();
        [waited, connected, first_byte, body]
    });
    let [waited, connected, first_byte, body] = parts;
    let named = [
        ("blocked", waited),
        ("connect", connected),
        ("send", 0.0),
        ("wait", first_byte),
        ("receive", body),
    ];
    let is_there =
        |(name, time): &(&str, f64)| *time > 0.0 || !["blocked", "connect"].contains(name);
    named.into_iter().filter(is_there).map(|(name, time)| (name.to_owned(), time.into())).collect()
}

fn encode_request(
    shared: &AgentInner,
    record: &CaptureRecord,
    message: &CapturedMessage,
    reveal: bool,
) -> Value {
    let part = MessageView::from_message(message, &call_mask(message), CallSide::Request, reveal);
    let [method, target, version] = message.start_line();
    let target = if reveal { target.clone() } else { mask::target(&target) };
    let host = message.find_header("host").unwrap_or_else(|| "localhost".to_owned());
    let query = target.split_once('?').map_or("", |(_, query)| query);
    let mut request = json!({
        "method": method,
        "url": public_url(shared, record, &target).unwrap_or_else(|| format!("http://{host}{target}")),
        "httpVersion": version,
        "cookies": encode_cookies(message, "cookie", reveal),
        "headers": encode_headers(&part.headers),
        "queryString": encode_query(query),
        "headersSize": message.head.len(),
        "bodySize": message.body_length,
    });
    let [_, raw, _] = message.exact_start_line();
    if !is_kept_by_url(raw) && (reveal || mask::target(&target) == target) {
        request[RAW_TARGET] = STANDARD.encode(raw).into();
    }
    if message.body_length > 0 {
        request["postData"] = post_data(&part, &content_type(message));
    }
    request
}

/// The media type with its parameters: without the boundary, forms in parts cannot be read.
fn content_type(message: &CapturedMessage) -> String {
    message.find_header("content-type").unwrap_or_default()
}

fn post_data(part: &MessageView, media_type: &str) -> Value {
    let pairs = part.readable.pairs.iter();
    let params: Value = pairs.map(|(name, value)| json!({"name": name, "value": value})).collect();
    let mut data = json!({"mimeType": media_type, "params": params});
    match part.readable.archive_text() {
        ArchiveText::Text(text) => data["text"] = text.into(),
        ArchiveText::Bytes(bytes) => {
            data["text"] = STANDARD.encode(bytes).into();
            data["comment"] = "base64".into();
        }
    }
    data
}

fn encode_response(message: Option<&CapturedMessage>, call: &CallMask, reveal: bool) -> Value {
    let Some(message) = message else {
        // The format has no answer that is still awaited; status 0 is what browsers write.
        return json!({
            "status": 0, "statusText": "", "httpVersion": "", "cookies": [], "headers": [],
            "content": {"size": 0, "mimeType": ""}, "redirectURL": "",
            "headersSize": -1, "bodySize": -1,
        });
    };
    let part = MessageView::from_message(message, call, CallSide::Response, reveal);
    let [version, status, reason] = message.start_line();
    let location = message.find_header("location").unwrap_or_default();
    json!({
        "status": status.parse::<u16>().unwrap_or_default(),
        "statusText": reason,
        "httpVersion": version,
        "cookies": encode_cookies(message, "set-cookie", reveal),
        "headers": encode_headers(&part.headers),
        "content": encode_content(&part, &content_type(message)),
        "redirectURL": if reveal { location } else { mask::target(&location).into_owned() },
        "headersSize": message.head.len(),
        "bodySize": message.body_length,
    })
}

fn encode_content(part: &MessageView, media_type: &str) -> Value {
    let mut content = json!({"size": part.readable.size, "mimeType": media_type});
    match part.readable.archive_text() {
        ArchiveText::Text(text) => content["text"] = text.into(),
        ArchiveText::Bytes(bytes) => {
            content["text"] = STANDARD.encode(bytes).into();
            content["encoding"] = "base64".into();
        }
    }
    if part.length > part.kept as u64 {
        content["comment"] = format!("the first {} of {} bytes", part.kept, part.length).into();
    }
    content
}

fn encode_headers(fields: &[HeaderView]) -> Value {
    fields.iter().map(|field| json!({"name": field.name, "value": field.value})).collect()
}

fn encode_query(query: &str) -> Value {
    let pairs = url::form_urlencoded::parse(query.as_bytes());
    pairs.map(|(name, value)| json!({"name": name, "value": value})).collect()
}

fn encode_cookies(message: &CapturedMessage, header: &str, reveal: bool) -> Value {
    let headers = message.headers();
    let lines = headers.iter().filter(|(name, _)| name.eq_ignore_ascii_case(header));
    let pairs = lines.flat_map(|(_, line)| {
        // What follows the first pair of `Set-Cookie` are attributes.
        let most = if header == "cookie" { usize::MAX } else { 1 };
        line.split(';').take(most).map(str::trim)
    });
    let cookies = pairs.filter(|pair| !pair.is_empty()).map(|pair| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let value = if reveal { value } else { mask::MASK };
        Value::Object(Map::from_iter([
            ("name".to_owned(), name.into()),
            ("value".to_owned(), value.into()),
        ]))
    });
    cookies.collect()
}
