//! The self-hosted service: answers the operations of the management API from a database.
//!
//! A request comes in through a listener, finds its path template in `routes`, passes the checks of
//! `pipeline`, is turned into the arguments of its operation by `decode`, and reaches the handler
//! in `handlers` that has the name of its resource. The handler reads and writes through `store`.
//! Whatever is wrong on the way is a [`Refusal`], which becomes HTTP at the end of `pipeline`.
//!
//! What faces the public is the [`gateway`]: `publish` compiles what the store says and
//! hands it over.

mod accounts;
mod acme;
mod address;
mod agents;
mod audit;
mod authority;
mod backup;
mod body;
mod callers;
mod certificates;
mod check;
mod cloud_endpoint;
mod cluster;
pub mod code;
pub mod config;
mod console;
mod context;
mod cors;
mod decode;
mod domains;
mod error;
mod events;
pub mod handlers;
mod home;
mod live;
mod logins;
mod monitoring;
mod not_offered;
mod oauth;
mod options;
mod pipeline;
mod preflight;
mod publish;
mod rate_limit;
mod reconfigure;
mod references;
mod refusal;
mod rehearsal;
pub mod reload;
mod restrictions;
mod routes;
pub mod store;
mod store_copy;
mod tokens;
mod vaults;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::pin::{Pin, pin};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

pub use crate::gateway::{TrustedProxies, TrustedProxyError};
pub use acme::{AcmeChallenge, AcmeOptions};
pub use backup::{BackupSchedule, BackupStatus};
pub use decode::decode;
pub use error::Error;
pub use events::EventOptions;
pub use live::ApiLimits;
pub use oauth::{OauthOptions, OauthProviderOptions};
pub use options::{Options, read_admin_key, read_authtoken};
pub use refusal::Refusal;
pub use rehearsal::{Called, InjectedFault};
pub use store_copy::copy_store;
pub use tokens::new_admin_key;

use arc_swap::ArcSwap;

use crate::admin::AdminListener;
use crate::api::Secret;
use crate::api::id::Ids;
use crate::gateway::tls::authority::Authority;
use crate::gateway::{self, Gateway};
use crate::logging::or_debug;
use crate::net::ConnectionLimit;
pub use crate::net::{AcceptFailures, Refusals};
use crate::net::{Listener, Shutdown, serve_api};
use acme::{AcmeManager, ManagedService, SharedChallenges};
use address::Base;
use agents::{AgentListener, AgentsState, BoundAgentListener, Registry};
use audit::AuditTrail;
use backup::{BackupDownloads, BackupProgress};
use callers::Callers;
use cluster::{BoundPeerListener, Cluster, NodeOptions, PeerServices, Peers};
use console::ServiceConsole;
use context::ServiceState;
use events::{DispatchServices, EventDispatcher, EventMetrics, EventRecorder};
use live::ApiSettings;
use monitoring::{ApiMetrics, ServiceMonitor};
use publish::Publisher;
use rehearsal::Rehearsal;
use reload::ReloadRequests;
use store::{Snapshot, Store};
use tokens::{TokenFiles, Tokens, UnshownTokens};
use vaults::{KeyCheck, VaultKey};

use crate::net::private::PrivateListener;

/// A service at work; many may run in one process.
///
/// Dropping it takes no more requests; [`Service::stop`] also waits until the database is closed.
pub struct Service {
    shared: Arc<ServiceState>,
    /// Of the management API.
    shutdown: Shutdown,
    _listener: Listener,
    /// The limit of the management API.
    limit: Arc<ConnectionLimit>,
    agents: Option<AgentListener>,
    url: String,
    tokens: Tokens,
    token_files: TokenFiles,
    monitor: Arc<ServiceMonitor>,
    /// The last to close.
    admin: Option<AdminListener>,
    /// Obtains certificates, where that is wanted.
    acme: Option<AcmeManager>,
    _challenges: Option<Arc<SharedChallenges>>,
    /// Tells others what has changed.
    events: Option<EventDispatcher>,
    /// Dropped last, when nothing can lead to the management API any more.
    _private: PrivateListener,
}

