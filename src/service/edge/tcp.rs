//! Connections that are bytes to the service.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::io::copy_bidirectional_with_sizes;
use tokio::net::TcpStream;

use super::Inner;
use super::site::Site;
use super::slot::Slot;
use super::target::Visitor;

/// How much is copied at a time, in bytes.
const COPY: usize = 64 << 10;

/// Carries the bytes of a visitor; each direction ends on its own.
pub(super) async fn carry(
    edges: Arc<Inner>,
    slot: Arc<Slot<Site>>,
    mut stream: TcpStream,
    peer: SocketAddr,
    proto: &'static str,
) {
    let Ok(local) = stream.local_addr() else { return };
    let visitor = Visitor { peer, local, proto, tls: None, passthrough: proto == "tls" };
    let mut trace = edges.teller.trace();
    // What a change of the configuration replaces is not kept for as long as the connection lives.
    let Some(route) = slot.get().route("").cloned() else { return };
    trace.note(|it| it.edge_id = Some(route.edge_id.clone()));
    if route.modules.as_ref().is_some_and(|modules| !modules.admits(&visitor)) {
        trace.note(|it| it.module = Some("ip_restriction"));
    } else if let Some(mut target) = route.dial(&edges, &visitor, &mut trace).await {
        drop(route);
        // How it ends concerns the two, who see it.
        let _ = copy_bidirectional_with_sizes(&mut stream, &mut target, COPY, COPY).await;
    }
    trace.tell::<()>(&edges.teller, &visitor, None);
}
