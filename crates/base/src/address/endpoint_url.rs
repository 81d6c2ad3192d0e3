//! Public URLs of endpoints.

use std::fmt;

use super::authority::reject_rest;
use super::host_name::has_blank;
use super::host_port::{parse_port_to_connect, split_port};
use super::{AddressError, Host, HostName, Scheme};

/// The public URL of an endpoint: `https://a.test`, `https://*.a.test` or `tcp://a.test:22`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EndpointUrl {
    /// The scheme.
    pub scheme: Scheme,
    /// If true, the URL covers all names below the host.
    pub is_wildcard: bool,
    /// The host.
    pub host: Host,
    /// The port, if the URL has one.
    pub port: Option<u16>,
}

impl EndpointUrl {
    /// Parses a URL without a path, query, fragment and login; one slash may follow.
    ///
    /// # Errors
    /// If the text is not such a URL.
    pub fn parse(text: &str) -> Result<Self, AddressError> {
        const SCHEMES: &str = "https://, http://, tcp:// or tls://";
        if has_blank(text) {
            return Err(AddressError::Blank);
        }
        let (scheme, rest) = text.split_once("://").ok_or(AddressError::Scheme(SCHEMES))?;
        let scheme = match Scheme::from_name(scheme) {
            Some(scheme @ (Scheme::Http | Scheme::Https | Scheme::Tcp | Scheme::Tls)) => scheme,
            _ => return Err(AddressError::Scheme(SCHEMES)),
        };
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (place, rest) = rest.split_at_checked(end).unwrap_or((rest, ""));
        if place.contains('@') {
            return Err(AddressError::Login);
        }
        reject_rest(rest)?;
        let (host, port) = split_port(place)?;
        let below = host.strip_prefix("*.");
        let host = match below {
            Some(name) => Host::Name(HostName::parse(name)?),
            None => Host::parse(host)?,
        };
        let port = port.map(parse_port_to_connect).transpose()?;
        Ok(Self { scheme, is_wildcard: below.is_some(), host, port })
    }

    /// The host, with `*.` in front of it for a wildcard.
    pub fn host_pattern(&self) -> String {
        let star = if self.is_wildcard { "*." } else { "" };
        format!("{star}{}", self.host)
    }
}

impl fmt::Display for EndpointUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.scheme.name(), self.host_pattern())?;
        self.port.map_or(Ok(()), |port| write!(f, ":{port}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn public_urls_have_one_form() {
        for (text, shown) in [
            ("https://A.test/", "https://a.test"),
            ("https://*.a.test", "https://*.a.test"),
            ("tcp://a.test:22", "tcp://a.test:22"),
            ("http://[::1]:80", "http://[::1]:80"),
            ("https://bücher.test", "https://xn--bcher-kva.test"),
        ] {
            assert_eq!(
                EndpointUrl::parse(text).map(|it| it.to_string()).as_deref(),
                Ok(shown),
                "{text}"
            );
        }
        for text in [
            "a.test",
            "https://",
            "https://*",
            "https://*.",
            "https://*.127.0.0.1",
            "https://a.*.test",
            "https://a.test:",
            "https://a.test:0",
            "https://a.test/x",
            "https://a@b.test",
            "wss://a.test",
        ] {
            assert!(EndpointUrl::parse(text).is_err(), "{text}");
        }
    }
}
