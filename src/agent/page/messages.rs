//! The messages of a stream as the page shows them.

use std::time::Duration;

use chrono::SecondsFormat;
use serde::Serialize;

use super::content;
use crate::agent::capture::CaptureRecord;
use crate::agent::messages::{self, StreamItem};
use crate::api::{Base64, mask};

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
    /// What is text.
    text: Option<String>,
    /// What is none.
    data: Option<Base64>,
    event: String,
    event_id: String,
    code: Option<u16>,
    /// Compressed, and not understood: nobody knows what secrets it holds, so it is left out unless they
    /// are shown.
    compressed: bool,
    truncated: bool,
    /// Whether secrets in it are masked.
    masked: bool,
}

impl MessagePage {
    /// The messages of a record behind an index.
    pub fn of(record: &CaptureRecord, after: u64, reveal: bool) -> Self {
        let exchange = record.exchange().clone();
        let items = messages::items(&exchange, after, MAX_MESSAGES);
        let dropped = exchange.socket.as_ref().map_or(0, |log| log.dropped);
        let start = record.start();
        let time = |at: Duration| (start + at).to_rfc3339_opts(SecondsFormat::Millis, false);
        let last = items.last().map_or(after, |item| item.index);
        let views = items.into_iter().map(|item| {
            let at = item.at.map(time);
            StreamMessageView::of(item, at, reveal)
        });
        Self { dropped, last, messages: views.collect() }
    }
}

impl StreamMessageView {
    fn of(item: StreamItem, time: Option<String>, reveal: bool) -> Self {
        let is_hidden = item.is_compressed && !reveal;
        let is_text = !matches!(item.kind, "binary" | "grpc") && !item.is_compressed;
        let text = is_text.then(|| String::from_utf8_lossy(&item.data).into_owned());
        let safe = text.as_deref().filter(|_| !reveal).and_then(|text| {
            let masked = content::masked("text/plain", text.as_bytes())?;
            Some(String::from_utf8_lossy(&masked).into_owned())
        });
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
            masked: is_hidden || safe.is_some(),
            data: (!is_text && !is_hidden).then(|| Base64(item.data.into())),
            text: safe.or(text),
            event: item.event,
            event_id,
            code: item.code,
            compressed: item.is_compressed,
            truncated: item.is_cut,
        }
    }
}
