//! Every setting of `ginnel serve`, one row each.

use std::num::NonZeroU16;
use std::path::PathBuf;
use std::time::Duration;

use ginnel_api::Secret;
use ginnel_base::address::HostPort;
use ginnel_base::logging::{LogFormat, LogLevels};
use ginnel_gateway::TrustedProxies;
use ginnel_http1::{MAX_HEAD_BYTES, MAX_HEAD_FIELDS};
use ginnel_policy::path::AmbiguousPaths;
use ginnel_settings::{ByteSize, SettingSection, setting};
use ginnel_store::PostgresOptions;

use super::ServeConfig;
use crate::AcmeChallenge;

type FilePath = Option<PathBuf>;
type Port = Option<u16>;
type PublicPort = Option<NonZeroU16>;
type OptionalRate = Option<(u32, Duration)>;
type OptionalStore = Option<PostgresOptions>;
type OptionalText = Option<String>;
type OptionalAddress = Option<HostPort>;

/// A row: the field with its type, the key, what stands for the value, and what it means.
macro_rules! row {
    ($($declaration:tt)+) => { setting!(ServeConfig, $($declaration)+) };
}

/// The settings, in the order of the help.
pub const SECTIONS: &[SettingSection<ServeConfig>] = &[
    STORAGE,
    MANAGEMENT_API,
    PUBLIC_TRAFFIC,
    ACME,
    OAUTH,
    EVENTS,
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
        ).usual(),
        row!(
            options.store: OptionalStore, "store", "URL",
            "The database on PostgreSQL, postgres://USER@HOST/NAME, for several nodes; without a password"
        ).usual(),
        row!(
            options.node_name: OptionalText, "node_name", "NAME",
            "The name of this node, if several share a database on PostgreSQL"
        )
        .unset("the name of the machine"),
        row!(
            options.peer_addr: OptionalAddress, "peer_addr", "HOST:PORT",
            "The address at which other nodes reach this one"
        ),
        row!(
            options.peer_listen_addr: OptionalAddress, "peer_listen_addr", "HOST:PORT",
            "The address to listen on for other nodes, if they reach this one at another"
        )
        .unset("that of peer_addr"),
        row!(
            options.audit_retention: Duration, "audit_retention", "DURATION",
            "Time for which events of the audit trail are kept"
        )
        .between(1000, u32::MAX as u64 * 1000)
        .live(),
        row!(
            options.trust_clock: bool, "trust_clock", "BOOL",
            "Trust the clock at the start, even after a leap, and delete data by its age"
        ),
        row!(
            options.backup.to: FilePath, "backup.to", "DIR",
            "A folder to back the database up to from time to time"
        ).usual()
        .unset("no backups"),
        row!(
            options.backup.every: Duration, "backup.every", "DURATION",
            "The time between two backups"
        )
        .between(1000, u32::MAX as u64 * 1000),
        row!(
            options.backup.keep: usize, "backup.keep", "N",
            "Number of backups to keep; older ones are removed when a new one is verified"
        )
        .between(1, u32::MAX as u64),
        row!(
            options.vault_key: Option<Secret>, "vault_key", "KEY",
            "The key that secrets in vaults are encrypted with: 32 bytes in base64"
        ),
        row!(
            options.vault_key_file: FilePath, "vault_key_file", "FILE",
            "A file that holds that key; nodes on PostgreSQL need the same one"
        )
        .unset("<path>-vault.key, made with the first secret"),
        row!(
            options.replace_vault_key: bool, "replace_vault_key", "BOOL",
            "Start although that key is lost: secrets cannot be read until they get new values, with a new key"
        ),
        row!(
            options.force_open: bool, "force_open", "BOOL",
            "Open a database that was not closed and has lost its log, without its last changes"
        ),
    ],
};

