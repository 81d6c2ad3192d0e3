//! Copies bytes between two connections, and passes resets on.
//!
//! TCP ends a connection in one of two ways. Bytes before an orderly end (FIN) are all that there is. Bytes before
//! a reset (RST) may be a part of it (RFC 9293, section 3.5.3). A reset that becomes an orderly end makes half
//! a file look whole, so a connection whose peer broke ends with a reset.

use std::future::{pending, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::{client, server};

use ginnel_base::logging::or_debug;
use ginnel_http1::reuse::PolledSocket;

/// The time to read the rest from a connection that cannot be written to any more.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);

/// A connection that can end with a reset.
pub trait ResetOnClose {
    /// Makes the connection end with a reset, at the latest when it is dropped.
    fn reset_on_close(&mut self);
}

/// A copy that ended early because one of the connections broke.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct BrokenCopy {
    /// The reason.
    pub error: io::Error,
    /// True if the first connection did not get all that the second one had for it.
    pub is_first_cut_off: bool,
    /// True if the second connection did not get all that the first one had for it.
    pub is_second_cut_off: bool,
}

/// Copies in both directions until both have ended, and returns the number of bytes of each. The orderly end of a
/// direction is passed on, and the other direction continues.
///
/// # Errors
/// If one of the connections breaks. The caller resets connections that are cut off, see [`carry_both_until`].
pub async fn copy_both(
    first: &mut (impl AsyncRead + AsyncWrite + Unpin),
    second: &mut (impl AsyncRead + AsyncWrite + Unpin),
    buffer_bytes: usize,
) -> Result<(u64, u64), BrokenCopy> {
    copy_both_until(first, second, buffer_bytes, pending()).await
}

/// As [`copy_both`], until `stop` is ready. Connections that have not got all by then are cut off.
///
/// # Errors
/// If one of the connections breaks, or if `stop` is ready first.
pub async fn copy_both_until(
    first: &mut (impl AsyncRead + AsyncWrite + Unpin),
    second: &mut (impl AsyncRead + AsyncWrite + Unpin),
    buffer_bytes: usize,
    stop: impl Future<Output = ()>,
) -> Result<(u64, u64), BrokenCopy> {
    let mut copy = TwoWayCopy {
        forward: CopyDirection::new(buffer_bytes),
        back: CopyDirection::new(buffer_bytes),
        deadline: None,
    };
    let mut stop = pin!(stop);
    poll_fn(|cx| {
        let copied = copy.poll(cx, Pin::new(&mut *first), Pin::new(&mut *second));
        if copied.is_pending() && stop.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Err(copy.aborted_result()));
        }
        copied
    })
    .await
}

/// As [`copy_both_until`], and resets a connection that is cut off.
///
/// # Errors
/// If one of the connections breaks, or if `stop` is ready first.
pub async fn carry_both_until(
    first: &mut (impl AsyncRead + AsyncWrite + ResetOnClose + Unpin),
    second: &mut (impl AsyncRead + AsyncWrite + ResetOnClose + Unpin),
    buffer_bytes: usize,
    stop: impl Future<Output = ()>,
) -> io::Result<(u64, u64)> {
    let copied = copy_both_until(first, second, buffer_bytes, stop).await;
    copied.map_err(|broken| {
        if broken.is_first_cut_off {
            first.reset_on_close();
        }
        if broken.is_second_cut_off {
            second.reset_on_close();
        }
        broken.error
    })
}

/// Returns true if an error means that bytes are missing. TLS peers often leave without a close_notify alert; that
/// is an error, but the TCP connection below had an orderly end.
pub fn is_reset(error: &io::Error) -> bool {
    error.kind() != io::ErrorKind::UnexpectedEof
}

/// Returns true for the error that Linux reports if a write meets a reset that follows an orderly end (EPIPE).
fn is_after_end(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::BrokenPipe
}

