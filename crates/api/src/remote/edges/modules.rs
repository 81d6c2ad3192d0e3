//! What the modules of edges and routes hold.

use serde_json::{Map, Value};

use crate::macros::wire;
use crate::remote::Ref;
pub use crate::remote::edges::oauth::{Oauth, OauthGithubLogin, OauthLogin, OauthLogins};
use crate::{HeaderList, Secret};

wire! {
    /// The backend that traffic goes to.
    pub struct BackendModule {
        /// False to switch the module off without forgetting it; true when unspecified.
        pub enabled: Option<bool>,
        /// The backend.
        pub backend: Option<Ref>,
    }

    /// The backend to send traffic to, as given inside an edge or a route.
    pub struct BackendModuleChange {
        /// False to switch the module off without forgetting it; true when unspecified.
        pub enabled: Option<bool>,
        /// The identifier of the backend.
        pub backend_id: Option<String>,
    }

    /// Lets through only sources that IP policies allow.
    pub struct IpRestriction {
        /// False to switch the module off without forgetting it; true when unspecified.
        pub enabled: Option<bool>,
        /// The IP policies that decide.
        pub ip_policies: Option<Vec<Ref>>,
    }

    /// The IP policies to apply, as given inside an edge or a route.
    pub struct IpRestrictionChange {
        /// False to switch the module off without forgetting it; true when unspecified.
        pub enabled: Option<bool>,
        /// The identifiers of the IP policies.
        pub ip_policy_ids: Option<Vec<String>>,
    }

    /// Lets in only visitors who present a certificate.
    pub struct MutualTls {
        /// False to switch the module off without forgetting it; true when unspecified.
        pub enabled: Option<bool>,
        /// The certificate authorities that verify visitors.
        pub certificate_authorities: Option<Vec<Ref>>,
    }

    /// The certificate authorities to verify visitors with, as given inside an edge.
    pub struct MutualTlsChange {
        /// False to switch the module off without forgetting it; true when unspecified.
        pub enabled: Option<bool>,
        /// The identifiers of the certificate authorities.
        pub certificate_authority_ids: Option<Vec<String>>,
    }

    /// The TLS settings.
    pub struct TlsTermination {
        /// False to switch the module off without forgetting it; true when unspecified.
        pub enabled: Option<bool>,
        /// Where TLS is terminated: always `edge`.
        #[public(text)]
        pub terminate_at: Option<String>,
        /// The oldest version of TLS that is accepted, `1.2` or `1.3`.
        #[public(text)]
        pub min_version: Option<String>,
    }

    /// The TLS settings, as given inside an edge.
    pub struct TlsTerminationChange {
        /// False to switch the module off without forgetting it; true when unspecified.
        pub enabled: Option<bool>,
        /// The oldest version of TLS that is accepted: `1.2`, the default, or `1.3`.
        pub min_version: Option<String>,
    }

    /// Where the TLS of a TLS edge ends.
    pub struct TlsEdgeTermination {
        /// False to switch the module off without forgetting it; true when unspecified.
        pub enabled: Option<bool>,
        /// Where TLS ends: `edge`, the default, or `upstream`, which gets the bytes unchanged.
        #[public(text)]
        pub terminate_at: Option<String>,
        /// The oldest version of TLS that is accepted, `1.2`, the default, or `1.3`; only where TLS ends
        /// at the edge.
        #[public(text)]
        pub min_version: Option<String>,
    }

    /// Rules that act on traffic.
    pub struct TrafficPolicy {
        /// True when the module is applied to traffic; true when unspecified.
        pub enabled: Option<bool>,
        /// The rules for requests, or for new connections of a TCP edge.
        pub inbound: Option<Vec<EndpointRule>>,
        /// The rules for responses, or for closed connections of a TCP edge.
        pub outbound: Option<Vec<EndpointRule>>,
    }

    /// One rule of a traffic policy: its actions run when all its expressions are true.
    pub struct EndpointRule {
        /// The name of the rule.
        pub name: Option<String>,
        /// CEL expressions that select the traffic that the rule applies to; none select all.
        pub expressions: Option<Vec<String>>,
        /// What to do, in order.
        pub actions: Option<Vec<EndpointAction>>,
    }

    /// One action of a rule.
    pub struct EndpointAction {
        /// The kind of action, such as `deny`.
        #[public(text)]
        pub r#type: Option<String>,
        /// The configuration of the action; none where it has none.
        pub config: Option<Map<String, Value>>,
    }

    /// Rules that act on traffic, as one document.
    pub struct TrafficPolicyDocument {
        /// True when the module is applied to traffic; true when unspecified.
        pub enabled: Option<bool>,
        /// The document, in JSON or YAML.
        pub value: Option<String>,
    }

    /// Decides on the `User-Agent` header.
    pub struct UserAgentFilter {
        /// False to switch the module off without forgetting it; true when unspecified.
        pub enabled: Option<bool>,
        /// Regular expressions of agents to let through, whatever `deny` says.
        #[public(text)]
        pub allow: Option<Vec<String>>,
        /// Regular expressions of agents to refuse.
        #[public(text)]
        pub deny: Option<Vec<String>>,
    }

    /// Rejects traffic while the backend fails.
    pub struct CircuitBreaker {
        /// False to switch the module off without forgetting it; true when unspecified.
        pub enabled: Option<bool>,
        /// Seconds to reject everything once tripped, before trying again; 10 by default.
        pub tripped_duration: Option<i64>,
        /// Seconds over which failures are counted; 10 by default.
        pub rolling_window: Option<i64>,
        /// Into how many buckets the window is divided, 1 to 128; 10 by default.
        pub num_buckets: Option<i64>,
        /// How many requests a window needs before the circuit may trip; 20 by default.
        pub volume_threshold: Option<i64>,
        /// The share of failures that trips the circuit, 0 to 1; 0.5 by default.
        pub error_threshold_percentage: Option<f64>,
    }

    /// Compresses responses.
    pub struct Compression {
        /// False to switch the module off without forgetting it; true when unspecified.
        pub enabled: Option<bool>,
    }

    /// Changes the headers of requests.
    pub struct RequestHeaders {
        /// False to switch the module off without forgetting it; true when unspecified.
        pub enabled: Option<bool>,
        /// Headers to add, by name.
        pub add: Option<HeaderList>,
        /// Names of headers to remove.
        #[public(text)]
        pub remove: Option<Vec<String>>,
    }

    /// Changes the headers of responses.
    pub struct ResponseHeaders {
        /// False to switch the module off without forgetting it; true when unspecified.
        pub enabled: Option<bool>,
        /// Headers to add, by name.
        pub add: Option<HeaderList>,
        /// Names of headers to remove.
        #[public(text)]
        pub remove: Option<Vec<String>>,
    }

    /// Lets only signed webhooks through.
    pub struct WebhookVerification {
        /// False to switch the module off without forgetting it; true when unspecified.
        pub enabled: Option<bool>,
        /// Who signs, such as `github`.
        #[public(text)]
        pub provider: Option<String>,
        /// The secret that signatures are made with.
        pub secret: Option<Secret>,
    }

    /// Lets only visitors in who have logged in at an issuer of OpenID Connect.
    pub struct Oidc {
        /// False to switch the module off without forgetting it; true when unspecified.
        pub enabled: Option<bool>,
        /// True to let preflights of CORS pass without a login.
        pub options_passthrough: Option<bool>,
        /// Prefix of the names of the cookies.
        pub cookie_prefix: Option<String>,
        /// After how many seconds without a request a session ends; 0 or unspecified for a day.
        pub inactivity_timeout: Option<i64>,
        /// After how many seconds a session ends in any case; 0 or unspecified for 14 days.
        pub maximum_duration: Option<i64>,
        /// The URL of the issuer.
        pub issuer: Option<String>,
        /// What the issuer calls the application.
        pub client_id: Option<String>,
        /// What the application proves with that it is the one.
        pub client_secret: Option<Secret>,
        /// Scopes to request; `profile` and `email` when unspecified.
        pub scopes: Option<Vec<String>>,
    }

    /// Converts WebSockets into TCP streams.
    pub struct WebsocketTcpConverter {
        /// False to switch the module off without forgetting it; true when unspecified.
        pub enabled: Option<bool>,
    }
}

