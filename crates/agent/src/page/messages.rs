//! The messages of a stream as the page shows them.

use std::time::Duration;

use chrono::SecondsFormat;
use serde::Serialize;

use ginnel_api::{Base64, mask};
use ginnel_content::{BodyHead, Charset, MAX_DECODED_BYTES, ReadableBody};

use crate::capture::CaptureRecord;
use crate::messages::{self, StreamItem};
use crate::protobuf::{BytesDisplay, DecodedMessage, ProtoFiles};

/// How many messages are told at a time.
const MAX_MESSAGES: usize = 500;

/// Some messages of a stream.
#[derive(Debug, Serialize)]
pub(super) struct MessagePage {
    /// How many messages came before those that are kept.
    dropped: u64,
    /// The index of the last message that there is.
    last: u64,
    /// Oldest first.
    messages: Vec<StreamMessageView>,
}

/// A message of a stream.
#[derive(Debug, Serialize)]
struct StreamMessageView {
    index: u64,
    from: &'static str,
    kind: &'static str,
    /// RFC 3339 with milliseconds; none where it is not known.
    time: Option<String>,
    size: u64,
    /// The text of a message of text, or of bytes that are text.
    text: Option<String>,
    /// The bytes of other messages than text.
    data: Option<Base64>,
    /// What is of gRPC and described by a proto file: its type, and JSON.
    message_type: Option<String>,
    message: Option<String>,
    event: String,
    event_id: String,
    code: Option<u16>,
    /// Compressed, and not understood.
    compressed: bool,
    truncated: bool,
    /// Whether secrets in it are masked, or all of it is left out for them.
    masked: bool,
}

impl MessagePage {
    /// The messages of a record behind an index.
    pub fn from_record(
        record: &CaptureRecord,
        files: &ProtoFiles,
        after: u64,
        reveal: bool,
    ) -> Self {
        let exchange = record.lock_exchange().clone();
        let items = messages::items_after(&exchange, after, MAX_MESSAGES);
        let dropped = exchange.socket.as_ref().map_or(0, |log| log.dropped);
        let start = record.local_start();
        let time = |at: Duration| (start + at).to_rfc3339_opts(SecondsFormat::Millis, false);
        let last = items.last().map_or(after, |item| item.index);
        let [_, target, _] = exchange.request.start_line();
        let views = items.into_iter().map(|item| {
            let at = item.at.map(time);
            // Bytes that nobody can read may hold what is secret.
            let bytes = if reveal { BytesDisplay::Shown } else { BytesDisplay::Counted };
            let decoded = messages::decode_message(files, &target, &item, bytes);
            StreamMessageView::from_item(item, decoded, at, reveal)
        });
        Self { dropped, last, messages: views.collect() }
    }
}

impl StreamMessageView {
    fn from_item(
        item: StreamItem,
        decoded: Option<DecodedMessage>,
        time: Option<String>,
        reveal: bool,
    ) -> Self {
        let is_text = !matches!(item.kind, "binary" | "grpc") && !item.is_compressed;
        let (body, masked) = match reveal {
            true => (Some(item.data), false),
            false => mask_data(item.data, is_text, item.is_compressed),
        };
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        let (text, data) = match is_text {
            true => (body.map(text), None),
            false => (body.as_deref().and_then(readable_text), body.map(|it| Base64(it.into()))),
        };
        let message = decoded.map(|decoded| ShownMessage::of(decoded, reveal));
        let hides_field = message.as_ref().is_some_and(|message| message.is_masked);
        let (message_type, message) = message.map(|it| (it.type_name, it.text)).unzip();
        let event_id = match reveal {
            true => item.event_id,
            false => mask::text(&item.event_id).into_owned(),
        };
        Self {
            index: item.index,
            from: item.side.name(),
            kind: item.kind,
            time,
            size: item.size,
            masked: masked || hides_field,
            // The bytes contain what the name of a field says to be secret.
            data: data.filter(|_| !hides_field),
            text,
            message_type,
            message,
            event: item.event,
            event_id,
            code: item.code,
            compressed: item.is_compressed,
            truncated: item.is_cut,
        }
    }
}

/// The text of a binary message, if it is text.
fn readable_text(bytes: &[u8]) -> Option<String> {
    let body = ReadableBody::read(&BodyHead::default(), bytes, MAX_DECODED_BYTES);
    // Messages have no type that names another charset.
    let is_text = body.is_text() && body.charset() == Charset::UTF_8;
    is_text.then(|| body.text().into_owned())
}

/// A message that was decoded, as it is displayed.
struct ShownMessage {
    type_name: String,
    text: String,
    /// True if fields are hidden.
    is_masked: bool,
}

impl ShownMessage {
    fn of(decoded: DecodedMessage, reveal: bool) -> Self {
        let DecodedMessage { type_name, value } = decoded;
        let mut shown = value.clone();
        if !reveal {
            mask::value(&mut shown);
        }
        Self { type_name, text: shown.to_string(), is_masked: shown != value }
    }
}

/// What may be shown of a message without its secrets, and whether that is less than all: nothing of what
/// cannot be read, nor of bytes that are no text and hold a secret.
pub(super) fn mask_data(
    data: Vec<u8>,
    is_text: bool,
    is_compressed: bool,
) -> (Option<Vec<u8>>, bool) {
    if is_compressed {
        return (None, true);
    }
    match mask::body("text/plain", &data) {
        None => (Some(data), false),
        Some(_) if !is_text && std::str::from_utf8(&data).is_err() => (None, true),
        Some(masked) => (Some(masked), true),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_secret_is_shown_whatever_kind_of_message_it_is_in() {
        let secret = br#"{"password": "swordfish"}"#;
        let no_text = [b"\xff".as_slice(), secret].concat();
        for (data, is_text, is_compressed) in [
            (secret.to_vec(), true, false),
            (secret.to_vec(), false, false),
            (no_text.clone(), false, false),
            (no_text, true, false),
            (b"anything".to_vec(), false, true),
        ] {
            let (shown, masked) = mask_data(data, is_text, is_compressed);

            assert!(masked);
            let shown = String::from_utf8_lossy(&shown.unwrap_or_default()).into_owned();
            assert!(!shown.contains("swordfish"), "{shown}");
        }
        for harmless in [b"plain".to_vec(), b"\x08\x96\x01\x12\x05plain".to_vec()] {
            assert_eq!(mask_data(harmless.clone(), false, false), (Some(harmless), false));
        }
    }
}