const MANAGEMENT_API: SettingSection<ServeConfig> = SettingSection {
    title: "Management API",
    settings: &[
        row!(options.host: String, "host", "HOST", "The name or address of the listener").usual(),
        row!(options.port: u16, "port", "PORT", "The port of the listener; 0 picks a free port")
            .usual(),
        row!(
            options.admin_key: Option<Secret>, "admin_key", "KEY",
            "The admin key of a new database, or one that an existing database holds"
        )
        .variable("GINNEL_API_KEY"),
        row!(admin_key_file: FilePath, "admin_key_file", "FILE", "A file that holds the admin key")
            .usual(),
        row!(
            options.public_url: OptionalText, "public_url", "URL",
            "The URL to put into responses, if clients reach the API at another one"
        ),
        row!(
            options.console: bool, "console", "BOOL",
            "Serve a console for people at /console of the management address"
        )
        .usual(),
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
        ).usual(),
        row!(
            options.http_port: Port, "http_port", "PORT",
            "The port for public HTTP; 0 picks a free port, none disables it"
        ).usual(),
        row!(
            options.https_port: Port, "https_port", "PORT",
            "The port for public HTTPS; 0 picks a free port, none disables it"
        ).usual(),
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
        ).usual(),
        row!(
            options.reserved_domains_only: bool, "reserved_domains_only", "BOOL",
            "Let edges and tunnels use only domains that their owner has reserved"
        ),
        row!(
            certificate: FilePath, "certificate", "FILE",
            "A PEM file with a certificate for the host names in it; read again at a reload"
        ).usual()
        .live(),
        row!(
            certificate_key: FilePath, "certificate_key", "FILE",
            "A PEM file with the private key of the certificate"
        ).usual()
        .live(),
        row!(
            options.trusted_proxies: TrustedProxies, "trusted_proxies", "CIDR",
            "Proxies whose X-Forwarded-For header is trusted: addresses or CIDRs"
        ).usual()
        .live(),
        row!(
            options.proxy_protocol: bool, "proxy_protocol", "BOOL",
            "Require the PROXY protocol, version 2, from trusted proxies, for visitors and agents"
        ),
        row!(
            options.ambiguous_paths: AmbiguousPaths, "ambiguous_paths", "WHAT",
            "Treatment of ambiguous paths, if a route or a rule looks at paths"
        )
        .live(),
        row!(
            options.enforce_ip_restrictions: bool, "enforce_ip_restrictions", "BOOL",
            "Reject clients that IP restrictions do not allow; false only warns, for operators who are locked out"
        ),
        row!(
            options.geo_database: FilePath, "geo_database", "FILE",
            "Database for conn.geo and conn.client_ip.geo, in MaxMind's format, with the places of addresses"
        ),
        row!(
            options.asn_database: FilePath, "asn_database", "FILE",
            "Database for conn.client_ip.as, in MaxMind's format, with the networks of addresses"
        ),
        row!(
            options.address_categories: FilePath, "address_categories", "FILE",
            "A list of CIDR,category lines, for conn.client_ip.categories"
        ),
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
        )
        .usual(),
        row!(
            options.acme.agree_to_terms: bool, "acme.agree_to_terms", "BOOL",
            "Agree to the terms of service of the certificate authority"
        )
        .usual(),
        row!(
            options.acme.email: OptionalText, "acme.email", "ADDRESS",
            "Email address for the certificate authority"
        )
        .usual(),
        row!(
            options.acme.ca: FilePath, "acme.ca", "FILE",
            "A PEM file with the certificates to trust at the directory"
        )
        .unset("what the system trusts"),
        row!(
            options.acme.challenges: Vec<AcmeChallenge>, "acme.challenges", "TYPE",
            "Challenges that verify host names, in order of preference"
        ),
        row!(
            options.acme.retry_after: Duration, "acme.retry_after", "DURATION",
            "Pause after a failure before a host name is tried again; doubles up to a day"
        )
        .between(1000, 86_400_000),
    ],
};

/// A row of a provider; the command line has no flags for so many.
macro_rules! provider_row {
    ($provider:ident, $field:ident: $type:ty, $value:literal, $doc:literal) => {
        setting!(
            ServeConfig,
            options.oauth.$provider.$field: $type,
            concat!("oauth.", stringify!($provider), ".", stringify!($field)),
            $value,
            $doc
        )
        .without_flag()
        .live()
    };
}

macro_rules! provider_rows {
    ($($provider:ident),+) => {
        &[$(
            provider_row!(
                $provider, client_id: OptionalText, "ID",
                "The client that policies use which name this provider and no client of their own"
            ),
            provider_row!($provider, client_secret: Option<Secret>, "SECRET", "The secret of that client"),
            provider_row!($provider, client_secret_file: FilePath, "FILE", "A file that holds that secret"),
            provider_row!(
                $provider, scopes: Vec<String>, "SCOPE",
                "Scopes to request with that client, if not the usual ones"
            ),
            provider_row!(
                $provider, issuer_url: OptionalText, "URL",
                "An issuer of OpenID Connect that stands for the provider, also for clients of policies"
            ),
            provider_row!(
                $provider, authorization_url: OptionalText, "URL",
                "The URL where visitors log in, if the provider is elsewhere"
            ),
            provider_row!(
                $provider, token_url: OptionalText, "URL",
                "The URL that exchanges codes for tokens, if the provider is elsewhere"
            ),
            provider_row!(
                $provider, userinfo_url: OptionalText, "URL",
                "The URL that returns a user's identity, if the provider is elsewhere"
            )
        ),+]
    };
}

