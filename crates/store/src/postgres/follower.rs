//! Learns what other nodes have changed.
//!
//! A thread reads the versions past those that it has seen, at least every [`INTERVAL`]: that is the
//! guarantee, which needs nothing of the server but a table. A notification has it look at once; it is sent
//! after the commit, by this thread and over its own connection, so that no change waits for it. While it has not looked for [`TRUST`],
//! because the server is away, or this process was stopped, nobody trusts what is remembered here.
//!
//! Every node beats, and every beat is a change that every node sees: at the pace of three nodes, the looks
//! of 100 would be all that the server does. So the pause after a look grows with the number of nodes, by
//! [`PAUSE_PER_NODE`] up to [`MAX_PAUSE`]. So does that after a notification, which waits for no look.
//!
//! Each look begins with the row of the last version that was seen. When that row is gone, too much was
//! missed; when it is another batch's, or newer than all there is, the database is one that was restored.
//! So it is when a version that this process has stored itself is not found on the way: a backup may be
//! back before the next look. Either way nobody can say what has changed, and whoever remembers anything reads everything again.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use ginnel_base::logging::{ignore, or_debug};

use super::error::ServerError;
use super::server::{Rows, Server, ServerSession};
use super::tokens::BatchTokens;
use crate::tables::Row;
use crate::writer::WriterShared;
use crate::{StoreError, StoreResult};

/// How often it is looked for changes of other nodes.
const INTERVAL: Duration = Duration::from_millis(250);
/// How much time passes at least between two looks, and between two notifications, for each node of the
/// cluster: up to 100 nodes together look 500 times a second at most, more of them five times each.
const PAUSE_PER_NODE: Duration = Duration::from_millis(2);
const MIN_PAUSE: Duration = Duration::from_millis(5);
const MAX_PAUSE: Duration = Duration::from_millis(200);
/// How long after a look what is remembered is taken to be true: a change of another node is seen, or
/// looked up, within a second.
const TRUST: Duration = Duration::from_millis(750);
/// How long a look may take.
const LOOK_TIMEOUT: Duration = Duration::from_secs(3);
/// How many versions are read at once.
const MAX_VERSIONS: i64 = 1000;
const SETTINGS: &str = "SET search_path = ginnel; SET statement_timeout = '2s'; SET jit = off;
    SET synchronous_commit = off;
    SET enable_seqscan = off";

/// How well it is known what other nodes have changed.
#[derive(Debug, Clone, Copy)]
pub struct ChangeNews {
    /// The newest version whose changes are known.
    pub version: i64,
    /// How long ago it was looked for newer ones.
    pub age: Duration,
}

/// The thread that looks for changes.
pub(super) struct Follower {
    state: Arc<FollowerState>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// What has the thread look, or say that there is something to see.
pub(super) struct FollowerState {
    stopped: AtomicBool,
    /// How many nodes share the server, as far as this one knows.
    nodes: AtomicUsize,
    hints: Mutex<Hints>,
    woken: Condvar,
    /// The newest version that is known, and when the look began that saw it.
    looked: Mutex<(i64, Instant)>,
    /// The versions that this process has stored since the last look.
    stored: Mutex<Vec<SeenVersion>>,
}

/// What has happened since the thread was last awake.
#[derive(Debug, Default, Clone, Copy)]
struct Hints {
    /// This node has committed a change.
    committed: bool,
    /// Another node says that it has.
    notified: bool,
}

/// What is done next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FollowerStep {
    notifies: bool,
    looks: bool,
}

impl Hints {
    /// What is done so long after the last notification and the last look; else how long there is nothing
    /// to do, unless another hint comes.
    fn next_step(
        self,
        notified: Duration,
        looked: Duration,
        pause: Duration,
    ) -> (FollowerStep, Duration) {
        let until_look = if self.notified { pause.min(INTERVAL) } else { INTERVAL };
        let step = FollowerStep {
            notifies: self.committed && notified >= pause,
            looks: looked >= until_look,
        };
        let mut rest = until_look.saturating_sub(looked);
        if self.committed {
            rest = rest.min(pause.saturating_sub(notified));
        }
        (step, rest)
    }
}

