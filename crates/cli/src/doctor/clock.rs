//! The pause after a leap of a service's clock.

use super::finding::Finding;

const REMEDY: &str = "set the clock by NTP; if it is right, run `ginnel api clock confirm`, or start the service once \
    with --trust-clock";

/// Returns a warning if the deletion of old data pauses for some seconds.
pub(super) fn pause_warning(service: &str, seconds: u64) -> Option<Finding> {
    let minutes = seconds.div_ceil(60);
    let message = format!(
        "the clock of {service} has leapt, and nothing is deleted for its age for {minutes} more minutes of running \
         time"
    );
    (minutes > 0).then(|| Finding::warning("clock", message).with_remedy(REMEDY))
}
