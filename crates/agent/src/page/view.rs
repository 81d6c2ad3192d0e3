//! Records as the page shows them: a line of the list, and everything about one.

use std::sync::Arc;

use chrono::SecondsFormat;
use serde::Serialize;

use ginnel_api::local::requests::PolicyRule;
use ginnel_api::mask::{CallMask, CallSide};
use ginnel_api::{Base64, mask};

use super::body_view::BodyView;
use super::filter;
use crate::capture::{CaptureRecord, CapturedMessage, ExchangeTiming, StreamKind, Via};
use crate::inner::AgentInner;
use crate::masked_body::MaskedBody;

/// One line of the list.
#[derive(Debug, Default, Serialize)]
pub struct RequestSummary {
    pub id: String,
    /// RFC 3339 with milliseconds, in local time.
    pub start: String,
    pub method: String,
    /// Path and query; secrets are masked.
    pub target: String,
    /// None while there is no answer.
    pub status: Option<u16>,
    /// Milliseconds; none while the exchange lasts.
    pub took: Option<f64>,
    /// Bytes of the request's body.
    pub received: u64,
    /// Bytes of the answer's body.
    pub sent: u64,
    pub source: String,
    pub tunnel: String,
    /// The record that this one repeats.
    pub replay_of: Option<String>,
    /// The schedule that repeats it.
    pub schedule: Option<String>,
    /// What the visitor came through at the service, as far as that has told.
    pub via: Option<Via>,
    /// Whether less than the whole of a body is there; not while a request waits whose body may still come.
    pub truncated: bool,
    /// The agent answered because the local service did not.
    pub unanswered: bool,
    /// Why the exchange failed; none where it has not.
    pub error: Option<String>,
    /// The mock that responded in place of the local service.
    pub mock: Option<String>,
    /// The hold that the request waits or has waited for.
    pub hold: Option<String>,
    /// Whether it waits now.
    pub held: bool,
    /// Whether it was changed while it waited.
    pub edited: bool,
    /// Where the time went; none while the exchange lasts.
    pub timings: Option<TimingView>,
    /// What comes one after the other; none where that is all at once.
    pub stream: Option<StreamKind>,
    /// How many messages a WebSocket has had.
    pub messages: Option<u64>,
    /// How a gRPC call ended; 0 is success.
    pub grpc_status: Option<u16>,
    /// Whether it broke off, or ended with an error: by its status, or that of a gRPC call.
    pub failed: bool,
    /// Whether rules of policies acted on the request before it came.
    pub policy: bool,
    /// Whether newer requests do not displace it.
    pub pinned: bool,
    /// What somebody wrote about it; none where nobody has.
    pub note: Option<String>,
    /// Whether it comes from an archive.
    pub imported: bool,
}

/// The parts of the time that an exchange took, in milliseconds.
#[derive(Debug, Serialize)]
pub struct TimingView {
    /// Until the agent began to connect to the local service.
    pub waited: f64,
    /// Until there was a connection.
    pub connected: f64,
    /// Until the response began.
    pub first_byte: f64,
    /// Until it ended.
    pub body: f64,
}

impl From<ExchangeTiming> for TimingView {
    fn from(timing: ExchangeTiming) -> Self {
        let ExchangeTiming { waited, connected, first_byte, body } = timing;
        let [waited, connected, first_byte, body] =
            [waited, connected, first_byte, body].map(|time| time.as_secs_f64() * 1000.0);
        Self { waited, connected, first_byte, body }
    }
}

impl RequestSummary {
    pub fn from_record(record: &CaptureRecord) -> Self {
        let exchange = record.lock_exchange();
        let [method, target, _] = exchange.request.start_line();
        let response = exchange.response.as_ref();
        let socket = exchange.socket.as_ref();
        let [asked, answered] = socket.map_or([0, 0], |log| log.bytes);
        Self {
            id: record.id.clone(),
            start: record.local_start().to_rfc3339_opts(SecondsFormat::Millis, false),
            method: method.into_owned(),
            target: mask::target(&target).into_owned(),
            status: filter::status_code(response),
            took: exchange.took.map(|took| took.as_secs_f64() * 1000.0),
            received: exchange.request.body_length + asked,
            sent: response.map_or(0, |response| response.body_length) + answered,
            source: record.source.remote_addr.clone(),
            tunnel: record.tunnel_name.clone(),
            replay_of: record.source.replay_of.clone(),
            schedule: record.source.schedule_id.clone(),
            via: record.source.via,
            truncated: !exchange.is_held && exchange.request.is_truncated()
                || response.is_some_and(CapturedMessage::is_truncated),
            unanswered: exchange.unanswered,
            error: exchange.error.clone(),
            mock: exchange.mock_id.clone(),
            hold: exchange.hold_id.clone(),
            held: exchange.is_held,
            edited: exchange.is_edited,
            timings: exchange.timing().map(TimingView::from),
            stream: exchange.stream_kind(),
            messages: socket.map(|log| log.dropped + log.messages.len() as u64),
            grpc_status: exchange.grpc_status(),
            failed: exchange.is_failed(),
            policy: !exchange.rules.is_empty(),
            pinned: exchange.is_pinned,
            note: Some(exchange.note.clone()).filter(|note| !note.is_empty()),
            imported: record.source.imported_from.is_some(),
        }
    }
}

