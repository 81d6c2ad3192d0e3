//! Answers to the operations on replay schedules.

use ginnel_api::local::replay_schedules;
use ginnel_api::{Operation, Page, on};

use super::handler::{Shared, WebHandler, WebResult};
use super::rejection::WebRejection;
use crate::replay::ReplayError;
use crate::replay_schedules::ScheduleError;

/// Every handler of this resource.
pub(super) fn all_handlers() -> Vec<WebHandler> {
    vec![
        on(list_schedules),
        on(add_schedule),
        on(get_schedule),
        on(delete_schedule),
        on(clear_schedules),
    ]
}

async fn list_schedules(
    agent: Shared,
    _: replay_schedules::List,
) -> WebResult<replay_schedules::List> {
    let all = agent.replay_schedules.all();
    let shown = all.iter().map(|schedule| schedule.to_replay_schedule()).collect();
    Ok(Page::whole(&replay_schedules::List::INFO, "/api", shown))
}

async fn add_schedule(
    agent: Shared,
    add: replay_schedules::Add,
) -> WebResult<replay_schedules::Add> {
    let schedule = agent.start_schedule(add).map_err(schedule_rejection)?;
    Ok(schedule.to_replay_schedule())
}

async fn get_schedule(
    agent: Shared,
    get: replay_schedules::Get,
) -> WebResult<replay_schedules::Get> {
    let schedule = agent.replay_schedules.find(&get.id).ok_or_else(WebRejection::not_found)?;
    Ok(schedule.to_replay_schedule())
}

async fn delete_schedule(
    agent: Shared,
    delete: replay_schedules::Delete,
) -> WebResult<replay_schedules::Delete> {
    match agent.replay_schedules.remove(Some(&delete.id)) {
        true => Ok(()),
        false => Err(WebRejection::not_found()),
    }
}

async fn clear_schedules(
    agent: Shared,
    _: replay_schedules::Clear,
) -> WebResult<replay_schedules::Clear> {
    agent.replay_schedules.remove(None);
    Ok(())
}

fn schedule_rejection(error: ScheduleError) -> WebRejection {
    let field = match &error {
        ScheduleError::Replay(ReplayError::NoRecord(_) | ReplayError::Truncated) => "captured_id: ",
        ScheduleError::Replay(ReplayError::NoTunnel(_)) => "tunnel_name: ",
        _ => "",
    };
    WebRejection::invalid_replay_schedule(&[format!("{field}{error}")])
}
