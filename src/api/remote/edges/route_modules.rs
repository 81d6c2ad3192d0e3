//! The modules of a route: each can be replaced, read and deleted on its own.

/// Backend module: the backend that traffic goes to.
pub mod backend {
    use crate::api::macros::resource;
    use crate::api::remote::edges::modules::BackendModule;

    resource! {
        /// Backend module: the backend that traffic goes to.
        "edges.https.routes.backend" {
            /// Replace the backend module of a route.
            PUT "/edges/https/{edge_id}/routes/{id}/backend" Replace(
                edge_id: String, id: String,
                /// The backend to send traffic to.
                backend_id: String,
                [
                    enabled: bool,
                ]
            ) -> BackendModule;
            /// Fetch the backend module of a route.
            GET "/edges/https/{edge_id}/routes/{id}/backend" Get(edge_id: String, id: String) -> BackendModule;
            /// Remove the backend module from a route.
            DELETE "/edges/https/{edge_id}/routes/{id}/backend" Delete(edge_id: String, id: String);
        }
    }
}

/// IP restriction module: only sources that IP policies allow.
pub mod ip_restriction {
    use crate::api::macros::resource;
    use crate::api::remote::edges::modules::IpRestriction;

    resource! {
        /// IP restriction module: only sources that IP policies allow.
        "edges.https.routes.ip_restriction" {
            /// Replace the IP restriction module of a route.
            PUT "/edges/https/{edge_id}/routes/{id}/ip_restriction" Replace(
                edge_id: String, id: String,
                /// The IP policies that decide.
                ip_policy_ids: Vec<String>,
                [
                    enabled: bool,
                ]
            ) -> IpRestriction;
            /// Fetch the IP restriction module of a route.
            GET "/edges/https/{edge_id}/routes/{id}/ip_restriction" Get(edge_id: String, id: String) -> IpRestriction;
            /// Remove the IP restriction module from a route.
            DELETE "/edges/https/{edge_id}/routes/{id}/ip_restriction" Delete(edge_id: String, id: String);
        }
    }
}

/// Traffic policy module: rules that act on traffic.
pub mod policy {
    use crate::api::macros::resource;
    use crate::api::remote::edges::modules::{EndpointRule, TrafficPolicy};

    resource! {
        /// Traffic policy module: rules that act on traffic.
        "edges.https.routes.policy" {
            /// Replace the traffic policy module of a route.
            PUT "/edges/https/{edge_id}/routes/{id}/policy" Replace(
                edge_id: String, id: String,
                [
                    enabled: bool,
                    inbound: Vec<EndpointRule>,
                    outbound: Vec<EndpointRule>,
                ]
            ) -> TrafficPolicy;
            /// Fetch the traffic policy module of a route.
            GET "/edges/https/{edge_id}/routes/{id}/policy" Get(edge_id: String, id: String) -> TrafficPolicy;
            /// Remove the traffic policy module from a route.
            DELETE "/edges/https/{edge_id}/routes/{id}/policy" Delete(edge_id: String, id: String);
        }
    }
}

/// User agent filter module: decides on the `User-Agent` header.
pub mod user_agent_filter {
    use crate::api::macros::resource;
    use crate::api::remote::edges::modules::UserAgentFilter;

    resource! {
        /// User agent filter module: decides on the `User-Agent` header.
        "edges.https.routes.user_agent_filter" {
            /// Replace the user agent filter module of a route.
            PUT "/edges/https/{edge_id}/routes/{id}/user_agent_filter" Replace(
                edge_id: String, id: String,
                [
                    enabled: bool,
                    allow: Vec<String>,
                    deny: Vec<String>,
                ]
            ) -> UserAgentFilter;
            /// Fetch the user agent filter module of a route.
            GET "/edges/https/{edge_id}/routes/{id}/user_agent_filter" Get(edge_id: String, id: String) -> UserAgentFilter;
            /// Remove the user agent filter module from a route.
            DELETE "/edges/https/{edge_id}/routes/{id}/user_agent_filter" Delete(edge_id: String, id: String);
        }
    }
}

/// Circuit breaker module: rejects traffic while the backend fails.
pub mod circuit_breaker {
    use crate::api::macros::resource;
    use crate::api::remote::edges::modules::CircuitBreaker;

    resource! {
        /// Circuit breaker module: rejects traffic while the backend fails.
        "edges.https.routes.circuit_breaker" {
            /// Replace the circuit breaker module of a route.
            PUT "/edges/https/{edge_id}/routes/{id}/circuit_breaker" Replace(
                edge_id: String, id: String,
                [
                    enabled: bool,
                    tripped_duration: i64,
                    rolling_window: i64,
                    num_buckets: i64,
                    volume_threshold: i64,
                    error_threshold_percentage: f64,
                ]
            ) -> CircuitBreaker;
            /// Fetch the circuit breaker module of a route.
            GET "/edges/https/{edge_id}/routes/{id}/circuit_breaker" Get(edge_id: String, id: String) -> CircuitBreaker;
            /// Remove the circuit breaker module from a route.
            DELETE "/edges/https/{edge_id}/routes/{id}/circuit_breaker" Delete(edge_id: String, id: String);
        }
    }
}

