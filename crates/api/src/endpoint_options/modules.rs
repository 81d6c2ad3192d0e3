//! The table of the modules of tunnels, and how those that edges have as well are read and sent.

use http::{HeaderName, HeaderValue};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{FieldProblems, TunnelModule, read_wire, write_wire};
use crate::local::tunnels;
use crate::remote::edges::modules::{
    CircuitBreaker, Compression, RequestHeaders, ResponseHeaders, TrafficPolicyDocument,
    UserAgentFilter, WebhookVerification, WebsocketTcpConverter,
};
use crate::{HeaderList, Secret, policy_document};

/// The modules of tunnels, in the order of the fields of a definition. `$then!` gets each as one group: the text and
/// the type of its field in definitions, its field and type in [`EndpointOptions`](crate::EndpointOptions), the protocols that can have it,
/// the name of its member in a bind, and its flags.
#[macro_export]
macro_rules! tunnel_modules {
    ($then:ident $(, $extra:tt)?) => {
        $then! {
            $($extra)?
            {
                /// The users who may connect, `user:password`.
                basic_auth: Vec<$crate::Secret> => basic_auth: $crate::endpoint_options::BasicAuth;
                ["http"], "BasicAuth", ["basic-auth": ""]
            }
            {
                /// The share of 5xx responses, 0 to 1, above which requests are refused.
                circuit_breaker: f64 => circuit_breaker: $crate::remote::edges::modules::CircuitBreaker;
                ["http"], "CircuitBreaker", ["circuit-breaker": ""]
            }
            {
                /// True to compress responses.
                compression: bool => compression: $crate::remote::edges::modules::Compression;
                ["http"], "Compression", ["compression": ""]
            }
            {
                /// Changes to the headers of requests.
                request_header: $crate::local::tunnels::HeaderChanges
                    => request_headers: $crate::remote::edges::modules::RequestHeaders;
                ["http"], "RequestHeaders",
                ["request-header-add": "add", "request-header-remove": "remove"]
            }
            {
                /// Changes to the headers of responses.
                response_header: $crate::local::tunnels::HeaderChanges
                    => response_headers: $crate::remote::edges::modules::ResponseHeaders;
                ["http"], "ResponseHeaders",
                ["response-header-add": "add", "response-header-remove": "remove"]
            }
            {
                /// Which addresses may connect.
                ip_restriction: $crate::local::tunnels::IpRestriction
                    => ip_restriction: $crate::local::tunnels::IpRestriction;
                ["http", "tcp", "tls"], "IPRestriction",
                ["cidr-allow": "allow_cidrs", "cidr-deny": "deny_cidrs"]
            }
            {
                /// Which user agents may connect.
                user_agent_filter: $crate::local::tunnels::UserAgentFilter
                    => user_agent_filter: $crate::remote::edges::modules::UserAgentFilter;
                ["http"], "UserAgentFilter",
                ["ua-filter-allow": "allow", "ua-filter-deny": "deny"]
            }
            {
                /// Where visitors log in with OAuth, and who of them may connect.
                oauth: $crate::local::tunnels::TunnelOauth => oauth: $crate::local::tunnels::TunnelOauth;
                ["http"], "OAuth",
                [
                    "oauth": "provider",
                    "oauth-client-id": "client_id",
                    "oauth-client-secret": "client_secret",
                    "oauth-allow-email": "allow_emails",
                    "oauth-allow-domain": "allow_domains",
                    "oauth-scope": "scopes"
                ]
            }
            {
                /// Where visitors log in with OpenID Connect, and who of them may connect.
                oidc: $crate::local::tunnels::TunnelOidc => oidc: $crate::local::tunnels::TunnelOidc;
                ["http"], "OIDC",
                [
                    "oidc": "issuer_url",
                    "oidc-client-id": "client_id",
                    "oidc-client-secret": "client_secret",
                    "oidc-allow-email": "allow_emails",
                    "oidc-allow-domain": "allow_domains",
                    "oidc-scope": "scopes"
                ]
            }
            {
                /// How webhooks are verified.
                verify_webhook: $crate::local::tunnels::WebhookVerification
                    => webhook: $crate::remote::edges::modules::WebhookVerification;
                ["http"], "WebhookVerification",
                ["verify-webhook": "provider", "verify-webhook-secret": "secret"]
            }
            {
                /// True to convert WebSockets into plain TCP streams.
                websocket_tcp_converter: bool
                    => websocket_tcp_converter: $crate::remote::edges::modules::WebsocketTcpConverter;
                ["http"], "WebsocketTCPConverter", ["websocket-tcp-converter": ""]
            }
            {
                /// A traffic policy: an object, or its JSON or YAML text.
                traffic_policy: serde_json::Value
                    => traffic_policy: $crate::remote::edges::modules::TrafficPolicyDocument;
                ["http", "tcp", "tls"], "TrafficPolicy", []
            }
        }
    };
}

