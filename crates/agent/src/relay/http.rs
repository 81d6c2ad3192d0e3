//! One connection of a visitor to an HTTP tunnel: one request after the other.

use std::borrow::Cow;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::{Buf, Bytes, BytesMut};
use http::HeaderName;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt, ReadBuf};
use tokio::sync::oneshot;

use ginnel_api::local::requests::PolicyRule;
use ginnel_base::logging::{ignore, or_debug};
use ginnel_http1::{Body, FramingError, GoingAway, HeadError};
use ginnel_metrics::CodeCounts;

use super::exchange::{BUFFER_BYTES, LocalConnection, RelayError, RelayExchange, RelayOutcome};
use super::interception::Interception;
use super::relayed_head::{self, RelayRequest};
use super::websocket::RecordedSocket;
use super::{Activity, BoxReader, BoxWriter, HostHeader, LocalUpstream, page, rewrite, rules};
use crate::capture::{CaptureSource, CaptureStore, NewCapture, Recording, StreamSide};
use crate::intercept::Interceptors;
use crate::metrics::TunnelMetrics;
use crate::traffic::EndedExchange;

/// How long the body of a request is waited for that no local service takes.
const BODY_CAPTURE_TIMEOUT: Duration = Duration::from_secs(1);

/// An HTTP tunnel as its visitors meet it.
#[derive(Debug)]
pub struct HttpForwarder {
    /// The name of the tunnel.
    pub tunnel_name: String,
    /// Where requests go.
    pub upstream: LocalUpstream,
    /// What stands in `Host`.
    pub host_header: HostHeader,
    /// The scheme of the public address.
    pub scheme: &'static str,
    /// Where requests are recorded; none when the tunnel is not inspected.
    pub captures: Option<Arc<CaptureStore>>,
    /// Where the service says which rules acted on a request; none where it is not asked.
    pub rules_header: Option<HeaderName>,
    /// What the tunnel has carried.
    pub metrics: Arc<TunnelMetrics>,
    /// How its requests end, with those of other tunnels of its kind.
    pub responses: Arc<CodeCounts>,
    /// What requests meet before they are sent.
    pub interceptors: Arc<Interceptors>,
}

impl HttpForwarder {
    /// The same tunnel with another local service.
    pub(crate) fn leading_to(&self, upstream: LocalUpstream) -> Self {
        Self {
            tunnel_name: self.tunnel_name.clone(),
            upstream,
            host_header: self.host_header.clone(),
            scheme: self.scheme,
            captures: self.captures.clone(),
            rules_header: self.rules_header.clone(),
            metrics: self.metrics.clone(),
            responses: self.responses.clone(),
            interceptors: self.interceptors.clone(),
        }
    }

    /// The host that local services see instead of the public one, where it differs.
    pub(super) fn local_host(&self) -> Option<Cow<'_, str>> {
        match &self.host_header {
            HostHeader::Preserve => None,
            HostHeader::Rewrite => Some(self.upstream.address().host_header().into()),
            HostHeader::Value(value) => Some(value.into()),
        }
    }
}

/// Serves the requests of one connection until it ends.
///
/// `source` is where they come from, and `activity` learns whether there is one.
pub async fn serve_connection(
    front: &HttpForwarder,
    visitor: (BoxReader, BoxWriter),
    source: CaptureSource,
    activity: &Activity<'_>,
) {
    let (read, write) = visitor;
    let buffer = BytesMut::with_capacity(BUFFER_BYTES);
    let source = Arc::new(source);
    let status = AtomicU16::new(0);
    let mut visit = Visit {
        front,
        read,
        write,
        buffer,
        local: None,
        source,
        opened: None,
        activity,
        status: &status,
    };
    while visit.serve_one().await {}
    ignore(
        visit.write.shutdown().await,
        "whether the visitor still listens does not matter any more",
    );
}

/// Serves one whole request that nobody waits for: the answer goes to the record alone.
///
/// `opened` hears the identifier of the record, where the tunnel is inspected, and `activity` knows when that
/// ends. `status` is that of the response as soon as it has begun, also where this is dropped before its end;
/// 0 until then.
pub async fn serve_replay(
    front: &HttpForwarder,
    request: Vec<u8>,
    source: Arc<CaptureSource>,
    opened: oneshot::Sender<String>,
    activity: &Activity<'_>,
    status: &AtomicU16,
) {
    let mut visit = Visit {
        front,
        read: Box::pin(SilentVisitor),
        write: Box::pin(tokio::io::sink()),
        buffer: BytesMut::from(request.as_slice()),
        local: None,
        source,
        opened: Some(opened),
        activity,
        status,
    };
    visit.serve_one().await;
}