/// Compression module: compresses responses.
pub mod compression {
    use crate::api::macros::resource;
    use crate::api::remote::edges::modules::Compression;

    resource! {
        /// Compression module: compresses responses.
        "edges.https.routes.compression" {
            /// Replace the compression module of a route.
            PUT "/edges/https/{edge_id}/routes/{id}/compression" Replace(
                edge_id: String, id: String,
                [
                    enabled: bool,
                ]
            ) -> Compression;
            /// Fetch the compression module of a route.
            GET "/edges/https/{edge_id}/routes/{id}/compression" Get(edge_id: String, id: String) -> Compression;
            /// Remove the compression module from a route.
            DELETE "/edges/https/{edge_id}/routes/{id}/compression" Delete(edge_id: String, id: String);
        }
    }
}

/// Request headers module: changes the headers of requests.
pub mod request_headers {
    use std::collections::BTreeMap;

    use crate::api::macros::resource;
    use crate::api::remote::edges::modules::RequestHeaders;

    resource! {
        /// Request headers module: changes the headers of requests.
        "edges.https.routes.request_headers" {
            /// Replace the request headers module of a route.
            PUT "/edges/https/{edge_id}/routes/{id}/request_headers" Replace(
                edge_id: String, id: String,
                [
                    enabled: bool,
                    add: BTreeMap<String, String>,
                    remove: Vec<String>,
                ]
            ) -> RequestHeaders;
            /// Fetch the request headers module of a route.
            GET "/edges/https/{edge_id}/routes/{id}/request_headers" Get(edge_id: String, id: String) -> RequestHeaders;
            /// Remove the request headers module from a route.
            DELETE "/edges/https/{edge_id}/routes/{id}/request_headers" Delete(edge_id: String, id: String);
        }
    }
}

/// Response headers module: changes the headers of responses.
pub mod response_headers {
    use std::collections::BTreeMap;

    use crate::api::macros::resource;
    use crate::api::remote::edges::modules::ResponseHeaders;

    resource! {
        /// Response headers module: changes the headers of responses.
        "edges.https.routes.response_headers" {
            /// Replace the response headers module of a route.
            PUT "/edges/https/{edge_id}/routes/{id}/response_headers" Replace(
                edge_id: String, id: String,
                [
                    enabled: bool,
                    add: BTreeMap<String, String>,
                    remove: Vec<String>,
                ]
            ) -> ResponseHeaders;
            /// Fetch the response headers module of a route.
            GET "/edges/https/{edge_id}/routes/{id}/response_headers" Get(edge_id: String, id: String) -> ResponseHeaders;
            /// Remove the response headers module from a route.
            DELETE "/edges/https/{edge_id}/routes/{id}/response_headers" Delete(edge_id: String, id: String);
        }
    }
}

/// Webhook verification module: lets only signed webhooks through.
pub mod webhook_verification {
    use crate::api::Secret;
    use crate::api::macros::resource;
    use crate::api::remote::edges::modules::WebhookVerification;

    resource! {
        /// Webhook verification module: lets only signed webhooks through.
        "edges.https.routes.webhook_verification" {
            /// Replace the webhook verification module of a route.
            PUT "/edges/https/{edge_id}/routes/{id}/webhook_verification" Replace(
                edge_id: String, id: String,
                provider: String,
                secret: Secret,
                [
                    enabled: bool,
                ]
            ) -> WebhookVerification;
            /// Fetch the webhook verification module of a route.
            GET "/edges/https/{edge_id}/routes/{id}/webhook_verification" Get(edge_id: String, id: String) -> WebhookVerification;
            /// Remove the webhook verification module from a route.
            DELETE "/edges/https/{edge_id}/routes/{id}/webhook_verification" Delete(edge_id: String, id: String);
        }
    }
}

/// WebSocket TCP converter module: converts WebSockets into TCP streams.
pub mod websocket_tcp_converter {
    use crate::api::macros::resource;
    use crate::api::remote::edges::modules::WebsocketTcpConverter;

    resource! {
        /// WebSocket TCP converter module: converts WebSockets into TCP streams.
        "edges.https.routes.websocket_tcp_converter" {
            /// Replace the WebSocket TCP converter module of a route.
            PUT "/edges/https/{edge_id}/routes/{id}/websocket_tcp_converter" Replace(
                edge_id: String, id: String,
                [
                    enabled: bool,
                ]
            ) -> WebsocketTcpConverter;
            /// Fetch the WebSocket TCP converter module of a route.
            GET "/edges/https/{edge_id}/routes/{id}/websocket_tcp_converter" Get(edge_id: String, id: String) -> WebsocketTcpConverter;
            /// Remove the WebSocket TCP converter module from a route.
            DELETE "/edges/https/{edge_id}/routes/{id}/websocket_tcp_converter" Delete(edge_id: String, id: String);
        }
    }
}

/// Every module's resource.
pub const MODULES: &[crate::api::Resource] = &[
    backend::RESOURCE,
    ip_restriction::RESOURCE,
    policy::RESOURCE,
    user_agent_filter::RESOURCE,
    circuit_breaker::RESOURCE,
    compression::RESOURCE,
    request_headers::RESOURCE,
    response_headers::RESOURCE,
    webhook_verification::RESOURCE,
    websocket_tcp_converter::RESOURCE,
];
