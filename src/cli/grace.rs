//! `--grace`: how long what is in flight may take at the end.

use std::time::Duration;

use clap::{Arg, ArgMatches};

use super::number::whole_number;

/// The option.
pub(super) fn argument() -> Arg {
    Arg::new("grace")
        .long("grace")
        .value_name("SECONDS")
        .help(
            "How long to wait for requests in flight when stopping; a second signal stops at once",
        )
        .value_parser(whole_number::<u64>(0..=3600))
        .default_value("30")
}

/// The time that was given, or the default.
pub(super) fn read(matches: &ArgMatches) -> Duration {
    Duration::from_secs(matches.get_one("grace").copied().unwrap_or_default())
}