impl Follower {
    /// Follows from the newest version on; the watchers of `shared` hear of what others have changed.
    pub(super) fn start(
        server: Server,
        tokens: Arc<BatchTokens>,
        shared: Arc<WriterShared>,
        state: Arc<FollowerState>,
    ) -> StoreResult<Self> {
        let connection =
            FollowerConnection { server, name: tokens.process_name(), state: state.clone() };
        let session = connection.open_session()?;
        let seen = SeenVersion::fetch_newest(&session)?;
        state.record_look(seen.version, Instant::now());
        let follow = Following {
            connection,
            session: Some(session),
            seen,
            unfound: Vec::new(),
            tokens,
            shared,
            is_blind: false,
        };
        let following = state.clone();
        let thread = std::thread::Builder::new()
            .name("ginnel-follower".to_owned())
            .spawn(move || follow.follow_changes(&following))
            .map_err(|source| StoreError::File { path: "follower thread".into(), source })?;
        Ok(Self { state, thread: Mutex::new(Some(thread)) })
    }

    /// Whether it was looked for changes a moment ago.
    pub(super) fn sees_changes(&self) -> bool {
        self.change_news().age < TRUST
    }

    /// Looks less often the more nodes there are.
    pub(super) fn set_node_count(&self, nodes: usize) {
        self.state.nodes.store(nodes, Ordering::Relaxed);
    }

    /// How well it is known what others have changed.
    pub(super) fn change_news(&self) -> ChangeNews {
        let (version, looked) = *self.state.lock_last_look();
        ChangeNews { version, age: looked.elapsed() }
    }

    /// Looks no more; waits until the last look is over.
    pub(super) fn stop(&self) {
        self.state.stop();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            ignore(thread.join(), "a panic of its own has been reported by then");
        }
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.state.stop();
    }
}

impl FollowerState {
    pub(super) fn new() -> Self {
        Self {
            stopped: AtomicBool::default(),
            nodes: AtomicUsize::new(1),
            hints: Mutex::default(),
            woken: Condvar::default(),
            looked: Mutex::new((0, Instant::now())),
            stored: Mutex::default(),
        }
    }

    /// Notes a version of this process, which every later look must find.
    pub(super) fn record_stored(&self, version: i64, token: &[u8]) {
        self.lock_stored().push(SeenVersion { version, token: token.to_owned() });
    }

    fn lock_stored(&self) -> MutexGuard<'_, Vec<SeenVersion>> {
        self.stored.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has the other nodes notified of a change.
    pub(super) fn record_commit(&self) {
        self.lock_hints().committed = true;
        self.woken.notify_all();
    }

    /// Has the thread look at once.
    fn record_notification(&self) {
        self.lock_hints().notified = true;
        self.woken.notify_all();
    }

    fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
        self.woken.notify_all();
    }

    fn lock_last_look(&self) -> MutexGuard<'_, (i64, Instant)> {
        self.looked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that every change up to a version is known now.
    fn record_look(&self, seen: i64, began: Instant) {
        *self.lock_last_look() = (seen, began);
    }

    /// Waits until there is something to do, so long after the last notification and the last look; none
    /// when there is no more to look for.
    fn wait_for_step(&self, notified: Instant, looked: Instant) -> Option<FollowerStep> {
        let mut hints = self.lock_hints();
        while !self.stopped.load(Ordering::Acquire) {
            let pause = pause_among(self.nodes.load(Ordering::Relaxed));
            let (step, rest) = hints.next_step(notified.elapsed(), looked.elapsed(), pause);
            hints.committed &= !step.notifies;
            hints.notified &= !step.looks;
            if step.notifies || step.looks {
                return Some(step);
            }
            let waited = self.woken.wait_timeout(hints, rest);
            (hints, _) = waited.unwrap_or_else(PoisonError::into_inner);
        }
        None
    }

    fn lock_hints(&self) -> MutexGuard<'_, Hints> {
        self.hints.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How long a node of so many waits between two looks.
fn pause_among(nodes: usize) -> Duration {
    let nodes = u32::try_from(nodes).unwrap_or(u32::MAX);
    PAUSE_PER_NODE.saturating_mul(nodes).clamp(MIN_PAUSE, MAX_PAUSE)
}

