//! Checks of values that several resources have.

use ginnel_base::address::{AddressError, HostPort};

/// What is wrong with a `host:port`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Flaw {
    /// It is not of the form, or the host is none.
    Form(AddressError),
    /// The port is missing, or no number from 1 to 65535.
    Port(AddressError),
}

/// Splits `host:port`; the host is a name, an IPv4 address, or an IPv6 address in brackets. Names are in lower case.
pub(super) fn host_port(text: &str) -> Result<(String, u16), Flaw> {
    match HostPort::parse(text) {
        Ok(place) => Ok((place.host.to_string(), place.port)),
        Err(problem @ AddressError::Port { .. }) => Err(Flaw::Port(problem)),
        Err(problem) => Err(Flaw::Form(problem)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_and_a_port() {
        assert_eq!(host_port("A.example:443"), Ok(("a.example".to_owned(), 443)));
        assert_eq!(host_port("[::1]:80"), Ok(("[::1]".to_owned(), 80)));
        for bad in ["a.example", ":80", "a..b:80", "a b:80", "::1:80", "a/b:80", "127.1:80"] {
            assert!(matches!(host_port(bad), Err(Flaw::Form(_))), "{bad}");
        }
        for bad in ["a:", "a:0", "a:65536", "a:+80", "a:http", "a:0443"] {
            assert!(matches!(host_port(bad), Err(Flaw::Port(_))), "{bad}");
        }
    }
}
