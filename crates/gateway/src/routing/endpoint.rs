//! Agents' own endpoints that are public, and addresses that several of one account share.
//!
//! At a shared address each request goes to one of the endpoints at random, and through the modules of that
//! one. While it was not sent, those of the others may take it that have the same options, so that nothing
//! passes modules by. An endpoint whose agent is away gets none as long as another is there.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use arc_swap::ArcSwap;
use sha2::{Digest, Sha256};

use ginnel_api::EndpointOptions;
use ginnel_net::Listener;
use ginnel_policy::Problem;
use ginnel_policy::problem::code;

use crate::gateway_error::GatewayError;
use crate::modules::traffic_policy::describe_problems;
use crate::routing::backend::{Backend, BackendKind, TargetDirectory};
use crate::routing::endpoint_spec::{EndpointSpec, Proto};
use crate::routing::internal;
use crate::routing::route::Route;
use crate::routing::route_table::RouteTable;
use crate::routing::virtual_host::VirtualHost;
use crate::tls::policy::{TlsPolicy, TlsTerminationSpec};
use crate::upstream::forward::Upstream;
use crate::upstream::target::Target;

/// Why an endpoint cannot be made public.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// Another endpoint is online there.
    #[error("{}", already_online(.0))]
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
    /// A login that nobody could go through; the problems name fields of the options.
    #[error("{}", describe_problems(.0))]
    Login(Vec<Problem>),
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
            Self::Invalid { .. } | Self::Login(_) | Self::Unsupported(_) => 215,
            Self::Policy(problems) => problems.first().map_or(DOCUMENT, |first| match first.code {
                code::DOCUMENT => DOCUMENT,
                code => code,
            }),
            Self::HostCharacter { .. } => 326,
            Self::Listen(_) => 722,
        }
    }
}

/// Why an address cannot be had that another endpoint has.
pub fn already_online(url: &str) -> String {
    format!(
        "the endpoint '{url}' is already online: stop it first, or start both with pooling_enabled \
         to share the load between them"
    )
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
    pub(crate) url: String,
    pub(crate) proto: Proto,
    pub(crate) host: Option<String>,
    pub(crate) address: Option<SocketAddr>,
    pub(crate) options: EndpointOptions,
    pub(crate) routes: EndpointRoutes,
    /// The name on the shared ports, and the port that goes with it.
    pub(crate) name: Option<(String, u16)>,
    pub(crate) table: Arc<RouteTable>,
    pub(crate) listener: Option<Listener>,
    /// Its place at an address that others may share, which has name and listener then.
    pub(crate) seat: Option<PoolSeat>,
}

/// What is done with the traffic of an endpoint that has a port of its own.
pub struct EndpointTraffic {
    pub(crate) virtual_host: Arc<ArcSwap<VirtualHost>>,
    pub(crate) proto: Proto,
}

/// What visitors find an endpoint by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndpointPlace<'a> {
    /// A name on the shared ports, and the port that goes with it.
    Name(&'a str, u16),
    /// A name and a port that only policies lead to, for bytes.
    Inside(&'a str, u16),
    /// A port of its own.
    Port(u16),
}

/// What is served at an endpoint.
#[derive(Clone)]
pub(crate) struct EndpointRoutes {
    pub(crate) virtual_host: Arc<ArcSwap<VirtualHost>>,
    pub(crate) backend: Arc<ArcSwap<Backend>>,
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
    pub fn place(&self) -> Option<EndpointPlace<'_>> {
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

    /// The pool of those that share its address; none where no others may.
    pub fn pool(&self) -> Option<&str> {
        self.seat.as_ref().map(|seat| seat.pool.id.as_str())
    }

    /// Sends traffic to another target from the next request on; to none, the endpoint keeps its
    /// address and says that nobody is there.
    pub fn retarget(&self, target: Option<Arc<dyn Target>>) {
        match &self.seat {
            Some(seat) => seat.retarget(target),
            None => self.routes.backend.store(Arc::new(agent_backend(&self.table.targets, target))),
        }
    }
}

impl Drop for PublicEndpoint {
    fn drop(&mut self) {
        if self.seat.take().is_some() {
            return;
        }
        if let Some((name, port)) = &self.name {
            self.table.names_of(self.proto).begin_change().remove_claim(
                name,
                *port,
                &self.routes.virtual_host,
            );
        }
        // Connections that are kept alive meet nobody from now on, and wait for nobody.
        let gone = Backend { id: "".into(), kind: BackendKind::Offline(None) };
        self.routes.backend.store(Arc::new(gone));
        if self.listener.take().is_some() {
            self.table.port_freed.notify_one();
        }
    }
}

/// Where the requests of an agent's endpoint go; nowhere while the agent is away.
pub(crate) fn agent_backend(targets: &TargetDirectory, target: Option<Arc<dyn Target>>) -> Backend {
    let kind = match target {
        Some(target) => BackendKind::Upstream(targets.upstream(target)),
        None => BackendKind::Offline(Some(Instant::now())),
    };
    Backend { id: "".into(), kind }
}

/// Where endpoints can meet: what is spoken, the name, which is empty at a port, and the port.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct PoolKey {
    is_http: bool,
    name: String,
    port: u16,
}

