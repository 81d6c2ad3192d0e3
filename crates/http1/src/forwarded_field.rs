//! The elements of `Forwarded` (RFC 7239, section 4).
//!
//! A value may be a quoted string, which contains commas and semicolons as text. A field that does not follow the
//! grammar has no elements: another server could read others.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use http::HeaderMap;
use http::header::FORWARDED;

use super::lists::{is_token, split_outside_quotes};

/// Maximum number of elements in all `Forwarded` fields of a request: one for each proxy on the way.
const MAX_ELEMENTS: usize = 64;
/// Maximum number of parameters of an element. RFC 7239 defines four.
const MAX_PARAMETERS: usize = 16;

/// The report of one proxy.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ForwardedElement {
    /// The node that made the request.
    pub client: Option<ForwardedNode>,
    /// The interface at which the request came in to the proxy.
    pub by: Option<ForwardedNode>,
    /// The value of `Host` that the proxy received.
    pub host: Option<String>,
    /// The scheme of the request.
    pub proto: Option<String>,
}

/// A node in a chain of proxies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForwardedNode {
    /// The name of the node.
    pub name: NodeName,
    /// Its port, if the proxy reports one.
    pub port: Option<NodePort>,
}

/// The name of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NodeName {
    /// An address.
    Address(IpAddr),
    /// The proxy does not know the node.
    Unknown,
    /// A word that begins with `_` and hides the address.
    Obfuscated(String),
}

/// The port of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NodePort {
    /// A TCP port.
    Number(u16),
    /// A word that begins with `_` and hides the port.
    Obfuscated(String),
}

/// Reads all `Forwarded` fields, in their order. Returns `None` if they have no elements or more than `MAX_ELEMENTS`,
/// or if one of them is malformed.
pub fn forwarded_elements(headers: &HeaderMap) -> Option<Vec<ForwardedElement>> {
    let mut elements = Vec::new();
    for line in headers.get_all(FORWARDED) {
        for part in split_outside_quotes(line.as_bytes(), b',')? {
            if part.is_empty() {
                continue;
            }
            if elements.len() == MAX_ELEMENTS {
                return None;
            }
            elements.push(ForwardedElement::parse(part)?);
        }
    }
    Some(elements).filter(|elements| !elements.is_empty())
}

impl ForwardedElement {
    /// Parses one element. Unknown parameters are ignored. A known parameter that is given twice is an error, and so are
    /// more than `MAX_PARAMETERS`.
    pub fn parse(element: &[u8]) -> Option<Self> {
        let (mut parsed, mut seen) = (Self::default(), SeenParameters::default());
        let pairs = split_outside_quotes(element, b';')?;
        for (count, pair) in pairs.into_iter().filter(|pair| !pair.is_empty()).enumerate() {
            if count == MAX_PARAMETERS {
                return None;
            }
            let at = pair.iter().position(|byte| *byte == b'=')?;
            let (name, value) = (pair.get(..at)?, unquote_value(pair.get(at + 1..)?)?);
            let name = is_token(name).then(|| name.to_ascii_lowercase())?;
            let is_repeated = match name.as_slice() {
                b"for" => {
                    parsed.client = Some(ForwardedNode::parse(&value)?);
                    std::mem::replace(&mut seen.client, true)
                }
                b"by" => {
                    parsed.by = Some(ForwardedNode::parse(&value)?);
                    std::mem::replace(&mut seen.by, true)
                }
                b"host" => {
                    parsed.host = Some(value).filter(|host| !host.is_empty());
                    std::mem::replace(&mut seen.host, true)
                }
                b"proto" => {
                    parsed.proto = Some(value).filter(|proto| is_scheme(proto));
                    std::mem::replace(&mut seen.proto, true)
                }
                _ => false,
            };
            if is_repeated {
                return None;
            }
        }
        Some(parsed)
    }
}

/// The known parameters that an element has had so far.
#[derive(Default)]
struct SeenParameters {
    client: bool,
    by: bool,
    host: bool,
    proto: bool,
}

impl ForwardedNode {
    /// A node that is known by its address.
    pub fn from_address(address: IpAddr) -> Self {
        Self { name: NodeName::Address(address.to_canonical()), port: None }
    }