/// Modules without values: an empty object in a bind.
macro_rules! switches {
    ($($Module:ident)+) => {$(
        impl TunnelModule for $Module {
            type Definition = bool;

            fn read(is_on: bool, _: &mut FieldProblems<'_>) -> Option<Self> {
                is_on.then(Self::default)
            }

            fn to_wire(&self) -> Value {
                write_wire(self)
            }

            fn of_wire(value: Value) -> Result<Option<Self>, String> {
                read_wire::<Self>(value).map(|_| Some(Self::default()))
            }
        }
    )+};
}

switches! { Compression WebsocketTcpConverter }

/// The circuit breaker in a bind.
#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct ErrorThreshold {
    error_threshold: f64,
}

impl TunnelModule for CircuitBreaker {
    type Definition = f64;

    fn read(share: f64, problems: &mut FieldProblems<'_>) -> Option<Self> {
        if !(0.0..=1.0).contains(&share) {
            problems.report("must be a number from 0 to 1");
        }
        Some(Self { error_threshold_percentage: Some(share), ..Self::default() })
    }

    fn to_wire(&self) -> Value {
        let error_threshold = self.error_threshold_percentage.unwrap_or_default();
        write_wire(&ErrorThreshold { error_threshold })
    }

    fn of_wire(value: Value) -> Result<Option<Self>, String> {
        let ErrorThreshold { error_threshold } = read_wire(value)?;
        Ok(Some(Self { error_threshold_percentage: Some(error_threshold), ..Self::default() }))
    }
}

impl TunnelModule for tunnels::IpRestriction {
    type Definition = Self;

    fn read(given: Self, _: &mut FieldProblems<'_>) -> Option<Self> {
        let Self { allow_cidrs, deny_cidrs } = given;
        Some(Self { allow_cidrs: non_empty(allow_cidrs), deny_cidrs: non_empty(deny_cidrs) })
    }

    fn to_wire(&self) -> Value {
        write_wire(self)
    }

    fn of_wire(value: Value) -> Result<Option<Self>, String> {
        let Self { allow_cidrs, deny_cidrs } = read_wire(value)?;
        Ok(Some(Self { allow_cidrs: non_empty(allow_cidrs), deny_cidrs: non_empty(deny_cidrs) }))
    }
}

impl TunnelModule for UserAgentFilter {
    type Definition = tunnels::UserAgentFilter;

    fn read(given: Self::Definition, _: &mut FieldProblems<'_>) -> Option<Self> {
        let (allow, deny) = (non_empty(given.allow), non_empty(given.deny));
        Some(Self { enabled: None, allow, deny })
    }

    fn to_wire(&self) -> Value {
        write_wire(self)
    }

    fn of_wire(value: Value) -> Result<Option<Self>, String> {
        let Self { allow, deny, .. } = read_wire(value)?;
        Ok(Some(Self { enabled: None, allow: non_empty(allow), deny: non_empty(deny) }))
    }
}

impl TunnelModule for WebhookVerification {
    type Definition = tunnels::WebhookVerification;

    fn read(given: Self::Definition, problems: &mut FieldProblems<'_>) -> Option<Self> {
        let provider = given.provider.unwrap_or_default();
        if provider.is_empty() {
            problems.report_in("provider", "is required");
        }
        Some(Self {
            enabled: None,
            provider: Some(provider),
            secret: given.secret.and_then(given_secret),
        })
    }

    fn to_wire(&self) -> Value {
        write_wire(self)
    }

    fn of_wire(value: Value) -> Result<Option<Self>, String> {
        let Self { provider, secret, .. } = read_wire(value)?;
        let provider = Some(provider.unwrap_or_default());
        Ok(Some(Self { enabled: None, provider, secret: secret.and_then(given_secret) }))
    }
}

