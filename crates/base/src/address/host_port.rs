//! Hosts with ports.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::{AddressError, Host};

/// A host and a port: `a.test:80`, `127.0.0.1:80` or `[::1]:80`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HostPort {
    /// The host.
    pub host: Host,
    /// The port. Only addresses to listen on have port 0.
    pub port: u16,
}

impl HostPort {
    /// Parses an address to connect to, with a port from 1 to 65535.
    ///
    /// # Errors
    /// If the text is not of the form.
    pub fn parse(text: &str) -> Result<Self, AddressError> {
        let parsed = Self::parse_to_listen(text).map_err(|problem| match problem {
            AddressError::Port { .. } => AddressError::Port { lowest: 1 },
            problem => problem,
        })?;
        if parsed.port == 0 { Err(AddressError::Port { lowest: 1 }) } else { Ok(parsed) }
    }

    /// Parses an address to listen on. Port 0 picks a free port.
    ///
    /// # Errors
    /// If the text is not of the form.
    pub fn parse_to_listen(text: &str) -> Result<Self, AddressError> {
        if text.contains("://") {
            return Err(AddressError::Url);
        }
        let (host, port) = split_port(text)?;
        let host = Host::parse(host)?;
        let port = parse_port(port.ok_or(AddressError::NoPort)?)?;
        Ok(Self { host, port })
    }

    /// Returns the addresses that no resolver has to know. `localhost` and the names below it are loopback
    /// (RFC 6761, section 6.3).
    pub fn known_addresses(&self) -> Option<Vec<SocketAddr>> {
        let ips: Vec<IpAddr> = match &self.host {
            Host::Name(name) if name.is_localhost() => {
                vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()]
            }
            host => vec![host.ip()?],
        };
        Some(ips.into_iter().map(|ip| SocketAddr::new(ip, self.port)).collect())
    }

    /// The socket address, unless the host is a name.
    pub fn socket_address(&self) -> Option<SocketAddr> {
        self.host.ip().map(|ip| SocketAddr::new(ip, self.port))
    }
}

/// Parses a port: decimal digits without a sign and without leading zeros.
///
/// # Errors
/// If the text is not a number from 0 to 65535.
pub fn parse_port(text: &str) -> Result<u16, AddressError> {
    let problem = AddressError::Port { lowest: 0 };
    let has_leading_zero = text.len() > 1 && text.starts_with('0');
    if text.is_empty() || has_leading_zero || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(problem);
    }
    text.parse().map_err(|_| problem)
}

/// Parses the port of an address to connect to.
///
/// # Errors
/// If the text is not a number from 1 to 65535.
pub(super) fn parse_port_to_connect(text: &str) -> Result<u16, AddressError> {
    match parse_port(text) {
        Ok(0) | Err(_) => Err(AddressError::Port { lowest: 1 }),
        port => port,
    }
}

/// Splits a host from the port behind it. The brackets of an IPv6 address stay.
pub(super) fn split_port(text: &str) -> Result<(&str, Option<&str>), AddressError> {
    let end = match text.starts_with('[') {
        true => text.find(']').map(|at| at + 1).ok_or(AddressError::Ipv6)?,
        false => text.find(':').unwrap_or(text.len()),
    };
    let (host, rest) = text.split_at_checked(end).ok_or(AddressError::Ipv6)?;
    match rest.strip_prefix(':') {
        None if rest.is_empty() => Ok((host, None)),
        None => Err(AddressError::Ipv6),
        Some(port) if port.contains(':') => Err(AddressError::Brackets),
        Some(port) => Ok((host, Some(port))),
    }
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

impl From<SocketAddr> for HostPort {
    fn from(address: SocketAddr) -> Self {
        Self { host: address.ip().into(), port: address.port() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_and_a_port_have_one_form() {
        for (text, shown) in [
            ("A.test.:443", "a.test:443"),
            ("[::1]:80", "[::1]:80"),
            ("127.0.0.1:65535", "127.0.0.1:65535"),
            ("bücher.test:1", "xn--bcher-kva.test:1"),
        ] {
            assert_eq!(
                HostPort::parse(text).map(|it| it.to_string()).as_deref(),
                Ok(shown),
                "{text}"
            );
        }
        let port = || AddressError::Port { lowest: 1 };
        for (text, problem) in [
            ("", AddressError::NoHost),
            (":80", AddressError::NoHost),
            ("a.test", AddressError::NoPort),
            ("[::1]", AddressError::NoPort),
            ("a.test:", port()),
            ("a.test:0", port()),
            ("a.test:00080", port()),
            ("a.test:+80", port()),
            ("a.test:-80", port()),
            ("a.test: 80", port()),
            ("a.test:80\n", port()),
            ("a.test:65536", port()),
            ("a.test:99999999999", port()),
            ("a.test:http", port()),
            ("a.test:0x50", port()),
            ("a.test:８０", port()),
            ("a.test:80/", port()),
            ("::1:80", AddressError::Brackets),
            ("a:80:80", AddressError::Brackets),
            ("[::1]80", AddressError::Ipv6),
            ("user@a.test:80", AddressError::Name),
            ("http://a.test:80", AddressError::Url),
            ("0x7f.1:80", AddressError::Number),
        ] {
            assert_eq!(HostPort::parse(text), Err(problem), "{text:?}");
        }
    }

    #[test]
    fn only_listeners_have_port_0() {
        let parsed = HostPort::parse_to_listen("127.0.0.1:0").map(|it| it.to_string());

        assert_eq!(parsed.as_deref(), Ok("127.0.0.1:0"));
        assert!(HostPort::parse_to_listen("127.0.0.1:00").is_err());
    }
}
