//! Tunnel definitions, from the configuration file and from the local API (agent sheet, section 3).
//!
//! Names and types of fields are those of the table: [`tunnels::Start`]. `kinds` makes of them what each
//! kind of tunnel has, with the values of single fields from `values` and where it forwards to from
//! `address`. `endpoint` makes a definition of what stands for an endpoint: [`endpoints::Start`].

mod address;
mod endpoint;
mod kinds;
mod values;

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use rustls::ServerConfig;
use serde_json::{Map, Value};

use super::relay::{AppProtocol, HostHeader};
use super::unix_sockets::UnixSocketRoots;
pub use endpoint::PublicAddress;
pub(super) use endpoint::{INTERNAL, PUBLIC, TUNNEL_NAMES, endpoint_upstream, is_internal_url};
use ginnel_api::decode::{self, ArgumentError};
use ginnel_api::local::{endpoints, tunnels};
use ginnel_api::{CallArguments, EndpointOptions, Operation};
use ginnel_base::address::UpstreamAddress;
use ginnel_mux::protocol::message::{Bind, BindExtra, BindLabeled, BindOpts, BindPlace};
use kinds::DefinitionReader;

/// What is wrong with a binding of an endpoint at a public URL or host, for a sentence behind it; none where it
/// has that binding.
pub fn binding_problem(binding: &str, place: Option<&str>) -> Option<&'static str> {
    let own = if place.is_some_and(is_internal_url) { INTERNAL } else { PUBLIC };
    match binding {
        _ if binding == own => None,
        INTERNAL => Some("needs a --url at a host below .internal"),
        PUBLIC => Some("needs a --url at a host that is not below .internal"),
        _ => Some("is neither public nor internal"),
    }
}

/// A tunnel that can be started.
#[derive(Clone)]
pub struct Definition {
    /// Its name; empty for an unnamed tunnel.
    pub name: String,
    /// Where it forwards to.
    pub address: UpstreamAddress,
    /// Folders to which a Unix socket is restricted, if a caller of the agent API named it.
    pub socket_roots: Option<UnixSocketRoots>,
    /// What is spoken there.
    pub app_protocol: AppProtocol,
    /// Free text that the management API shows.
    pub metadata: String,
    /// What it is for, which the management API shows.
    pub description: String,
    /// Whether requests are captured.
    pub inspect: bool,
    /// Whether others may share its URL.
    pub pooling: bool,
    /// How it is made public.
    pub public: EndpointDefinition,
    /// What local services see as `Host`.
    pub host_header: HostHeader,
    /// How TLS of visitors ends at the agent, where it does.
    pub ends_tls: Option<Arc<ServerConfig>>,
    /// How the certificate of a local service is checked.
    pub verify: Option<Option<PathBuf>>,
    /// What stands in the answer for `config`; the definition as it was given.
    pub document: Map<String, Value>,
}

/// How a tunnel is made public.
#[derive(Debug, Clone)]
pub enum EndpointDefinition {
    /// As HTTP, HTTPS or both.
    Http {
        /// `https` first.
        schemes: Vec<&'static str>,
        /// Place and options of the endpoint.
        bind: Box<BindChoice>,
    },
    /// As a TCP port.
    Tcp(Box<BindChoice>),
    /// As a TLS port.
    Tls(Box<BindChoice>),
    /// Through edges, by labels.
    Labeled(BTreeMap<String, String>),
}

/// The place of an endpoint and its options.
#[derive(Debug, Clone, Default)]
pub struct BindChoice {
    /// The wanted place.
    pub place: BindPlace,
    /// The modules that the service applies to the traffic.
    pub options: EndpointOptions,
}

/// What stands in the documents of policies and logins may be secret: it is named and not shown.
impl fmt::Debug for Definition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Definition")
            .field("name", &self.name)
            .field("address", &self.address)
            .field("app_protocol", &self.app_protocol)
            .field("document", &self.document.keys())
            .finish_non_exhaustive()
    }
}