/// The addresses that are shared, or may be.
#[derive(Default)]
pub struct EndpointPools {
    pools: Mutex<HashMap<PoolKey, Arc<EndpointPool>>>,
    /// Held while an address is taken that may be shared.
    pub(crate) binding: tokio::sync::Mutex<()>,
}

/// An address that endpoints share.
pub(crate) struct EndpointPool {
    key: PoolKey,
    /// What pools of one address, on whichever nodes, have in common that are one: account and terms.
    id: String,
    /// The account whose endpoints may join.
    owner: String,
    terms: PoolTerms,
    pub(crate) url: String,
    pub(crate) host: Option<String>,
    pub(crate) address: Option<SocketAddr>,
    pub(crate) name: Option<(String, u16)>,
    /// What visitors meet at the address.
    pub(crate) virtual_host: Arc<ArcSwap<VirtualHost>>,
    tls_policy: Option<Arc<TlsPolicy>>,
    state: Mutex<PoolMembers>,
}

#[derive(Default)]
struct PoolMembers {
    members: Vec<PoolMember>,
    listener: Option<Listener>,
}

/// What all endpoints of an address have in common: it is decided before one of them is chosen.
#[derive(Debug, Clone, PartialEq)]
struct PoolTerms {
    host: Option<String>,
    proto: Proto,
    tls_termination: Option<TlsTerminationSpec>,
    mutual_tls_cas: Option<Vec<u8>>,
}

struct PoolMember {
    route: Arc<Route>,
    options: EndpointOptions,
    /// None while its agent is away.
    upstream: Option<Upstream>,
    /// When its agent was lost, if it is away.
    lost: Option<Instant>,
}

/// The place of one endpoint at a shared address; dropping it gives it up, and the last one the address.
pub(crate) struct PoolSeat {
    pub(crate) pool: Arc<EndpointPool>,
    route: Arc<Route>,
    table: Arc<RouteTable>,
    pools: Arc<EndpointPools>,
}

/// An address that was taken for the first of the endpoints that share it.
pub(crate) struct PoolPlace {
    pub(crate) url: String,
    pub(crate) host: Option<String>,
    pub(crate) name: Option<(String, u16)>,
    pub(crate) listener: Option<Listener>,
}

impl PoolKey {
    /// Where an endpoint is to be; none where the service chooses.
    pub(crate) fn from_spec(spec: &EndpointSpec, host: Option<&str>) -> Option<Self> {
        match (spec.proto, host) {
            (Proto::Http | Proto::Https, Some(host)) => {
                let port = if spec.proto == Proto::Https { 443 } else { 80 };
                Some(Self { is_http: true, name: host.to_owned(), port })
            }
            _ => match internal::name_of(spec) {
                Some((name, port)) => Some(Self { is_http: false, name, port }),
                None => Some(Self::at_port(spec.own_port()?)),
            },
        }
    }