/// The maximum length of a body in the detail of a request, unless all of it is asked for.
const MAX_SHOWN_BYTES: usize = 1 << 20;

/// The form of the detail of a request.
#[derive(Debug, Clone, Copy, Default)]
pub struct DetailChoice {
    /// If true, secrets are shown.
    pub reveal: bool,
    /// If true, the bodies are shown as far as they are kept, and not only their beginnings.
    pub whole: bool,
}

/// Everything about one record.
#[derive(Debug, Serialize)]
pub struct RequestDetail {
    #[serde(flatten)]
    pub summary: RequestSummary,
    /// The records that repeat this one, oldest first.
    pub replays: Vec<String>,
    /// Where the public reaches its target; none when the tunnel does not run any more.
    pub url: Option<String>,
    /// Whether secrets are shown.
    pub revealed: bool,
    /// The edge that led here; empty where none did.
    pub edge_id: String,
    /// The route of that edge.
    pub route_id: String,
    /// The rules of policies that acted on the request, in order; secrets are masked.
    pub rules: Vec<PolicyRule>,
    pub request: MessageView,
    pub response: Option<MessageView>,
}

/// A request or an answer.
#[derive(Debug, Serialize)]
pub struct MessageView {
    /// The first line.
    pub line: String,
    pub headers: Vec<HeaderView>,
    /// What came after the body.
    pub trailers: Vec<HeaderView>,
    /// The body as it was sent, as far as it was kept. If it is masked, this is the masked body without its codings; for
    /// a body with codings it is empty, because the coded bytes contain the secrets.
    pub body: Base64,
    /// The body as people read it.
    #[serde(flatten)]
    pub readable: BodyView,
    /// How long the whole body was.
    pub length: u64,
    /// How much of it was kept.
    pub kept: usize,
    /// Whether secrets in the body are masked.
    pub masked: bool,
    /// Whether more of the body may still come.
    pub coming: bool,
}

/// A header.
#[derive(Debug, Serialize)]
pub struct HeaderView {
    pub name: String,
    pub value: String,
    /// Whether the value is masked unless secrets are shown.
    pub secret: bool,
}

impl RequestDetail {
    pub fn from_record(
        shared: &AgentInner,
        record: &Arc<CaptureRecord>,
        choice: DetailChoice,
    ) -> Self {
        let DetailChoice { reveal, whole } = choice;
        let mut summary = RequestSummary::from_record(record);
        let exchange = record.lock_exchange().clone();
        if reveal {
            summary.target = exchange.request.start_line()[1].to_string();
        }
        let all = shared.captures.list(usize::MAX, None);
        let call = call_mask(&exchange.request);
        let message = |message: &CapturedMessage, side| {
            let coming = exchange.took.is_none() && !message.is_whole();
            let most = if whole { usize::MAX } else { MAX_SHOWN_BYTES };
            let shown = message.beginning(most);
            MessageView { coming, ..MessageView::from_message(&shown, &call, side, reveal) }
        };
        let replays =
            all.iter().rev().filter(|other| other.source.replay_of.as_ref() == Some(&record.id));
        Self {
            replays: replays.map(|replay| replay.id.clone()).collect(),
            url: public_url(shared, record, &summary.target),
            revealed: reveal,
            edge_id: record.source.edge_id.clone(),
            route_id: record.source.route_id.clone(),
            rules: rules_view(&exchange.rules, reveal),
            request: message(&exchange.request, CallSide::Request),
            response: exchange.response.as_ref().map(|it| message(it, CallSide::Response)),
            summary,
        }
    }
}

/// The rules that acted on a request, as they are shown.
fn rules_view(rules: &[PolicyRule], reveal: bool) -> Vec<PolicyRule> {
    let mut shown = rules.to_vec();
    if !reveal {
        let expressions = shown.iter_mut().flat_map(|rule| rule.expressions.iter_mut().flatten());
        expressions.for_each(|text| *text = mask::text(text).into_owned());
    }
    shown
}