    /// Parses a node (RFC 7239, section 6). An IPv6 address must have brackets.
    pub fn parse(node: &str) -> Option<Self> {
        let (name, port) = match node.strip_prefix('[') {
            Some(rest) => {
                let (address, port) = rest.split_once(']')?;
                let address = address.parse::<Ipv6Addr>().ok()?;
                let port = if port.is_empty() { None } else { Some(port.strip_prefix(':')?) };
                (NodeName::Address(address.into()), port)
            }
            None => {
                let (name, port) =
                    node.split_once(':').map_or((node, None), |it| (it.0, Some(it.1)));
                (NodeName::parse(name)?, port)
            }
        };
        let port = match port {
            Some(port) => Some(NodePort::parse(port)?),
            None => None,
        };
        Some(Self { name, port })
    }

    /// The address of the node, if the proxy reports it.
    pub fn address(&self) -> Option<IpAddr> {
        match &self.name {
            NodeName::Address(address) => Some(*address),
            NodeName::Unknown | NodeName::Obfuscated(_) => None,
        }
    }
}

impl NodeName {
    /// Parses a name other than an IPv6 address.
    fn parse(name: &str) -> Option<Self> {
        if name.eq_ignore_ascii_case("unknown") {
            return Some(Self::Unknown);
        }
        if is_obfuscated(name) {
            return Some(Self::Obfuscated(name.to_owned()));
        }
        name.parse::<Ipv4Addr>().ok().map(|address| Self::Address(address.into()))
    }
}

impl NodePort {
    fn parse(port: &str) -> Option<Self> {
        if is_obfuscated(port) {
            return Some(Self::Obfuscated(port.to_owned()));
        }
        let is_number = port.len() <= 5 && port.bytes().all(|byte| byte.is_ascii_digit());
        port.parse().ok().filter(|_| is_number).map(Self::Number)
    }
}

impl fmt::Display for ForwardedElement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nodes = [("by", &self.by), ("for", &self.client)];
        let nodes = nodes.map(|(name, node)| (name, node.as_ref().map(ToString::to_string)));
        let texts = [("host", self.host.clone()), ("proto", self.proto.clone())];
        let mut separator = "";
        for (name, value) in nodes.into_iter().chain(texts) {
            let Some(value) = value else { continue };
            write!(f, "{separator}{name}=")?;
            match is_token(value.as_bytes()) {
                true => f.write_str(&value)?,
                false => write!(f, "\"{}\"", value.replace('\\', "\\\\").replace('"', "\\\""))?,
            }
            separator = ";";
        }
        Ok(())
    }
}

impl fmt::Display for ForwardedNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            NodeName::Address(IpAddr::V6(address)) => write!(f, "[{address}]")?,
            NodeName::Address(address) => write!(f, "{address}")?,
            NodeName::Unknown => f.write_str("unknown")?,
            NodeName::Obfuscated(name) => f.write_str(name)?,
        }
        match &self.port {
            Some(NodePort::Number(port)) => write!(f, ":{port}"),
            Some(NodePort::Obfuscated(port)) => write!(f, ":{port}"),
            None => Ok(()),
        }
    }
}

/// Returns true for `_` and at least one letter, digit, `.`, `_` or `-`.
fn is_obfuscated(text: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    text.strip_prefix('_').is_some_and(|rest| !rest.is_empty() && rest.bytes().all(is_part))
}

/// Returns true for the name of a scheme (RFC 3986, section 3.1).
fn is_scheme(text: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte);
    text.starts_with(|first: char| first.is_ascii_alphabetic()) && text.bytes().all(is_part)
}

