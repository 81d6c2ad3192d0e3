//! Requests that do not go on as they came: a mock responds to them, or they wait for somebody to decide.

use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::Instant;

use ginnel_base::logging::or_debug;
use ginnel_http1::{Body, CONTINUE, HOLD_NOTICE, HeadWriter};

use super::exchange::{MAX_READ_AHEAD_BYTES, VISITOR_LEFT};
use super::http::Visit;
use super::page;
use super::relayed_head::{self, RelayRequest};
use crate::capture::{CapturedMessage, Recording};
use crate::intercept::{
    HoldDecision, HoldTicket, InterceptRule, MadeResponse, MockFault, MockResponse, RequestView,
    TemplateValues,
};

/// How much of a body is kept for texts that name its values, and for changes.
const MAX_BODY_BYTES: usize = 1 << 20;
/// How long the body of a request is waited for that is to be changed.
const BODY_TIMEOUT: Duration = Duration::from_secs(5);

/// What became of a request.
pub(super) enum Interception {
    /// It goes to the local service, as it came or changed.
    Forward(RelayRequest, Bytes),
    /// The visitor has a response or has left; says whether another request may follow.
    Answered { keep_alive: bool },
}

/// What has come of a body that is still to be read.
#[derive(Default)]
struct WaitingBody {
    /// How many bytes it takes in the buffer.
    length: usize,
    data: Vec<u8>,
    trailer: Vec<u8>,
}

const GONE: Interception = Interception::Answered { keep_alive: false };

