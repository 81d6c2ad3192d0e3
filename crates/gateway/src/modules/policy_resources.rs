//! What policies and modules of this gateway may use besides their own configuration.

use std::sync::Arc;

use ginnel_net::Reach;
use ginnel_policy::AddressKinds;
use ginnel_policy::login::OauthApplications;

use crate::modules::ip_policies::IpPolicies;
use crate::secrets::SecretTable;
use crate::settings::GatewaySettings;

/// What policies and modules of this gateway may use besides their own configuration.
pub struct PolicyResources {
    /// The rules of IP policies.
    pub ip_policies: IpPolicies,
    /// The secrets that policies of edges and cloud endpoints read.
    pub secrets: Arc<SecretTable>,
    /// The applications of the operator at OAuth providers.
    pub applications: Arc<OauthApplications>,
    /// What rules may ask of the addresses of visitors.
    pub address_kinds: AddressKinds,
    /// The addresses that policies of agents may name.
    pub reach: Reach,
}

impl PolicyResources {
    /// The resources of a gateway with these settings, without IP policies, secrets and applications.
    pub fn of(settings: &GatewaySettings) -> Self {
        Self {
            ip_policies: IpPolicies::default(),
            secrets: Arc::default(),
            applications: Arc::default(),
            address_kinds: settings.addresses.as_ref().map(|it| it.kinds()).unwrap_or_default(),
            reach: if settings.private_issuers { Reach::Any } else { Reach::Public },
        }
    }
}
