//! Reads the values of single fields.

use std::collections::BTreeMap;
use std::path::PathBuf;

use http::{HeaderName, HeaderValue};
use serde_json::Value;

use ginnel_api::local::tunnels::{HeaderChanges, Start};
use ginnel_api::{mask, policy_document};
use ginnel_base::address::{
    Authority, HostName, HostPattern, HostPort, RequestHost, Scheme, UpstreamAddress,
    with_ascii_host,
};
use ginnel_mux::protocol::message::{
    BasicAuthCredential, BasicAuthOptions, CircuitBreakerOptions, HeaderOptions,
    IpRestrictionOptions, LoginOptions, UserAgentOptions, WebhookOptions,
};
use ginnel_net::tls::certificate;

use super::kinds::DefinitionReader;
use crate::relay::HostHeader;
use crate::tls::Trust;

/// The longest name of a tunnel, in bytes.
const MAX_NAME_BYTES: usize = 255;
/// How many passwords a tunnel may have.
const MAX_CREDENTIALS: usize = 10;

impl DefinitionReader {
    pub(super) fn name(&mut self) -> String {
        let name = self.start.name.take().unwrap_or_default();
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
        let mut label = self.start.subdomain.take().unwrap_or_default();
        if !label.is_ascii()
            && let Ok(name) = HostName::parse(&label)
        {
            label = name.to_string();
        }
        if !label.is_empty() && !is_label(&label) {
            let rule = "1 to 63 letters, digits and hyphens, with no hyphen at either end";
            self.problem("subdomain", &format!("{label:?} is not a label of a host name: {rule}"));
        }
        label
    }

    pub(super) fn host_header(&mut self, address: Option<&UpstreamAddress>) -> HostHeader {
        let text = self.start.host_header.take().unwrap_or_default();
        // Programs behind Unix sockets have no name that visitors could know.
        if text.is_empty() && matches!(address, Some(UpstreamAddress::Unix(_))) {
            return HostHeader::Rewrite;
        }
        let host = match HostHeader::of_setting(&text) {
            HostHeader::Value(host) if host.is_ascii() => RequestHost::parse(&host)
                .map(|_| HostHeader::Value(host.clone()))
                .map_err(|problem| format!("{:?} {problem}", mask::url(&host))),
            HostHeader::Value(host) => Self::ascii_authority(&host).map(HostHeader::Value),
            other => Ok(other),
        };
        host.unwrap_or_else(|problem| {
            let problem = format!("must be preserve, rewrite or a host: {problem}");
            self.problem("host_header", &problem);
            HostHeader::Preserve
        })
    }

    /// Returns a host with an optional port in its `xn--` form.
    fn ascii_authority(text: &str) -> Result<String, String> {
        let authority = Authority::with_scheme(Scheme::Http, text);
        authority
            .map(|it| it.host_header())
            .map_err(|problem| format!("{:?} {problem}", mask::url(text)))
    }

    /// Reads the whole host of a tunnel that may have a `subdomain` instead.
    pub(super) fn domain(&mut self, subdomain: &str) -> String {
        let (new, old) = (self.start.domain.take(), self.start.hostname.take());
        if new.is_some() && old.is_some() && new != old {
            self.problem("hostname", "is the older name of domain; use only one of them");
        }
        let (field, text) = match (new, old) {
            (Some(new), _) => ("domain", new),
            (None, old) => ("hostname", old.unwrap_or_default()),
        };
        if text.is_empty() {
            return text;
        }
        if !subdomain.is_empty() {
            self.problem("subdomain", &format!("{field} is the whole host; leave out one of them"));
        }
        let pattern = HostPattern::parse(&text).map(|pattern| pattern.to_string());
        // Tunnels without a name of their own come back to their address.
        let is_address = || HostPort::parse(&text).is_ok_and(|it| it.socket_address().is_some());
        match pattern {
            Ok(domain) => domain,
            Err(_) if is_address() => text,
            Err(problem) => {
                self.problem(field, &format!("{:?} {problem}", mask::url(&text)));
                String::new()
            }
        }
    }

