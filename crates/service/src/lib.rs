//! The self-hosted service: the management API, and the configuration of the gateway.
//!
//! # One request
//!
//! A listener of the management API hands a request to `routes`, which finds its path template. `pipeline` checks key,
//! rate limit and body, `decode` parses the arguments of the operation, and the handler in `handlers` that is named after
//! the resource reads and writes the store. A failure on this way is a [`Refusal`], which becomes a response at the end
//! of `pipeline`. `publish` compiles the stored configuration for the [`gateway`] after each change.
//!
//! # Invariants
//!
//! - Handlers do not know the engine of the database; only the crate `store` contains SQL.
//! - The service knows no Python.

mod acme;
mod address;
mod audit;
mod authority;
mod backup;
mod body;
mod callers;
mod certificates;
mod check;
mod cloud_endpoint;
pub mod config;
mod console;
mod context;
mod cors;
mod decode;
mod events;
pub mod handlers;
mod home;
mod known_addresses;
mod live;
mod logins;
mod management;
mod monitoring;
mod not_offered;
mod oauth;
mod open_parts;
mod options;
mod pipeline;
mod preflight;
mod publish;
mod rate_limit;
mod reconfigure;
mod references;
mod rehearsal;
pub mod reload;
mod restrictions;
mod routes;
mod secret_files;
mod start;
mod stop;
mod store_copy;
mod store_settings;
mod tokens;
mod vaults;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

pub use acme::{AcmeChallenge, AcmeOptions};
pub use agents::{AgentSettings, check_bind, check_labeled_bind, requested_address};
pub use audit::AuditSettings;
pub use authority::CertificateSettings;
pub use backup::{BackupSchedule, BackupStatus};
pub use cluster::ClusterSettings;
pub use decode::decode_arguments;
pub use domains::DomainSettings;
pub use events::EventOptions;
pub use ginnel_gateway::{TrustedProxies, TrustedProxyError};
pub use ginnel_net::{AcceptFailures, Refusals};
pub use ginnel_sessions::{Error, Refusal, code};
pub use known_addresses::AddressFileSettings;
pub use live::ApiLimits;
pub use management::ManagementSettings;
pub use monitoring::MonitoringSettings;
pub use oauth::{OauthOptions, OauthProviderOptions};
pub use options::Options;
pub use rehearsal::{Called, InjectedFault};
pub use secret_files::{read_admin_key, read_authtoken};
pub use store_copy::{copy_store, copy_store_until};
pub use store_settings::StoreSettings;
pub use tokens::{TokenSettings, new_admin_key};
pub use vaults::VaultSettings;

use ginnel_api::Secret;
use ginnel_base::address::reachable_address;
use ginnel_gateway::{self as gateway, Gateway};
use ginnel_net::admin::AdminListener;
use ginnel_net::private::PrivateListener;
use ginnel_net::{ConnectionLimit, Listener, Shutdown};
use ginnel_sessions::{accounts, agents, cluster, domains, error};
use ginnel_store::{self as store, Snapshot};

use acme::{AcmeManager, SharedChallenges};
use agents::AgentListener;
use context::ServiceState;
use events::EventDispatcher;
use monitoring::ServiceMonitor;
use open_parts::OpenParts;
use tokens::TokenFiles;

/// The result of work for a caller, who may be refused.
pub(crate) type Result<T, E = Refusal> = std::result::Result<T, E>;

/// A service at work; many may run in one process.
///
/// Dropping it takes no more requests; [`Service::stop`] also waits until the database is closed.
pub struct Service {
    /// The first to drop: no more traffic is taken then.
    parts: OpenParts,
    shared: Arc<ServiceState>,
    /// Of the management API.
    shutdown: Shutdown,
    _listener: Listener,
    /// The limit of the management API.
    limit: Arc<ConnectionLimit>,
    agents: Option<AgentListener>,
    url: String,
    tokens: TokenSettings,
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
        let listeners = options.fixed_listeners().into_iter();
        let listeners: Vec<_> =
            listeners.map(|(key, host, port)| (key, format!("{host}:{port}"))).collect();
        Self::launch(options).await.map_err(|error| error.with_listener_setting(&listeners))
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

    /// The stored traffic policies that this version refuses, one line each.
    pub fn refused_policies(&self) -> Vec<String> {
        monitoring::refused_policies(&self.shared)
    }

    /// How the backups of [`Options::backup`] go.
    pub fn backup_status(&self) -> BackupStatus {
        self.shared.backups.status()
    }

    /// Names whose certificate could not be obtained or renewed, and why, as far as it was not asked for.
    pub fn take_certificate_failures(&self) -> Vec<(String, String)> {
        self.shared.certificates.take_failures()
    }

    /// The address at which agents of this machine reach the service, if it accepts agents.
    pub fn agent_address(&self) -> Option<SocketAddr> {
        self.agents.as_ref().map(|agents| reachable_address(agents.address()))
    }

    /// The address at which `/healthz`, `/readyz` and `/metrics` are reached, if anywhere.
    pub fn admin_address(&self) -> Option<SocketAddr> {
        self.admin.as_ref().map(|admin| reachable_address(admin.address()))
    }

    /// The public addresses.
    pub fn gateway(&self) -> &Gateway {
        &self.shared.gateway
    }

    /// What is decided on the public traffic of this node from now on.
    pub fn own_events(&self) -> gateway::EventSubscriber {
        self.shared.gateway.subscribe_local_events()
    }

    /// What is decided on public traffic from now on, on other nodes too.
    pub fn events(&self) -> gateway::EventSubscriber {
        self.shared.gateway.subscribe_events()
    }

    /// The connections that were closed at once because there were too many, since this was last
    /// asked.
    pub fn take_refusals(&self) -> Vec<Refusals> {
        self.connection_limits().filter_map(|limit| limit.take_refusals()).collect()
    }

    /// Why the system gave no connections to listeners, since this was last asked.
    pub fn take_accept_failures(&self) -> Vec<AcceptFailures> {
        self.connection_limits().filter_map(|limit| limit.take_failures()).collect()
    }

    fn connection_limits(&self) -> impl Iterator<Item = &Arc<ConnectionLimit>> {
        let agents = self.agents.as_ref().map(AgentListener::limit);
        [Some(self.shared.gateway.connection_limit()), Some(&self.limit), agents]
            .into_iter()
            .flatten()
    }

    /// Has calls of an operation fail from now on.
    pub fn inject_fault(&self, fault: InjectedFault) {
        self.shared.rehearsal.inject_fault(fault);
    }

    /// The calls that were made, the oldest first: as many as `kept_calls` says.
    pub fn recorded_calls(&self) -> Vec<Called> {
        self.shared.rehearsal.recorded_calls()
    }

    /// Forgets the faults that were asked for, and the calls.
    pub fn reset_fault_injection(&self) {
        self.shared.rehearsal.reset();
    }

    /// Sets the clock of [`Options::origin`] forward; false where it is the system's.
    pub fn advance_clock(&self, by: Duration) -> bool {
        self.shared.origin.advance_clock(by)
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
    pub fn take_snapshot(&self) -> Result<Snapshot, Error> {
        self.shared.store.read_blocking(|view| Ok(view.take_snapshot()?))
    }

    /// Makes the database hold what it held at the moment of the snapshot.
    ///
    /// # Errors
    /// When the database cannot be written.
    pub async fn restore_snapshot(&self, snapshot: Snapshot) -> Result<(), Error> {
        self.shared.write(move |change| Ok(change.restore_snapshot(&snapshot)?)).await
    }
}
