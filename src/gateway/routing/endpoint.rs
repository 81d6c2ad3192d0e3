//! Making agents' own endpoints public.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::Arc;

use tokio::net::TcpListener;

use crate::api::Origin;
use crate::gateway::http::connection::Entrance;
use crate::gateway::listener::Door;
use crate::gateway::listener::open::reachable;
use crate::gateway::routing::backend::Backend;
use crate::gateway::routing::endpoint_modules;
use crate::gateway::routing::endpoint_spec::{EndpointOptions, Proto, Wanted};
use crate::gateway::routing::hosts::Hosts;
use crate::gateway::routing::internal::{self, is_internal};
use crate::gateway::routing::target::Target;
use crate::gateway::routing::virtual_host::Site;
use crate::gateway::slot::Slot;
use crate::gateway::tls::authority::CertificateError;
use crate::gateway::tls::policy::{Guard, Terms, only_signed_by};
use crate::gateway::{EdgeError, Edges, Inner};
use crate::policy::Scope;

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
    served: Served,
    /// The name on the shared ports, and the port that goes with it.
    name: Option<(String, u16)>,
    edges: Arc<Inner>,
    _door: Option<Door>,
}

/// What is served at an endpoint.
#[derive(Clone)]
struct Served {
    site: Arc<Slot<Site>>,
    backend: Arc<Slot<Backend>>,
}

/// Where an endpoint is.
struct Place {
    url: String,
    host: Option<String>,
    name: Option<(String, u16)>,
    door: Option<Door>,
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
    pub fn retarget(&self, target: Option<Arc<dyn Target>>) {
        self.served.backend.set(endpoint_modules::backend(&self.edges, target));
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        if let Some((name, port)) = &self.name {
            self.edges.names_of(self.proto).remove(name, *port, &self.served.site);
        }
        // Connections that are kept alive meet nobody from now on.
        self.retarget(None);
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
        let edges = &self.0;
        let backend = Arc::new(Slot::new(endpoint_modules::backend(edges, Some(target))));
        let scope = match wanted.proto {
            Proto::Http | Proto::Https => Scope::HttpTunnel,
            Proto::Tcp | Proto::Tls => Scope::TcpTunnel,
        };
        let mut site = compiled(edges, wanted.options.clone(), backend.clone(), scope).await?;
        let host = edges.host_for(&wanted)?;
        site.guard = edges.guard_for(&wanted, host.as_deref())?;
        let served = Served { site: Arc::new(Slot::new(site)), backend };
        let place = match (wanted.proto, host) {
            (Proto::Http | Proto::Https, Some(host)) => {
                edges.place_by_name(wanted.proto, host, &served)?
            }
            (Proto::Http | Proto::Https, None) => edges.place_at_port(&wanted, &served).await?,
            (Proto::Tcp | Proto::Tls, host) => edges.place_of_bytes(&wanted, host, &served).await?,
        };
        Ok(Endpoint {
            url: place.url,
            proto: wanted.proto,
            host: place.host,
            address: place.door.as_ref().map(Door::address),
            options: wanted.options,
            served,
            name: place.name,
            edges: edges.clone(),
            _door: place.door,
        })
    }
}

/// Makes the site of an endpoint, away from the threads that carry traffic: it may take a while.
async fn compiled(
    edges: &Arc<Inner>,
    options: EndpointOptions,
    backend: Arc<Slot<Backend>>,
    scope: Scope,
) -> Result<Site, BindError> {
    let finder = edges.clone();
    let compiling = tokio::task::spawn_blocking(move || {
        endpoint_modules::site(&options, backend, scope, |id| finder.ip_policies.of(id))
    });
    compiling.await.map_err(|_| BindError::Unsupported("this policy"))?
}

impl Inner {
    /// How TLS is spoken with the visitors of an endpoint; none where it is as usual.
    fn guard_for(
        &self,
        wanted: &Wanted,
        host: Option<&str>,
    ) -> Result<Option<Arc<Guard>>, BindError> {
        let unusable = |problem| match problem {
            CertificateError::Unusable { field, problem } => BindError::Invalid { field, problem },
            problem => BindError::Listen(EdgeError::Certificate(problem)),
        };
        let invalid = |problem| BindError::Invalid { field: "mutual_tls_cas", problem };
        let ends_bytes =
            wanted.options.tls_termination.as_ref().filter(|_| wanted.proto == Proto::Tls);
        let mut terms = Terms::default();
        if let Some(authorities) = &wanted.options.mutual_tls_cas {
            terms.visitors = only_signed_by(authorities).map_err(invalid)?;
        } else if ends_bytes.is_none() {
            return Ok(None);
        }
        if let Some(termination) = ends_bytes {
            let guard = Guard::of_bytes(&self.authority, termination, terms);
            return guard.map(Some).map_err(unusable);
        }
        // Whoever has a name is reached on the shared port, everybody else on a port of their own.
        let has_tls = match host {
            Some(host) => self.https.get().is_some() && !is_internal(host),
            None => self.settings.tls_endpoints,
        };
        if wanted.proto != Proto::Https || !has_tls {
            return Err(invalid("needs TLS that ends at the service".to_owned()));
        }
        Guard::of_http(&self.authority, terms).map(Some).map_err(unusable)
    }

