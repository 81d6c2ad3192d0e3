//! Sending captured requests again (agent sheet, section 6).

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use super::inner::AgentInner;
use super::relay::once;
use super::tunnels::LocalService;

use crate::logging::or_debug;

/// How long an answer is waited for before the replay is left to itself.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a replay may go on.
const MAX_REPLAY_TIME: Duration = Duration::from_secs(600);

/// Why a request was not sent again.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReplayError {
    /// There is no such record.
    #[error("no captured request has the id {0:?}")]
    NoRecord(String),
    /// There is no tunnel to send it to.
    #[error("no HTTP tunnel {0:?} is running")]
    NoTunnel(String),
    /// Not all of the body was kept.
    #[error("the body of the request is longer than what was captured")]
    Truncated,
}

impl AgentInner {
    /// Sends a captured request again, to the local service of its tunnel or of another; returns
    /// when that has answered, or after ten seconds.
    pub(super) async fn replay(
        self: &Arc<Self>,
        id: &str,
        tunnel_name: Option<&str>,
    ) -> Result<(), ReplayError> {
        let record = self.captures.find(id).ok_or_else(|| ReplayError::NoRecord(id.to_owned()))?;
        let request = record.exchange().request.clone();
        if request.is_truncated() {
            return Err(ReplayError::Truncated);
        }
        let name = tunnel_name.unwrap_or(&record.tunnel_name);
        self.send(name, request.raw(), Some(record.id.clone())).await.map(drop)
    }

    /// Sends a request to the local service of a tunnel; returns as [`AgentInner::replay`] does, with the
    /// identifier of the new record where the tunnel is inspected.
    pub(super) async fn send(
        self: &Arc<Self>,
        tunnel_name: &str,
        request: Vec<u8>,
        replay_of: Option<String>,
    ) -> Result<Option<String>, ReplayError> {
        let tunnel = self.tunnels.find(tunnel_name);
        let tunnel = tunnel.filter(|tunnel| matches!(tunnel.service, LocalService::Http(_)));
        let tunnel = tunnel.ok_or_else(|| ReplayError::NoTunnel(tunnel_name.to_owned()))?;
        let (recorded, mut record) = oneshot::channel();
        let sending = tokio::spawn(async move {
            let LocalService::Http(front) = &tunnel.service else { return };
            let opened = Instant::now();
            tunnel.metrics.connection_opened(opened);
            // What takes longer than this waits for something that nobody will send.
            let replaying = once(front, request, replay_of, recorded);
            let replayed = tokio::time::timeout(MAX_REPLAY_TIME, replaying).await;
            or_debug!(replayed, "a replayed request was given up");
            let closed = Instant::now();
            tunnel.metrics.connection_closed(closed.duration_since(opened), closed);
        });
        let sent = tokio::time::timeout(RESPONSE_TIMEOUT, sending).await;
        or_debug!(sent, "a replayed request takes long");
        Ok(record.try_recv().ok())
    }
}