    fn at_port(port: u16) -> Self {
        Self { is_http: false, name: String::new(), port }
    }

    /// Where an endpoint is.
    fn from_place(spec: &EndpointSpec, place: &PoolPlace) -> Option<Self> {
        let is_http = matches!(spec.proto, Proto::Http | Proto::Https);
        match (&place.name, &place.listener) {
            (Some((name, port)), _) => Some(Self { is_http, name: name.clone(), port: *port }),
            (None, Some(listener)) => Some(Self::at_port(listener.address().port())),
            (None, None) => None,
        }
    }
}

impl PoolTerms {
    fn from_spec(spec: &EndpointSpec, host: Option<&str>) -> Self {
        Self {
            host: host.map(str::to_owned),
            proto: spec.proto,
            tls_termination: spec.tls_termination(),
            mutual_tls_cas: spec.visitor_authorities().map(<[u8]>::to_vec),
        }
    }
}

impl PoolTerms {
    /// The same on all nodes for the same terms.
    fn digest(&self) -> String {
        let Self { host, proto, tls_termination, mutual_tls_cas } = self;
        let ends = tls_termination.as_ref();
        let chain = ends.and_then(|it| it.certificate.as_ref()).map(|(chain, _)| chain);
        let versions = ends.map(|it| it.versions);
        let text = format!("{host:?} {proto:?} {versions:?} {chain:?} {mutual_tls_cas:?}");
        ginnel_base::hex(&Sha256::digest(text)[..8])
    }
}

impl EndpointPools {
    /// Gives an endpoint a place at an address that others of its account share; none where nobody does.
    pub(crate) fn join_pool(
        self: &Arc<Self>,
        table: &Arc<RouteTable>,
        key: &PoolKey,
        (spec, host): (&EndpointSpec, Option<&str>),
        route: Arc<Route>,
    ) -> Result<Option<PoolSeat>, BindError> {
        let pools = self.lock_pools();
        let Some(pool) = pools.get(key) else { return Ok(None) };
        if spec.pool_owner.as_ref() != Some(&pool.owner) {
            return Ok(None);
        }
        if pool.terms != PoolTerms::from_spec(spec, host) {
            let problem =
                format!("the endpoints at {} differ in host, protocol or how TLS ends", pool.url);
            return Err(BindError::Invalid { field: "pooling_enabled", problem });
        }
        Ok(Some(self.take_seat(table, pool.clone(), spec, route)))
    }

    /// Lets others share an address that an endpoint has just taken.
    pub(crate) fn open_pool(
        self: &Arc<Self>,
        table: &Arc<RouteTable>,
        (spec, host): (&EndpointSpec, Option<&str>),
        place: PoolPlace,
        virtual_host: Arc<ArcSwap<VirtualHost>>,
        route: Arc<Route>,
    ) -> Option<PoolSeat> {
        let key = PoolKey::from_place(spec, &place)?;
        let tls_policy = virtual_host.load().tls_policy.clone();
        let PoolPlace { url, host: shown_host, name, listener } = place;
        let address = listener.as_ref().map(Listener::address);
        let (owner, terms) = (spec.pool_owner.clone()?, PoolTerms::from_spec(spec, host));
        let pool = Arc::new(EndpointPool {
            key: key.clone(),
            id: format!("{owner} {}", terms.digest()),
            owner,
            terms,
            url,
            host: shown_host,
            address,
            name,
            virtual_host,
            tls_policy,
            state: Mutex::new(PoolMembers { members: Vec::new(), listener }),
        });
        self.lock_pools().insert(key, pool.clone());
        Some(self.take_seat(table, pool, spec, route))
    }

    /// Gives an endpoint a place in a pool.
    fn take_seat(
        self: &Arc<Self>,
        table: &Arc<RouteTable>,
        pool: Arc<EndpointPool>,
        spec: &EndpointSpec,
        route: Arc<Route>,
    ) -> PoolSeat {
        let mut state = pool.lock_members();
        let options = spec.options.clone();
        state.members.push(PoolMember {
            route: route.clone(),
            options,
            upstream: None,
            lost: None,
        });
        pool.publish_members(&state.members);
        drop(state);
        PoolSeat { pool, route, table: table.clone(), pools: self.clone() }
    }

