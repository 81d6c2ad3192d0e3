//! What proxies say about whom they come for: `X-Forwarded-For` and its like.
//!
//! Visitors can write such headers as well, so they count only where they come from a proxy that is
//! trusted; everybody else's are removed before anything looks at the request.

use std::net::{IpAddr, SocketAddr};

use http::{HeaderMap, HeaderName};

use crate::gateway::listener::trusted_proxies::TrustedProxies;
use crate::http1::{FORWARDED_FOR, is_forwarded};

/// Removes what a visitor has no business to say; of what a trusted proxy says, only the spellings that
/// no proxy writes: an upstream may take them for more of the header, and nothing here has read them.
pub(crate) fn remove(headers: &mut HeaderMap, is_proxy: bool) {
    let is_removed = |name: &&HeaderName| {
        let name = name.as_str().as_bytes();
        (!is_proxy || name.contains(&b'_')) && is_forwarded(name)
    };
    let names: Vec<HeaderName> = headers.keys().filter(is_removed).cloned().collect();
    for name in names {
        headers.remove(name);
    }
}

/// For whom a request has come from `peer`: the last one named in `X-Forwarded-For` who is no
/// trusted proxy.
///
/// What stands before a word that is no address is not believed.
pub(crate) fn client(
    headers: &HeaderMap,
    peer: SocketAddr,
    trusted: &TrustedProxies,
) -> SocketAddr {
    let mut client = peer;
    let lines = headers.get_all(FORWARDED_FOR).iter().rev();
    for entry in lines.flat_map(|line| line.as_bytes().rsplit(|byte| *byte == b',')) {
        if !trusted.contains(client.ip()) {
            break;
        }
        match str::from_utf8(entry).ok().and_then(|entry| address(entry.trim())) {
            Some(address) => client = address,
            None => break,
        }
    }
    client
}

/// An address as proxies write it, with a port or, as usual, without.
fn address(text: &str) -> Option<SocketAddr> {
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    let address = bare.parse::<IpAddr>().map(|address| SocketAddr::new(address, 0));
    address.or_else(|_| text.parse()).ok()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn all_that_visitors_say_for_proxies_is_removed() {
        let mut headers = HeaderMap::new();
        for name in ["x-forwarded-for", "x_forwarded_for", "forwarded", "x-mine", "x-forwarded-for"]
        {
            headers.append(name, HeaderValue::from_static("1"));
        }

        let mut of_proxy = headers.clone();
        remove(&mut headers, false);
        remove(&mut of_proxy, true);

        assert_eq!(headers.keys().collect::<Vec<_>>(), ["x-mine"]);
        let mut kept: Vec<_> = of_proxy.keys().map(HeaderName::as_str).collect();
        kept.sort_unstable();
        assert_eq!(kept, ["forwarded", "x-forwarded-for", "x-mine"]);
    }

    /// The client behind a peer, among `10.0.0.0/8` as trusted proxies.
    fn client_of(peer: &str, lines: &[&str]) -> String {
        let trusted = TrustedProxies::parse(["10.0.0.0/8", "2001:db8::/32"]).unwrap();
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(FORWARDED_FOR, HeaderValue::try_from(*line).unwrap());
        }
        client(&headers, peer.parse().unwrap(), &trusted).to_string()
    }

    #[test]
    fn the_client_is_the_last_who_is_no_trusted_proxy() {
        let proxy = "10.0.0.1:5000";
        assert_eq!(client_of(proxy, &["192.0.2.1"]), "192.0.2.1:0");
        assert_eq!(client_of(proxy, &["203.0.113.9, 192.0.2.1,10.9.9.9"]), "192.0.2.1:0");
        assert_eq!(client_of(proxy, &["203.0.113.9", "192.0.2.1 , 10.9.9.9"]), "192.0.2.1:0");
        assert_eq!(client_of(proxy, &["192.0.2.1:4000"]), "192.0.2.1:4000");
        assert_eq!(client_of(proxy, &["[2001:db9::1]:80"]), "[2001:db9::1]:80");
        assert_eq!(client_of(proxy, &["[2001:db9::1]"]), "[2001:db9::1]:0");
        assert_eq!(client_of(proxy, &["10.0.0.7, 2001:db8::1"]), "10.0.0.7:0");
    }

    #[test]
    fn nobody_else_is_believed() {
        assert_eq!(client_of("192.0.2.8:5", &["198.51.100.1"]), "192.0.2.8:5");
        assert_eq!(client_of("10.0.0.1:5", &[]), "10.0.0.1:5");
        assert_eq!(client_of("10.0.0.1:5", &["198.51.100.1, unknown"]), "10.0.0.1:5");
        assert_eq!(client_of("10.0.0.1:5", &["198.51.100.1, x, 10.0.0.2"]), "10.0.0.2:0");
        assert_eq!(client_of("10.0.0.1:5", &["198.51.100.1, "]), "10.0.0.1:5");
    }
}
