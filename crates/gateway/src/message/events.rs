//! What was decided, told to whoever wants to know: one event for each request and connection.
//!
//! Nobody waits for a listener: who falls behind misses events and learns how many.

use std::borrow::Cow;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::time::Instant;

use chrono::{SecondsFormat, Utc};
use http::header::{HOST, HeaderValue};
use http::{Request, Response};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;

use ginnel_api::mask;
use ginnel_http1::request_target;
use ginnel_net::{Shutdown, ShutdownPhase, ShutdownSignal};
use ginnel_policy::expression::Expression;
use ginnel_policy::{Carried, PhaseDecision, Policy};

use crate::message::error_response::ERROR_CODE;
use crate::message::visitor::Visitor;
use crate::request_phase::RequestPhase;

/// How many events a listener may fall behind.
const MAX_EVENT_BACKLOG: usize = 1024;

/// What happened to one request, or to one connection of bytes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// When it was decided, RFC 3339.
    pub time: String,
    /// The name of the request, as visitor and upstream have it in `X-Request-Id`; none where requests
    /// get none.
    pub request_id: Option<String>,
    /// The name of the node that has served it; none for this one.
    #[serde(default)]
    pub node: Option<String>,
    /// What the visitor spoke: `http`, `https`, `tcp` or `tls`.
    pub proto: Cow<'static, str>,
    /// Where the visitor came from.
    pub peer: SocketAddr,
    /// The method; none for a connection of bytes.
    pub method: Option<String>,
    /// The host that was asked for.
    pub host: Option<String>,
    /// The path with its query.
    pub path: Option<String>,
    /// The status of the answer; none for a connection of bytes, or one that was closed instead.
    pub status: Option<u16>,
    /// The code of the answer, where the service itself answered.
    pub code: Option<String>,
    /// The edge; none for the endpoint of an agent.
    pub edge_id: Option<String>,
    /// The route.
    pub route_id: Option<String>,
    /// The backend that took it.
    pub backend_id: Option<String>,
    /// The module that turned it away or answered it, such as `ip_restriction` or `policy`.
    pub module: Option<Cow<'static, str>>,
    /// The rule of the policy that did.
    pub rule: Option<String>,
    /// The action of the rule.
    pub action: Option<String>,
    /// The expressions of the rule, all of which were true.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub expressions: Vec<String>,
    /// What actions logged.
    pub logs: Vec<Value>,
    /// From the head of the request to the head of the answer, or from opening to closing, in
    /// milliseconds.
    pub duration_ms: f64,
    /// The bytes that the visitor has sent; none for a request, whose event comes before its body.
    #[serde(default)]
    pub received_bytes: Option<u64>,
    /// The bytes that the visitor was sent; none for a request, whose event comes before its body.
    #[serde(default)]
    pub sent_bytes: Option<u64>,
    /// Whether it was a request that delivered an event of this service.
    #[serde(skip)]
    pub delivers_event: bool,
    /// The last phase that the request has entered. Only the log has it.
    #[serde(skip)]
    pub phase: RequestPhase,
}

impl Event {
    /// Tells the log how the request ended, without what its query and its headers say.
    fn log_end(&self) {
        let target = self.path.as_deref().map(|path| path.split('?').next().unwrap_or_default());
        tracing::debug!(
            edge = self.edge_id,
            status = self.status,
            dur_ms = self.duration_ms,
            peer = %self.peer,
            err = self.code,
            phase = self.phase.name(),
            module = self.module.as_deref(),
            method = self.method,
            path = target.map(mask::target).as_deref(),
            "a request or a connection of a visitor has ended"
        );
    }

    /// The event as it may be printed: without secrets.
    pub fn masked(&self) -> Self {
        let mut masked = self.clone();
        masked.host = self.host.as_deref().map(|host| host_of(host).to_owned());
        masked.path = self.path.as_deref().map(|path| mask::target(path).into_owned());
        masked.logs.iter_mut().for_each(mask::value);
        masked
    }
}

/// A host and its port, without who asks for it.
fn host_of(authority: &str) -> &str {
    authority.rsplit_once('@').map_or(authority, |(_, host)| host)
}

