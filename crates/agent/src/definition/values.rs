//! Reads the values of single fields.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde_json::Value;

use ginnel_api::mask;
use ginnel_base::address::{
    Authority, HostName, HostPattern, HostPort, RequestHost, Scheme, UpstreamAddress,
};
use ginnel_net::tls::certificate;

use super::kinds::DefinitionReader;
use crate::relay::HostHeader;
use crate::tls::Trust;

/// The longest name of a tunnel, in bytes.
const MAX_NAME_BYTES: usize = 255;

impl DefinitionReader {
    pub(super) fn read_name(&mut self) -> String {
        let name = self.start.name.take().unwrap_or_default();
        if matches!(name.as_str(), "." | "..") {
            self.add_problem("name", "cannot stand in the address of the tunnel");
        }
        if name.len() > MAX_NAME_BYTES {
            let problem = format!("is {} bytes long, the limit is {MAX_NAME_BYTES}", name.len());
            self.add_problem("name", &problem);
        }
        name
    }

    /// The first label of a host.
    pub(super) fn read_subdomain(&mut self) -> String {
        let mut label = self.start.subdomain.take().unwrap_or_default();
        if !label.is_ascii()
            && let Ok(name) = HostName::parse(&label)
        {
            label = name.to_string();
        }
        if !label.is_empty() && !is_label(&label) {
            let rule = "1 to 63 letters, digits and hyphens, with no hyphen at either end";
            self.add_problem(
                "subdomain",
                &format!("{label:?} is not a label of a host name: {rule}"),
            );
        }
        label
    }

    pub(super) fn read_host_header(&mut self, address: Option<&UpstreamAddress>) -> HostHeader {
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
            self.add_problem("host_header", &problem);
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
    pub(super) fn read_domain(&mut self, subdomain: &str) -> String {
        let (new, old) = (self.start.domain.take(), self.start.hostname.take());
        if new.is_some() && old.is_some() && new != old {
            self.add_problem("hostname", "is the older name of domain; use only one of them");
        }
        let (field, text) = match (new, old) {
            (Some(new), _) => ("domain", new),
            (None, old) => ("hostname", old.unwrap_or_default()),
        };
        if text.is_empty() {
            return text;
        }
        if !subdomain.is_empty() {
            self.add_problem(
                "subdomain",
                &format!("{field} is the whole host; leave out one of them"),
            );
        }
        let pattern = HostPattern::parse(&text).map(|pattern| pattern.to_string());
        // Tunnels without a name of their own come back to their address.
        let is_address = || HostPort::parse(&text).is_ok_and(|it| it.socket_address().is_some());
        match pattern {
            Ok(domain) => domain,
            Err(_) if is_address() => text,
            Err(problem) => {
                self.add_problem(field, &format!("{:?} {problem}", mask::url(&text)));
                String::new()
            }
        }
    }

    pub(super) fn read_schemes(&mut self) -> Option<Vec<&'static str>> {
        let schemes = self.start.schemes.take();
        // Wrappers write the booleans as texts, in the letters of their languages.
        let bind_tls = match self.start.bind_tls.take() {
            Some(Value::String(text)) => Some(Value::String(text.to_ascii_lowercase())),
            other => other,
        };
        let old = match bind_tls {
            None => None,
            Some(Value::Bool(true)) => Some(vec!["https"]),
            Some(Value::Bool(false)) => Some(vec!["http"]),
            Some(Value::String(text)) if text == "true" => Some(vec!["https"]),
            Some(Value::String(text)) if text == "false" => Some(vec!["http"]),
            Some(Value::String(text)) if text == "both" => Some(vec!["https", "http"]),
            Some(_) => {
                self.add_problem("bind_tls", "must be true, false or both");
                return None;
            }
        };
        let Some(schemes) = schemes else { return Some(old.unwrap_or_else(|| vec!["https"])) };
        let unknown = schemes.iter().any(|scheme| scheme != "http" && scheme != "https");
        if unknown || schemes.is_empty() || old.is_some() {
            self.add_problem("schemes", "must be a list of http and https");
            return None;
        }
        let both = ["https", "http"].into_iter();
        Some(both.filter(|known| schemes.iter().any(|scheme| scheme == known)).collect())
    }

    pub(super) fn read_labels(&mut self) -> Option<BTreeMap<String, String>> {
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
            self.add_problem("labels", "must be a list of name=value, each name once");
        }
        Some(labels)
    }

    /// Returns the version of the PROXY protocol, 0 for none, and the name of the field with it.
    pub(super) fn read_proxy_proto(&mut self) -> (&'static str, u8) {
        let mut version = ("proxy_proto", 0);
        let (old, new) = (self.start.proxy_proto.take(), self.start.proxy_protocol.take());
        for (name, text) in [("proxy_proto", old), ("proxy_protocol", new)] {
            let Some(text) = text.filter(|text| !text.0.is_empty()) else { continue };
            match text.0.parse() {
                Ok(known @ 0..=2) => version = (name, known),
                _ => self.add_problem(name, "must be 1 or 2"),
            }
        }
        version
    }

    pub(super) fn read_verify(
        &mut self,
        address: Option<&UpstreamAddress>,
    ) -> Option<Option<PathBuf>> {
        let is_enabled = self.start.upstream_tls_verify.unwrap_or_default();
        let file = self.start.upstream_tls_verify_cas.take().map(PathBuf::from);
        if file.as_deref().is_some_and(mask::is_content) {
            self.add_problem("upstream_tls_verify_cas", certificate::CONTENT);
        } else if let Some(path) = file.as_deref().filter(|_| is_enabled) {
            let is_tls = matches!(address, Some(UpstreamAddress::Tls(_)));
            let trust = Trust::from_file(path);
            let used =
                trust.and_then(|it| if is_tls { it.client_config().map(drop) } else { Ok(()) });
            if let Err(problem) = used {
                self.add_problem("upstream_tls_verify_cas", &problem.to_string());
            }
        }
        is_enabled.then_some(file)
    }
}

/// Whether a text can be one label of a host name.
fn is_label(text: &str) -> bool {
    (1..=63).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
        && !text.starts_with('-')
        && !text.ends_with('-')
}
