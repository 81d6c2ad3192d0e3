//! How a service is to run.

use std::borrow::Cow;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::num::NonZeroU16;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;

use ginnel_api::{Origin, Secret, id, mask};
use ginnel_base::address::{
    AddressError, Authority, HostName, HostPort, Scheme, reachable, with_ascii_host,
};
use ginnel_gateway as gateway;
use ginnel_http1::HeadLimits;
use ginnel_mux::{DEFAULT_BACKLOG_BYTES, LoginLimits};
use ginnel_net::descriptors::{self, DescriptorLimit};
use ginnel_net::{self as net, ConnectionCaps};
use ginnel_policy::path::AmbiguousPaths;
use ginnel_policy::{AddressDatabase, AddressKind, AddressKinds, CODE_PREFIX};
use ginnel_settings::ByteSize;

use super::acme::AcmeOptions;
use super::audit::AuditSettings;
use super::backup::BackupSchedule;
use super::events::EventOptions;
use super::live::ApiLimits;
use super::oauth::OauthOptions;
use super::store::{self, PostgresOptions};
use super::{Error, TrustedProxies};
use crate::agents;

/// How a service is to run.
#[derive(Debug, Clone)]
pub struct Options {
    /// The file of the database; without one it lives in memory and ends with the service.
    pub path: Option<PathBuf>,
    /// The database on PostgreSQL, in place of a file.
    pub store: Option<PostgresOptions>,
    /// What the node is called, one of several on PostgreSQL; the name of the machine by default.
    pub node_name: Option<String>,
    /// Where other nodes reach this one, `host:port`; nowhere by default.
    pub peer_addr: Option<HostPort>,
    /// Where it listens for them, `host:port`, if that is another address; at `peer_addr` by default.
    pub peer_listen_addr: Option<HostPort>,
    /// The key that secrets are encrypted with: 32 bytes in base64. Without one, a service with its database in a
    /// file makes one beside it.
    pub vault_key: Option<Secret>,
    /// A file that holds that key.
    pub vault_key_file: Option<PathBuf>,
    /// Whether secrets whose key is lost get a new one, with new values.
    pub replace_vault_key: bool,
    /// The name or address to listen on; loopback by default.
    pub host: String,
    /// The port to listen on; 0, the default, picks a free port.
    pub port: u16,
    /// The admin key. A new database takes it for its first key; in any other it must exist.
    pub admin_key: Option<Secret>,
    /// What stands before the number of an error code.
    pub code_prefix: String,
    /// So many requests in a rolling window; no limit by default.
    pub rate_limit: Option<(u32, Duration)>,
    /// The address for `uri` fields where the service is reached by another than its own.
    pub public_url: Option<String>,
    /// Where identifiers, tokens and times of resources come from; for tests, a seed.
    pub origin: Origin,
    /// How many calls [`Service::calls`](super::Service::calls) remembers; none by default.
    pub kept_calls: usize,
    /// Whether the management address has a console, a web page for people; yes by default.
    pub console: bool,
    /// How many connections the management API holds at once; none, the default, for an eighth of the
    /// file descriptors that the process may have. More are closed at once.
    pub connections: Option<usize>,
    /// The host name or address for public traffic; loopback by default.
    pub edge_host: String,
    /// The port for public HTTP; 0, the default, picks a free port, none disables it.
    pub http_port: Option<u16>,
    /// The port for public HTTPS; 0, the default, picks a free port, none disables it.
    pub https_port: Option<u16>,
    /// The port for HTTP in public addresses, where a load balancer listens at another one.
    pub public_http_port: Option<NonZeroU16>,
    /// As `public_http_port`, for HTTPS.
    pub public_https_port: Option<NonZeroU16>,
    /// The domain below which agents' endpoints get names on these ports; without one, the default,
    /// each gets a port of its own.
    pub base_domain: Option<String>,
    /// True when the ports of endpoints that ask for HTTPS speak TLS; no by default, because only
    /// who trusts the service's own authority could use them.
    pub tls_endpoints: bool,
    /// A certificate and its key, PEM files, to show for the names that it covers.
    pub certificate: Option<(PathBuf, PathBuf)>,
    /// From whom certificates are obtained for the host names of edges, agents and reserved domains;
    /// from nobody by default.
    pub acme: AcmeOptions,
    /// True when policies of agents may have issuers and sources of keys at private addresses.
    pub private_issuers: bool,
    /// The operator's clients at providers of OAuth, for policies that name none.
    pub oauth: OauthOptions,
    /// How events are delivered to those who subscribe to them.
    pub events: EventOptions,
    /// True when edges and agents may use only domains that their owner has reserved.
    pub reserved_domains_only: bool,
    /// False lets in whom IP restrictions would refuse: the way back for whoever is locked out.
    pub enforce_ip_restrictions: bool,
    /// A database in MaxMind's form of where addresses are, for rules that ask.
    pub geo_database: Option<PathBuf>,
    /// The same of whose addresses are.
    pub asn_database: Option<PathBuf>,
    /// A list of categories of addresses, `CIDR,category` on each line.
    pub address_categories: Option<PathBuf>,
    /// The proxies in front of the service, whose `X-Forwarded-For` names the visitor; none by
    /// default.
    pub trusted_proxies: TrustedProxies,
    /// True when connections of these proxies to the ports for visitors and agents begin with a header of
    /// the PROXY protocol, version 2.
    pub proxy_protocol: bool,
    /// What becomes of requests with ambiguous paths where routes or rules look at paths.
    pub ambiguous_paths: AmbiguousPaths,
    /// The length of the IPv6 prefix that is one visitor to rate limits by `conn.client_ip`.
    pub ipv6_prefix: u32,
    /// How many connections of visitors are held at once; none, the default, for what the file
    /// descriptors of the process leave. More are closed at once.
    pub edge_connections: Option<usize>,
    /// How many of them one address may hold; none, the default, for a quarter, at least 500 and at
    /// most 1,024 where there is room. Addresses of trusted proxies may hold all.
    pub edge_connections_per_address: Option<usize>,
    /// How long clients of the management API may take, and how much they may send.
    pub api: ApiLimits,
    /// How long visitors and upstreams may take.
    pub timeouts: gateway::Timeouts,
    /// How many requests a visitor's connection may carry at once with HTTP/2.
    pub http2_streams: u32,
    /// The largest head of a visitor's request.
    pub max_head: ByteSize,
    /// The most fields that it may have.
    pub max_header_fields: usize,
    /// How many connections to one backend may wait for another request.
    pub upstream_idle_connections: usize,
    /// The name or address that agents connect to; loopback by default.
    pub agent_host: String,
    /// The port for agents; 0, the default, picks a free port, none disables it.
    pub agent_port: Option<u16>,
    /// How many connections of agents are held at once; none, the default, for an eighth of the file
    /// descriptors that the process may have. More are closed at once.
    pub agent_connections: Option<usize>,
    /// The first authtoken. A new database takes it for its first credential; in any other it must
    /// exist.
    pub authtoken: Option<Secret>,
    /// Time between two heartbeats of a session with an agent.
    pub heartbeat_interval: Duration,
    /// How late a heartbeat may come back before the agent is taken for gone.
    pub heartbeat_tolerance: Duration,
    /// How long an agent may take to authenticate once it is connected.
    pub login_timeout: Duration,
    /// How long an agent may be silent at first.
    pub agent_first_byte_timeout: Duration,
    /// How long the TLS handshake of an agent may take.
    pub agent_handshake_timeout: Duration,
    /// How much an agent may send before it has authenticated.
    pub login_bytes: ByteSize,
    /// How many connections of visitors an agent carries at once: some agents break at 512 streams.
    pub agent_streams: usize,
    /// How long a visitor waits for one of them when there are that many.
    pub agent_queue_timeout: Duration,
    /// How much of what the visitors of an agent have asked for may wait for them.
    pub agent_unread: ByteSize,
    /// How long the addresses of an agent that is gone are kept for it; after a restart of the service
    /// it is 30 days, for at most 1,000 of an account.
    pub reserve: Duration,
    /// How long events of the audit trail are kept.
    pub audit_retention: Duration,
    /// If true, an operator vouches for the clock, and no pause follows a leap.
    pub trust_clock: bool,
    /// Where `/healthz`, `/readyz` and `/metrics` are, `host:port`; nowhere by default, and then nothing
    /// is counted.
    pub admin_addr: Option<HostPort>,
    /// Whether each request of a visitor gets a name, which visitor and upstream see as `X-Request-Id`,
    /// and events say; no by default, for requests are slower with it.
    pub request_ids: bool,
    /// How long a service that stops is not ready before it takes no more connections.
    pub drain_delay: Duration,
    /// When the database is backed up, and where to; nowhere by default.
    pub backup: BackupSchedule,
    /// Whether a database that was not closed and has lost its log is opened without its last changes.
    pub force_open: bool,
}

