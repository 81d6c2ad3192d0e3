//! Public traffic: listeners, TLS, routing, modules, and connections to upstreams.
//!
//! # One request
//!
//! A `listener` accepts the connection and ends TLS (`tls`). `http` reads the request and selects the site in `routing`:
//! the host leads to a virtual host, the path to one of its routes, the route to a backend. The `modules` of the route act
//! on the request, and `upstream` sends it to a target. `tcp` copies connections that are not HTTP. `events` reports each
//! decision.
//!
//! # Invariants
//!
//! - The gateway knows neither the database nor the management API. The service compiles edges and hands them in.

mod addresses;
mod delivery_mark;
pub mod events;
pub mod http;
pub mod listener;
pub mod login;
pub mod metered;
pub mod metrics;
pub mod modules;
pub mod published;
mod relayed;
mod restrictions;
pub mod routing;
pub mod secrets;
mod settings;
pub mod tcp;
mod timeouts;
pub mod tls;
pub mod upstream;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::sync::SetOnce;

pub use addresses::{AddressFileError, AddressFiles};
pub use events::{Event, EventDelivery, EventSubscriber};
pub use listener::trusted_proxies::{TrustedProxies, TrustedProxyError};
pub use restrictions::{Ingress, IngressRestriction, IngressRestrictions};
pub use routing::backend::random_below;
pub use routing::endpoint::{BindError, EndpointTraffic, PublicEndpoint};
pub use routing::endpoint::{EndpointPlace, already_online};
pub use routing::endpoint_spec::{EndpointSpec, Proto, TlsTerminationSpec};
pub use routing::internal::is_internal;
pub use routing::target::{
    BoxFuture, ConnectionReuse, DialError, HostRank, RemoteHosts, RouteRef, Target, TunnelGroups,
    UpstreamProtocol, Visitor, VisitorTls,
};
pub use settings::GatewaySettings;
pub use settings::LiveGatewaySettings;
pub use timeouts::Timeouts;
pub use upstream::budget::ConnectionBudget;
pub use upstream::io::{AsyncReadWrite, Io, ResetOnClose};

use self::http::connection::HostSelection;
use self::http::read_ahead::ReadAheadBudget;
use delivery_mark::DeliveryMark;
use events::EventBus;
use login::Logins;
use metrics::{ByteCounts, EdgeMetrics, GatewayMetrics};
use modules::ip_policies::IpPolicies;
use modules::traffic_policy::Fetcher;
use published::KeySets;
use routing::agent_return::WaitingPlaces;
use routing::endpoint::EndpointPools;
use routing::hosts::{HostChanges, Hosts};
use routing::virtual_host::VirtualHost;
use secrets::SecretTable;
use tls::authority::LocalAuthority;
use tls::certificate_error::CertificateError;
use upstream::forward::Upstream;
use upstream::pool::UpstreamPools;

use ginnel_api::id::Ids;
use ginnel_base::address::{HostPortPattern, reachable};
use ginnel_base::logging::ignore;
pub use ginnel_http1::HeadLimits;
use ginnel_net::{
    ConnectionLimit, DialRole, Listener, Reach, Shutdown, ShutdownPhase, ShutdownSignal,
};
use ginnel_policy::ip_rules::IpRules;
use ginnel_policy::login::OauthApplications;
use ginnel_policy::{AddressKinds, AddressLookup, Fetch, FetchFailed, PhaseDecision};

/// How often connections that nobody uses are looked at, at most and at least.
const MIN_SWEEP_INTERVAL: Duration = Duration::from_millis(10);
const MAX_SWEEP_INTERVAL: Duration = Duration::from_secs(5);

/// All public addresses of a service.
///
/// Clones share them; [`Gateway::stop`] lets go of all.
#[derive(Clone)]
pub struct Gateway(Arc<GatewayState>);