impl Service {
    /// Starts a service on the current tokio runtime.
    ///
    /// # Errors
    /// When an option is wrong, the address cannot be listened on, or the database cannot be used.
    pub async fn start(options: Options) -> Result<Self, Error> {
        options.check()?;
        let listeners = options.listeners().into_iter();
        let listeners: Vec<_> =
            listeners.map(|(key, host, port)| (key, format!("{host}:{port}"))).collect();
        Self::launch(options).await.map_err(|error| error.of_listener(&listeners))
    }

    async fn launch(options: Options) -> Result<Self, Error> {
        let monitor = Arc::<ServiceMonitor>::default();
        let admin = admin(options.admin_addr.as_deref(), &monitor).await?;
        let (socket, address) = options.bind().await?;
        let url = options::url_of(address);
        let private = PrivateListener::new(address);
        let live = Arc::new(ArcSwap::from_pointee(ApiSettings::of(&options)));
        let proxies = live.clone();
        let limit =
            ConnectionLimit::new("API clients", options.management_caps(), move |address| {
                proxies.load().trusted_proxies.contains(address)
            });
        let (mut gateway_settings, agent_settings) =
            (options.gateway_settings(), options.agent_settings());
        gateway_settings.addresses = options.addresses()?;
        let applications = options.oauth.applications()?;
        let audit_settings = options.audit_settings();
        let base = Base::new(options.public_url.as_deref().unwrap_or(&url));
        let path = options.path.as_deref().map(store::resolve);
        let tokens =
            Tokens { admin_key: options.admin_key.clone(), authtoken: options.authtoken.clone() };
        let token_files = TokenFiles::of(path.as_deref(), &tokens);
        let opened = open(path.clone(), &options, token_files.clone(), tokens.clone());
        let store = Arc::new(opened.await?);
        let vault_key = match vault_key(&store, &options, path.as_deref()).await {
            Ok(key) => key,
            Err(error) => {
                close(store).await;
                return Err(error);
            }
        };
        let joined = join(&store, &options).await;
        let (cluster, peer_listener) = match joined {
            Ok(joined) => joined,
            Err(error) => {
                close(store).await;
                return Err(error);
            }
        };
        let has_acme = options.acme.directory.is_some();
        let backups = Arc::<BackupProgress>::default();
        let downloads = BackupDownloads::of(path.as_deref());
        backup::start(&store, options.backup.clone(), path.clone(), backups.clone());
        let prepared = async {
            let stored = match options.store {
                Some(_) => Some(authority::stored_or_new(&store).await?),
                None => None,
            };
            let authority = authority::open(stored, path, options.certificate).await?;
            if let Some(host) = options::host_of(options.public_url.as_deref()) {
                authority.add_host(&host);
            }
            let gateway = Gateway::start(gateway_settings, authority).await?;
            gateway.oauth_applications().replace(applications);
            let opened = async {
                let audit = AuditTrail::start(&store, audit_settings).await?;
                let publisher =
                    Publisher::start(gateway.clone(), &store, vault_key.clone()).await?;
                logins::start(&store, &gateway);
                let registry = Arc::new(Registry::new(cluster.clone()));
                let peers = peers(peer_listener, cluster.as_ref(), &gateway, &registry)?;
                gateway.open();
                let ids = Ids::of(options.origin.part(2));
                let name = cluster.as_ref().map(|cluster| cluster.node().record.name);
                let state = |settings| AgentsState {
                    settings: Arc::new(ArcSwap::from_pointee(settings)),
                    store: store.clone(),
                    gateway: gateway.clone(),
                    registry: registry.clone(),
                    ids,
                    cluster: cluster.clone(),
                    node: name.map(OnceLock::from).unwrap_or_default(),
                };
                let agents = agents(agent_settings.map(state), &gateway).await?;
                // Last, because new tokens are shown once: by whoever has got a service.
                let files = token_files.clone();
                let configured = tokens.clone();
                let objects = handlers::event_objects::all(&base, &gateway, has_acme);
                let events = EventRecorder::new(objects);
                let recorder = events.clone();
                let prepare = move |change: &store::Transaction<'_>| files.prepare(change, tokens);
                let tokens = store.write(move |change| recorder.recorded(change, None, prepare));
                let tokens = tokens.await?;
                let unshown = UnshownTokens::of(options.store.is_some(), &configured, &tokens);
                let agents = agents.map(BoundAgentListener::open).transpose()?;
                Ok((publisher, (registry, peers), agents, (tokens, unshown), (audit, events)))
            };
            match opened.await {
                Ok((publisher, registry, agents, tokens, audit)) => {
                    Ok((gateway, publisher, registry, agents, tokens, audit))
                }
                Err(error) => {
                    gateway.close();
                    Err(error)
                }
            }
        };
        let (gateway, publisher, (registry, peers), agents, (tokens, unshown), (audit, events)) =
            match prepared.await {
                Ok(prepared) => prepared,
                Err(error) => {
                    leave(cluster.as_ref()).await;
                    close(store).await;
                    return Err(error);
                }
            };
        let shared = ServiceState {
            callers: Callers::of(&store),
            events,
            event_metrics: Arc::<EventMetrics>::default(),
            has_event_folder: options.events.folder.is_some(),
            store,
            base,
            code_prefix: options.code_prefix,
            live: live.clone(),
            reloads: ReloadRequests::default(),
            reserved_domains_only: options.reserved_domains_only,
            has_acme,
            gateway,
            vault_key,
            publisher,
            registry,
            cluster,
            peers,
            audit,
            backups,
            certificates: Arc::default(),
            downloads,
            rehearsal: Rehearsal::new(options.kept_calls),
            operation_ids: Ids::of(options.origin.part(1)),
            metrics: admin.is_some().then(ApiMetrics::default),
            origin: options.origin,
        };
        let shared = Arc::new(shared);
        handlers::reserved_domains::follow(&shared);
        handlers::reserved_addrs::follow(&shared);
        let acme = acme(&options.acme, &shared, options.public_url.as_deref());
        let started = match acme {
            Ok(acme) => dispatcher(&shared, options.events).await.map(|events| (acme, events)),
            Err(error) => Err(error),
        };
        let (acme, events) = match started {
            Ok(started) => started,
            Err(error) => {
                shared.gateway.close();
                leave(shared.cluster.as_ref()).await;
                close(shared.store.clone()).await;
                return Err(error);
            }
        };
        let challenges = shared.cluster.as_ref().map(|cluster| {
            let challenges = shared.gateway.authority().challenges().clone();
            SharedChallenges::start(&shared.store, cluster, challenges)
        });
        let shutdown = Shutdown::default();
        let console = options.console.then(|| ServiceConsole::new(&shared, &monitor, &shutdown));
        let api = routes::service(&shared, console);
        let timeouts = move || live.load().limits.timeouts();
        let listener = serve_api(socket, api, limit.clone(), timeouts, &shutdown);
        let listener = listener.map_err(|source| Error::Bind { address: url.clone(), source })?;
        monitor.started(&shared, &limit, agents.as_ref());
        unshown.show();
        Ok(Self {
            shared,
            shutdown,
            _listener: listener,
            limit,
            agents,
            url,
            tokens,
            token_files,
            monitor,
            admin,
            acme,
            _challenges: challenges,
            events: Some(events),
            _private: private,
        })
    }

