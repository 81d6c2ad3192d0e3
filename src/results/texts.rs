//! Texts that stand for something else: times and bytes.
//!
//! They stay texts until somebody asks for them (`ginnel/_core/record.py`), so what could not be read then
//! is refused when the answer is.

/// Whether a text is a timestamp of RFC 3339 §5.6 that `datetime` has room for; else what is wrong
/// with it. It must have an offset: a time of an unknown zone is no moment.
pub(super) fn check_time(text: &str) -> Result<(), &'static str> {
    let bytes = text.as_bytes();
    let digits = [0, 1, 2, 3, 5, 6, 8, 9, 11, 12, 14, 15, 17, 18];
    let formed = bytes.len() >= 19
        && (bytes[4], bytes[7], bytes[13], bytes[16]) == (b'-', b'-', b':', b':')
        && matches!(bytes[10], b'T' | b't' | b' ')
        && digits.iter().all(|at| bytes[*at].is_ascii_digit());
    if !formed {
        return Err("it is not of the form 2006-01-02T15:04:05Z");
    }
    let number = |at: usize| u32::from(bytes[at] - b'0') * 10 + u32::from(bytes[at + 1] - b'0');
    let date = (number(0) * 100 + number(2), number(5), number(8));
    let (hour, minute, second) = (number(11), number(14), number(17));
    check_date(date)?;
    if hour > 23 || minute > 59 || second > 60 {
        return Err("there is no such time of day");
    }
    let offset = parse_offset(after_fraction(&bytes[19..])?)?;
    let minutes = i64::from(hour * 60 + minute);
    check_range(date, (minutes, minutes - offset), second == 60)
}

fn check_date((year, month, day): (u32, u32, u32)) -> Result<(), &'static str> {
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let days = match month {
        4 | 6 | 9 | 11 => 30,
        2 => 28 + u32::from(leap),
        1..=12 => 31,
        _ => 0,
    };
    if year > 0 && (1..=days).contains(&day) { Ok(()) } else { Err("there is no such day") }
}

/// What follows the fraction of a second, if there is one.
fn after_fraction(rest: &[u8]) -> Result<&[u8], &'static str> {
    let Some(fraction) = rest.strip_prefix(b".") else { return Ok(rest) };
    match fraction.iter().take_while(|byte| byte.is_ascii_digit()).count() {
        0 => Err("its fraction of a second has no digits"),
        digits => Ok(&fraction[digits..]),
    }
}

/// Minutes to the east of UTC.
fn parse_offset(zone: &[u8]) -> Result<i64, &'static str> {
    let number = |tens: u8, ones: u8| i64::from(tens) * 10 + i64::from(ones) - 11 * 48;
    match zone {
        b"Z" | b"z" => Ok(0),
        b"" => Err("it has no offset from UTC"),
        [sign @ (b'+' | b'-'), digits @ ..] => match digits {
            [a @ b'0'..=b'2', b @ b'0'..=b'9', b':', c @ b'0'..=b'5', d @ b'0'..=b'9']
                if number(*a, *b) < 24 =>
            {
                let minutes = number(*a, *b) * 60 + number(*c, *d);
                Ok(if *sign == b'-' { -minutes } else { minutes })
            }
            _ => Err("its offset from UTC is not of the form +02:00"),
        },
        _ => Err("its offset from UTC is not of the form +02:00"),
    }
}

/// The minutes of the day here and in UTC must leave it in the years 1 to 9999, a leap second later
/// as well.
fn check_range(
    date: (u32, u32, u32),
    (here, utc): (i64, i64),
    leap_second: bool,
) -> Result<(), &'static str> {
    const DAY: i64 = 24 * 60;
    let last = here.max(utc) + i64::from(leap_second);
    match date {
        (1, 1, 1) if utc < 0 => Err("in UTC it is before the year 1"),
        (9999, 12, 31) if last >= DAY => Err("in UTC it is after the year 9999"),
        _ => Ok(()),
    }
}

/// Whether a text is standard base64 with padding (RFC 4648 §4).
pub(super) fn is_base64(text: &str) -> bool {
    let bytes = text.as_bytes();
    let padding = bytes.iter().rev().take(2).take_while(|byte| **byte == b'=').count();
    let letters = &bytes[..bytes.len() - padding];
    // No early end: so the loop goes over many bytes at once.
    let other = |found: bool, byte: &u8| {
        found | !(byte.is_ascii_alphanumeric() | (*byte == b'+') | (*byte == b'/'))
    };
    bytes.len().is_multiple_of(4) && !letters.iter().fold(false, other)
}
