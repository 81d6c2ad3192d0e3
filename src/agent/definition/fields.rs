//! Reads the fields of a definition.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use http::{HeaderName, HeaderValue};
use rustls::ServerConfig;
use serde_json::{Map, Value};

use super::address::address;
use super::{Definition, Public};
use crate::agent::relay::{Address, AppProtocol, HostHeader};
use crate::agent::tls;
use crate::tunnel::message::{
    Base64, BasicAuth, BasicAuthCredential, CircuitBreaker, Empty, Headers, HttpOpts,
    IpRestriction, MutualTls, TcpOpts, TlsOpts, TlsTermination, UserAgentFilter,
    WebhookVerification,
};

/// The longest name of a tunnel, in bytes.
const NAME: usize = 255;
/// The longest metadata of a tunnel, in bytes.
const METADATA: usize = 4096;
/// Where visitors can be asked for certificates.
const ONLY_WHERE_TLS_ENDS: &str = "is only offered where TLS ends at the service or the agent";
/// How many passwords a tunnel may have.
const CREDENTIALS: usize = 10;

/// The fields of a definition while it is read.
pub(super) struct Fields<'a> {
    given: &'a Map<String, Value>,
    seen: Vec<&'static str>,
    problems: Vec<String>,
    /// How TLS of visitors ends at the agent, once that is read.
    ends_tls: Option<Arc<ServerConfig>>,
}

/// Whether a text is a header: a name, a colon, and a value within one line.
fn is_header(text: &str) -> bool {
    let Some((name, value)) = text.split_once(':') else { return false };
    let is_name = HeaderName::from_bytes(name.trim().as_bytes()).is_ok();
    is_name && HeaderValue::from_bytes(value.trim().as_bytes()).is_ok()
}

/// Whether a text can be one label of a host name.
fn is_label(text: &str) -> bool {
    (1..=63).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
        && !text.starts_with('-')
        && !text.ends_with('-')
}

impl<'a> Fields<'a> {
    /// Nothing is read yet.
    pub fn of(given: &'a Map<String, Value>) -> Self {
        Self { given, seen: Vec::new(), problems: Vec::new(), ends_tls: None }
    }

    /// The definition, if nothing is wrong with it.
    pub fn settle(self, definition: Option<Definition>) -> Result<Definition, Vec<String>> {
        match definition {
            Some(definition) if self.problems.is_empty() => Ok(definition),
            _ => Err(self.problems),
        }
    }

    /// Reads all of them; none when some are missing or wrong.
    pub fn definition(&mut self) -> Option<Definition> {
        let name = self.name();
        let proto = self.text("proto");
        let labels = self.labels();
        let public = match (proto.as_deref(), labels) {
            (Some(_), Some(_)) => {
                self.problem("labels", "a tunnel has either proto or labels");
                None
            }
            (None, Some(labels)) => self.labeled(labels),
            (Some("http"), None) => self.http(),
            (Some("tcp"), None) => self.tcp(),
            (Some("tls"), None) => self.tls(),
            (Some(other), None) => {
                let text = format!("Invalid protocol name '{other}'; it is http, tcp or tls");
                self.problems.push(format!("proto: {text}"));
                None
            }
            (None, None) => {
                self.problem("proto", "is required, unless there are labels");
                None
            }
        };
        let is_http = matches!(public, Some(Public::Http { .. } | Public::Labeled(_)));
        let address = self.address(proto.as_deref());
        let metadata = self.text("metadata").unwrap_or_default();
        if metadata.len() > METADATA {
            let problem = format!("is {} bytes long, the limit is {METADATA}", metadata.len());
            self.problem("metadata", &problem);
        }
        let inspect = if is_http { self.flag("inspect").unwrap_or(true) } else { false };
        let host_header = match is_http {
            true => self.host_header(),
            false => HostHeader::Preserve,
        };
        let app_protocol = match is_http {
            true => self.app_protocol(address.as_ref()),
            false => AppProtocol::Http1,
        };
        let verify = self.verify(is_http);
        Some(Definition {
            name,
            ends_tls: self.ends_tls.take(),
            address: address?,
            app_protocol,
            metadata,
            inspect,
            public: public?,
            host_header,
            verify,
            given: self.given.clone(),
        })
    }

