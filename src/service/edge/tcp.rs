//! Connections that are bytes to the service.

use std::net::SocketAddr;
use std::sync::Arc;

use rustls::ServerConfig;
use tokio::io::copy_bidirectional_with_sizes;
use tokio::net::TcpStream;

use super::bell::{Call, Listener};
use super::site::Site;
use super::slot::Slot;
use super::socket::Socket;
use super::target::Visitor;
use super::{Inner, serve};

/// How much is copied at a time, in bytes.
const COPY: usize = 64 << 10;

/// Carries the bytes of a visitor; each direction ends on its own.
pub(super) async fn carry(
    edges: Arc<Inner>,
    slot: Arc<Slot<Site>>,
    stream: TcpStream,
    peer: SocketAddr,
    bell: Listener,
    proto: &'static str,
) {
    let Ok(local) = stream.local_addr() else { return };
    let visitor = Visitor { peer, local, proto, tls: None, passthrough: proto == "tls" };
    pass(&edges, &slot, Socket::Plain(stream), &visitor, bell).await;
}

/// Carries what a visitor says over TLS that ends here.
pub(super) async fn carry_unwrapped(
    edges: Arc<Inner>,
    slot: Arc<Slot<Site>>,
    stream: TcpStream,
    peer: SocketAddr,
    bell: Listener,
    config: Arc<ServerConfig>,
) {
    let Ok(local) = stream.local_addr() else { return };
    let Some(stream) = serve::handshake(stream, config).await else { return };
    let tls = Some(Arc::new(serve::agreed(&stream)));
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
    if route.modules.as_ref().is_some_and(|modules| !modules.admits(visitor)) {
        trace.note(|it| it.module = Some("ip_restriction"));
    } else if let Some(mut target) = route.dial(edges, visitor, &mut trace).await {
        drop(route);
        // How it ends concerns the two, who see it.
        tokio::select! {
            _ = copy_bidirectional_with_sizes(&mut socket, &mut target, COPY, COPY) => {}
            () = bell.wait_for(Call::Cut) => {}
        }
    }
    trace.tell::<()>(&edges.teller, visitor, None);
}
