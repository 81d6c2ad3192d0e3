//! The line to a visitor: its socket, watched.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll, ready};

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use ginnel_http1::Expects;
use ginnel_net::{Permit, ResetOnClose};

use crate::message::connection_activity::ConnectionActivity;
use crate::message::metered::MeteredSocket;

/// How much of what nobody will read is taken before the connection closes, in bytes.
const MAX_DRAINED_BYTES: usize = 256 << 10;

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
    /// Goes where the socket goes, also to another protocol.
    _permit: Permit,
}

impl VisitorStream {
    pub fn new(socket: MeteredSocket, activity: Arc<ConnectionActivity>, permit: Permit) -> Self {
        let (ahead, expects) = (BytesMut::new(), Expects::Nothing);
        let (is_closed, drained) = (false, 0);
        Self { socket, ahead, activity, expects, is_closed, drained, _permit: permit }
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
