//! The gateway as the service has it, and what all connections share.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::sync::SetOnce;

use ginnel_api::id::Ids;
use ginnel_base::address::{HostPortPattern, reachable_address};
use ginnel_base::logging::ignore;
use ginnel_net::{
    ConnectionLimit, DialRole, Listener, Reach, Shutdown, ShutdownPhase, ShutdownSignal,
};
use ginnel_policy::ip_rules::IpRules;
use ginnel_policy::login::OauthApplications;
use ginnel_policy::{AddressKinds, Fetch, FetchFailed};

use crate::gateway_error::GatewayError;
use crate::login::Logins;
use crate::message::events::{Event, EventBus, EventSubscriber};
use crate::message::read_ahead::ReadAheadBudget;
use crate::message::request_services::RequestServices;
use crate::metrics::{ByteCounts, EdgeMetrics, GatewayMetrics};
use crate::modules::policy_resources::PolicyResources;
use crate::published::{Fetcher, KeySets};
use crate::restrictions::IngressRestrictions;
use crate::routing::backend::TargetDirectory;
use crate::routing::endpoint::EndpointPools;
use crate::routing::hosts::{HostChanges, HostSelection};
use crate::routing::route_table::RouteTable;
use crate::routing::virtual_host::VirtualHost;
use crate::secrets::SecretTable;
use crate::server::delivery_mark::DeliveryMark;
use crate::settings::GatewaySettings;
use crate::timeouts::Timeouts;
use crate::tls::authority::LocalAuthority;
use crate::trusted_proxies::TrustedProxies;
use crate::upstream::forward::Upstream;
use crate::upstream::target::{Target, TunnelGroups};

/// Limits of the interval at which unused connections are looked at.
const MIN_SWEEP_INTERVAL: Duration = Duration::from_millis(10);
const MAX_SWEEP_INTERVAL: Duration = Duration::from_secs(5);

/// All public addresses of a service.
///
/// Clones share them; [`Gateway::stop`] lets go of all.
#[derive(Clone)]
pub struct Gateway(pub(super) Arc<GatewayState>);

/// The state that all connections share. Only the server has it: other code gets the handles that it needs.
pub struct GatewayState {
    /// The services that requests on their way use.
    pub services: RequestServices,
    /// The hosts and routes of public addresses.
    pub table: Arc<RouteTable>,
    /// The addresses that endpoints share.
    pub endpoint_pools: Arc<EndpointPools>,
    /// The resources that policies and modules may use.
    pub policy_resources: Arc<PolicyResources>,
    /// The ports that are open.
    pub ports: OpenPorts,
    pub authority: Arc<LocalAuthority>,
    /// The runtime of what follows a change of the configuration.
    pub runtime: tokio::runtime::Handle,
    pub restrictions: IngressRestrictions,
    pub events: EventBus,
    fetcher: Arc<Fetcher>,
    logins: Arc<Logins>,
    /// The mark of requests that deliver events.
    pub delivery_mark: DeliveryMark,
    pub limit: Arc<ConnectionLimit>,
    /// The source of request identifiers. `None` if requests get none.
    pub request_ids: Option<Ids>,
    pub read_ahead: Arc<ReadAheadBudget>,
    pub shutdown: Shutdown,
    /// Set when visitors are served. Visitors wait until then.
    is_open: SetOnce<()>,
    /// The shutdown of the work for visitors of other nodes, which may go on without visitors here.
    pub relays: Shutdown,
}

/// The ports that are open.
#[derive(Default)]
pub struct OpenPorts {
    /// The address of the shared HTTP port.
    pub http: OnceLock<SocketAddr>,
    /// The address of the shared HTTPS port.
    pub https: OnceLock<SocketAddr>,
    shared: Mutex<Vec<Listener>>,
    relayed: Mutex<HashMap<u16, Listener>>,
}

