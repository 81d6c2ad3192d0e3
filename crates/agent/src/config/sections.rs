//! Every setting of an agent, one row each.

use std::path::PathBuf;
use std::time::Duration;

use ginnel_api::Secret;
use ginnel_base::address::HostPort;
use ginnel_settings::{ByteSize, SettingSection, setting};

use super::{AgentConfig, ConfigVersion, ConsoleChoice, NgrokLogFormat, NgrokLogLevel, Unused};
use crate::capture::CaptureLimit;
use crate::options::WebAddress;

/// A row: the field with its type, the key, what stands for the value, and what it means.
macro_rules! row {
    ($($declaration:tt)+) => { setting!(AgentConfig, $($declaration)+) };
}

/// A key of other agents' files that changes nothing here.
macro_rules! unused {
    ($key:literal) => { row!(unused: Unused, $key, "VALUE", "Read, and without effect").only_in_files() };
}

/// The settings, in the order of the reference.
pub const SECTIONS: &[SettingSection<AgentConfig>] =
    &[FILE, SERVICE, SESSION, INSPECTION, NGROK_LOG, WITHOUT_EFFECT];

/// The shortest and the longest time, in milliseconds.
const MIN_TIME: u64 = 1;
const MAX_TIME: u64 = 24 * 3_600_000;

/// The least and the most that a file of captured requests keeps, in bytes and in milliseconds.
const MIN_BODY_LIMIT: u64 = 0;
const MAX_BODY_LIMIT: u64 = 1 << 30;
const MIN_FILE_BYTES: u64 = 1 << 20;
const MAX_FILE_BYTES: u64 = 16 << 30;
const MIN_FILE_AGE: u64 = 60_000;
const MAX_FILE_AGE: u64 = 366 * 24 * 3_600_000;

const FILE: SettingSection<AgentConfig> = SettingSection {
    title: "File",
    groups: &[&[
        row!(version: ConfigVersion, "version", "2", "The version of the file, 2 or 3; required")
            .only_in_files(),
    ]],
};

const SERVICE: SettingSection<AgentConfig> = SettingSection {
    title: "Service",
    groups: &[&[
        row!(
            server_addr: Vec<HostPort>, "server_addr", "HOST:PORT",
            "The address where the service accepts agents; several for the nodes of a cluster"
        )
        .listed_in_help()
        .with_alias("connect_url"),
        row!(
            authtoken: Option<Secret>, "authtoken", "TOKEN",
            "The token that identifies the agent to the service"
        ),
        row!(
            authtoken_file: Option<PathBuf>, "authtoken_file", "FILE",
            "A file that holds the authtoken"
        )
        .listed_in_help(),
        row!(
            root_cas: Option<String>, "root_cas", "FILE",
            "A PEM file of certificates to trust; `trusted` and `host` stand for the system's"
        )
        .listed_in_help()
        .named_flag("ca")
        .with_alias("connect_cas")
        .when_unset("the system's"),
        row!(
            options.proxy_url: Option<Secret>, "proxy_url", "URL",
            "Proxy on the way to the service: http, https, socks5 or socks5h://[user:password@]host[:port]"
        )
        .without_flag()
        .when_unset("that of `https_proxy` or `all_proxy`, unless `no_proxy` exempts the service"),
        row!(
            api_key: Option<Secret>, "api_key", "KEY",
            "Read and not used: commands take keys from `GINNEL_API_KEY` or a file"
        )
        .only_in_files(),
    ]],
};

const SESSION: SettingSection<AgentConfig> = SettingSection {
    title: "Session",
    groups: &[&[
        row!(
            metadata: Option<String>, "metadata", "TEXT",
            "Free text that the management API shows with the session"
        )
        .without_flag(),
        row!(
            options.connect_timeout: Duration, "connect_timeout", "DURATION",
            "Maximum time to connect to the service"
        )
        .with_bounds(MIN_TIME, MAX_TIME)
        .without_flag(),
        row!(
            options.heartbeat_interval: Duration, "heartbeat_interval", "DURATION",
            "The time between two heartbeats"
        )
        .with_bounds(MIN_TIME, MAX_TIME)
        .without_flag(),
        row!(
            options.heartbeat_tolerance: Duration, "heartbeat_tolerance", "DURATION",
            "Maximum delay of a heartbeat's response before the session counts as lost"
        )
        .with_bounds(MIN_TIME, MAX_TIME)
        .without_flag(),
        row!(
            options.remote_management: bool, "remote_management", "BOOL",
            "Let the management API stop and restart the agent"
        )
        .without_flag(),
    ]],
};

