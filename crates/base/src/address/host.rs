//! Hosts: names and IP addresses.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::host_name::{has_blank, reject_port, reject_url};
use super::{AddressError, HostName, parse_port};

/// A host name or an IP address. Prints IPv6 addresses in brackets.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Host {
    /// A name.
    Name(HostName),
    /// An IPv4 address.
    V4(Ipv4Addr),
    /// An IPv6 address.
    V6(Ipv6Addr),
}

impl Host {
    /// Parses a host without a port: a name, an IPv4 address, or an IPv6 address with or without brackets.
    ///
    /// # Errors
    /// If the text is not a host.
    pub fn parse(text: &str) -> Result<Self, AddressError> {
        if has_blank(text) {
            return Err(AddressError::Blank);
        }
        reject_url(text)?;
        if let Some(rest) = text.strip_prefix('[') {
            let is_port = |(_, port): (&str, &str)| parse_port(port).is_ok();
            return match rest.strip_suffix(']') {
                Some(address) => parse_v6(address),
                None if rest.split_once("]:").is_some_and(is_port) => Err(AddressError::HasPort),
                None => Err(AddressError::Ipv6),
            };
        }
        if text.contains(':') {
            reject_port(text)?;
            return parse_v6(text);
        }
        match text.parse() {
            Ok(address) => Ok(Self::V4(address)),
            Err(_) => HostName::parse(text).map(Self::Name),
        }
    }

    /// The IP address, unless the host is a name.
    pub fn ip(&self) -> Option<IpAddr> {
        match self {
            Self::Name(_) => None,
            Self::V4(address) => Some(IpAddr::V4(*address)),
            Self::V6(address) => Some(IpAddr::V6(*address)),
        }
    }

    /// The name, unless the host is an IP address.
    pub fn name(&self) -> Option<&HostName> {
        match self {
            Self::Name(name) => Some(name),
            Self::V4(_) | Self::V6(_) => None,
        }
    }

    /// Returns true for loopback addresses, `localhost` and the names below it.
    pub fn is_loopback(&self) -> bool {
        match self {
            Self::Name(name) => name.is_localhost(),
            Self::V4(address) => address.is_loopback(),
            Self::V6(address) => {
                address.is_loopback() || address.to_ipv4_mapped().is_some_and(|it| it.is_loopback())
            }
        }
    }

    /// The host without brackets, as certificates, SOCKS and socket functions have it.
    pub fn unbracketed(&self) -> String {
        match self {
            Self::V6(address) => address.to_string(),
            host => host.to_string(),
        }
    }
}

fn parse_v6(text: &str) -> Result<Host, AddressError> {
    match text.parse() {
        Ok(address) => Ok(Host::V6(address)),
        Err(_) if text.contains('%') => Err(AddressError::Zone),
        Err(_) => Err(AddressError::Ipv6),
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => name.fmt(f),
            Self::V4(address) => address.fmt(f),
            Self::V6(address) => write!(f, "[{address}]"),
        }
    }
}

impl From<IpAddr> for Host {
    fn from(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(address) => Self::V4(address),
            IpAddr::V6(address) => Self::V6(address),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_names_and_addresses() {
        for (text, host) in [
            ("A.test.", "a.test"),
            ("127.0.0.1", "127.0.0.1"),
            ("::1", "[::1]"),
            ("[::1]", "[::1]"),
            ("[2001:DB8:0::1]", "[2001:db8::1]"),
            ("::ffff:10.0.0.1", "[::ffff:10.0.0.1]"),
        ] {
            assert_eq!(
                Host::parse(text).map(|host| host.to_string()).as_deref(),
                Ok(host),
                "{text}"
            );
        }
        for (text, problem) in [
            ("", AddressError::NoHost),
            ("[]", AddressError::Ipv6),
            ("[::1]:80", AddressError::HasPort),
            ("a.test:80", AddressError::HasPort),
            ("127.0.0.1:0", AddressError::HasPort),
            ("a.test:", AddressError::HasPort),
            ("http://a.test", AddressError::UrlOfHost),
            ("[::1", AddressError::Ipv6),
            ("::1]", AddressError::Ipv6),
            ("[a.test]", AddressError::Ipv6),
            ("[127.0.0.1]", AddressError::Ipv6),
            ("[[::1]]", AddressError::Ipv6),
            ("fe80::1%eth0", AddressError::Zone),
            ("[fe80::1%25eth0]", AddressError::Zone),
            ("127.0.0.1.", AddressError::Number),
            ("127.0.0.01", AddressError::Number),
            ("256.0.0.1", AddressError::Number),
            (" 127.0.0.1", AddressError::Blank),
        ] {
            assert_eq!(Host::parse(text), Err(problem), "{text:?}");
        }
    }

    #[test]
    fn loopback_is_known_in_every_form() {
        let is_loopback = |text: &str| Host::parse(text).is_ok_and(|host| host.is_loopback());

        for text in ["localhost", "a.localhost", "127.9.9.9", "::1", "::ffff:127.0.0.1"] {
            assert!(is_loopback(text), "{text}");
        }
        for text in ["a.test", "128.0.0.1", "::", "::2", "::ffff:128.0.0.1"] {
            assert!(!is_loopback(text), "{text}");
        }
    }
}