impl Default for Options {
    fn default() -> Self {
        let edge = gateway::GatewaySettings::default();
        Self {
            path: None,
            store: None,
            node_name: None,
            peer_addr: None,
            peer_listen_addr: None,
            vault_key: None,
            vault_key_file: None,
            replace_vault_key: false,
            host: "127.0.0.1".to_owned(),
            port: 0,
            admin_key: None,
            code_prefix: CODE_PREFIX.to_owned(),
            rate_limit: None,
            public_url: None,
            origin: Origin::default(),
            kept_calls: 0,
            console: true,
            connections: None,
            edge_host: edge.host,
            http_port: edge.http_port,
            https_port: edge.https_port,
            public_http_port: edge.public_http_port,
            public_https_port: edge.public_https_port,
            base_domain: edge.base_domain,
            tls_endpoints: edge.tls_endpoints,
            certificate: None,
            acme: AcmeOptions::default(),
            private_issuers: edge.private_issuers,
            oauth: OauthOptions::default(),
            events: EventOptions::default(),
            reserved_domains_only: false,
            enforce_ip_restrictions: edge.enforce_ip_restrictions,
            geo_database: None,
            asn_database: None,
            address_categories: None,
            trusted_proxies: edge.trusted_proxies,
            proxy_protocol: edge.proxy_protocol,
            ambiguous_paths: edge.ambiguous_paths,
            ipv6_prefix: edge.ipv6_prefix.into(),
            edge_connections: edge.connections,
            edge_connections_per_address: edge.connections_per_address,
            api: ApiLimits::default(),
            timeouts: edge.timeouts,
            http2_streams: edge.http2_streams,
            max_head: ByteSize(edge.head.bytes),
            max_header_fields: edge.head.fields,
            upstream_idle_connections: edge.upstream_idle_connections,
            agent_host: "127.0.0.1".to_owned(),
            agent_port: Some(0),
            agent_connections: None,
            authtoken: None,
            heartbeat_interval: Duration::from_secs(10),
            heartbeat_tolerance: Duration::from_secs(15),
            login_timeout: Duration::from_secs(10),
            agent_first_byte_timeout: Duration::from_secs(5),
            agent_handshake_timeout: Duration::from_secs(10),
            login_bytes: ByteSize(LoginLimits::default().bytes),
            agent_streams: 500,
            agent_queue_timeout: Duration::from_secs(1),
            agent_unread: ByteSize(DEFAULT_BACKLOG_BYTES),
            reserve: Duration::from_secs(30),
            audit_retention: Duration::from_secs(90 * 24 * 3600),
            trust_clock: false,
            admin_addr: None,
            request_ids: false,
            drain_delay: Duration::ZERO,
            backup: BackupSchedule::default(),
            force_open: false,
        }
    }
}

