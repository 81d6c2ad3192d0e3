//! Hosts of requests.

use std::borrow::Cow;

use super::host_port::split_port;
use super::{AddressError, Host, HostName, parse_port};

/// The host and the port of a request, as `Host` or an absolute target contains them (RFC 9110, section 7.2).
/// Requests are read often, so a name that is in its normal form is borrowed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RequestHost<'a> {
    /// The host in its normal form: as [`Host`] prints it. Empty if the request names no host.
    pub host: Cow<'a, str>,
    /// The port, unless it is left out or empty.
    pub port: Option<u16>,
}

impl<'a> RequestHost<'a> {
    /// Parses `host[:port]`. The text and the port may be empty.
    ///
    /// # Errors
    /// If the text is not of the form, or contains letters outside ASCII, which requests may not.
    pub fn parse(text: &'a str) -> Result<Self, AddressError> {
        if !text.is_ascii() {
            return Err(AddressError::International);
        }
        let (host, port) = split_port(text)?;
        let port = match port.filter(|port| !port.is_empty()) {
            None => None,
            Some(port) => Some(parse_request_port(port)?),
        };
        Ok(Self { host: parse_host(host)?, port })
    }

    /// The same, independent of the text that was parsed.
    pub fn into_owned(self) -> RequestHost<'static> {
        RequestHost { host: Cow::Owned(self.host.into_owned()), port: self.port }
    }
}

/// Parses a port from 1 to 65535. Leading zeros are valid in requests (RFC 3986, section 3.2.3), and all programs read
/// them in the same way.
fn parse_request_port(text: &str) -> Result<u16, AddressError> {
    let digits = text.trim_start_matches('0');
    match parse_port(digits) {
        Ok(port) if port > 0 => Ok(port),
        _ => Err(AddressError::Port { lowest: 1 }),
    }
}

fn parse_host(text: &str) -> Result<Cow<'_, str>, AddressError> {
    if text.is_empty() {
        return Ok(Cow::Borrowed(""));
    }
    let is_address = text.starts_with('[') || text.ends_with(|last: char| last.is_ascii_digit());
    if is_address {
        match Host::parse(text) {
            // An IPv4 address has one notation, so the text is its normal form.
            Ok(Host::V4(_)) => return Ok(Cow::Borrowed(text)),
            Ok(host @ Host::V6(_)) => return Ok(Cow::Owned(host.to_string())),
            _ => {}
        }
    }
    HostName::normalize(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_of_requests_have_one_form() {
        for (text, host, port) in [
            ("a.test", "a.test", None),
            ("A.Test.:8080", "a.test", Some(8080)),
            ("a.test:", "a.test", None),
            ("a.test:0080", "a.test", Some(80)),
            ("a_b.test:443", "a_b.test", Some(443)),
            ("[2001:DB8:0::1]:80", "[2001:db8::1]", Some(80)),
            ("127.0.0.1", "127.0.0.1", None),
            ("", "", None),
        ] {
            let expected = RequestHost { host: Cow::Borrowed(host), port };
            assert_eq!(RequestHost::parse(text), Ok(expected), "{text}");
        }
        for text in ["a.test:1", "127.0.0.1:80"] {
            let read = RequestHost::parse(text).unwrap();
            assert!(matches!(read.host, Cow::Borrowed(_)), "{text} is copied");
        }
    }

    #[test]
    fn hosts_with_two_readings_are_rejected() {
        for text in [
            "127.1",
            "0x7f000001",
            "2130706433",
            "127.0.0.1.",
            "a..test",
            ".a.test",
            "a b",
            "a.test\t",
            "user@a.test",
            "a.test/x",
            "a.test:80:80",
            "::1",
            "[::1",
            "[::1]80",
            "[fe80::1%25eth0]",
            "a.test:0",
            "a.test:000",
            "a.test:+80",
            "a.test:99999",
            "a.test:http",
            "b\u{fc}cher.test",
            "a%2etest",
            "a,b",
        ] {
            assert!(RequestHost::parse(text).is_err(), "{text:?}");
        }
    }
}