impl Definition {
    /// Reads a definition; the problems name their fields.
    ///
    /// # Errors
    /// When a field is unknown, missing or unusable, one line for each.
    pub fn from_document(document: &Map<String, Value>) -> Result<Self, Vec<String>> {
        DefinitionReader::new(decode_operation::<tunnels::Start>(document)?, None).read()
    }

    /// Reads an endpoint; the problems name its fields.
    ///
    /// # Errors
    /// When a field is unknown, missing or unusable, one line for each.
    pub fn read_endpoint(document: &Map<String, Value>) -> Result<Self, Vec<String>> {
        Self::read_endpoint_start(decode_operation::<endpoints::Start>(document)?, None)
    }

    /// Reads the call that starts a tunnel for an endpoint. The problems name its fields. A Unix
    /// socket has to be below one of `roots`.
    ///
    /// # Errors
    /// When a field is unusable, one line for each.
    pub fn from_endpoint(
        start: endpoints::Start,
        roots: &UnixSocketRoots,
    ) -> Result<Self, Vec<String>> {
        Self::read_endpoint_start(start, Some(roots.clone()))
    }

    fn read_endpoint_start(
        start: endpoints::Start,
        roots: Option<UnixSocketRoots>,
    ) -> Result<Self, Vec<String>> {
        let (tunnel, material) = endpoint::tunnel_from_endpoint(start)?;
        let definition = DefinitionReader::new(tunnel, roots).with_tls(material).read();
        definition
            .map_err(|problems| problems.iter().map(|it| endpoint::translate_problem(it)).collect())
    }

    /// Reads the call that starts a tunnel. The problems name their fields. A Unix socket has to be
    /// below one of `roots`.
    ///
    /// # Errors
    /// When a field is unusable, one line for each.
    pub fn from_start(start: tunnels::Start, roots: &UnixSocketRoots) -> Result<Self, Vec<String>> {
        DefinitionReader::new(start, Some(roots.clone())).read()
    }

    /// The text of the traffic policy, where there is one.
    pub fn policy_text(&self) -> Option<String> {
        let named = ["traffic_policy", "policy"].into_iter();
        match named.filter_map(|name| self.document.get(name)).next()? {
            Value::String(text) => Some(text.clone()),
            object => Some(object.to_string()),
        }
    }

    /// The tunnels that are bound: what follows the name of each, and its protocol.
    pub fn bound_protocols(&self) -> Vec<(&'static str, Option<&'static str>)> {
        match &self.public {
            EndpointDefinition::Http { schemes, .. } => {
                let both = schemes.len() > 1;
                let named = schemes.iter().map(|scheme| {
                    let suffix = if both && *scheme == "http" { " (http)" } else { "" };
                    (suffix, Some(*scheme))
                });
                named.collect()
            }
            EndpointDefinition::Tcp(_) => vec![("", Some("tcp"))],
            EndpointDefinition::Tls(_) => vec![("", Some("tls"))],
            EndpointDefinition::Labeled(_) => vec![("", None)],
        }
    }

    /// The message that asks the service for one of its tunnels, for the first time.
    pub fn bind_message(&self, name: String, proto: Option<&str>, opts: BindOpts) -> BindMessage {
        let (forwards_to, metadata) = (self.address.to_string(), self.metadata.clone());
        let Some(proto) = proto else {
            let labels = match &self.public {
                EndpointDefinition::Labeled(labels) => labels.clone(),
                _ => BTreeMap::new(),
            };
            let forwards_proto = String::new();
            return BindMessage::Labeled(BindLabeled {
                labels,
                forwards_to,
                forwards_proto,
                metadata,
            });
        };
        let extra = BindExtra {
            name,
            metadata,
            description: self.description.clone(),
            pooling_enabled: self.pooling,
            ..BindExtra::default()
        };
        let proto = proto.to_owned();
        BindMessage::Endpoint(Box::new(Bind { proto, forwards_to, opts, extra, ..Bind::default() }))
    }