impl OpenPorts {
    /// The listeners of the shared ports.
    pub fn shared(&self) -> MutexGuard<'_, Vec<Listener>> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The listeners for endpoints of other nodes.
    pub fn relayed(&self) -> MutexGuard<'_, HashMap<u16, Listener>> {
        self.relayed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Gateway {
    /// Returns true if IP restrictions reject addresses, and do not only warn.
    pub fn enforces_ip_restrictions(&self) -> bool {
        self.0.services.settings.enforce_ip_restrictions
    }

    /// The facts about visitor addresses that rules may use.
    pub fn known_addresses(&self) -> AddressKinds {
        self.0.policy_resources.address_kinds
    }

    /// The applications of the operator at OAuth providers.
    pub fn oauth_applications(&self) -> &Arc<OauthApplications> {
        &self.0.policy_resources.applications
    }

    /// Starts to take public traffic on the shared ports, on the current tokio runtime.
    ///
    /// # Errors
    /// When an address cannot be listened on, or TLS cannot be set up.
    pub async fn start(
        settings: GatewaySettings,
        authority: Arc<LocalAuthority>,
    ) -> Result<Self, GatewayError> {
        let gateway = GatewayState::new(settings, authority);
        if let Some(port) = gateway.services.settings.http_port {
            let listener = gateway
                .listen_http(gateway.listen_on_port(port).await?, HostSelection::ByHost(None))?;
            ignore(
                gateway.ports.http.set(listener.address()),
                "a gateway that starts has no address yet",
            );
            gateway.ports.shared().push(listener);
        }
        if let Some(port) = gateway.services.settings.https_port {
            let listener = gateway
                .listen_https(gateway.listen_on_port(port).await?, HostSelection::ByHost(None))?;
            gateway.authority.add_address(listener.address().ip());
            ignore(
                gateway.ports.https.set(listener.address()),
                "a gateway that starts has no address yet",
            );
            gateway.ports.shared().push(listener);
        }
        tokio::spawn(sweep(Arc::downgrade(&gateway), gateway.shutdown.signal()));
        Ok(Self(gateway))
    }

    /// Notes from now on which rules of policies act on requests.
    pub fn enable_rule_notes(&self) {
        self.0.services.notes_rules.store(true, Ordering::Relaxed);
    }

    /// Serves the visitors who have waited, because all routes are known now.
    pub fn open_to_visitors(&self) {
        ignore(self.0.is_open.set(()), "whoever is served already stays so");
    }

    /// The address at which this machine reaches the shared HTTP port.
    pub fn http_address(&self) -> Option<SocketAddr> {
        self.0.ports.http.get().copied().map(reachable_address)
    }

    /// The address at which this machine reaches the shared HTTPS port.
    pub fn https_address(&self) -> Option<SocketAddr> {
        self.0.ports.https.get().copied().map(reachable_address)
    }

    /// The authority that visitors must trust.
    pub fn authority(&self) -> &Arc<LocalAuthority> {
        &self.0.authority
    }

    /// How many connections are held.
    pub fn connection_limit(&self) -> &Arc<ConnectionLimit> {
        &self.0.limit
    }

    /// The traffic counters. `None` if metrics are off.
    pub fn metrics(&self) -> Option<&Arc<GatewayMetrics>> {
        self.0.services.metrics.as_ref()
    }

    /// The counters of an edge.
    pub fn edge_metrics(&self, edge_id: &str) -> Option<Arc<EdgeMetrics>> {
        self.0.services.metrics.as_ref().map(|metrics| metrics.edge_metrics(edge_id))
    }

    /// Takes over those settings that may change while it runs: proxies, paths, timeouts and limits;
    /// connections that are open keep theirs.
    pub fn reconfigure(&self, settings: &GatewaySettings) {
        self.0.services.live.store(Arc::new(settings.clone()));
        self.0.table.targets.pools.set_max_idle(settings.upstream_idle_connections);
        self.0.limit.set_caps(settings.connection_caps());
    }

    /// Returns true if an address is that of a trusted proxy now.
    pub fn trusts(&self, address: IpAddr) -> bool {
        self.0.services.live.load().trusted_proxies.contains(address)
    }

    /// The proxies that are trusted now.
    pub fn trusted_proxies(&self) -> TrustedProxies {
        self.0.services.live.load().trusted_proxies.clone()
    }

    /// Returns true if connections of trusted proxies begin with a header of the PROXY protocol.
    pub fn expects_proxy_protocol(&self) -> bool {
        self.0.services.settings.proxy_protocol
    }

    /// The prefix of error codes.
    pub fn code_prefix(&self) -> &str {
        &self.0.services.settings.code_prefix
    }

    /// Finds the tunnels of labels in `groups` from now on.
    pub fn find_tunnels_in(&self, groups: Arc<dyn TunnelGroups>) {
        self.0.table.targets.find_tunnels_in(groups);
    }

    /// The logins of visitors.
    pub fn logins(&self) -> &Arc<Logins> {
        &self.0.logins
    }

    /// Everything that happens to public traffic from now on, on other nodes too.
    pub fn subscribe_events(&self) -> EventSubscriber {
        self.0.events.subscribe()
    }

    /// The same for only this node.
    pub fn subscribe_local_events(&self) -> EventSubscriber {
        self.0.events.subscribe_locally()
    }

    /// Delivers an event: as actions of policies send requests, never to an API of this process, and with a
    /// mark by which this gateway knows it again. Gives the status of the response, whose body is not read.
    pub async fn deliver_event(
        &self,
        mut request: Fetch,
        reach: Reach,
    ) -> Result<::http::Response<bytes::Bytes>, FetchFailed> {
        request.headers.extend(self.0.delivery_mark.header_for_url(&request.url));
        self.0.fetcher.send_once(&request, DialRole::EventDelivery, reach).await
    }

    /// Marks requests that deliver events with this key, and knows them by it.
    pub fn set_delivery_key(&self, key: &[u8]) {
        self.0.delivery_mark.set_key(key);
    }

    /// Returns true if a subscriber wants the events of other nodes.
    pub fn wants_remote_events(&self) -> bool {
        self.0.events.wants_remote()
    }

    /// Publishes an event of another node.
    pub fn broadcast_event(&self, event: Event) {
        self.0.events.broadcast_event(event);
    }

    /// Returns true if an agent's endpoint has a `host:port` now.
    pub fn is_online(&self, hostport: &str) -> bool {
        let place = HostPortPattern::parse(hostport);
        place.is_ok_and(|it| self.0.table.hosts.has_agent(&it.host_pattern(), it.port()))
    }

    /// Returns true if TLS for a name is passed through as it is.
    pub fn passes_tls(&self, name: &str) -> bool {
        self.0
            .table
            .hosts
            .find_claim(name, 443)
            .is_some_and(|claim| claim.virtual_host.load().passes_tls())
    }

    /// The host names that edges and agents' endpoints have on the HTTPS port, without wildcards.
    pub fn https_names(&self) -> Vec<String> {
        self.0.table.hosts.https_names()
    }

    /// Waits until host names have changed since this was last waited for.
    pub async fn wait_for_names(&self) {
        self.0.table.hosts.wait_for_change().await;
    }

    /// Changes the virtual hosts of hosts on the shared ports. Other changes wait meanwhile.
    pub fn change_names(&self) -> HostChanges<'_> {
        self.0.table.hosts.begin_change()
    }

