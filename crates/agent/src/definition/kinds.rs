//! Reads a definition: what all tunnels have, and what each kind of them has.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use rustls::ServerConfig;
use serde_json::{Map, Value};

use ginnel_api::endpoint_options::{TunnelCertificate, TunnelModuleInfo, VisitorAuthorities};
use ginnel_api::local::tunnels;
use ginnel_api::{Base64, Description, EndpointOptions, Metadata, mask};
use ginnel_base::address::{AddressError, HostPort, UpstreamAddress, parse_port};
use ginnel_mux::protocol::message::BindPlace;
use ginnel_net::check_socket;
use ginnel_net::tls::certificate;

use super::address;
use super::endpoint::TlsMaterial;
use super::{BindChoice, Definition, EndpointDefinition};
use crate::relay::AppProtocol;
use crate::tls;
use crate::unix_sockets::{self, UnixSocketRoots};

/// Where visitors can be asked for certificates.
const ONLY_WHERE_TLS_ENDS: &str = "is only supported if the service or the agent terminates TLS";

/// The fields of all tunnels.
const COMMON_FIELDS: &[&str] = &[
    "addr",
    "labels",
    "metadata",
    "name",
    "proto",
    "upstream_tls_verify",
    "upstream_tls_verify_cas",
];
/// More of them, of tunnels that are looked at request by request.
const REQUEST_FIELDS: &[&str] = &["app_protocol", "host_header", "inspect"];
/// More of those that have an address of their own.
const ADDRESS_FIELDS: &[&str] =
    &["description", "policy", "pooling_enabled", "proxy_proto", "proxy_protocol"];
/// More of those whose address has a name.
const NAME_FIELDS: &[&str] = &["domain", "hostname", "mutual_tls_cas", "subdomain"];
/// What only HTTP has, besides modules.
const HTTP_FIELDS: &[&str] = &["auth", "bind_tls", "schemes"];

/// A definition while it is read.
pub(super) struct DefinitionReader {
    pub(super) start: tunnels::Start,
    problems: Vec<String>,
    /// What ends TLS at the agent, where that is no matter of files.
    material: Option<TlsMaterial>,
    /// Folders that have to contain a Unix socket. Unset if the owner of the agent names it.
    roots: Option<UnixSocketRoots>,
    /// How TLS of visitors ends at the agent, once that is read.
    ends_tls: Option<Arc<ServerConfig>>,
}

impl DefinitionReader {
    /// Nothing is read yet.
    pub fn new(start: tunnels::Start, roots: Option<UnixSocketRoots>) -> Self {
        Self { start, problems: Vec::new(), material: None, roots, ends_tls: None }
    }

    /// The same with what ends TLS at the agent.
    pub fn with_tls(self, material: Option<TlsMaterial>) -> Self {
        Self { material, ..self }
    }

    /// The definition, if nothing is wrong with it.
    pub fn read(mut self) -> Result<Definition, Vec<String>> {
        match self.read_definition() {
            Some(definition) if self.problems.is_empty() => Ok(definition),
            _ => Err(self.problems),
        }
    }

    pub(super) fn add_problem(&mut self, field: &str, problem: &str) {
        self.problems.push(format!("{field}: {problem}"));
    }

    fn read_definition(&mut self) -> Option<Definition> {
        // What the table declares always makes an object.
        let document = match serde_json::to_value(&self.start) {
            Ok(Value::Object(document)) => document,
            _ => Map::new(),
        };
        let name = self.read_name();
        let public = self.read_endpoint(&document);
        let proto = self.start.proto.take();
        let is_http = matches!(
            public,
            Some(EndpointDefinition::Http { .. } | EndpointDefinition::Labeled(_))
        );
        let address = self.read_address(proto.as_deref());
        let metadata = self.start.metadata.take();
        let metadata = self.check_length("metadata", metadata, Metadata::MAX);
        let description = self.start.description.take();
        let description = self.check_length("description", description, Description::MAX);
        let host_header = self.read_host_header(address.as_ref());
        let app_protocol = self.read_app_protocol(address.as_ref());
        let verify = self.read_verify(address.as_ref());
        Some(Definition {
            name,
            ends_tls: self.ends_tls.take(),
            address: address?,
            socket_roots: self.roots.take(),
            app_protocol,
            metadata,
            description,
            inspect: is_http && self.start.inspect.unwrap_or(true),
            pooling: self.start.pooling_enabled == Some(true),
            public: public?,
            host_header,
            verify,
            document,
        })
    }

