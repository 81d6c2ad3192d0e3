//! The body of a request between the connection that reads it and whoever takes it: read only when it is
//! asked for, so that a visitor is held up by an upstream.

use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};

use bytes::{Bytes, BytesMut};
use hyper::body::{Frame, SizeHint};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};

use ginnel_base::logging::ignore;
use ginnel_http1::{Body, CONTINUE, FramingError};

use crate::message::body_decoder::Http1BodyReader;

/// How much is read at once at least,
const MIN_READ_BYTES: usize = 4 << 10;
/// and how much of a body that comes fast.
const BULK_READ_BYTES: usize = 64 << 10;

/// The end at the connection.
pub struct BodyFeed {
    decoder: Http1BodyReader,
    /// What both ends see; none where there is no body.
    shared: Option<Arc<Mutex<FeedState>>>,
    /// What is still to be said before the visitor sends anything.
    greeting: &'static [u8],
    /// How much was read at once, the last time.
    last_read: usize,
    has_failed: bool,
}

/// The end at whoever takes the body.
pub struct FedBody(Arc<Mutex<FeedState>>);

struct FeedState {
    data: Bytes,
    trailers: Option<Frame<Bytes>>,
    /// How many bytes are still to come, where that is known.
    hint: SizeHint,
    end: Option<Result<(), FeedError>>,
    is_wanted: bool,
    is_gone: bool,
    taker: Option<Waker>,
    feeder: Option<Waker>,
}

/// Why a body of a visitor ends early.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FeedError {
    /// The visitor has left.
    #[error("the visitor left before its request was complete")]
    VisitorLeft,
    /// Its framing is broken.
    #[error("the body of the request is malformed")]
    Malformed,
}

impl From<FramingError> for FeedError {
    fn from(_: FramingError) -> Self {
        Self::Malformed
    }
}

impl BodyFeed {
    /// Both ends, of which the other is missing where there is no body; a visitor who `waits` is told when
    /// the body is asked for.
    pub fn new(body: Body, waits: bool) -> (Self, Option<FedBody>) {
        let decoder = Http1BodyReader::new(body);
        if decoder.is_done() {
            let (shared, greeting) = (None, &b""[..]);
            return (Self { decoder, shared, greeting, last_read: 0, has_failed: false }, None);
        }
        let shared = Arc::new(Mutex::new(FeedState {
            data: Bytes::new(),
            trailers: None,
            hint: decoder.size_hint(),
            end: None,
            is_wanted: false,
            is_gone: false,
            taker: None,
            feeder: None,
        }));
        let greeting = if waits { CONTINUE } else { b"" };
        let (taker, shared) = (Some(FedBody(shared.clone())), Some(shared));
        (Self { decoder, shared, greeting, last_read: 0, has_failed: false }, taker)
    }

    /// Whether all of the body was read.
    pub fn is_received(&self) -> bool {
        self.decoder.is_done()
    }

    /// Gives what came with the head of a request whose body has a known length, so that both can go on
    /// in one piece.
    pub fn give_buffered(&mut self, buffer: &mut BytesMut) {
        if self.is_received() || buffer.is_empty() || self.decoder.size_hint().exact().is_none() {
            return;
        }
        self.greeting = b"";
        match self.decoder.decode(buffer) {
            Ok(data) => self.give_data(data),
            Err(error) => {
                self.has_failed = true;
                self.end_with(error.into());
            }
        }
    }

    /// Reads on for as long as more is asked for; ready when there is nothing more to read.
    pub fn poll<S: AsyncRead + AsyncWrite + Unpin>(
        &mut self,
        cx: &mut Context<'_>,
        visitor: &mut S,
        buffer: &mut BytesMut,
    ) -> Poll<()> {
        loop {
            if self.is_received() || self.has_failed {
                return Poll::Ready(());
            }
            let Some(shared) = &self.shared else { return Poll::Ready(()) };
            {
                let mut state = lock_state(shared);
                if !state.is_wanted || state.is_gone {
                    state.feeder = Some(cx.waker().clone());
                    return Poll::Pending;
                }
            }
            match ready!(self.poll_data(cx, visitor, buffer)) {
                Ok(data) => self.give_data(data),
                Err(error) => {
                    self.has_failed = true;
                    self.end_with(error);
                }
            }
        }
    }

    /// Drops what has come of the rest; true when that is all of it.
    pub fn discard_rest(&mut self, buffer: &mut BytesMut) -> bool {
        while !self.is_received() && !buffer.is_empty() {
            if self.has_failed || self.decoder.decode(buffer).is_err() {
                return false;
            }
        }
        self.is_received() && !self.has_failed
    }