/// The operator's clients at providers of OAuth.
const OAUTH: SettingSection<ServeConfig> = SettingSection {
    title: "Applications at providers of OAuth",
    settings: provider_rows!(amazon, facebook, github, gitlab, google, linkedin, microsoft, twitch),
};

const EVENTS: SettingSection<ServeConfig> = SettingSection {
    title: "Events",
    settings: &[
        row!(
            options.events.folder: FilePath, "event_delivery.folder", "DIR",
            "The folder in which event destinations may name files"
        )
        .unset("no files"),
        row!(
            options.events.retry_after: Duration, "event_delivery.retry_after", "DURATION",
            "Pause after a failure before an event is sent again; doubles up to five minutes"
        )
        .between(10, 300_000),
        row!(
            options.events.max_age: Duration, "event_delivery.max_age", "DURATION",
            "Maximum age of an event that is not delivered"
        )
        .between(1000, 30 * 86_400_000),
        row!(
            options.events.max_waiting: usize, "event_delivery.max_waiting", "N",
            "Maximum number of events that wait for one destination; the oldest are dropped first"
        )
        .between(1, 1_000_000),
        row!(
            options.events.max_waiting_size: ByteSize, "event_delivery.max_waiting_size", "SIZE",
            "Maximum size of these events together; the oldest are dropped first"
        )
        .between(64 << 10, 1 << 40),
        row!(
            options.events.timeout: Duration, "event_delivery.timeout", "DURATION",
            "Maximum duration of one attempt to deliver an event"
        )
        .between(100, 60_000),
        row!(
            options.events.private_receivers: bool, "event_delivery.private_receivers", "BOOL",
            "Let event destinations have URLs that lead to private addresses"
        ),
    ],
};

const AGENTS: SettingSection<ServeConfig> = SettingSection {
    title: "Agents",
    settings: &[
        row!(
            agent_host: OptionalText, "agent_host", "HOST",
            "The name or address to listen on for agents; 0.0.0.0 for all of this machine's"
        )
        .usual()
        .unset("that of `host`"),
        row!(
            options.agent_port: Port, "agent_port", "PORT",
            "The port for agents; 0 picks a free port, none disables it"
        )
        .usual(),
        row!(
            options.authtoken: Option<Secret>, "authtoken", "TOKEN",
            "The authtoken for agents of a new database, or one that an existing database holds"
        ),
        row!(
            authtoken_file: FilePath, "authtoken_file", "FILE",
            "A file that holds the authtoken for agents"
        )
        .usual(),
        row!(
            options.private_issuers: bool, "private_issuers", "BOOL",
            "Let agents name issuers of logins and sources of keys at private addresses"
        ),
    ],
};

/// What the number of open files leaves.
const ALL_THAT_IS_LEFT: &str = "what the limit of open files leaves, at most 16,384";
/// A part of the number of open files.
const AN_EIGHTH: &str = "an eighth of the limit of open files, at most 4,096";

const CONNECTION_LIMITS: SettingSection<ServeConfig> = SettingSection {
    title: "Limits of connections",
    settings: &[
        row!(
            options.edge_connections: Option<usize>, "max_connections", "N",
            "The most visitor connections that may be open"
        )
        .between(1, u32::MAX as u64)
        .live()
        .unset(ALL_THAT_IS_LEFT),
        row!(
            options.edge_connections_per_address: Option<usize>, "max_connections_per_address", "N",
            "The most visitor connections that may be open from one address"
        )
        .between(1, u32::MAX as u64)
        .live()
        .unset("a quarter of these, 500 to 1,024"),
        row!(
            options.connections: Option<usize>, "max_api_connections", "N",
            "The most connections to the management API that may be open"
        )
        .between(1, u32::MAX as u64)
        .live()
        .unset(AN_EIGHTH),
        row!(
            options.agent_connections: Option<usize>, "max_agent_connections", "N",
            "The most agent connections that may be open"
        )
        .between(1, u32::MAX as u64)
        .live()
        .unset(AN_EIGHTH),
    ],
};