/// Both kinds of changes to headers: in a definition and in a bind, each header to add is `name:value`.
macro_rules! header_changes {
    ($($Changes:ident)+) => {$(
        impl TunnelModule for $Changes {
            type Definition = tunnels::HeaderChanges;

            fn read(given: Self::Definition, problems: &mut FieldProblems<'_>) -> Option<Self> {
                let add = given.add.unwrap_or_default();
                if !add.iter().all(|header| is_header(header)) {
                    problems.report("add must be a list of name:value");
                }
                // As they were written: earlier services remove spaces.
                let pair = |header: &String| {
                    let (name, value) = header.split_once(':')?;
                    Some((name.to_owned(), value.to_owned()))
                };
                let add = HeaderList(add.iter().filter_map(pair).collect());
                Some(Self { enabled: None, add: Some(add), remove: given.remove })
            }

            fn to_wire(&self) -> Value {
                let add = self.add.iter().flatten();
                let add = add.map(|(name, value)| format!("{name}:{value}")).collect();
                let (add, remove) = (non_empty(Some(add)), non_empty(self.remove.clone()));
                write_wire(&tunnels::HeaderChanges { add, remove })
            }

            fn of_wire(value: Value) -> Result<Option<Self>, String> {
                let tunnels::HeaderChanges { add, remove } = read_wire(value)?;
                let split = |header: String| match header.split_once(':') {
                    Some((name, value)) => Ok((name.trim().to_owned(), value.trim().to_owned())),
                    None => Err(format!("the header {header:?} is not name:value")),
                };
                let add = add.unwrap_or_default().into_iter().map(split).collect::<Result<_, _>>()?;
                Ok(Some(Self { enabled: None, add: Some(HeaderList(add)), remove: non_empty(remove) }))
            }
        }
    )+};
}

header_changes! { RequestHeaders ResponseHeaders }

impl TunnelModule for TrafficPolicyDocument {
    type Definition = Value;

    fn read(given: Value, problems: &mut FieldProblems<'_>) -> Option<Self> {
        let text = match given {
            // An empty text would be an endpoint without a policy, open to every visitor.
            Value::String(text) if text.trim().is_empty() => {
                problems.report("is empty; write a policy, or leave the field out for none");
                return None;
            }
            Value::String(text) => text,
            value @ Value::Object(_) => {
                if let Some(path) = policy_document::unclear_number(&value) {
                    let path = path.trim_start_matches('.');
                    let problem = "is a number in a text field; put it into quotes";
                    problems.report(&format!("{path} {problem}"));
                }
                policy_document::with_texts(&value).to_string()
            }
            _ => {
                problems.report("must be an object or its text");
                return None;
            }
        };
        Some(Self { enabled: None, value: Some(text) })
    }

    fn to_wire(&self) -> Value {
        self.value.clone().into()
    }

    fn of_wire(value: Value) -> Result<Option<Self>, String> {
        let text = read_wire::<String>(value)?;
        Ok(Some(text)
            .filter(|text| !text.is_empty())
            .map(|text| Self { enabled: None, value: Some(text) }))
    }
}

/// Returns a member of an object, in any letter case; the exact name wins. Null counts as absent.
pub fn member<'m>(members: &'m Map<String, Value>, name: &str) -> Option<&'m Value> {
    let exact = members.get(name).filter(|value| !value.is_null());
    exact.or_else(|| {
        let mut others = members.iter().filter(|(known, _)| known.eq_ignore_ascii_case(name));
        others.find_map(|(_, value)| Some(value).filter(|value| !value.is_null()))
    })
}

/// Returns a list or a text that is not empty.
pub(super) fn non_empty<T: Default + PartialEq>(value: Option<T>) -> Option<T> {
    value.filter(|value| *value != T::default())
}

fn given_secret(secret: Secret) -> Option<Secret> {
    non_empty(Some(secret))
}

/// Returns true if a text is a header: a name, a colon, and a value within one line.
fn is_header(text: &str) -> bool {
    let Some((name, value)) = text.split_once(':') else { return false };
    let is_name = HeaderName::from_bytes(name.trim().as_bytes()).is_ok();
    is_name && HeaderValue::from_bytes(value.trim().as_bytes()).is_ok()
}
