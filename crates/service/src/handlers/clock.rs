//! The clock by which the service computes the age of stored data.

use std::time::SystemTime;

use ginnel_api::Timestamp;
use ginnel_api::remote::clock::{ClockState, Confirm, Get};

use crate::handlers::prelude::*;

pub(super) fn handlers() -> Vec<Handler> {
    vec![on(get), on(confirm)]
}

async fn get(service: Context, _: Get) -> OperationResult<Get> {
    // This finds a leap that has not been noticed yet.
    service.shared.store.age_time().await?;
    Ok(clock_state(&service, service.shared.store.wall_time()))
}

async fn confirm(service: Context, _: Confirm) -> OperationResult<Confirm> {
    service.caller.check_admin(code::CLOCK_NEEDS_ADMIN, "confirm the clock")?;
    let (now, ended_pause) = service.shared.store.confirm_clock().await?;
    let ended_pause_seconds = ended_pause.as_secs();
    tracing::warn!(ended_pause_seconds, "an operator has confirmed the clock");
    Ok(clock_state(&service, now))
}

fn clock_state(service: &Context, time: SystemTime) -> ClockState {
    let pause = service.shared.store.age_clock().remaining_pause().unwrap_or_default();
    let pause_seconds = i64::try_from(pause.as_secs()).unwrap_or(i64::MAX);
    ClockState { time: Some(Timestamp::from_system_time(time)), pause_seconds: Some(pause_seconds) }
}
