//! Connections that are bytes to the service.

use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use chrono::Utc;
use rustls::ServerConfig;
use tokio::net::TcpStream;
use tokio::time::timeout;

use ginnel_base::logging::or_debug;
use ginnel_net::tls::{self, AcceptedSocket};
use ginnel_net::{
    AcceptedConnection, ResetOnClose, ShutdownPhase, ShutdownSignal, carry_both_until,
};
use ginnel_policy::Carried;

use crate::message::error_response;
use crate::message::events::RequestTrace;
use crate::message::metered::MeteredSocket;
use crate::message::request_context::{InternalAddress, MAX_INTERNAL_HOPS};
use crate::message::variables::{connection_variables, endpoint_variables};
use crate::message::visitor::{RouteRef, Visitor, VisitorTls};
use crate::modules::module::{ModuleKind, Modules};
use crate::modules::traffic_policy::{ConnectionExecution, Rules};
use crate::request_phase::RequestPhase;
use crate::routing::internal::{self};
use crate::routing::route::Route;
use crate::routing::virtual_host::VirtualHost;
use crate::server::accept;
use crate::server::gateway::GatewayState;
use crate::upstream::target::DialError;
use crate::{Ingress, Io};

/// How much is copied at a time, in bytes.
const COPY_BUFFER_BYTES: usize = 64 << 10;

/// The time for a connection to a target to be opened whose visitor has left.
const OPENING_TIMEOUT: Duration = Duration::from_millis(100);

/// Carries the bytes of a visitor; each direction ends on its own.
pub async fn carry_connection(
    gateway: Arc<GatewayState>,
    slot: Arc<ArcSwap<VirtualHost>>,
    connection: AcceptedConnection,
    mut shutdown: ShutdownSignal,
    proto: &'static str,
) {
    let AcceptedConnection { stream, peer, local, permit: _permit } = connection;
    // With TLS it is the visitor who speaks first; with anything else, who knows.
    if proto == "tls" && !accept::await_first_byte(&gateway, &stream, &mut shutdown).await {
        return;
    }
    let visitor = Visitor { peer, local, proto, tls: None, passthrough: proto == "tls" };
    serve_bytes(&gateway, &slot, AcceptedSocket::Plain(stream), &visitor, shutdown).await;
}

/// Carries what a visitor says over TLS that ends here.
pub async fn carry_unwrapped(
    gateway: Arc<GatewayState>,
    slot: Arc<ArcSwap<VirtualHost>>,
    connection: AcceptedConnection,
    mut shutdown: ShutdownSignal,
    config: Arc<ServerConfig>,
) {
    let AcceptedConnection { stream, peer, local, permit: _permit } = connection;
    if !accept::await_first_byte(&gateway, &stream, &mut shutdown).await {
        return;
    }
    let accepting = terminate_tls(&gateway, stream, (peer, local), config);
    let Some((socket, visitor)) = accepting.await else { return };
    serve_bytes(&gateway, &slot, socket, &visitor, shutdown).await;
}

/// Carries what a visitor says to a TLS edge, whose TLS ends here or goes on as it is.
pub async fn carry_by_name(
    gateway: Arc<GatewayState>,
    (slot, name): (Arc<ArcSwap<VirtualHost>>, String),
    connection: AcceptedConnection,
    shutdown: ShutdownSignal,
) {
    let AcceptedConnection { stream, peer, local, permit: _permit } = connection;
    let tls_policy = slot.load_full().tls_policy.clone();
    let entered = match &tls_policy {
        Some(tls_policy) => {
            terminate_tls(&gateway, stream, (peer, local), tls_policy.config.clone()).await
        }
        None => {
            // All that the service knows of TLS that it does not end.
            let tls = Some(Arc::new(VisitorTls { sni: name, ..VisitorTls::default() }));
            let visitor = Visitor { peer, local, proto: "tls", tls, passthrough: true };
            Some((AcceptedSocket::Plain(stream), visitor))
        }
    };
    let Some((socket, visitor)) = entered else { return };
    // Whoever has shaken hands by terms that are no longer those of the edge has to do it again.
    let current = slot.load_full().tls_policy.clone();
    if current.as_ref().map(Arc::as_ptr) == tls_policy.as_ref().map(Arc::as_ptr) {
        serve_bytes(&gateway, &slot, socket, &visitor, shutdown).await;
    }
}