/// Reads an admin key from a file; space around it is ignored.
///
/// # Errors
/// When the file cannot be read, or holds something else.
pub fn read_admin_key(path: &Path) -> Result<Secret, Error> {
    check_key(read_secret(path)?)
}

/// Reads an authtoken from a file; space around it is ignored.
///
/// # Errors
/// When the file cannot be read.
pub fn read_authtoken(path: &Path) -> Result<Secret, Error> {
    read_secret(path)
}

pub(super) fn read_secret(path: &Path) -> Result<Secret, Error> {
    let failed = |source| Error::SecretFile { path: path.to_owned(), source };
    ginnel_net::secret_file::read_secret(path).map_err(failed)
}

impl Options {
    /// Finds what is wrong before anything is started.
    pub(super) fn check(&self) -> Result<(), Error> {
        self.problems().into_iter().next().map_or(Ok(()), Err)
    }

    /// Everything that is wrong with the options themselves, and the folders that they name.
    pub fn problems(&self) -> Vec<Error> {
        let key = self.admin_key.clone().and_then(|key| check_key(key).err());
        let token = self.authtoken.as_ref().filter(|token| id::split_token(&token.0).is_none());
        let url = self.public_url.as_deref().and_then(|url| check_url(url).err());
        let rate = self.rate_limit.filter(|(requests, window)| *requests == 0 || window.is_zero());
        let backups = self.backup.to.as_ref().filter(|folder| !folder.is_dir());
        let problems = [
            key,
            token.map(|_| Error::MalformedAuthtoken),
            url,
            self.check_connections().err(),
            rate.map(|_| Error::RateLimit),
            self.acme.check().err().or_else(|| self.check_challenges().err()),
            backups.cloned().map(Error::BackupFolder),
            self.events.check(self.own_files()).err(),
            self.check_store().err(),
            self.oauth.applications().err(),
            self.check_names().err(),
            self.check_addresses().err(),
        ];
        problems.into_iter().flatten().collect()
    }

