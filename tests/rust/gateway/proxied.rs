//! Visitors who come through a proxy that speaks the PROXY protocol.

use ginnel_gateway::{Gateway, GatewaySettings, TrustedProxies};

use super::support::{Direct, Peer, bound, edges_with, header, mirror, soon};

/// A header of version 2 for a visitor at 192.0.2.1.
const HEADER: &[u8] =
    b"\r\n\r\n\0\r\nQUIT\n\x21\x11\x00\x0c\xc0\x00\x02\x01\xc6\x33\x64\x02\x0f\xa0\x00\x50";
/// The same in version 1.
const TEXT_HEADER: &[u8] = b"PROXY TCP4 192.0.2.1 198.51.100.2 4000 80\r\n";
/// What a health check sends.
const LOCAL: &[u8] = b"\r\n\r\n\0\r\nQUIT\n\x20\x00\x00\x00";

async fn behind(trusted: &str) -> Gateway {
    let trusted_proxies = TrustedProxies::parse([trusted]).unwrap();
    let settings = GatewaySettings { trusted_proxies, proxy_protocol: true, ..Default::default() };
    edges_with(settings).await
}

#[tokio::test]
async fn a_visitor_is_whom_the_header_names() {
    let edges = behind("127.0.0.0/8").await;
    let endpoint = bound(&edges, Direct::to(mirror().await)).await;
    for proxy_header in [HEADER, TEXT_HEADER] {
        let mut visitor = Peer::to(&endpoint).await;

        visitor.say_bytes(&[proxy_header, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"].concat()).await;
        let (_, first) = visitor.answer().await;
        visitor.say("GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 203.0.113.9\r\n\r\n").await;
        let (_, second) = visitor.answer().await;

        for seen in [first, second] {
            assert_eq!(header(&seen, "x-forwarded-for"), Some("192.0.2.1"), "{seen}");
        }
    }
}

#[tokio::test]
async fn a_malformed_header_of_version_1_is_refused() {
    let edges = behind("127.0.0.0/8").await;
    let endpoint = bound(&edges, Direct::to(mirror().await)).await;
    let mut visitor = Peer::to(&endpoint).await;

    visitor
        .say("PROXY TCP4 192.0.2.1 198.51.100.2 04000 80\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n")
        .await;

    assert_eq!(soon(visitor.rest()).await, "");
}

#[tokio::test]
async fn a_health_check_comes_from_the_proxy_itself() {
    let edges = behind("127.0.0.0/8").await;
    let endpoint = bound(&edges, Direct::to(mirror().await)).await;
    for proxy_header in [LOCAL, b"PROXY UNKNOWN\r\n"] {
        let mut visitor = Peer::to(&endpoint).await;

        visitor.say_bytes(&[proxy_header, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"].concat()).await;

        let (_, seen) = visitor.answer().await;
        assert_eq!(header(&seen, "x-forwarded-for"), Some("127.0.0.1"), "{seen}");
    }
}

#[tokio::test]
async fn who_is_no_trusted_proxy_cannot_name_another() {
    let edges = behind("192.0.2.0/24").await;
    let endpoint = bound(&edges, Direct::to(mirror().await)).await;
    let mut visitor = Peer::to(&endpoint).await;
    visitor.say("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    let (_, seen) = visitor.answer().await;
    assert_eq!(header(&seen, "x-forwarded-for"), Some("127.0.0.1"));

    let mut liar = Peer::to(&endpoint).await;
    liar.say_bytes(&[HEADER, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"].concat()).await;
    let (head, _) = soon(liar.answer()).await;
    assert!(head.starts_with("HTTP/1.1 400"), "{head}");
}

#[tokio::test]
async fn a_proxy_that_says_nothing_of_a_visitor_is_not_served() {
    let edges = behind("127.0.0.0/8").await;
    let endpoint = bound(&edges, Direct::to(mirror().await)).await;
    let mut visitor = Peer::to(&endpoint).await;

    visitor.say("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;

    assert_eq!(soon(visitor.rest()).await, "");
}
