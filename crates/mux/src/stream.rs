//! One byte stream of a session.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::task::coop;

use ginnel_base::logging::ignore;
use ginnel_net::ResetOnClose;

use crate::Code;
use crate::backlog::UnreadAccount;
use crate::session::{MuxSessionState, Owner};
use crate::stream_cell::StreamCell;
use crate::stream_state::ReadResult;

/// One byte stream of a session, both directions.
///
/// Shutting it down ends this side's direction only. Dropping it does so too, and answers whatever
/// the peer still sends with a reset.
pub struct Stream {
    cell: Arc<StreamCell>,
    shared: Arc<MuxSessionState>,
    owner: Option<Arc<Owner>>,
}

impl Stream {
    pub fn new(cell: Arc<StreamCell>, shared: Arc<MuxSessionState>, owner: Arc<Owner>) -> Self {
        Self { cell, shared, owner: Some(owner) }
    }

    /// The stream's id, which is unique in its session.
    pub fn id(&self) -> u32 {
        self.cell.id
    }

    /// Ends both directions now, also for the peer.
    pub fn reset(self, code: Code) {
        self.abort(code);
    }

    /// The next bytes as they came in, without copying them; `None` at the end.
    ///
    /// # Errors
    /// When the stream was reset or the session is over.
    pub async fn read_chunk(&mut self) -> io::Result<Option<Bytes>> {
        poll_fn(|cx| self.poll_chunk(cx)).await
    }

    /// Writes all of `bytes` and ends this side's direction, with the last frame.
    ///
    /// # Errors
    /// When the stream was reset or the session is over.
    pub async fn send_last(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut rest = bytes;
        while !rest.is_empty() {
            let written = poll_fn(|cx| self.poll_send(cx, rest, true)).await?;
            rest = &rest[written..];
        }
        self.finish_sending()
    }

    /// Counts what waits to be read in an account from now on: with too much there, the stream is
    /// reset.
    pub fn count_in(&self, account: Arc<UnreadAccount>) {
        self.cell.count_in(account);
    }

    /// A look at the stream from outside.
    pub fn watch(&self) -> StreamWatch {
        StreamWatch { cell: Arc::downgrade(&self.cell), shared: Arc::downgrade(&self.shared) }
    }

    /// Two halves that may be used from two tasks.
    pub fn into_split(self) -> (ReadHalf, WriteHalf) {
        let stream = Arc::new(self);
        (ReadHalf(Arc::clone(&stream)), WriteHalf(stream))
    }

    /// Lets the session close although this stream is open.
    pub fn detach_session(&mut self) {
        self.owner = None;
    }

    fn poll_chunk(&self, cx: &mut Context<'_>) -> Poll<io::Result<Option<Bytes>>> {
        let budget = ready!(coop::poll_proceed(cx));
        let mut inner = self.cell.lock_state();
        let found = match inner.state.take_chunk(usize::MAX) {
            ReadResult::Bytes(bytes) => Ok(Some(bytes)),
            ReadResult::End => Ok(None),
            ReadResult::Nothing => match inner.stream_error() {
                Some(error) => Err(error),
                None => {
                    inner.reader = Some(cx.waker().clone());
                    return Poll::Pending;
                }
            },
        };
        inner.update_account();
        let increment = inner.state.grant_window();
        drop(inner);
        self.send_window_update(increment);
        budget.made_progress();
        Poll::Ready(found)
    }

    fn poll_fill(&self, cx: &mut Context<'_>, target: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if target.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        let budget = ready!(coop::poll_proceed(cx));
        let mut inner = self.cell.lock_state();
        let copied = inner.state.copy_chunks(target.remaining(), |bytes| target.put_slice(bytes));
        if copied == 0 && !inner.state.at_end() {
            if let Some(error) = inner.stream_error() {
                return Poll::Ready(Err(error));
            }
            inner.reader = Some(cx.waker().clone());
            return Poll::Pending;
        }
        inner.update_account();
        let increment = inner.state.grant_window();
        drop(inner);
        self.send_window_update(increment);
        budget.made_progress();
        Poll::Ready(Ok(()))
    }

    /// Sends some of `bytes`; with `last`, the frame that completes them also ends the direction.
    fn poll_send(&self, cx: &mut Context<'_>, bytes: &[u8], last: bool) -> Poll<io::Result<usize>> {
        if bytes.is_empty() {
            return Poll::Ready(Ok(0));
        }
        let budget = ready!(coop::poll_proceed(cx));
        let mut inner = self.cell.lock_state();
        if let Some(error) = inner.write_error() {
            return Poll::Ready(Err(error));
        }
        let allowed = &bytes[..bytes.len().min(inner.state.sendable_bytes())];
        let is_all = last && allowed.len() == bytes.len();
        let mut queued = inner.queued;
        let sent = match allowed {
            [] => 0,
            some => self.shared.send_queue.queue_data(&self.cell, some, is_all, &mut queued),
        };
        inner.queued = queued;
        if sent == 0 {
            inner.writer = Some(cx.waker().clone());
            return Poll::Pending;
        }
        inner.state.record_sent(sent);
        if is_all && sent == bytes.len() {
            inner.state.finish();
        }
        let is_gone = inner.state.is_gone();
        drop(inner);
        if is_gone {
            self.shared.lock_table().remove(self.id());
        }
        budget.made_progress();
        Poll::Ready(Ok(sent))
    }

