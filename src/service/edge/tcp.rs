//! Connections that are bytes to the service.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::copy_bidirectional_with_sizes;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::site::Site;
use super::slot::Slot;
use super::target::Visitor;

/// How long opening a connection may take.
const DIAL: Duration = Duration::from_secs(10);
/// How much is copied at a time, in bytes.
const COPY: usize = 64 << 10;

/// Carries the bytes of a visitor; each direction ends on its own.
pub(super) async fn carry(
    slot: Arc<Slot<Site>>,
    mut stream: TcpStream,
    peer: SocketAddr,
    proto: &'static str,
) {
    let Ok(local) = stream.local_addr() else { return };
    let visitor = Visitor { peer, local, proto, tls: None, passthrough: proto == "tls" };
    let site = slot.get();
    let Some(route) = site.route("/").cloned() else { return };
    drop(site);
    let Ok(Ok(mut target)) = timeout(DIAL, route.backend.dial(&visitor)).await else { return };
    // How it ends concerns the two, who see it.
    let _ = copy_bidirectional_with_sizes(&mut stream, &mut target, COPY, COPY).await;
}
