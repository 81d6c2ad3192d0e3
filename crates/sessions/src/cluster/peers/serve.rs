//! What other nodes ask for.

use std::future::pending;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::time::timeout;

use ginnel_base::logging::{ignore, or_debug};
use ginnel_gateway::{DialError, Io, Target};
use ginnel_mux::heartbeat::{self, HEARTBEAT};
use ginnel_mux::protocol::read_kind;
use ginnel_mux::protocol::rpc::IncomingCall;
use ginnel_mux::{Code, Incoming, Stream};
use ginnel_net::carry_both_until;

use super::PeerServices;
use super::link::Linker;
use super::message::{self, DialStatus, SessionCommand, SessionCommandAnswer, VisitorHeader, kind};

/// How much is copied at a time between another node and an agent, in bytes.
const COPY_BUFFER_BYTES: usize = 16 << 10;
/// How long a tunnel may take to be dialed; the node that asks has limits of its own.
const DIAL_TIMEOUT: Duration = Duration::from_secs(60);

/// Serves what another node asks for, until the session is over.
pub(super) async fn serve_streams(linker: Arc<Linker>, mut incoming: Incoming) {
    while let Some(stream) = incoming.next().await {
        let linker = linker.clone();
        tokio::spawn(async move {
            let served = Box::pin(answer_stream(&linker, stream)).await;
            or_debug!(served, "cannot serve another node");
        });
    }
}

async fn answer_stream(linker: &Linker, mut stream: Stream) -> io::Result<()> {
    let services = linker.services.as_ref();
    let kind = read_kind(&mut stream).await?;
    match kind {
        HEARTBEAT => heartbeat::echo_beats(stream).await,
        kind::VISITOR => {
            let visitor =
                message::read_message::<VisitorHeader>(&mut stream).await?.to_visitor()?;
            services.gateway.serve_relayed(Box::new(stream), visitor).await;
        }
        kind::BYTES => carry_bytes(services, stream).await?,
        kind::TUNNEL => dial_tunnel(services, stream).await?,
        kind::COMMAND => run_command(services, stream).await?,
        kind::EVENTS => services.send_events(stream).await?,
        kind::EPOCH => linker.send_epoch(stream).await?,
        kind::ENDED => linker.receive_ended_tunnels(stream).await?,
        kind::ABANDONED => services.end_abandoned_bind(stream).await?,
        unknown => {
            tracing::debug!(kind = unknown, "another node asks for what is not known here");
            stream.reset(Code::CANCELLED);
        }
    }
    Ok(())
}

/// Carries a visitor's bytes to an endpoint of this node.
async fn carry_bytes(services: &PeerServices, mut stream: Stream) -> io::Result<()> {
    let header = message::read_message::<VisitorHeader>(&mut stream).await?;
    let visitor = header.to_visitor()?;
    match services.registry.bind_traffic(&header.id) {
        Some(endpoint) => {
            if header.wants_status {
                stream.write_all(&[DialStatus::Connected as u8]).await?;
            }
            services.gateway.carry_relayed(Box::new(stream), visitor, endpoint).await;
        }
        None if header.wants_status => {
            stream.write_all(&[DialStatus::Offline as u8]).await?;
            stream.shutdown().await?;
        }
        None => stream.reset(Code::CANCELLED),
    }
    Ok(())
}

/// Connects another node with a tunnel of this one.
async fn dial_tunnel(services: &PeerServices, mut stream: Stream) -> io::Result<()> {
    let header = message::read_message::<VisitorHeader>(&mut stream).await?;
    let (visitor, through) = (header.to_visitor()?, header.route_ref());
    let tunnel = services.registry.find_tunnel(&header.id);
    let dialed = match &tunnel {
        Some(tunnel) => timeout(DIAL_TIMEOUT, tunnel.dial(&visitor, &through)).await,
        None => Ok(Err(DialError::Offline)),
    };
    let (status, io) = match dialed {
        Ok(Ok(io)) if tunnel.is_some_and(|it| !it.may_idle()) => (DialStatus::Once, Some(io)),
        Ok(Ok(io)) => (DialStatus::Connected, Some(io)),
        Ok(Err(DialError::Offline)) => (DialStatus::Offline, None),
        Ok(Err(DialError::Busy)) => (DialStatus::Busy, None),
        Ok(Err(DialError::Reset)) => (DialStatus::Reset, None),
        Ok(Err(DialError::Unreachable(_))) | Err(_) => (DialStatus::Unreachable, None),
    };
    stream.write_all(&[status as u8]).await?;
    match io {
        Some(io) => {
            let stop = async { services.gateway.run_relay(pending()).await.unwrap_or_default() };
            copy_until(stream, io, stop).await;
            Ok(())
        }
        None => stream.shutdown().await,
    }
}

async fn copy_until(mut stream: Stream, mut io: Io, stop: impl Future<Output = ()>) {
    let copied = carry_both_until(&mut stream, &mut io, COPY_BUFFER_BYTES, stop).await;
    ignore(copied, "how a connection ends concerns the two whose it is");
}

/// Has an agent of this node obey.
async fn run_command(services: &PeerServices, stream: Stream) -> io::Result<()> {
    let call = IncomingCall::read_message(kind::COMMAND, stream).await.map_err(io::Error::other)?;
    let SessionCommand { session_id, command } = call.decode_message().map_err(io::Error::other)?;
    let answer = match services.registry.find_session(&session_id) {
        None => SessionCommandAnswer { is_gone: true, ..SessionCommandAnswer::default() },
        Some(online) => {
            let refusal = command.send_to(&online).await.err().unwrap_or_default();
            SessionCommandAnswer { refusal, is_gone: false }
        }
    };
    call.send_response(&answer).await.map_err(io::Error::other)
}
