//! A limit of how many requests a client sends in a time.

use std::str::FromStr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ginnel_base::SlidingWindow;

/// The largest number of requests that a limit may have.
const MAX_REQUESTS_PER_WINDOW: usize = 1_000_000;

/// So many requests in any time of this length. Requests are sent in the order in which they came.
#[derive(Debug)]
pub(super) struct RequestRateLimit {
    requests: usize,
    window: Duration,
    /// When requests were sent in the last window, and will be.
    slots: Mutex<SlidingWindow<Instant>>,
}

/// The right to send a request at a time; what is dropped unused is free for others.
#[derive(Debug)]
pub(super) struct RateLimitSlot {
    limit: Arc<RequestRateLimit>,
    pub time: Instant,
    is_used: bool,
}

impl RequestRateLimit {
    /// Takes the next free slot.
    ///
    /// # Errors
    /// When it is later than `latest`; then it stays free. Gives how long it is until then.
    pub fn reserve_slot(
        self: &Arc<Self>,
        now: Instant,
        latest: Option<Instant>,
    ) -> Result<RateLimitSlot, Duration> {
        let mut slots = self.lock_slots();
        let time = slots.next(now, self.requests, self.window);
        if latest.is_some_and(|latest| time > latest) {
            return Err(time.saturating_duration_since(now));
        }
        slots.reserve(time);
        Ok(RateLimitSlot { limit: self.clone(), time, is_used: false })
    }

    fn lock_slots(&self) -> MutexGuard<'_, SlidingWindow<Instant>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RateLimitSlot {
    /// The request is sent.
    pub fn consume(mut self) {
        self.is_used = true;
    }
}

impl Drop for RateLimitSlot {
    fn drop(&mut self) {
        if !self.is_used {
            self.limit.lock_slots().release(self.time);
        }
    }
}

impl FromStr for RequestRateLimit {
    type Err = &'static str;

    /// Reads `120/60s`; the time is in `ms`, `s`, `m` or `h`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const EXPECTED_FORMAT: &str = "must be requests and a time, such as \"120/60s\"";
        let (requests, window) = text.split_once('/').ok_or(EXPECTED_FORMAT)?;
        let requests = requests.trim().parse().map_err(|_| EXPECTED_FORMAT)?;
        if !(1..=MAX_REQUESTS_PER_WINDOW).contains(&requests) {
            return Err("must allow 1 to 1000000 requests");
        }
        let window = window.trim();
        let unit_at = window.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(window.len());
        let (number, unit) = window.split_at(unit_at);
        let number: u32 =
            if number.is_empty() { 1 } else { number.parse().map_err(|_| EXPECTED_FORMAT)? };
        let unit = match unit {
            "ms" => Duration::from_millis(1),
            "s" => Duration::from_secs(1),
            "m" => Duration::from_secs(60),
            "h" => Duration::from_secs(3600),
            _ => return Err(EXPECTED_FORMAT),
        };
        let window = unit.saturating_mul(number);
        if window.is_zero() || window > Duration::from_secs(86_400) {
            return Err("must have a time from 1ms to 24h");
        }
        Ok(Self { requests, window, slots: Mutex::default() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_window_holds_more_requests_than_allowed() {
        let limit = Arc::new("3/1s".parse::<RequestRateLimit>().unwrap());
        let start = Instant::now();
        let time = |milliseconds| start + Duration::from_millis(milliseconds);
        let sent = [0, 0, 0, 100, 100, 2500].map(|came| {
            let slot = limit.reserve_slot(time(came), None).unwrap();
            let sent = (slot.time - start).as_millis();
            slot.consume();
            sent
        });

        assert_eq!(sent, [0, 0, 0, 1000, 1000, 2500]);
        let _two = [limit.reserve_slot(time(2600), None), limit.reserve_slot(time(2600), None)];
        let late = limit.reserve_slot(time(2600), Some(time(2700)));
        assert_eq!(late.unwrap_err(), Duration::from_millis(900));
    }

    #[test]
    fn what_is_not_used_is_free_again() {
        let limit = Arc::new("1/1s".parse::<RequestRateLimit>().unwrap());
        let now = Instant::now();
        limit.reserve_slot(now, None).unwrap().consume();
        let waiting: Vec<_> = (0..20).map(|_| limit.reserve_slot(now, None).unwrap()).collect();
        assert_eq!(waiting[19].time - now, Duration::from_secs(20));

        drop(waiting);

        assert_eq!(limit.reserve_slot(now, None).unwrap().time - now, Duration::from_secs(1));
    }

    #[test]
    fn a_limit_is_a_number_and_a_time() {
        for text in ["120/60s", "1/ms", "5 / 2m", "10/24h"] {
            assert!(text.parse::<RequestRateLimit>().is_ok(), "{text}");
        }
        for text in ["", "120", "0/1s", "1/0s", "-1/s", "1/25h", "1/1w", "1/s2", "1.5/s", "x/s"] {
            assert!(text.parse::<RequestRateLimit>().is_err(), "{text}");
        }
    }
}
