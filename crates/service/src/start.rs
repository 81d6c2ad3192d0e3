//! How a service starts: one part after another, from the first socket to the management API.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwap;
use tokio::net::TcpListener;

use ginnel_api::id::Ids;
use ginnel_base::address::reachable_address;
use ginnel_gateway::tls::authority::LocalAuthority;
use ginnel_gateway::{Gateway, GatewaySettings};
use ginnel_net::admin::AdminListener;
use ginnel_net::private::PrivateListener;
use ginnel_net::{ApiService, ConnectionLimit, Listener, Shutdown, serve_api};
use ginnel_policy::login::{OauthApplication, OauthProvider};

use super::acme::{AcmeManager, ManagedService, SharedChallenges};
use super::address::Base;
use super::agents::{AgentListener, AgentsState, BoundAgentListener, Registry};
use super::audit::AuditTrail;
use super::backup::{self, BackupDownloads, BackupProgress};
use super::callers::Callers;
use super::cluster::{BoundPeerListener, Cluster, PeerServices, Peers};
use super::console::ServiceConsole;
use super::context::ServiceState;
use super::error::Error;
use super::events::{DispatchServices, EventDispatcher, EventMetrics, EventRecorder};
use super::live::LiveSettings;
use super::monitoring::{ApiMetrics, ServiceMonitor};
use super::open_parts::OpenParts;
use super::options::Options;
use super::publish::Publisher;
use super::rehearsal::Rehearsal;
use super::reload::ReloadRequests;
use super::store::{self, Store, Transaction};
use super::tokens::{TokenFiles, TokenSettings, UnshownTokens};
use super::vaults::VaultKey;
use super::{Service, authority, handlers, logins, routes};

impl Service {
    /// Opens everything that the options name. A start that fails closes all parts.
    pub(super) async fn launch(options: Options) -> Result<Self, Error> {
        let (mut start, socket) = ServiceStart::open(options).await?;
        let served = match start.build().await {
            Ok(built) => start.serve(built, socket).await,
            Err(error) => Err(error),
        };
        match served {
            Ok(served) => Ok(start.into_service(served)),
            Err(error) => {
                start.parts.close().await;
                Err(error)
            }
        }
    }
}

/// A service that is starting.
struct ServiceStart {
    /// First, so that a start that is cancelled takes no more traffic.
    parts: OpenParts,
    options: Options,
    front: Front,
    /// The file of the database.
    path: Option<PathBuf>,
    tokens: TokenSettings,
    token_files: TokenFiles,
    /// The operator's clients at providers of OAuth.
    applications: Vec<(OauthProvider, OauthApplication)>,
}

/// The parts on which the management API rests.
struct BuiltParts {
    state: Arc<ServiceState>,
    agents: Option<AgentListener>,
    unshown: UnshownTokens,
}

/// The parts that only the service itself refers to.
struct ServingParts {
    built: BuiltParts,
    shutdown: Shutdown,
    listener: Listener,
    acme: Option<AcmeManager>,
    challenges: Option<Arc<SharedChallenges>>,
    events: EventDispatcher,
}

impl ServiceStart {
    /// Opens the listeners and the database.
    async fn open(mut options: Options) -> Result<(Self, TcpListener), Error> {
        let (front, socket) = Front::open(&options).await?;
        options.gateway.addresses = options.addresses.open()?;
        let applications = options.oauth.applications()?;
        let path = options.store.path.as_deref().map(store::resolve_links);
        let tokens = options.tokens.clone();
        let token_files = TokenFiles::for_database(path.as_deref(), &tokens);
        let store = open_store(path.clone(), &options, &token_files, &tokens).await?;
        let parts = OpenParts::new(store);
        let start = Self { parts, options, front, path, tokens, token_files, applications };
        Ok((start, socket))
    }

