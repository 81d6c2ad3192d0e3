//! Bodies of responses on their way to visitors.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body as HttpBody, Frame, SizeHint};

use ginnel_http1::remove_digests;
use ginnel_policy::BodyReplacer;
use ginnel_policy::compression::Encoder;

use crate::message::body::{BodyError, size_hint_after};
use crate::message::connection_activity::ActiveRequest;
use crate::message::read_ahead::ReadAhead;
use crate::message::replaced_body::ReplacedBody;

/// The body of a response.
pub struct ResponseBody {
    kind: ResponseBodyKind,
    /// If true, the pauses of the upstream are limited.
    has_stall_limit: bool,
    /// The request is being answered until its body is gone.
    answering: Option<ActiveRequest>,
}

enum ResponseBodyKind {
    Full(Option<Bytes>),
    /// As it arrives from an upstream.
    Upstream(Box<dyn UpstreamBody>),
    Compressed(Box<CompressedBody>),
    /// One in which rules replace text.
    Replaced(Box<ReplacedBody<ResponseBody>>),
    /// One that broke off while it was read.
    Failed(Option<BodyError>),
    /// One that was begun, and the frames that were read of it.
    Begun(VecDeque<Frame<Bytes>>, Box<ResponseBodyKind>),
    /// One that is read ahead of its visitor.
    Ahead(Arc<ReadAhead<ResponseBody>>),
}

/// The body of a response as it arrives from an upstream.
pub trait UpstreamBody: Send {
    /// Takes the next frame.
    fn poll_frame(&mut self, cx: &mut Context<'_>)
    -> Poll<Option<Result<Frame<Bytes>, BodyError>>>;

    /// Returns true if there is no other frame.
    fn is_end_stream(&self) -> bool;

    /// The length of the rest, if it is known.
    fn size_hint(&self) -> SizeHint;
}

/// A body that is compressed on the way.
struct CompressedBody {
    body: ResponseBodyKind,
    /// None when its end has been given.
    encoder: Option<Encoder>,
    /// True when the encoder holds something back.
    unflushed: bool,
    trailers: Option<Frame<Bytes>>,
}

impl ResponseBody {
    pub fn empty() -> Self {
        Self::from_kind(ResponseBodyKind::Full(None))
    }

    pub fn from_bytes(bytes: Bytes) -> Self {
        Self::from_kind(ResponseBodyKind::full(bytes))
    }

    /// The body of an upstream's response. If `has_stall_limit`, its pauses are limited.
    pub fn of_upstream(body: impl UpstreamBody + 'static, has_stall_limit: bool) -> Self {
        let kind = ResponseBodyKind::Upstream(Box::new(body));
        Self { has_stall_limit, ..Self::from_kind(kind) }
    }

    /// Puts frames that were read back in front.
    pub fn put_back(&mut self, frames: VecDeque<Frame<Bytes>>) {
        let rest = std::mem::replace(&mut self.kind, ResponseBodyKind::Full(None));
        self.kind = ResponseBodyKind::Begun(frames, Box::new(rest));
    }

    /// Replaces the rest of the body by an error.
    pub fn set_failed(&mut self, error: BodyError) {
        self.kind = ResponseBodyKind::Failed(Some(error));
    }

    /// Replaces all of the body.
    pub fn set_full(&mut self, bytes: Bytes) {
        self.kind = ResponseBodyKind::full(bytes);
    }

    /// The same, with text replaced on the way.
    pub fn with_replacer(self, replacer: BodyReplacer) -> Self {
        if self.kind.is_end_stream() {
            return self;
        }
        let replaced = ReplacedBody::new(Self::from_kind(self.kind), replacer);
        Self { kind: ResponseBodyKind::Replaced(Box::new(replaced)), ..self }
    }

    /// The same, compressed.
    pub fn with_encoder(self, encoder: Encoder) -> Self {
        let (body, encoder) = (self.kind, Some(encoder));
        let encoded = CompressedBody { body, encoder, unflushed: false, trailers: None };
        Self { kind: ResponseBodyKind::Compressed(Box::new(encoded)), ..self }
    }

