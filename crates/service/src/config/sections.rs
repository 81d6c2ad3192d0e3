//! Every setting of `ginnel serve`, in the order of the help.

use ginnel_gateway::{GatewaySettings, Timeouts};
use ginnel_settings::SettingSection;

use super::ServeConfig;
use crate::acme::AcmeOptions;
use crate::agents::AgentSettings;
use crate::audit::AuditSettings;
use crate::authority::CertificateSettings;
use crate::backup::BackupSchedule;
use crate::cluster::ClusterSettings;
use crate::domains::DomainSettings;
use crate::events::EventOptions;
use crate::known_addresses::AddressFileSettings;
use crate::live::ApiLimits;
use crate::management::ManagementSettings;
use crate::monitoring::MonitoringSettings;
use crate::oauth::OauthOptions;
use crate::store_settings::StoreSettings;
use crate::tokens::TokenSettings;
use crate::vaults::VaultSettings;

/// The settings, in the order of the help.
pub const SECTIONS: &[SettingSection<ServeConfig>] = &[
    SettingSection {
        title: "Storage",
        groups: &[
            StoreSettings::location(),
            ClusterSettings::rows(),
            AuditSettings::rows(),
            StoreSettings::clock(),
            BackupSchedule::rows(),
            VaultSettings::rows(),
            StoreSettings::recovery(),
        ],
    },
    SettingSection {
        title: "Management API",
        groups: &[
            ManagementSettings::listener(),
            TokenSettings::admin_key(),
            ServeConfig::admin_key_file(),
            ManagementSettings::offers(),
            GatewaySettings::error_codes(),
        ],
    },
    SettingSection {
        title: "Public traffic",
        groups: &[
            GatewaySettings::listeners(),
            DomainSettings::rows(),
            CertificateSettings::rows(),
            GatewaySettings::visitors(),
            AddressFileSettings::rows(),
            GatewaySettings::tunnel_ports(),
        ],
    },
    SettingSection { title: "Certificates by ACME", groups: &[AcmeOptions::rows()] },
    SettingSection { title: "Applications at providers of OAuth", groups: &[OauthOptions::rows()] },
    SettingSection { title: "Events", groups: &[EventOptions::rows()] },
    SettingSection {
        title: "Agents",
        groups: &[
            AgentSettings::listener(),
            TokenSettings::authtoken(),
            ServeConfig::authtoken_file(),
            GatewaySettings::issuers(),
        ],
    },
    SettingSection {
        title: "Limits of connections",
        groups: &[
            GatewaySettings::connections(),
            ManagementSettings::connections(),
            AgentSettings::connections(),
        ],
    },
    SettingSection { title: "Limits of the management API", groups: &[ApiLimits::rows()] },
    SettingSection {
        title: "Limits of public traffic",
        groups: &[Timeouts::rows(), GatewaySettings::limits()],
    },
    SettingSection { title: "Limits of agents", groups: &[AgentSettings::limits()] },
    SettingSection {
        title: "Monitoring",
        groups: &[
            MonitoringSettings::address(),
            ServeConfig::logs(),
            MonitoringSettings::draining(),
        ],
    },
    SettingSection { title: "Process", groups: &[ServeConfig::process()] },
];