/// The modules that routes and TCP edges have in common, in the words of each, around those that only one
/// of them has.
#[macro_export]
macro_rules! modules_with_backend {
    (
        $then:ident $(, $extra:tt)?;
        backend: $backend:literal, ip_restriction: $ip_restriction:literal, policy: $policy:literal;
        $($others:tt)*
    ) => {
        $then! {
            $($extra)?
            {
                #[doc = $backend]
                backend: BackendModule from BackendModuleChange;
                "backend module", " Backend module: the backend that receives the traffic.", ".";
                (
                    /// The backend to send traffic to.
                    backend_id: String,
                ) [enabled: bool]
            }
            {
                #[doc = $ip_restriction]
                ip_restriction: IpRestriction from IpRestrictionChange;
                "IP restriction module",
                " IP restriction module: only sources that IP policies allow.", ".";
                (
                    /// The IP policies that decide.
                    ip_policy_ids: Vec<String>,
                ) [enabled: bool]
            }
            $($others)*
            {
                #[doc = $policy]
                policy: TrafficPolicy from TrafficPolicy;
                "traffic policy module",
                " Traffic policy module: rules that act on traffic.", ".";
                () [enabled: bool, inbound: Vec<EndpointRule>, outbound: Vec<EndpointRule>]
            }
            {
                /// The same rules as one document; either this or `policy`.
                traffic_policy: TrafficPolicyDocument from TrafficPolicyDocument;
                "traffic policy document",
                " Traffic policy as one document: the same rules, kept as the text that was written.", ".";
                (
                    /// The document, in JSON or YAML, with the phases that it would have for an endpoint of
                    /// an agent, except `on_tcp_connect`, or with `inbound` and `outbound`.
                    value: String,
                ) [enabled: bool]
            }
        }
    };
}