impl Visit<'_> {
    /// Has the first mock or hold that matches act on a request.
    pub(super) async fn intercept_request(
        &mut self,
        head: RelayRequest,
        bytes: Bytes,
        recording: Option<&Recording>,
    ) -> Interception {
        let interceptors = &self.front.interceptors;
        let view = request_view(&self.front.tunnel_name, &head, &bytes);
        if let Some(mock) = interceptors.match_mock(&view) {
            return self.respond_with_mock(&mock, &head, &bytes, recording).await;
        }
        // What nobody sees waits for nobody.
        let Some(recording) = recording else { return Interception::Forward(head, bytes) };
        match interceptors.match_hold(&view) {
            Some(ticket) => self.hold_request(ticket, head, bytes, recording).await,
            None => Interception::Forward(head, bytes),
        }
    }

    /// Responds as a mock says.
    async fn respond_with_mock(
        &mut self,
        mock: &InterceptRule<MockResponse>,
        head: &RelayRequest,
        bytes: &[u8],
        recording: Option<&Recording>,
    ) -> Interception {
        if let Some(recording) = recording {
            recording.set_mock(&mock.id);
        }
        self.send_continue(&head.body, bytes).await;
        let mut body = Vec::new();
        let keep = |data: &[u8]| {
            let room = MAX_BODY_BYTES - body.len();
            body.extend_from_slice(data.get(..room).unwrap_or(data));
        };
        match self.read_body(&head.body, recording, keep).await {
            Ok(true) => {}
            Ok(false) => return visitor_left(recording),
            Err(error) => {
                self.reject_request(error.into(), recording).await;
                return GONE;
            }
        }
        let delay = mock.action.delay();
        if !delay.is_zero() && self.while_present(tokio::time::sleep(delay)).await.is_none() {
            return visitor_left(recording);
        }
        let id = recording.map_or("", |recording| &recording.record().id);
        let request = request_view(&self.front.tunnel_name, head, bytes);
        let made =
            mock.action.build_response(&TemplateValues { request, body: &body, id }, head.is_head);
        let half = made.body.len() / 2;
        let sent = match mock.action.fault() {
            None => &made.body,
            Some(MockFault::Truncate) if half > 0 => &made.body[..half],
            Some(_) => {
                let fail =
                    |recording: &Recording| recording.mark_failed("the mock reset the connection");
                recording.into_iter().for_each(fail);
                self.activity.reset_stream();
                return GONE;
            }
        };
        let keep_alive = self.send_mock(&made, sent, recording).await && head.keep_alive;
        Interception::Answered { keep_alive }
    }

    /// Sends the head of a mock's response and the first bytes of its body. Returns true if all of it was sent.
    async fn send_mock(
        &mut self,
        made: &MadeResponse,
        sent: &[u8],
        recording: Option<&Recording>,
    ) -> bool {
        self.status.store(made.status, Ordering::Relaxed);
        let is_whole = sent.len() == made.body.len();
        if let Some(recording) = recording {
            recording.response_head(&made.head, &Body::NONE);
            recording.response_body(sent);
            match is_whole {
                true => recording.mark_complete(),
                false => recording.mark_failed("the mock truncated the response"),
            }
        }
        let written = self.write.write_all(&[&made.head, sent].concat()).await;
        let is_sent = written.is_ok() && self.write.flush().await.is_ok();
        is_whole && is_sent
    }

    /// Has a request wait until somebody decides, its time is over, or the tunnel ends.
    async fn hold_request(
        &mut self,
        mut ticket: HoldTicket,
        head: RelayRequest,
        bytes: Bytes,
        recording: &Recording,
    ) -> Interception {
        let deadline = Instant::now() + ticket.max_wait();
        recording.begin_hold(ticket.hold_id());
        self.send_continue(&head.body, &bytes).await;
        self.send_interim(HOLD_NOTICE).await;
        let until = deadline.min(Instant::now() + BODY_TIMEOUT);
        let mut body = WaitingBody::default();
        let is_whole = tokio::select! {
            biased;
            // Its hold went before anybody saw the request.
            _ = ticket.wait_for_decision() => {
                recording.end_hold();
                recording.resume_request(&bytes, &head.body);
                return Interception::Forward(head, bytes);
            }
            is_whole = tokio::time::timeout_at(until, self.read_waiting(&head.body, &mut body)) => {
                is_whole
            }
        };
        let is_whole = or_debug!(is_whole, "the body of a held request did not arrive in time");
        let length = body.length;
        let request = captured_message(&head, &bytes, body, is_whole == Some(true));
        recording.record_held_request(&request);
        ticket.publish_request(recording.record().clone(), request);
        let decision = self.wait_for_decision(&mut ticket, deadline).await;
        recording.end_hold();
        match decision {
            Some(HoldDecision::Release) => {
                recording.resume_request(&bytes, &head.body);
                Interception::Forward(head, bytes)
            }
            Some(HoldDecision::Change(raw)) => {
                self.replace_request(&head, &raw, length, recording).await
            }
            Some(HoldDecision::Refuse(status, text)) => {
                self.reject_held(status, &text, recording).await
            }
            None => visitor_left(Some(recording)),
        }
    }

    /// How the wait of a request ends; none where the visitor leaves.
    async fn wait_for_decision(
        &mut self,
        ticket: &mut HoldTicket,
        deadline: Instant,
    ) -> Option<HoldDecision> {
        let shutdown = self.activity.wait_for_shutdown();
        let waited = self.while_present(async {
            tokio::select! {
                decision = ticket.wait_for_decision() => Some(decision),
                () = tokio::time::sleep_until(deadline) => None,
                () = shutdown => None,
            }
        });
        let waited = waited.await?;
        Some(waited.unwrap_or_else(|| ticket.abandon_wait()))
    }

    /// Puts another request in place of one that waited, whose body takes so many bytes in the buffer.
    async fn replace_request(
        &mut self,
        head: &RelayRequest,
        raw: &[u8],
        length: usize,
        recording: &Recording,
    ) -> Interception {
        let mut buffer = BytesMut::from(raw);
        match relayed_head::take_request(&mut buffer) {
            Ok(Some((changed, bytes))) => {
                self.buffer.advance(length);
                buffer.extend_from_slice(&self.buffer);
                self.buffer = buffer;
                recording.edit_request(&bytes, &changed.body);
                // The visitor is still the one who named this host, and who decides on its connection.
                let host = head.host.clone();
                let keep_alive = head.keep_alive && changed.keep_alive;
                Interception::Forward(RelayRequest { host, keep_alive, ..changed }, bytes)
            }
            // It was made by us, and is checked all the same.
            Ok(None) => GONE,
            Err(error) => {
                self.reject_request(error, Some(recording)).await;
                GONE
            }
        }
    }

    async fn reject_held(
        &mut self,
        status: u16,
        text: &str,
        recording: &Recording,
    ) -> Interception {
        const REASON: &str = "The request was refused while it was held.";
        self.status.store(status, Ordering::Relaxed);
        let mut response = Vec::new();
        if text.is_empty() {
            response = page::problem_page(status, "", "The request was refused", REASON);
        } else {
            HeadWriter::begin_response(status, &mut response)
                .field("Content-Type", "text/plain; charset=utf-8")
                .display_field("Content-Length", text.len())
                .field("Connection", "close")
                .end();
            response.extend_from_slice(text.as_bytes());
        }
        recording.record_agent_response(&response, REASON);
        or_debug!(
            self.write.write_all(&response).await,
            "the visitor has gone before the response"
        );
        GONE
    }

    /// Tells a visitor who waits for that to send the body.
    async fn send_continue(&mut self, body: &Body, head: &[u8]) {
        let mut fields = ginnel_http1::fields_in(ginnel_http1::after_first_line(head));
        let expects = |(name, value): (&[u8], &[u8])| {
            name.eq_ignore_ascii_case(b"expect") && value.eq_ignore_ascii_case(b"100-continue")
        };
        if !body.is_done() && self.buffer.is_empty() && fields.any(expects) {
            self.send_interim(CONTINUE).await;
        }
    }

    async fn send_interim(&mut self, head: &[u8]) {
        or_debug!(self.write.write_all(head).await, "the visitor has gone before the response");
        or_debug!(self.write.flush().await, "the visitor has gone before the response");
    }

    /// Reads a body and leaves it where it is; false where it is too long, malformed or cut off.
    async fn read_waiting(&mut self, body: &Body, waiting: &mut WaitingBody) -> bool {
        let mut body = body.clone();
        let WaitingBody { length, data, trailer } = waiting;
        loop {
            let bytes = self.buffer.get(*length..).unwrap_or_default();
            let keep = |piece: &[u8]| data.extend_from_slice(piece);
            match body.take_all(bytes, keep, |byte| trailer.push(byte)) {
                Ok(taken) => *length += taken,
                Err(_) => return false,
            }
            if body.is_done() {
                return true;
            }
            let is_over = *length > MAX_BODY_BYTES;
            if is_over || !matches!(self.read.read_buf(&mut self.buffer).await, Ok(1..)) {
                return false;
            }
        }
    }

    /// Waits for something as long as the visitor is there; none where that has left.
    async fn while_present<T>(&mut self, work: impl Future<Output = T>) -> Option<T> {
        let mut work = std::pin::pin!(work);
        let most = self.buffer.len() + MAX_READ_AHEAD_BYTES;
        loop {
            tokio::select! {
                biased;
                done = &mut work => return Some(done),
                read = self.read.read_buf(&mut self.buffer), if self.buffer.len() < most => {
                    if !matches!(read, Ok(1..)) {
                        return None;
                    }
                }
            }
        }
    }
}

/// What rules see of a request.
fn request_view<'a>(
    tunnel_name: &'a str,
    head: &'a RelayRequest,
    bytes: &'a [u8],
) -> RequestView<'a> {
    let host = head.host.as_deref().and_then(|host| std::str::from_utf8(host).ok());
    RequestView { tunnel_name, host: host.unwrap_or_default(), target: &head.target, head: bytes }
}

/// A request that waits, with what has come of its body.
fn captured_message(
    head: &RelayRequest,
    bytes: &[u8],
    body: WaitingBody,
    is_whole: bool,
) -> CapturedMessage {
    let mut message = CapturedMessage::new(bytes, head.body.is_chunked());
    message.body_length = body.data.len() as u64;
    message.body = body.data.into();
    message.cut_off = !is_whole;
    if is_whole {
        message.trailer = body.trailer;
    }
    message
}

/// The end for a visitor who has left.
fn visitor_left(recording: Option<&Recording>) -> Interception {
    if let Some(recording) = recording {
        recording.mark_failed(VISITOR_LEFT);
    }
    GONE
}
