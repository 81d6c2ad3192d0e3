//! The schedules that run, and the last ones that are over.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use chrono::{DateTime, Local, SecondsFormat};
use tokio::sync::watch;

use ginnel_api::local::replay_schedules::{Add, ReplaySchedule};
use ginnel_api::{Note, Timestamp};
use ginnel_base::address::UpstreamAddress;
use ginnel_net::{Shutdown, ShutdownPhase};

use crate::capture::CaptureRecord;
use crate::replay::{ReplayError, number_within, replay_address};

/// How many schedules run at a time.
const MAX_RUNNING: usize = 20;
/// How many that are over are still listed.
const MAX_ENDED: usize = 20;
const INTERVAL_MS: (i64, i64) = (100, 86_400_000);
const TIMES: (i64, i64) = (1, 1_000_000);

/// Why a schedule is not started.
#[derive(Debug, thiserror::Error)]
pub enum ScheduleError {
    /// Its request cannot be sent so.
    #[error(transparent)]
    Replay(#[from] ReplayError),
    /// The moment of its end is none, or has passed.
    #[error("until: {0:?} {1}")]
    Until(String, &'static str),
    /// So many run.
    #[error("{MAX_RUNNING} replay schedules run, and no more may")]
    TooMany,
}

/// What is sent, and when.
#[derive(Debug)]
pub struct ScheduleOptions {
    /// The identifier of the captured request.
    pub captured_id: String,
    pub method: String,
    /// Path and query.
    pub target: String,
    pub tunnel_name: String,
    /// In place of the tunnel's local service.
    pub address: Option<UpstreamAddress>,
    pub interval: Duration,
    pub times: Option<u32>,
    pub until: Option<DateTime<Local>>,
}

/// How far a schedule has come.
#[derive(Debug, Clone, Default)]
pub struct ScheduleProgress {
    pub state: ScheduleState,
    /// When the request is sent next; none while it is under way, and at the end.
    pub next: Option<DateTime<Local>>,
    /// How many times it has been sent.
    pub sent: u32,
    /// How many of these had no response, or one with a status from 500 on.
    pub failed: u32,
    pub last_status: Option<u16>,
    /// The record of the last time.
    pub last_id: Option<String>,
}

/// Whether a schedule goes on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum ScheduleState {
    /// It does.
    #[default]
    Running,
    /// It came to its end.
    Completed,
    /// It could not go on, for this reason.
    Aborted(String),
}

/// A schedule that runs, or has come to its end.
#[derive(Debug)]
pub struct RunningSchedule {
    /// What it is called.
    pub id: String,
    pub options: ScheduleOptions,
    /// Ends it.
    pub shutdown: Shutdown,
    start: DateTime<Local>,
    progress: Mutex<ScheduleProgress>,
    changes: watch::Sender<u64>,
}

/// The schedules of an agent.
#[derive(Debug, Default)]
pub struct ScheduleRegistry {
    /// Oldest first.
    list: Mutex<Vec<Arc<RunningSchedule>>>,
    /// How many there have been.
    count: AtomicU32,
    changes: watch::Sender<u64>,
}

impl ScheduleOptions {
    /// Reads what somebody asks for this captured request.
    ///
    /// # Errors
    /// When a number is not within its limits, or `until` or `addr` is unusable.
    pub fn from_add(add: Add, record: &CaptureRecord) -> Result<Self, ScheduleError> {
        let [method, target, _] =
            record.lock_exchange().request.start_line().map(std::borrow::Cow::into_owned);
        let interval = number_within("interval", add.interval, INTERVAL_MS)?;
        let times = add.times.map(|times| number_within("times", times, TIMES)).transpose()?;
        let until = add.until.map(read_until).transpose()?;
        Ok(Self {
            captured_id: record.id.clone(),
            method,
            target,
            tunnel_name: add.tunnel_name.unwrap_or_else(|| record.tunnel_name.clone()),
            address: add.addr.as_deref().map(replay_address).transpose()?,
            interval: Duration::from_millis(interval.into()),
            times,
            until,
        })
    }
}

fn read_until(Timestamp(text): Timestamp) -> Result<DateTime<Local>, ScheduleError> {
    match DateTime::parse_from_rfc3339(&text) {
        Ok(until) if until > Local::now() => Ok(until.with_timezone(&Local)),
        Ok(_) => Err(ScheduleError::Until(text, "has passed")),
        Err(_) => Err(ScheduleError::Until(text, "is not a moment as in RFC 3339")),
    }
}

impl ScheduleRegistry {
    /// Adds a schedule, which ends with `shutdown`.
    ///
    /// # Errors
    /// When too many run.
    pub fn add(
        &self,
        options: ScheduleOptions,
        shutdown: &Shutdown,
    ) -> Result<Arc<RunningSchedule>, ScheduleError> {
        let mut list = self.lock_schedules();
        let running = list.iter().filter(|schedule| schedule.is_running()).count();
        if running >= MAX_RUNNING {
            return Err(ScheduleError::TooMany);
        }
        let mut surplus = (list.len() - running).saturating_sub(MAX_ENDED);
        list.retain(|schedule| {
            let is_surplus = surplus > 0 && !schedule.is_running();
            surplus -= usize::from(is_surplus);
            !is_surplus
        });
        let number = self.count.fetch_add(1, Ordering::Relaxed) + 1;
        let schedule = Arc::new(RunningSchedule {
            id: format!("schedule-{number}"),
            options,
            shutdown: shutdown.child(),
            start: Local::now(),
            progress: Mutex::default(),
            changes: self.changes.clone(),
        });
        list.push(schedule.clone());
        drop(list);
        notify_change(&self.changes);
        Ok(schedule)
    }