/// Agrees on TLS with a visitor; none where there is no agreement.
async fn terminate_tls(
    gateway: &GatewayState,
    stream: TcpStream,
    (peer, local): (SocketAddr, SocketAddr),
    config: Arc<ServerConfig>,
) -> Option<(AcceptedSocket, Visitor)> {
    let stream = tls::accept_tls(stream, config, gateway.timeouts().handshake).await;
    let Some(stream) = or_debug!(stream, "a TLS handshake of a visitor failed") else {
        gateway.services.count_rejection(RequestPhase::Accept);
        return None;
    };
    let tls = Some(Arc::new(accept::tls_info(&stream)));
    let visitor = Visitor { peer, local, proto: "tls", tls, passthrough: false };
    Some((AcceptedSocket::Tls(Box::new(stream)), visitor))
}

pub async fn serve_bytes(
    gateway: &GatewayState,
    slot: &ArcSwap<VirtualHost>,
    socket: AcceptedSocket,
    visitor: &Visitor,
    mut shutdown: ShutdownSignal,
) {
    let mut trace = gateway.events.trace_request();
    trace.enter(RequestPhase::Accept);
    if !gateway.restrictions.allows_address(Ingress::Endpoints, visitor.peer.ip()) {
        trace.update_record(|it| it.module = Some(ModuleKind::IpRestriction.name()));
        gateway.services.count_rejection(trace.phase());
        return trace.publish_outcome::<()>(&gateway.events, visitor, None);
    }
    // What a change of the configuration replaces is not kept for as long as the connection lives.
    trace.enter(RequestPhase::RouteRequest);
    let Some(route) = slot.load_full().route_for_path("").cloned() else { return };
    if route.leads_to_node() {
        // That node tells of it.
        trace.discard();
    }
    record_route(&mut trace, &route, visitor);
    let mut socket = MeteredSocket::new(socket, gateway.bytes_of(visitor.proto));
    let mut passed = Vec::new();
    let left = socket.is_reset();
    let entering = async {
        let mut entering = pin!(admit_connection(gateway, route, visitor, &mut trace, &mut passed));
        tokio::select! {
            target = &mut entering => target,
            // The target of a connection that is being opened gets the reset as well.
            () = left => timeout(OPENING_TIMEOUT, entering).await.unwrap_or(Err(None)),
        }
    };
    let entered = shutdown.run_until(ShutdownPhase::Forced, entering).await;
    if let Some(Err(Some(DialError::Reset))) = &entered {
        socket.reset_on_close();
    }
    if let Some(Ok(mut target)) = entered {
        trace.enter(RequestPhase::RelayResponse);
        // An end without a reset would make half a file look whole.
        let stop = shutdown.wait_for(ShutdownPhase::Forced);
        let carried = carry_both_until(&mut socket, &mut target, COPY_BUFFER_BYTES, stop).await;
        or_debug!(carried, "a connection broke");
        run_close_rules(gateway, passed, socket.carried_bytes(), &mut trace);
        trace.enter(RequestPhase::Finish);
    }
    trace.update_record(|it| it.carried = Some(socket.carried_bytes()));
    trace.publish_outcome::<()>(&gateway.events, visitor, None);
}

/// Runs the rules for the end of a connection, of all routes on its way.
fn run_close_rules(
    gateway: &GatewayState,
    passed: Vec<(Arc<Route>, ConnectionExecution)>,
    carried: Carried,
    trace: &mut RequestTrace,
) {
    for (route, execution) in passed {
        if let Some(rules) = rules_of(&route) {
            execution.run_close_rules(&gateway.services, rules, carried, trace);
        }
    }
}