/// Where events are heard.
pub struct EventSubscriber {
    receiver: broadcast::Receiver<Arc<Event>>,
    shutdown: ShutdownSignal,
    wish: Option<RemoteWish>,
}

/// The wish for the events of other nodes; dropping it takes it back.
struct RemoteWish(Arc<AtomicUsize>);

impl Drop for RemoteWish {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

/// What a listener hears.
#[derive(Debug, Clone)]
pub enum EventDelivery {
    /// An event.
    Event(Arc<Event>),
    /// So many events were missed, because the listener was slow.
    Missed(u64),
}

impl EventSubscriber {
    /// The next event; none when the service has ended.
    pub async fn next(&mut self) -> Option<EventDelivery> {
        loop {
            return match self
                .shutdown
                .run_until(ShutdownPhase::Forced, self.receiver.recv())
                .await?
            {
                Ok(event) if event.node.is_some() && self.wish.is_none() => continue,
                Ok(event) => Some(EventDelivery::Event(event)),
                Err(RecvError::Lagged(missed)) => Some(EventDelivery::Missed(missed)),
                Err(RecvError::Closed) => None,
            };
        }
    }
}

/// Where events are told.
pub struct EventBus {
    sender: broadcast::Sender<Arc<Event>>,
    /// False while nobody listens; a request looks here first, because it costs next to nothing.
    subscribed: AtomicBool,
    /// How many want the events of other nodes as well.
    remote_wishes: Arc<AtomicUsize>,
    /// Of those who listen; nobody waits for them.
    shutdown: Shutdown,
}

impl Default for EventBus {
    fn default() -> Self {
        Self {
            sender: broadcast::Sender::new(MAX_EVENT_BACKLOG),
            subscribed: AtomicBool::new(false),
            remote_wishes: Arc::default(),
            shutdown: Shutdown::default(),
        }
    }
}

impl EventBus {
    /// Listens from now on, also to what other nodes tell.
    pub fn subscribe(&self) -> EventSubscriber {
        self.remote_wishes.fetch_add(1, Relaxed);
        EventSubscriber {
            wish: Some(RemoteWish(self.remote_wishes.clone())),
            ..self.subscribe_locally()
        }
    }

    /// Listens from now on, and does not ask other nodes.
    pub fn subscribe_locally(&self) -> EventSubscriber {
        let (receiver, shutdown) = (self.sender.subscribe(), self.shutdown.signal());
        let events = EventSubscriber { receiver, shutdown, wish: None };
        self.subscribed.store(true, Release);
        events
    }

    /// Whether somebody wants the events of other nodes.
    pub fn wants_remote(&self) -> bool {
        self.remote_wishes.load(Relaxed) > 0
    }

    /// Nothing more happens.
    pub fn close(&self) {
        self.shutdown.begin_phase(ShutdownPhase::Forced);
    }

    /// Whether anybody listens.
    pub fn has_subscribers(&self) -> bool {
        self.subscribed.load(Relaxed) || tracing::enabled!(tracing::Level::DEBUG)
    }

    /// Follows a request, if anybody wants to know.
    pub fn trace_request(&self) -> RequestTrace {
        let record = self.has_subscribers().then(Box::default);
        RequestTrace { phase: RequestPhase::default(), record }
    }

    /// Tells of an event.
    pub fn publish(&self, event: Event) {
        event.log_end();
        self.broadcast_event(event);
    }

