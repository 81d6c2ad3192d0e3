//! The remote management API: one file per resource, and the table of all of them.

pub mod api_keys;
pub mod application_sessions;
pub mod application_users;
pub mod audit_events;
pub mod backends;
pub mod bot_users;
pub mod certificate_authorities;
pub mod clock;
pub mod configuration;
pub mod credentials;
pub mod edges;
pub mod endpoints;
pub mod event_destinations;
pub mod event_sources;
pub mod event_subscriptions;
pub mod ip_policies;
pub mod ip_policy_rules;
pub mod ip_restrictions;
pub mod nodes;
pub mod reserved_addrs;
pub mod reserved_domains;
pub mod service_users;
pub mod tls_certificates;
pub mod tunnel_sessions;
pub mod tunnels;
pub mod vault_secrets;
pub mod vaults;

use super::macros::wire;
use super::{Info, Output, Resource, Verb};

/// The name of the only region that a service has.
pub const REGION: &str = "local";

wire! {
    /// A reference to a resource.
    pub struct Ref {
        /// The identifier of the resource.
        #[public(text)]
        pub id: String,
        /// Where the resource can be fetched.
        #[public(text)]
        pub uri: String,
    }
}

/// Every resource of the API but the modules of edges, which have tables of their own.
const RESOURCES: &[Resource] = &[
    api_keys::RESOURCE,
    ip_policies::RESOURCE,
    ip_policy_rules::RESOURCE,
    ip_restrictions::RESOURCE,
    certificate_authorities::RESOURCE,
    reserved_domains::RESOURCE,
    reserved_addrs::RESOURCE,
    tls_certificates::RESOURCE,
    backends::tunnel_group::RESOURCE,
    backends::failover::RESOURCE,
    backends::http_response::RESOURCE,
    backends::weighted::RESOURCE,
    backends::static_::RESOURCE,
    edges::https::RESOURCE,
    edges::routes::RESOURCE,
    edges::tcp::RESOURCE,
    edges::tls::RESOURCE,
    credentials::RESOURCE,
    bot_users::RESOURCE,
    service_users::RESOURCE,
    application_users::RESOURCE,
    application_sessions::RESOURCE,
    vaults::RESOURCE,
    vault_secrets::RESOURCE,
    endpoints::RESOURCE,
    tunnels::RESOURCE,
    tunnel_sessions::RESOURCE,
    nodes::RESOURCE,
    audit_events::RESOURCE,
    event_destinations::RESOURCE,
    event_subscriptions::RESOURCE,
    event_sources::RESOURCE,
    configuration::RESOURCE,
    clock::RESOURCE,
];

/// A copy of the database. Its result is a file of any size, which no client keeps in memory: so it is
/// no operation of a resource.
pub const DATABASE_BACKUP: Info = Info {
    resource: "database",
    name: "backup",
    doc: " Copy the database; only an admin may do so.\n",
    method: Verb::POST,
    path: "/database/backup",
    parameters: &[],
    output: Output::Nothing,
    issues_secret: false,
};

/// Every resource of the API.
pub fn resources() -> impl Iterator<Item = &'static Resource> {
    let edges = [
        edges::https_modules::MODULES,
        edges::route_modules::MODULES,
        edges::tcp_modules::MODULES,
        edges::tls_modules::MODULES,
    ];
    RESOURCES.iter().chain(edges.into_iter().flatten())
}

/// Every operation of the API, resource by resource.
pub fn operations() -> impl Iterator<Item = &'static Info> {
    resources().flat_map(|resource| resource.operations.iter().copied())
}
