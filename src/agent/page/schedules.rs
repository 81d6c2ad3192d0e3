//! Replay schedules, with the requests that they send.

use serde::Serialize;

use crate::agent::inner::AgentInner;
use crate::agent::replay_schedules::RunningSchedule;
use crate::api::local::replay_schedules::ReplaySchedule;
use crate::api::mask;

/// A replay schedule.
#[derive(Debug, Serialize)]
pub(super) struct ScheduleView {
    #[serde(flatten)]
    shown: ReplaySchedule,
    /// The method of the request.
    method: String,
    /// Path and query; secrets are masked.
    target: String,
}

impl ScheduleView {
    fn of(schedule: &RunningSchedule) -> Self {
        let exchange = schedule.options.record.exchange();
        let [method, target, _] = exchange.request.start_line();
        let (method, target) = (method.into_owned(), mask::target(&target).into_owned());
        drop(exchange);
        Self { shown: schedule.show(), method, target }
    }
}

/// All of them, oldest first.
pub(super) fn list(shared: &AgentInner) -> Vec<ScheduleView> {
    shared.replay_schedules.all().iter().map(|schedule| ScheduleView::of(schedule)).collect()
}
