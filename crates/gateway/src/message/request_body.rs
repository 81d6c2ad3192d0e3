//! Bodies of requests on their way to upstreams.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body as HttpBody, Frame, Incoming, SizeHint};
use tokio::time::Sleep;

use crate::message::body::{BodyError, size_hint_after};
use crate::message::body_feed::FedBody;
use crate::message::connection_activity::ConnectionActivity;
use crate::message::replaced_body::ReplacedBody;
use ginnel_policy::BodyReplacer;

/// How long an upstream may be silent about whether it wants a body.
const CONTINUE_TIMEOUT: Duration = Duration::from_secs(1);

/// A frame of a body, or the error that broke it off.
pub type ReadFrame = Result<Frame<Bytes>, BodyError>;

/// The body of a request.
#[derive(Default)]
pub enum RequestBody {
    /// None at all.
    #[default]
    Empty,
    /// These bytes.
    Full(Option<Bytes>),
    /// One that was begun, with the frame that was read.
    Begun(Option<ReadFrame>, Box<RequestBody>),
    /// One in which rules replace text.
    Replaced(Box<ReplacedBody<RequestBody>>),
    /// As it comes from the visitor.
    Visitor(VisitorBody),
    /// As it comes from the visitor, once the upstream asks for it.
    Held(Box<DeferredBody>),
}

/// A body as it comes from the visitor, whose connection is told when it cannot be read.
pub struct VisitorBody {
    source: BodySource,
    activity: Arc<ConnectionActivity>,
}

enum BodySource {
    Http1(FedBody),
    Http2(Http2RequestBody),
}

/// A body that comes by HTTP/2, with the frame that was read to see if there is one.
struct Http2RequestBody {
    first: Option<FirstFrame>,
    rest: Incoming,
}

enum FirstFrame {
    Data(Bytes),
    Other(Box<Result<Frame<Bytes>, BodyError>>),
}

impl Http2RequestBody {
    /// Reads the first frame, for `poll_frame` to return. Ready with true if the body ends without one.
    fn poll_start(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        while self.first.is_none() {
            self.first = match ready!(Pin::new(&mut self.rest).poll_frame(cx)) {
                None => return Poll::Ready(true),
                Some(Ok(frame)) => match frame.into_data() {
                    // It may carry the end of the stream.
                    Ok(data) if data.is_empty() => continue,
                    Ok(data) => Some(FirstFrame::Data(data)),
                    Err(trailers) => Some(FirstFrame::Other(Box::new(Ok(trailers)))),
                },
                Some(Err(error)) => Some(FirstFrame::Other(Box::new(Err(error.into())))),
            };
        }
        Poll::Ready(false)
    }

    fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match self.first.take() {
            Some(FirstFrame::Data(data)) => Poll::Ready(Some(Ok(Frame::data(data)))),
            Some(FirstFrame::Other(frame)) => Poll::Ready(Some(*frame)),
            None => Pin::new(&mut self.rest).poll_frame(cx).map_err(Into::into),
        }
    }

    fn size_hint(&self) -> SizeHint {
        let first = match &self.first {
            Some(FirstFrame::Data(data)) => Some(data),
            Some(FirstFrame::Other(_)) | None => None,
        };
        size_hint_after(first, self.rest.size_hint())
    }
}

impl VisitorBody {
    fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let frame = match &mut self.source {
            BodySource::Http1(body) => body.poll_frame(cx).map_err(Into::into),
            BodySource::Http2(body) => body.poll_frame(cx),
        };
        if let Poll::Ready(Some(Err(_))) = &frame {
            self.activity.body_failed();
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        match &self.source {
            BodySource::Http1(body) => body.is_end_stream(),
            BodySource::Http2(body) => body.first.is_none() && body.rest.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.source {
            BodySource::Http1(body) => body.size_hint(),
            BodySource::Http2(body) => body.size_hint(),
        }
    }
}

/// A body that waits for the upstream's word.
pub struct DeferredBody {
    body: VisitorBody,
    word: Arc<ContinueSignal>,
    timeouts: Option<Pin<Box<Sleep>>>,
}

/// Whether the upstream wants a body.
#[derive(Default)]
pub struct ContinueSignal(Mutex<(bool, Option<Waker>)>);

impl ContinueSignal {
    /// The upstream wants the body.
    pub fn allow_body(&self) {
        let mut word = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        word.0 = true;
        if let Some(waker) = word.1.take() {
            waker.wake();
        }
    }

    fn poll(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut word = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if word.0 {
            return Poll::Ready(());
        }
        word.1 = Some(cx.waker().clone());
        Poll::Pending
    }
}

impl RequestBody {
    /// The body of a request that came by HTTP/2 on this visitor's connection.
    pub fn from_http2(body: Incoming, activity: &Arc<ConnectionActivity>) -> Self {
        if body.is_end_stream() {
            return Self::Empty;
        }
        let source = BodySource::Http2(Http2RequestBody { first: None, rest: body });
        Self::Visitor(VisitorBody { source, activity: activity.clone() })
    }

