//! Durations as people write them.

use std::time::Duration;

/// Units with their lengths in milliseconds, the longest first.
const UNITS: [(&str, u64); 5] =
    [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)];

/// Reads `500ms`, `10s`, `1.5m`, `6h` or `7d`; a number alone counts seconds.
pub fn read_duration(text: &str) -> Option<Duration> {
    let end = text.find(|letter: char| !letter.is_ascii_digit() && letter != '.');
    let (number, unit) = text.split_at(end.unwrap_or(text.len()));
    let unit = if unit.is_empty() { "s" } else { unit };
    let (_, milliseconds) = UNITS.into_iter().find(|(name, _)| *name == unit)?;
    if let Ok(number) = number.parse::<u64>() {
        return Some(Duration::from_millis(number.checked_mul(milliseconds)?));
    }
    let number: f64 = number.parse().ok()?;
    Duration::try_from_secs_f64(number * milliseconds as f64 / 1000.0).ok()
}

/// Writes a duration in the largest unit of which it is a whole number; what is below a millisecond is
/// left out.
pub fn write_duration(duration: Duration) -> String {
    let milliseconds = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    let fits =
        |(_, unit): &(&str, u64)| milliseconds >= *unit && milliseconds.is_multiple_of(*unit);
    match UNITS.into_iter().find(fits) {
        Some((name, unit)) => format!("{}{name}", milliseconds / unit),
        None => "0s".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_units_or_count_seconds() {
        let seconds = |text| read_duration(text).map(|it| it.as_secs_f64());

        assert_eq!(seconds("500ms"), Some(0.5));
        assert_eq!(seconds("10"), Some(10.0));
        assert_eq!(seconds("1.5m"), Some(90.0));
        assert_eq!(seconds("7d"), Some(604_800.0));
        for bad in ["", "s", "soon", "-1s", "1 s", "10S", "1h30m", "1.2.3s", "99999999999999999d"] {
            assert_eq!(seconds(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_duration_is_written_as_it_is_read() {
        for text in ["0s", "250ms", "90s", "1m", "36h", "1d"] {
            assert_eq!(read_duration(text).map(write_duration).as_deref(), Some(text));
        }
    }
}
