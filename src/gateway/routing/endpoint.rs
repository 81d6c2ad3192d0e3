//! Agents' own endpoints that are public.

use std::net::SocketAddr;
use std::sync::Arc;

use arc_swap::ArcSwap;

use crate::gateway::routing::backend::{Backend, BackendKind};
use crate::gateway::routing::endpoint_spec::{EndpointOptions, Proto};
use crate::gateway::routing::hosts::Hosts;
use crate::gateway::routing::target::Target;
use crate::gateway::routing::virtual_host::VirtualHost;
use crate::gateway::{GatewayError, GatewayState};
use crate::net::Listener;
use crate::policy::Problem;
use crate::policy::problem::code;

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
    /// A policy that cannot be applied; libraries look for these words.
    #[error("{}", policy_problem(.0))]
    Policy(Vec<Problem>),
    /// A host name with a character that host names may not have.
    #[error(
        "Invalid character '{character}' in domain name. Valid domains may contain only a-z, A-Z, \
         0-9, . * and - characters. Failed to create an endpoint with the domain {host:?}"
    )]
    HostCharacter {
        /// The host name.
        host: String,
        /// The first such character.
        character: char,
    },
    /// The service cannot do that.
    #[error("{0} is not supported")]
    Unsupported(&'static str),
    /// The address cannot be listened on, or TLS cannot be set up.
    #[error(transparent)]
    Listen(#[from] GatewayError),
}

impl BindError {
    /// The number of the error code.
    pub fn code(&self) -> u16 {
        match self {
            Self::Taken(_) => 334,
            Self::Invalid { .. } | Self::Unsupported(_) => 215,
            Self::Policy(problems) => problems.first().map_or(DOCUMENT, |first| match first.code {
                code::DOCUMENT => DOCUMENT,
                code => code,
            }),
            Self::HostCharacter { .. } => 326,
            Self::Listen(_) => 722,
        }
    }
}

/// The number of a policy that is no document.
const DOCUMENT: u16 = 9026;

fn policy_problem(problems: &[Problem]) -> String {
    match problems.first() {
        Some(first) if first.code == code::ACTION_TYPE => first.message.clone(),
        _ => {
            let described: Vec<_> = problems.iter().map(ToString::to_string).collect();
            format!("The TrafficPolicy you provided is invalid: {}", described.join("; "))
        }
    }
}

/// An endpoint that is online; dropping it takes it offline.
///
/// Requests in flight are finished, and connections that carry bytes stay.
pub struct PublicEndpoint {
    pub(super) url: String,
    pub(super) proto: Proto,
    pub(super) host: Option<String>,
    pub(super) address: Option<SocketAddr>,
    pub(super) options: EndpointOptions,
    pub(super) routes: EndpointRoutes,
    /// The name on the shared ports, and the port that goes with it.
    pub(super) name: Option<(String, u16)>,
    pub(super) gateway: Arc<GatewayState>,
    pub(super) listener: Option<Listener>,
}

/// What is done with the traffic of an endpoint that has a port of its own.
pub struct EndpointTraffic {
    pub(in crate::gateway) virtual_host: Arc<ArcSwap<VirtualHost>>,
    pub(in crate::gateway) proto: Proto,
}

/// What visitors find an endpoint by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EndpointPlace<'a> {
    /// A name on the shared ports, and the port that goes with it.
    Name(&'a str, u16),
    /// A name and a port that only policies lead to, for bytes.
    Inside(&'a str, u16),
    /// A port of its own.
    Port(u16),
}

/// What is served at an endpoint.
#[derive(Clone)]
pub(super) struct EndpointRoutes {
    pub(super) virtual_host: Arc<ArcSwap<VirtualHost>>,
    pub(super) backend: Arc<ArcSwap<Backend>>,
}

impl PublicEndpoint {
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

    /// Where it listens, where it has a port of its own; `EndpointSpec::addr` gives it back later.
    pub fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    /// What visitors find it by; nothing else that is public may have the same.
    pub(crate) fn place(&self) -> Option<EndpointPlace<'_>> {
        let is_http = matches!(self.proto, Proto::Http | Proto::Https);
        match (&self.name, self.address) {
            (Some((name, port)), _) if is_http => Some(EndpointPlace::Name(name, *port)),
            (Some((name, port)), _) => Some(EndpointPlace::Inside(name, *port)),
            (None, Some(address)) => Some(EndpointPlace::Port(address.port())),
            (None, None) => None,
        }
    }

    /// What is done with the traffic on the way.
    pub fn options(&self) -> &EndpointOptions {
        &self.options
    }

    /// What visitors of other nodes meet.
    pub fn traffic(&self) -> EndpointTraffic {
        EndpointTraffic { virtual_host: self.routes.virtual_host.clone(), proto: self.proto }
    }

    /// Sends traffic to another target from the next request on; to none, the endpoint keeps its
    /// address and says that nobody is there.
    pub fn retarget(&self, target: Option<Arc<dyn Target>>) {
        self.routes.backend.store(Arc::new(backend(&self.gateway, target)));
    }
}

impl Drop for PublicEndpoint {
    fn drop(&mut self) {
        if let Some((name, port)) = &self.name {
            self.gateway.names_of(self.proto).change().remove(
                name,
                *port,
                &self.routes.virtual_host,
            );
        }
        // Connections that are kept alive meet nobody from now on.
        self.retarget(None);
        if self.listener.take().is_some() {
            self.gateway.port_freed.notify_one();
        }
    }
}

impl GatewayState {
    /// The names that endpoints of a protocol have.
    fn names_of(&self, proto: Proto) -> &Hosts {
        match proto {
            Proto::Http | Proto::Https => &self.hosts,
            Proto::Tcp | Proto::Tls => &self.streams,
        }
    }
}

/// Where the requests of an agent's endpoint go; nowhere while the agent is away.
pub(super) fn backend(gateway: &GatewayState, target: Option<Arc<dyn Target>>) -> Backend {
    let kind = match target {
        Some(target) => BackendKind::Upstream(gateway.upstream(target)),
        None => BackendKind::Offline,
    };
    Backend { id: "".into(), kind }
}
