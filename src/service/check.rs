//! Checks of values that several resources have.

use std::net::Ipv6Addr;

/// What is wrong with a `host:port`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Flaw {
    /// It is not of the form, or the host is none.
    Form,
    /// The port is no number from 1 to 65535.
    Port,
}

/// Splits `host:port`; the host is a name, an IPv4 address, or an IPv6 address in brackets.
pub(super) fn host_port(text: &str) -> Result<(&str, u16), Flaw> {
    let (host, port) = text.rsplit_once(':').ok_or(Flaw::Form)?;
    if !is_host(host) {
        return Err(Flaw::Form);
    }
    // `0443` would be a second name for what `443` names.
    let is_number = port.bytes().all(|byte| byte.is_ascii_digit()) && !port.starts_with('0');
    if port.is_empty() || !is_number {
        return Err(Flaw::Port);
    }
    let port = port.parse().map_err(|_| Flaw::Port)?;
    if port == 0 { Err(Flaw::Port) } else { Ok((host, port)) }
}

/// Whether a text is a host name, an IPv4 address, or an IPv6 address in brackets.
pub(super) fn is_host(host: &str) -> bool {
    if let Some(inner) = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        return inner.parse::<Ipv6Addr>().is_ok();
    }
    host.len() <= 253 && host.split('.').all(is_label)
}

fn is_label(label: &str) -> bool {
    (1..=63).contains(&label.len())
        && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_and_a_port() {
        assert_eq!(host_port("a.example:443"), Ok(("a.example", 443)));
        assert_eq!(host_port("[::1]:80"), Ok(("[::1]", 80)));
        for bad in ["a.example", ":80", "a..b:80", "a b:80", "::1:80", "a/b:80", "\u{e9}:80"] {
            assert_eq!(host_port(bad), Err(Flaw::Form), "{bad}");
        }
        for bad in ["a:", "a:0", "a:65536", "a:+80", "a:http", "a:0443"] {
            assert_eq!(host_port(bad), Err(Flaw::Port), "{bad}");
        }
    }
}
