//! `--grace`: how long what is in flight may take at the end.

use std::time::Duration;

use clap::{Arg, ArgMatches};

use ginnel_settings::{Bounds, SettingValue};

/// The longest time, in milliseconds.
const MAX: u64 = 3_600_000;

/// The option.
pub(super) fn grace_argument() -> Arg {
    Arg::new("grace")
        .long("grace")
        .value_name("DURATION")
        .help(
            "Maximum time to wait for requests in flight when stopping; a second signal stops at once",
        )
        .value_parser(|text: &str| {
            let mut grace = Duration::ZERO;
            grace.read(text.as_ref(), Bounds { min: 0, max: MAX }).map(|()| grace)
        })
        .default_value("30s")
}

/// The time that was given, or the default.
pub(super) fn read_grace(matches: &ArgMatches) -> Duration {
    matches.get_one("grace").copied().unwrap_or_default()
}