    /// Keeps the mark that the request is being answered.
    pub fn with_active_request(self, answering: ActiveRequest) -> Self {
        let kind = match answering.stream_timer() {
            Some((stream, all)) if !matches!(self.kind, ResponseBodyKind::Full(_)) => {
                let ahead = ReadAhead::new(Self::from_kind(self.kind), all.read_ahead_budget());
                stream.read_ahead(ahead.clone());
                ResponseBodyKind::Ahead(ahead)
            }
            _ => self.kind,
        };
        Self { kind, answering: Some(answering), ..self }
    }

    /// Takes the bytes of a complete body. Returns `None` for bodies that come from an upstream, and for empty ones.
    pub fn take_full(&mut self) -> Option<Bytes> {
        match &mut self.kind {
            ResponseBodyKind::Full(bytes) => bytes.take(),
            _ => None,
        }
    }

    fn from_kind(kind: ResponseBodyKind) -> Self {
        Self { kind, has_stall_limit: false, answering: None }
    }
}

impl HttpBody for ResponseBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let frame = self.kind.poll_frame(cx);
        let is_waiting = self.has_stall_limit && frame.is_pending();
        if let Some(answering) = &mut self.answering {
            let given = match &frame {
                Poll::Ready(Some(Ok(frame))) => frame.data_ref().map(Bytes::len),
                _ => None,
            };
            answering.record_output(given);
            answering.record_wait(is_waiting);
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.kind.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.kind.size_hint()
    }
}

impl ResponseBodyKind {
    fn full(bytes: Bytes) -> Self {
        Self::Full(Some(bytes).filter(|bytes| !bytes.is_empty()))
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Full(bytes) => bytes.is_none(),
            Self::Failed(error) => error.is_none(),
            Self::Upstream(body) => body.is_end_stream(),
            Self::Compressed(encoded) => encoded.encoder.is_none() && encoded.trailers.is_none(),
            Self::Replaced(replaced) => replaced.is_end_stream(),
            Self::Begun(frames, rest) => frames.is_empty() && rest.is_end_stream(),
            Self::Ahead(ahead) => ahead.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Full(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, Bytes::len) as u64),
            Self::Upstream(body) => body.size_hint(),
            Self::Compressed(_) | Self::Replaced(_) | Self::Failed(_) => SizeHint::default(),
            Self::Begun(frames, rest) => {
                size_hint_after(frames.iter().filter_map(Frame::data_ref), rest.size_hint())
            }
            Self::Ahead(ahead) => ahead.size_hint(),
        }
    }

    fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match self {
            Self::Full(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Self::Failed(error) => Poll::Ready(error.take().map(Err)),
            Self::Upstream(body) => body.poll_frame(cx),
            Self::Compressed(encoded) => encoded.poll_frame(cx),
            Self::Replaced(replaced) => replaced.poll_frame(cx),
            Self::Begun(frames, rest) => match frames.pop_front() {
                Some(frame) => Poll::Ready(Some(Ok(frame))),
                None => rest.poll_frame(cx),
            },
            Self::Ahead(ahead) => ahead.poll_frame(cx),
        }
    }
}

impl CompressedBody {
    fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        loop {
            let Some(encoder) = &mut self.encoder else {
                return Poll::Ready(self.trailers.take().map(Ok));
            };
            let out = match self.body.poll_frame(cx)? {
                Poll::Ready(Some(frame)) => match frame.into_data() {
                    Ok(piece) => {
                        self.unflushed = true;
                        encoder.compress_chunk(&piece)?
                    }
                    Err(mut trailers) => {
                        trailers.trailers_mut().map(remove_digests);
                        self.trailers = Some(trailers);
                        self.finish_encoding()?
                    }
                },
                Poll::Ready(None) => self.finish_encoding()?,
                Poll::Pending if self.unflushed => {
                    self.unflushed = false;
                    encoder.flush()?
                }
                Poll::Pending => return Poll::Pending,
            };
            if !out.is_empty() {
                return Poll::Ready(Some(Ok(Frame::data(out))));
            }
        }
    }

    fn finish_encoding(&mut self) -> std::io::Result<Bytes> {
        self.encoder.take().map_or_else(|| Ok(Bytes::new()), Encoder::finish)
    }
}
