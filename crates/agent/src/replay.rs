//! Sending captured requests again (agent sheet, section 6).

use std::sync::Arc;
use std::sync::atomic::AtomicU16;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use super::capture::CaptureSource;
use super::definition::local_address;
use super::edits::TRUNCATED;
use super::inner::AgentInner;
use super::outgoing::replay_bytes;
use super::relay::{HttpForwarder, LocalUpstream, serve_replay};
use super::tls::Trust;
use super::tunnels::{LocalService, RunningTunnel};

use ginnel_api::mask;
use ginnel_base::address::{EndpointUrl, UpstreamAddress};
use ginnel_base::logging::or_debug;
use ginnel_net::ShutdownPhase;

/// How long an answer is waited for before the replay is left to itself.
pub(super) const RESPONSE_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a replay may go on.
const MAX_REPLAY_TIME: Duration = Duration::from_secs(600);
/// How many times a request is sent.
const MAX_TIMES: i64 = 100;
/// The longest pause between two of them.
const MAX_INTERVAL_MS: i64 = 60_000;

/// Why a request was not sent again.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// There is no such record.
    #[error("no captured request has the id {0:?}")]
    NoRecord(String),
    /// There is no tunnel to send it to.
    #[error("no HTTP tunnel {0:?} is running")]
    NoTunnel(String),
    /// There is none at all.
    #[error("no HTTP tunnel is running")]
    NoTunnels,
    /// Not all of the body was kept.
    #[error("{TRUNCATED}")]
    Truncated,
    /// It may not be sent to this address.
    #[error("addr: {0}")]
    Address(String),
    /// A number is not from where to where it must be.
    #[error("{0}: {1} is not from {2} to {3}")]
    OutOfRange(&'static str, i64, i64, i64),
}

/// Where a request is sent, and how often.
#[derive(Debug, Clone)]
pub(super) struct ReplayPlan {
    /// In place of the local service.
    address: Option<UpstreamAddress>,
    times: u32,
    interval: Duration,
}

impl ReplayPlan {
    /// Reads what somebody asks for.
    pub fn new(
        addr: Option<&str>,
        times: Option<i64>,
        interval: Option<i64>,
    ) -> Result<Self, ReplayError> {
        Ok(Self {
            address: addr.map(replay_address).transpose()?,
            times: number_within("times", times.unwrap_or(1), (1, MAX_TIMES))?,
            interval: Duration::from_millis(
                number_within("interval", interval.unwrap_or_default(), (0, MAX_INTERVAL_MS))?
                    .into(),
            ),
        })
    }
}

/// A number that is from one limit to the other.
pub(super) fn number_within(
    name: &'static str,
    number: i64,
    (least, most): (i64, i64),
) -> Result<u32, ReplayError> {
    let fits = u32::try_from(number).ok().filter(|_| (least..=most).contains(&number));
    fits.ok_or(ReplayError::OutOfRange(name, number, least, most))
}

/// Reads where a request is to be sent in place of the local service.
pub(super) fn replay_address(addr: &str) -> Result<UpstreamAddress, ReplayError> {
    local_address(addr)
        .map_err(|problem| ReplayError::Address(format!("{:?} {problem}", mask::url(addr))))
}

/// Where requests are sent: the local service of a tunnel, or another in its place.
pub(super) struct ReplayTarget {
    pub tunnel: Arc<RunningTunnel>,
    elsewhere: Option<HttpForwarder>,
}

impl ReplayTarget {
    /// Sends a request. `recorded` hears the identifier of the record, where the tunnel is inspected, and
    /// `status` is that of the response as soon as it has begun; 0 until then.
    pub async fn send_request(
        &self,
        request: Vec<u8>,
        source: Arc<CaptureSource>,
        recorded: oneshot::Sender<String>,
        status: &AtomicU16,
    ) {
        let tunnel = &self.tunnel;
        let LocalService::Http(front) = &tunnel.service else { return };
        let front = self.elsewhere.as_ref().unwrap_or(front);
        let activity = tunnel.detached_activity();
        let opened = Instant::now();
        tunnel.metrics.connection_opened(opened);
        let mut shutdown = tunnel.shutdown_signal();
        let sending = serve_replay(front, request, source, recorded, &activity, status);
        // What takes longer than this waits for something that nobody will send.
        let sending = tokio::time::timeout(MAX_REPLAY_TIME, sending);
        // It counts for its tunnel, which it may end with.
        let sent = shutdown.run_until(ShutdownPhase::Forced, sending).await;
        sent.map(|sent| or_debug!(sent, "a replayed request was given up"));
        let closed = Instant::now();
        tunnel.metrics.connection_closed(closed.duration_since(opened), closed);
    }
}

/// The source of a request that the agent sends by itself.
pub(super) fn replay_source(replay_of: Option<String>) -> CaptureSource {
    CaptureSource { remote_addr: "127.0.0.1".to_owned(), replay_of, ..CaptureSource::default() }
}

