//! Every setting of `ginnel serve`, one row each.

use std::num::NonZeroU16;
use std::path::PathBuf;
use std::time::Duration;

use super::ServeConfig;
use super::limits::{AGENT_LIMITS, API_LIMITS, CONNECTION_LIMITS, EDGE_LIMITS};
use crate::api::Secret;
use crate::gateway::TrustedProxies;
use crate::logging::{LogFormat, LogLevels};
use crate::policy::path::AmbiguousPaths;
use crate::service::AcmeChallenge;
use crate::service::store::PostgresOptions;
use crate::settings::SettingSection;

type FilePath = Option<PathBuf>;
type Port = Option<u16>;
type PublicPort = Option<NonZeroU16>;
type OptionalRate = Option<(u32, Duration)>;
type OptionalStore = Option<PostgresOptions>;
type OptionalText = Option<String>;

/// A row: the field with its type, the key, what stands for the value, and what it means.
macro_rules! row {
    ($($declaration:tt)+) => { $crate::settings::setting!(ServeConfig, $($declaration)+) };
}

pub(super) use row;

/// The settings, in the order of the help.
pub const SECTIONS: &[SettingSection<ServeConfig>] = &[
    STORAGE,
    MANAGEMENT_API,
    PUBLIC_TRAFFIC,
    ACME,
    AGENTS,
    CONNECTION_LIMITS,
    API_LIMITS,
    EDGE_LIMITS,
    AGENT_LIMITS,
    MONITORING,
    PROCESS,
];

const STORAGE: SettingSection<ServeConfig> = SettingSection {
    title: "Storage",
    settings: &[
        row!(
            options.path: FilePath, "path", "FILE",
            "The SQLite database; without it, all data is lost when the process ends"
        ),
        row!(
            options.store: OptionalStore, "store", "URL",
            "The database on PostgreSQL, postgres://USER@HOST/NAME, for several nodes; without a password"
        ),
        row!(
            options.node_name: OptionalText, "node_name", "NAME",
            "The name of this node, if several share a database on PostgreSQL"
        )
        .unset("the name of the machine"),
        row!(
            options.peer_addr: OptionalText, "peer_addr", "HOST:PORT",
            "Where other nodes reach this one"
        ),
        row!(
            options.peer_listen_addr: OptionalText, "peer_listen_addr", "HOST:PORT",
            "The address to listen on for other nodes, if they reach this one at another"
        )
        .unset("that of peer_addr"),
        row!(
            options.audit_retention: Duration, "audit_retention", "DURATION",
            "How long events of the audit trail are kept"
        )
        .between(1000, u32::MAX as u64 * 1000)
        .live(),
        row!(
            options.backup.to: FilePath, "backup.to", "DIR",
            "A folder to back the database up to from time to time"
        )
        .unset("no backups"),
        row!(
            options.backup.every: Duration, "backup.every", "DURATION",
            "The time between two backups"
        )
        .between(1000, u32::MAX as u64 * 1000),
        row!(
            options.backup.keep: usize, "backup.keep", "N",
            "How many backups to keep; older ones are removed when a new one is verified"
        )
        .between(1, u32::MAX as u64),
        row!(
            options.force_open: bool, "force_open", "BOOL",
            "Open a database that was not closed and has lost its log, without its last changes"
        ),
    ],
};

const MANAGEMENT_API: SettingSection<ServeConfig> = SettingSection {
    title: "Management API",
    settings: &[
        row!(options.host: String, "host", "HOST", "The name or address to listen on"),
        row!(options.port: u16, "port", "PORT", "The port to listen on; 0 picks a free port"),
        row!(
            options.admin_key: Option<Secret>, "admin_key", "KEY",
            "The admin key of a new database, or one that an existing database holds"
        )
        .variable("GINNEL_API_KEY"),
        row!(admin_key_file: FilePath, "admin_key_file", "FILE", "A file that holds the admin key"),
        row!(
            options.public_url: OptionalText, "public_url", "URL",
            "The URL to put into responses, if clients reach the API at another one"
        ),
        row!(
            options.rate_limit: OptionalRate, "rate_limit", "N/60s",
            "Allow this many requests per account in a rolling window of seconds"
        )
        .live(),
        row!(
            options.code_prefix: String, "code_prefix", "TEXT",
            "The prefix of error codes, before their numbers"
        ),
    ],
};

