//! Answers to operations: one file per resource, with the names of [`ginnel_api::remote`].

mod api_keys;
mod application_sessions;
mod application_users;
mod audit_events;
mod backends;
mod bot_users;
mod certificate_authorities;
mod clock;
mod configuration;
mod credentials;
mod edges;
mod endpoints;
mod event_destinations;
pub(super) mod event_objects;
mod event_sources;
mod event_subscriptions;
mod ip_policies;
mod ip_policy_rules;
mod ip_restrictions;
mod nodes;
mod prelude;
pub(super) mod reserved_addrs;
pub(super) mod reserved_domains;
mod service_users;
mod stored;
mod tls_certificates;
mod tunnel_sessions;
mod tunnels;
mod vault_secrets;
mod vaults;

use ginnel_api::{Info, OperationHandler, PathOperations, on};

use super::Refusal;
use super::context::{Context, OperationResult};

/// A handler with its types erased.
pub(super) type Handler = OperationHandler<Context, Refusal>;
/// All that one path template answers.
pub(super) type PathHandlers = PathOperations<Context, Refusal>;

/// Every handler of the service.
pub(super) fn all_handlers() -> Vec<Handler> {
    let resources = [
        api_keys::handlers(),
        ip_policies::handlers(),
        ip_policy_rules::handlers(),
        ip_restrictions::handlers(),
        certificate_authorities::handlers(),
        reserved_domains::handlers(),
        reserved_addrs::handlers(),
        tls_certificates::handlers(),
        backends::handlers(),
        edges::handlers(),
        credentials::handlers(),
        bot_users::handlers(),
        service_users::handlers(),
        application_users::handlers(),
        application_sessions::handlers(),
        vaults::handlers(),
        vault_secrets::handlers(),
        endpoints::handlers(),
        tunnels::handlers(),
        tunnel_sessions::handlers(),
        nodes::handlers(),
        audit_events::handlers(),
        configuration::handlers(),
        clock::handlers(),
        event_destinations::handlers(),
        event_subscriptions::handlers(),
        event_sources::handlers(),
    ];
    resources.into_iter().flatten().collect()
}

/// The operations that have a handler, once for each handler.
pub fn handled_operations() -> Vec<&'static Info> {
    all_handlers().into_iter().map(|handler| handler.info).collect()
}