/// Both directions of a copy.
struct TwoWayCopy {
    forward: CopyDirection,
    back: CopyDirection,
    /// The end of the wait for the rest, once one direction has failed.
    deadline: Option<Pin<Box<tokio::time::Sleep>>>,
}

impl TwoWayCopy {
    fn poll<A, B>(
        &mut self,
        cx: &mut Context<'_>,
        mut first: Pin<&mut A>,
        mut second: Pin<&mut B>,
    ) -> Poll<Result<(u64, u64), BrokenCopy>>
    where
        A: AsyncRead + AsyncWrite,
        B: AsyncRead + AsyncWrite,
    {
        let Self { forward, back, .. } = self;
        forward.advance(cx, first.as_mut(), second.as_mut());
        back.doubt_end_after(forward);
        back.advance(cx, second.as_mut(), first.as_mut());
        if forward.doubt_end_after(back) {
            forward.advance(cx, first, second);
        }
        let mut is_over = forward.is_over() && back.is_over();
        is_over |= forward.has_lost_source() || back.has_lost_source();
        if !is_over && (forward.has_failed() || back.has_failed()) {
            let deadline =
                self.deadline.get_or_insert_with(|| Box::pin(tokio::time::sleep(DRAIN_TIMEOUT)));
            is_over = deadline.as_mut().poll(cx).is_ready();
        }
        if is_over { Poll::Ready(self.take_result()) } else { Poll::Pending }
    }

    /// The result of a copy that stops before its end.
    fn aborted_result(&self) -> BrokenCopy {
        BrokenCopy {
            error: io::Error::new(io::ErrorKind::ConnectionAborted, "stopped before its end"),
            is_first_cut_off: !self.back.is_complete(),
            is_second_cut_off: !self.forward.is_complete(),
        }
    }

    /// The result of a copy that is over.
    fn take_result(&mut self) -> Result<(u64, u64), BrokenCopy> {
        let Self { forward, back, .. } = self;
        let (forward_error, back_error) = (forward.take_error(), back.take_error());
        let is_lost = |error: &Option<io::Error>| error.as_ref().is_some_and(is_reset);
        // A connection that broke needs no reset.
        let is_first_broken =
            forward.has_lost_source() && is_lost(&forward_error) || back.has_lost_target();
        let is_second_broken =
            back.has_lost_source() && is_lost(&back_error) || forward.has_lost_target();
        let is_second_complete = forward.is_complete();
        let is_first_complete = back.is_complete();
        let is_reset = match (&forward_error, &back_error) {
            (Some(one), Some(other)) => {
                [one, other].into_iter().any(|error| is_reset(error) && !is_after_end(error))
            }
            _ => is_lost(&forward_error) || is_lost(&back_error),
        };
        let Some(error) = forward_error.or(back_error) else {
            return Ok((forward.copied, back.copied));
        };
        Err(BrokenCopy {
            error,
            is_first_cut_off: is_reset && !is_first_broken && !is_first_complete,
            is_second_cut_off: is_reset && !is_second_broken && !is_second_complete,
        })
    }
}

/// One direction of a copy.
struct CopyDirection {
    buffer: Box<[u8]>,
    /// The part of the buffer that is still to be written.
    start: usize,
    end: usize,
    copied: u64,
    needs_flush: bool,
    /// True if the end of the source may be a reset. The kernel reports a reset only once, and a write got the report.
    is_end_unknown: bool,
    state: DirectionState,
}

enum DirectionState {
    Copying,
    /// The source has ended, and the target is to know.
    Ending,
    Complete,
    LostSource(Option<io::Error>),
    LostTarget(Option<io::Error>),
}

impl CopyDirection {
    fn new(buffer_bytes: usize) -> Self {
        Self {
            buffer: vec![0; buffer_bytes].into(),
            start: 0,
            end: 0,
            copied: 0,
            needs_flush: false,
            is_end_unknown: false,
            state: DirectionState::Copying,
        }
    }

