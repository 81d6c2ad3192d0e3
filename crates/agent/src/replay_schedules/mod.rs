//! Captured requests that are sent again and again, until that is over or somebody stops it.
//!
//! `registry` knows them, and how far each has come; `run` sends.

mod registry;
mod run;

pub(super) use registry::{RunningSchedule, ScheduleError, ScheduleRegistry};