    /// The host name of an endpoint; none where it gets a port instead.
    fn host_for(&self, wanted: &Wanted) -> Result<Option<String>, BindError> {
        if wanted.proto == Proto::Tcp {
            return Ok(None);
        }
        if let Some(host) = wanted.host.as_deref().filter(|host| !host.is_empty()) {
            return checked_host(host).map(Some);
        }
        let subdomain = wanted.subdomain.as_deref().filter(|label| !label.is_empty());
        let invalid =
            |problem: &str| BindError::Invalid { field: "subdomain", problem: problem.to_owned() };
        let Some(base) = &self.settings.base_domain else {
            return match subdomain {
                Some(_) => Err(invalid("the service has no base domain to put it below")),
                None => Ok(None),
            };
        };
        let label = match subdomain {
            Some(label) if !is_label(label) => {
                return Err(invalid(&format!("{label:?} is no label of a host name")));
            }
            Some(label) => label.to_owned(),
            None => random_name(&self.settings.origin)?,
        };
        checked_host(&format!("{label}.{base}")).map(Some)
    }

    /// Gives a host on the shared ports.
    fn place_by_name(
        &self,
        proto: Proto,
        host: String,
        served: &Served,
    ) -> Result<Place, BindError> {
        let url = match is_internal(&host) {
            true => {
                Some(format!("{}://{host}", if proto == Proto::Https { "https" } else { "http" }))
            }
            false => self.url_of(&host, proto == Proto::Https),
        };
        let url = url.ok_or(BindError::Unsupported("a host name without a shared port"))?;
        let port = if proto == Proto::Https { 443 } else { 80 };
        if !self.hosts.add(&host, port, &served.site, true) {
            return Err(BindError::Taken(url));
        }
        Ok(Place { url, name: Some((host.clone(), port)), host: Some(host), door: None })
    }

    /// Gives a port for HTTP.
    async fn place_at_port(
        self: &Arc<Self>,
        wanted: &Wanted,
        served: &Served,
    ) -> Result<Place, BindError> {
        let listener = self.listen_for(wanted).await?;
        let entrance = Entrance::Own(served.site.clone());
        let is_secure = wanted.proto == Proto::Https && self.settings.tls_endpoints;
        let (scheme, door) = if is_secure {
            ("https", self.https_door(listener, entrance)?)
        } else {
            ("http", self.http_door(listener, entrance)?)
        };
        let url = format!("{scheme}://{}", reachable(door.address()));
        Ok(Place { url, host: None, name: None, door: Some(door) })
    }

    /// The names that endpoints of a protocol have.
    fn names_of(&self, proto: Proto) -> &Hosts {
        match proto {
            Proto::Http | Proto::Https => &self.hosts,
            Proto::Tcp | Proto::Tls => &self.streams,
        }
    }

    /// Gives a name for bytes that only policies lead to.
    fn place_inside(
        &self,
        wanted: &Wanted,
        (name, port): (String, u16),
        served: &Served,
    ) -> Result<Place, BindError> {
        if wanted.options.tls_termination.is_some() {
            return Err(BindError::Unsupported("TLS that ends at an internal endpoint"));
        }
        let host = checked_host(&name)?;
        let url = match wanted.proto {
            Proto::Tls => format!("tls://{host}"),
            _ => format!("tcp://{host}:{port}"),
        };
        if !self.streams.add(&host, port, &served.site, true) {
            return Err(BindError::Taken(url));
        }
        Ok(Place { url, name: Some((host.clone(), port)), host: Some(host), door: None })
    }

    /// Gives a port for bytes.
    async fn place_of_bytes(
        self: &Arc<Self>,
        wanted: &Wanted,
        host: Option<String>,
        served: &Served,
    ) -> Result<Place, BindError> {
        if let Some(name) = internal::name_of(wanted) {
            return self.place_inside(wanted, name, served);
        }
        let listener = self.listen_for(wanted).await?;
        let scheme = if wanted.proto == Proto::Tls { "tls" } else { "tcp" };
        let site = served.site.clone();
        let door = match site.get().guard.clone() {
            Some(guard) => self.unwrapping_door(listener, site, guard.config.clone())?,
            None => self.bytes_door(listener, site, scheme)?,
        };
        let address = door.address();
        let url = match &host {
            Some(host) => format!("{scheme}://{host}:{}", address.port()),
            None => format!("{scheme}://{}", reachable(address)),
        };
        Ok(Place { url, host, name: None, door: Some(door) })
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
}

/// A host name in lower case; a leading `*.` is allowed.
fn checked_host(host: &str) -> Result<String, BindError> {
    let name = host.trim_end_matches('.').to_ascii_lowercase();
    let labels = name.strip_prefix("*.").unwrap_or(&name);
    if name.len() <= 253 && labels.split('.').all(is_label) {
        return Ok(name);
    }
    Err(BindError::Invalid { field: "host", problem: format!("{host:?} is no host name") })
}

fn is_label(text: &str) -> bool {
    (1..=63).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
}

fn random_name(origin: &Origin) -> Result<String, BindError> {
    let mut bytes = [0; NAME];
    origin
        .fill(&mut bytes)
        .map_err(|problem| BindError::Invalid { field: "host", problem: problem.to_string() })?;
    Ok(bytes.iter().map(|byte| char::from(LETTERS[usize::from(byte % 32)])).collect())
}