/// How the connection is made over which the thread looks.
struct FollowerConnection {
    server: Server,
    /// What tells the notifications of this process from those of others.
    name: String,
    state: Arc<FollowerState>,
}

impl FollowerConnection {
    fn open_session(&self) -> StoreResult<ServerSession> {
        let (name, state) = (self.name.clone(), Arc::downgrade(&self.state));
        let session = self.server.connect_listening(SETTINGS, move |sender| {
            if let Some(state) = state.upgrade().filter(|_| sender != name) {
                state.record_notification();
            }
        })?;
        let session = session.with_timeout(LOOK_TIMEOUT);
        // Some servers have none of this, and some proxies lose it: then changes are seen at the next look.
        or_debug!(session.execute("LISTEN ginnel_changes"), "the database sends no notifications");
        Ok(session)
    }
}

struct Following {
    connection: FollowerConnection,
    session: Option<ServerSession>,
    /// The newest version whose changes are known here.
    seen: SeenVersion,
    /// What this process has stored, and has not been found yet.
    unfound: Vec<SeenVersion>,
    tokens: Arc<BatchTokens>,
    shared: Arc<WriterShared>,
    /// Whether the last look failed.
    is_blind: bool,
}

impl Following {
    /// Looks when it is time or another node says so, and notifies the others of changes; the changes of a
    /// moment have one notification.
    fn follow_changes(mut self, state: &FollowerState) {
        let (mut notified, mut looked) = (Instant::now(), Instant::now());
        while let Some(step) = state.wait_for_step(notified, looked) {
            if step.notifies {
                notified = Instant::now();
                self.notify_nodes();
            }
            if step.looks {
                looked = Instant::now();
                if self.look_or_warn() {
                    state.record_look(self.seen.version, looked);
                }
            }
        }
    }

    /// Hints to the other nodes that there is something to see.
    fn notify_nodes(&self) {
        if let Some(session) = self.session.as_ref().filter(|session| !session.is_closed()) {
            let sent =
                session.query("SELECT pg_notify('ginnel_changes', ?1)", &[&self.connection.name]);
            or_debug!(sent, "other nodes are not notified");
        }
    }

    /// Looks; false when it cannot.
    fn look_or_warn(&mut self) -> bool {
        let looked = self.look_for_changes();
        if let Err(error) = &looked
            && !self.is_blind
        {
            tracing::warn!("cannot look for changes of other nodes: {error}");
        }
        self.is_blind = looked.is_err();
        !self.is_blind
    }

    /// Tells of what has been changed since the last look.
    fn look_for_changes(&mut self) -> StoreResult<()> {
        // Taken before the database is read: what is stored by now is there to be found.
        let stored = std::mem::take(&mut *self.connection.state.lock_stored());
        self.unfound.extend(stored);
        let session = match self.session.take() {
            Some(session) if !session.is_closed() => session,
            _ => self.connection.open_session()?,
        };
        loop {
            let rows = versions_since(&session, self.seen.version)?;
            match rows.split_first() {
                Some((seen, newer)) if self.seen.matches_row(seen)? => {
                    newer.iter().try_for_each(|row| self.record_version(row))?;
                }
                _ => self.skip_to_newest(&session)?,
            }
            if i64::try_from(rows.len()).is_ok_and(|count| count < MAX_VERSIONS) {
                break;
            }
        }
        // An earlier look may have passed them before they were noted.
        let unfound = std::mem::take(&mut self.unfound);
        let found = unfound.iter().map(|own| own.is_stored(&session));
        if found.collect::<Result<Vec<_>, _>>()?.contains(&false) {
            self.skip_to_newest(&session)?;
        }
        self.session = Some(session);
        Ok(())
    }

    /// Tells of the changes of a version.
    fn record_version(&mut self, row: &tokio_postgres::Row) -> StoreResult<()> {
        let seen = SeenVersion::from_row(row)?;
        let changed: Vec<String> = serde_json::from_str(row.text(2)?)?;
        if self.tokens.is_news(&seen.token, &changed) {
            self.shared.record_commit(changed);
        }
        self.unfound.retain(|own| *own != seen);
        self.seen = seen;
        Ok(())
    }

