//! What the service asks of the agent: visitors, heartbeats, and commands.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use ginnel_base::logging::or_debug;
use ginnel_mux::protocol::message::{CommandResponse, RemoteError, StopTunnel};
use ginnel_mux::protocol::rpc::IncomingCall;
use ginnel_mux::protocol::{proxy, read_kind, stream_kind};
use ginnel_mux::{Code, Stream, heartbeat};
use ginnel_net::ShutdownPhase;

use super::bind::{is_taken, unbind_everywhere};
use crate::capture::{CaptureSource, Via};
use crate::drain;
use crate::inner::AgentInner;
use crate::session_state::OnlineSession;
use crate::tunnels::Tunnels;

/// A longer identifier is none.
const MAX_ID_BYTES: usize = 64;

/// How the service names edges for TLS in the header of a connection.
const TLS_EDGE: &str = "2";

/// Serves one stream of the service.
pub(super) async fn serve_stream(
    shared: Arc<AgentInner>,
    online: OnlineSession,
    mut stream: Stream,
) {
    // A stream that breaks harms no other.
    let kind = or_debug!(read_kind(&mut stream).await, "a stream ended before it said its kind");
    let Some(kind) = kind else { return };
    match kind {
        stream_kind::HEARTBEAT => heartbeat::echo_beats(stream).await,
        stream_kind::PROXY => forward_stream(&shared.tunnels, stream).await,
        stream_kind::STOP_TUNNEL => {
            let call =
                or_debug!(IncomingCall::read_message(kind, stream).await, "cannot read a command");
            let Some(call) = call else { return };
            let stop = or_debug!(call.decode_message::<StopTunnel>(), "cannot read a command");
            let Some(stop) = stop else { return };
            end_tunnel(&shared, &online, stop).await;
        }
        stream_kind::STOP | stream_kind::RESTART | stream_kind::UPDATE => {
            execute_command(&shared, &online, kind, stream).await;
        }
        _ => stream.reset(Code::REFUSED),
    }
}

/// Ends a tunnel that the service has ended. One whose address another has got is tried again: that one may
/// leave.
async fn end_tunnel(shared: &Arc<AgentInner>, online: &OnlineSession, stop: StopTunnel) {
    let Some(tunnel) = shared.tunnels.bound_as(&stop.id) else { return };
    let failure = RemoteError { message: stop.message, code: stop.error_code };
    if is_taken(&failure) {
        shared.record_unbound(&tunnel, online.slot, &failure);
        shared.state.send_modify(|_| {});
        return shared.tunnels.bind_again();
    }
    shared.tunnels.remove(&tunnel.name);
    tunnel.set_unbound(online.slot, &failure.message);
    unbind_everywhere(&shared.state, &tunnel).await;
    shared.update_history(|history| history.add_failure(failure.message));
}

async fn execute_command(
    shared: &Arc<AgentInner>,
    online: &OnlineSession,
    kind: u32,
    stream: Stream,
) {
    let call = or_debug!(IncomingCall::read_message(kind, stream).await, "cannot read a command");
    let Some(call) = call else { return };
    let reason = match kind {
        stream_kind::UPDATE => Some("the agent is updated by its package manager"),
        _ if !shared.options.remote_management => Some("remote management is switched off"),
        _ => None,
    };
    if let Some(reason) = reason {
        or_debug!(call.send_error(reason).await, "the service does not hear why it is refused");
        return;
    }
    // The answer goes first: nothing can be said afterwards.
    let answered = call.send_response(&CommandResponse::default()).await;
    or_debug!(answered, "the response does not reach the service");
    tokio::time::sleep(Duration::from_millis(20)).await;
    if kind == stream_kind::STOP {
        drain::drain_agent(shared, shared.options.grace).await;
        shared.shutdown.begin_phase(ShutdownPhase::Forced);
    } else {
        // The other session, where there is one, goes on: no address is away meanwhile.
        online.session.close();
    }
}

async fn forward_stream(tunnels: &Tunnels, mut stream: Stream) {
    let header = or_debug!(proxy::read_header(&mut stream).await, "cannot read whose stream it is");
    let Some(header) = header else { return };
    let Some(tunnel) = tunnels.bound_as(&header.id) else { return };
    let remote_addr = match header.client_addr.parse::<SocketAddr>() {
        Ok(address) => address.ip().to_string(),
        Err(_) => header.client_addr,
    };
    let via = Via::of_edge_type(&header.edge_type);
    // Where the service looks at requests, it has ended their TLS, and at TLS edges it may have.
    let has_ended_tls = match via {
        Some(Via::HttpsEdge) => true,
        _ => header.edge_type == TLS_EDGE && !header.passthrough_tls,
    };
    let (edge_id, route_id) = (bounded_id(header.edge_id), bounded_id(header.route_id));
    let source = CaptureSource { remote_addr, via, edge_id, route_id, ..CaptureSource::default() };
    tunnel.serve_connection(stream, source, has_ended_tls).await;
}

/// An identifier that is short enough to be kept with each request, else none.
fn bounded_id(id: String) -> String {
    if id.len() <= MAX_ID_BYTES { id } else { String::new() }
}
