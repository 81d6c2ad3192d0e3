//! Tunnel definitions, from the configuration file and from the local API (agent sheet, section 3).
//!
//! `kinds` reads what each kind of tunnel has, with the values of single fields from `values` and
//! where it forwards to from `address`; `fields` notes what was asked for and what is wrong.

mod address;
mod fields;
mod kinds;
mod values;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use rustls::ServerConfig;
use serde_json::{Map, Value};

use super::relay::{AppProtocol, HostHeader, LocalAddress};
use crate::protocol::message::{BindOpts, HttpOpts, TcpOpts, TlsOpts};
use fields::DefinitionFields;

/// A tunnel that can be started.
#[derive(Debug, Clone)]
pub struct Definition {
    /// Its name; empty for an unnamed tunnel.
    pub name: String,
    /// Where it forwards to.
    pub address: LocalAddress,
    /// What is spoken there.
    pub app_protocol: AppProtocol,
    /// Free text that the management API shows.
    pub metadata: String,
    /// Whether requests are captured.
    pub inspect: bool,
    /// How it is made public.
    pub public: PublicEndpoint,
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
pub enum PublicEndpoint {
    /// As HTTP, HTTPS or both.
    Http {
        /// `https` first.
        schemes: Vec<&'static str>,
        /// The options of the bind.
        options: Box<HttpOpts>,
    },
    /// As a TCP port.
    Tcp(TcpOpts),
    /// As a TLS port.
    Tls(Box<TlsOpts>),
    /// Through edges, by labels.
    Labeled(BTreeMap<String, String>),
}

impl Definition {
    /// Reads a definition; the problems name their fields.
    ///
    /// # Errors
    /// When a field is unknown, missing or unusable, one line for each.
    pub fn read(document: &Map<String, Value>) -> Result<Self, Vec<String>> {
        let mut fields = DefinitionFields::of(document);
        let definition = fields.definition();
        fields.refuse_unknown();
        fields.settle(definition)
    }

    /// The options of the bind, as the protocol has them.
    pub fn bind_options(&self) -> BindOpts {
        let options = match &self.public {
            PublicEndpoint::Http { options, .. } => BindOpts::from_typed(options.as_ref()),
            PublicEndpoint::Tcp(options) => BindOpts::from_typed(options),
            PublicEndpoint::Tls(options) => BindOpts::from_typed(options.as_ref()),
            PublicEndpoint::Labeled(_) => Ok(BindOpts::default()),
        };
        // Plain structs always make objects.
        options.unwrap_or_default()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(value: Value) -> Result<Definition, Vec<String>> {
        Definition::read(value.as_object().unwrap())
    }

    #[test]
    fn every_problem_is_told_with_its_field() {
        let problems = read(json!({
            "name": "x", "proto": "http", "inspect": "yes", "nonsense": 1, "remote_addr": "a:1",
            "schemes": ["gopher"],
        }))
        .unwrap_err();

        let message = problems.join("\n");
        assert!(message.contains("addr: is required"), "{message}");
        assert!(message.contains("schemes: must be a list"), "{message}");
    }

    #[test]
    fn unknown_fields_and_fields_of_other_kinds_are_refused() {
        let problems =
            read(json!({"addr": 80, "proto": "http", "nonsense": 1, "remote_addr": "a:1"}));

        let message = problems.unwrap_err().join("\n");
        assert!(message.contains("field nonsense not found in type tunnel"), "{message}");
        assert!(message.contains("remote_addr: does not belong"), "{message}");
    }

    #[test]
    fn what_cannot_stand_in_addresses_and_headers_is_refused() {
        let long = "x".repeat(256);
        for (field, value) in [
            ("name", ".."),
            ("name", &long),
            ("host_header", "a\r\nB: c"),
            ("host_header", "a b"),
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

        let PublicEndpoint::Http { schemes, options } = definition.public else { unreachable!() };
        assert_eq!(schemes, ["https", "http"]);
        assert_eq!(options.domain, "a.test");
        assert_eq!(options.basic_auth.unwrap().credentials[0].username, "user");
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
        assert_eq!(message, ["proxy_proto: is only supported for tcp and tls"]);
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
            let PublicEndpoint::Labeled(labels) = definition.public else { unreachable!() };
            assert_eq!(labels["app"], "web");
        }
        assert!(read(json!({"addr": 80, "labels": ["app"]})).is_err());
        assert!(read(json!({"addr": 80, "labels": [], "proto": "http"})).is_err());
    }
}