    /// What the kind of tunnel has, by its protocol or its labels.
    fn read_endpoint(&mut self, document: &Map<String, Value>) -> Option<EndpointDefinition> {
        let labels = self.read_labels();
        match (self.start.proto.as_deref(), labels) {
            (Some(_), Some(_)) => {
                self.add_problem("labels", "a tunnel has either proto or labels");
                None
            }
            (None, Some(labels)) => {
                self.refuse_others(document, &[REQUEST_FIELDS, &["crt", "key"]]);
                Some(self.read_labeled(labels))
            }
            (Some("http"), None) => {
                let own = [REQUEST_FIELDS, ADDRESS_FIELDS, NAME_FIELDS, HTTP_FIELDS];
                self.refuse_others(document, &own);
                self.read_http()
            }
            (Some("tcp"), None) => {
                self.refuse_others(document, &[ADDRESS_FIELDS, &["remote_addr"]]);
                Some(self.read_tcp())
            }
            (Some("tls"), None) => {
                let own = [ADDRESS_FIELDS, NAME_FIELDS, &["crt", "key", "terminate_at"]];
                self.refuse_others(document, &own);
                Some(self.read_tls())
            }
            (Some(other), None) => {
                let text = format!("Invalid protocol name '{other}'; it is http, tcp or tls");
                self.add_problem("proto", &text);
                None
            }
            (None, None) => {
                self.add_problem("proto", "is required, unless there are labels");
                None
            }
        }
    }

    /// Refuses the fields of other kinds of tunnels.
    fn refuse_others(&mut self, document: &Map<String, Value>, own: &[&[&str]]) {
        let proto = self.start.proto.clone().unwrap_or_default();
        let is_module = |name: &str| {
            let row = TunnelModuleInfo::of_field(name);
            row.is_some_and(|row| row.protocols.contains(&proto.as_str()))
        };
        let is_own = |name: &str| {
            COMMON_FIELDS.contains(&name)
                || own.iter().any(|fields| fields.contains(&name))
                || is_module(name)
        };
        for field in document.keys().map(String::as_str).filter(|name| !is_own(name)) {
            self.add_problem(field, "does not belong to this kind of tunnel");
        }
    }

    /// A text that has a limit, in bytes.
    fn check_length(&mut self, field: &str, text: Option<String>, most: usize) -> String {
        let text = text.unwrap_or_default();
        let length = text.len();
        if length > most {
            self.add_problem(field, &format!("is {length} bytes long, the limit is {most}"));
        }
        text
    }

    fn read_app_protocol(&mut self, address: Option<&UpstreamAddress>) -> AppProtocol {
        match self.start.app_protocol.as_deref() {
            None | Some("http1") => {}
            Some("http2") if matches!(address, Some(UpstreamAddress::Files(_))) => {
                self.add_problem("app_protocol", "must be http1 for a folder");
            }
            Some("http2") => return AppProtocol::Http2,
            Some(_) => self.add_problem("app_protocol", "must be http1 or http2"),
        }
        AppProtocol::Http1
    }

    fn read_http(&mut self) -> Option<EndpointDefinition> {
        let schemes = self.read_schemes()?;
        let (field, version) = self.read_proxy_proto();
        if version != 0 {
            // The relay would read the header as a request.
            let problem = "is only for tcp and tls; a web service finds the visitor's address in \
                X-Forwarded-For";
            self.add_problem(field, &format!("{version} {problem}"));
        }
        let (mut place, mut options) = (self.place(), self.modules("http"));
        if options.oauth.is_some() && options.oidc.is_some() {
            self.add_problem("oidc", "visitors log in once: leave out oidc or oauth");
        }
        self.name_place(&mut place);
        options.mutual_tls = self.read_mutual_tls();
        if options.mutual_tls.is_some() && schemes.contains(&"http") {
            self.add_problem("mutual_tls_cas", "is only supported for https alone");
        }
        Some(EndpointDefinition::Http { schemes, bind: Box::new(BindChoice { place, options }) })
    }

