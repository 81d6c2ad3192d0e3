//! What is new, for pages that are open: as a stream of events, or asked for again and again.
//!
//! Every change of a record has a revision. Who knows the last one that it has seen gets the
//! records that changed since, whether it asks for them or has been away. So nothing is queued for
//! a page: a slow one gets fewer and larger updates.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde::Serialize;
use tokio::sync::mpsc;
use tokio::time::Instant;

use ginnel_net::{ChannelBody, ShutdownPhase};

use super::filter::RequestFilter;
use super::view::RequestSummary;
use crate::capture::Usage;
use crate::inner::AgentInner;

/// How many records are in one update at most; older ones are asked for.
pub(super) const MAX_UPDATE_REQUESTS: usize = 1000;
/// How long changes are gathered before they are sent.
const UPDATE_INTERVAL: Duration = Duration::from_millis(50);
/// How often a page hears something although nothing happens.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
/// How many updates wait for a page that does not read.
const MAX_QUEUED_UPDATES: usize = 4;

/// What has changed since the last update.
#[derive(Debug, Serialize)]
pub(super) struct LiveUpdate {
    /// What to name when asking for what comes later.
    pub cursor: String,
    /// Whether what the page has is to be forgotten first.
    pub reset: bool,
    /// Newest last.
    pub requests: Vec<RequestSummary>,
    /// Records that changed and are not to be shown any more.
    pub hidden: Vec<String>,
    /// Whether there are older records than these, on a reset.
    pub more: bool,
    pub usage: CaptureUsage,
    /// The identifier of the oldest record that is kept.
    pub oldest: Option<String>,
    /// How the link to the service is.
    pub state: &'static str,
    /// How many tunnels run.
    pub tunnels: usize,
    /// Changes with each change of mocks, holds, and requests that wait.
    pub rules: u64,
    /// How many requests wait.
    pub held: usize,
    /// Changes with each change of replay schedules.
    pub schedules: u64,
}

/// How full the store is.
#[derive(Debug, Serialize)]
pub(super) struct CaptureUsage {
    pub bytes: usize,
    pub limit: usize,
    pub records: usize,
    pub evicted: u64,
}

impl From<Usage> for CaptureUsage {
    fn from(usage: Usage) -> Self {
        let Usage { bytes, limit, records, evicted } = usage;
        Self { bytes, limit, records, evicted }
    }
}

/// What a page has seen: the run of the agent, and the revision.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cursor {
    run: i64,
    revision: u64,
}

impl Cursor {
    /// Reads what an update named.
    pub fn from_text(text: &str) -> Option<Self> {
        let (run, revision) = text.split_once('.')?;
        Some(Self { run: run.parse().ok()?, revision: revision.parse().ok()? })
    }

    fn to_text(self) -> String {
        format!("{}.{}", self.run, self.revision)
    }
}

/// What has changed since a cursor; without one, the newest records. At most so many are told.
pub(super) fn update_since(
    shared: &AgentInner,
    filter: &RequestFilter,
    since: Option<Cursor>,
    max_requests: usize,
) -> LiveUpdate {
    let since = since.filter(|since| since.run == shared.run).map(|since| since.revision);
    let kept = shared.captures.snapshot_since(since);
    let is_first = kept.since.is_none();
    let changed =
        kept.records.iter().filter(|record| kept.since.is_none_or(|it| record.revision() > it));
    let (mut requests, mut more, mut hidden) = (Vec::new(), false, kept.removed);
    for record in changed {
        if !filter.matches_record(record) {
            if !is_first {
                hidden.push(record.id.clone());
            }
        } else if requests.len() < max_requests {
            requests.push(RequestSummary::from_record(record));
        } else {
            more = true;
            break;
        }
    }
    requests.reverse();
    // What does not fit is got like everything that is old.
    let reset = is_first || more;
    LiveUpdate {
        cursor: Cursor { run: shared.run, revision: kept.revision }.to_text(),
        reset,
        requests,
        hidden,
        more,
        usage: kept.usage.into(),
        oldest: kept.oldest,
        state: describe_state(shared),
        tunnels: shared.tunnels.all().len(),
        rules: *shared.interceptors.watch_changes().borrow(),
        held: shared.interceptors.held().count(),
        schedules: *shared.replay_schedules.watch_changes().borrow(),
    }
}