    /// Sets the number of TLS edges.
    pub fn set_tls_edges(&self, count: usize) {
        self.0.table.set_tls_edges(count);
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

    /// Returns true if a port can be listened on now.
    pub fn can_listen(&self, port: u16) -> bool {
        self.0.bind_port_now(port).is_ok()
    }

    /// Returns a port that is free now, if there is one.
    pub fn free_port(&self) -> Option<u16> {
        self.0.free_port()
    }

    /// The address of a port for visitors, as endpoints at it have it.
    pub fn address_of(&self, port: u16) -> String {
        self.0.address_of(port)
    }

    /// Returns the address of a host on the shared ports. `None` if the port for it is not open.
    pub fn url_of(&self, host: &str, secure: bool) -> Option<String> {
        self.0.url_of(host, secure)
    }

    /// The port at which visitors reach the shared HTTPS port. `None` if TLS does not end here.
    pub fn tls_port(&self) -> Option<u16> {
        self.https_address().and_then(|_| self.0.public_port(true))
    }

    /// A target with its connections.
    pub fn upstream_for_target(&self, target: Arc<dyn Target>) -> Upstream {
        self.0.table.targets.upstream(target)
    }

    /// The place of the rules of an IP policy, which need not exist.
    pub fn ip_policy(&self, id: &str) -> Arc<ArcSwap<IpRules>> {
        self.0.policy_resources.ip_policies.policy_rules(id)
    }

    /// The secrets that policies of edges and cloud endpoints read.
    pub fn secrets(&self) -> &Arc<SecretTable> {
        &self.0.policy_resources.secrets
    }

    /// From where visitors, agents and callers may come.
    pub fn restrictions(&self) -> &IngressRestrictions {
        &self.0.restrictions
    }

    /// Returns true if new connections are rejected.
    pub fn is_closing(&self) -> bool {
        self.0.shutdown.phase() >= ShutdownPhase::Graceful
    }

    /// Drops the idle connections to the target with this key, which takes no more requests; those
    /// that carry one are dropped when it has ended.
    pub fn close_idle(&self, key: &str) {
        self.0.table.targets.pools.close_pool(key);
    }

    /// Asks visitors to make their next connections elsewhere. Connections that they make here are served.
    pub fn start_drain(&self) {
        self.0.shutdown.begin_phase(ShutdownPhase::Draining);
    }

    /// Takes no more connections and requests; those in flight are finished.
    pub fn close(&self) {
        self.0.shutdown.begin_phase(ShutdownPhase::Graceful);
        self.0.ports.shared().clear();
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
    /// The state of a gateway that listens nowhere.
    fn new(settings: GatewaySettings, authority: Arc<LocalAuthority>) -> Arc<Self> {
        let settings = settings.normalized();
        let live = Arc::new(ArcSwap::from_pointee(settings.clone()));
        let proxies = live.clone();
        let limit = ConnectionLimit::new("visitors", settings.connection_caps(), move |address| {
            proxies.load().trusted_proxies.contains(address)
        });
        let metrics = settings.metrics.then(|| Arc::new(GatewayMetrics::new(settings.request_ids)));
        let request_ids =
            settings.request_ids.then(|| Ids::from_origin(settings.origin.derive_part(4)));
        authority.add_host(&settings.host);
        let fetcher = Arc::<Fetcher>::default();
        let key_sets = KeySets::new(fetcher.clone());
        let logins = Logins::new(authority.login_key(), fetcher.clone(), key_sets.clone());
        let targets = TargetDirectory::new(settings.upstream_idle_connections);
        let table = Arc::new(RouteTable::new(targets));
        let policy_resources = PolicyResources::of(&settings);
        let is_open = SetOnce::new_with((!settings.opens_later).then_some(()));
        let services = RequestServices {
            settings: Arc::new(settings),
            live,
            metrics,
            key_sets,
            logins: Box::new(logins.clone()),
            hosts: Box::new(table.clone()),
            notes_rules: AtomicBool::new(false),
        };
        Arc::new(Self {
            services,
            table,
            endpoint_pools: Arc::default(),
            policy_resources: Arc::new(policy_resources),
            ports: OpenPorts::default(),
            authority,
            runtime: tokio::runtime::Handle::current(),
            restrictions: IngressRestrictions::default(),
            events: EventBus::default(),
            fetcher,
            logins,
            delivery_mark: DeliveryMark::default(),
            limit,
            request_ids,
            read_ahead: Arc::default(),
            shutdown: Shutdown::default(),
            is_open,
            relays: Shutdown::default(),
        })
    }

    /// The timeouts as they are now.
    pub fn timeouts(&self) -> Timeouts {
        self.services.timeouts()
    }

    /// Waits until visitors are served.
    pub async fn wait_until_open(&self) {
        self.is_open.wait().await;
    }

    /// The byte counters of a protocol.
    pub fn bytes_of(&self, proto: &str) -> Option<Arc<ByteCounts>> {
        self.services.metrics.as_ref().map(|metrics| metrics.protocol_bytes(proto))
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
        gateway.table.targets.pools.sweep_idle(max_idle);
        interval = (max_idle / 2).clamp(MIN_SWEEP_INTERVAL, MAX_SWEEP_INTERVAL);
    }
}