    /// Ends this side's direction.
    fn finish_sending(&self) -> io::Result<()> {
        let mut inner = self.cell.lock_state();
        if inner.state.is_finished() && inner.state.was_reset().is_none() {
            return Ok(());
        }
        if let Some(error) = inner.stream_error() {
            return Err(error);
        }
        inner.state.finish();
        self.shared.send_queue.queue_fin(self.id());
        let is_gone = inner.state.is_gone();
        drop(inner);
        if is_gone {
            self.shared.lock_table().remove(self.id());
        }
        Ok(())
    }

    fn abort(&self, code: Code) {
        abort_stream(&self.cell, &self.shared, code);
    }

    fn send_window_update(&self, increment: Option<u32>) {
        if let Some(increment) = increment {
            self.shared.send_queue.queue_window(self.id(), increment);
        }
    }
}

/// Ends both directions, also for the peer.
fn abort_stream(cell: &StreamCell, shared: &MuxSessionState, code: Code) {
    let mut inner = cell.lock_state();
    let was_gone = inner.state.is_gone() || inner.stream_error().is_some();
    inner.reset(code);
    drop(inner);
    if !was_gone {
        shared.send_queue.queue_reset(cell.id, code);
        shared.lock_table().remove(cell.id);
    }
}

/// A look at a [`Stream`] from outside; its owner may drop it at any time.
#[derive(Debug)]
pub struct StreamWatch {
    cell: Weak<StreamCell>,
    shared: Weak<MuxSessionState>,
}

impl StreamWatch {
    /// How often something was read from the stream or sent on it; none when it is gone.
    pub fn move_count(&self) -> Option<u64> {
        let cell = self.cell.upgrade()?;
        let inner = cell.lock_state();
        let is_gone = inner.state.is_gone() || inner.stream_error().is_some();
        (!is_gone).then(|| inner.state.move_count())
    }

    /// How many bytes wait for whoever reads the stream.
    pub fn unread_bytes(&self) -> usize {
        self.cell.upgrade().map_or(0, |cell| cell.lock_state().state.buffered_bytes())
    }

    /// Ends both directions now, also for the peer.
    pub fn reset(&self, code: Code) {
        if let (Some(cell), Some(shared)) = (self.cell.upgrade(), self.shared.upgrade()) {
            abort_stream(&cell, &shared, code);
        }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        ignore(self.finish_sending(), "a stream that has ended needs no end");
        let (is_gone, holds_up_peer) = {
            let state = &self.cell.lock_state().state;
            (state.is_gone(), state.holds_up_peer())
        };
        match is_gone {
            true => {}
            // No data can come that would be answered with a reset.
            false if holds_up_peer => self.abort(Code::CANCELLED),
            false => self.shared.lock_table().forget(self.id()),
        }
    }
}

impl ResetOnClose for Stream {
    fn reset_on_close(&mut self) {
        self.watch().reset(Code::RESET);
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        target: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.poll_fill(cx, target)
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_send(cx, bytes, false)
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.finish_sending())
    }
}

/// The peer's direction of a [`Stream`].
pub struct ReadHalf(Arc<Stream>);

impl ReadHalf {
    /// The stream's id, which is unique in its session.
    pub fn id(&self) -> u32 {
        self.0.id()
    }

    /// The next bytes as they came in, without copying them; `None` at the end.
    ///
    /// # Errors
    /// When the stream was reset or the session is over.
    pub async fn read_chunk(&mut self) -> io::Result<Option<Bytes>> {
        poll_fn(|cx| self.0.poll_chunk(cx)).await
    }
}

impl AsyncRead for ReadHalf {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        target: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.0.poll_fill(cx, target)
    }
}

/// This side's direction of a [`Stream`]; dropping it ends the direction.
pub struct WriteHalf(Arc<Stream>);

impl WriteHalf {
    /// The stream's id, which is unique in its session.
    pub fn id(&self) -> u32 {
        self.0.id()
    }

    /// Ends both directions now, also for the peer.
    pub fn reset(self, code: Code) {
        self.0.abort(code);
    }
}

impl Drop for WriteHalf {
    fn drop(&mut self) {
        ignore(self.0.finish_sending(), "a stream that has ended needs no end");
    }
}

impl AsyncWrite for WriteHalf {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.0.poll_send(cx, bytes, false)
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.0.finish_sending())
    }
}
