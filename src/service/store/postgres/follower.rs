//! Learns what other nodes have changed.
//!
//! A thread reads the versions past those that it has seen, at least every [`INTERVAL`]: that is the
//! guarantee, which needs nothing of the server but a table. While it has not looked for [`TRUST`],
//! because the server is away, or this process was stopped, nobody trusts what is remembered here.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::error::ServerError;
use super::server::{Rows, Server, ServerSession};
use super::tokens::BatchTokens;
use crate::logging::ignore;
use crate::service::store::StoreError;
use crate::service::store::tables::Row;
use crate::service::store::writer::WriterShared;

/// How often it is looked for changes of other nodes.
const INTERVAL: Duration = Duration::from_millis(250);
/// How long after a look what is remembered is taken to be true: a change of another node is seen, or
/// looked up, within a second.
const TRUST: Duration = Duration::from_millis(750);
/// How long a look may take.
const LOOK_TIMEOUT: Duration = Duration::from_secs(3);
/// How many versions are read at once.
const MAX_VERSIONS: i64 = 1000;
const SETTINGS: &str = "SET search_path = ginnel; SET statement_timeout = '2s'; SET jit = off;
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

struct FollowerState {
    stopped: AtomicBool,
    lock: Mutex<()>,
    woken: Condvar,
    /// The newest version that is known, and when the look began that saw it.
    looked: Mutex<(i64, Instant)>,
}

impl Follower {
    /// Follows from the newest version on; the watchers of `shared` hear of what others have changed.
    pub(super) fn start(
        server: Server,
        tokens: Arc<BatchTokens>,
        shared: Arc<WriterShared>,
    ) -> Result<Self, StoreError> {
        let session = server.connect(SETTINGS)?.with_timeout(LOOK_TIMEOUT);
        let rows = session.query("SELECT version FROM cluster", &[])?;
        let seen = rows.first().map(|row| row.integer(0)).transpose()?.unwrap_or_default();
        let state = Arc::new(FollowerState::new(seen));
        let following = state.clone();
        let mut follow =
            Following { server, session: Some(session), seen, tokens, shared, is_blind: false };
        let thread = std::thread::Builder::new()
            .name("ginnel-follower".to_owned())
            .spawn(move || {
                while following.wait() {
                    let began = Instant::now();
                    if follow.look_or_complain() {
                        following.note(follow.seen, began);
                    }
                }
            })
            .map_err(|source| StoreError::File { path: "follower thread".into(), source })?;
        Ok(Self { state, thread: Mutex::new(Some(thread)) })
    }

    /// Whether it was looked for changes a moment ago.
    pub(super) fn sees_changes(&self) -> bool {
        self.news().age < TRUST
    }

    /// How well it is known what others have changed.
    pub(super) fn news(&self) -> ChangeNews {
        let (version, looked) = *self.state.looked();
        ChangeNews { version, age: looked.elapsed() }
    }

    /// Looks no more; waits until the last look is over.
    pub(super) fn stop(&self) {
        self.state.stopped.store(true, Ordering::Release);
        self.state.woken.notify_all();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            ignore(thread.join(), "a panic of its own has been reported by then");
        }
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.state.stopped.store(true, Ordering::Release);
        self.state.woken.notify_all();
    }
}

impl FollowerState {
    fn new(seen: i64) -> Self {
        let looked = Mutex::new((seen, Instant::now()));
        Self {
            stopped: AtomicBool::default(),
            lock: Mutex::default(),
            woken: Condvar::new(),
            looked,
        }
    }

    fn looked(&self) -> MutexGuard<'_, (i64, Instant)> {
        self.looked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that every change up to a version is known now.
    fn note(&self, seen: i64, began: Instant) {
        *self.looked() = (seen, began);
    }

    /// Waits until it is time to look; false when there is no more to look for.
    fn wait(&self) -> bool {
        let lock = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        let runs = |_: &mut ()| !self.stopped.load(Ordering::Acquire);
        let waited = self.woken.wait_timeout_while(lock, INTERVAL, runs);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
        !self.stopped.load(Ordering::Acquire)
    }
}

struct Following {
    server: Server,
    session: Option<ServerSession>,
    /// The newest version whose changes are known here.
    seen: i64,
    tokens: Arc<BatchTokens>,
    shared: Arc<WriterShared>,
    /// Whether the last look failed.
    is_blind: bool,
}

impl Following {
    /// Looks; false when it cannot.
    fn look_or_complain(&mut self) -> bool {
        let looked = self.look();
        if let Err(error) = &looked
            && !self.is_blind
        {
            tracing::warn!("cannot look for changes of other nodes: {error}");
        }
        self.is_blind = looked.is_err();
        !self.is_blind
    }

    /// Tells of what has been changed since the last look.
    fn look(&mut self) -> Result<(), StoreError> {
        let session = match self.session.take() {
            Some(session) if !session.is_closed() => session,
            _ => self.server.connect(SETTINGS)?.with_timeout(LOOK_TIMEOUT),
        };
        loop {
            let rows = newer(&session, self.seen)?;
            for row in &rows {
                self.note(row)?;
            }
            if i64::try_from(rows.len()).is_ok_and(|count| count < MAX_VERSIONS) {
                break;
            }
        }
        self.session = Some(session);
        Ok(())
    }

    /// Tells of the changes of a version.
    fn note(&mut self, row: &tokio_postgres::Row) -> Result<(), StoreError> {
        let (version, token) = (row.integer(0)?, row.bytes(1)?);
        if !self.tokens.is_told(token) {
            self.shared.note_commit(&serde_json::from_str::<Vec<String>>(row.text(2)?)?);
        }
        self.seen = version;
        Ok(())
    }
}

/// The versions after one, oldest first.
fn newer(session: &ServerSession, seen: i64) -> Result<Rows, ServerError> {
    let sql =
        "SELECT version, token, ids FROM changes WHERE version > ?1 ORDER BY version LIMIT ?2";
    session.query(sql, &[&seen, &MAX_VERSIONS])
}
