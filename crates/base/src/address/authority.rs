//! Schemes with hosts and ports, as URLs have them.

use std::borrow::Cow;
use std::fmt;

use super::host_name::has_blank;
use super::host_port::{parse_port_to_connect, split_port};
use super::{AddressError, Host};

/// The scheme of a URL.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Scheme {
    /// `http`, at port 80.
    Http,
    /// `https`, at port 443.
    Https,
    /// `ws`, at port 80.
    Ws,
    /// `wss`, at port 443.
    Wss,
    /// `tcp`, without a default port.
    Tcp,
    /// `tls`, at port 443.
    Tls,
}

/// The scheme, host and port of a URL. Two authorities are equal if connections to them are, however the URLs were
/// written: in upper case, with a trailing dot, or with the default port.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Authority {
    /// The scheme.
    pub scheme: Scheme,
    /// The host.
    pub host: Host,
    /// The port, or the default port of the scheme.
    pub port: u16,
}

impl Scheme {
    /// Returns the scheme of this name, in any case.
    pub fn from_name(name: &str) -> Option<Self> {
        let all = [Self::Http, Self::Https, Self::Ws, Self::Wss, Self::Tcp, Self::Tls];
        all.into_iter().find(|scheme| name.eq_ignore_ascii_case(scheme.name()))
    }

    /// The name in lower case.
    pub fn name(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
            Self::Ws => "ws",
            Self::Wss => "wss",
            Self::Tcp => "tcp",
            Self::Tls => "tls",
        }
    }

    /// The port of URLs without one.
    pub fn default_port(self) -> Option<u16> {
        match self {
            Self::Http | Self::Ws => Some(80),
            Self::Https | Self::Wss | Self::Tls => Some(443),
            Self::Tcp => None,
        }
    }
}

impl Authority {
    /// Parses `scheme://host[:port]`, optionally followed by one slash.
    ///
    /// # Errors
    /// If the text is not of the form. A login, path, query or fragment is an error of its own.
    pub fn parse(text: &str) -> Result<Self, AddressError> {
        let (authority, rest) = Self::split_url(text)?;
        reject_rest(rest)?;
        Ok(authority)
    }

    /// Splits a URL into its authority and the rest: path, query and fragment as they were written.
    ///
    /// # Errors
    /// If the text does not begin with `scheme://host[:port]`.
    pub fn split_url(url: &str) -> Result<(Self, &str), AddressError> {
        const SCHEMES: &str = "http://, https://, ws://, wss://, tcp:// or tls://";
        let (scheme, rest) = url.split_once("://").ok_or(AddressError::Scheme(SCHEMES))?;
        let scheme = Scheme::from_name(scheme).ok_or(AddressError::Scheme(SCHEMES))?;
        let end = rest.find(['/', '?', '#', '\\']).unwrap_or(rest.len());
        let (place, rest) = rest.split_at_checked(end).unwrap_or((rest, ""));
        Ok((Self::with_scheme(scheme, place)?, rest))
    }

    /// Parses `host[:port]`, such as the value of a `Host` header, for a scheme. An empty port is the default
    /// port (RFC 3986, section 6.2.3).
    ///
    /// # Errors
    /// If the text is not of the form, or the scheme has no default port and the text has no port.
    pub fn with_scheme(scheme: Scheme, text: &str) -> Result<Self, AddressError> {
        if has_blank(text) {
            return Err(AddressError::Blank);
        }
        if text.contains('@') {
            return Err(AddressError::Login);
        }
        let (host, port) = split_port(text)?;
        let host = Host::parse(host)?;
        let port = match port.filter(|port| !port.is_empty()) {
            Some(port) => parse_port_to_connect(port)?,
            None => scheme.default_port().ok_or(AddressError::NoPort)?,
        };
        Ok(Self { scheme, host, port })
    }

    /// The value of a `Host` header: without the default port.
    pub fn host_header(&self) -> String {
        match self.scheme.default_port() {
            Some(port) if port == self.port => self.host.to_string(),
            _ => format!("{}:{}", self.host, self.port),
        }
    }
}

