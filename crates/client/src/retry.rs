//! When to try again, and after how long.

use std::time::Duration;

use ginnel_api::Verb;

use super::{Api, Cause};

/// The first pause; each further one may be twice as long.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
/// The longest pause of our own choosing.
const MAX_PAUSE: Duration = Duration::from_secs(8);
/// The longest pause that a server may ask for; what asks for more is not retried.
const MAX_SERVER_PAUSE: Duration = Duration::from_secs(60);

/// True where a call may be repeated at all. A `POST` to an agent never is: a captured request must
/// not be replayed twice.
pub(super) fn may_repeat(api: Api, method: Verb) -> bool {
    !(api == Api::Agent && method == Verb::POST)
}

/// True for an answer that another attempt may better. A `POST` is repeated only where the server
/// says that it did not act.
pub(super) fn may_repeat_status(method: Verb, status: u16) -> bool {
    match status {
        429 => true,
        408 | 500 | 502 | 503 | 504 => method != Verb::POST,
        _ => false,
    }
}

/// True for a failure that another attempt may better. A `POST` is repeated only when it was
/// provably not sent.
pub(super) fn may_repeat_failure(method: Verb, cause: &Cause) -> bool {
    match cause {
        // An agent does not start because somebody asks again.
        Cause::Deadline(_) | Cause::RateLimit { .. } | Cause::Body(_) | Cause::NotRunning(_) => {
            false
        }
        Cause::Proxy(error) => error.is_transient(),
        cause if cause.is_refused_by_tls() => false,
        cause => cause.is_unsent() || method != Verb::POST,
    }
}

/// How long to wait before attempt `next` (the second attempt is 2), with full jitter so that
/// clients that failed together do not return together. `None` when the server asks for too much.
pub(super) fn backoff_pause(next: u32, asked: Option<Duration>) -> Option<Duration> {
    if let Some(asked) = asked {
        return Some(asked).filter(|asked| *asked <= MAX_SERVER_PAUSE);
    }
    let ceiling = FIRST_PAUSE.saturating_mul(1 << next.saturating_sub(2).min(8)).min(MAX_PAUSE);
    Some(ceiling.mul_f64(ginnel_base::random_fraction()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_a_limit() {
        for _ in 0..100 {
            assert!(backoff_pause(2, None).is_some_and(|pause| pause <= FIRST_PAUSE));
            assert!(backoff_pause(40, None).is_some_and(|pause| pause <= MAX_PAUSE));
        }
        assert_eq!(backoff_pause(2, Some(Duration::from_secs(60))), Some(Duration::from_secs(60)));
        assert_eq!(backoff_pause(2, Some(Duration::from_secs(61))), None);
    }
}