    /// The address of the listener, without a slash at its end.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The address that stands in `uri` fields.
    pub fn public_url(&self) -> &str {
        self.shared.base.as_str()
    }

    /// The admin key: the one that was given, or the one made at the first start of the database until
    /// [`Service::remove_token_files`] was called for it.
    pub fn api_key(&self) -> Option<&Secret> {
        self.tokens.admin_key.as_ref()
    }

    /// The authtoken for agents, in the same way.
    pub fn authtoken(&self) -> Option<&Secret> {
        self.tokens.authtoken.as_ref()
    }

    /// Removes the files that hold the tokens of the first start, `<path>-admin-key` and
    /// `<path>-authtoken`: to be called once the tokens are shown. [`Service::stop`] does it as well; until then every
    /// start gives them.
    pub fn remove_token_files(&self) {
        self.token_files.remove();
    }

    /// Leaves those files, because nobody can have seen the tokens: the next start gives them again.
    pub fn keep_token_files(&mut self) {
        self.token_files = TokenFiles::default();
    }

    /// What becomes wrong with the storage from now on, and what is right again.
    pub fn storage_health(&self) -> store::HealthEvents {
        self.shared.store.health_events()
    }

    /// How the backups of [`Options::backup`] go.
    pub fn backup_status(&self) -> BackupStatus {
        self.shared.backups.status()
    }

