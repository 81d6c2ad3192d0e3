//! Sending on a schedule.

use std::sync::Arc;
use std::time::Duration;

use chrono::{Local, TimeDelta};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::registry::{RunningSchedule, ScheduleError, ScheduleOptions, ScheduleState};
use crate::agent::capture::CaptureSource;
use crate::agent::inner::AgentInner;
use crate::agent::replay::{ReplayError, replay_source};
use crate::api::local::replay_schedules::Add;
use crate::net::ShutdownPhase;

/// How long it takes at most until it is seen that a request was deleted.
const CHECK_INTERVAL: Duration = Duration::from_millis(500);

impl AgentInner {
    /// Starts to send a captured request on a schedule.
    ///
    /// # Errors
    /// When it is not kept as a whole, cannot be sent there, or what is asked for is not within its limits.
    pub(in crate::agent) fn start_schedule(
        self: &Arc<Self>,
        add: Add,
    ) -> Result<Arc<RunningSchedule>, ScheduleError> {
        let id = &add.captured_id;
        let record = self.captures.find(id).ok_or_else(|| ReplayError::NoRecord(id.clone()))?;
        let options = ScheduleOptions::read(add, record)?;
        self.replay_target(&options.tunnel_name, options.address.clone())?;
        let schedule = self.replay_schedules.add(options, &self.shutdown)?;
        tokio::spawn(run(self.clone(), schedule.clone()));
        Ok(schedule)
    }

    /// Sends the request of a schedule once, and waits for the response.
    async fn send_scheduled(&self, schedule: &RunningSchedule) -> Result<(), ReplayError> {
        let ScheduleOptions { record, request, tunnel_name, address, .. } = &schedule.options;
        let target = self.replay_target(tunnel_name, address.clone())?;
        let source = CaptureSource {
            schedule_id: Some(schedule.id.clone()),
            ..replay_source(Some(record.id.clone()))
        };
        let (recorded, mut new) = oneshot::channel();
        schedule.advance(|progress| {
            progress.sent += 1;
            progress.next = None;
        });
        let status = target.send(request.clone(), Arc::new(source), recorded).await;
        schedule.advance(|progress| {
            progress.failed += u32::from(status.is_none_or(|status| status >= 500));
            progress.last_status = status;
            progress.last_id = new.try_recv().ok();
        });
        Ok(())
    }
}

/// Why a schedule sends no more; none while it does.
fn end_of(schedule: &RunningSchedule) -> Option<ScheduleState> {
    let record = &schedule.options.record;
    if schedule.is_over(Local::now()) {
        Some(ScheduleState::Completed)
    } else if record.exchange().is_deleted() {
        Some(ScheduleState::Aborted(format!("the request {} was deleted", record.id)))
    } else {
        None
    }
}

/// Sends until the schedule, or the agent, comes to its end.
async fn run(agent: Arc<AgentInner>, schedule: Arc<RunningSchedule>) {
    let mut shutdown = schedule.shutdown.signal();
    let mut next = Instant::now();
    let end = loop {
        if shutdown.phase() > ShutdownPhase::Running {
            return;
        }
        if let Some(end) = end_of(&schedule) {
            break end;
        }
        if let Some(left) = next.checked_duration_since(Instant::now()).filter(|it| !it.is_zero()) {
            let pause = tokio::time::sleep(left.min(CHECK_INTERVAL));
            // What ends the wait is looked at above.
            shutdown.run_until(ShutdownPhase::Graceful, pause).await;
            continue;
        }
        if let Err(error) = agent.send_scheduled(&schedule).await {
            break ScheduleState::Aborted(error.to_string());
        }
        // A response that took longer than the interval makes up for nothing.
        next = (next + schedule.options.interval).max(Instant::now());
        let left = next.saturating_duration_since(Instant::now());
        let at = TimeDelta::from_std(left).ok().map(|left| Local::now() + left);
        schedule.advance(|progress| progress.next = at);
    };
    tracing::debug!(schedule = schedule.id, ?end, "a replay schedule is over");
    schedule.advance(|progress| {
        progress.next = None;
        progress.state = end;
    });
}