    /// The messages that ask the service for its tunnels.
    pub fn bind_messages(&self) -> Vec<BindMessage> {
        let protocols = self.bound_protocols().into_iter();
        let message = |(suffix, proto): (&str, Option<&'static str>)| {
            self.bind_message(format!("{}{suffix}", self.name), proto, self.bind_options())
        };
        protocols.map(message).collect()
    }

    /// The options of the bind, as the protocol has them.
    pub fn bind_options(&self) -> BindOpts {
        let (proto, bind) = match &self.public {
            EndpointDefinition::Http { bind, .. } => ("http", bind),
            EndpointDefinition::Tcp(bind) => ("tcp", bind),
            EndpointDefinition::Tls(bind) => ("tls", bind),
            EndpointDefinition::Labeled(_) => return BindOpts::default(),
        };
        BindOpts::of_endpoint(proto, &bind.place, &bind.options)
    }
}

/// A message that asks the service for a tunnel.
#[derive(Debug)]
pub enum BindMessage {
    /// For a tunnel with an address of its own.
    Endpoint(Box<Bind>),
    /// For a tunnel that edges find.
    Labeled(BindLabeled),
}

/// The fields of a document as those of an operation.
fn decode_operation<O: Operation>(document: &Map<String, Value>) -> Result<O, Vec<String>> {
    let parameters = O::INFO.parameters;
    let mut decoded = decode::decode_definition(parameters, document.clone());
    decoded.require_parameters(parameters);
    let problems: Vec<_> = decoded.errors.iter().map(describe_error).collect();
    if !problems.is_empty() {
        return Err(problems);
    }
    O::from_arguments(&mut CallArguments(decoded.arguments))
        .map_err(|error| vec![error.to_string()])
}

/// Where a text leads: a port, `host:port` or a URL of HTTP.
pub(super) fn local_address(text: &str) -> Result<UpstreamAddress, String> {
    address::parse_address(text, "http")
        .map_err(|problem| address::describe_problem(text, &problem))
}