/// What all connections share.
pub struct GatewayState {
    /// What it was started with.
    settings: GatewaySettings,
    live: Arc<ArcSwap<LiveGatewaySettings>>,
    authority: Arc<LocalAuthority>,
    /// Where what follows a change of the configuration runs.
    runtime: tokio::runtime::Handle,
    groups: ArcSwap<Option<Arc<dyn TunnelGroups>>>,
    /// None where there are no other nodes.
    remote_hosts: ArcSwap<Option<Arc<dyn RemoteHosts>>>,
    ip_policies: IpPolicies,
    secrets: Arc<SecretTable>,
    /// What the operator has at providers of OAuth.
    applications: Arc<OauthApplications>,
    restrictions: IngressRestrictions,
    endpoint_pools: EndpointPools,
    pools: UpstreamPools,
    hosts: Hosts,
    /// How many TLS edges there are: where there are none, no name is looked for in the first message of
    /// visitors.
    tls_edges: AtomicUsize,
    /// For those who wait for an agent that was lost.
    waiting_places: WaitingPlaces,
    /// The internal endpoints that carry bytes.
    streams: Hosts,
    events: EventBus,
    fetcher: Arc<Fetcher>,
    key_sets: Arc<KeySets>,
    logins: Arc<Logins>,
    /// Of requests that deliver events.
    delivery_mark: DeliveryMark,
    limit: Arc<ConnectionLimit>,
    /// None where nobody scrapes.
    metrics: Option<Arc<GatewayMetrics>>,
    /// Makes the names of requests; none where they have none.
    request_ids: Option<Ids>,
    /// Whether an agent has ever asked which rules act on its requests: without one nobody notes them.
    notes_rules: AtomicBool,
    read_ahead: Arc<ReadAheadBudget>,
    shutdown: Shutdown,
    /// Whether visitors are served, or wait.
    is_open: SetOnce<()>,
    /// Of what is done for visitors of other nodes, which may go on while there are no visitors here.
    relays: Shutdown,
    http: OnceLock<SocketAddr>,
    https: OnceLock<SocketAddr>,
    listeners: Mutex<Vec<Listener>>,
    /// For endpoints of other nodes.
    relayed_ports: Mutex<HashMap<u16, Listener>>,
    /// Says that an endpoint of this node has left a port.
    port_freed: tokio::sync::Notify,
}

/// Why public traffic cannot be taken.
#[derive(Debug, thiserror::Error)]
pub enum GatewayError {
    /// An address cannot be listened on.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address, `host:port`.
        address: String,
        /// What the operating system said.
        source: std::io::Error,
    },
    /// There is no certificate.
    #[error(transparent)]
    Certificate(#[from] CertificateError),
}

impl Gateway {
    /// Whether IP restrictions refuse anybody.
    pub fn enforces_ip_restrictions(&self) -> bool {
        self.0.settings.enforce_ip_restrictions
    }

    /// What rules may ask of the addresses of visitors.
    pub fn known_addresses(&self) -> AddressKinds {
        self.0.known_addresses()
    }

    /// What the operator has at providers of OAuth.
    pub fn oauth_applications(&self) -> &Arc<OauthApplications> {
        &self.0.applications
    }

