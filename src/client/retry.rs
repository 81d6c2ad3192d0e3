//! When to try again, and after how long.

use std::time::{Duration, SystemTime};

use chrono::{DateTime, Datelike, NaiveDateTime, Utc};

use super::{Api, Cause};
use crate::api::Verb;

/// The first pause; each further one may be twice as long.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
/// The longest pause of our own choosing.
const MAX_PAUSE: Duration = Duration::from_secs(8);
/// The longest pause that a server may ask for; what asks for more is not retried.
const MAX_SERVER_PAUSE: Duration = Duration::from_secs(60);

/// The longest `Retry-After` that is told apart from others.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(u32::MAX as u64);

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
pub(super) fn pause(next: u32, asked: Option<Duration>) -> Option<Duration> {
    if let Some(asked) = asked {
        return Some(asked).filter(|asked| *asked <= MAX_SERVER_PAUSE);
    }
    let ceiling = FIRST_PAUSE.saturating_mul(1 << next.saturating_sub(2).min(8)).min(MAX_PAUSE);
    let mut random = [0; 4];
    // Without randomness the whole pause is as good.
    let fraction = match getrandom::fill(&mut random) {
        Ok(()) => f64::from(u32::from_le_bytes(random)) / f64::from(u32::MAX),
        Err(_) => 1.0,
    };
    Some(ceiling.mul_f64(fraction))
}

/// The `Retry-After` of an answer: seconds, or a date (RFC 9110, section 10.2.3). What is longer than
/// [`MAX_RETRY_AFTER`] counts as that; what is neither is none.
pub(super) fn retry_after(value: Option<&[u8]>) -> Option<Duration> {
    let text = std::str::from_utf8(value?).ok()?.trim();
    let asked = match text.bytes().all(|byte| byte.is_ascii_digit()) && !text.is_empty() {
        // More digits than a number holds are still a number.
        true => Duration::from_secs(text.parse().unwrap_or(u64::MAX)),
        false => until(http_date(text, Utc::now())?),
    };
    Some(asked.min(MAX_RETRY_AFTER))
}

fn until(date: DateTime<Utc>) -> Duration {
    SystemTime::from(date).duration_since(SystemTime::now()).unwrap_or_default()
}

/// A date in one of the three forms of HTTP (RFC 9110, section 5.6.7).
fn http_date(text: &str, now: DateTime<Utc>) -> Option<DateTime<Utc>> {
    if let Ok(date) = DateTime::parse_from_rfc2822(text) {
        return Some(date.to_utc());
    }
    if let Ok(date) = NaiveDateTime::parse_from_str(text, "%a %b %e %H:%M:%S %Y") {
        return Some(date.and_utc());
    }
    rfc850_date(text, now)
}

/// A date such as `Sunday, 06-Nov-94 08:49:37 GMT`, in the century that puts it less than 50 years
/// into the future.
fn rfc850_date(text: &str, now: DateTime<Utc>) -> Option<DateTime<Utc>> {
    // The name of the day says nothing that the date does not, and depends on the century.
    let (_, date) = text.split_once(", ")?;
    let (day, rest) = date.split_at_checked("06-Nov-".len())?;
    let (year, time) = rest.split_at_checked(2)?;
    let year =
        year.bytes().all(|byte| byte.is_ascii_digit()).then(|| year.parse::<i32>().ok())??;
    let century = now.year() - now.year().rem_euclid(100);
    let year = match century + year {
        year if year >= now.year() + 50 => year - 100,
        year if year < now.year() - 50 => year + 100,
        year => year,
    };
    let parsed =
        NaiveDateTime::parse_from_str(&format!("{day}{year}{time}"), "%d-%b-%Y %H:%M:%S GMT");
    parsed.ok().map(|date| date.and_utc())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn read(text: &str) -> Option<Duration> {
        retry_after(Some(text.as_bytes()))
    }

    #[test]
    fn pauses_grow_to_a_limit() {
        for _ in 0..100 {
            assert!(pause(2, None).is_some_and(|pause| pause <= FIRST_PAUSE));
            assert!(pause(40, None).is_some_and(|pause| pause <= MAX_PAUSE));
        }
        assert_eq!(pause(2, Some(Duration::from_secs(60))), Some(Duration::from_secs(60)));
        assert_eq!(pause(2, Some(Duration::from_secs(61))), None);
    }

    #[test]
    fn retry_after_is_seconds_or_a_date() {
        for (text, seconds) in [("7", 7), (" 0 ", 0), ("007", 7), ("4294967295", u32::MAX)] {
            assert_eq!(read(text), Some(Duration::from_secs(seconds.into())), "{text}");
        }
        for long in ["4294967296", "18446744073709551616", &"9".repeat(400)] {
            assert_eq!(read(long), Some(MAX_RETRY_AFTER), "{long}");
        }
        for text in [
            "Wed, 21 Oct 2015 07:28:00 GMT",
            "Sunday, 06-Nov-94 08:49:37 GMT",
            "Sun Nov  6 08:49:37 1994",
        ] {
            assert_eq!(read(text), Some(Duration::ZERO), "{text}");
        }
        for far in ["Fri, 31 Dec 9999 23:59:59 GMT", "Fri Dec 31 23:59:59 9999"] {
            assert_eq!(read(far), Some(MAX_RETRY_AFTER), "{far}");
        }
        for text in [
            "soon",
            "",
            "-1",
            "+1",
            "1.5",
            "1s",
            "0x10",
            "1 2",
            "١",
            "Wed",
            "Wed, ",
            "Sunday, 06-Nov-é4 08:49:37 GMT",
            "Sunday, 06-Nov-94",
            "Sunday, 66-Nov-94 08:49:37 GMT",
            "Sun Nov 66 08:49:37 1994",
            "Wed, 21 Oct 2015 25:28:00 GMT",
        ] {
            assert_eq!(read(text), None, "{text}");
        }
    }

    #[test]
    fn a_date_in_the_future_is_a_pause() {
        let later = Utc::now() + Duration::from_secs(3600);
        for format in
            ["%a, %d %b %Y %H:%M:%S GMT", "%A, %d-%b-%y %H:%M:%S GMT", "%a %b %e %H:%M:%S %Y"]
        {
            let pause = read(&later.format(format).to_string()).unwrap().as_secs();
            assert!((3400..=3600).contains(&pause), "{format}: {pause}");
        }
    }

    #[test]
    fn two_digits_of_a_year_mean_the_nearest_one() {
        let now = "2026-06-01T00:00:00Z".parse().unwrap();
        for (digits, year) in [("94", 1994), ("26", 2026), ("75", 2075), ("76", 1976), ("00", 2000)]
        {
            let date = http_date(&format!("Sunday, 06-Nov-{digits} 08:49:37 GMT"), now).unwrap();
            assert_eq!(date.year(), year, "{digits}");
        }
        let now = "2090-06-01T00:00:00Z".parse().unwrap();
        let date = http_date("Sunday, 06-Nov-10 08:49:37 GMT", now).unwrap();
        assert_eq!(date.year(), 2110);
    }
}
