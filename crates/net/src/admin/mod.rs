//! The listener for whoever watches a service or an agent: `/healthz`, `/readyz` and `/metrics`.
//!
//! It asks for no key, so it is off unless an address was given, and no tunnel leads to it
//! ([`private`](crate::private)). It is the first to listen and the last to close: while the rest
//! starts or stops, it says so.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::{RawQuery, State};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http::header::{ACCEPT, CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderMap, StatusCode};
use serde_json::json;

use ginnel_base::address::HostPort;
use ginnel_base::logging::or_debug;
use ginnel_metrics::{Collect, ProcessFigures, ScrapeFormat, render};

use crate::descriptors;
use crate::private::PrivateListener;
use crate::{
    ApiTimeouts, ConnectionCaps, ConnectionLimit, Listener, Shutdown, ShutdownPhase, listen_at,
    routed, serve_api,
};

/// How many connections are held.
const MAX_CONNECTIONS: usize = 64;

/// What somebody who looks at readiness has in mind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadyFor {
    /// Traffic.
    Traffic,
    /// Changes of the configuration as well.
    Writes,
    /// Traffic, and that backups are made where they should be.
    Backups,
}

/// What is watched.
pub trait MonitorTarget: Send + Sync + 'static {
    /// Why it is not ready for something; nothing where it is.
    fn obstacles(&self, purpose: ReadyFor) -> Vec<String>;

    /// What is wrong although it is ready.
    fn warnings(&self) -> Vec<String> {
        Vec::new()
    }

    /// What it has to show.
    fn figures(&self) -> Vec<Box<dyn Collect>>;
}

/// The listener at work; dropping it ends all connections.
pub struct AdminListener {
    listener: Listener,
    shutdown: Shutdown,
    _private: PrivateListener,
}

impl AdminListener {
    /// Listens at `host:port`; port 0 picks a free port.
    ///
    /// # Errors
    /// When the address cannot be listened on.
    pub async fn start(address: &HostPort, target: Arc<dyn MonitorTarget>) -> io::Result<Self> {
        let socket = listen_at(address).await?;
        let private = PrivateListener::new(socket.local_addr()?);
        let shutdown = Shutdown::default();
        let listener =
            serve_api(socket, routed(router(target)), limit(), ApiTimeouts::default, &shutdown)?;
        Ok(Self { listener, shutdown, _private: private })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.listener.address()
    }
}

impl Drop for AdminListener {
    fn drop(&mut self) {
        self.shutdown.begin(ShutdownPhase::Forced);
    }
}

impl fmt::Debug for AdminListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AdminListener").field(&self.address()).finish()
    }
}

fn limit() -> Arc<ConnectionLimit> {
    let per_address = descriptors::share_of_one_address(MAX_CONNECTIONS);
    let caps = ConnectionCaps { total: MAX_CONNECTIONS, per_address, reserved: 0 };
    ConnectionLimit::new("monitoring", caps, |_| false)
}

fn router(target: Arc<dyn MonitorTarget>) -> Router {
    Router::new()
        .route("/healthz", get(|| async { answer(StatusCode::OK, json!({"status": "ok"})) }))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics))
        .fallback(|| async { refuse(StatusCode::NOT_FOUND, "try /healthz, /readyz or /metrics") })
        .method_not_allowed_fallback(|| async {
            refuse(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD are supported")
        })
        .with_state(target)
}

async fn ready(
    State(target): State<Arc<dyn MonitorTarget>>,
    RawQuery(query): RawQuery,
) -> Response {
    let purpose = match query.as_deref() {
        None | Some("") => ReadyFor::Traffic,
        Some("for=writes") => ReadyFor::Writes,
        Some("for=backups") => ReadyFor::Backups,
        Some(_) => {
            let problem = "the only parameters are for=writes and for=backups";
            return refuse(StatusCode::BAD_REQUEST, problem);
        }
    };
    let reasons = target.obstacles(purpose);
    match reasons.is_empty() {
        true => answer(StatusCode::OK, json!({"status": "ready", "reasons": target.warnings()})),
        false => {
            let body = json!({"status": "not ready", "reasons": reasons});
            answer(StatusCode::SERVICE_UNAVAILABLE, body)
        }
    }
}

async fn metrics(State(target): State<Arc<dyn MonitorTarget>>, headers: HeaderMap) -> Response {
    let accepted = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let format = ScrapeFormat::of(&accepted.collect::<Vec<_>>().join(","));
    let mut figures = target.figures();
    figures.push(Box::new(ProcessFigures));
    match or_debug!(render(figures, format), "cannot write metrics") {
        Some(text) => ([(CONTENT_TYPE, format.content_type())], text).into_response(),
        None => refuse(StatusCode::INTERNAL_SERVER_ERROR, "cannot write metrics"),
    }
}

fn refuse(status: StatusCode, problem: &str) -> Response {
    answer(status, json!({"error": problem}))
}

fn answer(status: StatusCode, body: serde_json::Value) -> Response {
    let headers = [(CONTENT_TYPE, "application/json"), (CACHE_CONTROL, "no-store")];
    (status, headers, format!("{body}\n")).into_response()
}