    /// Reads the modules of a tunnel, with the older names of some fields.
    fn modules(&mut self, proto: &str) -> EndpointOptions {
        if let Some(user) = self.start.auth.take() {
            self.start.basic_auth.get_or_insert_default().push(user);
        }
        let older = self.start.policy.take();
        if older.is_some() && self.start.traffic_policy.is_some() {
            self.add_problem("policy", "is the older name of traffic_policy; use only one of them");
        }
        self.start.traffic_policy = self.start.traffic_policy.take().or(older);
        EndpointOptions::read(proto, &mut self.start, &mut self.problems)
    }

    /// Reads the place of a tunnel whose address has a name, without the whole name.
    fn place(&mut self) -> BindPlace {
        BindPlace { subdomain: self.read_subdomain(), ..BindPlace::default() }
    }

    /// Reads the whole name of a place.
    fn name_place(&mut self, place: &mut BindPlace) {
        place.hostname = self.read_domain(&place.subdomain);
        place.domain.clone_from(&place.hostname);
    }

    fn read_tcp(&mut self) -> EndpointDefinition {
        let (addr, proxy_proto) = (self.read_remote_addr(), self.read_proxy_proto().1);
        let place = BindPlace { addr, proxy_proto, ..BindPlace::default() };
        EndpointDefinition::Tcp(Box::new(BindChoice { place, options: self.modules("tcp") }))
    }

    fn read_remote_addr(&mut self) -> String {
        let addr = self.start.remote_addr.take().unwrap_or_default();
        if addr.is_empty() {
            return addr;
        }
        // Without a host, the service takes its own.
        if addr.strip_prefix(':').is_some_and(|port| parse_port(port).is_ok_and(|it| it != 0)) {
            return addr;
        }
        HostPort::parse(&addr).map(|place| place.to_string()).unwrap_or_else(|problem| {
            // A port without a host is an address here.
            let problem = match addr.starts_with(':') {
                true => AddressError::Port { lowest: 1 },
                false => problem,
            };
            let shown = mask::url(&addr);
            self.add_problem("remote_addr", &format!("{shown:?} is not host:port: it {problem}"));
            addr
        })
    }

    fn read_tls(&mut self) -> EndpointDefinition {
        let (proxy_field, proxy_proto) = self.read_proxy_proto();
        let mut place = BindPlace { proxy_proto, ..self.place() };
        let mut options = self.modules("tls");
        let pair = self.read_key_pair();
        match self.start.terminate_at.take().as_deref() {
            None if pair.is_none() => self.refuse_mutual_tls(),
            Some("upstream") => self.refuse_mutual_tls(),
            None | Some("edge") => {
                options.mutual_tls = self.read_mutual_tls();
                self.check_pair(pair.as_ref());
                let (cert, key) = pair.unwrap_or_default();
                options.tls_termination = Some(TunnelCertificate {
                    cert: Base64(cert.into()),
                    key: Base64(key.into()),
                    ..TunnelCertificate::default()
                });
            }
            Some("agent") => {
                place.mutual_tls_at_agent = self.end_tls(pair, (proxy_field, proxy_proto))
            }
            Some(_) => self.add_problem("terminate_at", "must be edge, agent or upstream"),
        }
        self.name_place(&mut place);
        EndpointDefinition::Tls(Box::new(BindChoice { place, options }))
    }

    /// A tunnel that edges find; TLS that they do not end, the agent can.
    fn read_labeled(&mut self, labels: BTreeMap<String, String>) -> EndpointDefinition {
        if let Some((certificate, key)) = self.read_key_pair() {
            match tls::server_config(&certificate, &key, None) {
                Ok(config) => self.ends_tls = Some(config),
                Err((field, problem)) => self.add_problem(field, &problem),
            }
        }
        EndpointDefinition::Labeled(labels)
    }

