//! The modules of a TCP edge: each can be replaced, read and deleted on its own.

/// Backend module: the backend that traffic goes to.
pub mod backend {
    use crate::api::macros::resource;
    use crate::api::remote::edges::modules::BackendModule;

    resource! {
        /// Backend module: the backend that traffic goes to.
        "edges.tcp.backend" {
            /// Replace the backend module of a TCP edge.
            PUT "/edges/tcp/{id}/backend" Replace(
                id: String,
                /// The backend to send traffic to.
                backend_id: String,
                [
                    enabled: bool,
                ]
            ) -> BackendModule;
            /// Fetch the backend module of a TCP edge.
            GET "/edges/tcp/{id}/backend" Get(id: String) -> BackendModule;
            /// Remove the backend module from a TCP edge.
            DELETE "/edges/tcp/{id}/backend" Delete(id: String);
        }
    }
}

/// IP restriction module: only sources that IP policies allow.
pub mod ip_restriction {
    use crate::api::macros::resource;
    use crate::api::remote::edges::modules::IpRestriction;

    resource! {
        /// IP restriction module: only sources that IP policies allow.
        "edges.tcp.ip_restriction" {
            /// Replace the IP restriction module of a TCP edge.
            PUT "/edges/tcp/{id}/ip_restriction" Replace(
                id: String,
                /// The IP policies that decide.
                ip_policy_ids: Vec<String>,
                [
                    enabled: bool,
                ]
            ) -> IpRestriction;
            /// Fetch the IP restriction module of a TCP edge.
            GET "/edges/tcp/{id}/ip_restriction" Get(id: String) -> IpRestriction;
            /// Remove the IP restriction module from a TCP edge.
            DELETE "/edges/tcp/{id}/ip_restriction" Delete(id: String);
        }
    }
}

/// Traffic policy module: rules that act on traffic.
pub mod policy {
    use crate::api::macros::resource;
    use crate::api::remote::edges::modules::{EndpointRule, TrafficPolicy};

    resource! {
        /// Traffic policy module: rules that act on traffic.
        "edges.tcp.policy" {
            /// Replace the traffic policy module of a TCP edge.
            PUT "/edges/tcp/{id}/policy" Replace(
                id: String,
                [
                    enabled: bool,
                    inbound: Vec<EndpointRule>,
                    outbound: Vec<EndpointRule>,
                ]
            ) -> TrafficPolicy;
            /// Fetch the traffic policy module of a TCP edge.
            GET "/edges/tcp/{id}/policy" Get(id: String) -> TrafficPolicy;
            /// Remove the traffic policy module from a TCP edge.
            DELETE "/edges/tcp/{id}/policy" Delete(id: String);
        }
    }
}

/// Every module's resource.
pub const MODULES: &[crate::api::Resource] =
    &[backend::RESOURCE, ip_restriction::RESOURCE, policy::RESOURCE];