/// Returns the text of a token or a quoted string (RFC 9110, section 5.6.4).
fn unquote_value(value: &[u8]) -> Option<String> {
    let Some(rest) = value.strip_prefix(b"\"") else {
        return is_token(value).then(|| String::from_utf8(value.to_vec()).ok())?;
    };
    let (mut text, mut bytes) = (Vec::new(), rest.iter());
    loop {
        match bytes.next()? {
            b'"' => break,
            b'\\' => text.push(*bytes.next()?),
            byte => text.push(*byte),
        }
    }
    if bytes.next().is_some() { None } else { String::from_utf8(text).ok() }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn elements(lines: &[&'static str]) -> Option<Vec<String>> {
        let lines = lines.iter().map(|line| (FORWARDED, HeaderValue::from_static(line)));
        let elements = forwarded_elements(&lines.collect())?;
        Some(elements.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn the_examples_of_the_standard_are_read() {
        for (lines, expected) in [
            (&["for=\"_gazonk\""][..], &["for=_gazonk"][..]),
            (&["For=\"[2001:db8:cafe::17]:4711\""], &["for=\"[2001:db8:cafe::17]:4711\""]),
            (
                &["for=192.0.2.60;proto=http;by=203.0.113.43"],
                &["by=203.0.113.43;for=192.0.2.60;proto=http"],
            ),
            (&["for=192.0.2.43, for=198.51.100.17"], &["for=192.0.2.43", "for=198.51.100.17"]),
            (
                &["for=_hidden, for=_SEVKISEK", "for=unknown"],
                &["for=_hidden", "for=_SEVKISEK", "for=unknown"],
            ),
            (&["for=\"192.0.2.43:47011\""], &["for=\"192.0.2.43:47011\""]),
            (&["for=\"192.0.2.43:_port\""], &["for=\"192.0.2.43:_port\""]),
        ] {
            let expected: Vec<_> = expected.iter().map(|it| (*it).to_owned()).collect();
            assert_eq!(elements(lines), Some(expected), "{lines:?}");
        }
    }

    #[test]
    fn quoted_separators_are_text() {
        let lines = ["host=\"a,b;for=9.9.9.9\" ; for=\"\\1.2.3.4\", ,proto=https;x=\"\\\"\""];

        let expected = ["for=1.2.3.4;host=\"a,b;for=9.9.9.9\"", "proto=https"];
        assert_eq!(elements(&lines).unwrap(), expected);
    }

    #[test]
    fn a_malformed_field_has_no_elements() {
        for line in [
            "",
            "192.0.2.1",
            "for=",
            "for = 192.0.2.1",
            "for=192.0.2.1:80",
            "for=2001:db8::1",
            "for=\"2001:db8::1\"",
            "for=[2001:db8::1]",
            "for=\"[192.0.2.1]\"",
            "for=\"[::1]80\"",
            "for=\"192.0.2.1:99999\"",
            "for=\"192.0.2.1:+1\"",
            "for=0x7f.1",
            "for=_",
            "for=\"_a b\"",
            "for=192.0.2.1;for=192.0.2.2",
            "for=192.0.2.1;FOR=192.0.2.1",
            "for=\"192.0.2.1",
            "for=\"192.0.2.1\"x",
            "for=192.0.2.1, \"",
        ] {
            assert_eq!(elements(&[line]), None, "{line}");
            assert_eq!(elements(&["for=192.0.2.7", line]).is_some(), line.is_empty(), "{line}");
        }
    }

    #[test]
    fn a_repeated_known_parameter_is_malformed() {
        for pair in ["for=192.0.2.1", "by=192.0.2.1", "host=a.test", "proto=http", "host=\"\""] {
            let element = format!("{pair};x=1;{}", pair.to_ascii_uppercase());

            assert!(ForwardedElement::parse(pair.as_bytes()).is_some(), "{pair}");
            assert_eq!(ForwardedElement::parse(element.as_bytes()), None, "{element}");
        }
    }

    #[test]
    fn a_field_beyond_the_limits_is_malformed() {
        let count_of = |list: String| {
            let line = (FORWARDED, HeaderValue::try_from(list).unwrap());
            forwarded_elements(&[line].into_iter().collect()).map(|elements| elements.len())
        };
        let elements = |count: usize| vec!["for=192.0.2.1"; count].join(",");
        let parameters = |count: usize| {
            let names: Vec<_> = (0..count).map(|at| format!("x{at}=1")).collect();
            names.join(";")
        };

        assert_eq!(count_of(elements(MAX_ELEMENTS)), Some(MAX_ELEMENTS));
        assert_eq!(count_of(elements(MAX_ELEMENTS + 1)), None);
        assert_eq!(count_of(parameters(MAX_PARAMETERS)), Some(1));
        assert_eq!(count_of(parameters(MAX_PARAMETERS + 1)), None);
    }

    #[test]
    fn what_is_written_is_read_again() {
        let element = ForwardedElement {
            client: ForwardedNode::parse("[2001:db8::1]:80"),
            by: ForwardedNode::parse("_a.b:_c"),
            host: Some("a\"b\\,;".to_owned()),
            proto: Some("https".to_owned()),
        };

        assert_eq!(ForwardedElement::parse(element.to_string().as_bytes()), Some(element));
    }
}