    fn poll_data<S: AsyncRead + AsyncWrite + Unpin>(
        &mut self,
        cx: &mut Context<'_>,
        visitor: &mut S,
        buffer: &mut BytesMut,
    ) -> Poll<Result<Bytes, FeedError>> {
        if buffer.is_empty() {
            while !self.greeting.is_empty() {
                match ready!(Pin::new(&mut *visitor).poll_write(cx, self.greeting)) {
                    Ok(written @ 1..) => {
                        self.greeting = self.greeting.get(written..).unwrap_or_default();
                    }
                    _ => return Poll::Ready(Err(FeedError::VisitorLeft)),
                }
                let flushed = Pin::new(&mut *visitor).poll_flush(cx);
                ignore(flushed, "what fails shows when it is read");
            }
            let is_fast = self.last_read >= MIN_READ_BYTES;
            let room = if is_fast { BULK_READ_BYTES } else { MIN_READ_BYTES };
            buffer.reserve(room);
            match ready!(pin!(visitor.read_buf(buffer)).poll(cx)) {
                Ok(read @ 1..) => self.last_read = read,
                _ => return Poll::Ready(Err(FeedError::VisitorLeft)),
            }
        }
        self.greeting = b"";
        Poll::Ready(self.decoder.decode(buffer).map_err(Into::into))
    }

    /// The rest of the body does not come.
    fn end_with(&self, error: FeedError) {
        let Some(shared) = &self.shared else { return };
        let mut state = lock_state(shared);
        if state.end.is_none() {
            state.end_with(Err(error));
        }
    }

    fn give_data(&mut self, data: Bytes) {
        let Some(shared) = &self.shared else { return };
        let mut state = lock_state(shared);
        state.hint = self.decoder.size_hint();
        if !data.is_empty() {
            state.data = data;
            state.is_wanted = false;
        }
        if self.decoder.is_done() {
            state.trailers = self.decoder.take_trailers();
            state.end_with(Ok(()));
        } else if !state.data.is_empty() {
            state.wake_taker();
        }
    }
}

impl Drop for BodyFeed {
    fn drop(&mut self) {
        self.end_with(FeedError::VisitorLeft);
    }
}

impl FeedState {
    fn end_with(&mut self, end: Result<(), FeedError>) {
        self.end = Some(end);
        self.wake_taker();
    }

    fn wake_taker(&mut self) {
        if let Some(waker) = self.taker.take() {
            waker.wake();
        }
    }
}

impl FedBody {
    pub fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, FeedError>>> {
        let mut state = lock_state(&self.0);
        if !state.data.is_empty() {
            let data = std::mem::take(&mut state.data);
            return Poll::Ready(Some(Ok(Frame::data(data))));
        }
        match state.end {
            Some(Ok(())) => return Poll::Ready(state.trailers.take().map(Ok)),
            Some(Err(error)) => return Poll::Ready(Some(Err(error))),
            None => {}
        }
        state.is_wanted = true;
        state.taker = Some(cx.waker().clone());
        if let Some(feeder) = state.feeder.take() {
            feeder.wake();
        }
        Poll::Pending
    }

    pub fn is_end_stream(&self) -> bool {
        let state = lock_state(&self.0);
        state.end == Some(Ok(())) && state.data.is_empty() && state.trailers.is_none()
    }

    pub fn size_hint(&self) -> SizeHint {
        let state = lock_state(&self.0);
        let rest = state.hint.exact();
        rest.map_or_else(SizeHint::default, |rest| {
            SizeHint::with_exact(rest + state.data.len() as u64)
        })
    }
}

impl Drop for FedBody {
    fn drop(&mut self) {
        lock_state(&self.0).is_gone = true;
    }
}

