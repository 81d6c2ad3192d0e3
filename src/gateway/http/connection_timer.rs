//! Whether a visitor still does its part.
//!
//! Time limits are looked at in ticks, a few seconds apart, so that a request costs no timer.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering::Relaxed};

use crate::gateway::http::read_ahead::ReadAheadBudget;
use crate::gateway::http::stream_timers::{Many, Part};
use crate::http1::Expects;

/// How many ticks a head may take, and the wait for the first byte.
pub(crate) const HEAD: u8 = 4;
/// For how many ticks nothing of a body may arrive, or be taken.
pub(crate) const STALL: u8 = 12;
/// How many ticks a connection may be idle between requests.
const IDLE: u8 = 36;
/// How many frames that ask for nothing a visitor earns with a tick,
const EARNED_BY_TICK: u64 = 250;
/// with a request,
const EARNED_BY_REQUEST: u64 = 16;
/// and with each such piece of an answer, in bytes, or a smaller one.
const EARNING_PIECE: usize = 4096;
const EARNED_BY_PIECE: u64 = 4;

/// What the parts of a connection tell one another.
#[derive(Debug, Default)]
pub(crate) struct Pulse {
    /// How many requests are being answered.
    answering: AtomicU32,
    /// True when there has been a request.
    seen: AtomicBool,
    expects: AtomicU8,
    /// True when bytes have arrived since the last tick.
    arrived: AtomicBool,
    /// True when somebody waits for bytes of the visitor.
    starved: AtomicBool,
    /// True when the visitor takes no more bytes for now.
    blocked: AtomicBool,
    /// True when the connection carries something other than HTTP.
    pub(crate) upgraded: AtomicBool,
    /// True when the body of a request could not be read, so that no other request follows.
    body_failed: AtomicBool,
    /// True when the connection must be closed, whatever else is on it.
    pub(crate) closed: AtomicBool,
    /// What only a connection has that carries many requests at once.
    many: Option<Many>,
}

/// A request that is being answered, for as long as this lives.
#[derive(Debug)]
pub(crate) struct Answering {
    pulse: Arc<Pulse>,
    /// The request among many; none where it is the only one.
    part: Option<Arc<Part>>,
}

impl Answering {
    /// The request and the others beside it, where there may be others.
    pub(crate) fn among_many(&self) -> Option<(&Part, &Many)> {
        Some((self.part.as_deref()?, self.pulse.many.as_ref()?))
    }

    /// Something asked for more of the answer, and was given so many bytes.
    pub(crate) fn gives(&mut self, length: Option<usize>) {
        let Some(many) = &self.pulse.many else { return };
        if let Some(length) = length {
            let pieces = 1 + (length / EARNING_PIECE) as u64;
            many.earned.fetch_add(pieces * EARNED_BY_PIECE, Relaxed);
        }
        if let Some(part) = &self.part {
            many.offers(part, length.is_some());
        }
    }
}

impl Pulse {
    /// The pulse of a connection that carries many requests at once.
    pub(crate) fn of_many(read_ahead: Arc<ReadAheadBudget>) -> Self {
        Self { many: Some(Many::new(read_ahead)), ..Self::default() }
    }

    /// Marks the beginning of an answer.
    pub(crate) fn answering(self: &Arc<Self>) -> Answering {
        self.answering.fetch_add(1, Relaxed);
        self.seen.store(true, Relaxed);
        self.arrived.store(true, Relaxed);
        self.earn(EARNED_BY_REQUEST);
        let part = self.many.as_ref().and_then(|_| Many::present());
        Answering { pulse: self.clone(), part }
    }

    /// What is known of many answers, where there may be many.
    pub(crate) fn many(&self) -> Option<&Many> {
        self.many.as_ref()
    }

    /// How many frames that ask for nothing the visitor has earned.
    pub(crate) fn earned(&self) -> u64 {
        self.many.as_ref().map_or(0, |many| many.earned.load(Relaxed))
    }

    fn earn(&self, frames: u64) {
        if let Some(many) = &self.many {
            many.earned.fetch_add(frames, Relaxed);
        }
    }

