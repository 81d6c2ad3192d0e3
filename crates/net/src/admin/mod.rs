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
use ginnel_metrics::{Collect, ProcessFigures, ScrapeFormat, render_metrics};

use crate::descriptors;
use crate::private::PrivateListener;
use crate::{
    ApiTimeouts, ConnectionCaps, ConnectionLimit, Listener, Shutdown, ShutdownPhase, listen_at,
    serve_api, service_from_router,
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
    fn unready_reasons(&self, purpose: ReadyFor) -> Vec<String>;

    /// What is wrong although it is ready.
    fn warnings(&self) -> Vec<String> {
        Vec::new()
    }

    /// What it has to show.
    fn metric_collectors(&self) -> Vec<Box<dyn Collect>>;
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
        let listener = serve_api(
            socket,
            service_from_router(build_router(target)),
            connection_limit(),
            ApiTimeouts::default,
            &shutdown,
        )?;
        Ok(Self { listener, shutdown, _private: private })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.listener.address()
    }
}

impl Drop for AdminListener {
    fn drop(&mut self) {
        self.shutdown.begin_phase(ShutdownPhase::Forced);
    }
}

impl fmt::Debug for AdminListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AdminListener").field(&self.address()).finish()
    }
}

fn connection_limit() -> Arc<ConnectionLimit> {
    let per_address = descriptors::share_per_address(MAX_CONNECTIONS);
    let caps = ConnectionCaps { total: MAX_CONNECTIONS, per_address, reserved: 0 };
    ConnectionLimit::new("monitoring", caps, |_| false)
}

fn build_router(target: Arc<dyn MonitorTarget>) -> Router {
    Router::new()
        .route("/healthz", get(|| async { json_response(StatusCode::OK, json!({"status": "ok"})) }))
        .route("/readyz", get(handle_readyz))
        .route("/metrics", get(handle_metrics))
        .fallback(|| async {
            error_response(StatusCode::NOT_FOUND, "try /healthz, /readyz or /metrics")
        })
        .method_not_allowed_fallback(|| async {
            error_response(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD are supported")
        })
        .with_state(target)
}

async fn handle_readyz(
    State(target): State<Arc<dyn MonitorTarget>>,
    RawQuery(query): RawQuery,
) -> Response {
    let purpose = match query.as_deref() {
        None | Some("") => ReadyFor::Traffic,
        Some("for=writes") => ReadyFor::Writes,
        Some("for=backups") => ReadyFor::Backups,
        Some(_) => {
            let problem = "the only parameters are for=writes and for=backups";
            return error_response(StatusCode::BAD_REQUEST, problem);
        }
    };
    let reasons = target.unready_reasons(purpose);
    match reasons.is_empty() {
        true => {
            json_response(StatusCode::OK, json!({"status": "ready", "reasons": target.warnings()}))
        }
        false => {
            let body = json!({"status": "not ready", "reasons": reasons});
            json_response(StatusCode::SERVICE_UNAVAILABLE, body)
        }
    }
}

async fn handle_metrics(
    State(target): State<Arc<dyn MonitorTarget>>,
    headers: HeaderMap,
) -> Response {
    let accepted = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let format = ScrapeFormat::from_accept(&accepted.collect::<Vec<_>>().join(","));
    let mut figures = target.metric_collectors();
    figures.push(Box::new(ProcessFigures));
    match or_debug!(render_metrics(figures, format), "cannot write metrics") {
        Some(text) => ([(CONTENT_TYPE, format.content_type())], text).into_response(),
        None => error_response(StatusCode::INTERNAL_SERVER_ERROR, "cannot write metrics"),
    }
}

fn error_response(status: StatusCode, problem: &str) -> Response {
    json_response(status, json!({"error": problem}))
}

fn json_response(status: StatusCode, body: serde_json::Value) -> Response {
    let headers = [(CONTENT_TYPE, "application/json"), (CACHE_CONTROL, "no-store")];
    (status, headers, format!("{body}\n")).into_response()
}
