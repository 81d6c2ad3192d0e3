//! Connections that are bytes to the service.

use std::sync::Arc;

use chrono::Utc;
use rustls::ServerConfig;
use tokio::io::copy_bidirectional_with_sizes;

use crate::gateway::events::Trace;
use crate::gateway::http::error_response;
use crate::gateway::http::server;
use crate::gateway::listener::shutdown::{Call, Listener};
use crate::gateway::listener::socket::Socket;
use crate::gateway::modules::traffic_policy::{self, Rules, Watched};
use crate::gateway::routing::internal::{self, MOST_HOPS};
use crate::gateway::routing::target::Visitor;
use crate::gateway::routing::virtual_host::{Route, Site};
use crate::gateway::slot::Slot;
use crate::gateway::{Inner, Io};
use crate::net::Connection;
use crate::policy::Carried;

/// How much is copied at a time, in bytes.
const COPY: usize = 64 << 10;

/// Carries the bytes of a visitor; each direction ends on its own.
pub(crate) async fn carry(
    edges: Arc<Inner>,
    slot: Arc<Slot<Site>>,
    connection: Connection,
    mut bell: Listener,
    proto: &'static str,
) {
    let Connection { stream, peer, permit: _permit } = connection;
    // With TLS it is the visitor who speaks first; with anything else, who knows.
    if proto == "tls" && !server::speaks(&edges, &stream, &mut bell).await {
        return;
    }
    let Ok(local) = stream.local_addr() else { return };
    let visitor = Visitor { peer, local, proto, tls: None, passthrough: proto == "tls" };
    pass(&edges, &slot, Socket::Plain(stream), &visitor, bell).await;
}

/// Carries what a visitor says over TLS that ends here.
pub(crate) async fn carry_unwrapped(
    edges: Arc<Inner>,
    slot: Arc<Slot<Site>>,
    connection: Connection,
    mut bell: Listener,
    config: Arc<ServerConfig>,
) {
    let Connection { stream, peer, permit: _permit } = connection;
    if !server::speaks(&edges, &stream, &mut bell).await {
        return;
    }
    let Ok(local) = stream.local_addr() else { return };
    let Some(stream) = server::handshake(stream, config).await else { return };
    let tls = Some(Arc::new(server::agreed(&stream)));
    let visitor = Visitor { peer, local, proto: "tls", tls, passthrough: false };
    pass(&edges, &slot, Socket::Tls(Box::new(stream)), &visitor, bell).await;
}

async fn pass(
    edges: &Inner,
    slot: &Slot<Site>,
    mut socket: Socket,
    visitor: &Visitor,
    mut bell: Listener,
) {
    let mut trace = edges.teller.trace();
    // What a change of the configuration replaces is not kept for as long as the connection lives.
    let Some(route) = slot.get().route("").cloned() else { return };
    trace.note(|it| it.edge_id = Some(route.edge_id.clone()));
    let mut passed = Vec::new();
    if let Some(target) = enter(edges, route, visitor, &mut trace, &mut passed).await {
        let carried = tokio::select! {
            carried = carry_both(&mut socket, target) => carried,
            () = bell.wait_for(Call::Cut) => Carried::default(),
        };
        for (route, watched) in passed {
            if let Some(rules) = rules_of(&route) {
                watched.leave(rules, carried, &mut trace);
            }
        }
    }
    trace.tell::<()>(&edges.teller, visitor, None);
}

/// Lets a connection in, and opens one to whoever takes it; `passed` are the routes on the way that
/// have rules.
async fn enter(
    edges: &Inner,
    mut route: Arc<Route>,
    visitor: &Visitor,
    trace: &mut Trace,
    passed: &mut Vec<(Arc<Route>, Watched)>,
) -> Option<Io> {
    let through = route.through();
    loop {
        if route.modules.as_ref().is_some_and(|modules| !modules.admits(visitor)) {
            trace.note(|it| it.module = Some("ip_restriction"));
            return None;
        }
        let Some(rules) = rules_of(&route) else {
            return route.dial(edges, visitor, &through, trace).await;
        };
        let mut watched = watch(&route, visitor);
        let find = |url: &str| match passed.len() {
            MOST_HOPS.. => Err(error_response::TOO_MANY_HOPS),
            _ => internal::stream(edges, url).ok_or(error_response::NO_ENDPOINT),
        };
        let next = watched.enter(edges, rules, trace, find).await.ok()?;
        passed.push((route.clone(), watched));
        match next {
            Some(inside) => route = inside,
            None => return route.dial(edges, visitor, &through, trace).await,
        }
    }
}

fn watch(route: &Route, visitor: &Visitor) -> Watched {
    let id = if route.edge_id.is_empty() { &route.id } else { &route.edge_id };
    let (host, port) = (visitor.local.ip().to_string(), visitor.local.port());
    let endpoint = traffic_policy::endpoint(id, visitor.proto, &host, port);
    Watched::new(traffic_policy::connection(visitor, Utc::now()), endpoint)
}

fn rules_of(route: &Route) -> Option<&Rules> {
    route.modules.as_ref().and_then(|modules| modules.policy.as_ref())
}

/// Carries bytes both ways; how it ends concerns the two, who see it.
async fn carry_both(socket: &mut Socket, mut target: Io) -> Carried {
    let carried = copy_bidirectional_with_sizes(socket, &mut target, COPY, COPY).await;
    let (received, sent) = carried.unwrap_or_default();
    Carried { received, sent }
}
