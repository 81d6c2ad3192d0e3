//! `Retry-After`: when whoever has answered wants to hear from somebody again.

use std::time::{Duration, SystemTime};

use chrono::{DateTime, Datelike, NaiveDateTime, Utc};

/// The longest `Retry-After` that is distinguished from others.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(u32::MAX as u64);

/// The `Retry-After` of an answer: seconds, or a date (RFC 9110, section 10.2.3). Longer times
/// are capped at `MAX_RETRY_AFTER`. Returns `None` if the value has neither form.
pub fn retry_after(value: Option<&[u8]>) -> Option<Duration> {
    let text = std::str::from_utf8(value?).ok()?.trim();
    let asked = match text.bytes().all(|byte| byte.is_ascii_digit()) && !text.is_empty() {
        // More digits than a number holds are still a number.
        true => Duration::from_secs(text.parse().unwrap_or(u64::MAX)),
        false => duration_until(http_date(text, Utc::now())?),
    };
    Some(asked.min(MAX_RETRY_AFTER))
}

fn duration_until(date: DateTime<Utc>) -> Duration {
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
/// into the future, as RFC 9110 asks. `httpdate` takes 70 to 99 for the last century in any year.
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
