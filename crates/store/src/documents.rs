//! The resources of the management API that the store keeps.

use ginnel_api::id::prefix;
use ginnel_api::remote;

use crate::Document;

/// Keeps a resource by its own identifier; `$prefix` names its kind.
macro_rules! documents {
    ($($Name:path = $prefix:ident),+ $(,)?) => {$(
        impl Document for $Name {
            const PREFIX: &'static str = prefix::$prefix;

            fn id(&self) -> &str {
                &self.id
            }
        }
    )+};
}

documents! {
    remote::api_keys::ApiKey = API_KEY,
    remote::application_sessions::ApplicationSession = APPLICATION_SESSION,
    remote::application_users::ApplicationUser = APPLICATION_USER,
    remote::backends::failover::FailoverBackend = FAILOVER,
    remote::backends::http_response::HttpResponseBackend = HTTP_RESPONSE,
    remote::backends::static_::StaticBackend = STATIC,
    remote::backends::tunnel_group::TunnelGroupBackend = TUNNEL_GROUP,
    remote::backends::weighted::WeightedBackend = WEIGHTED,
    remote::bot_users::BotUser = BOT_USER,
    remote::certificate_authorities::CertificateAuthority = CERTIFICATE_AUTHORITY,
    remote::credentials::Credential = CREDENTIAL,
    remote::edges::https::HttpsEdge = HTTPS_EDGE,
    remote::edges::routes::HttpsEdgeRoute = HTTPS_ROUTE,
    remote::edges::tcp::TcpEdge = TCP_EDGE,
    remote::edges::tls::TlsEdge = TLS_EDGE,
    remote::event_destinations::EventDestination = EVENT_DESTINATION,
    remote::event_subscriptions::EventSubscription = EVENT_SUBSCRIPTION,
    remote::ip_policies::IpPolicy = IP_POLICY,
    remote::ip_policy_rules::IpPolicyRule = IP_POLICY_RULE,
    remote::ip_restrictions::AccountIpRestriction = IP_RESTRICTION,
    remote::reserved_addrs::ReservedAddr = RESERVED_ADDR,
    remote::reserved_domains::ReservedDomain = RESERVED_DOMAIN,
    remote::service_users::ServiceUser = BOT_USER,
    remote::tls_certificates::TlsCertificate = TLS_CERTIFICATE,
    remote::vault_secrets::VaultSecret = VAULT_SECRET,
    remote::vaults::Vault = VAULT,
}