    /// The public address with its host in the `xn--` form.
    pub(super) fn own_url(&self) -> Option<String> {
        let url = self.public_url.as_deref()?;
        Some(with_ascii_host(url).map_or_else(|_| url.to_owned(), Cow::into_owned))
    }

    /// The files that the service reads and writes.
    fn own_files(&self) -> impl Iterator<Item = &Path> {
        let certificate = self.certificate.iter().flat_map(|(chain, key)| [chain, key]);
        let others = [
            &self.path,
            &self.vault_key_file,
            &self.geo_database,
            &self.asn_database,
            &self.address_categories,
        ];
        let others = others.into_iter().flatten().chain(certificate).map(PathBuf::as_path);
        others.chain(self.oauth.files())
    }

    /// How public traffic is to be taken.
    pub(super) fn gateway_settings(&self) -> gateway::GatewaySettings {
        gateway::GatewaySettings {
            opens_later: true,
            host: self.edge_host.clone(),
            http_port: self.http_port,
            https_port: self.https_port,
            public_http_port: self.public_http_port,
            public_https_port: self.public_https_port,
            base_domain: self.base_domain.as_deref().map(normal_domain),
            tls_endpoints: self.tls_endpoints,
            code_prefix: self.code_prefix.clone(),
            enforce_ip_restrictions: self.enforce_ip_restrictions,
            addresses: None,
            trusted_proxies: self.trusted_proxies.clone(),
            proxy_protocol: self.proxy_protocol,
            ambiguous_paths: self.ambiguous_paths,
            ipv6_prefix: self.ipv6_prefix.min(128) as u8,
            connections: self.edge_connections,
            connections_per_address: self.edge_connections_per_address,
            timeouts: self.timeouts,
            http2_streams: self.http2_streams,
            head: HeadLimits { bytes: self.max_head.0, fields: self.max_header_fields },
            upstream_idle_connections: self.upstream_idle_connections,
            private_issuers: self.private_issuers,
            origin: self.origin.part(3),
            metrics: self.admin_addr.is_some(),
            request_ids: self.request_ids,
        }
    }

    /// What the operator knows of addresses; none where there are no files.
    ///
    /// # Errors
    /// When a file cannot be used.
    pub(super) fn addresses(&self) -> Result<Option<Arc<dyn AddressDatabase>>, Error> {
        let mut files = gateway::AddressFiles::default();
        let paths = [
            (AddressKind::Place, &self.geo_database),
            (AddressKind::System, &self.asn_database),
            (AddressKind::Category, &self.address_categories),
        ];
        for (kind, path) in
            paths.into_iter().filter_map(|(kind, path)| Some((kind, path.as_ref()?)))
        {
            files.add(kind, path).map_err(|error| {
                Error::setting(kind.setting(), format!("{}: {error}", mask::path(path)))
            })?;
        }
        let is_empty = files.kinds() == AddressKinds::default();
        Ok((!is_empty).then(|| Arc::new(files) as Arc<dyn AddressDatabase>))
    }

    /// How agents are to be served; none when they are not.
    pub(super) fn agent_settings(&self) -> Option<agents::AgentSettings> {
        Some(agents::AgentSettings {
            host: self.agent_host.clone(),
            port: self.agent_port?,
            connections: self.agent_caps(),
            trusted_proxies: self.trusted_proxies.clone(),
            proxy_protocol: self.proxy_protocol,
            heartbeat_interval: self.heartbeat_interval,
            heartbeat_tolerance: self.heartbeat_tolerance,
            login_timeout: self.login_timeout,
            login: LoginLimits { bytes: self.login_bytes.0, ..LoginLimits::default() },
            first_byte_timeout: self.agent_first_byte_timeout,
            handshake_timeout: self.agent_handshake_timeout,
            streams: self.agent_streams,
            queue_timeout: self.agent_queue_timeout,
            unread: self.agent_unread.0,
            reserve: self.reserve,
            reserved_domains_only: self.reserved_domains_only,
            code_prefix: self.code_prefix.clone(),
        })
    }

