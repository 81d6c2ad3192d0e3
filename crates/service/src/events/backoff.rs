//! How long to wait before a delivery is tried again.

use std::time::Duration;

use ginnel_base::random_fraction;

/// The longest pause.
const MAX_PAUSE: Duration = Duration::from_secs(300);

/// The pause after so many failures, 1 for the first: it doubles, and half of it is left to chance, so that
/// many destinations are not tried at once.
pub(super) fn random_pause(first: Duration, failures: u32) -> Duration {
    let longest = longest_pause(first, failures);
    longest.mul_f64(0.5 + 0.5 * random_fraction())
}

fn longest_pause(first: Duration, failures: u32) -> Duration {
    first.saturating_mul(1 << failures.saturating_sub(1).min(16)).min(MAX_PAUSE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_to_five_minutes_and_half_of_each_is_left_to_chance() {
        let first = Duration::from_secs(1);
        let longest: Vec<_> =
            [1, 2, 3, 9, 10, 99].map(|failures| longest_pause(first, failures).as_secs()).into();

        assert_eq!(longest, [1, 2, 4, 256, 300, 300]);
        let drawn: Vec<_> = (0..50).map(|_| random_pause(first, 3)).collect();
        assert!(drawn.iter().all(|it| (2.0..=4.0).contains(&it.as_secs_f64())), "{drawn:?}");
        assert!(drawn.iter().any(|it| *it != drawn[0]));
    }
}