    /// Goes on from the newest version, when nobody knows what was changed until then.
    fn skip_to_newest(&mut self, session: &ServerSession) -> StoreResult<()> {
        // Before anything is read again, so that no later change is missed.
        let newest = SeenVersion::fetch_newest(session)?;
        tracing::warn!(
            seen = self.seen.version,
            newest = newest.version,
            "the changes since the last look are not in the database; everything is read again"
        );
        self.seen = newest;
        self.shared.record_loss();
        Ok(())
    }
}

/// A version, and the batch that made it.
#[derive(PartialEq, Eq)]
struct SeenVersion {
    version: i64,
    token: Vec<u8>,
}

impl SeenVersion {
    /// The newest; where no version is noted, the present one is, so that there is one to go on from.
    fn fetch_newest(session: &ServerSession) -> StoreResult<Self> {
        session.execute(
            "INSERT INTO changes (version, token, ids) SELECT version, '', '[]' FROM cluster
                WHERE NOT EXISTS (SELECT 1 FROM changes) ON CONFLICT DO NOTHING",
        )?;
        let sql = "SELECT version, token FROM changes ORDER BY version DESC LIMIT 1";
        let rows = session.query(sql, &[])?;
        Self::from_row(rows.first().ok_or(StoreError::Inconsistent("the database has no version"))?)
    }

    fn from_row(row: &tokio_postgres::Row) -> StoreResult<Self> {
        Ok(Self { version: row.integer(0)?, token: row.bytes(1)?.to_owned() })
    }

    /// Whether the database has it.
    fn is_stored(&self, session: &ServerSession) -> StoreResult<bool> {
        let sql = "SELECT version, token FROM changes WHERE version = ?1";
        let rows = session.query(sql, &[&self.version])?;
        rows.first().map_or(Ok(false), |row| self.matches_row(row))
    }

    fn matches_row(&self, row: &tokio_postgres::Row) -> StoreResult<bool> {
        Ok(self.version == row.integer(0)? && self.token == row.bytes(1)?)
    }
}

/// A version, if it is there, and those after it, oldest first.
fn versions_since(session: &ServerSession, seen: i64) -> Result<Rows, ServerError> {
    let sql =
        "SELECT version, token, ids FROM changes WHERE version >= ?1 ORDER BY version LIMIT ?2";
    session.query(sql, &[&seen, &MAX_VERSIONS])
}

#[cfg(test)]
mod tests {
    use super::{
        Duration, FollowerStep, Hints, INTERVAL, MAX_PAUSE, MIN_PAUSE, TRUST, pause_among,
    };

    #[test]
    fn few_nodes_look_at_once_and_many_share_the_server() {
        assert_eq!(pause_among(0), MIN_PAUSE);
        assert_eq!(pause_among(1), MIN_PAUSE);
        assert_eq!(pause_among(10), Duration::from_millis(20));
        assert_eq!(pause_among(usize::MAX), MAX_PAUSE);
        // However many there are, what is remembered is looked up before nobody trusts it any more.
        assert!(MAX_PAUSE + INTERVAL < TRUST);
    }

    #[test]
    fn others_are_notified_of_a_commit_whenever_it_was_looked() {
        let [none, some] = [0, 50].map(Duration::from_millis);
        let commit = Hints { committed: true, notified: false };
        let both = Hints { committed: true, notified: true };
        let step = |notifies, looks| FollowerStep { notifies, looks };

        assert_eq!(commit.next_step(MAX_PAUSE, none, MAX_PAUSE).0, step(true, false));
        assert_eq!(both.next_step(MAX_PAUSE, none, MAX_PAUSE).0, step(true, false));
        assert_eq!(both.next_step(none, MAX_PAUSE, MAX_PAUSE).0, step(false, true));
        assert_eq!(both.next_step(none, some, MAX_PAUSE), (step(false, false), MAX_PAUSE - some));
        assert_eq!(commit.next_step(some, none, MAX_PAUSE).1, MAX_PAUSE - some);
        assert_eq!(Hints::default().next_step(none, INTERVAL, MIN_PAUSE).0, step(false, true));
    }
}