    /// Starts to take public traffic on the shared ports, on the current tokio runtime.
    ///
    /// # Errors
    /// When an address cannot be listened on, or TLS cannot be set up.
    pub async fn start(
        settings: GatewaySettings,
        authority: Arc<LocalAuthority>,
    ) -> Result<Self, GatewayError> {
        let live = Arc::new(ArcSwap::from_pointee(settings.live()));
        let proxies = live.clone();
        let limit = ConnectionLimit::new("visitors", settings.connection_caps(), move |address| {
            proxies.load().trusted_proxies.contains(address)
        });
        let metrics = settings.metrics.then(|| Arc::new(GatewayMetrics::new(settings.request_ids)));
        let request_ids = settings.request_ids.then(|| Ids::of(settings.origin.part(4)));
        authority.add_host(&settings.host);
        let fetcher = Arc::<Fetcher>::default();
        let key_sets = KeySets::new(fetcher.clone());
        let logins = Logins::new(authority.login_key(), fetcher.clone(), key_sets.clone());
        let pools = UpstreamPools::new(settings.upstream_idle_connections);
        let gateway = Arc::new(GatewayState {
            is_open: SetOnce::new_with((!settings.opens_later).then_some(())),
            settings,
            live,
            authority,
            runtime: tokio::runtime::Handle::current(),
            groups: ArcSwap::from_pointee(None),
            remote_hosts: ArcSwap::from_pointee(None),
            ip_policies: IpPolicies::default(),
            secrets: Arc::default(),
            applications: Arc::default(),
            restrictions: IngressRestrictions::default(),
            endpoint_pools: EndpointPools::default(),
            pools,
            hosts: Hosts::default(),
            tls_edges: AtomicUsize::new(0),
            waiting_places: WaitingPlaces::default(),
            streams: Hosts::default(),
            events: EventBus::default(),
            fetcher,
            key_sets,
            logins,
            delivery_mark: DeliveryMark::default(),
            limit,
            metrics,
            request_ids,
            notes_rules: AtomicBool::new(false),
            read_ahead: Arc::default(),
            shutdown: Shutdown::default(),
            relays: Shutdown::default(),
            http: OnceLock::new(),
            https: OnceLock::new(),
            listeners: Mutex::default(),
            relayed_ports: Mutex::default(),
            port_freed: tokio::sync::Notify::new(),
        });
        if let Some(port) = gateway.settings.http_port {
            let listener =
                gateway.listen_http(gateway.listen(port).await?, HostSelection::ByHost(None))?;
            ignore(
                gateway.http.set(listener.address()),
                "a gateway that starts has no address yet",
            );
            gateway.listeners().push(listener);
        }
        if let Some(port) = gateway.settings.https_port {
            let listener =
                gateway.listen_https(gateway.listen(port).await?, HostSelection::ByHost(None))?;
            gateway.authority.add_address(listener.address().ip());
            ignore(
                gateway.https.set(listener.address()),
                "a gateway that starts has no address yet",
            );
            gateway.listeners().push(listener);
        }
        tokio::spawn(sweep(Arc::downgrade(&gateway), gateway.shutdown.signal()));
        Ok(Self(gateway))
    }

    /// Notes from now on which rules of policies act on requests.
    pub fn note_rules(&self) {
        self.0.notes_rules.store(true, Ordering::Relaxed);
    }

    /// Serves visitors, where they have waited until now: all routes are known.
    pub fn open(&self) {
        ignore(self.0.is_open.set(()), "whoever is served already stays so");
    }

    /// The address at which this machine reaches the shared HTTP port.
    pub fn http_address(&self) -> Option<SocketAddr> {
        self.0.http.get().copied().map(reachable)
    }

    /// The address at which this machine reaches the shared HTTPS port.
    pub fn https_address(&self) -> Option<SocketAddr> {
        self.0.https.get().copied().map(reachable)
    }

    /// The authority that visitors must trust.
    pub fn authority(&self) -> &Arc<LocalAuthority> {
        &self.0.authority
    }

    /// How many connections are held.
    pub fn limit(&self) -> &Arc<ConnectionLimit> {
        &self.0.limit
    }

    /// What is counted of traffic; none where nobody scrapes.
    pub fn metrics(&self) -> Option<&Arc<GatewayMetrics>> {
        self.0.metrics.as_ref()
    }

    /// Where the requests of an edge are counted.
    pub fn edge_metrics(&self, edge_id: &str) -> Option<Arc<EdgeMetrics>> {
        self.0.metrics.as_ref().map(|metrics| metrics.edge(edge_id))
    }

    /// Takes over those settings that may change while it runs: proxies, paths, timeouts and limits;
    /// connections that are open keep theirs.
    pub fn reconfigure(&self, settings: &GatewaySettings) {
        self.0.live.store(Arc::new(settings.live()));
        self.0.pools.set_max_idle(settings.upstream_idle_connections);
        self.0.limit.set_caps(settings.connection_caps());
    }

