//! Cloud endpoints: public addresses that a traffic policy serves, whether an agent is there or not.

use serde::{Deserialize, Serialize};

use ginnel_api::id::prefix;
use ginnel_api::{Description, Metadata, Timestamp, mask};
use ginnel_base::address::{AddressError, EndpointUrl, Scheme};
use ginnel_gateway::is_internal;
use ginnel_policy::Scope;

use super::store::Document;

/// A cloud endpoint as it is stored.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct CloudEndpoint {
    /// Unique identifier, `ep_` and 27 characters.
    pub id: String,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    pub owner_id: String,
    /// In the form of [`CloudAddress::url`].
    pub url: String,
    pub description: Description,
    pub metadata: Metadata,
    /// The document, in JSON or YAML.
    pub traffic_policy: String,
}

impl Document for CloudEndpoint {
    const PREFIX: &'static str = prefix::ENDPOINT;

    fn id(&self) -> &str {
        &self.id
    }
}

/// Where a cloud endpoint is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CloudAddress {
    pub scheme: CloudScheme,
    /// In lower case; a leading `*.` is allowed where requests name their host.
    pub host: String,
    pub port: u16,
}

/// What a cloud endpoint speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CloudScheme {
    Http,
    Https,
    Tcp,
}

impl CloudScheme {
    /// What its policy is compiled for.
    pub fn policy_scope(self) -> Scope {
        match self {
            Self::Http | Self::Https => Scope::HttpTunnel,
            Self::Tcp => Scope::TcpTunnel,
        }
    }
}

impl CloudAddress {
    /// Reads a URL, or a host alone, which stands for HTTPS.
    ///
    /// # Errors
    /// With what is wrong, for a sentence behind the name of the field.
    pub fn parse_url(text: &str) -> Result<Self, String> {
        let invalid = |problem: String| format!("{:?} {problem}", mask::url(text));
        let has_scheme = text.contains("://");
        let url = if has_scheme { text.to_owned() } else { format!("https://{text}") };
        let url = EndpointUrl::parse(&url).map_err(|problem| match problem {
            AddressError::Login => "must not hold a user or a password".to_owned(),
            AddressError::Scheme(_) => {
                invalid("begins with none of https://, http://, tcp://".to_owned())
            }
            problem => invalid(format!(
                "is not a URL with a host name and nothing behind it: it {problem}"
            )),
        })?;
        let host = url.host_pattern();
        match (url.scheme, url.port) {
            (Scheme::Http, port) => Self::of_requests(CloudScheme::Http, host, port, 80),
            (Scheme::Https, port) => Self::of_requests(CloudScheme::Https, host, port, 443),
            (Scheme::Tcp, Some(port)) => Self::of_bytes(host, port),
            (Scheme::Tcp, None) => Err("is not tcp://host:port".to_owned()),
            _ => Err("is not supported: use https://, or the tls tunnel of an agent".to_owned()),
        }
        .map_err(invalid)
    }

    fn of_requests(
        scheme: CloudScheme,
        host: String,
        port: Option<u16>,
        usual: u16,
    ) -> Result<Self, String> {
        if port.is_some_and(|port| port != usual) {
            return Err(format!("may have no port but {usual}"));
        }
        if host.starts_with("*.") && is_internal(&host) {
            return Err("is not supported: internal endpoints have no wildcards".to_owned());
        }
        Ok(Self { scheme, host, port: usual })
    }

    fn of_bytes(host: String, port: u16) -> Result<Self, String> {
        if host.starts_with("*.") {
            return Err("is not tcp://host:port".to_owned());
        }
        if is_internal(&host) {
            return Err("is not supported: internal TCP endpoints are agents' alone".to_owned());
        }
        Ok(Self { scheme: CloudScheme::Tcp, host, port })
    }

    /// The URL without the usual port.
    pub fn url(&self) -> String {
        match self.scheme {
            CloudScheme::Http => format!("http://{}", self.host),
            CloudScheme::Https => format!("https://{}", self.host),
            CloudScheme::Tcp => format!("tcp://{}", self.hostport()),
        }
    }

    /// Host and port.
    pub fn hostport(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }

    /// What no other edge or cloud endpoint may have: bytes name no host, so that a port is one whatever stands
    /// before it.
    pub fn claimed_key(&self) -> String {
        match self.scheme {
            CloudScheme::Tcp => format!(":{}", self.port),
            _ => self.hostport(),
        }
    }

    /// Whether only policies lead to it.
    pub fn is_internal(&self) -> bool {
        is_internal(&self.host)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_a_host_and_the_usual_port_or_a_port_of_its_own() {
        for (text, url, hostport) in [
            ("https://A.test/", "https://a.test", "a.test:443"),
            ("a.test", "https://a.test", "a.test:443"),
            ("http://a.test:80", "http://a.test", "a.test:80"),
            ("https://*.a.test", "https://*.a.test", "*.a.test:443"),
            ("tcp://a.test:22", "tcp://a.test:22", "a.test:22"),
        ] {
            let read = CloudAddress::parse_url(text).unwrap();
            assert_eq!((read.url().as_str(), read.hostport().as_str()), (url, hostport), "{text}");
        }
        assert!(CloudAddress::parse_url("http://a.internal").unwrap().is_internal());
    }

    #[test]
    fn what_is_no_public_url_is_refused() {
        for (text, problem) in [
            ("https://a.test:8443", "may have no port but 443"),
            ("https://a.test/path", "nothing behind it"),
            ("https://*.internal", "no wildcards"),
            ("https://", "nothing behind it"),
            ("tcp://a.test", "is not tcp://host:port"),
            ("tcp://db.internal:5432", "agents' alone"),
            ("tls://a.test", "is not supported"),
            ("ftp://a.test", "begins with none of"),
        ] {
            let refused = CloudAddress::parse_url(text).unwrap_err();
            assert!(refused.contains(problem) && refused.contains(text), "{refused}");
        }
        let secret = CloudAddress::parse_url("https://user:secret@a.test").unwrap_err();
        assert!(secret.contains("a password") && !secret.contains("secret@"), "{secret}");
    }
}