    /// Copies until a source or a target is not ready.
    fn advance<R: AsyncRead, W: AsyncWrite>(
        &mut self,
        cx: &mut Context<'_>,
        from: Pin<&mut R>,
        to: Pin<&mut W>,
    ) {
        if !self.is_over()
            && let Poll::Ready(state) = self.poll(cx, from, to)
        {
            self.state = state;
            self.buffer = Box::default();
        }
    }

    fn poll<R: AsyncRead, W: AsyncWrite>(
        &mut self,
        cx: &mut Context<'_>,
        mut from: Pin<&mut R>,
        mut to: Pin<&mut W>,
    ) -> Poll<DirectionState> {
        use DirectionState::{Complete, Ending, LostSource, LostTarget};
        loop {
            if let Err(error) = ready!(self.poll_write_buffered(cx, to.as_mut())) {
                return Poll::Ready(LostTarget(Some(error)));
            }
            if matches!(self.state, Ending) {
                let ended = ready!(to.as_mut().poll_shutdown(cx));
                return Poll::Ready(
                    ended.map_or_else(|error| LostTarget(Some(error)), |()| Complete),
                );
            }
            let mut buffer = ReadBuf::new(&mut self.buffer);
            match from.as_mut().poll_read(cx, &mut buffer) {
                Poll::Ready(Ok(())) => (self.start, self.end) = (0, buffer.filled().len()),
                // TLS reports such an end as an error.
                Poll::Ready(Err(error)) if self.is_end_unknown && !is_reset(&error) => {
                    return Poll::Ready(LostSource(Some(io::ErrorKind::ConnectionReset.into())));
                }
                Poll::Ready(Err(error)) => return Poll::Ready(LostSource(Some(error))),
                Poll::Pending => {
                    if self.needs_flush {
                        let flushed = ready!(to.as_mut().poll_flush(cx));
                        if let Err(error) = flushed {
                            return Poll::Ready(LostTarget(Some(error)));
                        }
                        self.needs_flush = false;
                    }
                    return Poll::Pending;
                }
            }
            if self.end == 0 {
                if self.is_end_unknown {
                    return Poll::Ready(LostSource(Some(io::ErrorKind::ConnectionReset.into())));
                }
                self.state = Ending;
            }
        }
    }

    fn poll_write_buffered<W: AsyncWrite>(
        &mut self,
        cx: &mut Context<'_>,
        mut to: Pin<&mut W>,
    ) -> Poll<io::Result<()>> {
        while let Some(rest) = self.buffer.get(self.start..self.end).filter(|rest| !rest.is_empty())
        {
            let written = ready!(to.as_mut().poll_write(cx, rest))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.start += written;
            self.copied += written as u64;
            self.needs_flush = true;
        }
        Poll::Ready(Ok(()))
    }

    /// Notes if the other direction could not write to the source of this one. Returns true if that is new.
    fn doubt_end_after(&mut self, other: &Self) -> bool {
        let DirectionState::LostTarget(error) = &other.state else { return false };
        !error.as_ref().is_some_and(is_after_end)
            && !std::mem::replace(&mut self.is_end_unknown, true)
    }

    fn is_complete(&self) -> bool {
        matches!(self.state, DirectionState::Complete)
    }

    fn has_lost_source(&self) -> bool {
        matches!(self.state, DirectionState::LostSource(_))
    }

    fn has_lost_target(&self) -> bool {
        matches!(self.state, DirectionState::LostTarget(_))
    }

    fn has_failed(&self) -> bool {
        self.has_lost_source() || self.has_lost_target()
    }

    fn is_over(&self) -> bool {
        self.is_complete() || self.has_failed()
    }

    fn take_error(&mut self) -> Option<io::Error> {
        match &mut self.state {
            DirectionState::LostSource(error) | DirectionState::LostTarget(error) => error.take(),
            _ => None,
        }
    }
}

impl ResetOnClose for TcpStream {
    fn reset_on_close(&mut self) {
        reset_socket_on_close(SockRef::from(&*self));
    }
}

