//! How a service stops: visitors, agents and callers are answered first, and the database is closed last.

use std::pin::{Pin, pin};
use std::time::Duration;

use ginnel_base::logging::or_debug;
use ginnel_net::ShutdownPhase;

use super::store::Store;
use super::{Service, logins};

/// How long the last events of the audit trail may take to be written, and the last use of sessions.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(3);
/// How long before the end of the grace period waits for locks end, so that their writes are answered.
const TIME_TO_ANSWER: Duration = Duration::from_millis(500);

impl Service {
    /// Is not ready any more for as long as `drain_delay`, takes no more
    /// requests then, answers those in flight for as long as `grace`, and closes the database.
    pub async fn stop(self, grace: Duration) {
        self.stop_or_force(grace, std::future::pending()).await;
    }

    /// Does what [`Service::stop`] does, and cuts off whoever is still being served when `force`
    /// completes before the grace is over.
    pub async fn stop_or_force(mut self, grace: Duration, force: impl Future<Output = ()>) {
        let mut force = pin!(force);
        let is_forced = self.drain_or_force(force.as_mut()).await;
        // What is only kept back on purpose is not waited for.
        self.shared.rehearsal.reset();
        self.acme = None;
        if let Some(agents) = self.agents.take() {
            agents.close();
        }
        let (gateway, store) = (&self.shared.gateway, self.shared.store.clone());
        let visitors = async { tokio::join!(gateway.stop(grace), self.drain_agents(grace)) };
        tokio::select! {
            _ = async { tokio::join!(self.shutdown.stop(grace), visitors) }, if !is_forced => {}
            () = end_lock_waits(&store, grace) => {}
            () = async { if !is_forced { force.await } } => {
                store.end_lock_waits();
                tokio::join!(self.shutdown.stop(Duration::ZERO), gateway.stop(Duration::ZERO));
            }
        }
        // Before another node takes over.
        if let Some(events) = self.events.take() {
            events.stop().await;
        }
        // Before agents are let go: visitors of other nodes are led elsewhere from now on.
        self.parts.leave_cluster().await;
        self.shared.registry.dismiss_all().await;
        gateway.end_relays().await;
        if let Some(peers) = &self.shared.peers {
            peers.stop().await;
        }
        let flushed = tokio::time::timeout(
            FLUSH_TIMEOUT,
            self.shared.audit.flush_pending(&self.shared.store),
        );
        or_debug!(flushed.await, "the last events of refused calls are not written");
        let flush = logins::flush_sessions(&self.shared.store, self.shared.gateway.logins());
        let flushed = tokio::time::timeout(FLUSH_TIMEOUT, flush);
        or_debug!(flushed.await, "the last use of sessions is not stored");
        self.remove_token_files();
        self.parts.close_store().await;
    }

    /// Lets agents go to other nodes, where there are any, as soon as they carry nothing.
    async fn drain_agents(&self, grace: Duration) {
        let Some(cluster) = &self.shared.cluster else { return };
        if grace.is_zero() {
            return;
        }
        cluster.announce_drain().await;
        self.shared.registry.drain_agents(&self.shared.gateway, grace).await;
    }

    /// Is not ready any more, closes kept connections behind a response that says so, and waits for whoever
    /// looks at that; true when `force` ends the wait.
    async fn drain_or_force(&self, force: Pin<&mut impl Future<Output = ()>>) -> bool {
        self.monitor.mark_draining();
        let delay = self.shared.live.load().drain_delay;
        if delay.is_zero() {
            return false;
        }
        // A balancer that looks at it later sends what it has over connections that it keeps.
        self.shutdown.begin_phase(ShutdownPhase::Draining);
        self.shared.gateway.start_drain();
        tokio::select! {
            () = tokio::time::sleep(delay) => false,
            () = force => true,
        }
    }
}

/// Has writes that wait for a lock answered within the time; never ends.
async fn end_lock_waits(store: &Store, grace: Duration) {
    tokio::time::sleep(grace.saturating_sub(TIME_TO_ANSWER)).await;
    store.end_lock_waits();
    std::future::pending().await
}