    /// All schedules.
    pub fn all(&self) -> Vec<Arc<RunningSchedule>> {
        self.lock_schedules().clone()
    }

    /// The schedule with this identifier.
    pub fn find(&self, id: &str) -> Option<Arc<RunningSchedule>> {
        self.lock_schedules().iter().find(|schedule| schedule.id == id).cloned()
    }

    /// Stops and removes one schedule or all; false where there was none.
    pub fn remove(&self, id: Option<&str>) -> bool {
        let mut list = self.lock_schedules();
        let (kept, removed): (Vec<_>, Vec<_>) =
            list.drain(..).partition(|schedule| id.is_some_and(|id| schedule.id != id));
        *list = kept;
        drop(list);
        removed.iter().for_each(|schedule| schedule.shutdown.begin_phase(ShutdownPhase::Graceful));
        notify_change(&self.changes);
        !removed.is_empty()
    }

    /// Counts what has changed.
    pub fn watch_changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    fn lock_schedules(&self) -> MutexGuard<'_, Vec<Arc<RunningSchedule>>> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn notify_change(changes: &watch::Sender<u64>) {
    changes.send_modify(|changes| *changes += 1);
}

impl RunningSchedule {
    /// How far it has come.
    pub fn progress(&self) -> ScheduleProgress {
        self.lock_progress().clone()
    }

    /// Whether it goes on.
    pub fn is_running(&self) -> bool {
        self.lock_progress().state == ScheduleState::Running
    }

    /// Whether it has come to its end at this moment.
    pub fn is_over(&self, now: DateTime<Local>) -> bool {
        let is_sent = self.options.times.is_some_and(|times| self.lock_progress().sent >= times);
        is_sent || self.options.until.is_some_and(|until| until <= now)
    }

    /// Changes how far it has come.
    pub fn update_progress(&self, change: impl FnOnce(&mut ScheduleProgress)) {
        change(&mut self.lock_progress());
        notify_change(&self.changes);
    }

    fn lock_progress(&self) -> MutexGuard<'_, ScheduleProgress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The schedule as the local API shows it.
    pub fn to_replay_schedule(&self) -> ReplaySchedule {
        let time = |moment: DateTime<Local>| {
            Timestamp(moment.to_rfc3339_opts(SecondsFormat::Millis, false))
        };
        let ScheduleOptions { captured_id, tunnel_name, address, interval, times, until, .. } =
            &self.options;
        let progress = self.progress();
        let (state, error) = match progress.state {
            ScheduleState::Running => ("running", String::new()),
            ScheduleState::Completed => ("completed", String::new()),
            ScheduleState::Aborted(reason) => ("aborted", reason),
        };
        ReplaySchedule {
            uri: format!("/api/replay_schedules/{}", self.id),
            id: self.id.clone(),
            captured_id: captured_id.clone(),
            tunnel_name: tunnel_name.clone(),
            addr: Note(address.as_ref().map(UpstreamAddress::to_string).unwrap_or_default()),
            interval: i64::try_from(interval.as_millis()).unwrap_or(i64::MAX),
            times: times.map(i64::from),
            until: until.map(time),
            state: state.to_owned(),
            error: Note(error),
            start: time(self.start),
            next: progress.next.map(time),
            sent: progress.sent.into(),
            remaining: times.map(|times| times.saturating_sub(progress.sent).into()),
            failed: progress.failed.into(),
            last_status: progress.last_status.map(i64::from),
            last_captured_id: Note(progress.last_id.unwrap_or_default()),
        }
    }
}
