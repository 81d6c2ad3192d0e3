//! One connection between agent and service, and the streams in it.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::sync::{mpsc, watch};

use ginnel_base::logging::ignore;

use crate::driver::Driver;
use crate::presence::Presence;
use crate::send_queue::{End, MAX_BODY_BYTES, SendQueue};
use crate::stream_cell::StreamCell;
use crate::stream_table::StreamTable;
use crate::{Code, Group, LoginLimits, SessionEnd, SessionLimits, Side, Stream};

/// One connection between agent and service.
///
/// A handle: clones are the same session. When the last handle and the last stream are dropped the
/// session says goodbye and closes the connection.
#[derive(Clone)]
pub struct MuxSession {
    owner: Arc<Owner>,
}

/// Streams that the peer opens.
pub struct Incoming {
    streams: mpsc::Receiver<Stream>,
}

impl MuxSession {
    /// Starts a session on a connection, with the default limits. Needs a tokio runtime.
    pub fn start<Io>(io: Io, side: Side) -> (Self, Incoming)
    where
        Io: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        Self::start_with(io, side, SessionLimits::for_side(side))
    }

    /// Starts a session on a connection. Needs a tokio runtime.
    pub fn start_with<Io>(io: Io, side: Side, limits: SessionLimits) -> (Self, Incoming)
    where
        Io: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        Self::start_limited(io, side, limits, None)
    }

    /// Starts a session with a peer that has to authenticate first: until [`MuxSession::mark_authenticated`]
    /// it may have no more than `login`. Needs a tokio runtime.
    pub fn start_unauthenticated<Io>(io: Io, side: Side, login: LoginLimits) -> (Self, Incoming)
    where
        Io: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        Self::start_limited(io, side, SessionLimits::for_side(side), Some(login))
    }

    fn start_limited<Io>(
        io: Io,
        side: Side,
        limits: SessionLimits,
        login: Option<LoginLimits>,
    ) -> (Self, Incoming)
    where
        Io: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let (accepted, streams) = mpsc::channel(limits.waiting.max(1));
        let shared = Arc::new(MuxSessionState::new(side, limits, login));
        let owner = Arc::new(Owner { shared: Arc::clone(&shared) });
        let driver = Driver::new(io, shared, Arc::downgrade(&owner), accepted, login);
        tokio::spawn(driver.run());
        (Self { owner }, Incoming { streams })
    }

    /// Grants the peer what an authenticated one may have.
    pub fn mark_authenticated(&self) {
        let shared = self.shared();
        shared.lock_table().set_limit(shared.limits.open);
        shared.authenticated.store(true, Ordering::Release);
    }

    /// Opens a stream. `first` goes out together with the news of it, in one frame if it has at
    /// most 32 KiB. Waits while too much is queued.
    ///
    /// # Errors
    /// When the session is over.
    pub async fn open_stream(&self, first: Bytes) -> Result<Stream, SessionEnd> {
        // There are fewer ids than that.
        let opened = self.open_below(usize::MAX, None, first).await?;
        opened.ok_or(SessionEnd::Exhausted)
    }

    /// Opens a stream as [`MuxSession::open_stream`] does, in a group if one is named, unless this side has
    /// `most` streams open, or more.
    ///
    /// # Errors
    /// When the session is over.
    pub async fn open_below(
        &self,
        most: usize,
        group: Option<Group>,
        first: Bytes,
    ) -> Result<Option<Stream>, SessionEnd> {
        let (now, later) = first.split_at(first.len().min(MAX_BODY_BYTES));
        let mut stream = loop {
            let mut room = std::pin::pin!(self.shared().send_queue.wait_for_room());
            room.as_mut().enable();
            match self.shared().open_stream(now, most, group)? {
                OpenResult::Stream(cell) => break self.stream_for(cell),
                OpenResult::NoRoom => room.await,
                OpenResult::TooMany => return Ok(None),
            }
        };
        if !later.is_empty() && stream.write_all(later).await.is_err() {
            self.still_alive()?;
        }
        Ok(Some(stream))
    }

    /// A new group, for streams that this side opens.
    pub fn new_group(&self) -> Group {
        Group::new(self.shared().groups.fetch_add(1, Ordering::Relaxed))
    }

    /// Resets all open streams of a group, here and at the peer.
    pub fn reset_group(&self, group: Group, code: Code) {
        let cells = self.shared().lock_table().remove_group(group);
        for cell in cells {
            // Some agents do not wake a reader for a reset alone (tunnel protocol, section 9).
            if !cell.lock_state().state.is_finished() {
                self.shared().send_queue.queue_fin(cell.id);
            }
            self.shared().send_queue.queue_reset(cell.id, code);
            cell.reset(code);
        }
    }

    /// Streams that this side opened and that are not gone: at the peer they still count.
    pub fn open_streams(&self) -> usize {
        self.shared().lock_table().opened_count()
    }

    /// Streams of both sides that are not gone.
    pub fn stream_count(&self) -> usize {
        self.shared().lock_table().len()
    }

    /// Waits for the end and says why.
    pub async fn wait_until_ended(&self) -> SessionEnd {
        wait_until_ended(&self.owner.shared).await
    }

    /// True once the session is over.
    pub fn is_ended(&self) -> bool {
        self.shared().ended.borrow().is_some()
    }

    /// Says goodbye and closes; returns when the connection is closed, at the latest after a second.
    pub async fn go_away(&self, code: Code, text: &str) {
        self.shared().go_away(code, text, SessionEnd::Closed);
        let mut closed = self.shared().closed.subscribe();
        ignore(closed.wait_for(|closed| *closed).await, "a driver that is gone has closed");
    }

    /// Closes at once; what is queued is lost.
    pub fn close(&self) {
        self.shared().end(SessionEnd::Closed, End::AtOnce);
    }

    pub fn shared(&self) -> &Arc<MuxSessionState> {
        &self.owner.shared
    }

    fn stream_for(&self, cell: Arc<StreamCell>) -> Stream {
        Stream::new(cell, Arc::clone(self.shared()), Arc::clone(&self.owner))
    }

    fn still_alive(&self) -> Result<(), SessionEnd> {
        match self.shared().ended.borrow().clone() {
            Some(ended) => Err(ended),
            None => Ok(()),
        }
    }
}