    pub(super) fn schemes(&mut self) -> Option<Vec<&'static str>> {
        let schemes = self.start.schemes.take();
        let old = match self.start.bind_tls.take() {
            None => None,
            Some(Value::Bool(true)) => Some(vec!["https"]),
            Some(Value::Bool(false)) => Some(vec!["http"]),
            Some(Value::String(text)) if text == "both" => Some(vec!["https", "http"]),
            Some(_) => {
                self.problem("bind_tls", "must be true, false or both");
                return None;
            }
        };
        let Some(schemes) = schemes else { return Some(old.unwrap_or_else(|| vec!["https"])) };
        let unknown = schemes.iter().any(|scheme| scheme != "http" && scheme != "https");
        if unknown || schemes.is_empty() || old.is_some() {
            self.problem("schemes", "must be a list of http and https");
            return None;
        }
        let both = ["https", "http"].into_iter();
        Some(both.filter(|known| schemes.iter().any(|scheme| scheme == known)).collect())
    }

    pub(super) fn labels(&mut self) -> Option<BTreeMap<String, String>> {
        let pairs: Vec<Option<(String, String)>> = match self.start.labels.take()? {
            Value::Array(items) => items
                .iter()
                .map(|item| {
                    let (key, value) = item.as_str()?.split_once('=')?;
                    Some((key.to_owned(), value.to_owned()))
                })
                .collect(),
            Value::Object(members) => members
                .into_iter()
                .map(|(key, value)| Some((key, value.as_str()?.to_owned())))
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

    /// Returns the version of the PROXY protocol, 0 for none, and the name of the field with it.
    pub(super) fn proxy_proto(&mut self) -> (&'static str, u8) {
        let mut version = ("proxy_proto", 0);
        let (old, new) = (self.start.proxy_proto.take(), self.start.proxy_protocol.take());
        for (name, text) in [("proxy_proto", old), ("proxy_protocol", new)] {
            let Some(text) = text.filter(|text| !text.0.is_empty()) else { continue };
            match text.0.parse() {
                Ok(known @ 0..=2) => version = (name, known),
                _ => self.problem(name, "must be 1 or 2"),
            }
        }
        version
    }

    pub(super) fn circuit_breaker(&mut self) -> Option<CircuitBreakerOptions> {
        let error_threshold = self.start.circuit_breaker.take()?;
        if !(0.0..=1.0).contains(&error_threshold) {
            self.problem("circuit_breaker", "must be a number from 0 to 1");
        }
        Some(CircuitBreakerOptions { error_threshold })
    }

    pub(super) fn ip_restriction(&mut self) -> Option<IpRestrictionOptions> {
        let cidrs = self.start.ip_restriction.take()?;
        let (allow_cidrs, deny_cidrs) = (cidrs.allow_cidrs, cidrs.deny_cidrs);
        Some(IpRestrictionOptions {
            allow_cidrs: allow_cidrs.unwrap_or_default(),
            deny_cidrs: deny_cidrs.unwrap_or_default(),
        })
    }

    pub(super) fn user_agent_filter(&mut self) -> Option<UserAgentOptions> {
        let filter = self.start.user_agent_filter.take()?;
        Some(UserAgentOptions {
            allow: filter.allow.unwrap_or_default(),
            deny: filter.deny.unwrap_or_default(),
        })
    }

    pub(super) fn headers(
        &mut self,
        field: &str,
        take: impl FnOnce(&mut Start) -> Option<HeaderChanges>,
    ) -> Option<HeaderOptions> {
        let changes = take(&mut self.start)?;
        let (add, remove) = (changes.add.unwrap_or_default(), changes.remove.unwrap_or_default());
        if !add.iter().all(|header| is_header(header)) {
            self.problem(field, "add must be a list of name:value");
        }
        Some(HeaderOptions { add, remove })
    }

    pub(super) fn oauth(&mut self) -> Option<LoginOptions> {
        let login = self.start.oauth.take()?;
        let provider = login.provider.unwrap_or_default();
        if provider.is_empty() {
            self.problem("oauth.provider", "is required");
        }
        Some(LoginOptions {
            provider,
            client_id: login.client_id.unwrap_or_default(),
            client_secret: login.client_secret.unwrap_or_default().0.into(),
            allow_emails: login.allow_emails.unwrap_or_default(),
            allow_domains: login.allow_domains.unwrap_or_default(),
            scopes: login.scopes.unwrap_or_default(),
            ..LoginOptions::default()
        })
    }

    pub(super) fn oidc(&mut self) -> Option<LoginOptions> {
        let login = self.start.oidc.take()?;
        let required =
            [("oidc.issuer_url", &login.issuer_url), ("oidc.client_id", &login.client_id)];
        for (field, value) in required {
            if value.as_deref().unwrap_or_default().is_empty() {
                self.problem(field, "is required");
            }
        }
        Some(LoginOptions {
            issuer_url: self.ascii_url("oidc.issuer_url", login.issuer_url.unwrap_or_default()),
            client_id: login.client_id.unwrap_or_default(),
            client_secret: login.client_secret.unwrap_or_default().0.into(),
            allow_emails: login.allow_emails.unwrap_or_default(),
            allow_domains: login.allow_domains.unwrap_or_default(),
            scopes: login.scopes.unwrap_or_default(),
            ..LoginOptions::default()
        })
    }

    /// Returns a URL with its host in the `xn--` form.
    fn ascii_url(&mut self, field: &str, url: String) -> String {
        match with_ascii_host(&url) {
            Ok(url) => url.into_owned(),
            Err(problem) => {
                self.problem(field, &format!("{:?} {problem}", mask::url(&url)));
                url
            }
        }
    }

    pub(super) fn webhook(&mut self) -> Option<WebhookOptions> {
        let webhook = self.start.verify_webhook.take()?;
        let provider = webhook.provider.unwrap_or_default();
        if provider.is_empty() {
            self.problem("verify_webhook.provider", "is required");
        }
        let secret = webhook.secret.unwrap_or_default().0.as_str().into();
        Some(WebhookOptions { provider, secret, ..WebhookOptions::default() })
    }

    pub(super) fn basic_auth(&mut self) -> Option<BasicAuthOptions> {
        let mut entries = self.start.basic_auth.take().unwrap_or_default();
        entries.extend(self.start.auth.take());
        if entries.len() > MAX_CREDENTIALS {
            let problem = format!("has {} entries, the limit is {MAX_CREDENTIALS}", entries.len());
            self.problem("basic_auth", &problem);
        }
        let mut credentials = Vec::new();
        for (at, entry) in entries.iter().enumerate() {
            // A message shows only the length of a password.
            let problem = match entry.0.split_once(':') {
                Some((username, password)) if (8..=128).contains(&password.len()) => {
                    credentials.push(BasicAuthCredential {
                        username: username.to_owned(),
                        cleartext_password: password.into(),
                        ..BasicAuthCredential::default()
                    });
                    continue;
                }
                Some((_, password)) => format!("has a password of {} bytes", password.len()),
                None => "has no colon".to_owned(),
            };
            let form = "must be user:password with 8 to 128 characters";
            self.problem("basic_auth", &format!("{form}: entry {} {problem}", at + 1));
        }
        (!credentials.is_empty()).then_some(BasicAuthOptions { credentials })
    }

    pub(super) fn policy(&mut self) -> Option<String> {
        let (old, new) = (self.start.policy.take(), self.start.traffic_policy.take());
        if old.is_some() && new.is_some() {
            self.problem("policy", "is the older name of traffic_policy; use only one of them");
        }
        match new.or(old)? {
            // An empty text would be an endpoint without a policy, open to every visitor.
            Value::String(text) if text.trim().is_empty() => {
                let problem = "is empty; write a policy, or leave the field out for none";
                self.problem("traffic_policy", problem);
                None
            }
            Value::String(text) => Some(text),
            value @ Value::Object(_) => {
                if let Some(path) = policy_document::unclear_number(&value) {
                    let problem = "is a number in a text field; put it into quotes";
                    self.problem(
                        "traffic_policy",
                        &format!("{} {problem}", path.trim_start_matches('.')),
                    );
                }
                Some(policy_document::with_texts(&value).to_string())
            }
            _ => {
                self.problem("traffic_policy", "must be an object or its text");
                None
            }
        }
    }

    pub(super) fn verify(&mut self, address: Option<&UpstreamAddress>) -> Option<Option<PathBuf>> {
        let is_enabled = self.start.upstream_tls_verify.unwrap_or_default();
        let file = self.start.upstream_tls_verify_cas.take().map(PathBuf::from);
        if file.as_deref().is_some_and(mask::is_content) {
            self.problem("upstream_tls_verify_cas", certificate::CONTENT);
        } else if let Some(path) = file.as_deref().filter(|_| is_enabled) {
            let is_tls = matches!(address, Some(UpstreamAddress::Tls(_)));
            let trust = Trust::file(path);
            let used = trust.and_then(|it| if is_tls { it.config().map(drop) } else { Ok(()) });
            if let Err(problem) = used {
                self.problem("upstream_tls_verify_cas", &problem.to_string());
            }
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
