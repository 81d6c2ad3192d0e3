//! What policies and modules of this gateway may use besides their own configuration.

use std::sync::Arc;

use ginnel_net::Reach;
use ginnel_policy::AddressKinds;
use ginnel_policy::login::OauthApplications;

use crate::modules::ip_policies::IpPolicies;
use crate::secrets::SecretTable;

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