/// Where the public reaches the target of a record.
pub(super) fn public_url(
    shared: &AgentInner,
    record: &CaptureRecord,
    target: &str,
) -> Option<String> {
    if let Some(origin) = &record.source.imported_from {
        return Some(format!("{origin}{target}"));
    }
    let tunnel = shared.tunnels.find(&record.tunnel_name)?;
    let url = tunnel.public_url()?;
    Some(format!("{}{target}", url.trim_end_matches('/')))
}

/// The operations that a captured request may call.
pub(super) fn call_mask(request: &CapturedMessage) -> CallMask {
    let [method, target, _] = request.start_line();
    CallMask::for_request(&method, &target)
}

impl MessageView {
    /// A message of a call; `side` is the one that the message is.
    pub fn from_message(
        message: &CapturedMessage,
        call: &CallMask,
        side: CallSide,
        reveal: bool,
    ) -> Self {
        let body = message.read_body();
        let mut shown = MaskedBody::new(&body, call, side, reveal);
        let masked = shown.is_masked();
        let replacement = shown.replacement.take();
        let readable = BodyView::new(&body, shown, replacement.as_deref());
        let sent = match replacement {
            Some(_) if !body.removed_codings().is_empty() => Vec::new(),
            Some(replacement) => replacement,
            None => message.body.bytes().into_owned(),
        };
        Self {
            line: first_line(message, reveal),
            headers: header_views(message.headers(), reveal),
            trailers: header_views(message.trailers(), reveal),
            body: Base64(sent.into()),
            readable,
            length: body_length(message),
            kept: message.body.len(),
            masked,
            coming: false,
        }
    }
}

/// How long the whole body was, as it is kept: with its coding or without.
fn body_length(message: &CapturedMessage) -> u64 {
    let kept = message.body.len() as u64;
    match message.is_decoded {
        true => kept + u64::from(message.is_truncated()),
        false => message.body_length,
    }
}

/// Start line of a request or an answer; only targets have secrets.
fn first_line(message: &CapturedMessage, reveal: bool) -> String {
    let [first, second, third] = message.start_line();
    let shown = if reveal { second.clone() } else { mask::target(&second) };
    format!("{first} {shown} {third}").trim_end().to_owned()
}

fn header_views(headers: Vec<(String, String)>, reveal: bool) -> Vec<HeaderView> {
    let masked = |(name, value): (String, String)| {
        let masked = mask::header(&name, &value).into_owned();
        let secret = masked != value;
        HeaderView { secret, name, value: if reveal { value } else { masked } }
    };
    headers.into_iter().map(masked).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::collections::BTreeMap;
    use std::fmt::Write;

    use base64::Engine;
    use base64::engine::general_purpose::STANDARD;
    use serde::Deserialize;

    use super::*;

    /// A request, and what of it may be seen; the same for what Python shows.
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Case {
        what: String,
        target: Option<String>,
        #[serde(default)]
        headers: BTreeMap<String, String>,
        body: Option<String>,
        base64: Option<String>,
        hides: Vec<String>,
        keeps: Vec<String>,
    }

    impl Case {
        fn message(&self) -> CapturedMessage {
            let target = self.target.as_deref().unwrap_or("/");
            let mut head = format!("POST {target} HTTP/1.1\r\n");
            for (name, value) in &self.headers {
                write!(head, "{name}: {value}\r\n").unwrap();
            }
            let mut message = CapturedMessage::new(format!("{head}\r\n").as_bytes(), false);
            let text = self.body.clone().unwrap_or_default().into_bytes();
            let body = self.base64.as_ref().map_or(text, |body| STANDARD.decode(body).unwrap());
            message.body_length = body.len() as u64;
            message.body = body.into();
            message
        }

        /// Everything that is shown of it.
        fn shown(&self, reveal: bool) -> String {
            let part = MessageView::from_message(
                &self.message(),
                &CallMask::default(),
                CallSide::Request,
                reveal,
            );
            let headers = part.headers.iter();
            let headers = headers.map(|field| format!("{}: {}\n", field.name, field.value));
            let sent = String::from_utf8_lossy(&part.body.0);
            let readable = part.readable.shown_text();
            format!("{}\n{}{sent}{readable}", part.line, headers.collect::<String>())
        }
    }

    #[test]
    fn secrets_are_masked_and_nothing_else_is() {
        let cases = include_str!("../../../../tests/data/secrets.json");
        let cases: Vec<Case> = serde_json::from_str(cases).unwrap();
        assert!(cases.len() > 40);
        for case in cases {
            let (masked, revealed) = (case.shown(false), case.shown(true));
            for text in &case.keeps {
                assert!(masked.contains(text), "{}: {text} in {masked}", case.what);
            }
            for text in case.hides.iter().filter(|text| revealed.contains(*text)) {
                assert!(!masked.contains(text), "{}: {text} in {masked}", case.what);
            }
            assert_eq!(masked == revealed, case.hides.is_empty(), "{}", case.what);
        }
    }
}