    /// Looks for the first frame of a body that came by HTTP/2, and replaces a body that ends without one by none. Ready
    /// when the beginning of the body is known.
    pub fn poll_start(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if let Self::Visitor(VisitorBody { source: BodySource::Http2(body), .. }) = self
            && ready!(body.poll_start(cx))
        {
            *self = Self::Empty;
        }
        Poll::Ready(())
    }

    /// The body of a request that came by HTTP/1.1 on this visitor's connection.
    pub fn from_http1(body: FedBody, activity: &Arc<ConnectionActivity>) -> Self {
        let source = BodySource::Http1(body);
        Self::Visitor(VisitorBody { source, activity: activity.clone() })
    }

    /// These bytes.
    pub fn from_bytes(bytes: Bytes) -> Self {
        if bytes.is_empty() { Self::Empty } else { Self::Full(Some(bytes)) }
    }

    /// Puts a frame that was read back in front.
    pub fn put_back(&mut self, frame: ReadFrame) {
        let rest = std::mem::take(self);
        *self = Self::Begun(Some(frame), Box::new(rest));
    }

    /// The same, with text replaced on the way.
    pub fn with_replacer(self, replacer: BodyReplacer) -> Self {
        match self {
            Self::Empty => Self::Empty,
            body => Self::Replaced(Box::new(ReplacedBody::new(body, replacer))),
        }
    }

    /// Holds the body back until the word is given, or the upstream has been silent for a second.
    pub fn hold_for_continue(self, word: Arc<ContinueSignal>) -> Self {
        match self {
            Self::Visitor(body) => {
                let timeouts = Some(Box::pin(tokio::time::sleep(CONTINUE_TIMEOUT)));
                Self::Held(Box::new(DeferredBody { body, word, timeouts }))
            }
            // It was held for an upstream that did not take it.
            Self::Held(held) => Self::Visitor(held.body).hold_for_continue(word),
            other => other,
        }
    }
}

impl DeferredBody {
    fn poll_word(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(timeouts) = &mut self.timeouts else { return Poll::Ready(()) };
        if self.word.poll(cx).is_pending() {
            ready!(timeouts.as_mut().poll(cx));
        }
        self.timeouts = None;
        Poll::Ready(())
    }
}

impl HttpBody for RequestBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match self.get_mut() {
            Self::Empty => Poll::Ready(None),
            Self::Full(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Self::Begun(frame, rest) => match frame.take() {
                Some(frame) => Poll::Ready(Some(frame)),
                None => Pin::new(rest.as_mut()).poll_frame(cx),
            },
            Self::Replaced(replaced) => replaced.poll_frame(cx),
            Self::Visitor(visitor) => visitor.poll_frame(cx),
            Self::Held(held) => {
                ready!(held.poll_word(cx));
                held.body.poll_frame(cx)
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Empty => true,
            Self::Full(bytes) => bytes.is_none(),
            Self::Begun(frame, rest) => frame.is_none() && rest.is_end_stream(),
            Self::Replaced(replaced) => replaced.is_end_stream(),
            Self::Visitor(visitor) => visitor.is_end_stream(),
            Self::Held(held) => held.body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Empty => SizeHint::with_exact(0),
            Self::Full(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, Bytes::len) as u64),
            Self::Begun(frame, rest) => {
                let bytes = frame.as_ref().and_then(|frame| frame.as_ref().ok()?.data_ref());
                size_hint_after(bytes, rest.size_hint())
            }
            Self::Replaced(_) => SizeHint::default(),
            Self::Visitor(visitor) => visitor.size_hint(),
            Self::Held(held) => held.body.size_hint(),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use bytes::BytesMut;

    use super::*;
    use crate::message::body_feed::BodyFeed;
    use ginnel_http1::Body;

    #[test]
    fn a_body_that_one_upstream_has_not_taken_waits_for_the_word_of_the_next() {
        let (mut feed, fed) = BodyFeed::new(Body::Length(4), true);
        feed.give_buffered(&mut BytesMut::from("body"));
        let [first, second] = [(); 2].map(|()| Arc::new(ContinueSignal::default()));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let _guard = runtime.enter();
        let body = RequestBody::from_http1(fed.unwrap(), &Arc::default());
        let mut body = body.hold_for_continue(first.clone()).hold_for_continue(second.clone());
        let mut is_there = || {
            let mut cx = Context::from_waker(Waker::noop());
            Pin::new(&mut body).poll_frame(&mut cx).is_ready()
        };

        first.allow_body();
        assert!(!is_there());
        second.allow_body();
        assert!(is_there());
    }
}
