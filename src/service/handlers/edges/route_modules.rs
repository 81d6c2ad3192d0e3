//! The modules of a route: set, shown and removed on their own.

use super::modules;
use super::routes::{Given, apply, keep, route_of};
use super::{Context, Handler, on};
use crate::api::remote::edges::modules::{
    BackendModuleChange, CircuitBreaker, Compression, IpRestrictionChange, RequestHeaders,
    ResponseHeaders, TrafficPolicy, UserAgentFilter, WebhookVerification, WebsocketTcpConverter,
};
use crate::api::remote::edges::route_modules::{
    backend, circuit_breaker, compression, ip_restriction, policy, request_headers,
    response_headers, user_agent_filter, webhook_verification, websocket_tcp_converter,
};
use crate::api::remote::edges::routes::HttpsEdgeRoute;
use crate::policy::Scope;
use crate::service::{Refusal, policies};

/// Where a module stands in its route.
type Slot<M> = fn(&mut HttpsEdgeRoute) -> &mut Option<M>;

/// The three operations of a module; `$given` makes the module of what a `Replace` holds.
macro_rules! module {
    ($name:ident, $given:expr) => {{
        let slot: Slot<_> = |route| &mut route.$name;
        [
            on(move |service, wanted: $name::Replace| async move {
                let (edge_id, id) = (wanted.edge_id.clone(), wanted.id.clone());
                let (module, named) = $given(wanted).await?;
                replace(service, edge_id, id, module, named, slot).await
            }),
            on(move |service: Context, wanted: $name::Get| async move {
                show(&service, &wanted.edge_id, &wanted.id, slot)
            }),
            on(move |service, wanted: $name::Delete| {
                unset(service, wanted.edge_id, wanted.id, slot)
            }),
        ]
    }};
}

pub(super) fn handlers() -> Vec<Handler> {
    let modules = [
        module!(backend, async |wanted: backend::Replace| {
            let (enabled, backend_id) = (wanted.enabled, Some(wanted.backend_id));
            plain(modules::backend(BackendModuleChange { enabled, backend_id }))
        }),
        module!(ip_restriction, async |wanted: ip_restriction::Replace| {
            let (enabled, ip_policy_ids) = (wanted.enabled, Some(wanted.ip_policy_ids));
            plain(modules::ip_restriction(IpRestrictionChange { enabled, ip_policy_ids }))
        }),
        module!(policy, async |wanted: policy::Replace| {
            let policy::Replace { enabled, inbound, outbound, .. } = wanted;
            let given = TrafficPolicy { enabled, inbound, outbound };
            policies::check(given, Scope::HttpsRoute).await
        }),
        module!(user_agent_filter, async |wanted: user_agent_filter::Replace| {
            let user_agent_filter::Replace { enabled, allow, deny, .. } = wanted;
            plain(policies::check_filter(UserAgentFilter { enabled, allow, deny }).await)
        }),
        module!(circuit_breaker, async |wanted: circuit_breaker::Replace| {
            plain(modules::circuit_breaker(CircuitBreaker {
                enabled: wanted.enabled,
                tripped_duration: wanted.tripped_duration,
                rolling_window: wanted.rolling_window,
                num_buckets: wanted.num_buckets,
                volume_threshold: wanted.volume_threshold,
                error_threshold_percentage: wanted.error_threshold_percentage,
            }))
        }),
        module!(compression, async |wanted: compression::Replace| {
            plain(modules::compression(Compression { enabled: wanted.enabled }))
        }),
        module!(request_headers, async |wanted: request_headers::Replace| {
            let request_headers::Replace { enabled, add, remove, .. } = wanted;
            plain(modules::request_headers(RequestHeaders { enabled, add, remove }))
        }),
        module!(response_headers, async |wanted: response_headers::Replace| {
            let response_headers::Replace { enabled, add, remove, .. } = wanted;
            plain(modules::response_headers(ResponseHeaders { enabled, add, remove }))
        }),
        module!(webhook_verification, async |wanted: webhook_verification::Replace| {
            let (provider, secret) = (Some(wanted.provider), Some(wanted.secret));
            let enabled = wanted.enabled;
            plain(modules::webhook_verification(WebhookVerification { enabled, provider, secret }))
        }),
        module!(websocket_tcp_converter, async |wanted: websocket_tcp_converter::Replace| {
            let given = WebsocketTcpConverter { enabled: wanted.enabled };
            plain(modules::websocket_tcp_converter(given))
        }),
    ];
    modules.into_iter().flatten().collect()
}

/// A module that names no IP policies of its own.
fn plain<M>(module: Result<M, Refusal>) -> Result<(M, Vec<String>), Refusal> {
    module.map(|module| (module, Vec::new()))
}

async fn replace<M: Send + 'static>(
    service: Context,
    edge_id: String,
    id: String,
    module: M,
    named: Vec<String>,
    slot: Slot<M>,
) -> Result<M, Refusal> {
    let mut given = Given { named, ..Given::default() };
    *slot(&mut given.route) = Some(module);
    let replace = service.change(move |change| {
        let mut route = route_of(change, &edge_id, &id)?;
        apply(change, &mut route, given)?;
        Ok(route)
    });
    slot(&mut replace.await?).take().ok_or_else(Refusal::not_found)
}

fn show<M>(service: &Context, edge_id: &str, id: &str, slot: Slot<M>) -> Result<M, Refusal> {
    let route = service.read(|view| route_of(view, edge_id, id))?;
    slot(&mut service.located(route)).take().ok_or_else(Refusal::not_found)
}

/// Removing what is not there is no error (remote API sheet, section 3).
async fn unset<M: Send + 'static>(
    service: Context,
    edge_id: String,
    id: String,
    slot: Slot<M>,
) -> Result<(), Refusal> {
    let unset = service.write(move |change| {
        let mut route = route_of(change, &edge_id, &id)?;
        match slot(&mut route).take() {
            Some(_) => keep(change, &route),
            None => Ok(()),
        }
    });
    unset.await
}
