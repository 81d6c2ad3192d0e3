//! Sending on a schedule.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use chrono::{Local, TimeDelta};
use tokio::sync::oneshot;
use tokio::time::Instant;

use ginnel_api::local::replay_schedules::Add;
use ginnel_net::ShutdownPhase;

use super::registry::{RunningSchedule, ScheduleError, ScheduleOptions, ScheduleState};
use crate::capture::{CaptureRecord, CaptureSource};
use crate::inner::AgentInner;
use crate::outgoing::replay_bytes;
use crate::replay::{RESPONSE_TIMEOUT, ReplayError, ReplayTarget, replay_source};

/// How long it takes at most until it is seen that a request was deleted.
const CHECK_INTERVAL: Duration = Duration::from_millis(500);
/// How often it is looked whether a response has begun.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// What a schedule needs for as long as it runs.
struct ScheduledRequest {
    agent: Arc<AgentInner>,
    schedule: Arc<RunningSchedule>,
    record: Arc<CaptureRecord>,
    /// The bytes of the record, which newer ones do not displace.
    request: Vec<u8>,
    /// The very tunnel: another one that gets its name is not meant.
    target: Arc<ReplayTarget>,
    /// How many times all records had been removed before.
    clearings: u64,
}

impl AgentInner {
    /// Starts to send a captured request on a schedule.
    ///
    /// # Errors
    /// When it is not kept as a whole, cannot be sent there, or what is asked for is not within its limits.
    pub(crate) fn start_schedule(
        self: &Arc<Self>,
        add: Add,
    ) -> Result<Arc<RunningSchedule>, ScheduleError> {
        let clearings = self.captures.clear_count();
        let id = &add.captured_id;
        let record = self.captures.find(id).ok_or_else(|| ReplayError::NoRecord(id.clone()))?;
        let request = record.lock_exchange().request.clone();
        if !request.is_whole() {
            return Err(ReplayError::Truncated.into());
        }
        let options = ScheduleOptions::from_add(add, &record)?;
        let target = self.replay_target(&options.tunnel_name, options.address.clone())?;
        let schedule = self.replay_schedules.add(options, &self.shutdown)?;
        let scheduled = ScheduledRequest {
            agent: self.clone(),
            schedule: schedule.clone(),
            request: replay_bytes(&request, &record.source),
            record,
            target: Arc::new(target),
            clearings,
        };
        ginnel_base::tasks::spawn(scheduled.run());
        Ok(schedule)
    }
}

impl ScheduledRequest {
    /// Sends until the schedule, its tunnel or the agent comes to its end.
    async fn run(self) {
        let schedule = self.schedule.clone();
        let mut shutdown = schedule.shutdown.signal();
        let running = shutdown.run_until(ShutdownPhase::Graceful, self.send_until_end()).await;
        let Some(end) = running else { return };
        tracing::debug!(schedule = schedule.id, ?end, "a replay schedule is over");
        schedule.update_progress(|progress| {
            progress.next = None;
            progress.state = end;
        });
    }

    async fn send_until_end(self) -> ScheduleState {
        let mut tunnel = self.target.tunnel.shutdown_signal();
        let sending = self.send_while_due();
        let end = tunnel.run_until(ShutdownPhase::Graceful, sending).await;
        end.unwrap_or_else(|| self.without_tunnel())
    }

    async fn send_while_due(&self) -> ScheduleState {
        let mut next = Instant::now();
        loop {
            if let Some(end) = self.end_state() {
                return end;
            }
            let left = next.saturating_duration_since(Instant::now());
            if !left.is_zero() {
                tokio::time::sleep(left.min(CHECK_INTERVAL)).await;
                continue;
            }
            self.send_once().await;
            // A response that took longer than the interval makes up for nothing.
            next = (next + self.schedule.options.interval).max(Instant::now());
            let left = next.saturating_duration_since(Instant::now());
            let at = TimeDelta::from_std(left).ok().map(|left| Local::now() + left);
            self.schedule.update_progress(|progress| progress.next = at);
        }
    }

    /// Why no more is sent; none while that goes on.
    fn end_state(&self) -> Option<ScheduleState> {
        if self.schedule.is_over(Local::now()) {
            return Some(ScheduleState::Completed);
        }
        let is_cleared = self.agent.captures.clear_count() != self.clearings;
        if is_cleared || self.record.lock_exchange().is_deleted() {
            let problem = format!("the request {} was deleted", self.record.id);
            return Some(ScheduleState::Aborted(problem));
        }
        let is_running = self.agent.tunnels.is_running(&self.target.tunnel);
        (!is_running).then(|| self.without_tunnel())
    }

    fn without_tunnel(&self) -> ScheduleState {
        let name = &self.schedule.options.tunnel_name;
        ScheduleState::Aborted(format!("the tunnel {name:?} was stopped"))
    }

    /// Sends the request once, and waits for the response: as long as it takes to begin, and then for
    /// [`RESPONSE_TIMEOUT`] until it is left to itself.
    async fn send_once(&self) {
        let schedule = &self.schedule;
        let source = Arc::new(CaptureSource {
            schedule_id: Some(schedule.id.clone()),
            ..replay_source(Some(self.record.id.clone()))
        });
        let (recorded, mut new) = oneshot::channel();
        schedule.update_progress(|progress| {
            progress.sent += 1;
            progress.next = None;
        });
        let status = Arc::new(AtomicU16::new(0));
        let (target, request, begun) = (self.target.clone(), self.request.clone(), status.clone());
        let mut sending = ginnel_base::tasks::spawn(async move {
            target.send_request(request, source, recorded, &begun).await;
        });
        let mut deadline = None;
        while tokio::time::timeout(POLL_INTERVAL, &mut sending).await.is_err() {
            if deadline.is_none() && status.load(Ordering::Relaxed) > 0 {
                deadline = Some(Instant::now() + RESPONSE_TIMEOUT);
                self.record_response(&status, &mut new);
            }
            if deadline.is_some_and(|deadline| deadline <= Instant::now()) {
                return;
            }
        }
        if deadline.is_none() {
            self.record_response(&status, &mut new);
        }
    }

    fn record_response(&self, status: &AtomicU16, recorded: &mut oneshot::Receiver<String>) {
        let status = Some(status.load(Ordering::Relaxed)).filter(|status| *status > 0);
        self.schedule.update_progress(|progress| {
            progress.failed += u32::from(status.is_none_or(|status| status >= 500));
            progress.last_status = status;
            progress.last_id = recorded.try_recv().ok();
        });
    }
}
