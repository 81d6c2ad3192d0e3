//! What other services of this kind have and this one has not, for programs that ask for it.

use super::{Refusal, code};

/// The paths, with what takes the place of each.
pub(super) const NOT_OFFERED: &[(&str, &str)] = &[
    ("/ssh_certificate_authorities", SSH),
    ("/ssh_credentials", SSH),
    ("/ssh_host_certificates", SSH),
    ("/ssh_user_certificates", SSH),
    ("/agent_ingresses", "agents connect to the address of the service itself"),
    ("/abuse_reports", "the operator of the service decides what it serves"),
    ("/edges/https/{edge_id}/routes/{id}/saml", LOGIN),
];
const LOGIN: &str = "visitors log in with the action openid-connect or oauth of a policy, or with the module oidc or oauth";
const SSH: &str = "there are no SSH reverse tunnels; use an agent";

/// The refusal of a request to one of the paths.
pub(super) fn not_offered_refusal(path: &str, instead: &str) -> Refusal {
    let message = format!("{path} is not offered: {instead} (docs/guides/move.md#management-api)");
    Refusal::new(code::NOT_OFFERED, message)
}