    /// Starts the parts on which the management API rests, one after another.
    async fn build(&mut self) -> Result<BuiltParts, Error> {
        let (options, store) = (&self.options, self.parts.store.clone());
        let (path, origin) = (self.path.as_deref(), &options.origin);
        store.start_clock(origin.clone(), options.store.trust_clock).await?;
        let vault_key = VaultKey::of_database(&store, &options.vaults, path).await?;
        let (cluster, peer_listener) = Cluster::start_node(&store, &options.cluster).await?;
        self.parts.cluster.clone_from(&cluster);
        let backups = backup::start_schedule(&store, options.backup.clone(), path);
        let gateway = self.start_gateway().await?;
        self.parts.gateway = Some(gateway.clone());
        let options = &self.options;
        let code_prefix = options.gateway.code_prefix.clone();
        let audit = AuditTrail::start(
            &store,
            options.audit.clone(),
            options.origin.derive_part(4),
            code_prefix,
        )
        .await?;
        let publisher = Publisher::start(gateway.clone(), &store, vault_key.clone()).await?;
        logins::start_logins(&store, &gateway);
        let registry = Arc::new(Registry::new(cluster.clone()));
        let peers = connect_peers(peer_listener, cluster, &gateway, &registry)?;
        gateway.open_to_visitors();
        let agents = self.bind_agents(&gateway, &registry).await?;
        // Last, because new tokens are shown only once, after the start.
        let (events, unshown) = self.prepare_tokens(&gateway).await?;
        let agents = agents.map(BoundAgentListener::start_accepting).transpose()?;
        let parts =
            StateParts { vault_key, backups, gateway, audit, publisher, registry, peers, events };
        Ok(BuiltParts { state: Arc::new(self.state(parts)), agents, unshown })
    }

    /// Starts to obtain certificates, to deliver events and to serve the management API.
    async fn serve(
        &mut self,
        built: BuiltParts,
        socket: TcpListener,
    ) -> Result<ServingParts, Error> {
        let state = &built.state;
        handlers::reserved_domains::follow_reservations(state);
        handlers::reserved_addrs::follow_reservations(state);
        let acme = AcmeManager::start(&self.options.acme, self.managed_by_acme(state))?;
        let events = start_dispatcher(state, &self.options).await?;
        let challenges = state.cluster.as_ref().map(|cluster| {
            let challenges = state.gateway.authority().challenges().clone();
            SharedChallenges::start(&state.store, cluster, challenges)
        });
        let (front, shutdown) = (&self.front, Shutdown::default());
        let has_console = self.options.management.console;
        let console = has_console.then(|| ServiceConsole::new(state, &front.monitor, &shutdown));
        let listener = front.serve(socket, routes::api_service(state, console), &shutdown)?;
        front.monitor.mark_started(state, &front.limit, built.agents.as_ref());
        Ok(ServingParts { built, shutdown, listener, acme, challenges, events })
    }

    fn into_service(self, served: ServingParts) -> Service {
        let ServingParts { built, shutdown, listener, acme, challenges, events } = served;
        built.unshown.mark_shown();
        let Front { monitor, admin, url, private, limit, .. } = self.front;
        Service {
            parts: self.parts,
            shared: built.state,
            shutdown,
            _listener: listener,
            limit,
            agents: built.agents,
            url,
            tokens: self.tokens,
            token_files: self.token_files,
            monitor,
            admin,
            acme,
            _challenges: challenges,
            events: Some(events),
            _private: private,
        }
    }

    /// Starts the gateway, which serves visitors once it is opened.
    async fn start_gateway(&mut self) -> Result<Gateway, Error> {
        let (store, options) = (&self.parts.store, &self.options);
        let stored = match options.store.server {
            Some(_) => Some(authority::stored_or_new(store).await?),
            None => None,
        };
        let certificate = options.certificate.files();
        let authority = authority::open_authority(stored, self.path.clone(), certificate).await?;
        if let Some(host) = options.management.public_host() {
            authority.add_host(&host);
        }
        let settings = GatewaySettings {
            opens_later: true,
            origin: options.origin.derive_part(3),
            metrics: options.monitoring.admin_addr.is_some(),
            ..options.gateway.clone()
        };
        let gateway = Gateway::start(settings, authority).await?;
        gateway.oauth_applications().replace_all(std::mem::take(&mut self.applications));
        Ok(gateway)
    }

