//! Answers that are read ahead of visitors with HTTP/2, who may open many streams and take nothing: a
//! small answer leaves its connection to others as soon as it is read, whatever the visitor does.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};

use crate::message::body::BodyError;

/// How much of one answer is read ahead, in bytes.
const MAX_ANSWER_BYTES: u64 = 64 << 10;
/// How much of all answers together is read ahead, in bytes.
const MAX_TOTAL_BYTES: usize = 8 << 20;

/// How much of all answers is read ahead now.
#[derive(Debug, Default)]
pub struct ReadAheadBudget(AtomicUsize);

/// The body of an answer, read by whoever asks first: its visitor, or the task that serves it.
pub struct ReadAhead<B> {
    budget: Arc<ReadAheadBudget>,
    state: Mutex<ReadAheadState<B>>,
}

struct ReadAheadState<B> {
    body: B,
    frames: VecDeque<Frame<Bytes>>,
    /// How many bytes of the budget the frames have.
    bytes: usize,
    /// Why the body has no more frames.
    end: Option<Result<(), BodyError>>,
    /// True when the visitor waits for the upstream already.
    starved: bool,
}

/// A body that can be read before its visitor takes it.
pub trait PollAhead: Send + Sync {
    /// Reads what there is, as far as there is room; to be asked by the task that serves the visitor,
    /// after it.
    fn poll_ahead(&self, cx: &mut Context<'_>);
}

impl<B: Body<Data = Bytes, Error = BodyError> + Send + Unpin> ReadAhead<B> {
    pub fn new(body: B, budget: Arc<ReadAheadBudget>) -> Arc<Self> {
        let frames = VecDeque::new();
        let state = ReadAheadState { body, frames, bytes: 0, end: None, starved: false };
        Arc::new(Self { budget, state: Mutex::new(state) })
    }

    /// The next frame for the visitor.
    pub fn poll_frame(
        &self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let mut state = self.lock_state();
        if let Some(frame) = state.frames.pop_front() {
            let length = length_of(&frame);
            state.bytes -= length;
            self.budget.0.fetch_sub(length, Relaxed);
            return Poll::Ready(Some(Ok(frame)));
        }
        if let Some(end) = &mut state.end {
            let end = std::mem::replace(end, Ok(()));
            return Poll::Ready(end.err().map(Err));
        }
        let frame = Pin::new(&mut state.body).poll_frame(cx);
        state.starved = frame.is_pending();
        frame
    }

    pub fn is_end_stream(&self) -> bool {
        let state = self.lock_state();
        let has_ended = match &state.end {
            Some(end) => end.is_ok(),
            None => state.body.is_end_stream(),
        };
        has_ended && state.frames.is_empty()
    }

    pub fn size_hint(&self) -> SizeHint {
        let state = self.lock_state();
        let rest = state.body.size_hint().exact();
        rest.map_or_else(SizeHint::default, |rest| SizeHint::with_exact(rest + state.bytes as u64))
    }

    fn has_room(&self, state: &ReadAheadState<B>) -> bool {
        // An answer that cannot be had whole keeps its connection anyway.
        let left = state.body.size_hint().exact().unwrap_or_default();
        state.bytes as u64 + left.max(1) <= MAX_ANSWER_BYTES
            && self.budget.0.load(Relaxed) < MAX_TOTAL_BYTES
    }

    fn lock_state(&self) -> MutexGuard<'_, ReadAheadState<B>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<B: Body<Data = Bytes, Error = BodyError> + Send + Unpin> PollAhead for ReadAhead<B> {
    fn poll_ahead(&self, cx: &mut Context<'_>) {
        let mut state = self.lock_state();
        if std::mem::take(&mut state.starved) {
            return;
        }
        while state.end.is_none() && self.has_room(&state) {
            match Pin::new(&mut state.body).poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => {
                    let length = length_of(&frame);
                    state.bytes += length;
                    self.budget.0.fetch_add(length, Relaxed);
                    state.frames.push_back(frame);
                }
                Poll::Ready(Some(Err(error))) => state.end = Some(Err(error)),
                Poll::Ready(None) => state.end = Some(Ok(())),
                Poll::Pending => return,
            }
        }
    }
}

impl<B> Drop for ReadAhead<B> {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        self.budget.0.fetch_sub(state.bytes, Relaxed);
    }
}

fn length_of(frame: &Frame<Bytes>) -> usize {
    frame.data_ref().map_or(0, Bytes::len)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::task::Waker;

    use super::*;
    use crate::message::response_body::ResponseBody;

    #[test]
    fn what_was_read_ahead_comes_in_its_turn_and_is_given_back() {
        let budget = Arc::<ReadAheadBudget>::default();
        let cx = &mut Context::from_waker(Waker::noop());
        let ahead =
            ReadAhead::new(ResponseBody::from_bytes(Bytes::from_static(b"hello")), budget.clone());

        ahead.poll_ahead(cx);
        assert_eq!(budget.0.load(Relaxed), 5);
        assert_eq!(ahead.size_hint().exact(), Some(5));
        assert!(!ahead.is_end_stream());
        let Poll::Ready(Some(Ok(frame))) = ahead.poll_frame(cx) else { unreachable!() };

        assert_eq!(frame.into_data().unwrap(), "hello");
        assert_eq!(budget.0.load(Relaxed), 0);
        assert!(ahead.is_end_stream());
        assert!(matches!(ahead.poll_frame(cx), Poll::Ready(None)));
        assert!(matches!(ahead.poll_frame(cx), Poll::Ready(None)));
    }

    #[test]
    fn who_goes_early_gives_back_what_was_read() {
        let budget = Arc::<ReadAheadBudget>::default();
        let ahead =
            ReadAhead::new(ResponseBody::from_bytes(Bytes::from_static(b"hello")), budget.clone());

        ahead.poll_ahead(&mut Context::from_waker(Waker::noop()));
        drop(ahead);

        assert_eq!(budget.0.load(Relaxed), 0);
    }
}