const INSPECTION: SettingSection<AgentConfig> = SettingSection {
    title: "Inspection",
    groups: &[&[
        row!(
            options.web_addr: WebAddress, "web_addr", "HOST:PORT",
            "Address that the agent API listens on: host:port, a port on this machine, or false for none"
        )
        .listed_in_help()
        .when_unset("127.0.0.1, at the first free port from 4040 to 4049"),
        row!(
            options.web_allow_hosts: Vec<String>, "web_allow_hosts", "HOST",
            "Host names, besides this machine's, that the agent API answers to"
        )
        .without_flag(),
        row!(
            options.replay_allow_hosts: Vec<String>, "replay_allow_hosts", "HOST",
            "Hosts, besides this machine and the tunnels' own, that captured requests may be sent to"
        )
        .without_flag(),
        row!(
            options.unix_socket_roots: Vec<PathBuf>, "unix_socket_roots", "DIR",
            "Folders below which callers of the agent API may forward to Unix sockets"
        )
        .without_flag()
        .when_unset("none"),
        row!(
            options.inspect: CaptureLimit, "inspect_db_size", "BYTES",
            "Maximum size of the captured requests; 0 for the default, -1 for none"
        )
        .without_flag(),
        row!(
            options.inspect_body_limit: Option<ByteSize>, "inspect_body_limit", "BYTES",
            "Maximum length of a body that is captured whole; of longer ones, the beginning is kept"
        )
        .with_bounds(MIN_BODY_LIMIT, MAX_BODY_LIMIT)
        .without_flag()
        .when_unset("10MiB, or a fifth of inspect_db_size if that is more"),
        row!(
            options.inspect_file: Option<PathBuf>, "inspect_file", "FILE",
            "File that keeps captured requests across restarts"
        )
        .listed_in_help(),
        row!(
            options.inspect_file_size: ByteSize, "inspect_file_size", "BYTES",
            "Maximum size of the file; the oldest requests are removed first"
        )
        .with_bounds(MIN_FILE_BYTES, MAX_FILE_BYTES)
        .without_flag(),
        row!(
            options.inspect_file_age: Duration, "inspect_file_age", "DURATION",
            "Time for which the file keeps requests that are not pinned"
        )
        .with_bounds(MIN_FILE_AGE, MAX_FILE_AGE)
        .without_flag(),
        row!(
            console: ConsoleChoice, "console_ui", "WHEN",
            "Use of the full-screen view; iftty shows it if there is a terminal"
        )
        .without_flag(),
    ]],
};

/// The log of a program called `ngrok`.
pub const NGROK_LOG: SettingSection<AgentConfig> = SettingSection {
    title: "Log of a program called ngrok",
    groups: &[&[
        row!(
            log.output: Option<String>, "log", "FILE",
            "Destination of the log of a launcher of `ginnel compat ngrok`: stdout, stderr, false or a file"
        )
        .only_in_files(),
        row!(log.format: NgrokLogFormat, "log_format", "FORMAT", "Format of that log").only_in_files(),
        row!(log.level: NgrokLogLevel, "log_level", "LEVEL", "Lowest level in that log").only_in_files(),
    ]],
};

/// What files for other agents may say.
pub const WITHOUT_EFFECT: SettingSection<AgentConfig> = SettingSection {
    title: "Without effect",
    groups: &[&[
        unused!("console_ui_color"),
        unused!("dns_resolver_ips"),
        unused!("connect_interface"),
        unused!("crl_noverify"),
        unused!("region"),
        unused!("update_channel"),
        unused!("update_check"),
    ]],
};