    /// The body of a request cannot be read; where there are many, the others go on.
    pub(crate) fn body_failed(&self) {
        self.body_failed.store(self.many.is_none(), Relaxed);
    }

    /// Whether the body of the last request could not be read.
    pub(crate) fn has_failed_body(&self) -> bool {
        self.body_failed.load(Relaxed)
    }

    /// Whether a request is being answered.
    pub(crate) fn is_answering(&self) -> bool {
        self.answering.load(Relaxed) > 0
    }

    pub(crate) fn arrived(&self, expects: Expects) {
        self.arrived.store(true, Relaxed);
        self.starved.store(false, Relaxed);
        self.expects.store(expects as u8, Relaxed);
    }

    pub(crate) fn starved(&self) {
        self.starved.store(true, Relaxed);
    }

    pub(crate) fn blocked(&self, blocked: bool) {
        self.blocked.store(blocked, Relaxed);
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        self.pulse.answering.fetch_sub(1, Relaxed);
    }
}

/// Counts the ticks of a connection.
#[derive(Debug, Default)]
pub(crate) struct Clock {
    reading: u8,
    writing: u8,
}

impl Clock {
    /// Whether the visitor has used up its time; to be asked at every tick.
    pub(crate) fn is_over(&mut self, pulse: &Pulse) -> bool {
        let arrived = pulse.arrived.swap(false, Relaxed);
        let answering = pulse.answering.load(Relaxed) > 0;
        let limit = self.limit(pulse, arrived, answering);
        pulse.earn(EARNED_BY_TICK);
        if let Some(many) = &pulse.many {
            many.tick();
        }
        self.writing = if pulse.blocked.load(Relaxed) { self.writing + 1 } else { 0 };
        self.reading = match limit {
            Some(_) => self.reading + 1,
            None => 0,
        };
        self.writing > STALL || limit.is_some_and(|limit| self.reading > limit)
    }

    /// How many ticks the present state may last; none when it is not the visitor's turn.
    fn limit(&mut self, pulse: &Pulse, arrived: bool, answering: bool) -> Option<u8> {
        if pulse.upgraded.load(Relaxed) {
            return None;
        }
        let expects = pulse.expects.load(Relaxed);
        if expects == Expects::Body as u8 {
            let waiting = pulse.starved.load(Relaxed) && !arrived;
            return waiting.then_some(STALL);
        }
        if answering {
            return None;
        }
        if expects == Expects::Head as u8 || !pulse.seen.load(Relaxed) {
            return Some(HEAD);
        }
        // The time between requests starts anew with each of them.
        if arrived {
            self.reading = 0;
        }
        Some(IDLE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ticks_until_over(pulse: &Pulse) -> Option<usize> {
        let mut clock = Clock::default();
        (1..=100).find(|_| clock.is_over(pulse))
    }

    #[test]
    fn a_silent_visitor_has_less_time_than_one_who_came_before() {
        let silent = Arc::new(Pulse::default());
        let idle = Arc::new(Pulse::default());
        drop(idle.answering());

        assert_eq!(ticks_until_over(&silent), Some(5));
        assert_eq!(ticks_until_over(&idle), Some(37));
    }

    #[test]
    fn nobody_is_hurried_while_the_answer_is_waited_for() {
        let pulse = Arc::new(Pulse::default());
        let _answering = pulse.answering();

        assert_eq!(ticks_until_over(&pulse), None);
    }

    #[test]
    fn a_head_and_a_body_must_go_on() {
        let pulse = Arc::new(Pulse::default());
        pulse.arrived(Expects::Head);
        assert_eq!(ticks_until_over(&pulse), Some(5));

        let _answering = pulse.answering();
        pulse.arrived(Expects::Body);
        assert_eq!(ticks_until_over(&pulse), None, "nobody asks for more");
        pulse.starved();
        assert_eq!(ticks_until_over(&pulse), Some(13));
    }

    #[test]
    fn who_takes_no_bytes_is_given_up() {
        let pulse = Arc::new(Pulse::default());
        let _answering = pulse.answering();
        pulse.blocked(true);

        assert_eq!(ticks_until_over(&pulse), Some(13));
    }
}