/// An error of the fields in the words of a definition.
pub(super) fn describe_error(error: &ArgumentError) -> String {
    let ArgumentError::UnknownField { place, .. } = error else { return error.to_string() };
    let (record, name) = place.rsplit_once('.').unwrap_or(("tunnel", place));
    format!("{place}: field {name} not found in type {record}")
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(value: Value) -> Result<Definition, Vec<String>> {
        Definition::from_document(value.as_object().unwrap())
    }

    #[test]
    fn every_problem_is_told_with_its_field() {
        let types = json!({
            "name": "x", "inspect": "yes", "nonsense": 1, "schemes": [1], "oauth": {"grant": 1},
            "request_header": {"add": ["A: b"], "change": []},
        });
        let values = json!({
            "addr": 80, "proto": "http", "remote_addr": "a:1", "schemes": ["gopher"],
            "metadata": "x".repeat(4097), "terminate_at": "edge",
        });

        assert_eq!(
            read(types).unwrap_err(),
            [
                "inspect: is a string, not true or false",
                "nonsense: field nonsense not found in type tunnel",
                "schemes[0]: is a number, not a string",
                "oauth.grant: field grant not found in type oauth",
                "request_header.change: field change not found in type request_header",
                "addr: is required",
            ]
        );
        assert_eq!(
            read(values).unwrap_err(),
            [
                "remote_addr: does not belong to this kind of tunnel",
                "terminate_at: does not belong to this kind of tunnel",
                "schemes: must be a list of http and https",
                "metadata: is 4097 bytes long, the limit is 4096",
            ]
        );
    }

    #[test]
    fn an_empty_policy_is_refused() {
        for (field, text) in [("traffic_policy", ""), ("traffic_policy", " \n"), ("policy", "")] {
            let document = json!({"addr": "localhost:80", "proto": "http", field: text});

            let problems = read(document).unwrap_err();

            assert_eq!(
                problems,
                ["traffic_policy: is empty; write a policy, or leave the field out for none"]
            );
        }
    }

    #[test]
    fn fields_of_other_kinds_are_refused() {
        let others = [
            (json!({"proto": "tcp", "inspect": true}), "inspect"),
            (json!({"proto": "tls", "basic_auth": ["a:12345678"]}), "basic_auth"),
            (json!({"proto": "tcp", "oauth": {"provider": "google"}}), "oauth"),
            (json!({"proto": "tls", "oidc": {"client_id": "a"}}), "oidc"),
            (json!({"labels": ["a=b"], "oauth": {"provider": "google"}}), "oauth"),
            (json!({"proto": "http", "crt": "a"}), "crt"),
            (json!({"labels": ["a=b"], "domain": "a.test"}), "domain"),
        ];
        for (mut document, field) in others {
            document["addr"] = "localhost:80".into();

            let problems = read(document).unwrap_err();
            assert_eq!(problems, [format!("{field}: does not belong to this kind of tunnel")]);
        }
    }

    #[test]
    fn what_cannot_stand_in_addresses_and_headers_is_refused() {
        let long = "x".repeat(256);
        for (field, value) in [
            ("name", ".."),
            ("name", &long),
            ("host_header", "a\r\nB: c"),
            ("host_header", "a b"),
            ("host_header", "http://a"),
            ("host_header", "a:99999"),
            ("host_header", "a/b"),
            ("subdomain", "../x"),
            ("subdomain", "a.b"),
            ("subdomain", "-a"),
            ("subdomain", "a-"),
            ("subdomain", "a_b"),
            ("subdomain", &long[..64]),
            ("addr", "file:///no/such/folder"),
        ] {
            let mut document = json!({"proto": "http", "addr": "80"});
            document[field] = value.into();

            let problems = read(document).unwrap_err().join("\n");
            assert!(problems.starts_with(&format!("{field}: ")), "{problems}");
        }
    }

    #[test]
    fn headers_to_add_are_headers() {
        for header in ["no colon", "A: b\r\nC: d", "Ü: a", ": a", "A B: c"] {
            let headers = json!({"add": [header]});
            let document = json!({"proto": "http", "addr": "80", "request_header": headers});

            let problems = read(document).unwrap_err();
            assert_eq!(problems, ["request_header: add must be a list of name:value"], "{header}");
        }
    }

    #[test]
    fn logins_are_options_of_the_bind() {
        let login = json!({"client_id": "a", "client_secret": "swordfish", "scopes": ["x"]});
        let lists = json!({"allow_emails": ["a@b.test"], "allow_domains": ["c.test"]});
        for (field, place, said) in
            [("oauth", "provider", "google"), ("oidc", "issuer_url", "https://d.test")]
        {
            let mut document = json!({"addr": 80, "proto": "http", field: {place: said}});
            let record = document[field].as_object_mut().unwrap();
            record.extend(login.as_object().unwrap().clone());
            record.extend(lists.as_object().unwrap().clone());
            let expected = document[field].clone();

            let definition = read(document).unwrap();
            assert!(!format!("{definition:?}").contains("swordfish"));
            assert!(!format!("{:?}", definition.public).contains("swordfish"));
            let member = if field == "oauth" { "OAuth" } else { "OIDC" };
            assert_eq!(definition.bind_options().get(member), Some(&expected));
        }
        for (field, missing) in
            [("oauth", vec!["provider"]), ("oidc", vec!["issuer_url", "client_id"])]
        {
            let document = json!({"addr": 80, "proto": "http", field: {}});
            let expected: Vec<_> =
                missing.iter().map(|inner| format!("{field}.{inner}: is required")).collect();
            assert_eq!(read(document).unwrap_err(), expected);
        }
        let issuer = json!({"issuer_url": "https://a.test", "client_id": "a"});
        let both = json!({
            "addr": 80, "proto": "http", "oauth": {"provider": "google"}, "oidc": issuer,
        });
        let expected = "oidc: visitors log in once: leave out oidc or oauth";
        assert_eq!(read(both).unwrap_err(), [expected]);
    }

    #[test]
    fn a_wrong_protocol_is_named() {
        let message = read(json!({"addr": 80, "proto": "https"})).unwrap_err().join("\n");

        assert!(message.contains("Invalid protocol name 'https'"), "{message}");
    }

    #[test]
    fn version_one_names_are_mapped() {
        let definition = read(json!({
            "addr": 80, "proto": "http", "bind_tls": "both", "auth": "user:password", "hostname": "a.test",
        }))
        .unwrap();

        let EndpointDefinition::Http { schemes, bind } = definition.public else { unreachable!() };
        assert_eq!(schemes, ["https", "http"]);
        assert_eq!(bind.place.domain, "a.test");
        assert_eq!(bind.options.basic_auth.unwrap().credentials[0].username, "user");
    }

    #[test]
    fn tls_that_ends_at_the_agent_needs_a_certificate() {
        let message = |more: Value| {
            let mut document = json!({"addr": 80, "proto": "tls", "terminate_at": "agent"});
            document.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            read(document).unwrap_err().join("\n")
        };
        let nobodys = std::env::temp_dir().join("ginnel-no-such-file.pem").display().to_string();

        assert!(message(json!({})).contains("crt: is required"));
        assert!(message(json!({"crt": nobodys, "key": nobodys})).contains("crt: "));
        assert!(message(json!({"proxy_proto": 1})).contains("proxy_proto: "));
        let elsewhere = json!({"addr": 80, "proto": "tls", "mutual_tls_cas": nobodys});
        assert!(read(elsewhere).unwrap_err().join("\n").contains("mutual_tls_cas: "));
    }

    #[test]
    fn the_proxy_protocol_is_for_bytes() {
        for (proto, offered) in [("tcp", true), ("tls", true), ("http", false)] {
            let read = read(json!({"addr": 80, "proto": proto, "proxy_proto": 2}));

            assert_eq!(read.is_ok(), offered, "{proto}");
        }
        let message = read(json!({"addr": 80, "proto": "http", "proxy_proto": 1})).unwrap_err();
        let expected = "proxy_proto: 1 is only for tcp and tls; a web service finds the visitor's \
            address in X-Forwarded-For";
        assert_eq!(message, [expected]);
    }

    #[test]
    fn what_a_local_service_speaks_is_one_of_two() {
        let document = |more: Value| {
            let mut document = json!({"addr": 80, "proto": "http"});
            document.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            read(document)
        };
        let message = |more: Value| document(more).unwrap_err().join("\n");

        let plain = document(json!({})).unwrap().app_protocol;
        let newer = document(json!({"app_protocol": "http2"})).unwrap().app_protocol;
        assert_eq!((plain, newer), (AppProtocol::Http1, AppProtocol::Http2));
        let labeled = json!({"addr": 80, "labels": ["a=b"], "app_protocol": "http2"});
        assert_eq!(read(labeled).unwrap().app_protocol, AppProtocol::Http2);
        assert_eq!(
            message(json!({"app_protocol": "http3"})),
            "app_protocol: must be http1 or http2"
        );
        let files = json!({"addr": "file:///srv", "app_protocol": "http2"});
        assert!(message(files).starts_with("app_protocol: "), "a folder");
        let tcp = json!({"addr": "a:1", "proto": "tcp", "app_protocol": "http2"});
        assert!(message(tcp).starts_with("app_protocol: does not belong"), "tcp");
    }

    #[test]
    fn labels_are_a_list_or_a_map() {
        for labels in [json!(["app=web"]), json!({"app": "web"})] {
            let definition = read(json!({"addr": 80, "labels": labels})).unwrap();
            let EndpointDefinition::Labeled(labels) = definition.public else { unreachable!() };
            assert_eq!(labels["app"], "web");
        }
        assert!(read(json!({"addr": 80, "labels": ["app"]})).is_err());
        assert!(read(json!({"addr": 80, "labels": [], "proto": "http"})).is_err());
    }
}