impl AgentInner {
    /// Sends a captured request again, to the local service of its tunnel or of another; returns
    /// when that has answered, or after ten seconds.
    pub(super) async fn replay_request(
        self: &Arc<Self>,
        id: &str,
        tunnel_name: Option<&str>,
        plan: ReplayPlan,
    ) -> Result<(), ReplayError> {
        let record = self.captures.find(id).ok_or_else(|| ReplayError::NoRecord(id.to_owned()))?;
        let request = record.lock_exchange().request.clone();
        if !request.is_whole() {
            return Err(ReplayError::Truncated);
        }
        let name = tunnel_name.unwrap_or(&record.tunnel_name);
        self.send_request(
            name,
            replay_bytes(&request, &record.source),
            Some(record.id.clone()),
            plan,
        )
        .await
        .map(drop)
    }

    /// Sends a request to the local service of a tunnel; returns as [`AgentInner::replay_request`] does, with the
    /// identifier of the new record where the tunnel is inspected.
    pub(super) async fn send_request(
        self: &Arc<Self>,
        tunnel_name: &str,
        request: Vec<u8>,
        replay_of: Option<String>,
        plan: ReplayPlan,
    ) -> Result<Option<String>, ReplayError> {
        let target = self.replay_target(tunnel_name, plan.address)?;
        let source = Arc::new(replay_source(replay_of));
        let (recorded, mut record) = oneshot::channel();
        let shared = self.clone();
        let sending = ginnel_base::tasks::spawn(async move {
            let mut shutdown = target.tunnel.shutdown_signal();
            let mut recorded = Some(recorded);
            for number in 0..plan.times {
                let pause = tokio::time::sleep(plan.interval * u32::from(number > 0));
                let is_running = shutdown.run_until(ShutdownPhase::Graceful, pause).await;
                if is_running.is_none() || !shared.tunnels.is_running(&target.tunnel) {
                    return;
                }
                let recorded = recorded.take().unwrap_or_else(|| oneshot::channel().0);
                let status = AtomicU16::new(0);
                target.send_request(request.clone(), source.clone(), recorded, &status).await;
            }
        });
        let sent = tokio::time::timeout(RESPONSE_TIMEOUT, sending).await;
        or_debug!(sent, "a replayed request takes long");
        Ok(record.try_recv().ok())
    }

    /// The tunnel of this name, as a place to send requests to; with an address, that place is there.
    pub(super) fn replay_target(
        &self,
        tunnel_name: &str,
        address: Option<UpstreamAddress>,
    ) -> Result<ReplayTarget, ReplayError> {
        let tunnel = self.tunnels.find(tunnel_name);
        let tunnel = tunnel.filter(|tunnel| matches!(tunnel.service, LocalService::Http(_)));
        let tunnel = tunnel.ok_or_else(|| ReplayError::NoTunnel(tunnel_name.to_owned()))?;
        let elsewhere =
            address.map(|address| self.forwarder_for_address(&tunnel, address)).transpose()?;
        Ok(ReplayTarget { tunnel, elsewhere })
    }

    /// The name of the tunnel that requests go to when nobody names one.
    pub(super) fn usual_tunnel(&self) -> Result<String, ReplayError> {
        let all = self.tunnels.all();
        let http = all.iter().find(|tunnel| matches!(tunnel.service, LocalService::Http(_)));
        http.map(|tunnel| tunnel.name.clone()).ok_or(ReplayError::NoTunnels)
    }

    /// A tunnel whose local service is at another address, where requests may be sent to that.
    fn forwarder_for_address(
        &self,
        tunnel: &RunningTunnel,
        address: UpstreamAddress,
    ) -> Result<HttpForwarder, ReplayError> {
        let refused = |problem: &str| ReplayError::Address(format!("{} {problem}", address));
        let LocalService::Http(front) = &tunnel.service else {
            return Err(ReplayError::NoTunnel(tunnel.name.clone()));
        };
        let Some(place) = address.host_port() else {
            return Err(refused("is a folder or a Unix socket"));
        };
        let is_public_host =
            |url: String| EndpointUrl::parse(&url).is_ok_and(|url| url.host == place.host);
        let is_own = self.tunnels.all().iter().any(|own| {
            own.definition.address == address || own.public_url().is_some_and(is_public_host)
        });
        if !is_own && !self.replay_hosts.allows_host(&place.host) {
            return Err(refused("is not this machine; replay_allow_hosts can allow it"));
        }
        let tls = Trust::Anything.client_config().map_err(|error| refused(&error.to_string()))?;
        let upstream = LocalUpstream::new(address, tls, self.closed.clone())
            .with_protocol(tunnel.definition.app_protocol);
        Ok(front.leading_to(upstream.with_bans(&self.reuse_bans)))
    }
}