impl Incoming {
    /// The next stream of the peer; `None` when the session is over. A stream is returned as soon
    /// as it is known, so that a silent one delays nobody.
    pub async fn next(&mut self) -> Option<Stream> {
        self.streams.recv().await
    }
}

/// Waits for the end of a session without being an owner of it.
pub async fn wait_until_ended(shared: &MuxSessionState) -> SessionEnd {
    let mut ended = shared.ended.subscribe();
    let found = ended.wait_for(Option::is_some).await;
    found.ok().and_then(|why| why.clone()).unwrap_or(SessionEnd::Closed)
}

/// Lives as long as somebody uses the session.
pub struct Owner {
    pub shared: Arc<MuxSessionState>,
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.shared.go_away(Code::NONE, "", SessionEnd::Closed);
    }
}

/// What became of the wish for a stream.
enum OpenResult {
    Stream(Arc<StreamCell>),
    /// Too much is queued.
    NoRoom,
    /// There are enough.
    TooMany,
}

/// What handles, streams and the session's task share.
///
/// Order of locks: the table, then a stream, then what is outgoing; never the other way round.
pub struct MuxSessionState {
    table: Mutex<StreamTable>,
    limits: SessionLimits,
    /// The number of the next group.
    groups: AtomicU32,
    /// True as soon as the peer may have all of `limits`.
    pub authenticated: AtomicBool,
    pub send_queue: SendQueue,
    pub presence: Presence,
    ended: watch::Sender<Option<SessionEnd>>,
    closed: watch::Sender<bool>,
}

impl MuxSessionState {
    fn new(side: Side, limits: SessionLimits, login: Option<LoginLimits>) -> Self {
        let open = login.map_or(limits.open, |login| login.streams);
        Self {
            table: Mutex::new(StreamTable::new(side, open)),
            limits,
            groups: AtomicU32::new(0),
            authenticated: AtomicBool::new(login.is_none()),
            send_queue: SendQueue::new(),
            presence: Presence::default(),
            ended: watch::Sender::new(None),
            closed: watch::Sender::new(false),
        }
    }

    pub fn lock_table(&self) -> MutexGuard<'_, StreamTable> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens a stream where this side has fewer than `most`. Ids go out in rising order, because the
    /// table stays locked meanwhile.
    fn open_stream(
        &self,
        first: &[u8],
        most: usize,
        group: Option<Group>,
    ) -> Result<OpenResult, SessionEnd> {
        let mut table = self.lock_table();
        if table.opened_count() >= most {
            return Ok(OpenResult::TooMany);
        }
        let id = match table.next_id() {
            Err(SessionEnd::Exhausted) => {
                drop(table);
                self.go_away(Code::STREAMS_EXHAUSTED, "", SessionEnd::Exhausted);
                return Err(SessionEnd::Exhausted);
            }
            other => other?,
        };
        if !self.send_queue.queue_syn(id, first) {
            return Ok(OpenResult::NoRoom);
        }
        let cell = table.open_stream(group);
        cell.lock_state().state.record_sent(first.len());
        Ok(OpenResult::Stream(cell))
    }

    /// Ends the session after a last word, unless it is over.
    pub fn go_away(&self, code: Code, text: &str, why: SessionEnd) {
        let last = self.lock_table().last_peer_id();
        self.send_queue.queue_go_away(last, code, text);
        self.end(why, End::Flushed);
    }

    /// Ends the session, unless it is over: wakes everybody who waits for it.
    pub fn end(&self, why: SessionEnd, how: End) {
        let Some(cells) = self.lock_table().end(why.clone()) else { return };
        self.send_queue.end(how);
        for cell in cells {
            cell.end(why.clone());
        }
        self.ended.send_replace(Some(why));
    }

    /// The connection is closed.
    pub fn mark_closed(&self) {
        self.closed.send_replace(true);
    }
}
