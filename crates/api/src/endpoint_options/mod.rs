//! Options of an endpoint that an agent asks for: one type for definitions of tunnels, for binds and for the gateway.
//!
//! Each module is one row of [`tunnel_modules`], in `modules`. The fields of [`EndpointOptions`] and of the operation that starts a
//! tunnel, the members of a bind, the flags of commands, and the modules that the gateway builds come from the rows.
//! [`TunnelModule`] describes how a type is read from a definition, and its form in a bind.

mod basic_auth;
mod logins;
mod modules;
mod tls;

use serde_json::{Map, Value};

pub use crate::tunnel_modules;
pub use basic_auth::{BasicAuth, BasicAuthCredential};
pub use modules::member;
pub use tls::{TunnelCertificate, VisitorAuthorities};

use crate::lenient_json::from_value;
use crate::local::tunnels;

/// A module of tunnels, in the forms that it has besides its own.
pub trait TunnelModule: Sized {
    /// The value of its field in a definition of a tunnel.
    type Definition;

    /// Reads the value of a definition, and reports its problems. Returns `None` if the module is off.
    fn read(given: Self::Definition, problems: &mut FieldProblems<'_>) -> Option<Self>;

    /// Returns its member of a bind.
    fn to_wire(&self) -> Value;

    /// Reads its member of a bind. Returns `None` if the module is off.
    ///
    /// # Errors
    /// If the member has another form, or contains a value that no service can use.
    fn of_wire(value: Value) -> Result<Option<Self>, String>;
}

/// Problems with one field of a definition.
pub struct FieldProblems<'p> {
    field: &'static str,
    found: &'p mut Vec<String>,
}

impl FieldProblems<'_> {
    /// Reports a problem with the field.
    pub fn report(&mut self, problem: &str) {
        self.found.push(format!("{}: {problem}", self.field));
    }

    /// Reports a problem with a field inside the field.
    pub fn report_in(&mut self, inner: &str, problem: &str) {
        self.found.push(format!("{}.{inner}: {problem}", self.field));
    }
}

/// A row of the table of modules, as data.
#[derive(Debug, Clone, Copy)]
pub struct TunnelModuleInfo {
    /// The field in a definition of a tunnel.
    pub field: &'static str,
    /// The protocols of tunnels that can have the module: `http`, `tcp` or `tls`.
    pub protocols: &'static [&'static str],
    /// The flags that set the field: each with the name of the field inside it, which is empty for the field itself.
    pub flags: &'static [(&'static str, &'static str)],
}

impl TunnelModuleInfo {
    /// Returns the row of a field.
    pub fn of_field(field: &str) -> Option<&'static Self> {
        TUNNEL_MODULES.iter().find(|row| row.field == field)
    }
}

