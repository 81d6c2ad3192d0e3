//! When frames wait for others, so that they go out in one write. No I/O.

/// With so many bytes queued, one more frame saves no write.
const MIN_BATCH_BYTES: usize = 16 * 1024;
/// How often nothing waits after a wait that nobody joined.
const PAUSED_FRAMES: u32 = 15;

/// Lets what is queued wait until every stream that is ready has had its turn.
///
/// The first stream that queues a frame wakes the task that writes, and the runtime runs a task
/// that was just woken before all others. Without a wait each frame would go out alone: a record
/// and a system call for each, on both sides. A stream that is alone gains nothing from waiting,
/// so it is seldom tried then.
#[derive(Debug, Default)]
pub struct Batching {
    /// How much was queued when the wait began.
    waiting: Option<usize>,
    pause: u32,
}

impl Batching {
    /// Whether the bytes queued now shall wait for one more turn.
    pub fn should_wait(&mut self, queued: usize) -> bool {
        if let Some(before) = self.waiting.take() {
            self.pause = if queued > before { 0 } else { PAUSED_FRAMES };
            return false;
        }
        if queued == 0 || queued >= MIN_BATCH_BYTES {
            return false;
        }
        if self.pause > 0 {
            self.pause -= 1;
            return false;
        }
        self.waiting = Some(queued);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_wait_as_long_as_others_join_them() {
        let mut batching = Batching::default();

        for _ in 0..100 {
            assert!(batching.should_wait(100));
            assert!(!batching.should_wait(200));
        }
    }

    #[test]
    fn a_stream_that_is_alone_seldom_waits() {
        let mut batching = Batching::default();

        let waits = (0..1000).filter(|_| batching.should_wait(100)).count();

        assert!((1..=1000 / 16).contains(&waits), "{waits}");
    }

    #[test]
    fn much_waits_for_nothing() {
        let mut batching = Batching::default();

        assert!(!batching.should_wait(MIN_BATCH_BYTES));
        assert!(!batching.should_wait(0));
    }
}
