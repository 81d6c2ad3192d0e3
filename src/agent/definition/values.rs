//! Reads the values of single fields.

use std::collections::BTreeMap;
use std::path::PathBuf;

use http::{HeaderName, HeaderValue};
use serde_json::Value;

use super::fields::DefinitionFields;
use crate::agent::relay::HostHeader;
use crate::api::mask;
use crate::net::certificate;
use crate::protocol::message::{
    BasicAuth, BasicAuthCredential, CircuitBreaker, Headers, IpRestriction, UserAgentFilter,
    WebhookVerification,
};

/// The longest name of a tunnel, in bytes.
const MAX_NAME_BYTES: usize = 255;
/// How many passwords a tunnel may have.
const MAX_CREDENTIALS: usize = 10;

impl DefinitionFields<'_> {
    pub(super) fn name(&mut self) -> String {
        let name = self.text("name").unwrap_or_default();
        if matches!(name.as_str(), "." | "..") {
            self.problem("name", "cannot stand in the address of the tunnel");
        }
        if name.len() > MAX_NAME_BYTES {
            let problem = format!("is {} bytes long, the limit is {MAX_NAME_BYTES}", name.len());
            self.problem("name", &problem);
        }
        name
    }

    /// The first label of a host.
    pub(super) fn subdomain(&mut self) -> String {
        let label = self.text("subdomain").unwrap_or_default();
        if !label.is_empty() && !is_label(&label) {
            let rule = "1 to 63 letters, digits and hyphens, with no hyphen at either end";
            self.problem("subdomain", &format!("{label:?} is not a label of a host name: {rule}"));
        }
        label
    }

    pub(super) fn host_header(&mut self) -> HostHeader {
        let text = self.text("host_header").unwrap_or_default();
        // A line end would begin another header.
        if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            self.problem("host_header", "must be preserve, rewrite or a host");
        }
        HostHeader::of_setting(&text)
    }

    pub(super) fn domain(&mut self) -> String {
        let (new, old) = (self.text("domain"), self.text("hostname"));
        if new.is_some() && old.is_some() && new != old {
            self.problem("hostname", "is the older name of domain; use only one of them");
        }
        new.or(old).unwrap_or_default()
    }

    pub(super) fn schemes(&mut self) -> Option<Vec<&'static str>> {
        let document = self.texts("schemes");
        let old = match self.value("bind_tls") {
            None => None,
            Some(Value::Bool(true)) => Some(vec!["https"]),
            Some(Value::Bool(false)) => Some(vec!["http"]),
            Some(Value::String(text)) if text == "both" => Some(vec!["https", "http"]),
            Some(_) => {
                self.problem("bind_tls", "must be true, false or both");
                return None;
            }
        };
        let Some(document) = document else { return Some(old.unwrap_or_else(|| vec!["https"])) };
        let unknown = document.iter().any(|scheme| scheme != "http" && scheme != "https");
        if unknown || document.is_empty() || old.is_some() {
            self.problem("schemes", "must be a list of http and https");
            return None;
        }
        let is_enabled = ["https", "http"].into_iter();
        Some(
            is_enabled
                .filter(|scheme| document.iter().any(|document| document == scheme))
                .collect(),
        )
    }

    pub(super) fn labels(&mut self) -> Option<BTreeMap<String, String>> {
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
            self.problem("labels", "must be a list of name=value, each name once");
        }
        Some(labels)
    }

    pub(super) fn proxy_proto(&mut self) -> u8 {
        let mut count = 0;
        for name in ["proxy_proto", "proxy_protocol"] {
            count = match self.value(name) {
                None => count,
                Some(Value::String(text)) if text.is_empty() => count,
                Some(value) => match number(value) {
                    Some(version @ (0..=2)) => version,
                    _ => {
                        self.problem(name, "must be 1 or 2");
                        count
                    }
                },
            };
        }
        count
    }

    pub(super) fn circuit_breaker(&mut self) -> Option<CircuitBreaker> {
        let value = self.value("circuit_breaker")?;
        match value.as_f64() {
            Some(error_threshold) if (0.0..=1.0).contains(&error_threshold) => {
                Some(CircuitBreaker { error_threshold })
            }
            _ => {
                self.problem("circuit_breaker", "must be a number from 0 to 1");
                None
            }
        }
    }

    pub(super) fn ip_restriction(&mut self) -> Option<IpRestriction> {
        let [allow_cidrs, deny_cidrs] =
            self.lists("ip_restriction", ["allow_cidrs", "deny_cidrs"])?;
        Some(IpRestriction { allow_cidrs, deny_cidrs })
    }

    pub(super) fn user_agent_filter(&mut self) -> Option<UserAgentFilter> {
        let [allow, deny] = self.lists("user_agent_filter", ["allow", "deny"])?;
        Some(UserAgentFilter { allow, deny })
    }

    pub(super) fn headers(&mut self, field: &'static str) -> Option<Headers> {
        let [add, remove] = self.lists(field, ["add", "remove"])?;
        if !add.iter().all(|header| is_header(header)) {
            self.problem(field, "add must be a list of name:value");
        }
        Some(Headers { add, remove })
    }

    pub(super) fn webhook(&mut self) -> Option<WebhookVerification> {
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

    pub(super) fn basic_auth(&mut self) -> Option<BasicAuth> {
        let mut document = self.texts("basic_auth").unwrap_or_default();
        document.extend(self.text("auth"));
        if document.len() > MAX_CREDENTIALS {
            let problem = format!("has {} entries, the limit is {MAX_CREDENTIALS}", document.len());
            self.problem("basic_auth", &problem);
        }
        let mut credentials = Vec::new();
        for entry in &document {
            match entry.split_once(':') {
                Some((username, password)) if (8..=128).contains(&password.len()) => {
                    credentials.push(BasicAuthCredential {
                        username: username.to_owned(),
                        cleartext_password: password.into(),
                        ..BasicAuthCredential::default()
                    });
                }
                _ => self.problem("basic_auth", "must be user:password with 8 to 128 characters"),
            }
        }
        (!credentials.is_empty()).then_some(BasicAuth { credentials })
    }

    pub(super) fn policy(&mut self) -> Option<String> {
        let (old, new) = (self.value("policy"), self.value("traffic_policy"));
        if old.is_some() && new.is_some() {
            self.problem("policy", "is the older name of traffic_policy; use only one of them");
        }
        match new.or(old)? {
            Value::String(text) => Some(text.clone()),
            value @ Value::Object(_) => Some(value.to_string()),
            _ => {
                self.problem("traffic_policy", "must be an object or its text");
                None
            }
        }
    }

    pub(super) fn verify(&mut self, is_http: bool) -> Option<Option<PathBuf>> {
        if !is_http && !self.document.contains_key("upstream_tls_verify") {
            return None;
        }
        let is_enabled = self.flag("upstream_tls_verify").unwrap_or_default();
        let file = self.text("upstream_tls_verify_cas").map(PathBuf::from);
        if file.as_deref().is_some_and(mask::is_content) {
            self.problem("upstream_tls_verify_cas", certificate::CONTENT);
        }
        is_enabled.then_some(file)
    }
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

fn number(value: &Value) -> Option<u8> {
    match value {
        Value::String(text) => text.parse().ok(),
        value => value.as_u64().and_then(|number| u8::try_from(number).ok()),
    }
}
