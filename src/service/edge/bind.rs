//! Making agents' own endpoints public.

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use http::HeaderValue;
use tokio::net::TcpListener;

use super::door::Door;
use super::forward::Upstream;
use super::reception::Entrance;
use super::site::{Backend, Route, Site};
use super::slot::Slot;
use super::target::Target;
use super::wanted::{EndpointOptions, Proto, Wanted};
use super::{EdgeError, Edges, Inner, serve, tcp};

/// The protocols of a port with TLS, best first.
const ALPN: [&str; 2] = ["h2", "http/1.1"];
/// What the names of endpoints are made of: no letter looks like another.
const LETTERS: &[u8; 32] = b"abcdefghijkmnpqrstuvwxyz23456789";
/// How long such a name is.
const NAME: usize = 10;

/// Why an endpoint cannot be made public.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BindError {
    /// Another endpoint is online there.
    #[error("{0} is already online")]
    Taken(String),
    /// A value cannot be used.
    #[error("{field}: {problem}")]
    Invalid {
        /// The option.
        field: &'static str,
        /// What is wrong with it.
        problem: String,
    },
    /// The service cannot do that.
    #[error("{0} is not supported")]
    Unsupported(&'static str),
    /// The address cannot be listened on, or TLS cannot be set up.
    #[error(transparent)]
    Listen(#[from] EdgeError),
}

impl BindError {
    /// The number of the error code.
    pub fn code(&self) -> u16 {
        match self {
            Self::Taken(_) => 334,
            Self::Invalid { .. } | Self::Unsupported(_) => 215,
            Self::Listen(_) => 722,
        }
    }
}

/// An endpoint that is online; dropping it takes it offline.
///
/// Requests in flight are finished, and connections that carry bytes stay.
pub struct Endpoint {
    url: String,
    proto: Proto,
    host: Option<String>,
    address: Option<SocketAddr>,
    options: EndpointOptions,
    slot: Arc<Slot<Site>>,
    /// The name on the shared ports.
    name: Option<String>,
    edges: Arc<Inner>,
    _door: Option<Door>,
}

impl Endpoint {
    /// The address for visitors.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// What is spoken there.
    pub fn proto(&self) -> Proto {
        self.proto
    }

    /// The host name, where it has one of its own.
    pub fn host(&self) -> Option<&str> {
        self.host.as_deref()
    }

    /// Where it listens, where it has a port of its own; `Wanted::addr` gives it back later.
    pub fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    /// What is done with the traffic on the way.
    pub fn options(&self) -> &EndpointOptions {
        &self.options
    }

    /// Sends traffic to another target from the next request on; to none, the endpoint keeps its
    /// address and says that nobody is there.
    ///
    /// # Errors
    /// None for options that were bound once.
    pub fn retarget(&self, target: Option<Arc<dyn Target>>) -> Result<(), BindError> {
        self.slot.set(site(&self.edges, &self.options, target)?);
        Ok(())
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        if let Some(name) = &self.name {
            self.edges.hosts.remove(name);
        }
    }
}

impl Edges {
    /// Makes a target public.
    ///
    /// # Errors
    /// When the address is taken, or what is wanted cannot be had.
    pub async fn bind(
        &self,
        wanted: Wanted,
        target: Arc<dyn Target>,
    ) -> Result<Endpoint, BindError> {
        let site = site(&self.0, &wanted.options, Some(target))?;
        let slot = Arc::new(Slot::new(site));
        let host = self.0.host_for(&wanted)?;
        match wanted.proto {
            Proto::Http | Proto::Https => match host {
                Some(host) => self.0.bind_name(wanted, host, slot),
                None => self.0.bind_port(wanted, slot).await,
            },
            Proto::Tcp | Proto::Tls => self.0.bind_bytes(wanted, host, slot).await,
        }
    }
}

impl Inner {
    /// The host name of an endpoint; none where it gets a port instead.
    fn host_for(&self, wanted: &Wanted) -> Result<Option<String>, BindError> {
        if wanted.proto == Proto::Tcp {
            return Ok(None);
        }
        if let Some(host) = wanted.host.as_deref().filter(|host| !host.is_empty()) {
            return checked_host(host).map(Some);
        }
        let Some(base) = &self.settings.base_domain else { return Ok(None) };
        let label = match wanted.subdomain.as_deref().filter(|label| !label.is_empty()) {
            Some(label) => label.to_owned(),
            None => random_name()?,
        };
        checked_host(&format!("{label}.{base}")).map(Some)
    }

    /// Gives a host on the shared ports.
    fn bind_name(
        self: &Arc<Self>,
        wanted: Wanted,
        host: String,
        slot: Arc<Slot<Site>>,
    ) -> Result<Endpoint, BindError> {
        let url = self.url_of(&host, wanted.proto == Proto::Https);
        let url = url.ok_or(BindError::Unsupported("a host name without a shared port"))?;
        if !self.hosts.add(&host, &slot) {
            return Err(BindError::Taken(url));
        }
        Ok(Endpoint {
            url,
            proto: wanted.proto,
            name: Some(host.clone()),
            host: Some(host),
            address: None,
            options: wanted.options,
            slot,
            edges: self.clone(),
            _door: None,
        })
    }

    /// Gives a port for HTTP.
    async fn bind_port(
        self: &Arc<Self>,
        wanted: Wanted,
        slot: Arc<Slot<Site>>,
    ) -> Result<Endpoint, BindError> {
        let listener = self.listen_for(&wanted).await?;
        let entrance = Entrance::Own(slot.clone());
        let is_secure = wanted.proto == Proto::Https && self.settings.tls_endpoints;
        let door = if is_secure {
            self.https_door_on(listener, entrance)?
        } else {
            self.http_door_on(listener, entrance)?
        };
        let scheme = if is_secure { "https" } else { "http" };
        Ok(self.endpoint(wanted, scheme, None, slot, door))
    }

    /// Gives a port for bytes.
    async fn bind_bytes(
        self: &Arc<Self>,
        wanted: Wanted,
        host: Option<String>,
        slot: Arc<Slot<Site>>,
    ) -> Result<Endpoint, BindError> {
        let listener = self.listen_for(&wanted).await?;
        let scheme = if wanted.proto == Proto::Tls { "tls" } else { "tcp" };
        let carried = slot.clone();
        let door = Door::open(self, listener, move |stream, peer, _| {
            tcp::carry(carried.clone(), stream, peer, scheme)
        });
        let door = door.map_err(|source| self.unlistened(0, source))?;
        Ok(self.endpoint(wanted, scheme, host, slot, door))
    }

    fn endpoint(
        self: &Arc<Self>,
        wanted: Wanted,
        scheme: &str,
        host: Option<String>,
        slot: Arc<Slot<Site>>,
        door: Door,
    ) -> Endpoint {
        let address = door.address();
        let shown = match &host {
            Some(host) => format!("{host}:{}", address.port()),
            None => reachable(address).to_string(),
        };
        Endpoint {
            url: format!("{scheme}://{shown}"),
            proto: wanted.proto,
            host,
            address: Some(address),
            options: wanted.options,
            slot,
            name: None,
            edges: self.clone(),
            _door: Some(door),
        }
    }

    async fn listen_for(&self, wanted: &Wanted) -> Result<TcpListener, BindError> {
        let Some(addr) = wanted.addr.as_deref().filter(|addr| !addr.is_empty()) else {
            return Ok(self.listen(0).await?);
        };
        let invalid = |problem: &str| BindError::Invalid {
            field: "addr",
            problem: format!("{addr:?} {problem}"),
        };
        let (_, port) = addr.rsplit_once(':').ok_or_else(|| invalid("is not host:port"))?;
        let port = port.parse().map_err(|_| invalid("has no port"))?;
        match self.listen(port).await {
            Err(EdgeError::Listen { source, .. }) if source.kind() == ErrorKind::AddrInUse => {
                Err(BindError::Taken(addr.to_owned()))
            }
            listening => Ok(listening?),
        }
    }

    /// Listens on a port of the service's host.
    async fn listen(&self, port: u16) -> Result<TcpListener, EdgeError> {
        let bound = TcpListener::bind((self.settings.host.as_str(), port)).await;
        bound.map_err(|source| self.unlistened(port, source))
    }

    pub(super) async fn http_door(
        self: &Arc<Self>,
        port: u16,
        entrance: Entrance,
    ) -> Result<Door, EdgeError> {
        self.http_door_on(self.listen(port).await?, entrance)
    }

    pub(super) async fn https_door(
        self: &Arc<Self>,
        port: u16,
        entrance: Entrance,
    ) -> Result<Door, EdgeError> {
        self.https_door_on(self.listen(port).await?, entrance)
    }

    fn http_door_on(
        self: &Arc<Self>,
        listener: TcpListener,
        entrance: Entrance,
    ) -> Result<Door, EdgeError> {
        let edges = Arc::downgrade(self);
        let door = Door::open(self, listener, move |stream, peer, closing| {
            let (edges, entrance) = (edges.upgrade(), entrance.clone());
            async move {
                let Some(edges) = edges else { return };
                serve::plain(edges, entrance, stream, peer, closing).await;
            }
        });
        door.map_err(|source| self.unlistened(0, source))
    }

    fn https_door_on(
        self: &Arc<Self>,
        listener: TcpListener,
        entrance: Entrance,
    ) -> Result<Door, EdgeError> {
        let config = self.authority.server_config(&ALPN)?;
        let edges = Arc::downgrade(self);
        let door = Door::open(self, listener, move |stream, peer, closing| {
            let (edges, entrance, config) = (edges.upgrade(), entrance.clone(), config.clone());
            async move {
                let Some(edges) = edges else { return };
                serve::secure(edges, entrance, stream, peer, closing, config).await;
            }
        });
        door.map_err(|source| self.unlistened(0, source))
    }

    fn unlistened(&self, port: u16, source: std::io::Error) -> EdgeError {
        EdgeError::Listen { address: format!("{}:{port}", self.settings.host), source }
    }

    /// The address of a host on the shared ports.
    pub(super) fn url_of(&self, host: &str, secure: bool) -> Option<String> {
        let https = self.https.get().filter(|_| secure).map(|it| ("https", it.port(), 443));
        let (scheme, port, usual) =
            https.or_else(|| self.http.get().map(|it| ("http", it.port(), 80)))?;
        Some(if port == usual {
            format!("{scheme}://{host}")
        } else {
            format!("{scheme}://{host}:{port}")
        })
    }
}

/// What is served for an agent.
fn site(
    edges: &Inner,
    options: &EndpointOptions,
    target: Option<Arc<dyn Target>>,
) -> Result<Site, BindError> {
    refuse_unsupported(options)?;
    let host_header = options.host_header.as_deref().map(HeaderValue::from_str).transpose();
    let host_header = host_header.map_err(|problem| BindError::Invalid {
        field: "host_header",
        problem: problem.to_string(),
    })?;
    let backend = match target {
        Some(target) => Backend::Upstream(Upstream { pool: edges.pools.of(target.key()), target }),
        None => Backend::Offline,
    };
    Ok(Site::of(Route { host_header, backend }))
}

fn refuse_unsupported(options: &EndpointOptions) -> Result<(), BindError> {
    let changes =
        |changes: &super::HeaderChanges| !changes.add.is_empty() || !changes.remove.is_empty();
    let unsupported = [
        ("compression", options.compression),
        ("circuit_breaker", options.circuit_breaker.is_some()),
        ("ip_restriction", options.ip_restriction.is_some()),
        ("basic_auth", !options.basic_auth.is_empty()),
        ("webhook", options.webhook.is_some()),
        ("request_headers", changes(&options.request_headers)),
        ("response_headers", changes(&options.response_headers)),
        ("user_agent_filter", options.user_agent_filter.is_some()),
        ("traffic_policy", options.traffic_policy.is_some()),
        ("websocket_tcp_converter", options.websocket_tcp_converter),
        ("tls_termination", options.tls_termination.is_some()),
    ];
    match unsupported.into_iter().find(|(_, asked)| *asked) {
        Some((name, _)) => Err(BindError::Unsupported(name)),
        None => Ok(()),
    }
}

/// A host name in lower case; a leading `*.` is allowed.
fn checked_host(host: &str) -> Result<String, BindError> {
    let name = host.trim_end_matches('.').to_ascii_lowercase();
    let labels = name.strip_prefix("*.").unwrap_or(&name);
    let is_label = |label: &str| {
        let mut bytes = label.bytes();
        (1..=63).contains(&label.len())
            && bytes.all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
    };
    if name.len() <= 253 && labels.split('.').all(is_label) {
        return Ok(name);
    }
    Err(BindError::Invalid { field: "host", problem: format!("{host:?} is no host name") })
}

fn random_name() -> Result<String, BindError> {
    let mut bytes = [0; NAME];
    getrandom::fill(&mut bytes)
        .map_err(|problem| BindError::Invalid { field: "host", problem: problem.to_string() })?;
    Ok(bytes.iter().map(|byte| char::from(LETTERS[usize::from(byte % 32)])).collect())
}

/// An address that can be connected to from this machine.
fn reachable(mut address: SocketAddr) -> SocketAddr {
    if address.ip().is_unspecified() {
        address.set_ip(match address.ip() {
            IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        });
    }
    address
}