/// The modules of routes, in the order in which routes show them. `$then!` gets each as one group: its
/// field, its types, its words, and what its own operation takes, required and in brackets. A group
/// that is given as well comes first.
///
/// A new module is a row here, with its type above, and a file in `gateway/modules`. If tunnels can have it, it has
/// a row in `endpoint_options` as well.
#[macro_export]
macro_rules! route_modules {
    ($then:ident $(, $extra:tt)?) => {
        $crate::remote::edges::modules::modules_with_backend! {
            $then $(, $extra)?;
            backend: " Where requests go.",
            ip_restriction: " Which sources may send requests.",
            policy: " Rules that act on requests and responses.";
            {
                /// Rejects requests while the backend fails.
                circuit_breaker: CircuitBreaker from CircuitBreaker;
                "circuit breaker module",
                " Circuit breaker module: rejects traffic while the backend fails.", ".";
                () [
                    enabled: bool,
                    tripped_duration: i64,
                    rolling_window: i64,
                    num_buckets: i64,
                    volume_threshold: i64,
                    error_threshold_percentage: f64,
                ]
            }
            {
                /// Compresses responses.
                compression: Compression from Compression;
                "compression module", " Compression module: compresses responses.", ".";
                () [enabled: bool]
            }
            {
                /// Changes the headers of requests.
                request_headers: RequestHeaders from RequestHeaders;
                "request headers module",
                " Request headers module: changes the headers of requests.", ".";
                () [enabled: bool, add: $crate::HeaderList, remove: Vec<String>]
            }
            {
                /// Changes the headers of responses.
                response_headers: ResponseHeaders from ResponseHeaders;
                "response headers module",
                " Response headers module: changes the headers of responses.", ".";
                () [enabled: bool, add: $crate::HeaderList, remove: Vec<String>]
            }
            {
                /// Lets only signed webhooks through.
                webhook_verification: WebhookVerification from WebhookVerification;
                "webhook verification module",
                " Webhook verification module: lets only signed webhooks through.", ".";
                (provider: String, secret: $crate::Secret,) [enabled: bool]
            }
            {
                /// Admits only visitors after their login.
                oidc: Oidc from Oidc;
                "OpenID Connect module",
                " OpenID Connect module: lets only visitors in who have logged in at an issuer.", ".";
                (issuer: String, client_id: String, client_secret: $crate::Secret,) [
                    enabled: bool,
                    options_passthrough: bool,
                    cookie_prefix: String,
                    inactivity_timeout: i64,
                    maximum_duration: i64,
                    scopes: Vec<String>,
                ]
            }
            {
                /// Lets only visitors in who have logged in at a provider of OAuth.
                oauth: Oauth from Oauth;
                "OAuth module",
                " OAuth module: lets only visitors in who have logged in at a provider of OAuth.", ".";
                (provider: OauthLogins,) [
                    enabled: bool,
                    options_passthrough: bool,
                    cookie_prefix: String,
                    inactivity_timeout: i64,
                    maximum_duration: i64,
                    auth_check_interval: i64,
                ]
            }
            {
                /// Converts WebSockets into TCP streams.
                websocket_tcp_converter: WebsocketTcpConverter from WebsocketTcpConverter;
                "WebSocket TCP converter module",
                " WebSocket TCP converter module: converts WebSockets into TCP streams.", ".";
                () [enabled: bool]
            }
            {
                /// Decides on the `User-Agent` header.
                user_agent_filter: UserAgentFilter from UserAgentFilter;
                "user agent filter module",
                " User agent filter module: decides on the `User-Agent` header.", ".";
                () [enabled: bool, allow: Vec<String>, deny: Vec<String>]
            }
        }
    };
}

