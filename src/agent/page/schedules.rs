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
        let options = &schedule.options;
        let (method, target) = (options.method.clone(), mask::target(&options.target).into_owned());
        Self { shown: schedule.show(), method, target }
    }
}

/// All of them, oldest first.
pub(super) fn list(shared: &AgentInner) -> Vec<ScheduleView> {
    shared.replay_schedules.all().iter().map(|schedule| ScheduleView::of(schedule)).collect()
}
