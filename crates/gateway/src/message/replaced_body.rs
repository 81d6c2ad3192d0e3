//! Bodies in which rules replace text on the way.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame};

use ginnel_http1::remove_digests;
use ginnel_policy::BodyReplacer;

use crate::message::body::BodyError;

/// A body in which text is replaced on the way.
pub struct ReplacedBody<B> {
    body: B,
    /// `None` when the body has ended.
    replacer: Option<BodyReplacer>,
    trailers: Option<Frame<Bytes>>,
}

impl<B: Body<Data = Bytes, Error = BodyError> + Unpin> ReplacedBody<B> {
    pub fn new(body: B, replacer: BodyReplacer) -> Self {
        Self { body, replacer: Some(replacer), trailers: None }
    }

    /// Returns the next frame.
    pub fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        while let Some(replacer) = &mut self.replacer {
            let replaced = match std::task::ready!(Pin::new(&mut self.body).poll_frame(cx)?) {
                Some(frame) => match frame.into_data() {
                    Ok(piece) => replacer.replace_piece(&piece)?,
                    Err(trailers) => self.finish(Some(trailers))?,
                },
                None => self.finish(None)?,
            };
            if !replaced.is_empty() {
                return Poll::Ready(Some(Ok(Frame::data(replaced))));
            }
        }
        Poll::Ready(self.trailers.take().map(Ok))
    }

    /// Returns true if all frames were returned.
    pub fn is_end_stream(&self) -> bool {
        self.replacer.is_none() && self.trailers.is_none()
    }

    fn finish(&mut self, mut trailers: Option<Frame<Bytes>>) -> Result<Bytes, BodyError> {
        if let Some(fields) = trailers.as_mut().and_then(Frame::trailers_mut) {
            remove_digests(fields);
        }
        self.trailers = trailers;
        let last = self.replacer.take().map(|mut replacer| replacer.finish());
        Ok(last.transpose()?.unwrap_or_default())
    }
}
