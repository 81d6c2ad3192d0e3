//! Host names, addresses, authorities, URLs and ranges of addresses.

use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use ipnet::IpNet;

use ginnel_base::address::{
    AddressProtocol, Authority, Cidr, EndpointUrl, Host, HostName, HostPattern, HostPort,
    RequestHost, UpstreamAddress, WebUrl,
};

/// What is parsed prints as text that parses to the same value. No other reader finds another host or port in it,
/// and no text that is a number for a lenient reader is a host.
pub fn target(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    assert_same(text, HostName::from_str);
    assert_same(text, HostPattern::from_str);
    assert_same(text, Host::from_str);
    assert_same(text, HostPort::from_str);
    assert_same(text, HostPort::parse_to_listen);
    assert_same(text, Authority::from_str);
    assert_same(text, EndpointUrl::from_str);
    assert_same(text, WebUrl::from_str);
    assert_same(text, WebUrl::parse_with_login);
    assert_same(text, Cidr::from_str);
    for protocol in [AddressProtocol::Http, AddressProtocol::Tcp, AddressProtocol::Tls] {
        assert_same(text, |text| UpstreamAddress::parse(text, protocol));
    }
    assert_host(text);
    assert_host_port(text);
    assert_authority(text);
    assert_host_header(text);
    assert_reference(text);
    assert_range(text);
}

fn assert_same<T, E>(text: &str, parse: impl Fn(&str) -> Result<T, E>)
where
    T: PartialEq + ToString + std::fmt::Debug,
    E: std::fmt::Debug,
{
    let Ok(first) = parse(text) else { return };
    let second = parse(&first.to_string());
    assert_eq!(second.as_ref().ok(), Some(&first), "{text:?} prints as {}", first.to_string());
}

/// An address for the standard library is the same one here; a name is one for the URL parser as well.
fn assert_host(text: &str) {
    let parsed = Host::parse(text);
    if let Ok(address) = text.parse::<IpAddr>() {
        assert_eq!(parsed.as_ref().ok().and_then(Host::ip), Some(address), "{text:?}");
    }
    let Ok(Host::Name(name)) = parsed else { return };
    assert!(name.as_str().parse::<IpAddr>().is_err());
    // The URL parser refuses `xn--` labels that are not valid.
    if let Ok(other) = url::Host::parse(name.as_str()) {
        assert_eq!(other, url::Host::Domain(name.to_string()), "{text:?}");
    }
}

fn assert_host_port(text: &str) {
    let parsed = HostPort::parse(text).ok();
    if let Ok(address) = text.parse::<SocketAddr>()
        && let Some(parsed) = &parsed
    {
        assert_eq!(parsed.socket_address(), Some(address), "{text:?}");
    }
}

fn assert_authority(text: &str) {
    let Ok((parsed, rest)) = Authority::split_url(text) else { return };
    assert!(text.ends_with(rest));
    let Ok(other) = url::Url::parse(text) else { return };
    let host = other.host_str().unwrap_or_default().trim_end_matches('.').to_ascii_lowercase();
    // Of other schemes, the URL parser keeps hosts as they are written.
    if matches!(other.scheme(), "http" | "https" | "ws" | "wss") {
        assert_eq!(url::Host::parse(&parsed.host.to_string()), url::Host::parse(&host), "{text:?}");
    }
    assert_eq!(other.port_or_known_default().unwrap_or(parsed.port), parsed.port, "{text:?}");
}

/// The host of a request is the same in every place where a request has it.
fn assert_host_header(text: &str) {
    let Ok(parsed) = RequestHost::parse(text) else { return };
    let again =
        format!("{}{}", parsed.host, parsed.port.map(|it| format!(":{it}")).unwrap_or_default());
    assert_eq!(RequestHost::parse(&again), Ok(parsed.clone()), "{text:?}");
    if parsed.host.is_empty() {
        return;
    }
    let url = WebUrl::parse(&format!("http://{text}/"));
    // The URL parser refuses `xn--` labels that are not valid.
    if let Ok(url) = url {
        assert_eq!(url.host().to_string(), parsed.host, "{text:?}");
        assert_eq!(url.port(), parsed.port.unwrap_or(80), "{text:?}");
    }
}

/// A reference leads to a URL with one reading, and a path never to another host.
fn assert_reference(text: &str) {
    let base = WebUrl::parse("https://a.test/one/two").unwrap();
    let Ok(joined) = base.join(text) else { return };
    assert_eq!(WebUrl::parse_with_login(joined.as_str()), Ok(joined.clone()), "{text:?}");
    if text.starts_with('/') && !text.starts_with("//") {
        assert_eq!(joined.authority(), base.authority(), "{text:?}");
    }
}

/// `ipnet` reads the same network, if it reads one. It accepts leading zeros in addresses.
fn assert_range(text: &str) {
    let Ok(parsed) = Cidr::from_str(text) else { return };
    let Ok(other) = IpNet::from_str(text) else { return };
    let first = parsed.network().to_string();
    let mapped = matches!(other, IpNet::V6(it) if it.addr().to_ipv4_mapped().is_some());
    assert!(mapped || first == other.trunc().to_string(), "{text:?}: {first} and {other}");
    assert!(parsed.contains(other.addr()), "{text:?}");
}