/// The modules of TCP edges, in the same form.
#[macro_export]
macro_rules! tcp_modules {
    ($then:ident $(, $extra:tt)?) => {
        $crate::remote::edges::modules::modules_with_backend! {
            $then $(, $extra)?;
            backend: " Where connections go.",
            ip_restriction: " Which sources may connect.",
            policy: " Rules that act on connections.";
        }
    };
}

/// The modules of TLS edges, in the same form.
#[macro_export]
macro_rules! tls_modules {
    ($then:ident $(, $extra:tt)?) => {
        $crate::remote::edges::modules::modules_with_backend! {
            $then $(, $extra)?;
            backend: " Where connections go.",
            ip_restriction: " Which sources may connect.",
            policy: " Rules that act on connections.";
            {
                /// Which authorities verify visitors; needs TLS that ends at the edge.
                mutual_tls: MutualTls from MutualTlsChange;
                "mutual TLS module",
                " Mutual TLS module: visitors must present a certificate.",
                "; everybody may connect then.";
                (
                    /// The certificate authorities that verify visitors; one of them must have signed.
                    certificate_authority_ids: Vec<String>,
                ) [enabled: bool]
            }
            {
                /// Where TLS ends; without this module, at the upstream.
                tls_termination: TlsEdgeTermination from TlsEdgeTermination;
                "TLS termination module",
                " TLS termination module: where TLS ends, and which versions are accepted.",
                "; TLS ends at the upstream then.";
                () [
                    enabled: bool,
                    /// Where TLS ends: `edge`, the default, or `upstream`, which gets the bytes unchanged.
                    terminate_at: String,
                    /// The oldest version of TLS that is accepted, `1.2`, the default, or `1.3`; only where
                    /// TLS ends at the edge.
                    min_version: String,
                ]
            }
        }
    };
}

/// The modules of HTTPS edges, in the same form.
#[macro_export]
macro_rules! https_modules {
    ($then:ident $(, $extra:tt)?) => {
        $then! {
            $($extra)?
            {
                /// Which authorities verify visitors; without any, everybody may connect.
                mutual_tls: MutualTls from MutualTlsChange;
                "mutual TLS module",
                " Mutual TLS module: visitors must present a certificate.",
                "; everybody may connect then.";
                (
                    /// The certificate authorities that verify visitors; one of them must have signed.
                    certificate_authority_ids: Vec<String>,
                ) [enabled: bool]
            }
            {
                /// Which versions of TLS are accepted.
                tls_termination: TlsTermination from TlsTerminationChange;
                "TLS termination module",
                " TLS termination module: which versions of TLS are accepted.",
                "; TLS 1.2 and 1.3 are accepted then.";
                () [
                    enabled: bool,
                    /// The oldest version of TLS that is accepted: `1.2`, the default, or `1.3`.
                    min_version: String,
                ]
            }
        }
    };
}

/// Declares the resource of one module of `$owner`: replace, fetch, remove.
macro_rules! module_resource {
    (
        $resource:literal, $path:literal, ($($id:ident),+), $owner:literal;
        {
            $(#[doc = $doc:literal])+ $name:ident : $Module:ident from $Change:ident;
            $noun:literal, $summary:literal, $removed:literal;
            ($( $(#[doc = $required_doc:literal])* $required:ident : $RequiredType:ty, )*)
            [$( $(#[doc = $optional_doc:literal])* $optional:ident : $OptionalType:ty ),+ $(,)?]
        }
    ) => {
        #[doc = $summary]
        pub mod $name {
            use crate::remote::edges::modules::*;

            $crate::macros::resource! {
                #[doc = $summary]
                in (concat!($resource, ".", stringify!($name))) {
                    #[doc = concat!(" Replace the ", $noun, " of ", $owner, ".")]
                    PUT (concat!($path, "/", stringify!($name))) Replace(
                        $($id: String,)+
                        $( $(#[doc = $required_doc])* $required: $RequiredType, )*
                        [$( $(#[doc = $optional_doc])* $optional: $OptionalType ),+]
                    ) -> $Module;
                    #[doc = concat!(" Fetch the ", $noun, " of ", $owner, ".")]
                    GET (concat!($path, "/", stringify!($name))) Get($($id: String),+) -> $Module;
                    #[doc = concat!(" Remove the ", $noun, " from ", $owner, $removed)]
                    DELETE (concat!($path, "/", stringify!($name))) Delete($($id: String),+);
                }
            }

            impl From<Replace> for $Change {
                fn from(call: Replace) -> Self {
                    Self {
                        $( $required: Some(call.$required), )*
                        $( $optional: call.$optional, )+
                    }
                }
            }
        }
    };
}

pub(crate) use module_resource;
pub use {https_modules, modules_with_backend, route_modules, tcp_modules, tls_modules};