    /// A certificate and its key.
    fn read_key_pair(&mut self) -> Option<(Vec<u8>, Vec<u8>)> {
        if let Some(material) = &mut self.material {
            let (certificate, key) = (&mut material.certificate, &mut material.key);
            return Some((std::mem::take(certificate), std::mem::take(key)));
        }
        let (crt, key) = (self.start.crt.take(), self.start.key.take().map(|key| key.0));
        let (certificate, key) = (self.read_pem_file("crt", crt), self.read_pem_file("key", key));
        if certificate.is_some() != key.is_some() {
            self.add_problem("crt", "a certificate and its key belong together");
        }
        certificate.zip(key)
    }

    /// Refuses what the service could not use, before it is asked.
    fn check_pair(&mut self, pair: Option<&(Vec<u8>, Vec<u8>)>) {
        let Some((certificate, key)) = pair else { return };
        if let Err((field, problem)) = tls::server_config(certificate, key, None) {
            self.add_problem(field, &problem);
        }
    }

    /// Reads how TLS ends at the agent; true where visitors have to show a certificate.
    fn end_tls(
        &mut self,
        pair: Option<(Vec<u8>, Vec<u8>)>,
        (proxy_field, proxy_proto): (&str, u8),
    ) -> bool {
        let authorities = self.read_authorities();
        if proxy_proto != 0 {
            // The service writes that header before the TLS of the visitor.
            self.add_problem(proxy_field, "is not supported if the agent terminates TLS");
        }
        let Some((certificate, key)) = pair else {
            self.add_problem("crt", "is required if the agent terminates TLS");
            return false;
        };
        match tls::server_config(&certificate, &key, authorities.as_deref()) {
            Ok(config) => self.ends_tls = Some(config),
            Err((field, problem)) => self.add_problem(field, &problem),
        }
        authorities.is_some()
    }

    /// Who signs the certificates that visitors must show to the service.
    fn read_mutual_tls(&mut self) -> Option<VisitorAuthorities> {
        self.read_authorities().map(|pem| VisitorAuthorities { mutual_tls_ca: Base64(pem.into()) })
    }

    fn read_authorities(&mut self) -> Option<Vec<u8>> {
        if let Some(material) = &mut self.material {
            return material.authorities.take();
        }
        let file = self.start.mutual_tls_cas.take();
        self.read_pem_file("mutual_tls_cas", file)
    }

    fn refuse_mutual_tls(&mut self) {
        if self.start.mutual_tls_cas.is_some() {
            self.add_problem("mutual_tls_cas", ONLY_WHERE_TLS_ENDS);
        }
    }

    /// What the file of this field holds.
    fn read_pem_file(&mut self, field: &str, path: Option<String>) -> Option<Vec<u8>> {
        let path = path?;
        let read = match field {
            "key" => certificate::read_key_file(Path::new(&path)),
            _ => certificate::read_file(Path::new(&path)),
        };
        Some(read.unwrap_or_else(|error| {
            self.add_problem(field, &format!("{}: {error}", mask::path(Path::new(&path))));
            Vec::new()
        }))
    }

    fn read_address(&mut self, proto: Option<&str>) -> Option<UpstreamAddress> {
        let text = std::mem::take(&mut self.start.addr.0);
        let problem = match address::parse_address(&text, proto.unwrap_or("http")) {
            Ok(UpstreamAddress::Files(folder)) if !folder.is_dir() => {
                "is not a folder on this machine".to_owned()
            }
            Ok(UpstreamAddress::Unix(path)) => match self.socket_problem(path.as_path()) {
                None => return Some(UpstreamAddress::Unix(path)),
                Some(problem) => problem,
            },
            Ok(address) => return Some(address),
            Err(problem) => address::describe_problem(&text, &problem),
        };
        self.add_problem("addr", &format!("{:?} {problem}", mask::url(&text)));
        None
    }

    /// The reason why a Unix socket may not be forwarded to.
    fn socket_problem(&self, path: &Path) -> Option<String> {
        if check_socket(path).is_err() {
            return Some("is a Unix socket that ginnel itself uses".to_owned());
        }
        let refused = self.roots.as_ref()?.resolve_path(path).err()?;
        Some(match refused.kind() {
            ErrorKind::PermissionDenied => unix_sockets::REFUSAL.to_owned(),
            _ => format!("is a Unix socket that cannot be found: {refused}"),
        })
    }
}
