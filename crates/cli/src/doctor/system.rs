//! What the operating system gives.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use chrono::{DateTime, SecondsFormat, Utc};

use ginnel_net::descriptors::DescriptorLimit;

use super::finding::Finding;

/// With fewer open files than this, visitors are turned away early.
const MIN_DESCRIPTORS: usize = 4096;
/// No clock that is right shows a time before this: 2026-01-01.
const EARLIEST: Duration = Duration::from_secs(1_767_225_600);

/// How many files and connections a process may have open.
pub(super) fn examine_descriptors() -> Finding {
    let DescriptorLimit(limit) = DescriptorLimit::raise_to_maximum();
    let message = format!("a process may have {limit} files and connections open");
    if limit >= MIN_DESCRIPTORS {
        return Finding::ok("descriptors", message);
    }
    Finding::warning("descriptors", message)
        .with_remedy("raise the limit: ulimit -n 65536, or LimitNOFILE=65536 of systemd")
}

/// What time it is.
pub(super) fn examine_clock() -> Finding {
    let now = SystemTime::now();
    let shown = DateTime::<Utc>::from(now).to_rfc3339_opts(SecondsFormat::Secs, true);
    let message = format!("it is {shown}");
    if now.duration_since(UNIX_EPOCH).unwrap_or_default() >= EARLIEST {
        return Finding::ok("clock", message);
    }
    Finding::problem("clock", format!("{message}, which is in the past"))
        .with_remedy("set the clock, for example with timedatectl set-ntp true")
}
