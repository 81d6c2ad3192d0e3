//! Where resources can be fetched.

use ginnel_api::id::prefix;

/// The public address of the service, without a slash at its end.
#[derive(Debug, Clone)]
pub struct Base(String);

/// The list that holds the resources with a prefix.
const LISTS: &[(&str, &str)] = &[
    (prefix::API_KEY, "/api_keys"),
    (prefix::IP_POLICY, "/ip_policies"),
    (prefix::IP_POLICY_RULE, "/ip_policy_rules"),
    (prefix::IP_RESTRICTION, "/ip_restrictions"),
    (prefix::CERTIFICATE_AUTHORITY, "/certificate_authorities"),
    (prefix::RESERVED_DOMAIN, "/reserved_domains"),
    (prefix::RESERVED_ADDR, "/reserved_addrs"),
    (prefix::TLS_CERTIFICATE, "/tls_certificates"),
    (prefix::TUNNEL_GROUP, "/backends/tunnel_group"),
    (prefix::FAILOVER, "/backends/failover"),
    (prefix::HTTP_RESPONSE, "/backends/http_response"),
    (prefix::WEIGHTED, "/backends/weighted"),
    (prefix::STATIC, "/backends/static"),
    (prefix::HTTPS_EDGE, "/edges/https"),
    (prefix::TCP_EDGE, "/edges/tcp"),
    (prefix::TLS_EDGE, "/edges/tls"),
    (prefix::CREDENTIAL, "/credentials"),
    (prefix::BOT_USER, "/bot_users"),
    (prefix::APPLICATION_USER, "/app/users"),
    (prefix::APPLICATION_SESSION, "/app/sessions"),
    (prefix::VAULT, "/vaults"),
    (prefix::VAULT_SECRET, "/vault_secrets"),
    (prefix::ENDPOINT, "/endpoints"),
    (prefix::TUNNEL, "/tunnels"),
    (prefix::TUNNEL_SESSION, "/tunnel_sessions"),
    (prefix::EVENT_DESTINATION, "/event_destinations"),
    (prefix::EVENT_SUBSCRIPTION, "/event_subscriptions"),
];

impl Base {
    /// The address that `url` gives, with or without a slash at its end.
    pub fn new(url: &str) -> Self {
        Self(url.trim_end_matches('/').to_owned())
    }

    /// The address without a slash at its end.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The address of a path.
    pub fn path_url(&self, path: &str) -> String {
        format!("{}{path}", self.0)
    }

    /// The address of the resource with this identifier.
    pub fn of(&self, id: &str) -> String {
        let prefix = id.rsplit_once('_').map_or(id, |(prefix, _)| prefix);
        let list = LISTS.iter().find(|(known, _)| *known == prefix).map_or("", |(_, list)| list);
        format!("{}{list}/{id}", self.0)
    }

    /// The address of a route, which lives inside its edge.
    pub fn of_route(&self, edge_id: &str, id: &str) -> String {
        format!("{}/edges/https/{edge_id}/routes/{id}", self.0)
    }
}
