//! Tunnel definitions, from the configuration file and from the local API (agent sheet, section 3).

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde_json::{Map, Value};
use url::Url;

use super::relay::{Address, HostHeader};
use crate::tunnel::message::{
    Base64, BasicAuth, BasicAuthCredential, BindOpts, CircuitBreaker, Empty, Headers, HttpOpts,
    IpRestriction, TcpOpts, TlsOpts, TlsTermination, UserAgentFilter, WebhookVerification,
};

/// The longest metadata of a tunnel, in bytes.
const METADATA: usize = 4096;
/// How many passwords a tunnel may have.
const CREDENTIALS: usize = 10;

/// A tunnel that can be started.
#[derive(Debug, Clone)]
pub struct Definition {
    /// Its name; empty for an unnamed tunnel.
    pub name: String,
    /// Where it forwards to.
    pub address: Address,
    /// Free text that the management API shows.
    pub metadata: String,
    /// Whether requests are captured.
    pub inspect: bool,
    /// How it is made public.
    pub public: Public,
    /// What local services see as `Host`.
    pub host_header: HostHeader,
    /// How the certificate of a local service is checked.
    pub verify: Option<Option<PathBuf>>,
    /// What stands in the answer for `config`; the definition as it was given.
    pub given: Map<String, Value>,
}

/// How a tunnel is made public.
#[derive(Debug, Clone)]
pub enum Public {
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
    pub fn read(given: &Map<String, Value>) -> Result<Self, Vec<String>> {
        let mut fields = Fields { given, seen: Vec::new(), problems: Vec::new() };
        let definition = fields.definition();
        fields.refuse_unknown();
        match definition {
            Some(definition) if fields.problems.is_empty() => Ok(definition),
            _ => Err(fields.problems),
        }
    }

    /// The options of the bind, as the protocol has them.
    pub fn bind_options(&self) -> BindOpts {
        let options = match &self.public {
            Public::Http { options, .. } => BindOpts::from_typed(options.as_ref()),
            Public::Tcp(options) => BindOpts::from_typed(options),
            Public::Tls(options) => BindOpts::from_typed(options.as_ref()),
            Public::Labeled(_) => Ok(BindOpts::default()),
        };
        // Plain structs always make objects.
        options.unwrap_or_default()
    }
}

/// The fields of a definition while it is read.
struct Fields<'a> {
    given: &'a Map<String, Value>,
    seen: Vec<&'static str>,
    problems: Vec<String>,
}

impl<'a> Fields<'a> {
    fn definition(&mut self) -> Option<Definition> {
        let name = self.text("name").unwrap_or_default();
        let proto = self.text("proto");
        let labels = self.labels();
        let public = match (proto.as_deref(), labels) {
            (Some(_), Some(_)) => {
                self.problem("labels", "a tunnel has either proto or labels");
                None
            }
            (None, Some(labels)) => Some(Public::Labeled(labels)),
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
            true => HostHeader::of_setting(&self.text("host_header").unwrap_or_default()),
            false => HostHeader::Preserve,
        };
        let verify = self.verify(is_http);
        Some(Definition {
            name,
            address: address?,
            metadata,
            inspect,
            public: public?,
            host_header,
            verify,
            given: self.given.clone(),
        })
    }

    fn http(&mut self) -> Option<Public> {
        let schemes = self.schemes()?;
        let mut options = HttpOpts {
            subdomain: self.text("subdomain").unwrap_or_default(),
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
        self.refuse("mutual_tls_cas", "mutual TLS is not offered");
        self.refuse("oauth", "OAuth is not offered");
        if self.text("app_protocol").is_some_and(|protocol| protocol != "http1") {
            self.problem("app_protocol", "only http1 is offered");
        }
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
            subdomain: self.text("subdomain").unwrap_or_default(),
            proxy_proto: self.proxy_proto(),
            ip_restriction: self.ip_restriction(),
            traffic_policy: self.policy(),
            tls_termination: self.termination(),
            ..TlsOpts::default()
        };
        options.hostname = self.domain();
        options.domain.clone_from(&options.hostname);
        self.refuse("mutual_tls_cas", "mutual TLS is not offered");
        Some(Public::Tls(Box::new(options)))
    }

