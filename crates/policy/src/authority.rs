//! The host of a request with its port, as a URL or `Host` says it (RFC 3986, section 3.2).

use std::borrow::Cow;

/// Whether a host with or without a port is in the form that rules see.
pub fn is_canonical_authority(authority: &str, scheme: &str) -> bool {
    matches!(canonicalize_authority(authority, scheme), Cow::Borrowed(_))
}

/// A host in lower case, without a dot at its end and without the usual port (RFC 9110, section 4.2.3).
pub(super) fn canonicalize_authority<'a>(authority: &'a str, scheme: &str) -> Cow<'a, str> {
    let (host, port) = split_authority(authority);
    let name = host.strip_suffix('.').unwrap_or(host);
    let port = port.filter(|port| port.parse() != Ok(usual_port(scheme)) && !port.is_empty());
    if name.len() + port.map_or(0, |port| port.len() + 1) == authority.len()
        && !name.bytes().any(|byte| byte.is_ascii_uppercase())
    {
        return Cow::Borrowed(authority);
    }
    let name = name.to_ascii_lowercase();
    Cow::Owned(port.map_or(name.clone(), |port| format!("{name}:{port}")))
}

/// The host and the port of an authority; without a port, the usual one.
pub(super) fn host_and_port<'a>(authority: &'a str, scheme: &str) -> (&'a str, u16) {
    let (host, port) = split_authority(authority);
    (host, port.and_then(|port| port.parse().ok()).unwrap_or(usual_port(scheme)))
}

/// The host and the port, as they are written.
pub(super) fn split_authority(authority: &str) -> (&str, Option<&str>) {
    match authority.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, Some(port)),
        _ => (authority, None),
    }
}

fn usual_port(scheme: &str) -> u16 {
    if scheme == "https" { 443 } else { 80 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_has_one_form() {
        for (sent, scheme, form) in [
            ("a.test", "http", "a.test"),
            ("A.Test", "http", "a.test"),
            ("a.test.", "https", "a.test"),
            ("a.test:", "http", "a.test"),
            ("a.test:80", "http", "a.test"),
            ("a.test:080", "http", "a.test"),
            ("a.test.:443", "https", "a.test"),
            ("a.test:443", "http", "a.test:443"),
            ("A.test:8080", "http", "a.test:8080"),
            ("[2001:DB8::1]", "http", "[2001:db8::1]"),
            ("[::1]:80", "http", "[::1]"),
        ] {
            assert_eq!(canonicalize_authority(sent, scheme), form, "{sent}");
            assert_eq!(is_canonical_authority(sent, scheme), sent == form, "{sent}");
        }
    }
}