/// Records and counts a connection of a visitor at a route.
fn record_route(trace: &mut RequestTrace, route: &Route, visitor: &Visitor) {
    trace.update_record(|it| {
        it.edge_id = Some(route.edge_id.clone());
        it.route_id = Some(route.id.clone());
        let name = visitor.tls.as_ref().map(|tls| &tls.sni).filter(|name| !name.is_empty());
        it.host = name.cloned();
    });
    if let Some(metrics) = &route.metrics {
        metrics.count_connection(visitor.proto);
    }
}

/// Lets a connection in, and opens one to whoever takes it; `passed` are the routes on the way that
/// have rules.
///
/// # Errors
/// If the connection is not let in, or if no backend takes it. The second error has the reason of the last backend.
async fn admit_connection(
    gateway: &GatewayState,
    mut route: Arc<Route>,
    visitor: &Visitor,
    trace: &mut RequestTrace,
    passed: &mut Vec<(Arc<Route>, ConnectionExecution)>,
) -> Result<Io, Option<DialError>> {
    let route_ref = route.route_ref();
    let mut address = None;
    loop {
        trace.enter(RequestPhase::RunModules);
        if route.modules.as_ref().is_some_and(|modules| !modules.admits_visitor(visitor)) {
            trace.update_record(|it| it.module = Some(ModuleKind::IpRestriction.name()));
            gateway.services.count_rejection(trace.phase());
            return Err(None);
        }
        let Some(rules) = rules_of(&route) else {
            return dial_backend(gateway, &route, visitor, &route_ref, trace).await;
        };
        let mut execution = connection_execution(gateway, &route, visitor, address.as_ref());
        let hops = passed.len();
        let find = |url: String| async move {
            if hops >= MAX_INTERNAL_HOPS {
                return Err(error_response::TOO_MANY_HOPS);
            }
            internal::find_stream(&gateway.table, &url).await.ok_or(error_response::NO_ENDPOINT)
        };
        let next = execution
            .run_connect_rules(&gateway.services, rules, trace, find)
            .await
            .map_err(|_| None)?;
        passed.push((route.clone(), execution));
        match next {
            Some((inside, its_address)) => (route, address) = (inside, Some(its_address)),
            None => return dial_backend(gateway, &route, visitor, &route_ref, trace).await,
        }
    }
}

/// Opens a connection to the backend of a route, and counts a failure.
async fn dial_backend(
    gateway: &GatewayState,
    route: &Route,
    visitor: &Visitor,
    route_ref: &RouteRef,
    trace: &mut RequestTrace,
) -> Result<Io, Option<DialError>> {
    trace.enter(RequestPhase::SendUpstream);
    let (targets, dial_timeout) = (&gateway.table.targets, gateway.timeouts().dial);
    let dialled = route.dial_backend(targets, visitor, dial_timeout, route_ref, trace).await;
    if dialled.is_err() {
        gateway.services.count_rejection(RequestPhase::SendUpstream);
    }
    dialled
}

fn connection_execution(
    gateway: &GatewayState,
    route: &Route,
    visitor: &Visitor,
    internal: Option<&InternalAddress>,
) -> ConnectionExecution {
    let port = visitor.local.port();
    let host = match &visitor.tls {
        Some(tls) if !tls.sni.is_empty() => tls.sni.clone(),
        _ => visitor.local.ip().to_string(),
    };
    let id = route.owner_id();
    let endpoint = match internal {
        Some(it) => endpoint_variables(id, it.protocol, &it.host, it.port),
        None => endpoint_variables(id, visitor.proto, &host, port),
    };
    let connection = connection_variables(visitor, Utc::now(), gateway.services.address_lookup());
    ConnectionExecution::new(connection, endpoint)
}

fn rules_of(route: &Route) -> Option<&Rules> {
    route.modules.as_ref().and_then(Modules::rules)
}
