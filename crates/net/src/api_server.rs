//! Serving an API to the connections of a listener: one for the service, the agent, and whoever watches
//! them.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::response::Response;
use http::header::CONNECTION;
use http::{HeaderValue, Request, StatusCode};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;

use ginnel_base::logging::or_debug;
use ginnel_http1::StrictStream;

use super::{
    AcceptedConnection, ConnectionLimit, FIRST_BYTE_TIMEOUT, HEAD_TIMEOUT, Listener, ProxyProtocol,
    Shutdown, ShutdownPhase, ShutdownSignal, first_byte,
};

/// How long a client may take over a connection; one that is open keeps what it began with.
#[derive(Debug, Clone, Copy)]
pub struct ApiTimeouts {
    /// How long it may be silent at first.
    pub first_byte: Duration,
    /// How long the head of a request may take, and the time between two requests.
    pub head: Duration,
}

impl Default for ApiTimeouts {
    fn default() -> Self {
        Self { first_byte: FIRST_BYTE_TIMEOUT, head: HEAD_TIMEOUT }
    }
}

/// What responds to the requests of an API.
pub type ApiService = Arc<dyn Fn(Request<Incoming>) -> RespondingFuture + Send + Sync>;

type RespondingFuture = Pin<Box<dyn Future<Output = Response> + Send>>;

/// An API whose paths are routes of axum.
pub fn service_from_router(router: Router) -> ApiService {
    let service = TowerToHyperService::new(router);
    Arc::new(move |request| {
        let responding = service.call(request);
        Box::pin(async move {
            match responding.await {
                Ok(response) => response,
                Err(never) => match never {},
            }
        })
    })
}

/// Serves the connections of a socket, as many as the limit lets in, each with the timeouts of the
/// moment.
///
/// # Errors
/// When the socket has no address.
pub fn serve_api(
    socket: TcpListener,
    api: ApiService,
    limit: Arc<ConnectionLimit>,
    timeouts: impl Fn() -> ApiTimeouts + Send + Sync + 'static,
    shutdown: &Shutdown,
) -> std::io::Result<Listener> {
    Listener::serve(
        socket,
        limit,
        shutdown,
        ProxyProtocol::default(),
        move |connection, shutdown| {
            Box::pin(serve_connection(connection, api.clone(), timeouts(), shutdown))
        },
    )
}

/// Where a connection comes from, in the extensions of its requests.
#[derive(Debug, Clone, Copy)]
pub struct PeerAddress(pub SocketAddr);

async fn serve_connection(
    connection: AcceptedConnection,
    api: ApiService,
    timeouts: ApiTimeouts,
    mut shutdown: ShutdownSignal,
) {
    let AcceptedConnection { stream, permit: _permit, peer, .. } = connection;
    let speaking = first_byte(&stream, timeouts.first_byte);
    if shutdown.run_until(ShutdownPhase::Graceful, speaking).await != Some(true) {
        return;
    }
    let mut builder = http1::Builder::new();
    // A client may close its sending side and still read the answer.
    builder.timer(TokioTimer::new()).header_read_timeout(timeouts.head).half_close(true);
    let draining = shutdown.clone();
    let service = service_fn(|mut request: Request<Incoming>| {
        request.extensions_mut().insert(PeerAddress(peer));
        let (response, draining) = (api(request), &draining);
        async move {
            let mut response = response.await;
            let is_last = draining.phase() >= ShutdownPhase::Draining;
            if is_last && response.status() != StatusCode::SWITCHING_PROTOCOLS {
                response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            }
            Ok::<_, Infallible>(response)
        }
    });
    let connection = builder.serve_connection(TokioIo::new(StrictStream::new(stream)), service);
    tokio::pin!(connection);
    let served = shutdown.run_until(ShutdownPhase::Graceful, connection.as_mut()).await;
    if let Some(served) = served {
        or_debug!(served, "a connection to an API broke");
    } else {
        connection.as_mut().graceful_shutdown();
        or_debug!(connection.await, "a connection to an API broke");
    }
}