    fn name(&mut self) -> String {
        let name = self.text("name").unwrap_or_default();
        if matches!(name.as_str(), "." | "..") {
            self.problem("name", "cannot stand in the address of the tunnel");
        }
        if name.len() > NAME {
            let problem = format!("is {} bytes long, the limit is {NAME}", name.len());
            self.problem("name", &problem);
        }
        name
    }

    /// The first label of a host.
    fn subdomain(&mut self) -> String {
        let label = self.text("subdomain").unwrap_or_default();
        if !label.is_empty() && !is_label(&label) {
            let rule = "1 to 63 letters, digits and hyphens, with no hyphen at either end";
            self.problem("subdomain", &format!("{label:?} is no label of a host name: {rule}"));
        }
        label
    }

    fn host_header(&mut self) -> HostHeader {
        let text = self.text("host_header").unwrap_or_default();
        // A line end would begin another header.
        if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            self.problem("host_header", "is preserve, rewrite or a host");
        }
        HostHeader::of_setting(&text)
    }

    fn app_protocol(&mut self, address: Option<&Address>) -> AppProtocol {
        match self.text("app_protocol").as_deref() {
            None | Some("http1") => {}
            Some("http2") if matches!(address, Some(Address::Files(_))) => {
                self.problem("app_protocol", "is http1 for a folder");
            }
            Some("http2") => return AppProtocol::Http2,
            Some(_) => self.problem("app_protocol", "is http1 or http2"),
        }
        AppProtocol::Http1
    }

    fn http(&mut self) -> Option<Public> {
        let schemes = self.schemes()?;
        let mut options = HttpOpts {
            subdomain: self.subdomain(),
            proxy_proto: self.proxy_proto(),
            compression: self.flag("compression").unwrap_or_default().then_some(Empty {}),
            websocket_tcp_converter: self
                .flag("websocket_tcp_converter")
                .unwrap_or_default()
                .then_some(Empty {}),
            circuit_breaker: self.circuit_breaker(),
            ip_restriction: self.ip_restriction(),
            basic_auth: self.basic_auth(),
            request_headers: self.headers("request_header"),
            response_headers: self.headers("response_header"),
            user_agent_filter: self.user_agent_filter(),
            webhook_verification: self.webhook(),
            traffic_policy: self.policy(),
            ..HttpOpts::default()
        };
        options.hostname = self.domain();
        options.domain.clone_from(&options.hostname);
        options.mutual_tls_ca = self.mutual_tls();
        if options.mutual_tls_ca.is_some() && schemes.contains(&"http") {
            self.problem("mutual_tls_cas", "is only offered for https alone");
        }
        self.refuse("oauth", "OAuth is not offered");
        Some(Public::Http { schemes, options: Box::new(options) })
    }

    fn tcp(&mut self) -> Option<Public> {
        Some(Public::Tcp(TcpOpts {
            addr: self.text("remote_addr").unwrap_or_default(),
            proxy_proto: self.proxy_proto(),
            ip_restriction: self.ip_restriction(),
            traffic_policy: self.policy(),
            ..TcpOpts::default()
        }))
    }

    fn tls(&mut self) -> Option<Public> {
        let mut options = TlsOpts {
            subdomain: self.subdomain(),
            proxy_proto: self.proxy_proto(),
            ip_restriction: self.ip_restriction(),
            traffic_policy: self.policy(),
            ..TlsOpts::default()
        };
        let pair = self.pair();
        match self.text("terminate_at").as_deref() {
            None if pair.is_none() => self.refuse("mutual_tls_cas", ONLY_WHERE_TLS_ENDS),
            Some("upstream") => self.refuse("mutual_tls_cas", ONLY_WHERE_TLS_ENDS),
            None | Some("edge") => {
                options.mutual_tls_at_edge = self.mutual_tls();
                let (cert, key) = pair.unwrap_or_default();
                options.tls_termination = Some(TlsTermination {
                    cert: Base64(cert),
                    key: Base64(key),
                    ..TlsTermination::default()
                });
            }
            Some("agent") => options.mutual_tls_at_agent = self.end_tls(pair, options.proxy_proto),
            Some(_) => self.problem("terminate_at", "is edge, agent or upstream"),
        }
        options.hostname = self.domain();
        options.domain.clone_from(&options.hostname);
        Some(Public::Tls(Box::new(options)))
    }

    /// A tunnel that edges find; TLS that they do not end, the agent can.
    fn labeled(&mut self, labels: BTreeMap<String, String>) -> Option<Public> {
        if let Some((certificate, key)) = self.pair() {
            match tls::server(&certificate, &key, None) {
                Ok(config) => self.ends_tls = Some(config),
                Err((field, problem)) => self.problem(field, &problem),
            }
        }
        Some(Public::Labeled(labels))
    }

    /// A certificate and its key.
    fn pair(&mut self) -> Option<(Vec<u8>, Vec<u8>)> {
        let (certificate, key) = (self.pem("crt"), self.pem("key"));
        if certificate.is_some() != key.is_some() {
            self.problem("crt", "a certificate and its key belong together");
        }
        certificate.zip(key)
    }

    /// Reads how TLS ends at the agent; true where visitors have to show a certificate.
    fn end_tls(&mut self, pair: Option<(Vec<u8>, Vec<u8>)>, proxy_proto: u8) -> bool {
        let authorities = self.pem("mutual_tls_cas");
        if proxy_proto != 0 {
            // The service writes that header before the TLS of the visitor.
            self.problem("proxy_proto", "is not offered where TLS ends at the agent");
        }
        let Some((certificate, key)) = pair else {
            self.problem("crt", "is required where TLS ends at the agent");
            return false;
        };
        match tls::server(&certificate, &key, authorities.as_deref()) {
            Ok(config) => self.ends_tls = Some(config),
            Err((field, problem)) => self.problem(field, &problem),
        }
        authorities.is_some()
    }

    /// Who signs the certificates that visitors must show to the service.
    fn mutual_tls(&mut self) -> Option<MutualTls> {
        self.pem("mutual_tls_cas").map(|pem| MutualTls { mutual_tls_ca: Base64(pem) })
    }

    /// What the file of this field holds.
    fn pem(&mut self, field: &'static str) -> Option<Vec<u8>> {
        self.text(field).map(|path| self.file(field, &path))
    }

    fn file(&mut self, field: &'static str, path: &str) -> Vec<u8> {
        std::fs::read(path).unwrap_or_else(|error| {
            self.problem(field, &format!("{path}: {error}"));
            Vec::new()
        })
    }

    fn address(&mut self, proto: Option<&str>) -> Option<Address> {
        let text = match self.value("addr") {
            None => {
                self.problem("addr", "is required");
                return None;
            }
            Some(Value::String(text)) => text.clone(),
            Some(Value::Number(port)) => port.to_string(),
            Some(_) => {
                self.problem("addr", "is a port, host:port or a URL");
                return None;
            }
        };
        match address(&text, proto.unwrap_or("http")) {
            Ok(Address::Files(folder)) if !folder.is_dir() => {
                self.problem("addr", &format!("{text:?} is not a folder on this machine"));
                None
            }
            Ok(address) => Some(address),
            Err(problem) => {
                self.problem("addr", &format!("{text:?} {problem}"));
                None
            }
        }
    }

    fn domain(&mut self) -> String {
        let (new, old) = (self.text("domain"), self.text("hostname"));
        if new.is_some() && old.is_some() && new != old {
            self.problem("hostname", "is the older name of domain; give one of them");
        }
        new.or(old).unwrap_or_default()
    }

    fn schemes(&mut self) -> Option<Vec<&'static str>> {
        let given = self.texts("schemes");
        let old = match self.value("bind_tls") {
            None => None,
            Some(Value::Bool(true)) => Some(vec!["https"]),
            Some(Value::Bool(false)) => Some(vec!["http"]),
            Some(Value::String(text)) if text == "both" => Some(vec!["https", "http"]),
            Some(_) => {
                self.problem("bind_tls", "is true, false or both");
                return None;
            }
        };
        let Some(given) = given else { return Some(old.unwrap_or_else(|| vec!["https"])) };
        let unknown = given.iter().any(|scheme| scheme != "http" && scheme != "https");
        if unknown || given.is_empty() || old.is_some() {
            self.problem("schemes", "is a list of http and https");
            return None;
        }
        let wanted = ["https", "http"].into_iter();
        Some(wanted.filter(|scheme| given.iter().any(|given| given == scheme)).collect())
    }

    fn labels(&mut self) -> Option<BTreeMap<String, String>> {
        let pairs: Vec<Option<(String, String)>> = match self.value("labels")? {
            Value::Array(items) => items
                .iter()
                .map(|item| {
                    let (key, value) = item.as_str()?.split_once('=')?;
                    Some((key.to_owned(), value.to_owned()))
                })
                .collect(),
            Value::Object(members) => members
                .iter()
                .map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())))
                .collect(),
            _ => vec![None],
        };
        let count = pairs.len();
        let labels: BTreeMap<_, _> = pairs.into_iter().flatten().collect();
        if labels.len() != count || labels.is_empty() {
            self.problem("labels", "is a list of name=value, each name once");
        }
        Some(labels)
    }

    fn proxy_proto(&mut self) -> u8 {
        let mut found = 0;
        for name in ["proxy_proto", "proxy_protocol"] {
            found = match self.value(name) {
                None => found,
                Some(Value::String(text)) if text.is_empty() => found,
                Some(value) => match number(value) {
                    Some(version @ (0..=2)) => version,
                    _ => {
                        self.problem(name, "is 1 or 2");
                        found
                    }
                },
            };
        }
        found
    }

    fn circuit_breaker(&mut self) -> Option<CircuitBreaker> {
        let value = self.value("circuit_breaker")?;
        match value.as_f64() {
            Some(error_threshold) if (0.0..=1.0).contains(&error_threshold) => {
                Some(CircuitBreaker { error_threshold })
            }
            _ => {
                self.problem("circuit_breaker", "is a number from 0 to 1");
                None
            }
        }
    }

    fn ip_restriction(&mut self) -> Option<IpRestriction> {
        let [allow_cidrs, deny_cidrs] =
            self.lists("ip_restriction", ["allow_cidrs", "deny_cidrs"])?;
        Some(IpRestriction { allow_cidrs, deny_cidrs })
    }

    fn user_agent_filter(&mut self) -> Option<UserAgentFilter> {
        let [allow, deny] = self.lists("user_agent_filter", ["allow", "deny"])?;
        Some(UserAgentFilter { allow, deny })
    }

    fn headers(&mut self, field: &'static str) -> Option<Headers> {
        let [add, remove] = self.lists(field, ["add", "remove"])?;
        if !add.iter().all(|header| is_header(header)) {
            self.problem(field, "add is a list of name:value");
        }
        Some(Headers { add, remove })
    }

    fn webhook(&mut self) -> Option<WebhookVerification> {
        let members = self.members("verify_webhook", &["provider", "secret"])?;
        let text = |name: &str| members.get(name).and_then(Value::as_str).unwrap_or_default();
        if text("provider").is_empty() {
            self.problem("verify_webhook.provider", "is required");
        }
        Some(WebhookVerification {
            provider: text("provider").to_owned(),
            secret: text("secret").into(),
            ..WebhookVerification::default()
        })
    }

    fn basic_auth(&mut self) -> Option<BasicAuth> {
        let mut given = self.texts("basic_auth").unwrap_or_default();
        given.extend(self.text("auth"));
        if given.len() > CREDENTIALS {
            let problem = format!("has {} entries, the limit is {CREDENTIALS}", given.len());
            self.problem("basic_auth", &problem);
        }
        let mut credentials = Vec::new();
        for entry in &given {
            match entry.split_once(':') {
                Some((username, password)) if (8..=128).contains(&password.len()) => {
                    credentials.push(BasicAuthCredential {
                        username: username.to_owned(),
                        cleartext_password: password.into(),
                        ..BasicAuthCredential::default()
                    });
                }
                _ => self.problem("basic_auth", "is user:password with 8 to 128 characters"),
            }
        }
        (!credentials.is_empty()).then_some(BasicAuth { credentials })
    }

    fn policy(&mut self) -> Option<String> {
        let (old, new) = (self.value("policy"), self.value("traffic_policy"));
        if old.is_some() && new.is_some() {
            self.problem("policy", "is the older name of traffic_policy; give one of them");
        }
        match new.or(old)? {
            Value::String(text) => Some(text.clone()),
            value @ Value::Object(_) => Some(value.to_string()),
            _ => {
                self.problem("traffic_policy", "is an object or its text");
                None
            }
        }
    }

    fn verify(&mut self, is_http: bool) -> Option<Option<PathBuf>> {
        if !is_http && !self.given.contains_key("upstream_tls_verify") {
            return None;
        }
        let wanted = self.flag("upstream_tls_verify").unwrap_or_default();
        let file = self.text("upstream_tls_verify_cas").map(PathBuf::from);
        wanted.then_some(file)
    }

    /// An object with two lists of texts.
    fn lists(&mut self, field: &'static str, names: [&str; 2]) -> Option<[Vec<String>; 2]> {
        let members = self.members(field, &names)?;
        let mut wrong = false;
        let lists = names.map(|name| match members.get(name) {
            None | Some(Value::Null) => Vec::new(),
            Some(value) => texts(value).unwrap_or_else(|| {
                wrong = true;
                Vec::new()
            }),
        });
        if wrong {
            self.problem(field, &format!("{} and {} are lists of texts", names[0], names[1]));
        }
        Some(lists)
    }

    fn members(&mut self, field: &'static str, names: &[&str]) -> Option<Map<String, Value>> {
        let value = self.value(field)?.clone();
        let Value::Object(members) = value else {
            self.problem(field, &format!("is an object of {}", names.join(" and ")));
            return None;
        };
        for name in members.keys().filter(|name| !names.contains(&name.as_str())) {
            self.problems.push(format!("{field}: field {name} not found in type {field}"));
        }
        Some(members)
    }

    fn text(&mut self, field: &'static str) -> Option<String> {
        match self.value(field)? {
            Value::String(text) => Some(text.clone()),
            _ => {
                self.problem(field, "is text");
                None
            }
        }
    }

    fn texts(&mut self, field: &'static str) -> Option<Vec<String>> {
        let found = texts(self.value(field)?);
        if found.is_none() {
            self.problem(field, "is a list of texts");
        }
        found
    }

    fn flag(&mut self, field: &'static str) -> Option<bool> {
        match self.value(field)? {
            Value::Bool(flag) => Some(*flag),
            _ => {
                self.problem(field, "is true or false");
                None
            }
        }
    }

    /// A field that is given; null is as good as absent.
    fn value(&mut self, field: &'static str) -> Option<&'a Value> {
        self.seen.push(field);
        self.given.get(field).filter(|value| !value.is_null())
    }

    fn refuse(&mut self, field: &'static str, problem: &str) {
        if self.value(field).is_some() {
            self.problem(field, problem);
        }
    }

    fn problem(&mut self, field: &str, problem: &str) {
        self.problems.push(format!("{field}: {problem}"));
    }

    /// Notes the fields that nobody asked for.
    pub fn refuse_unknown(&mut self) {
        if !self.problems.is_empty() && self.seen.len() < 4 {
            return;
        }
        for (name, value) in self.given {
            if !self.seen.contains(&name.as_str()) && !value.is_null() {
                let problem = match FIELDS.contains(&name.as_str()) {
                    true => format!("{name}: does not belong to this kind of tunnel"),
                    false => format!("{name}: field {name} not found in type tunnel"),
                };
                self.problems.push(problem);
            }
        }
    }
}

/// The fields of all kinds of tunnels.
const FIELDS: &[&str] = &[
    "addr",
    "app_protocol",
    "auth",
    "basic_auth",
    "bind_tls",
    "circuit_breaker",
    "compression",
    "crt",
    "domain",
    "host_header",
    "hostname",
    "inspect",
    "ip_restriction",
    "key",
    "labels",
    "metadata",
    "mutual_tls_cas",
    "name",
    "oauth",
    "policy",
    "proto",
    "proxy_proto",
    "proxy_protocol",
    "remote_addr",
    "request_header",
    "response_header",
    "schemes",
    "subdomain",
    "terminate_at",
    "traffic_policy",
    "upstream_tls_verify",
    "upstream_tls_verify_cas",
    "user_agent_filter",
    "verify_webhook",
    "websocket_tcp_converter",
];

fn texts(value: &Value) -> Option<Vec<String>> {
    value.as_array()?.iter().map(|item| item.as_str().map(str::to_owned)).collect()
}

fn number(value: &Value) -> Option<u8> {
    match value {
        Value::String(text) => text.parse().ok(),
        value => value.as_u64().and_then(|number| u8::try_from(number).ok()),
    }
}