    /// Tells of an event of another node, which has logged it.
    pub fn broadcast_event(&self, event: Event) {
        if !self.subscribed.load(Relaxed) {
            return;
        }
        if self.sender.send(Arc::new(event)).is_err() {
            self.subscribed.store(false, Release);
            // Somebody may have come between the two.
            self.subscribed.fetch_or(self.sender.receiver_count() > 0, Release);
        }
    }
}

/// What is known of a request on its way; nothing unless somebody listens.
#[derive(Default)]
pub struct RequestTrace {
    /// The last phase that the request has entered.
    phase: RequestPhase,
    record: Option<Box<TraceRecord>>,
}

/// What is known of a request.
pub struct TraceRecord {
    since: Instant,
    pub request_id: Option<String>,
    method: Option<String>,
    pub host: Option<String>,
    path: Option<String>,
    pub edge_id: Option<Arc<str>>,
    pub route_id: Option<Arc<str>>,
    pub backend_id: Option<Arc<str>>,
    pub module: Option<&'static str>,
    pub rule: Option<String>,
    pub action: Option<String>,
    pub expressions: Vec<String>,
    pub logs: Vec<Value>,
    /// What a connection of bytes has carried.
    pub carried: Option<Carried>,
    pub delivers_event: bool,
}

impl Default for TraceRecord {
    fn default() -> Self {
        Self {
            since: Instant::now(),
            request_id: None,
            method: None,
            host: None,
            path: None,
            edge_id: None,
            route_id: None,
            backend_id: None,
            module: None,
            rule: None,
            action: None,
            expressions: Vec::new(),
            logs: Vec::new(),
            carried: None,
            delivers_event: false,
        }
    }
}

impl RequestTrace {
    /// Notes the phase that the request enters.
    pub fn enter(&mut self, phase: RequestPhase) {
        self.phase = phase;
    }

    /// The last phase that the request has entered.
    pub fn phase(&self) -> RequestPhase {
        self.phase
    }

    /// Notes something down, if anybody wants to know.
    pub fn update_record(&mut self, note: impl FnOnce(&mut TraceRecord)) {
        if let Some(record) = &mut self.record {
            note(record);
        }
    }

    /// Notes which rule of a policy decided.
    pub fn record_decision(&mut self, module: &'static str, policy: &Policy, by: PhaseDecision) {
        self.update_record(|it| {
            let rule = policy.rules(by.phase).get(by.rule);
            let sources = rule.map(|rule| rule.expressions.iter().map(Expression::source));
            it.expressions = sources.into_iter().flatten().map(str::to_owned).collect();
            it.module = Some(module);
            it.action = Some(by.action.to_owned());
            it.rule = Some(match by.rule_name {
                name if name.is_empty() => by.rule.to_string(),
                name => name,
            });
        });
    }

    /// Leaves it to others to tell of the request.
    pub fn discard(&mut self) {
        self.record = None;
    }

    /// Notes what a request asks for.
    pub fn record_request<B>(&mut self, request: &Request<B>) {
        self.update_record(|it| {
            let host = request.headers().get(HOST).map(header_text);
            it.host = host.or_else(|| request.uri().authority().map(ToString::to_string));
            it.method = Some(request.method().to_string());
            let path = request.uri().path_and_query();
            it.path = path.map(|_| request_target(request.uri(), request.extensions()).to_owned());
        });
    }

    /// Tells how a request ended; none when it was closed without an answer.
    pub fn publish_outcome<B>(
        self,
        to: &EventBus,
        visitor: &Visitor,
        answer: Option<&Response<B>>,
    ) {
        let Some(record) = self.record else { return };
        let owned = |id: Option<Arc<str>>| id.filter(|id| !id.is_empty()).map(|id| id.to_string());
        to.publish(Event {
            time: Utc::now().to_rfc3339_opts(SecondsFormat::Millis, true),
            request_id: record.request_id,
            node: None,
            proto: visitor.proto.into(),
            peer: visitor.peer,
            method: record.method,
            host: record.host,
            path: record.path,
            status: answer.map(|answer| answer.status().as_u16()),
            code: answer.and_then(|answer| answer.headers().get(ERROR_CODE)).map(header_text),
            edge_id: owned(record.edge_id),
            route_id: owned(record.route_id),
            backend_id: owned(record.backend_id),
            module: record.module.map(Cow::Borrowed),
            rule: record.rule,
            action: record.action,
            expressions: record.expressions,
            logs: record.logs,
            duration_ms: record.since.elapsed().as_secs_f64() * 1000.0,
            received_bytes: record.carried.map(|carried| carried.received),
            sent_bytes: record.carried.map(|carried| carried.sent),
            delivers_event: record.delivers_event,
            phase: self.phase,
        });
    }
}

fn header_text(value: &HeaderValue) -> String {
    String::from_utf8_lossy(value.as_bytes()).into_owned()
}