    fn lock_pools(&self) -> MutexGuard<'_, HashMap<PoolKey, Arc<EndpointPool>>> {
        self.pools.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl EndpointPool {
    fn lock_members(&self) -> MutexGuard<'_, PoolMembers> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has requests go to those that are there; called with each change.
    fn publish_members(&self, members: &[PoolMember]) {
        // Most pools have one kind of members, so that their number counts once.
        let mut kinds: Vec<(&EndpointOptions, Arc<[Upstream]>)> = Vec::new();
        for member in members {
            let known = kinds.iter().find(|(options, _)| **options == member.options);
            let peers = match known {
                Some((_, peers)) => peers.clone(),
                None => {
                    let peers = matching_peers(members, &member.options);
                    kinds.push((&member.options, peers.clone()));
                    peers
                }
            };
            let backend = shared_backend(member.upstream.as_ref(), peers, member.lost);
            member.route.backend.store(Arc::new(backend));
        }
        let there = |member: &&PoolMember| member.upstream.is_some();
        let mut routes: Vec<_> =
            members.iter().filter(there).map(|member| member.route.clone()).collect();
        if routes.is_empty() {
            routes.extend(members.first().map(|member| member.route.clone()));
        }
        let tls_policy = self.tls_policy.clone();
        self.virtual_host
            .store(Arc::new(VirtualHost::from_routes(routes).with_tls_policy(tls_policy)));
    }
}

/// Those that are there and have these options: what passed the modules of one has passed theirs.
fn matching_peers(members: &[PoolMember], options: &EndpointOptions) -> Arc<[Upstream]> {
    let alike = members.iter().filter(|member| member.options == *options);
    alike.filter_map(|member| member.upstream.clone()).collect()
}

/// Where the requests of a member go: to itself, and then to the others.
fn shared_backend(
    own: Option<&Upstream>,
    peers: Arc<[Upstream]>,
    lost: Option<Instant>,
) -> Backend {
    let kind = match (own, peers.len()) {
        (_, 0) => BackendKind::Offline(lost),
        (Some(own), 1) => BackendKind::Upstream(own.clone()),
        (own, _) => BackendKind::Pool { first: own.cloned(), all: peers },
    };
    Backend { id: "".into(), kind }
}

impl PoolSeat {
    /// Sends what comes to this endpoint to another target, or to none.
    pub(crate) fn retarget(&self, target: Option<Arc<dyn Target>>) {
        let upstream = target.map(|target| self.table.targets.upstream(target));
        let mut state = self.pool.lock_members();
        let mut own = state.members.iter_mut().filter(|it| Arc::ptr_eq(&it.route, &self.route));
        if let Some(member) = own.next() {
            member.lost = upstream.is_none().then(Instant::now);
            member.upstream = upstream;
        }
        self.pool.publish_members(&state.members);
    }
}

impl Drop for PoolSeat {
    fn drop(&mut self) {
        // Nobody joins meanwhile.
        let mut pools = self.pools.lock_pools();
        let mut state = self.pool.lock_members();
        let is_own = |member: &PoolMember| Arc::ptr_eq(&member.route, &self.route);
        let own = state.members.iter().position(is_own).map(|at| state.members.remove(at));
        // Requests of this endpoint that were not sent yet go to the others.
        let peers = own.map(|own| matching_peers(&state.members, &own.options)).unwrap_or_default();
        self.route.backend.store(Arc::new(shared_backend(None, peers, None)));
        if !state.members.is_empty() {
            self.pool.publish_members(&state.members);
            return;
        }
        pools.remove(&self.pool.key);
        if let Some((name, port)) = &self.pool.name {
            let names = self.table.names_of(self.pool.terms.proto);
            names.begin_change().remove_claim(name, *port, &self.pool.virtual_host);
        }
        if state.listener.take().is_some() {
            self.table.port_freed.notify_one();
        }
    }
}