/// The shortest and the longest time for others, in milliseconds.
const MIN_TIME: u64 = 50;
const MAX_TIME: u64 = 24 * 3_600_000;

/// What one connection to the management API may take.
const API_LIMITS: SettingSection<ServeConfig> = SettingSection {
    title: "Limits of the management API",
    settings: &[
        row!(
            options.api.first_byte: Duration, "api.first_byte_timeout", "DURATION",
            "Maximum time until a client of the management API sends its first byte"
        )
        .between(MIN_TIME, MAX_TIME)
        .live(),
        row!(
            options.api.head: Duration, "api.head_timeout", "DURATION",
            "Maximum duration of a request's head, and of the pause between two requests"
        )
        .between(MIN_TIME, MAX_TIME)
        .live(),
        row!(
            options.api.body: Duration, "api.body_timeout", "DURATION",
            "Maximum duration of a request's body"
        )
        .between(MIN_TIME, MAX_TIME)
        .live(),
        row!(
            options.api.max_body: ByteSize, "api.max_body_size", "SIZE",
            "The largest body of a request"
        )
        .between(1 << 10, 64 << 20)
        .live(),
        row!(
            options.api.max_head: ByteSize, "api.max_head_size", "SIZE",
            "The largest head of a request; larger ones get 431"
        )
        .between(4 << 10, 128 << 10)
        .live(),
        row!(
            options.api.max_header_fields: usize, "api.max_header_fields", "N",
            "The most header fields of a request; with more it gets 431"
        )
        .between(20, MAX_HEAD_FIELDS as u64)
        .live(),
    ],
};

/// What one visitor, or one backend, may take.
const EDGE_LIMITS: SettingSection<ServeConfig> = SettingSection {
    title: "Limits of public traffic",
    settings: &[
        row!(
            options.timeouts.first_byte: Duration, "edge.first_byte_timeout", "DURATION",
            "Maximum time until a visitor sends its first byte, in protocols in which visitors send first"
        )
        .between(MIN_TIME, MAX_TIME)
        .live(),
        row!(
            options.timeouts.handshake: Duration, "edge.handshake_timeout", "DURATION",
            "Maximum duration of a TLS handshake"
        )
        .between(MIN_TIME, MAX_TIME)
        .live(),
        row!(
            options.timeouts.head: Duration, "edge.head_timeout", "DURATION",
            "Maximum duration of a request's head"
        )
        .between(MIN_TIME, MAX_TIME)
        .live(),
        row!(
            options.timeouts.stall: Duration, "edge.stall_timeout", "DURATION",
            "Maximum time in which a visitor sends or accepts nothing of a body"
        )
        .between(MIN_TIME, MAX_TIME)
        .live(),
        row!(
            options.timeouts.idle: Duration, "edge.idle_timeout", "DURATION",
            "Maximum time that a visitor's connection is idle between requests"
        )
        .between(MIN_TIME, MAX_TIME)
        .live(),
        row!(
            options.timeouts.dial: Duration, "edge.dial_timeout", "DURATION",
            "Maximum time to open a connection to a backend"
        )
        .between(MIN_TIME, MAX_TIME)
        .live(),
        row!(
            options.timeouts.response: Duration, "edge.response_timeout", "DURATION",
            "Maximum time until a backend begins its response"
        )
        .between(MIN_TIME, MAX_TIME)
        .live(),
        row!(
            options.timeouts.upstream_idle: Duration, "edge.upstream_idle_timeout", "DURATION",
            "Minimum time that a connection to a backend is kept for another request"
        )
        .between(MIN_TIME, MAX_TIME)
        .live(),
        row!(
            options.upstream_idle_connections: usize, "edge.upstream_idle_connections", "N",
            "Maximum number of idle connections to one backend"
        )
        .between(0, 4_096)
        .live(),
        row!(
            options.http2_streams: u32, "edge.http2_streams", "N",
            "Maximum number of concurrent requests on an HTTP/2 connection"
        )
        .between(1, 10_000)
        .live(),
        row!(
            options.ipv6_prefix: u32, "edge.rate_limit_ipv6_prefix", "N",
            "The length of the IPv6 prefix that rate limits by conn.client_ip count as one visitor"
        )
        .between(1, 128)
        .live(),
        row!(
            options.max_head: ByteSize, "edge.max_head_size", "SIZE",
            "The largest head of a visitor's request, with its first line; larger ones get 431"
        )
        .between(1 << 10, MAX_HEAD_BYTES as u64)
        .live(),
        row!(
            options.max_header_fields: usize, "edge.max_header_fields", "N",
            "The most header fields of a visitor's request; with more it gets 431"
        )
        .between(10, MAX_HEAD_FIELDS as u64)
        .live(),
    ],
};

