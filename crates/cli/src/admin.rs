//! Where a service or an agent is watched.

use clap::{Arg, ArgMatches};

use ginnel_base::address::HostPort;

/// `--admin-addr`.
pub(super) fn admin_addr_argument() -> Arg {
    Arg::new("admin-addr")
        .long("admin-addr")
        .value_name("HOST:PORT")
        .value_parser(HostPort::parse_to_listen)
        .help("Address of /healthz, /readyz and /metrics, such as 127.0.0.1:4090")
}

/// The address that was given.
pub(super) fn read_admin_addr(matches: &ArgMatches) -> Option<HostPort> {
    matches.get_one("admin-addr").cloned()
}
