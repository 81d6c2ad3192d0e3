//! Replay schedules, with the requests that they send.

use serde::Serialize;

use ginnel_api::local::replay_schedules::ReplaySchedule;
use ginnel_api::mask;

use crate::inner::AgentInner;
use crate::replay_schedules::RunningSchedule;

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
    fn from_schedule(schedule: &RunningSchedule) -> Self {
        let options = &schedule.options;
        let (method, target) = (options.method.clone(), mask::target(&options.target).into_owned());
        Self { shown: schedule.to_replay_schedule(), method, target }
    }
}

/// All of them, oldest first.
pub(super) fn list_schedules(shared: &AgentInner) -> Vec<ScheduleView> {
    shared
        .replay_schedules
        .all()
        .iter()
        .map(|schedule| ScheduleView::from_schedule(schedule))
        .collect()
}