/// What one agent may take; a session keeps what it began with.
const AGENT_LIMITS: SettingSection<ServeConfig> = SettingSection {
    title: "Limits of agents",
    settings: &[
        row!(
            options.agent_first_byte_timeout: Duration, "agent.first_byte_timeout", "DURATION",
            "Maximum time until an agent sends its first byte"
        )
        .between(MIN_TIME, MAX_TIME)
        .live(),
        row!(
            options.agent_handshake_timeout: Duration, "agent.handshake_timeout", "DURATION",
            "Maximum duration of an agent's TLS handshake"
        )
        .between(MIN_TIME, MAX_TIME)
        .live(),
        row!(
            options.login_timeout: Duration, "agent.login_timeout", "DURATION",
            "Maximum time until an agent has authenticated"
        )
        .between(MIN_TIME, MAX_TIME)
        .live(),
        row!(
            options.login_bytes: ByteSize, "agent.max_login_size", "SIZE",
            "Maximum size of the data that an agent sends before it has authenticated"
        )
        .between(4 << 10, 1 << 20)
        .live(),
        row!(
            options.heartbeat_interval: Duration, "agent.heartbeat_interval", "DURATION",
            "The interval of heartbeats: an agent is asked when it sent nothing for one and a half, and each sixth time"
        )
        .between(MIN_TIME, MAX_TIME)
        .live(),
        row!(
            options.heartbeat_tolerance: Duration, "agent.heartbeat_tolerance", "DURATION",
            "Maximum delay of a heartbeat's response before the agent counts as gone"
        )
        .between(MIN_TIME, MAX_TIME)
        .live(),
        row!(
            options.agent_streams: usize, "agent.max_streams", "N",
            "Maximum number of concurrent visitor connections of an agent; agents of other makers fail above 500"
        )
        .between(1, 4_000)
        .live(),
        row!(
            options.agent_queue_timeout: Duration, "agent.queue_timeout", "DURATION",
            "Maximum time that a visitor waits for one of them to end when the maximum is reached"
        )
        .between(0, MAX_TIME)
        .live(),
        row!(
            options.agent_unread: ByteSize, "agent.max_unread_size", "SIZE",
            "Maximum size of data that an agent's visitors leave unread; above it, visitors with more than 256 KiB lose streams"
        )
        .between(256 << 10, 1 << 30)
        .live(),
        row!(
            options.reserve: Duration, "agent.reserve", "DURATION",
            "Time for which the addresses of an agent that is gone are kept for it"
        )
        .between(0, 30 * 86_400_000)
        .live(),
    ],
};

const MONITORING: SettingSection<ServeConfig> = SettingSection {
    title: "Monitoring",
    settings: &[
        row!(
            options.admin_addr: OptionalAddress, "admin_addr", "HOST:PORT",
            "Address of /healthz, /readyz and /metrics, such as 127.0.0.1:4090"
        ).usual()
        .unset("nowhere, and nothing is counted"),
        row!(
            log_level: Option<LogLevels>, "log_level", "LEVELS",
            "Levels to log: error, warn, info, debug, trace or off, also by target: info,gateway=debug"
        ).usual()
        .of_command()
        .live()
        .unset("what GINNEL_LOG says, or info if a format or a file is set"),
        row!(log_format: Option<LogFormat>, "log_format", "FORMAT", "Format of the log")
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
        ).usual()
        .of_command()
        .unset("no such log; with it, requests get an X-Request-Id"),
        row!(
            options.drain_delay: Duration, "drain_delay", "DURATION",
            "Time for which /readyz fails before listeners close when stopping"
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
            "Maximum time to wait for requests in flight when stopping; a second signal stops at once"
        )
        .of_command()
        .between(0, 3_600_000)
        .live(),
        row!(json: bool, "json", "BOOL", "Print the addresses as one JSON object")
            .usual()
            .of_command(),
        row!(
            events: bool, "events", "BOOL",
            "Print one line of JSON for each request or connection of public traffic"
        )
        .of_command(),
    ],
};