    /// Listens for agents, if they are accepted.
    async fn bind_agents(
        &self,
        gateway: &Gateway,
        registry: &Arc<Registry>,
    ) -> Result<Option<BoundAgentListener>, Error> {
        let (options, cluster) = (&self.options, self.parts.cluster.clone());
        let Some(port) = options.agents.port else { return Ok(None) };
        let name = cluster.as_ref().map(|cluster| cluster.own_node().record.name);
        let state = Arc::new(AgentsState {
            settings: Arc::new(ArcSwap::from_pointee(options.agents.clone())),
            domains: options.domains,
            store: self.parts.store.clone(),
            gateway: gateway.clone(),
            registry: registry.clone(),
            ids: Ids::from_origin(options.origin.derive_part(2)),
            cluster,
            node: name.map(OnceLock::from).unwrap_or_default(),
        });
        BoundAgentListener::bind(state, (options.agent_host(), port)).await.map(Some)
    }

    /// Makes the first tokens of a new database; checks those that were given, of any other.
    async fn prepare_tokens(
        &mut self,
        gateway: &Gateway,
    ) -> Result<(Arc<EventRecorder>, UnshownTokens), Error> {
        let base = self.front.base(&self.options);
        let has_acme = self.options.acme.directory.is_some();
        let events =
            EventRecorder::new(handlers::event_objects::all_objects(&base, gateway, has_acme));
        let (recorder, files, given) =
            (events.clone(), self.token_files.clone(), self.tokens.clone());
        let prepare = move |change: &Transaction<'_>| files.prepare_tokens(change, given);
        let made =
            self.parts.store.write(move |change| recorder.change_and_record(change, None, prepare));
        let given = std::mem::replace(&mut self.tokens, made.await?);
        let is_on_server = self.options.store.server.is_some();
        let unshown = UnshownTokens::from_made(is_on_server, &given, &self.tokens);
        Ok((events, unshown))
    }

    fn managed_by_acme(&self, state: &ServiceState) -> ManagedService {
        ManagedService {
            store: state.store.clone(),
            gateway: state.gateway.clone(),
            own_name: self.options.management.public_host(),
            cluster: state.cluster.clone(),
            progress: state.certificates.clone(),
            events: state.events.clone(),
        }
    }

    fn state(&self, parts: StateParts) -> ServiceState {
        let StateParts { vault_key, backups, gateway, audit, publisher, registry, peers, events } =
            parts;
        let (options, store) = (&self.options, self.parts.store.clone());
        ServiceState {
            callers: Callers::from_store(&store),
            events,
            event_metrics: Arc::<EventMetrics>::default(),
            has_event_folder: options.events.folder.is_some(),
            event_reach: options.events.reach(),
            store,
            base: self.front.base(options),
            code_prefix: options.gateway.code_prefix.clone(),
            live: self.front.live.clone(),
            reloads: ReloadRequests::default(),
            reserved_domains_only: options.domains.reserved_only,
            has_acme: options.acme.directory.is_some(),
            gateway,
            vault_key,
            publisher,
            registry,
            cluster: self.parts.cluster.clone(),
            peers,
            audit,
            backups,
            certificates: Arc::default(),
            downloads: BackupDownloads::for_database(self.path.as_deref()),
            rehearsal: Rehearsal::new(options.kept_calls),
            operation_ids: Ids::from_origin(options.origin.derive_part(1)),
            metrics: self.front.admin.is_some().then(ApiMetrics::default),
            origin: options.origin.clone(),
        }
    }
}