    fn termination(&mut self) -> Option<TlsTermination> {
        let certificate = self.text("crt").map(|path| self.file("crt", &path));
        let key = self.text("key").map(|path| self.file("key", &path));
        if certificate.is_some() != key.is_some() {
            self.problem("crt", "a certificate and its key belong together");
        }
        match self.text("terminate_at").as_deref() {
            None if certificate.is_none() => None,
            Some("upstream") => None,
            None | Some("edge") => Some(TlsTermination {
                cert: Base64(certificate.unwrap_or_default()),
                key: Base64(key.unwrap_or_default()),
                ..TlsTermination::default()
            }),
            Some("agent") => {
                self.problem("terminate_at", "TLS that ends at the agent is not offered");
                None
            }
            Some(_) => {
                self.problem("terminate_at", "is edge, agent or upstream");
                None
            }
        }
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
        if add.iter().any(|header| !header.contains(':')) {
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

    fn refuse_unknown(&mut self) {
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

/// Reads a port, `host:port`, a host or a URL.
pub fn address(text: &str, proto: &str) -> Result<Address, &'static str> {
    if let Ok(port) = text.parse::<u16>() {
        return local("localhost".to_owned(), port);
    }
    if text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err("is not a port");
    }
    if let Some(folder) = text.strip_prefix("file://") {
        let folder = PathBuf::from(folder);
        return match proto {
            "http" if folder.is_absolute() => Ok(Address::Files(folder)),
            "http" => Err("is not file:// and an absolute path"),
            _ => Err("is a folder, which only http serves"),
        };
    }
    if text.contains("://") {
        return of_url(text, proto);
    }
    match Url::parse(&format!("http://{text}")) {
        Ok(url) if is_bare(&url) => {
            let host = host_of(&url).ok_or("has no host")?;
            // A URL leaves out the usual port.
            let has_port =
                text.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
            match (url.port(), proto) {
                (Some(port), _) => local(host, port),
                (None, _) if has_port => local(host, 80),
                (None, "http") => local(host, 80),
                (None, "tls") => local(host, 443),
                (None, _) => Err("has no port"),
            }
        }
        _ => Err("is not a port, host:port or a URL"),
    }
}

fn of_url(text: &str, proto: &str) -> Result<Address, &'static str> {
    let url = Url::parse(text).map_err(|_| "is not a URL")?;
    let host = host_of(&url).ok_or("has no host")?;
    match (url.scheme(), url.port()) {
        ("http", port) => Ok(Address::Tcp { host, port: port.unwrap_or(80) }),
        ("https", port) => Ok(Address::Tls { host, port: port.unwrap_or(443) }),
        ("tcp", Some(port)) if proto != "http" => Ok(Address::Tcp { host, port }),
        ("tls", port) if proto != "http" => Ok(Address::Tcp { host, port: port.unwrap_or(443) }),
        _ => Err("has a scheme that does not go with the protocol"),
    }
}

/// Port 443 speaks TLS.
fn local(host: String, port: u16) -> Result<Address, &'static str> {
    match port {
        0 => Err("has port 0"),
        443 => Ok(Address::Tls { host, port }),
        _ => Ok(Address::Tcp { host, port }),
    }
}

fn host_of(url: &Url) -> Option<String> {
    let host = url.host_str()?.trim_matches(['[', ']']);
    Some(host.to_owned()).filter(|host| !host.is_empty())
}

fn is_bare(url: &Url) -> bool {
    url.path() == "/" && url.query().is_none() && url.username().is_empty()
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
    fn addresses_have_many_forms() {
        let shown = |text: &str, proto: &str| address(text, proto).map(|it| it.shown());

        for (text, expected) in [
            ("80", "localhost:80"),
            ("8080", "localhost:8080"),
            ("localhost:80", "localhost:80"),
            ("app.test", "app.test:80"),
            ("[::1]:9000", "[::1]:9000"),
            ("http://app.test", "app.test:80"),
            ("https://app.test:8443", "https://app.test:8443"),
            ("443", "https://localhost:443"),
            ("file:///srv/www", "file:///srv/www"),
        ] {
            assert_eq!(shown(text, "http").as_deref(), Ok(expected), "{text}");
        }
        assert!(shown("app.test", "tcp").is_err());
        for bad in ["", "0", "70000", "a b", "ftp://x", "http://", "host:port", "file://rel"] {
            assert!(shown(bad, "http").is_err(), "{bad}");
        }
    }

    #[test]
    fn every_problem_is_told_with_its_field() {
        let problems = read(json!({
            "name": "x", "proto": "http", "inspect": "yes", "nonsense": 1, "remote_addr": "a:1",
            "schemes": ["gopher"],
        }))
        .unwrap_err();

        let told = problems.join("\n");
        assert!(told.contains("addr: is required"), "{told}");
        assert!(told.contains("schemes: is a list"), "{told}");
    }

    #[test]
    fn unknown_fields_and_fields_of_other_kinds_are_refused() {
        let problems =
            read(json!({"addr": 80, "proto": "http", "nonsense": 1, "remote_addr": "a:1"}));

        let told = problems.unwrap_err().join("\n");
        assert!(told.contains("field nonsense not found in type tunnel"), "{told}");
        assert!(told.contains("remote_addr: does not belong"), "{told}");
    }

    #[test]
    fn a_wrong_protocol_is_named() {
        let told = read(json!({"addr": 80, "proto": "https"})).unwrap_err().join("\n");

        assert!(told.contains("Invalid protocol name 'https'"), "{told}");
    }

    #[test]
    fn version_one_names_are_mapped() {
        let made = read(json!({
            "addr": 80, "proto": "http", "bind_tls": "both", "auth": "user:password", "hostname": "a.test",
        }))
        .unwrap();

        let Public::Http { schemes, options } = made.public else { unreachable!() };
        assert_eq!(schemes, ["https", "http"]);
        assert_eq!(options.domain, "a.test");
        assert_eq!(options.basic_auth.unwrap().credentials[0].username, "user");
    }

    #[test]
    fn labels_are_a_list_or_a_map() {
        for labels in [json!(["app=web"]), json!({"app": "web"})] {
            let made = read(json!({"addr": 80, "labels": labels})).unwrap();
            let Public::Labeled(labels) = made.public else { unreachable!() };
            assert_eq!(labels["app"], "web");
        }
        assert!(read(json!({"addr": 80, "labels": ["app"]})).is_err());
        assert!(read(json!({"addr": 80, "labels": [], "proto": "http"})).is_err());
    }
}