/// How the link to the service is; or that the agent is on its way to the end.
pub(super) fn describe_state(shared: &AgentInner) -> &'static str {
    match shared.shutdown.phase() {
        ShutdownPhase::Running => shared.state.borrow().name(),
        _ => "stopping",
    }
}

/// The records before one, newest last; and whether there are more.
pub(super) fn requests_before(
    shared: &AgentInner,
    filter: &RequestFilter,
    before: &str,
) -> (Vec<RequestSummary>, bool) {
    let all = shared.captures.list(usize::MAX, None);
    let mut matching = all.iter().filter(|r| r.id.as_str() < before && filter.matches_record(r));
    let mut requests = matching
        .by_ref()
        .take(MAX_UPDATE_REQUESTS)
        .map(|r| RequestSummary::from_record(r))
        .collect::<Vec<_>>();
    let more = matching.next().is_some();
    requests.reverse();
    (requests, more)
}

/// Sends updates until the page or the agent goes away.
async fn send_updates(
    shared: Arc<AgentInner>,
    filter: RequestFilter,
    mut since: Option<Cursor>,
    pages: mpsc::Sender<Bytes>,
) {
    let mut shutdown = shared.shutdown.signal();
    let mut state = shared.state.subscribe();
    let mut rules = shared.interceptors.watch_changes();
    let mut schedules = shared.replay_schedules.watch_changes();
    let filter = Arc::new(filter);
    let mut next_phase = ShutdownPhase::Graceful;
    loop {
        // Subscribed before looking, so that nothing falls in between.
        let mut changes = shared.captures.subscribe();
        let (agent, matching_filter) = (shared.clone(), filter.clone());
        // Filters may look into many bodies.
        let outcome = ginnel_base::tasks::spawn_blocking(move || {
            update_since(&agent, &matching_filter, since, MAX_UPDATE_REQUESTS)
        })
        .await;
        let Ok(update) = outcome else { return };
        since = Cursor::from_text(&update.cursor);
        if pages.send(encode_event(&update).into()).await.is_err() {
            return;
        }
        let sent = Instant::now();
        tokio::select! {
            _ = changes.recv() => tokio::time::sleep_until(sent + UPDATE_INTERVAL).await,
            _ = schedules.changed() => tokio::time::sleep_until(sent + UPDATE_INTERVAL).await,
            _ = rules.changed() => tokio::time::sleep_until(sent + UPDATE_INTERVAL).await,
            _ = state.changed() => {}
            () = tokio::time::sleep(KEEPALIVE_INTERVAL) => {}
            () = pages.closed() => return,
            // It ends with the agent as well, and says before that the agent stops.
            () = shutdown.wait_for(next_phase) => match next_phase {
                ShutdownPhase::Forced => return,
                _ => next_phase = ShutdownPhase::Forced,
            },
        }
    }
}

/// Returns a body that sends the updates after a cursor to one page.
pub(super) fn start(
    shared: Arc<AgentInner>,
    filter: RequestFilter,
    since: Option<Cursor>,
) -> ChannelBody {
    let (sender, updates) = mpsc::channel(MAX_QUEUED_UPDATES);
    ginnel_base::tasks::spawn(send_updates(shared, filter, since, sender));
    ChannelBody(updates)
}

/// An update as an event of a stream.
fn encode_event(update: &LiveUpdate) -> Vec<u8> {
    // The types of the page always make JSON.
    let data = serde_json::to_string(update).unwrap_or_default();
    format!("id: {}\nretry: 500\ndata: {data}\n\n", update.cursor).into_bytes()
}