fn lock_state(shared: &Mutex<FeedState>) -> MutexGuard<'_, FeedState> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use tokio::io::{AsyncWriteExt, DuplexStream, duplex};

    use super::*;

    /// Both ends of a body, and a visitor who sends it.
    struct Fixture {
        feed: BodyFeed,
        taker: Option<FedBody>,
        connection: DuplexStream,
        visitor: DuplexStream,
        buffer: BytesMut,
    }

    /// What the next look at a body gives.
    #[derive(Debug, PartialEq)]
    enum Look {
        Data(String),
        Trailer(String),
        End,
        Broken(FeedError),
        Nothing,
    }

    fn data(text: &str) -> Look {
        Look::Data(text.to_owned())
    }

    impl Fixture {
        fn new(body: Body, waits: bool) -> Self {
            let (connection, visitor) = duplex(1 << 20);
            let (feed, taker) = BodyFeed::new(body, waits);
            Self { feed, taker, connection, visitor, buffer: BytesMut::new() }
        }

        /// Lets the connection read; true when there is nothing more to read.
        fn turn(&mut self) -> bool {
            let mut cx = Context::from_waker(Waker::noop());
            self.feed.poll(&mut cx, &mut self.connection, &mut self.buffer).is_ready()
        }

        fn look(&mut self) -> Look {
            let mut cx = Context::from_waker(Waker::noop());
            match self.taker.as_mut().unwrap().poll_frame(&mut cx) {
                Poll::Pending => Look::Nothing,
                Poll::Ready(None) => Look::End,
                Poll::Ready(Some(Err(error))) => Look::Broken(error),
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(data) => Look::Data(String::from_utf8(data.to_vec()).unwrap()),
                    Err(frame) => {
                        let fields = frame.into_trailers().unwrap();
                        Look::Trailer(fields["x"].to_str().unwrap().to_owned())
                    }
                },
            }
        }

        /// Asks for more, lets the connection read, and looks again.
        fn next(&mut self) -> Look {
            match self.look() {
                Look::Nothing => {
                    self.turn();
                    self.look()
                }
                look => look,
            }
        }

        async fn send(&mut self, bytes: &str) {
            self.visitor.write_all(bytes.as_bytes()).await.unwrap();
        }

        /// What the visitor was sent so far.
        async fn received(&mut self) -> String {
            let mut received = BytesMut::new();
            let mut cx = Context::from_waker(Waker::noop());
            while pin!(self.visitor.read_buf(&mut received)).poll(&mut cx).is_ready() {}
            String::from_utf8(received.to_vec()).unwrap()
        }
    }

    #[tokio::test]
    async fn a_request_without_a_body_has_one_end() {
        let mut fixture = Fixture::new(Body::NONE, true);

        assert!(fixture.taker.is_none() && fixture.feed.is_received());
        assert!(fixture.turn() && fixture.feed.discard_rest(&mut BytesMut::new()));
        assert_eq!(fixture.received().await, "");
    }

    #[tokio::test]
    async fn nothing_is_read_before_it_is_asked_for() {
        let mut fixture = Fixture::new(Body::Length(6), false);
        fixture.send("abc").await;

        assert!(!fixture.turn());
        assert!(fixture.buffer.is_empty());
        assert_eq!(fixture.look(), Look::Nothing);
        assert!(!fixture.turn());
        assert_eq!(fixture.look(), data("abc"));

        fixture.send("def").await;
        assert!(!fixture.turn(), "what was read was not enough to ask for more");
        assert_eq!((fixture.next(), fixture.next()), (data("def"), Look::End));
        assert!(fixture.feed.is_received());
    }

    #[tokio::test]
    async fn what_came_with_a_head_is_there_at_once() {
        let mut body = Fixture::new(Body::Length(7), true);
        body.buffer.extend_from_slice(b"abc");
        body.feed.give_buffered(&mut body.buffer);
        assert_eq!(body.taker.as_ref().unwrap().size_hint().exact(), Some(7));
        assert_eq!((body.look(), body.look()), (data("abc"), Look::Nothing));
        body.send("defgGET /next").await;
        assert_eq!((body.turn(), body.look(), body.look()), (true, data("defg"), Look::End));
        assert_eq!(&body.buffer[..], b"GET /next");

        let mut whole = Fixture::new(Body::Length(3), false);
        whole.buffer.extend_from_slice(b"abcGET /next");
        whole.feed.give_buffered(&mut whole.buffer);
        assert!(whole.feed.is_received() && !whole.taker.as_ref().unwrap().is_end_stream());
        assert_eq!((whole.look(), whole.look()), (data("abc"), Look::End));
        assert_eq!(&whole.buffer[..], b"GET /next");

        // Chunks keep their framing on the way, which only a body that goes on can have.
        let mut chunks = Fixture::new(Body::CHUNKED, false);
        chunks.buffer.extend_from_slice(b"0\r\n\r\n");
        chunks.feed.give_buffered(&mut chunks.buffer);
        assert_eq!((chunks.look(), chunks.buffer.len()), (Look::Nothing, 5));
    }

    #[tokio::test]
    async fn chunks_come_without_their_framing_and_the_trailer_behind_them() {
        let mut fixture = Fixture::new(Body::CHUNKED, false);
        fixture.send("3\r\nabc\r\n0\r\nX: behind\r\n\r\nGET /").await;

        assert_eq!(fixture.next(), data("abc"));
        assert!(!fixture.taker.as_ref().unwrap().is_end_stream());
        assert_eq!(fixture.next(), Look::Trailer("behind".to_owned()));
        assert!(fixture.taker.as_ref().unwrap().is_end_stream());
        assert_eq!(fixture.next(), Look::End);
        assert_eq!(&fixture.buffer[..], b"GET /", "the next request stays");
    }

    #[tokio::test]
    async fn what_is_still_to_come_is_known_where_the_head_said_it() {
        let mut fixture = Fixture::new(Body::Length(6), false);
        let hint = |fixture: &Fixture| fixture.taker.as_ref().unwrap().size_hint().exact();
        assert_eq!(hint(&fixture), Some(6));

        fixture.send("ab").await;
        fixture.look();
        fixture.turn();
        assert_eq!(hint(&fixture), Some(6), "what was read waits for its taker");
        fixture.look();
        assert_eq!(hint(&fixture), Some(4));

        assert_eq!(hint(&Fixture::new(Body::CHUNKED, false)), None);
    }

    #[tokio::test]
    async fn a_visitor_who_waits_is_told_once_and_only_when_the_body_is_asked_for() {
        let mut fixture = Fixture::new(Body::Length(2), true);
        fixture.turn();
        assert_eq!(fixture.received().await, "");

        assert_eq!(fixture.next(), Look::Nothing);
        assert_eq!(fixture.received().await, "HTTP/1.1 100 Continue\r\n\r\n");

        fixture.send("a").await;
        assert_eq!(fixture.next(), data("a"));
        assert_eq!(fixture.next(), Look::Nothing);
        assert_eq!(fixture.received().await, "");
    }

    #[tokio::test]
    async fn a_visitor_who_did_not_wait_is_not_told() {
        let mut fixture = Fixture::new(Body::Length(2), true);
        fixture.buffer.extend_from_slice(b"a");

        assert_eq!(fixture.next(), data("a"));
        assert_eq!(fixture.next(), Look::Nothing);
        assert_eq!(fixture.received().await, "");
    }

    #[tokio::test]
    async fn a_body_that_breaks_says_why_again_and_again() {
        let mut fixture = Fixture::new(Body::CHUNKED, false);
        fixture.send("1\r\na\r\n").await;
        assert_eq!(fixture.next(), data("a"));

        fixture.send("no chunk").await;

        for _ in 0..2 {
            assert_eq!(fixture.next(), Look::Broken(FeedError::Malformed));
        }
        assert!(fixture.turn());
        assert!(!fixture.feed.discard_rest(&mut BytesMut::from("0\r\n\r\n")));
    }

    #[tokio::test]
    async fn a_visitor_who_leaves_breaks_its_body() {
        let mut fixture = Fixture::new(Body::Length(6), false);
        fixture.send("abc").await;
        fixture.visitor.shutdown().await.unwrap();

        assert_eq!(fixture.next(), data("abc"));
        assert_eq!(fixture.next(), Look::Broken(FeedError::VisitorLeft));
    }

    #[tokio::test]
    async fn a_connection_that_is_dropped_breaks_a_body_that_is_not_complete() {
        for (sent, end) in [("ab", Look::Broken(FeedError::VisitorLeft)), ("abc", Look::End)] {
            let mut fixture = Fixture::new(Body::Length(3), false);
            fixture.send(sent).await;
            assert_eq!(fixture.next(), data(sent));
            let (other, _) = BodyFeed::new(Body::NONE, false);

            drop(std::mem::replace(&mut fixture.feed, other));

            assert_eq!(fixture.look(), end);
        }
    }

    #[tokio::test]
    async fn nothing_is_read_for_a_taker_who_has_gone() {
        let mut fixture = Fixture::new(Body::Length(6), false);
        assert_eq!(fixture.look(), Look::Nothing);
        fixture.taker = None;
        fixture.send("abc").await;

        assert!(!fixture.turn());
        assert!(fixture.buffer.is_empty());
    }

    #[test]
    fn what_has_come_of_the_rest_is_dropped_when_nobody_wants_it() {
        for (body, buffer, finished, left) in [
            (Body::Length(3), "abcGET /", true, "GET /"),
            (Body::Length(3), "ab", false, ""),
            (Body::Length(3), "", false, ""),
            (Body::CHUNKED, "1\r\na\r\n0\r\n\r\nGET /", true, "GET /"),
            (Body::CHUNKED, "1\r\na\r\n", false, ""),
        ] {
            let (mut feed, _taker) = BodyFeed::new(body, false);
            let mut rest = BytesMut::from(buffer);

            assert_eq!(feed.discard_rest(&mut rest), finished, "{buffer:?}");
            assert_eq!(rest, left.as_bytes(), "{buffer:?}");
        }
        let (mut feed, _taker) = BodyFeed::new(Body::CHUNKED, false);
        assert!(!feed.discard_rest(&mut BytesMut::from("no chunk")));
    }
}