/// Returns a URL with its host in the `xn--` form. All other parts stay as they were written.
///
/// # Errors
/// If the host has letters outside ASCII and is not a host name.
pub fn with_ascii_host(url: &str) -> Result<Cow<'_, str>, AddressError> {
    let Some((scheme, rest)) = url.split_once("://") else { return Ok(Cow::Borrowed(url)) };
    let end = rest.find(['/', '?', '#', '\\']).unwrap_or(rest.len());
    let (place, rest) = rest.split_at_checked(end).unwrap_or((rest, ""));
    let (login, place) = match place.rsplit_once('@') {
        Some((login, place)) => (format!("{login}@"), place),
        None => (String::new(), place),
    };
    if place.is_ascii() {
        return Ok(Cow::Borrowed(url));
    }
    let (host, port) = split_port(place)?;
    let host = Host::parse(host)?;
    let port = port.map(|port| format!(":{port}")).unwrap_or_default();
    Ok(Cow::Owned(format!("{scheme}://{login}{host}{port}{rest}")))
}

/// Rejects a path, query or fragment behind an authority.
pub(super) fn reject_rest(rest: &str) -> Result<(), AddressError> {
    match rest.bytes().next() {
        None => Ok(()),
        Some(b'\\') => Err(AddressError::Blank),
        Some(b'?') => Err(AddressError::Query),
        Some(b'#') => Err(AddressError::Fragment),
        Some(_) => match rest.get(1..).unwrap_or_default().bytes().next() {
            None => Ok(()),
            Some(b'?') => Err(AddressError::Query),
            Some(b'#') => Err(AddressError::Fragment),
            Some(_) => Err(AddressError::Path),
        },
    }
}

impl fmt::Display for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.scheme.name(), self.host_header())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings_of_one_authority_are_equal() {
        for (text, shown) in [
            ("http://a.test", "http://a.test"),
            ("HTTP://A.TEST.:80/", "http://a.test"),
            ("http://a.test:", "http://a.test"),
            ("https://a.test:443", "https://a.test"),
            ("https://a.test:80", "https://a.test:80"),
            ("wss://[::1]:443", "wss://[::1]"),
            ("tcp://a.test:22", "tcp://a.test:22"),
        ] {
            assert_eq!(
                Authority::parse(text).map(|it| it.to_string()).as_deref(),
                Ok(shown),
                "{text}"
            );
        }
        for (text, problem) in [
            ("http://", AddressError::NoHost),
            ("http://:80", AddressError::NoHost),
            ("tcp://a.test", AddressError::NoPort),
            ("http://a@b", AddressError::Login),
            ("http://a.test/x", AddressError::Path),
            ("http://a.test//", AddressError::Path),
            ("http://a.test/?", AddressError::Query),
            ("http://a.test?x", AddressError::Query),
            ("http://a.test#x", AddressError::Fragment),
            ("http://a.test\\x", AddressError::Blank),
            ("http://a.test:99999", AddressError::Port { lowest: 1 }),
            ("http://a.test:0", AddressError::Port { lowest: 1 }),
            ("http://a%2etest", AddressError::Name),
            ("http://0x7f000001", AddressError::Number),
            ("http://ａ.test", AddressError::LookAlike("a.test".to_owned())),
        ] {
            assert_eq!(Authority::parse(text), Err(problem), "{text}");
        }
        assert!(matches!(Authority::parse("ftp://a"), Err(AddressError::Scheme(_))));
        assert!(matches!(Authority::parse("a.test"), Err(AddressError::Scheme(_))));
    }

    #[test]
    fn only_the_host_of_a_url_is_put_into_its_ascii_form() {
        for (url, expected) in [
            (
                "https://b\u{fc}cher.test:8443/\u{fc}?q=\u{fc}",
                "https://xn--bcher-kva.test:8443/\u{fc}?q=\u{fc}",
            ),
            ("ws://ada:b@B\u{dc}CHER.test.", "ws://ada:b@xn--bcher-kva.test"),
            ("HTTP://A.test.:080/x", "HTTP://A.test.:080/x"),
            ("b\u{fc}cher.test", "b\u{fc}cher.test"),
        ] {
            assert_eq!(with_ascii_host(url).as_deref(), Ok(expected));
        }
        let look_alike = AddressError::LookAlike("a.test".to_owned());
        assert_eq!(with_ascii_host("http://\u{ff41}.test/"), Err(look_alike));
    }

    #[test]
    fn the_rest_of_a_url_is_kept_as_it_is() {
        let rest = |text| Authority::split_url(text).map(|(_, rest)| rest);

        assert_eq!(rest("http://a.test/%7e?x#y"), Ok("/%7e?x#y"));
        assert_eq!(rest("http://a.test?x/y"), Ok("?x/y"));
        assert_eq!(rest("http://a.test"), Ok(""));
    }
}