impl ResetOnClose for PolledSocket {
    fn reset_on_close(&mut self) {
        self.0.reset_on_close();
    }
}

/// Makes the kernel reset a connection when its socket is closed.
pub fn reset_socket_on_close(socket: SockRef<'_>) {
    or_debug!(socket.set_linger(Some(Duration::ZERO)), "a connection cannot be reset");
}

impl<T: ResetOnClose> ResetOnClose for client::TlsStream<T> {
    fn reset_on_close(&mut self) {
        self.get_mut().0.reset_on_close();
    }
}

impl<T: ResetOnClose> ResetOnClose for server::TlsStream<T> {
    fn reset_on_close(&mut self) {
        self.get_mut().0.reset_on_close();
    }
}

/// Pipes within a process have no resets.
impl ResetOnClose for DuplexStream {
    fn reset_on_close(&mut self) {}
}

impl<T: ResetOnClose + ?Sized> ResetOnClose for Box<T> {
    fn reset_on_close(&mut self) {
        (**self).reset_on_close();
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    const RESET: io::ErrorKind = io::ErrorKind::ConnectionReset;

    /// A socket and its peer.
    async fn connected() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let peer = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        (listener.accept().await.unwrap().0, peer)
    }

    /// Two sockets that a copy connects, as their peers see them.
    async fn copied() -> (TcpStream, TcpStream, tokio::task::JoinHandle<io::Result<(u64, u64)>>) {
        let ((mut first, first_peer), (mut second, second_peer)) =
            (connected().await, connected().await);
        let copying = tokio::spawn(async move {
            carry_both_until(&mut first, &mut second, 4096, pending()).await
        });
        (first_peer, second_peer, copying)
    }

    /// A connection with these errors. It can be read from only after a write has failed, if `write_error` is given.
    struct Broken {
        read_error: io::ErrorKind,
        write_error: Option<io::ErrorKind>,
    }

    impl AsyncRead for Broken {
        fn poll_read(
            self: Pin<&mut Self>,
            cx: &mut Context<'_>,
            _: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            match self.write_error {
                Some(_) => {
                    cx.waker().wake_by_ref();
                    Poll::Pending
                }
                None => Poll::Ready(Err(self.read_error.into())),
            }
        }
    }