const PUBLIC_TRAFFIC: SettingSection<ServeConfig> = SettingSection {
    title: "Public traffic",
    settings: &[
        row!(
            options.edge_host: String, "edge_host", "HOST",
            "The host name or address for public traffic"
        ),
        row!(
            options.http_port: Port, "http_port", "PORT",
            "The port for public HTTP; 0 picks a free port, none disables it"
        ),
        row!(
            options.https_port: Port, "https_port", "PORT",
            "The port for public HTTPS; 0 picks a free port, none disables it"
        ),
        row!(
            options.public_http_port: PublicPort, "public_http_port", "N",
            "The port for HTTP in addresses that visitors get, if a load balancer listens at another one"
        )
        .unset("`http_port`"),
        row!(
            options.public_https_port: PublicPort, "public_https_port", "N",
            "The port for HTTPS in addresses that visitors get, if a load balancer listens at another one"
        )
        .unset("`https_port`"),
        row!(
            options.base_domain: OptionalText, "base_domain", "DOMAIN",
            "The domain below which tunnels get host names; without it, each gets a port"
        ),
        row!(
            options.reserved_domains_only: bool, "reserved_domains_only", "BOOL",
            "Let edges and tunnels use only domains that their owner has reserved"
        ),
        row!(
            certificate: FilePath, "certificate", "FILE",
            "A PEM file with a certificate for the host names in it; read again at a reload"
        )
        .live(),
        row!(
            certificate_key: FilePath, "certificate_key", "FILE",
            "A PEM file with the private key of the certificate"
        )
        .live(),
        row!(
            options.trusted_proxies: TrustedProxies, "trusted_proxies", "CIDR",
            "Proxies whose X-Forwarded-For header is trusted: addresses or CIDRs"
        )
        .live(),
        row!(
            options.proxy_protocol: bool, "proxy_protocol", "BOOL",
            "Trusted proxies begin connections of visitors and agents with the PROXY protocol, version 2"
        ),
        row!(
            options.ambiguous_paths: AmbiguousPaths, "ambiguous_paths", "WHAT",
            "What to do with ambiguous paths, if a route or a rule looks at paths"
        )
        .live(),
        row!(
            options.tls_endpoints: bool, "tls_endpoints", "BOOL",
            "Speak TLS on the ports of tunnels that ask for HTTPS"
        ),
    ],
};

const ACME: SettingSection<ServeConfig> = SettingSection {
    title: "Certificates by ACME",
    settings: &[
        row!(
            options.acme.directory: OptionalText, "acme.directory", "DIRECTORY",
            "Obtain certificates for host names here: letsencrypt, letsencrypt-staging or a URL"
        ),
        row!(
            options.acme.agree_to_terms: bool, "acme.agree_to_terms", "BOOL",
            "Agree to the terms of service of the certificate authority"
        ),
        row!(
            options.acme.email: OptionalText, "acme.email", "ADDRESS",
            "Where the certificate authority may write to"
        ),
        row!(
            options.acme.ca: FilePath, "acme.ca", "FILE",
            "A PEM file with the certificates to trust at the directory"
        )
        .unset("what the system trusts"),
        row!(
            options.acme.challenges: Vec<AcmeChallenge>, "acme.challenges", "TYPE",
            "How host names are verified, the best first"
        ),
        row!(
            options.acme.retry_after: Duration, "acme.retry_after", "DURATION",
            "How long after a failure a host name is tried again; doubles up to a day"
        )
        .between(1000, 86_400_000),
    ],
};

const AGENTS: SettingSection<ServeConfig> = SettingSection {
    title: "Agents",
    settings: &[
        row!(
            agent_host: OptionalText, "agent_host", "HOST",
            "The name or address to listen on for agents; 0.0.0.0 for all of this machine's"
        )
        .unset("that of `host`"),
        row!(
            options.agent_port: Port, "agent_port", "PORT",
            "The port for agents; 0 picks a free port, none takes no agents"
        ),
        row!(
            options.authtoken: Option<Secret>, "authtoken", "TOKEN",
            "The authtoken for agents of a new database, or one that an existing database holds"
        ),
        row!(
            authtoken_file: FilePath, "authtoken_file", "FILE",
            "A file that holds the authtoken for agents"
        ),
    ],
};

const MONITORING: SettingSection<ServeConfig> = SettingSection {
    title: "Monitoring",
    settings: &[
        row!(
            options.admin_addr: OptionalText, "admin_addr", "HOST:PORT",
            "Where /healthz, /readyz and /metrics are, such as 127.0.0.1:4090"
        )
        .unset("nowhere, and nothing is counted"),
        row!(
            log_level: Option<LogLevels>, "log_level", "LEVELS",
            "What to log: error, warn, info, debug, trace or off, also by target: info,gateway=debug"
        )
        .of_command()
        .live()
        .unset("what GINNEL_LOG says, or info if a format or a file is set"),
        row!(log_format: Option<LogFormat>, "log_format", "FORMAT", "How to write the log")
            .of_command()
            .unset("term"),
        row!(
            log_file: FilePath, "log_file", "FILE",
            "The file to add the log to, which is opened again on SIGHUP"
        )
        .of_command()
        .unset("standard error"),
        row!(
            access_log: FilePath, "access_log", "FILE",
            "The file to add a line to for each request of a visitor, or - for standard output"
        )
        .of_command()
        .unset("no such log; with it, requests get an X-Request-Id"),
        row!(
            options.drain_delay: Duration, "drain_delay", "DURATION",
            "How long /readyz says no before listeners close when stopping"
        )
        .between(0, 3_600_000)
        .live(),
    ],
};

const PROCESS: SettingSection<ServeConfig> = SettingSection {
    title: "Process",
    settings: &[
        row!(
            grace: Duration, "grace", "DURATION",
            "How long to wait for requests in flight when stopping; a second signal stops at once"
        )
        .of_command()
        .between(0, 3_600_000)
        .live(),
        row!(json: bool, "json", "BOOL", "Print the addresses as one JSON object").of_command(),
        row!(
            events: bool, "events", "BOOL",
            "Print one line of JSON for each request or connection of public traffic"
        )
        .of_command(),
    ],
};