    /// Says who knows the tunnels of labels.
    pub fn find_tunnels_in(&self, groups: Arc<dyn TunnelGroups>) {
        self.0.groups.store(Arc::new(Some(groups)));
    }

    /// The logins of visitors.
    pub fn logins(&self) -> &Arc<Logins> {
        &self.0.logins
    }

    /// Everything that happens to public traffic from now on, on other nodes too.
    pub fn events(&self) -> EventSubscriber {
        self.0.events.subscribe()
    }

    /// The same for this node alone.
    pub fn own_events(&self) -> EventSubscriber {
        self.0.events.listen()
    }

    /// Delivers an event: as actions of policies send requests, never to an API of this process, and with a
    /// mark by which this gateway knows it again. Gives the status of the response, whose body is not read.
    pub async fn deliver_event(
        &self,
        mut request: Fetch,
        reach: Reach,
    ) -> Result<::http::Response<bytes::Bytes>, FetchFailed> {
        request.headers.extend(self.0.delivery_mark.header(&request.url));
        self.0.fetcher.send_once(&request, DialRole::EventDelivery, reach).await
    }

    /// Marks requests that deliver events with this key, and knows them by it.
    pub fn set_delivery_key(&self, key: &[u8]) {
        self.0.delivery_mark.set_key(key);
    }

    /// Whether somebody wants to know what happens on other nodes.
    pub fn wants_remote_events(&self) -> bool {
        self.0.events.wants_remote()
    }

    /// Tells of what has happened on another node.
    pub fn pass_on_event(&self, event: Event) {
        self.0.events.pass_on(event);
    }

    /// Whether an agent's endpoint has a `host:port` now.
    pub fn is_online(&self, hostport: &str) -> bool {
        let place = HostPortPattern::parse(hostport);
        place.is_ok_and(|it| self.0.hosts.has_agent(&it.host_pattern(), it.port()))
    }

    /// Whether TLS for a name is carried on as it is.
    pub fn passes_tls(&self, name: &str) -> bool {
        self.0.hosts.find(name, 443).is_some_and(|claim| claim.virtual_host.load().passes_tls())
    }

    /// The host names that edges and agents' endpoints have on the HTTPS port, without wildcards.
    pub fn https_names(&self) -> Vec<String> {
        self.0.hosts.https_names()
    }

    /// Waits until host names have changed since this was last waited for.
    pub async fn names_changed(&self) {
        self.0.hosts.changed().await;
    }