/// Declares [`EndpointOptions`], and its methods that handle each module.
macro_rules! endpoint_options {
    ($({
        $(#[doc = $doc:literal])+
        $field:ident : $Definition:ty => $option:ident : $Module:ty;
        [$($protocol:literal),+], $wire:literal, [$($flag:literal : $inner:literal),*]
    })+) => {
        /// The modules of an endpoint; none by default.
        #[derive(Debug, Clone, Default, PartialEq)]
        pub struct EndpointOptions {
            $( $(#[doc = $doc])+ pub $option: Option<$Module>, )+
            /// For TLS: the service terminates it, and the endpoint carries plain bytes.
            pub tls_termination: Option<TunnelCertificate>,
            /// The authorities that sign the certificates of visitors.
            pub mutual_tls: Option<VisitorAuthorities>,
        }

        /// The rows of the table, as data.
        pub const TUNNEL_MODULES: &[TunnelModuleInfo] = &[$(
            TunnelModuleInfo {
                field: stringify!($field),
                protocols: &[$($protocol),+],
                flags: &[$(($flag, $inner)),*],
            },
        )+];

        impl EndpointOptions {
            /// Takes the modules out of a definition of a tunnel. The problems name their fields.
            pub fn read(proto: &str, start: &mut tunnels::Start, found: &mut Vec<String>) -> Self {
                let (tls_termination, mutual_tls) = (None, None);
                Self {
                    $($option: {
                        let is_own = [$($protocol),+].contains(&proto);
                        let mut problems = FieldProblems { field: stringify!($field), found: &mut *found };
                        let given = start.$field.take().filter(|_| is_own);
                        given.and_then(|given| <$Module>::read(given, &mut problems))
                    },)+
                    tls_termination,
                    mutual_tls,
                }
            }

            /// Adds the members of a bind of this protocol to others; modules that are off are null.
            pub fn encode(&self, proto: &str, members: &mut Map<String, Value>) {
                let proto = tunnel_protocol(proto);
                $(if [$($protocol),+].contains(&proto) {
                    let member = self.$option.as_ref().map(TunnelModule::to_wire);
                    members.insert($wire.to_owned(), member.unwrap_or_default());
                })+
                tls::encode(self, proto, members);
            }

            /// Reads the members of a bind of this protocol.
            ///
            /// # Errors
            /// If a member has another form, or contains a value that no service can use.
            pub fn decode(proto: &str, members: &Map<String, Value>) -> Result<Self, String> {
                let proto = tunnel_protocol(proto);
                let mut options = Self::default();
                $(if [$($protocol),+].contains(&proto)
                    && let Some(value) = member(members, $wire)
                {
                    options.$option = <$Module>::of_wire(value.clone())?;
                })+
                tls::decode(&mut options, proto, members)?;
                Ok(options)
            }
        }
    };
}

tunnel_modules!(endpoint_options);

/// Reads a value of a bind.
fn read_wire<T: serde::de::DeserializeOwned>(value: Value) -> Result<T, String> {
    from_value(value).map_err(|problem| problem.to_string())
}

/// Returns the form of a value in a bind, which leaves out what is unset.
fn write_wire(value: &impl serde::Serialize) -> Value {
    // Plain structs always make objects.
    let mut written = serde_json::to_value(value).unwrap_or_default();
    if let Value::Object(members) = &mut written {
        members.retain(|_, member| !member.is_null());
    }
    written
}

/// Returns the protocol of a tunnel whose bind has this one: HTTP, with or without TLS, is `http`.
fn tunnel_protocol(bind_protocol: &str) -> &str {
    match bind_protocol {
        "https" => "http",
        other => other,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{CallArguments, Operation};

    /// A definition with every module, and the bind that it becomes.
    fn everything() -> (Value, Value) {
        let login = json!({"client_id": "a", "client_secret": "b", "allow_emails": ["c@d.test"]});
        let with = |field: &str, value: &str| {
            let mut login = login.clone();
            login[field] = value.into();
            login
        };
        let definition = json!({
            "addr": "80", "basic_auth": ["ann:swordfish"], "circuit_breaker": 0.5, "compression": true,
            "request_header": {"add": ["a: 1", "a:2"]}, "response_header": {"remove": ["b"]},
            "ip_restriction": {"allow_cidrs": ["::/0"]}, "user_agent_filter": {"deny": ["x"]},
            "oauth": with("provider", "google"), "oidc": with("issuer_url", "https://a.test"),
            "verify_webhook": {"provider": "github", "secret": "s"}, "websocket_tcp_converter": true,
            "traffic_policy": "on_http_request: []",
        });
        let bind = json!({
            "BasicAuth": {"credentials": [{"username": "ann", "cleartext_password": "swordfish"}]},
            "CircuitBreaker": {"error_threshold": 0.5}, "Compression": {},
            "RequestHeaders": {"add": ["a: 1", "a:2"]}, "ResponseHeaders": {"remove": ["b"]},
            "IPRestriction": {"allow_cidrs": ["::/0"]}, "UserAgentFilter": {"deny": ["x"]},
            "OAuth": with("provider", "google"), "OIDC": with("issuer_url", "https://a.test"),
            "WebhookVerification": {"provider": "github", "secret": "s"}, "WebsocketTCPConverter": {},
            "TrafficPolicy": "on_http_request: []", "MutualTLSCA": null,
        });
        (definition, bind)
    }

    #[test]
    fn every_module_comes_from_a_definition_and_through_a_bind() {
        let (definition, expected) = everything();
        let arguments = definition.as_object().unwrap().clone();
        let mut start = tunnels::Start::from_arguments(&mut CallArguments(arguments)).unwrap();
        let (mut problems, mut bind) = (Vec::new(), Map::new());

        let options = EndpointOptions::read("http", &mut start, &mut problems);
        options.encode("http", &mut bind);
        let decoded = EndpointOptions::decode("http", &bind).unwrap();

        assert_eq!(problems, [""; 0]);
        assert_eq!(Value::Object(bind.clone()), expected);
        assert_eq!(bind.len(), TUNNEL_MODULES.len() + 1);
        let mut again = Map::new();
        decoded.encode("http", &mut again);
        // The service removes the space before a value.
        again["RequestHeaders"]["add"][0] = "a: 1".into();
        assert_eq!(again, bind);
        let bytes = EndpointOptions::decode("tcp", &bind).unwrap();
        let (ip_restriction, traffic_policy) = (options.ip_restriction, options.traffic_policy);
        assert_eq!(bytes, EndpointOptions { ip_restriction, traffic_policy, ..Default::default() });
    }

    #[test]
    fn secrets_are_not_printed() {
        let (_, bind) = everything();

        let options = EndpointOptions::decode("http", bind.as_object().unwrap()).unwrap();

        let printed = format!("{options:?}");
        assert!(printed.contains("ann") && !printed.contains("swordfish"), "{printed}");
    }

    #[test]
    fn a_bind_cannot_switch_a_module_off_or_set_what_only_edges_have() {
        let bind = json!({
            "compression": {"enabled": false}, "UserAgentFilter": {"allow": ["x"], "enabled": false},
            "CircuitBreaker": {"error_threshold": 1, "volume_threshold": 1},
        });

        let options = EndpointOptions::decode("http", bind.as_object().unwrap()).unwrap();

        assert_eq!(options.compression, Some(Default::default()));
        assert_eq!(options.user_agent_filter.unwrap().enabled, None);
        assert_eq!(options.circuit_breaker.unwrap().volume_threshold, None);
    }
}
