//! The messages of WebSockets in archives, in the form of Chrome.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use chrono::{DateTime, Utc};
use serde_json::{Value, json};

use super::{decode_base64, text_member};
use crate::capture::{SocketLog, SocketMessage, StreamSide};

/// The opcode of a text (RFC 6455, section 5.2).
const TEXT: u8 = 1;
/// The longest time between a request and a message.
const MAX_SECONDS: f64 = 1e7;

/// Reads the messages of a WebSocket. The second value is the number of unreadable ones.
pub(super) fn read_socket(
    messages: &[Value],
    start: DateTime<Utc>,
    max_bytes: usize,
) -> (SocketLog, usize) {
    let (mut log, mut unread) = (SocketLog::default(), 0);
    for message in messages {
        match read_message(message, start) {
            Some(message) => log.push_message(message, max_bytes),
            None => unread += 1,
        }
    }
    (log, unread)
}

fn read_message(message: &Value, start: DateTime<Utc>) -> Option<SocketMessage> {
    let side = match text_member(message, "type") {
        "send" => StreamSide::Client,
        "receive" => StreamSide::Server,
        _ => return None,
    };
    let opcode = message["opcode"].as_u64().and_then(|it| u8::try_from(it).ok());
    let opcode = opcode.filter(|it| *it < 16).unwrap_or(TEXT);
    let text = text_member(message, "data");
    let data = match opcode {
        TEXT => text.as_bytes().to_vec(),
        _ => decode_base64(text)?,
    };
    let begin = start.timestamp_micros() as f64 / 1e6;
    let at = message["time"].as_f64().map_or(0.0, |time| time - begin);
    let at = Duration::from_secs_f64(at.clamp(0.0, MAX_SECONDS));
    let (size, is_cut, is_compressed) = (data.len() as u64, false, false);
    Some(SocketMessage { side, opcode, at, size, data, is_cut, is_compressed })
}

/// Writes a message. `data` is its content without secrets.
pub(crate) fn encode_message(
    message: &SocketMessage,
    start: DateTime<Utc>,
    data: Option<Vec<u8>>,
) -> Value {
    let time = start + message.at;
    let data = data.unwrap_or_default();
    let text = match message.opcode {
        TEXT => String::from_utf8_lossy(&data).into_owned(),
        _ => STANDARD.encode(&data),
    };
    json!({
        "type": match message.side {
            StreamSide::Client => "send",
            StreamSide::Server => "receive",
        },
        "time": time.timestamp_micros() as f64 / 1e6,
        "opcode": message.opcode,
        "data": text,
    })
}