    impl AsyncWrite for Broken {
        fn poll_write(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            let error = self.write_error.take();
            Poll::Ready(error.map_or(Ok(bytes.len()), |error| Err(error.into())))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    async fn rest_of(peer: &mut TcpStream) -> (String, Result<(), io::ErrorKind>) {
        let mut rest = Vec::new();
        let read = peer.read_to_end(&mut rest).await;
        (String::from_utf8(rest).unwrap(), read.map(drop).map_err(|error| error.kind()))
    }

    #[tokio::test]
    async fn each_direction_has_its_own_end() {
        let (mut first, mut second, copying) = copied().await;

        first.write_all(b"question").await.unwrap();
        first.shutdown().await.unwrap();
        assert_eq!(rest_of(&mut second).await, ("question".to_owned(), Ok(())));
        second.write_all(b"response").await.unwrap();
        drop(second);

        assert_eq!(rest_of(&mut first).await, ("response".to_owned(), Ok(())));
        assert_eq!(copying.await.unwrap().unwrap(), (8, 8));
    }

    #[tokio::test]
    async fn a_reset_is_passed_on_behind_the_bytes_before_it() {
        for is_first in [true, false] {
            let (first, second, copying) = copied().await;
            let (mut broken, mut other) = if is_first { (first, second) } else { (second, first) };
            broken.write_all(b"half").await.unwrap();
            let mut half = [0; 4];
            other.read_exact(&mut half).await.unwrap();

            broken.reset_on_close();
            drop(broken);

            assert_eq!(rest_of(&mut other).await, (String::new(), Err(RESET)), "{is_first}");
            assert!(copying.await.unwrap().is_err());
        }
    }

    #[tokio::test]
    async fn a_reset_after_half_a_close_is_passed_on() {
        let (mut first, mut second, copying) = copied().await;
        first.shutdown().await.unwrap();
        assert_eq!(rest_of(&mut second).await, (String::new(), Ok(())));

        second.reset_on_close();
        drop(second);

        assert_eq!(rest_of(&mut first).await, (String::new(), Err(RESET)));
        assert!(copying.await.unwrap().is_err());
    }

    #[tokio::test]
    async fn a_whole_response_stays_whole_if_the_rest_of_the_request_is_not_wanted() {
        let ((mut from_first, mut first), (mut from_second, mut second)) =
            (connected().await, connected().await);
        let copying =
            tokio::spawn(async move { copy_both(&mut from_first, &mut from_second, 4096).await });
        second.write_all(b"response").await.unwrap();
        second.shutdown().await.unwrap();
        assert_eq!(rest_of(&mut first).await, ("response".to_owned(), Ok(())));
        drop(second);

        while first.write_all(&[7; 4096]).await.is_ok() && !copying.is_finished() {}

        let broken = copying.await.unwrap().unwrap_err();
        assert!(!broken.is_first_cut_off && !broken.is_second_cut_off, "{broken:?}");
        assert_eq!(rest_of(&mut first).await, (String::new(), Ok(())));
    }

    #[tokio::test]
    async fn a_stop_resets_connections_that_have_not_got_all() {
        for is_complete in [false, true] {
            let ((mut first, mut first_peer), (mut second, mut second_peer)) =
                (connected().await, connected().await);
            let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
            let copying = tokio::spawn(async move {
                let stopped = async { drop(stopped.await) };
                carry_both_until(&mut first, &mut second, 4096, stopped).await
            });
            second_peer.write_all(b"half").await.unwrap();
            let mut half = [0; 4];
            first_peer.read_exact(&mut half).await.unwrap();
            if is_complete {
                second_peer.shutdown().await.unwrap();
                assert_eq!(rest_of(&mut first_peer).await, (String::new(), Ok(())));
            }

            drop(stop);

            let first_end = if is_complete { Ok(()) } else { Err(RESET) };
            assert!(copying.await.unwrap().is_err());
            assert_eq!(rest_of(&mut first_peer).await, (String::new(), first_end));
            let written = second_peer.read(&mut half).await.map_err(|error| error.kind());
            assert_eq!(written, Err(RESET));
        }
    }

    #[tokio::test]
    async fn a_reset_that_a_write_has_met_is_a_reset_for_tls_as_well() {
        for (write_error, is_cut_off) in [(RESET, true), (io::ErrorKind::BrokenPipe, false)] {
            for is_first in [true, false] {
                let mut tls = Broken {
                    read_error: io::ErrorKind::UnexpectedEof,
                    write_error: Some(write_error),
                };
                let (mut other, mut peer) = tokio::io::duplex(64);
                peer.write_all(b"response").await.unwrap();

                let copied = match is_first {
                    true => copy_both(&mut tls, &mut other, 64).await,
                    false => copy_both(&mut other, &mut tls, 64).await,
                };

                let broken = copied.unwrap_err();
                let found = (broken.is_first_cut_off, broken.is_second_cut_off);
                let expected = (is_cut_off && !is_first, is_cut_off && is_first);
                assert_eq!(found, expected, "{write_error} {is_first}");
            }
        }
    }

    #[tokio::test]
    async fn a_reset_counts_next_to_an_end_without_close_notify() {
        let lost = |read_error| Broken { read_error, write_error: None };
        let (mut tls, mut reset) = (lost(io::ErrorKind::UnexpectedEof), lost(RESET));

        let broken = copy_both(&mut tls, &mut reset, 64).await.unwrap_err();

        assert_eq!((broken.is_first_cut_off, broken.is_second_cut_off), (true, false));
    }
}
