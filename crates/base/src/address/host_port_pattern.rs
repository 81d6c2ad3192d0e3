//! Hosts with ports, and wildcards with ports.

use std::fmt;

use super::{AddressError, HostPort};

/// The host and the port that an edge or an endpoint is found by: `a.test:443`, `*.a.test:443` or `[::1]:22`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HostPortPattern {
    /// If true, the pattern covers all names below the host.
    pub is_wildcard: bool,
    /// The host and the port.
    pub place: HostPort,
}

impl HostPortPattern {
    /// Parses `host:port`, optionally with `*.` in front of a name.
    ///
    /// # Errors
    /// If the text is not of the form.
    pub fn parse(text: &str) -> Result<Self, AddressError> {
        let below = text.strip_prefix("*.");
        let place = HostPort::parse(below.unwrap_or(text))?;
        if below.is_some() && place.host.name().is_none() {
            return Err(AddressError::Name);
        }
        Ok(Self { is_wildcard: below.is_some(), place })
    }

    /// The host, with `*.` in front of it for a wildcard.
    pub fn host_pattern(&self) -> String {
        let star = if self.is_wildcard { "*." } else { "" };
        format!("{star}{}", self.place.host)
    }

    /// The port.
    pub fn port(&self) -> u16 {
        self.place.port
    }
}

impl fmt::Display for HostPortPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host_pattern(), self.place.port)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wildcard_has_a_name_and_a_port() {
        for (text, shown) in [
            ("*.A.test:443", "*.a.test:443"),
            ("a.test.:80", "a.test:80"),
            ("[::1]:22", "[::1]:22"),
        ] {
            let found = HostPortPattern::parse(text).map(|it| it.to_string());
            assert_eq!(found.as_deref(), Ok(shown), "{text}");
        }
        for text in ["*.a.test", "*:443", "*.:443", "*.127.0.0.1:443", "*.[::1]:443", "a.*.test:1"]
        {
            assert!(HostPortPattern::parse(text).is_err(), "{text}");
        }
    }
}
