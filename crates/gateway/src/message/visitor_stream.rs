//! The line to a visitor: its socket, watched.

use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};

use ginnel_http1::Expects;
use ginnel_net::{Permit, ResetOnClose};

use crate::message::connection_activity::ConnectionActivity;
use crate::message::metered::MeteredSocket;

/// How much of what nobody will read is taken before the connection closes, in bytes.
const MAX_DRAINED_BYTES: usize = 256 << 10;
/// How much is read of later requests while one is under way.
const MAX_READ_AHEAD_BYTES: usize = 64 << 10;
/// With less room than this for later requests, more is made: few visitors send one before they have the
/// response to the one before.
const MIN_AHEAD_BYTES: usize = 512;
/// How much room is made for them then.
const AHEAD_BYTES: usize = 4 << 10;
/// Maximum time from the end of a request to a FIN that only ends the requests. A later one means that the visitor left.
const HALF_CLOSE_WINDOW: Duration = Duration::from_millis(250);

/// The socket of a visitor who speaks HTTP/1.1, watched on the way.
pub struct VisitorStream {
    socket: MeteredSocket,
    /// What was read before and put back.
    ahead: BytesMut,
    activity: Arc<ConnectionActivity>,
    /// What the visitor has to send next.
    expects: Expects,
    /// True when the visitor was told that nothing more comes.
    is_closed: bool,
    /// How much was read since then.
    drained: usize,
    end: VisitorEnd,
    /// Goes where the socket goes, also to another protocol.
    _permit: Permit,
}

/// The end of the bytes from a visitor.
#[derive(Default)]
struct VisitorEnd {
    /// If true, every end means that the visitor left. Another node ends a stream when its visitor leaves.
    always_leaves: bool,
    /// If true, the visitor sends no more, and still takes responses.
    is_half_closed: bool,
    /// The time from which the response to a whole request is waited for.
    waits_since: Option<Instant>,
}

impl VisitorStream {
    pub fn new(socket: MeteredSocket, activity: Arc<ConnectionActivity>, permit: Permit) -> Self {
        let (ahead, expects) = (BytesMut::new(), Expects::Nothing);
        let (is_closed, drained, end) = (false, 0, VisitorEnd::default());
        Self { socket, ahead, activity, expects, is_closed, drained, end, _permit: permit }
    }

    /// Takes every FIN as a sign that the visitor left.
    pub fn without_half_close(mut self) -> Self {
        self.end.always_leaves = true;
        self
    }

    /// The state that the parts of the connection share.
    pub fn activity(&self) -> &ConnectionActivity {
        &self.activity
    }

    /// Marks the beginning of a request.
    pub fn begin_request(&mut self) {
        self.end.waits_since = None;
        self.activity.set_held(false);
    }

    /// Returns true if the visitor sends no more requests, and has not left.
    pub fn is_half_closed(&self) -> bool {
        self.end.is_half_closed
    }

    /// Reads the bytes behind a whole request, as far as there is room. Returns true if the visitor has left: its
    /// connection broke, or a FIN came too late to be the mere end of its requests (RFC 9112, section 9.6).
    pub fn has_left(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut BytesMut,
        is_responding: bool,
    ) -> bool {
        let waits_since = *self.end.waits_since.get_or_insert_with(Instant::now);
        while !self.end.is_half_closed && buffer.len() < MAX_READ_AHEAD_BYTES {
            if buffer.capacity() - buffer.len() < MIN_AHEAD_BYTES {
                buffer.reserve(AHEAD_BYTES);
            }
            match pin!(self.read_buf(buffer)).poll(cx) {
                Poll::Ready(Ok(1..)) => {}
                Poll::Ready(read) if is_orderly_end(&read) => {
                    let is_late = !is_responding && waits_since.elapsed() > HALF_CLOSE_WINDOW;
                    if is_late || self.end.always_leaves {
                        return true;
                    }
                    self.end.is_half_closed = true;
                }
                Poll::Ready(_) => return true,
                Poll::Pending => break,
            }
        }
        self.end.is_half_closed && !is_responding && self.activity.is_held()
    }

    /// Says what the visitor has to send next.
    pub fn set_expected(&mut self, expects: Expects) {
        if self.expects != expects {
            self.expects = expects;
            self.activity.set_expected(expects);
        }
    }

    /// Takes back what was read, to be read again.
    pub fn put_back(&mut self, bytes: BytesMut) {
        self.ahead = bytes;
    }

    /// Takes what is still sent: closing on unread bytes would destroy the answer.
    fn poll_drain(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut scratch = [0; 4096];
        while self.drained < MAX_DRAINED_BYTES {
            let mut buffer = ReadBuf::new(&mut scratch);
            let read = ready!(Pin::new(&mut self.socket).poll_read(cx, &mut buffer));
            if read.is_err() || buffer.filled().is_empty() {
                break;
            }
            self.drained += buffer.filled().len();
        }
        Poll::Ready(Ok(()))
    }

    fn record_blocked<T>(&self, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        self.activity.set_blocked(written.is_pending());
        written
    }
}

/// Returns true for the end of a stream. Some clients end TLS without a notice, which cuts nothing off a whole request.
fn is_orderly_end(read: &io::Result<usize>) -> bool {
    match read {
        Ok(read) => *read == 0,
        Err(error) => error.kind() == io::ErrorKind::UnexpectedEof,
    }
}

impl ResetOnClose for VisitorStream {
    fn reset_on_close(&mut self) {
        self.socket.reset_on_close();
    }
}

impl AsyncRead for VisitorStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if !this.ahead.is_empty() {
            let taken = this.ahead.len().min(buffer.remaining());
            buffer.put_slice(this.ahead.get(..taken).unwrap_or_default());
            this.ahead.advance(taken);
            return Poll::Ready(Ok(()));
        }
        let upgraded = this.activity.upgraded.load(Relaxed);
        let before = buffer.filled().len();
        let read = Pin::new(&mut this.socket).poll_read(cx, buffer);
        match &read {
            Poll::Pending => this.activity.mark_starved(),
            Poll::Ready(_) if upgraded || buffer.filled().len() == before => {}
            Poll::Ready(_) => this.activity.record_arrival(this.expects),
        }
        read
    }
}

impl AsyncWrite for VisitorStream {
    ginnel_base::forward_write!(socket, record_blocked: poll_write poll_write_vectored poll_flush);
    ginnel_base::forward_write!(socket: is_write_vectored);

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if !this.is_closed {
            ready!(Pin::new(&mut this.socket).poll_shutdown(cx))?;
            this.is_closed = true;
        }
        let is_unread = this.expects != Expects::Nothing && !this.activity.upgraded.load(Relaxed);
        if is_unread { this.poll_drain(cx) } else { Poll::Ready(Ok(())) }
    }
}
