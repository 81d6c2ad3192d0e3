//! How long visitors and upstreams may take.

use std::time::Duration;

use ginnel_settings::settings;

/// How often a connection is looked at, at least.
const MAX_TICK: Duration = Duration::from_millis(2500);
/// How many times it is looked at within the shortest of its times.
const LOOKS: u32 = 4;

settings! {
    /// Maximum times that visitors and upstreams may take.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Timeouts {
    }

    /// The times, under `edge`.
    rows {
        first_byte: Duration = Duration::from_secs(5),
            "edge.first_byte_timeout", "DURATION",
            "Maximum time until a visitor sends its first byte, in protocols in which visitors send first",
            with_time_bounds(), live();
        handshake: Duration = Duration::from_secs(10),
            "edge.handshake_timeout", "DURATION",
            "Maximum duration of a TLS handshake",
            with_time_bounds(), live();
        head: Duration = Duration::from_secs(10),
            "edge.head_timeout", "DURATION",
            "Maximum duration of a request's head",
            with_time_bounds(), live();
        stall: Duration = Duration::from_secs(30),
            "edge.stall_timeout", "DURATION",
            "Maximum time in which a visitor sends or accepts nothing of a body",
            with_time_bounds(), live();
        idle: Duration = Duration::from_secs(90),
            "edge.idle_timeout", "DURATION",
            "Maximum time that a visitor's connection is idle between requests",
            with_time_bounds(), live();
        dial: Duration = Duration::from_secs(10),
            "edge.dial_timeout", "DURATION",
            "Maximum time to open a connection to a backend",
            with_time_bounds(), live();
        response: Option<Duration> = Some(Duration::from_secs(15 * 60)),
            "edge.response_timeout", "TIMEOUT",
            "Maximum time until a backend begins its response, or `off`",
            with_time_bounds(), live();
        upstream_stall: Duration = Duration::from_secs(5 * 60),
            "edge.upstream_stall_timeout", "DURATION",
            "Maximum pause of a backend in a body with a length or chunks; event streams and gRPC may pause for any time",
            with_time_bounds(), live();
        upstream_idle: Duration = Duration::from_secs(20),
            "edge.upstream_idle_timeout", "DURATION",
            "Minimum time that a connection to a backend is kept for another request",
            with_time_bounds(), live();
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
    /// For a pause of the upstream in a response body.
    pub upstream_stall: u32,
}

impl TickLimits {
    pub fn from_timeouts(timeouts: &Timeouts) -> Self {
        let Timeouts { head, stall, idle, upstream_stall, .. } = *timeouts;
        let shortest = head.min(stall).min(idle).min(upstream_stall);
        let tick = (shortest / LOOKS).clamp(Duration::from_millis(1), MAX_TICK);
        let ticks = |limit: Duration| {
            u32::try_from(limit.as_nanos().div_ceil(tick.as_nanos())).unwrap_or(u32::MAX - 1)
        };
        Self {
            tick,
            head: ticks(head),
            stall: ticks(stall),
            idle: ticks(idle),
            upstream_stall: ticks(upstream_stall),
        }
    }

    /// A part of what is due in the longest tick, for one of these.
    pub fn scale_to_tick(&self, of_longest: u64) -> u64 {
        let part = u128::from(of_longest) * self.tick.as_micros() / MAX_TICK.as_micros();
        u64::try_from(part).unwrap_or(of_longest).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_is_looked_at_often_enough_for_its_shortest_time() {
        let usual = TickLimits::from_timeouts(&Timeouts::default());
        let head = Duration::from_secs(1);
        let hurried = TickLimits::from_timeouts(&Timeouts { head, ..Timeouts::default() });

        assert_eq!((usual.tick, usual.head, usual.stall, usual.idle), (MAX_TICK, 4, 12, 36));
        assert_eq!((hurried.tick, hurried.head, hurried.idle), (head / 4, 4, 360));
        assert_eq!((usual.scale_to_tick(250), hurried.scale_to_tick(250)), (250, 25));
    }
}
