//! The options of a service: the settings of its parts, and the checks that concern several parts.

use std::path::{Path, PathBuf};

use ginnel_api::{Origin, id};
use ginnel_gateway::{GatewaySettings, Timeouts};
use ginnel_settings::HasPart;

use super::Error;
use super::acme::AcmeOptions;
use super::agents::AgentSettings;
use super::audit::AuditSettings;
use super::authority::CertificateSettings;
use super::backup::BackupSchedule;
use super::cluster::ClusterSettings;
use super::domains::DomainSettings;
use super::events::EventOptions;
use super::known_addresses::AddressFileSettings;
use super::live::{ApiLimits, ApiSettings};
use super::management::ManagementSettings;
use super::monitoring::MonitoringSettings;
use super::oauth::OauthOptions;
use super::secret_files::check_key;
use super::store_settings::StoreSettings;
use super::tokens::TokenSettings;
use super::vaults::VaultSettings;

/// Declares [`Options`], with the settings of each part.
macro_rules! parts {
    ($($(#[$attribute:meta])+ $part:ident: $Settings:ty,)+) => {
        /// The options of a service: the settings of its parts.
        #[derive(Debug, Clone, Default)]
        pub struct Options {
            $($(#[$attribute])+ pub $part: $Settings,)+
            /// The source of identifiers, tokens and times of resources; for tests, a seed.
            pub origin: Origin,
            /// Maximum number of calls that [`Service::recorded_calls`](super::Service::recorded_calls) remembers; none by default.
            pub kept_calls: usize,
        }

        $(impl HasPart<$Settings> for Options {
            fn part(&self) -> &$Settings {
                &self.$part
            }

            fn part_mut(&mut self) -> &mut $Settings {
                &mut self.$part
            }
        })+
    };
}

parts! {
    /// The database.
    store: StoreSettings,
    /// The node, if several share a database on PostgreSQL.
    cluster: ClusterSettings,
    /// The audit trail.
    audit: AuditSettings,
    /// Backups of the database.
    backup: BackupSchedule,
    /// The key that secrets are encrypted with.
    vaults: VaultSettings,
    /// The first tokens of a new database.
    tokens: TokenSettings,
    /// The management API.
    management: ManagementSettings,
    /// The limits of one connection to the management API.
    api: ApiLimits,
    /// Public traffic.
    gateway: GatewaySettings,
    /// The rules for host names.
    domains: DomainSettings,
    /// A certificate from a file.
    certificate: CertificateSettings,
    /// Files with facts about addresses.
    addresses: AddressFileSettings,
    /// The authority that certificates are obtained from.
    acme: AcmeOptions,
    /// The operator's clients at providers of OAuth, for policies that name none.
    oauth: OauthOptions,
    /// The delivery of events.
    events: EventOptions,
    /// Agents.
    agents: AgentSettings,
    /// Monitoring.
    monitoring: MonitoringSettings,
}

impl HasPart<Timeouts> for Options {
    fn part(&self) -> &Timeouts {
        &self.gateway.timeouts
    }

    fn part_mut(&mut self) -> &mut Timeouts {
        &mut self.gateway.timeouts
    }
}

impl Options {
    /// Finds what is wrong before anything is started.
    pub(super) fn check(&self) -> Result<(), Error> {
        self.problems().into_iter().next().map_or(Ok(()), Err)
    }

    /// Everything that is wrong with the options themselves, and the folders that they name.
    pub fn problems(&self) -> Vec<Error> {
        let key = self.tokens.admin_key.clone().and_then(|key| check_key(key).err());
        let token = self.tokens.authtoken.as_ref();
        let token = token.filter(|token| id::split_token(&token.0).is_none());
        let problems = [
            key,
            token.map(|_| Error::MalformedAuthtoken),
            self.management.check_public_url().err(),
            self.check_connections().err(),
            self.certificate.check().err(),
            self.management.check_rate_limit().err(),
            self.acme.check().err().or_else(|| self.check_challenges().err()),
            self.backup.check().err(),
            self.events.check_folder(self.own_files()).err(),
            self.check_store().err(),
            self.oauth.applications().err(),
            self.check_names().err(),
            self.check_addresses().err(),
        ];
        problems.into_iter().flatten().collect()
    }

    /// The settings of the management API that may change while it runs.
    pub(super) fn live(&self) -> ApiSettings {
        let (proxies, rate) = (self.gateway.trusted_proxies.clone(), self.management.rate_limit);
        ApiSettings::new(self.api, proxies, self.monitoring.drain_delay, rate)
    }

    /// The name or address to listen on for agents.
    pub(super) fn agent_host(&self) -> &str {
        self.agents.host.as_ref().unwrap_or(&self.management.host)
    }

    /// The files that the service reads and writes.
    fn own_files(&self) -> impl Iterator<Item = &Path> {
        let CertificateSettings { certificate, key } = &self.certificate;
        let own = [&self.store.path, &self.vaults.key_file, certificate, key];
        let own = own.into_iter().flatten().map(PathBuf::as_path);
        own.chain(self.addresses.files()).chain(self.oauth.secret_files())
    }
}