    /// Names whose certificate could not be obtained or renewed, and why, as far as it was not asked for.
    pub fn take_certificate_failures(&self) -> Vec<(String, String)> {
        self.shared.certificates.take_failures()
    }

    /// Where agents connect to, if anywhere.
    pub fn agent_address(&self) -> Option<SocketAddr> {
        self.agents.as_ref().map(|agents| agents.address())
    }

    /// Where `/healthz`, `/readyz` and `/metrics` are, if anywhere.
    pub fn admin_address(&self) -> Option<SocketAddr> {
        self.admin.as_ref().map(AdminListener::address)
    }

    /// The public addresses.
    pub fn gateway(&self) -> &Gateway {
        &self.shared.gateway
    }

    /// What is decided on the public traffic of this node from now on.
    pub fn own_events(&self) -> gateway::EventSubscriber {
        self.shared.gateway.own_events()
    }

    /// What is decided on public traffic from now on, on other nodes too.
    pub fn events(&self) -> gateway::EventSubscriber {
        self.shared.gateway.events()
    }

    /// The connections that were closed at once because there were too many, since this was last
    /// asked.
    pub fn take_refusals(&self) -> Vec<Refusals> {
        self.limits().filter_map(|limit| limit.take_refusals()).collect()
    }

    /// Why the system gave no connections to listeners, since this was last asked.
    pub fn take_accept_failures(&self) -> Vec<AcceptFailures> {
        self.limits().filter_map(|limit| limit.take_failures()).collect()
    }

    fn limits(&self) -> impl Iterator<Item = &Arc<ConnectionLimit>> {
        let agents = self.agents.as_ref().map(AgentListener::limit);
        [Some(self.shared.gateway.limit()), Some(&self.limit), agents].into_iter().flatten()
    }

    /// Has calls of an operation fail from now on.
    pub fn fail(&self, fault: InjectedFault) {
        self.shared.rehearsal.fail(fault);
    }

    /// The calls that were made, the oldest first: as many as `kept_calls` says.
    pub fn calls(&self) -> Vec<Called> {
        self.shared.rehearsal.calls()
    }

    /// Forgets the faults that were asked for, and the calls.
    pub fn forget(&self) {
        self.shared.rehearsal.reset();
    }

    /// Sets the clock of [`Options::origin`] forward; false where it is the system's.
    pub fn advance(&self, by: Duration) -> bool {
        self.shared.origin.advance(by)
    }

    /// Tells agents which node of a cluster this service is, as one on PostgreSQL does by itself; for tests
    /// of agents. False where they have another name, or no agents are accepted.
    pub fn name_node(&self, name: &str) -> bool {
        self.agents.as_ref().is_some_and(|agents| agents.name_node(name))
    }

