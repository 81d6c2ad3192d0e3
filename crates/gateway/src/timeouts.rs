//! How long visitors and upstreams may take.

use std::time::Duration;

/// How often a connection is looked at, at least.
const MAX_TICK: Duration = Duration::from_millis(2500);
/// How many times it is looked at within the shortest of its times.
const LOOKS: u32 = 4;

/// How long others may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// How long a visitor may be silent at first, where visitors speak first.
    pub first_byte: Duration,
    /// How long a TLS handshake may take.
    pub handshake: Duration,
    /// How long the head of a request may take.
    pub head: Duration,
    /// How long nothing of a body may arrive, or be taken.
    pub stall: Duration,
    /// How long a connection may be idle between requests.
    pub idle: Duration,
    /// How long opening a connection to an upstream may take.
    pub dial: Duration,
    /// How long an upstream may take to begin its response.
    pub response: Duration,
    /// How long a connection to an upstream waits for another request.
    pub upstream_idle: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            first_byte: Duration::from_secs(5),
            handshake: Duration::from_secs(10),
            head: Duration::from_secs(10),
            stall: Duration::from_secs(30),
            idle: Duration::from_secs(90),
            dial: Duration::from_secs(10),
            response: Duration::from_secs(60),
            upstream_idle: Duration::from_secs(20),
        }
    }
}

/// The times of a connection, counted in ticks: a request costs no timer of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TickLimits {
    /// The time between two looks.
    pub tick: Duration,
    /// For a head.
    pub head: u32,
    /// For a body of which nothing moves.
    pub stall: u32,
    /// Between requests.
    pub idle: u32,
}

impl TickLimits {
    pub fn of(timeouts: &Timeouts) -> Self {
        let shortest = timeouts.head.min(timeouts.stall).min(timeouts.idle);
        let tick = (shortest / LOOKS).clamp(Duration::from_millis(1), MAX_TICK);
        let ticks = |limit: Duration| {
            u32::try_from(limit.as_nanos().div_ceil(tick.as_nanos())).unwrap_or(u32::MAX - 1)
        };
        Self {
            tick,
            head: ticks(timeouts.head),
            stall: ticks(timeouts.stall),
            idle: ticks(timeouts.idle),
        }
    }

    /// A part of what is due in the longest tick, for one of these.
    pub fn share(&self, of_longest: u64) -> u64 {
        let part = u128::from(of_longest) * self.tick.as_micros() / MAX_TICK.as_micros();
        u64::try_from(part).unwrap_or(of_longest).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_is_looked_at_often_enough_for_its_shortest_time() {
        let usual = TickLimits::of(&Timeouts::default());
        let head = Duration::from_secs(1);
        let hurried = TickLimits::of(&Timeouts { head, ..Timeouts::default() });

        assert_eq!((usual.tick, usual.head, usual.stall, usual.idle), (MAX_TICK, 4, 12, 36));
        assert_eq!((hurried.tick, hurried.head, hurried.idle), (head / 4, 4, 360));
        assert_eq!((usual.share(250), hurried.share(250)), (250, 25));
    }
}