/// A visitor who says nothing more and does not leave.
struct SilentVisitor;

impl AsyncRead for SilentVisitor {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        _: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Poll::Pending
    }
}

/// A connection of a visitor.
pub(super) struct Visit<'a> {
    pub front: &'a HttpForwarder,
    pub read: BoxReader,
    pub write: BoxWriter,
    /// What was read of the visitor and not used yet.
    pub buffer: BytesMut,
    /// The connection to the local service, between requests.
    local: Option<LocalConnection>,
    source: Arc<CaptureSource>,
    /// Hears the identifier of the next record.
    opened: Option<oneshot::Sender<String>>,
    /// Learns whether there is a request.
    pub activity: &'a Activity<'a>,
    /// The status of the response that has begun; 0 until then.
    pub status: &'a AtomicU16,
}

impl Visit<'_> {
    /// Serves one request; says whether another may follow.
    async fn serve_one(&mut self) -> bool {
        self.activity.end_turn();
        let (head, bytes) = match self.next_head().await {
            Ok(Some(taken)) => taken,
            Ok(None) => return false,
            Err(error) => {
                self.reject_request(error, None).await;
                return false;
            }
        };
        self.activity.begin_turn();
        self.status.store(0, Ordering::Relaxed);
        let started = Instant::now();
        self.front.metrics.request_started(started);
        let (bytes, rules) = self.without_rules(&head, bytes);
        let bytes = self.rewrite_host(&head, bytes);
        let recording = self.start_recording(&head, &bytes);
        if let Some(recording) = recording.as_ref().filter(|_| !rules.is_empty()) {
            recording.set_rules(rules);
        }
        if let (Some(recording), Some(opened)) = (&recording, self.opened.take()) {
            let sent = opened.send(recording.record().id.clone());
            ignore(sent, "whoever sent the request may not wait for it any more");
        }
        let interception = match self.front.interceptors.is_on() {
            true => Box::pin(self.intercept_request(head, bytes, recording.as_ref())).await,
            false => Interception::Forward(head, bytes),
        };
        let again = match interception {
            Interception::Forward(head, bytes) => {
                self.forward_request(&head, &bytes, recording.as_ref()).await
            }
            Interception::Answered { keep_alive } => keep_alive,
        };
        self.count_request(recording.as_ref(), started);
        again
    }

    /// Counts and logs a request that has ended.
    fn count_request(&self, recording: Option<&Recording>, started: Instant) {
        let ended = Instant::now();
        if tracing::enabled!(tracing::Level::DEBUG) {
            self.log_request(recording, ended.duration_since(started));
        }
        let status = self.status.load(Ordering::Relaxed);
        self.front.responses.count_status(status);
        let [received, sent] = recording.map_or([0, 0], Recording::body_lengths);
        self.front.metrics.exchange_ended(&EndedExchange {
            started,
            took: (status != 101).then(|| ended.duration_since(started)),
            is_failed: status == 0
                || status >= 500
                || recording.is_some_and(Recording::is_failed_call),
            received,
            sent,
        });
        self.front.metrics.request_finished(ended.duration_since(started), ended);
    }

    /// Tells that a request has ended.
    fn log_request(&self, recording: Option<&Recording>, duration: Duration) {
        let record = recording.map(|recording| recording.record());
        let status = record.and_then(|it| {
            it.lock_exchange().response.as_ref()?.start_line()[1].parse::<u64>().ok()
        });
        tracing::debug!(
            request_id = record.map(|record| record.id.as_str()),
            tunnel = self.front.tunnel_name,
            status,
            dur_ms = duration.as_secs_f64() * 1000.0,
            "a request has ended"
        );
    }

    /// The next head; none when the visitor is done.
    async fn next_head(&mut self) -> Result<Option<(RelayRequest, Bytes)>, HeadError> {
        loop {
            if let Some(taken) = relayed_head::take_request(&mut self.buffer)? {
                return Ok(Some(taken));
            }
            let Some(local) = &mut self.local else {
                match self.read.read_buf(&mut self.buffer).await {
                    Ok(1..) => continue,
                    _ => return Ok(None),
                }
            };
            tokio::select! {
                biased;
                read = self.read.read_buf(&mut self.buffer) => match read {
                    Ok(1..) => {}
                    _ => return Ok(None),
                },
                // Whatever a local service sends unasked, its connection is of no more use.
                () = local.watch_idle() => self.local = None,
            }
        }
    }

    /// The head as visitors and policies made it, and the rules that acted on it.
    fn without_rules(&self, head: &RelayRequest, bytes: Bytes) -> (Bytes, Vec<PolicyRule>) {
        match self.front.rules_header.as_ref().filter(|_| head.may_name_rules) {
            Some(name) => rules::take_rules(&bytes, name.as_str()),
            None => (bytes, Vec::new()),
        }
    }

    fn rewrite_host(&self, head: &RelayRequest, bytes: Bytes) -> Bytes {
        match self.front.local_host() {
            None => bytes,
            Some(host) => rewrite::rewrite_request_head(&bytes, head.host.as_deref(), &host).into(),
        }
    }

    fn start_recording(&self, head: &RelayRequest, bytes: &[u8]) -> Option<Recording> {
        let captures = self.front.captures.as_ref()?;
        Some(captures.start_recording(NewCapture {
            tunnel_name: &self.front.tunnel_name,
            source: self.source.clone(),
            head: bytes,
            body: &head.body,
        }))
    }

    /// Sends the request on and the answer back; says whether another request may follow.
    async fn forward_request(
        &mut self,
        head: &RelayRequest,
        bytes: &[u8],
        recording: Option<&Recording>,
    ) -> bool {
        let proper = head.has_improper_upgrade.then(|| rewrite::without_improper_upgrades(bytes));
        let bytes = proper.as_deref().unwrap_or(bytes);
        loop {
            let Some(mut local) = self.connect_local(head, recording).await else { return false };
            let outcome = RelayExchange {
                front: self.front,
                head,
                recording,
                read: &mut self.read,
                write: &mut self.write,
                buffer: &mut self.buffer,
                activity: self.activity,
                status: self.status,
            }
            .run(bytes, &mut local)
            .await;
            match outcome {
                Ok(RelayOutcome::Complete { keep_alive, reuse_local }) => {
                    self.local = reuse_local.then_some(local);
                    return keep_alive;
                }
                Ok(RelayOutcome::Upgraded) => {
                    let recorded = recording.filter(|_| head.is_websocket);
                    self.become_tunnel(local, head.is_websocket, recorded).await;
                    return false;
                }
                // The local service closed a connection that it had kept, just as we used it.
                Err(RelayError::Unanswered(_))
                    if local.reused && head.is_idempotent && head.body.is_done() => {}
                Err(error) => {
                    self.fail_exchange(error, recording).await;
                    return false;
                }
            }
        }
    }

    /// Returns an idle connection to the local service, or a new one. If there is none, the visitor has got a response.
    async fn connect_local(
        &mut self,
        head: &RelayRequest,
        recording: Option<&Recording>,
    ) -> Option<LocalConnection> {
        let began = recording.map(|_| Instant::now());
        if let Some(local) = self.idle_local() {
            mark_connection(recording, began, began);
            return Some(local);
        }
        match self.front.upstream.connect().await {
            Ok(connected) => {
                mark_connection(recording, began, began.map(|_| Instant::now()));
                Some(LocalConnection::new(connected))
            }
            Err(error) => {
                mark_connection(recording, began, None);
                let tunnel = self.front.tunnel_name.as_str();
                tracing::debug!(tunnel, err = %error, "cannot connect to the local service");
                let reason = self.describe_unreachable(&error);
                self.capture_unsent_body(head, recording).await;
                self.send_bad_gateway(&reason, recording).await;
                None
            }
        }
    }

    /// Responds to the visitor of an exchange that failed, if no response has begun.
    async fn fail_exchange(&mut self, error: RelayError, recording: Option<&Recording>) {
        let tunnel = self.front.tunnel_name.as_str();
        match error {
            RelayError::Unanswered(reason) => {
                tracing::debug!(tunnel, err = reason, "the local service did not answer");
                self.send_bad_gateway(&reason, recording).await;
            }
            RelayError::Malformed(error) => self.reject_request(error.into(), recording).await,
            RelayError::Broken(error) => {
                tracing::debug!(tunnel, err = %error, "a request broke off");
                if let Some(recording) = recording {
                    recording.mark_failed(&error);
                }
            }
        }
    }

    /// The connection of the last request, where it can carry another.
    fn idle_local(&mut self) -> Option<LocalConnection> {
        let mut local = self.local.take()?;
        local.is_reusable().then_some(local)
    }

    /// Records the body that nobody takes, so that the request can be replayed when somebody does.
    async fn capture_unsent_body(&mut self, head: &RelayRequest, recording: Option<&Recording>) {
        let Some(recording) = recording else { return };
        let reading = self.read_body(&head.body, Some(recording), |_| {});
        let read = tokio::time::timeout(BODY_CAPTURE_TIMEOUT, reading).await;
        let read = or_debug!(read, "the rest of the request's body did not arrive in time");
        read.map(|read| or_debug!(read, "the request's body cannot be followed"));
    }

    /// Takes and records a body that no local service gets; true when all of it came.
    ///
    /// # Errors
    /// When its framing is broken.
    pub(super) async fn read_body(
        &mut self,
        body: &Body,
        recording: Option<&Recording>,
        mut each: impl FnMut(&[u8]),
    ) -> Result<bool, FramingError> {
        let (mut body, mut trailer) = (body.clone(), Vec::new());
        while !body.is_done() {
            if self.buffer.is_empty()
                && !matches!(self.read.read_buf(&mut self.buffer).await, Ok(1..))
            {
                return Ok(false);
            }
            let record = |data: &[u8]| {
                recording.into_iter().for_each(|recording| recording.request_body(data));
                each(data);
            };
            let taken = body.take_all(&self.buffer, record, |byte| trailer.push(byte))?;
            self.buffer.advance(taken);
        }
        if let Some(recording) = recording {
            recording.request_complete(&trailer);
        }
        Ok(true)
    }

    fn describe_unreachable(&self, error: &std::io::Error) -> String {
        let address = self.front.upstream.address().to_string();
        format!("The agent could not connect to the local service at {address}: {error}.")
    }

    /// Says that the local service gave no answer, and why.
    async fn send_bad_gateway(&mut self, reason: &str, recording: Option<&Recording>) {
        let title = "The local service did not respond";
        self.status.store(502, Ordering::Relaxed);
        let answer = page::problem_page(502, "ERR_NGROK_8012", title, reason);
        if let Some(recording) = recording {
            recording.record_agent_response(&answer, reason);
        }
        // The visitor may be gone as well.
        or_debug!(self.write.write_all(&answer).await, "the visitor has gone before the response");
    }

    pub(super) async fn reject_request(&mut self, error: HeadError, recording: Option<&Recording>) {
        let status =
            if matches!(error, HeadError::TooLong | HeadError::TooMany) { 431 } else { 400 };
        self.status.store(status, Ordering::Relaxed);
        let answer =
            page::problem_page(status, "", "The request was refused", &format!("{error}."));
        if let Some(recording) = recording {
            recording.record_agent_response(&answer, &error.to_string());
        }
        or_debug!(self.write.write_all(&answer).await, "the visitor has gone before the response");
    }

    /// Copies both ways from now on: the connection speaks another protocol.
    async fn become_tunnel(
        &mut self,
        mut local: LocalConnection,
        is_websocket: bool,
        recorded: Option<&Recording>,
    ) {
        let early_messages = recorded.map(|_| self.buffer.clone());
        if local.write.write_all(&self.buffer).await.is_err() {
            return;
        }
        let early = io::Cursor::new(std::mem::take(&mut local.buffer));
        let mut answers: BoxReader = Box::pin(AsyncReadExt::chain(early, local.read));
        if is_websocket {
            answers = Box::pin(GoingAway::new(answers, self.activity.wait_for_shutdown()));
        }
        let (activity, reset) = (self.activity, &local.reset);
        let copied = match recorded {
            None => {
                let visitor = (&mut self.read, &mut self.write);
                super::copy_bidirectional(
                    visitor,
                    activity,
                    (&mut answers, &mut local.write),
                    reset,
                )
                .await
            }
            Some(recording) => {
                recording.begin_socket();
                let mut asking = RecordedSocket::new(&mut self.read, StreamSide::Client, recording);
                asking.follow_bytes(&early_messages.unwrap_or_default());
                let mut answering =
                    RecordedSocket::new(&mut answers, StreamSide::Server, recording);
                let (visitor, local) =
                    ((&mut asking, &mut self.write), (&mut answering, &mut local.write));
                Box::pin(super::copy_bidirectional(visitor, activity, local, reset)).await
            }
        };
        // Either side may end it whenever it likes.
        or_debug!(copied, "a WebSocket broke");
    }
}

/// Records when a connection was begun, and when there was one.
fn mark_connection(
    recording: Option<&Recording>,
    began: Option<Instant>,
    connected: Option<Instant>,
) {
    if let (Some(recording), Some(began)) = (recording, began) {
        recording.mark_connected(began, connected);
    }
}
