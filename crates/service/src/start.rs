//! How a service starts, from the first socket to the management API; what fails lets go of what was opened.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwap;

use ginnel_api::id::Ids;
use ginnel_base::address::HostPort;
use ginnel_gateway::Gateway;
use ginnel_gateway::tls::authority::LocalAuthority;
use ginnel_net::admin::AdminListener;
use ginnel_net::private::PrivateListener;
use ginnel_net::{ConnectionLimit, Shutdown, serve_api};

use super::acme::{AcmeManager, AcmeOptions, ManagedService, SharedChallenges};
use super::address::Base;
use super::agents::{AgentsState, BoundAgentListener, Registry};
use super::audit::AuditTrail;
use super::backup::{self, BackupDownloads, BackupProgress};
use super::callers::Callers;
use super::cluster::{BoundPeerListener, Cluster, NodeOptions, PeerServices, Peers};
use super::console::ServiceConsole;
use super::context::ServiceState;
use super::error::Error;
use super::events::{DispatchServices, EventDispatcher, EventMetrics, EventOptions, EventRecorder};
use super::live::ApiSettings;
use super::monitoring::{ApiMetrics, ServiceMonitor};
use super::options::{self, Options};
use super::publish::Publisher;
use super::rehearsal::Rehearsal;
use super::reload::ReloadRequests;
use super::stop::{close, leave};
use super::store::{self, Store};
use super::tokens::{TokenFiles, Tokens, UnshownTokens};
use super::vaults::{KeyCheck, VaultKey};
use super::{Service, authority, handlers, logins, routes};

impl Service {
    /// Opens everything that the options name.
    pub(super) async fn launch(options: Options) -> Result<Self, Error> {
        let monitor = Arc::<ServiceMonitor>::default();
        let admin = admin(options.admin_addr.as_ref(), &monitor).await?;
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
        let base = Base::new(options.own_url().as_deref().unwrap_or(&url));
        let path = options.path.as_deref().map(store::resolve);
        let tokens =
            Tokens { admin_key: options.admin_key.clone(), authtoken: options.authtoken.clone() };
        let token_files = TokenFiles::of(path.as_deref(), &tokens);
        let opened = open(path.clone(), &options, token_files.clone(), tokens.clone());
        let store = Arc::new(opened.await?);
        if let Err(error) = store.start_clock(options.origin.clone(), options.trust_clock).await {
            close(store).await;
            return Err(error.into());
        }
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
            event_reach: options.events.reach(),
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
}

/// Listens for whoever watches the service, where the options say so.
async fn admin(
    address: Option<&HostPort>,
    monitor: &Arc<ServiceMonitor>,
) -> Result<Option<AdminListener>, Error> {
    let Some(address) = address else { return Ok(None) };
    let started = AdminListener::start(address, monitor.clone()).await;
    let failed = |source| Error::AdminAddress { address: address.to_string(), source };
    started.map(Some).map_err(failed)
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
    address: &HostPort,
    options: &Options,
) -> Result<(Option<BoundPeerListener>, Option<String>), Error> {
    let own = options.peer_listen_addr.as_ref();
    let (key, listens_at) = match own {
        Some(own) => ("peer_listen_addr", own),
        None => ("peer_addr", address),
    };
    let listener = BoundPeerListener::bind(listens_at).await;
    let failed = |source| Error::PeerAddress { key, address: listens_at.to_string(), source };
    let listener = listener.map_err(failed)?;
    let public = own.map_or_else(|| listener.public_address(), |_| address.to_string());
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

/// Obtains certificates by ACME, where the options say so.
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
            LocalAuthority::open(path).map_err(Error::Authority)?;
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