    /// How the audit trail is to be kept.
    pub(super) fn audit_settings(&self) -> AuditSettings {
        AuditSettings {
            origin: self.origin.part(4),
            code_prefix: self.code_prefix.clone(),
            retention: self.audit_retention,
        }
    }

    /// How many connections the management API holds.
    pub(super) fn management_caps(&self) -> ConnectionCaps {
        let total = self.connections.unwrap_or_else(|| DescriptorLimit::now().management());
        let per_address = descriptors::share_of_one_address(total);
        ConnectionCaps { total, per_address, reserved: 0 }
    }

    /// How many connections of agents are held; the last quarter is for those that are connected.
    fn agent_caps(&self) -> ConnectionCaps {
        let total = self.agent_connections.unwrap_or_else(|| DescriptorLimit::now().agents());
        let per_address = descriptors::share_of_one_address(total);
        ConnectionCaps { total, per_address, reserved: total / 4 }
    }

    /// What to do with a database that was not closed and has lost its log.
    pub(super) fn missing_log(&self) -> store::MissingLog {
        match self.force_open {
            true => store::MissingLog::Accept,
            false => store::MissingLog::Refuse,
        }
    }

    /// There is one database, and only one in a file is backed up here.
    fn check_store(&self) -> Result<(), Error> {
        match (&self.store, &self.path, &self.backup.to) {
            (Some(_), Some(_), _) => Err(Error::TwoStores),
            (Some(_), None, Some(_)) => Err(store::StoreError::NoFile.into()),
            _ => Ok(()),
        }
    }

    fn check_connections(&self) -> Result<(), Error> {
        let limits = [
            ("max_connections", self.edge_connections),
            ("max_connections_per_address", self.edge_connections_per_address),
            ("max_api_connections", self.connections),
            ("max_agent_connections", self.agent_connections),
        ];
        match limits.into_iter().find(|(_, limit)| *limit == Some(0)) {
            Some((name, _)) => Err(Error::ConnectionLimit(name)),
            None => Ok(()),
        }
    }

    pub(super) async fn bind(&self) -> Result<(TcpListener, SocketAddr), Error> {
        let bound = net::listen_on(&self.host, self.port).await;
        let bound = bound.and_then(|socket| socket.local_addr().map(|address| (socket, address)));
        bound.map_err(|source| self.unbound(source))
    }

    pub(super) fn unbound(&self, source: std::io::Error) -> Error {
        let address = format!("{}:{}", self.host, self.port);
        match source.kind() {
            ErrorKind::AddrInUse => Error::AddressInUse(address),
            _ => Error::Bind { address, source },
        }
    }
}

/// A domain in its normal form; one that is not a host name is refused elsewhere.
fn normal_domain(domain: &str) -> String {
    HostName::parse(domain).map_or_else(|_| domain.to_owned(), |name| name.to_string())
}

/// The URL at which a listener is reached from this machine.
pub(super) fn url_of(address: SocketAddr) -> String {
    format!("http://{}", reachable(address))
}

/// The host of a public address, without brackets.
pub(super) fn host_of(url: Option<&str>) -> Option<String> {
    Authority::split(url?).ok().map(|(authority, _)| authority.host.unbracketed())
}

fn check_key(key: Secret) -> Result<Secret, Error> {
    if id::split_token(&key.0).is_some() { Ok(key) } else { Err(Error::MalformedAdminKey) }
}

fn check_url(url: &str) -> Result<(), Error> {
    let invalid = |cause: String| {
        let form = "is not an http:// or https:// address";
        Error::setting("public_url", format!("{:?} {form}{cause}", mask::url(url)))
    };
    // The form shows the cause if it is the scheme.
    let (authority, rest) = Authority::split(url).map_err(|problem| match problem {
        AddressError::Scheme(_) => invalid(String::new()),
        problem => invalid(format!(": it {problem}")),
    })?;
    if !matches!(authority.scheme, Scheme::Http | Scheme::Https) {
        return Err(invalid(String::new()));
    }
    let problem = match rest {
        "" => return Ok(()),
        rest if rest.contains('#') => AddressError::Fragment,
        rest if rest.contains('?') => AddressError::Query,
        rest if rest.parse::<http::uri::PathAndQuery>().is_err() => AddressError::PathCharacter,
        _ => return Ok(()),
    };
    Err(invalid(format!(": it {problem}")))
}