    /// Everything that the database holds now. What agents have bound is not part of it.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub fn snapshot(&self) -> Result<Snapshot, Error> {
        self.shared.store.read_blocking(|view| Ok(view.snapshot()?))
    }

    /// Makes the database hold what it held at the moment of the snapshot.
    ///
    /// # Errors
    /// When the database cannot be written.
    pub async fn restore(&self, snapshot: Snapshot) -> Result<(), Error> {
        self.shared.write(move |change| Ok(change.restore(&snapshot)?)).await
    }

    /// Is not ready any more for as long as [`Options::drain_delay`], takes no more requests then,
    /// answers those in flight for as long as `grace`, and closes the database.
    pub async fn stop(self, grace: Duration) {
        self.stop_or_force(grace, std::future::pending()).await;
    }

    /// Does what [`Service::stop`] does, and cuts off whoever is still being served when `force`
    /// completes before the grace is over.
    pub async fn stop_or_force(mut self, grace: Duration, force: impl Future<Output = ()>) {
        let mut force = pin!(force);
        let is_forced = self.drain(force.as_mut()).await;
        // What is only kept back on purpose is not waited for.
        self.shared.rehearsal.reset();
        self.acme = None;
        if let Some(agents) = self.agents.take() {
            agents.close();
        }
        let (gateway, store) = (&self.shared.gateway, self.shared.store.clone());
        let visitors = async { tokio::join!(gateway.stop(grace), self.drain_agents(grace)) };
        tokio::select! {
            _ = async { tokio::join!(self.shutdown.stop(grace), visitors) }, if !is_forced => {}
            () = end_lock_waits(&store, grace) => {}
            () = async { if !is_forced { force.await } } => {
                store.end_lock_waits();
                tokio::join!(self.shutdown.stop(Duration::ZERO), gateway.stop(Duration::ZERO));
            }
        }
        // Before another node takes over.
        if let Some(events) = self.events.take() {
            events.stop().await;
        }
        // Before agents are let go: visitors of other nodes are led elsewhere from now on.
        leave(self.shared.cluster.as_ref()).await;
        self.shared.registry.dismiss().await;
        gateway.end_relays().await;
        if let Some(peers) = &self.shared.peers {
            peers.stop().await;
        }
        let flushed =
            tokio::time::timeout(FLUSH_TIMEOUT, self.shared.audit.flush(&self.shared.store));
        or_debug!(flushed.await, "the last events of refused calls are not written");
        let flush = logins::flush(&self.shared.store, self.shared.gateway.logins());
        let flushed = tokio::time::timeout(FLUSH_TIMEOUT, flush);
        or_debug!(flushed.await, "the last use of sessions is not stored");
        self.remove_token_files();
        close(self.shared.store.clone()).await;
    }

    /// Lets agents go to other nodes, where there are any, as soon as they carry nothing.
    async fn drain_agents(&self, grace: Duration) {
        let Some(cluster) = &self.shared.cluster else { return };
        if grace.is_zero() {
            return;
        }
        cluster.drain().await;
        self.shared.registry.drain(&self.shared.gateway, grace).await;
    }

    /// Is not ready any more, and waits for whoever looks at that; true when `force` ends the wait.
    async fn drain(&self, force: Pin<&mut impl Future<Output = ()>>) -> bool {
        self.monitor.drain();
        let delay = self.shared.live.load().drain_delay;
        if delay.is_zero() {
            return false;
        }
        tokio::select! {
            () = tokio::time::sleep(delay) => false,
            () = force => true,
        }
    }
}

/// Listens for whoever watches the service, where that is wanted.
async fn admin(
    address: Option<&str>,
    monitor: &Arc<ServiceMonitor>,
) -> Result<Option<AdminListener>, Error> {
    let Some(address) = address else { return Ok(None) };
    let started = AdminListener::start(address, monitor.clone()).await;
    let failed = |source| Error::AdminAddress { address: address.to_owned(), source };
    started.map(Some).map_err(failed)
}

/// Tells other nodes, where there are any, that this one stops.
async fn leave(cluster: Option<&Arc<Cluster>>) {
    if let Some(cluster) = cluster {
        cluster.stop().await;
    }
}

/// Makes the service a node, where its database has nodes; the listener for others is open before they
/// hear of it.
async fn join(
    store: &Arc<Store>,
    options: &Options,
) -> Result<(Option<Arc<Cluster>>, Option<BoundPeerListener>), Error> {
    let (listener, peer_address) = match &options.peer_addr {
        Some(address) if options.store.is_some() => listen_for_peers(address, options).await?,
        _ => (None, None),
    };
    let node = NodeOptions { name: options.node_name.clone(), peer_address };
    Ok((Cluster::join(store, node).await?, listener))
}

/// Listens for other nodes; with it comes the address that they connect to.
async fn listen_for_peers(
    address: &str,
    options: &Options,
) -> Result<(Option<BoundPeerListener>, Option<String>), Error> {
    let own = options.peer_listen_addr.as_deref();
    let listener = BoundPeerListener::bind(own.unwrap_or(address)).await?;
    let public = own.map_or_else(|| listener.public_address(), |_| address.to_owned());
    Ok((Some(listener), Some(public)))
}