    /// Changes which virtual hosts the hosts on the shared ports lead to; nobody else does meanwhile.
    pub fn change_names(&self) -> HostChanges<'_> {
        self.0.hosts.change()
    }

    /// Says how many TLS edges there are.
    pub fn set_tls_edges(&self, count: usize) {
        self.0.tls_edges.store(count, Ordering::Release);
    }

    /// Listens on a port for connections of bytes; works on any thread.
    ///
    /// # Errors
    /// When the port cannot be listened on.
    pub fn listen_for_bytes(
        &self,
        port: u16,
        virtual_host: Arc<ArcSwap<VirtualHost>>,
    ) -> Result<Listener, GatewayError> {
        self.0.listen_tcp_now(port, virtual_host)
    }

    /// Whether a port can be listened on now.
    pub fn can_listen(&self, port: u16) -> bool {
        self.0.bind_port_now(port).is_ok()
    }

    /// A port that nobody listens on now; none where there is none.
    pub fn free_port(&self) -> Option<u16> {
        self.0.free_port()
    }

    /// The address of a port for visitors, as endpoints at it have it.
    pub fn address_of(&self, port: u16) -> String {
        self.0.address_of(port)
    }

    /// The address of a host on the shared ports; none where there is no port for it.
    pub fn url_of(&self, host: &str, secure: bool) -> Option<String> {
        self.0.url_of(host, secure)
    }

    /// The port at which visitors reach the shared HTTPS port; none where TLS does not end here.
    pub fn tls_port(&self) -> Option<u16> {
        self.https_address().and_then(|_| self.0.public_port(true))
    }

    /// A target with its connections.
    pub fn upstream(&self, target: Arc<dyn Target>) -> Upstream {
        self.0.upstream(target)
    }

    /// Where the rules of an IP policy are found, whether it exists or not.
    pub fn ip_policy(&self, id: &str) -> Arc<ArcSwap<IpRules>> {
        self.0.ip_policies.of(id)
    }

    /// The secrets that policies of edges and cloud endpoints read.
    pub fn secrets(&self) -> &Arc<SecretTable> {
        &self.0.secrets
    }

    /// From where visitors, agents and callers may come.
    pub fn restrictions(&self) -> &IngressRestrictions {
        &self.0.restrictions
    }

    /// Whether no more connections are taken.
    pub fn is_closing(&self) -> bool {
        self.0.shutdown.phase() >= ShutdownPhase::Graceful
    }

    /// Drops the idle connections to the target with this key, which takes no more requests; those
    /// that carry one are dropped when it has ended.
    pub fn close_idle(&self, key: &str) {
        self.0.pools.close(key);
    }

    /// Tells visitors to make their next connections elsewhere; those that they make here are served.
    pub fn drain(&self) {
        self.0.shutdown.begin(ShutdownPhase::Draining);
    }

    /// Takes no more connections and requests; those in flight are finished.
    pub fn close(&self) {
        self.0.shutdown.begin(ShutdownPhase::Graceful);
        self.0.listeners().clear();
    }

    /// Takes no more connections and requests, finishes those in flight for as long as `grace`, and
    /// cuts off the rest; what other nodes ask for goes on until [`Gateway::end_relays`].
    pub async fn stop(&self, grace: Duration) {
        self.close();
        self.0.shutdown.stop(grace).await;
        self.0.events.close();
    }
}

impl GatewayState {
    /// How long others may take now.
    pub fn timeouts(&self) -> Timeouts {
        self.live.load().timeouts
    }

    /// A target with its connections.
    fn upstream(&self, target: Arc<dyn Target>) -> Upstream {
        let pool = self.pools.of(target.as_ref());
        Upstream { target, pool }
    }

    /// What rules may ask of the addresses of visitors.
    fn known_addresses(&self) -> AddressKinds {
        self.settings.addresses.as_ref().map(|database| database.kinds()).unwrap_or_default()
    }

    /// What is known of the address of a visitor.
    fn address_lookup(&self) -> AddressLookup {
        AddressLookup::of(self.settings.addresses.clone())
    }

    /// Whether it is noted which rules act on requests.
    fn notes_rules(&self) -> bool {
        self.notes_rules.load(Ordering::Relaxed)
    }

    /// Counts what a policy has decided.
    fn count_decision(&self, decision: Option<&PhaseDecision>) {
        if let (Some(metrics), Some(decision)) = (&self.metrics, decision) {
            metrics.decided(decision.action);
        }
    }

    /// Where the bytes of a protocol are counted.
    fn bytes_of(&self, proto: &str) -> Option<Arc<ByteCounts>> {
        self.metrics.as_ref().map(|metrics| metrics.bytes(proto))
    }

    fn listeners(&self) -> std::sync::MutexGuard<'_, Vec<Listener>> {
        self.listeners.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Drops idle connections to upstreams that have been idle for too long.
async fn sweep(gateway: Weak<GatewayState>, mut shutdown: ShutdownSignal) {
    let mut interval = Duration::ZERO;
    loop {
        let pause = tokio::time::sleep(interval);
        if shutdown.run_until(ShutdownPhase::Graceful, pause).await.is_none() {
            return;
        }
        let Some(gateway) = gateway.upgrade() else { return };
        let max_idle = gateway.timeouts().upstream_idle;
        gateway.pools.sweep(max_idle);
        interval = (max_idle / 2).clamp(MIN_SWEEP_INTERVAL, MAX_SWEEP_INTERVAL);
    }
}
