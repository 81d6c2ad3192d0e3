//! A limit of how many requests a client sends in a time.

use std::collections::VecDeque;
use std::str::FromStr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The largest number of requests that a limit may have.
const MAX_REQUESTS: usize = 1_000_000;

/// So many requests in any time of this length. Requests are sent in the order in which they came.
#[derive(Debug)]
pub(super) struct RateLimit {
    requests: usize,
    window: Duration,
    /// When the last requests were or will be sent, at most as many as there may be in a window.
    slots: Mutex<VecDeque<Instant>>,
}

impl RateLimit {
    /// Takes the next free slot; gives how long it is until then, if that is not now.
    ///
    /// # Errors
    /// When it is later than `latest`; then it stays free. Gives how long it is until then.
    pub fn reserve(
        &self,
        now: Instant,
        latest: Option<Instant>,
    ) -> Result<Option<Duration>, Duration> {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        let slot = match slots.front().filter(|_| slots.len() >= self.requests) {
            Some(first) => (*first + self.window).max(now),
            None => now,
        };
        let pause = slot.saturating_duration_since(now);
        if latest.is_some_and(|latest| slot > latest) {
            return Err(pause);
        }
        if slots.len() >= self.requests {
            slots.pop_front();
        }
        slots.push_back(slot);
        Ok(Some(pause).filter(|pause| !pause.is_zero()))
    }
}

impl FromStr for RateLimit {
    type Err = &'static str;

    /// Reads `120/60s`; the time is in `ms`, `s`, `m` or `h`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const FORM: &str = "must be requests and a time, such as \"120/60s\"";
        let (requests, window) = text.split_once('/').ok_or(FORM)?;
        let requests = requests.trim().parse().map_err(|_| FORM)?;
        if !(1..=MAX_REQUESTS).contains(&requests) {
            return Err("must allow 1 to 1000000 requests");
        }
        let window = window.trim();
        let unit_at = window.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(window.len());
        let (number, unit) = window.split_at(unit_at);
        let number: u32 = if number.is_empty() { 1 } else { number.parse().map_err(|_| FORM)? };
        let unit = match unit {
            "ms" => Duration::from_millis(1),
            "s" => Duration::from_secs(1),
            "m" => Duration::from_secs(60),
            "h" => Duration::from_secs(3600),
            _ => return Err(FORM),
        };
        let window = unit.saturating_mul(number);
        if window.is_zero() || window > Duration::from_secs(86_400) {
            return Err("must have a time from 1ms to 24h");
        }
        Ok(Self { requests, window, slots: Mutex::default() })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn no_window_holds_more_requests_than_allowed() {
        let limit: RateLimit = "3/1s".parse().unwrap();
        let start = Instant::now();
        let at = |milliseconds| start + Duration::from_millis(milliseconds);
        let sent: Vec<_> = [0, 0, 0, 100, 100, 2500]
            .map(|came| at(came) + limit.reserve(at(came), None).unwrap().unwrap_or_default())
            .map(|sent| (sent - start).as_millis())
            .to_vec();

        assert_eq!(sent, [0, 0, 0, 1000, 1000, 2500]);
        let late = (0..3).map(|_| limit.reserve(at(2600), Some(at(2700)))).collect::<Vec<_>>();
        assert_eq!(late, [Ok(None), Ok(None), Err(Duration::from_millis(900))]);
    }

    #[test]
    fn a_limit_is_a_number_and_a_time() {
        for text in ["120/60s", "1/ms", "5 / 2m", "10/24h"] {
            assert!(text.parse::<RateLimit>().is_ok(), "{text}");
        }
        for text in ["", "120", "0/1s", "1/0s", "-1/s", "1/25h", "1/1w", "1/s2", "1.5/s", "x/s"] {
            assert!(text.parse::<RateLimit>().is_err(), "{text}");
        }
    }
}
