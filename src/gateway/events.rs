//! What was decided, told to whoever wants to know: one event for each request and connection.
//!
//! Nobody waits for a listener: who falls behind misses events and learns how many.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Relaxed, Release};
use std::time::Instant;

use chrono::{SecondsFormat, Utc};
use http::header::{HOST, HeaderValue};
use http::{Request, Response};
use serde::Serialize;
use serde_json::Value;
use tokio::sync::{broadcast, watch};

use crate::api::mask;
use crate::gateway::http::error_response::ERROR_CODE;
use crate::gateway::routing::target::Visitor;

/// How many events a listener may fall behind.
const BEHIND: usize = 1024;

/// What happened to one request, or to one connection of bytes.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Event {
    /// When it was decided, RFC 3339.
    pub time: String,
    /// What the visitor spoke: `http`, `https`, `tcp` or `tls`.
    pub proto: &'static str,
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
    pub module: Option<&'static str>,
    /// The rule of the policy that did.
    pub rule: Option<String>,
    /// The action of the rule.
    pub action: Option<String>,
    /// What actions logged.
    pub logs: Vec<Value>,
    /// From the head of the request to the head of the answer, or from opening to closing, in
    /// milliseconds.
    pub duration_ms: f64,
}

impl Event {
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
pub struct Events {
    receiver: broadcast::Receiver<Arc<Event>>,
    /// True when there will be no more.
    ended: watch::Receiver<bool>,
}

/// What a listener hears.
#[derive(Debug, Clone)]
pub enum Heard {
    /// An event.
    Event(Arc<Event>),
    /// So many events were missed, because the listener was slow.
    Missed(u64),
}

impl Events {
    /// The next event; none when the service has ended.
    pub async fn next(&mut self) -> Option<Heard> {
        let next = tokio::select! {
            biased;
            next = self.receiver.recv() => next,
            _ = self.ended.wait_for(|ended| *ended) => return None,
        };
        match next {
            Ok(event) => Some(Heard::Event(event)),
            Err(broadcast::error::RecvError::Lagged(missed)) => Some(Heard::Missed(missed)),
            Err(broadcast::error::RecvError::Closed) => None,
        }
    }
}

/// Where events are told.
pub(crate) struct Teller {
    sender: broadcast::Sender<Arc<Event>>,
    /// False while nobody listens; a request looks here first, because it costs next to nothing.
    heard: AtomicBool,
}

impl Default for Teller {
    fn default() -> Self {
        Self { sender: broadcast::Sender::new(BEHIND), heard: AtomicBool::new(false) }
    }
}

impl Teller {
    /// Listens until `ended` says so.
    pub(crate) fn listen(&self, ended: watch::Receiver<bool>) -> Events {
        let events = Events { receiver: self.sender.subscribe(), ended };
        self.heard.store(true, Release);
        events
    }

    /// Whether anybody listens.
    pub(crate) fn is_heard(&self) -> bool {
        self.heard.load(Relaxed)
    }

    /// Follows a request, if anybody wants to know.
    pub(crate) fn trace(&self) -> Trace {
        let followed = self.heard.load(Relaxed).then(Box::default);
        Trace { followed }
    }

    pub(crate) fn tell(&self, event: Event) {
        if self.sender.send(Arc::new(event)).is_err() {
            self.heard.store(false, Release);
            // Somebody may have come between the two.
            self.heard.fetch_or(self.sender.receiver_count() > 0, Release);
        }
    }
}

/// What is known of a request on its way; nothing unless somebody listens.
#[derive(Default)]
pub(crate) struct Trace {
    followed: Option<Box<Followed>>,
}

/// What is known of a request.
pub(crate) struct Followed {
    since: Instant,
    method: Option<String>,
    host: Option<String>,
    path: Option<String>,
    pub edge_id: Option<Arc<str>>,
    pub route_id: Option<Arc<str>>,
    pub backend_id: Option<Arc<str>>,
    pub module: Option<&'static str>,
    pub rule: Option<String>,
    pub action: Option<String>,
    pub logs: Vec<Value>,
}

impl Default for Followed {
    fn default() -> Self {
        Self {
            since: Instant::now(),
            method: None,
            host: None,
            path: None,
            edge_id: None,
            route_id: None,
            backend_id: None,
            module: None,
            rule: None,
            action: None,
            logs: Vec::new(),
        }
    }
}

impl Trace {
    /// Notes something down, if anybody wants to know.
    pub(crate) fn note(&mut self, note: impl FnOnce(&mut Followed)) {
        if let Some(followed) = &mut self.followed {
            note(followed);
        }
    }

    /// Notes what a request asks for.
    pub(crate) fn request<B>(&mut self, request: &Request<B>) {
        self.note(|it| {
            let host = request.headers().get(HOST).map(text);
            it.host = host.or_else(|| request.uri().authority().map(ToString::to_string));
            it.method = Some(request.method().to_string());
            it.path = request.uri().path_and_query().map(ToString::to_string);
        });
    }

    /// Tells how a request ended; none when it was closed without an answer.
    pub(crate) fn tell<B>(self, to: &Teller, visitor: &Visitor, answer: Option<&Response<B>>) {
        let Some(followed) = self.followed else { return };
        let owned = |id: Option<Arc<str>>| id.filter(|id| !id.is_empty()).map(|id| id.to_string());
        to.tell(Event {
            time: Utc::now().to_rfc3339_opts(SecondsFormat::Millis, true),
            proto: visitor.proto,
            peer: visitor.peer,
            method: followed.method,
            host: followed.host,
            path: followed.path,
            status: answer.map(|answer| answer.status().as_u16()),
            code: answer.and_then(|answer| answer.headers().get(ERROR_CODE)).map(text),
            edge_id: owned(followed.edge_id),
            route_id: owned(followed.route_id),
            backend_id: owned(followed.backend_id),
            module: followed.module,
            rule: followed.rule,
            action: followed.action,
            logs: followed.logs,
            duration_ms: followed.since.elapsed().as_secs_f64() * 1000.0,
        });
    }
}

fn text(value: &HeaderValue) -> String {
    String::from_utf8_lossy(value.as_bytes()).into_owned()
}