/// Connects to the other nodes, and has the gateway find what they serve.
fn peers(
    listener: Option<BoundPeerListener>,
    cluster: Option<&Arc<Cluster>>,
    gateway: &Gateway,
    registry: &Arc<Registry>,
) -> Result<Option<Arc<Peers>>, Error> {
    let (Some(listener), Some(cluster)) = (listener, cluster) else {
        gateway.find_tunnels_in(registry.clone());
        return Ok(None);
    };
    let services = PeerServices {
        gateway: gateway.clone(),
        registry: registry.clone(),
        cluster: Some(cluster.clone()),
    };
    let peers = listener.open(cluster.directory.clone(), gateway.authority(), services)?;
    let routing = peers.routing();
    gateway.find_tunnels_in(routing.clone());
    gateway.find_hosts_in(routing);
    Ok(Some(Arc::new(peers)))
}

/// Listens for agents, where they are accepted.
async fn agents(
    state: Option<AgentsState>,
    gateway: &Gateway,
) -> Result<Option<BoundAgentListener>, Error> {
    let Some(state) = state else { return Ok(None) };
    Ok(Some(BoundAgentListener::bind(Arc::new(state), gateway.authority()).await?))
}

/// Has events delivered, to those who want any.
async fn dispatcher(
    shared: &ServiceState,
    options: EventOptions,
) -> Result<EventDispatcher, Error> {
    let services = DispatchServices {
        store: shared.store.clone(),
        gateway: shared.gateway.clone(),
        cluster: shared.cluster.clone(),
        metrics: shared.event_metrics.clone(),
        recorder: shared.events.clone(),
        origin: shared.origin.clone(),
    };
    Ok(EventDispatcher::start(services, options).await?)
}

/// Obtains certificates by ACME, where that is wanted.
fn acme(
    options: &AcmeOptions,
    shared: &ServiceState,
    public_url: Option<&str>,
) -> Result<Option<AcmeManager>, Error> {
    if options.directory.is_none() {
        return Ok(None);
    }
    let (store, gateway) = (shared.store.clone(), shared.gateway.clone());
    let (own_name, cluster) = (options::host_of(public_url), shared.cluster.clone());
    let (progress, events) = (shared.certificates.clone(), shared.events.clone());
    let managed = ManagedService { store, gateway, own_name, cluster, progress, events };
    AcmeManager::start(options, managed).map(Some)
}

impl Drop for Service {
    fn drop(&mut self) {
        if let Some(cluster) = &self.shared.cluster {
            cluster.close();
        }
        self.shared.gateway.close();
    }
}

/// Opens the database; a new one has its authority and its tokens, and nobody sees it without them.
async fn open(
    path: Option<PathBuf>,
    options: &Options,
    files: TokenFiles,
    tokens: Tokens,
) -> Result<Store, Error> {
    let (origin, store) = (options.origin.part(0), options.store.clone());
    let missing_log = options.missing_log();
    let opened = tokio::task::spawn_blocking(move || {
        if let Some(store) = store {
            return Ok(Store::open_postgres(store, origin)?);
        }
        let path = path.as_deref();
        Store::open_filled(path, origin, missing_log, |change| {
            Authority::open(path).map_err(Error::Authority)?;
            files.prepare(change, tokens).map(drop)
        })
    });
    opened.await.map_err(|_| store::StoreError::Panicked)?
}

/// The key of secrets, which is that of the database where it has any, or of the nodes that share it.
async fn vault_key(
    store: &Store,
    options: &Options,
    path: Option<&Path>,
) -> Result<Arc<VaultKey>, Error> {
    let key = VaultKey::of(options, path)?;
    let checked = key.clone();
    if store.read(move |view| checked.check(view)).await? == KeyCheck::Unknown {
        let noted = key.clone();
        store.write(move |change| noted.note(change)).await?;
    }
    Ok(key)
}

/// How long the last events of the audit trail may take to be written, and the last use of sessions.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(3);
/// How long before the end of the grace period waits for locks end, so that their writes are answered.
const TIME_TO_ANSWER: Duration = Duration::from_millis(500);

/// Has writes that wait for a lock answered within the time; never ends.
async fn end_lock_waits(store: &Store, grace: Duration) {
    tokio::time::sleep(grace.saturating_sub(TIME_TO_ANSWER)).await;
    store.end_lock_waits();
    std::future::pending().await
}

async fn close(store: Arc<Store>) {
    // Fails only where closing panics, and there is nobody left to tell.
    or_debug!(
        tokio::task::spawn_blocking(move || store.close()).await,
        "closing the database broke"
    );
}
