//! Replay schedules, with the requests that they send.

use serde::Serialize;

use crate::agent::inner::AgentInner;
use crate::api::local::replay_schedules::ReplaySchedule;
use crate::api::mask;

/// A replay schedule.
#[derive(Debug, Serialize)]
pub(super) struct ScheduleView {
    #[serde(flatten)]
    shown: ReplaySchedule,
    /// The method of the request; none where it is no longer kept.
    method: Option<String>,
    /// Path and query; secrets are masked.
    target: Option<String>,
}

impl ScheduleView {
    fn of(shared: &AgentInner, shown: ReplaySchedule) -> Self {
        let record = shared.captures.find(&shown.captured_id);
        let line = record.map(|record| {
            let exchange = record.exchange();
            let [method, target, _] = exchange.request.start_line();
            (method.into_owned(), mask::target(&target).into_owned())
        });
        let (method, target) = line.unzip();
        Self { shown, method, target }
    }
}

/// All of them, oldest first.
pub(super) fn list(shared: &AgentInner) -> Vec<ScheduleView> {
    let all = shared.replay_schedules.all();
    all.iter().map(|schedule| ScheduleView::of(shared, schedule.show())).collect()
}
