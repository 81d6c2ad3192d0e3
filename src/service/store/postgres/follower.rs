//! Learns what other nodes have changed.
//!
//! A thread reads the versions past those that it has seen, at least every [`INTERVAL`]: that is the
//! guarantee, which needs nothing of the server but a table.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use super::error::ServerError;
use super::server::{Rows, Server, ServerSession};
use super::tokens::BatchTokens;
use crate::logging::ignore;
use crate::service::store::StoreError;
use crate::service::store::tables::Row;
use crate::service::store::writer::WriterShared;

/// How often it is looked for changes of other nodes.
const INTERVAL: Duration = Duration::from_millis(250);
/// How many versions are read at once.
const MAX_VERSIONS: i64 = 1000;
const SETTINGS: &str = "SET search_path = ginnel; SET statement_timeout = '10s'; SET jit = off;
    SET enable_seqscan = off";

/// The thread that looks for changes.
pub(super) struct Follower {
    state: Arc<FollowerState>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Default)]
struct FollowerState {
    stopped: AtomicBool,
    lock: Mutex<()>,
    woken: Condvar,
}

impl Follower {
    /// Follows from the newest version on; the watchers of `shared` hear of what others have changed.
    pub(super) fn start(
        server: Server,
        tokens: Arc<BatchTokens>,
        shared: Arc<WriterShared>,
    ) -> Result<Self, StoreError> {
        let session = server.connect(SETTINGS)?;
        let rows = session.query("SELECT version FROM cluster", &[])?;
        let seen = rows.first().map(|row| row.integer(0)).transpose()?.unwrap_or_default();
        let state = Arc::new(FollowerState::default());
        let following = state.clone();
        let mut follow =
            Following { server, session: Some(session), seen, tokens, shared, is_blind: false };
        let thread = std::thread::Builder::new()
            .name("ginnel-follower".to_owned())
            .spawn(move || {
                while following.wait() {
                    follow.look_or_doubt();
                }
            })
            .map_err(|source| StoreError::File { path: "follower thread".into(), source })?;
        Ok(Self { state, thread: Mutex::new(Some(thread)) })
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
    /// Looks; where it cannot, nothing that is remembered of callers is trusted.
    fn look_or_doubt(&mut self) {
        let looked = self.look();
        if let Err(error) = &looked {
            if !self.is_blind {
                tracing::warn!("cannot look for changes of other nodes: {error}");
            }
            self.shared.note_commit(&[]);
        }
        self.is_blind = looked.is_err();
    }

    /// Tells of what has been changed since the last look.
    fn look(&mut self) -> Result<(), StoreError> {
        let session = match self.session.take() {
            Some(session) if !session.is_closed() => session,
            _ => self.server.connect(SETTINGS)?,
        };
        let rows = newer(&session, self.seen)?;
        self.session = Some(session);
        for row in &rows {
            let (version, token) = (row.integer(0)?, row.bytes(1)?);
            if !self.tokens.is_told(token) {
                self.shared.note_commit(&serde_json::from_str::<Vec<String>>(row.text(2)?)?);
            }
            self.seen = version;
        }
        Ok(())
    }
}

/// The versions after one, oldest first.
fn newer(session: &ServerSession, seen: i64) -> Result<Rows, ServerError> {
    let sql =
        "SELECT version, token, ids FROM changes WHERE version > ?1 ORDER BY version LIMIT ?2";
    session.query(sql, &[&seen, &MAX_VERSIONS])
}