/// The parts that requests to the management API refer to.
struct StateParts {
    vault_key: Arc<VaultKey>,
    backups: Arc<BackupProgress>,
    gateway: Gateway,
    audit: Arc<AuditTrail>,
    publisher: Arc<Publisher>,
    registry: Arc<Registry>,
    peers: Option<Arc<Peers>>,
    events: Arc<EventRecorder>,
}

/// The listeners for operators: that of the management API, and that of monitoring.
struct Front {
    monitor: Arc<ServiceMonitor>,
    admin: Option<AdminListener>,
    url: String,
    private: PrivateListener,
    live: LiveSettings,
    limit: Arc<ConnectionLimit>,
}

impl Front {
    async fn open(options: &Options) -> Result<(Self, TcpListener), Error> {
        let monitor = Arc::<ServiceMonitor>::default();
        let admin = monitor.listen(&options.monitoring).await?;
        let (socket, address) = options.management.bind().await?;
        let live = Arc::new(ArcSwap::from_pointee(options.live()));
        let (proxies, caps) = (live.clone(), options.management.connection_caps());
        let limit = ConnectionLimit::new("API clients", caps, move |address| {
            proxies.load().trusted_proxies.contains(address)
        });
        let (url, private) =
            (format!("http://{}", reachable_address(address)), PrivateListener::new(address));
        Ok((Self { monitor, admin, url, private, live, limit }, socket))
    }

    /// Serves the management API.
    fn serve(
        &self,
        socket: TcpListener,
        api: ApiService,
        shutdown: &Shutdown,
    ) -> Result<Listener, Error> {
        let live = self.live.clone();
        let timeouts = move || live.load().limits.timeouts();
        let listener = serve_api(socket, api, self.limit.clone(), timeouts, shutdown);
        listener.map_err(|source| Error::Bind { address: self.url.clone(), source })
    }

    /// The address that `uri` fields begin with.
    fn base(&self, options: &Options) -> Base {
        Base::new(options.management.own_url().as_deref().unwrap_or(&self.url))
    }
}

/// Connects to the other nodes.
fn connect_peers(
    listener: Option<BoundPeerListener>,
    cluster: Option<Arc<Cluster>>,
    gateway: &Gateway,
    registry: &Arc<Registry>,
) -> Result<Option<Arc<Peers>>, Error> {
    let (gateway, registry) = (gateway.clone(), registry.clone());
    Peers::connect(listener, PeerServices { gateway, registry, cluster })
}

/// Delivers events to their subscribers.
async fn start_dispatcher(
    state: &ServiceState,
    options: &Options,
) -> Result<EventDispatcher, Error> {
    let services = DispatchServices {
        store: state.store.clone(),
        gateway: state.gateway.clone(),
        cluster: state.cluster.clone(),
        metrics: state.event_metrics.clone(),
        recorder: state.events.clone(),
        origin: state.origin.clone(),
    };
    Ok(EventDispatcher::start(services, options.events.clone()).await?)
}

/// Opens the database. A new one has its authority and its tokens before others see it.
async fn open_store(
    path: Option<PathBuf>,
    options: &Options,
    files: &TokenFiles,
    tokens: &TokenSettings,
) -> Result<Store, Error> {
    let (origin, server) = (options.origin.derive_part(0), options.store.server.clone());
    let missing_log = options.store.missing_log();
    let (files, tokens) = (files.clone(), tokens.clone());
    let opened = ginnel_base::tasks::spawn_blocking(move || {
        if let Some(server) = server {
            return Ok(Store::open_postgres(server, origin)?);
        }
        let path = path.as_deref();
        Store::open_filled(path, origin, missing_log, |change| {
            LocalAuthority::open(path).map_err(Error::Authority)?;
            files.prepare_tokens(change, tokens).map(drop)
        })
    });
    opened.await.map_err(|_| store::StoreError::Panicked)?
}
