//! Modules of routes and options of endpoints.

use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ginnel_gateway::{EndpointSpec, Proto};

use base64::Engine;
use serde_json::json;
use tokio::io::AsyncReadExt;

use super::configured::{EdgeFixture, code, status};
use super::support::{Direct, Peer, edges, header, mirror, options_of, upstream};
use crate::service::support::free_address;

#[tokio::test]
async fn ip_policies_decide_who_may_come() {
    let site = EdgeFixture::start().await;
    let service = &site.service;
    let edge = site.edge("a.test").await;
    let policy = service.create("/ip_policies", json!({})).await;
    let restriction = json!({"ip_policy_ids": [policy]});
    let backend = site.fixed("in").await;
    site.route(&edge, "/", json!({"backend": backend, "ip_restriction": restriction})).await;
    let get = async || {
        let answer = site.get("a.test", "/").await;
        format!("{} {}", status(&answer), code(&answer))
    };
    let rule = async |cidr: &str, action: &str| {
        let rule = json!({"cidr": cidr, "action": action, "ip_policy_id": policy});
        service.create("/ip_policy_rules", rule).await
    };

    assert_eq!(get().await, "403 3205", "no rules, nobody");
    rule("127.0.0.0/8", "allow").await;
    assert_eq!(get().await, "202 ");
    let deny = rule("127.0.0.1/32", "deny").await;
    assert_eq!(get().await, "403 3205");
    service.delete(&format!("/ip_policy_rules/{deny}")).await;
    assert_eq!(get().await, "202 ");
    let forwarded = "GET / HTTP/1.1\r\nHost: a.test\r\nX-Forwarded-For: 192.0.2.1\r\n\r\n";
    assert_eq!(status(&site.say(forwarded).await), "202", "what a request says does not count");
    service.delete(&format!("/ip_policies/{policy}")).await;
    assert_eq!(get().await, "403 3205", "a deleted policy has no rules");
}

#[tokio::test]
async fn an_ip_restriction_of_a_tcp_edge_closes_the_door() {
    let site = EdgeFixture::start().await;
    let address = upstream(|mut peer| async move { peer.say("hello").await }).await;
    let policy = site.service.create("/ip_policies", json!({})).await;
    let port = free_address().port();
    let edge = json!({
        "hostports": [format!("a.test:{port}")],
        "backend": site.at(address).await,
        "ip_restriction": {"ip_policy_ids": [policy]},
    });
    site.service.create("/edges/tcp", edge).await;
    let talk = async || Peer::at(&format!("127.0.0.1:{port}")).await.rest().await;

    assert_eq!(talk().await, "");
    let rule = json!({"cidr": "127.0.0.1/32", "action": "allow", "ip_policy_id": policy});
    site.service.create("/ip_policy_rules", rule).await;
    assert_eq!(talk().await, "hello");
}

#[tokio::test]
async fn user_agents_are_filtered() {
    let site = EdgeFixture::start().await;
    let edge = site.edge("a.test").await;
    let filter = json!({"allow": ["(?i)goodbot"], "deny": ["(?i)bot"]});
    let backend = site.fixed("in").await;
    site.route(&edge, "/", json!({"backend": backend, "user_agent_filter": filter})).await;

    for (agent, expected) in [
        ("User-Agent: GoodBot\r\n", "202 "),
        ("User-Agent: badbot\r\n", "403 3211"),
        ("User-Agent: curl\r\n", "202 "),
        ("User-Agent: curl\r\nUser-Agent: badbot\r\n", "403 3211"),
        ("User-Agent: badbot\r\nuser-agent: curl\r\n", "403 3211"),
        ("User-Agent: goodbot\r\nUser-Agent: badbot\r\n", "403 3211"),
        ("User-Agent: goodbot\r\nUser-Agent: curl\r\n", "202 "),
        ("", "403 3211"),
    ] {
        let answer = site.say(&format!("GET / HTTP/1.1\r\nHost: a.test\r\n{agent}\r\n")).await;
        assert_eq!(format!("{} {}", status(&answer), code(&answer)), expected, "{agent}");
    }
}

#[tokio::test]
async fn headers_are_removed_and_added() {
    let site = EdgeFixture::start().await;
    let edge = site.edge("a.test").await;
    let modules = json!({
        "backend": site.at(mirror().await).await,
        "request_headers": {"remove": ["x-old", "host"], "add": {"x-new": "1", "content-length": "9"}},
        "response_headers": {"remove": ["content-length"], "add": {"x-answer": "2"}},
    });
    site.route(&edge, "/", modules).await;

    let answer = site.say("GET / HTTP/1.1\r\nHost: a.test\r\nX-Old: 0\r\n\r\n").await;

    let (head, seen) = (answer.0, answer.1);
    assert_eq!(header(&head, "x-answer"), Some("2"));
    assert_eq!((header(&seen, "x-new"), header(&seen, "x-old")), (Some("1"), None));
    assert_eq!((header(&seen, "host"), header(&seen, "content-length")), (Some("a.test"), None));
}

#[tokio::test]
async fn a_failing_backend_is_spared() {
    let site = EdgeFixture::start().await;
    let edge = site.edge("a.test").await;
    let fails = Arc::new(AtomicBool::new(true));
    let failing = fails.clone();
    let address = upstream(move |mut peer| {
        let failing = failing.clone();
        async move {
            while peer.request().await.is_some() {
                let status = if failing.load(Ordering::Relaxed) { 500 } else { 200 };
                peer.say(&format!("HTTP/1.1 {status} X\r\nContent-Length: 0\r\n\r\n")).await;
            }
        }
    })
    .await;
    let breaker =
        json!({"volume_threshold": 4, "tripped_duration": 5, "error_threshold_percentage": 0.5});
    let modules = json!({"backend": site.at(address).await, "circuit_breaker": breaker});
    let route = site.route(&edge, "/", modules).await;
    let get = async || {
        let answer = site.get("a.test", "/").await;
        format!("{} {}", status(&answer), code(&answer))
    };

    for _ in 0..4 {
        assert_eq!(get().await, "500 ");
    }
    assert_eq!(get().await, "503 3202");
    fails.store(false, Ordering::Relaxed);
    let path = format!("/edges/https/{edge}/routes/{route}");
    site.service.patch(&path, json!({"description": "changed"})).await;
    assert_eq!(get().await, "503 3202", "a change of something else does not heal it");
    tokio::time::sleep(std::time::Duration::from_millis(5100)).await;

    assert_eq!(get().await, "200 ");
    assert_eq!(get().await, "200 ");
}

/// An upstream whose answers can be told by their path.
async fn texts() -> std::net::SocketAddr {
    upstream(|mut peer| async move {
        while let Some((head, _)) = peer.request().await {
            let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
            let extra = match path.as_str() {
                "/done" => "Content-Encoding: gzip\r\n",
                "/part" => "Content-Range: bytes 0-1/2\r\n",
                "/as-is" => "Cache-Control: public, no-transform\r\n",
                "/tagged" => "ETag: \"x\"\r\n",
                _ => "",
            };
            let text = "so it goes, ".repeat(500);
            let length = text.len();
            let head = format!("HTTP/1.1 200 OK\r\n{extra}Content-Length: {length}\r\n\r\n");
            peer.say(&(head + &text)).await;
        }
    })
    .await
}

#[tokio::test]
async fn answers_are_compressed_for_those_who_can_read_them() {
    let edges = edges().await;
    let options = options_of(json!({"Compression": {}}));
    let wanted = EndpointSpec { options, ..EndpointSpec::any(Proto::Http) };
    let endpoint = edges.bind_endpoint(wanted, Direct::to(texts().await)).await.unwrap();
    let get = async |path: &str, accepted: &str| {
        let mut visitor = Peer::to(&endpoint).await;
        let head = format!("GET {path} HTTP/1.0\r\nHost: a\r\nAccept-Encoding: {accepted}\r\n\r\n");
        visitor.say(&head).await;
        let head = visitor.head().await;
        let mut body = Vec::new();
        visitor.0.read_to_end(&mut body).await.unwrap();
        (head, body)
    };
    let text = "so it goes, ".repeat(500).into_bytes();

    for (accepted, coding) in
        [("gzip", "gzip"), ("deflate", "deflate"), ("br;q=1, gzip;q=0.1", "br")]
    {
        let (head, body) = get("/", accepted).await;
        let mut read = Vec::new();
        match coding {
            "gzip" => flate2::read::GzDecoder::new(&body[..]).read_to_end(&mut read).unwrap(),
            "deflate" => flate2::read::ZlibDecoder::new(&body[..]).read_to_end(&mut read).unwrap(),
            _ => brotli::Decompressor::new(&body[..], 4096).read_to_end(&mut read).unwrap(),
        };
        assert_eq!(header(&head, "content-encoding"), Some(coding), "{head}");
        assert_eq!(header(&head, "content-length"), None);
        assert_eq!(header(&head, "vary"), Some("Accept-Encoding"));
        assert!(read == text && body.len() < text.len() / 10, "{coding}");
    }
    // A cache that has the plain response must not give it to all visitors (RFC 9110, section 12.5.5).
    let varying = Some("Accept-Encoding");
    for (path, accepted, vary) in [
        ("/", "identity", varying),
        ("/", "", varying),
        ("/done", "gzip", None),
        ("/part", "gzip", None),
        ("/as-is", "gzip", None),
    ] {
        let (head, body) = get(path, accepted).await;
        assert_eq!(header(&head, "vary"), vary, "{path}");
        assert!(body == text, "{path}");
    }
    assert_eq!(header(&get("/tagged", "br").await.0, "etag"), Some("W/\"x\""));
}

/// An upstream that responds to each path with a head and the bytes behind it.
async fn recorded(responses: &'static [(&'static str, &'static str)]) -> std::net::SocketAddr {
    upstream(move |mut peer| async move {
        while let Some((head, _)) = peer.request().await {
            let path = head.split(' ').nth(1).unwrap_or_default();
            let (_, response) = responses.iter().find(|(known, _)| *known == path).unwrap();
            let tag = head.lines().find(|line| line.to_lowercase().starts_with("if-match"));
            let tag = tag.map(|line| format!("\r\nX-{line}")).unwrap_or_default();
            peer.say(&response.replacen("\r\nServer: x", &tag, 1)).await;
        }
    })
    .await
}

#[tokio::test]
async fn tiny_bodies_of_unknown_length_and_endless_ones_are_sent_as_they_are() {
    let edges = edges().await;
    let address = recorded(&[
        ("/tiny", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\ntiny\r\n0\r\n\r\n"),
        (
            "/events",
            "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n\
             9\r\ndata: a\n\n\r\n",
        ),
        (
            "/lines",
            "HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson\r\nTransfer-Encoding: chunked\r\n\r\n\
             3\r\n{}\n\r\n",
        ),
    ])
    .await;
    let options = options_of(json!({"Compression": {}}));
    let wanted = EndpointSpec { options, ..EndpointSpec::any(Proto::Http) };
    let endpoint = edges.bind_endpoint(wanted, Direct::to(address)).await.unwrap();

    for (path, vary, first) in [
        ("/tiny", Some("Accept-Encoding"), "4\r\ntiny"),
        ("/events", None, "9\r\ndata: a\n\n"),
        ("/lines", None, "3\r\n{}\n"),
    ] {
        let mut visitor = Peer::to(&endpoint).await;
        let head = format!("GET {path} HTTP/1.1\r\nHost: a\r\nAccept-Encoding: gzip\r\n\r\n");
        visitor.say(&head).await;
        let head = visitor.head().await;
        assert_eq!(header(&head, "content-encoding"), None, "{path}: {head}");
        if path == "/tiny" {
            assert_eq!(header(&head, "content-length"), Some("4"), "{head}");
            assert_eq!(visitor.exactly(4).await, "tiny");
        } else {
            assert_eq!(visitor.exactly(first.len()).await, first, "{path}");
        }
        assert_eq!(header(&head, "vary"), vary, "{path}: {head}");
    }
}

#[tokio::test]
async fn head_and_conditions_agree_with_compressed_responses() {
    let edges = edges().await;
    let address = recorded(&[
        (
            "/page",
            "HTTP/1.1 200 OK\r\nETag: \"a\"\r\nAccept-Ranges: bytes\r\nContent-Length: 2000\r\n\r\n",
        ),
        ("/known", "HTTP/1.1 304 Not Modified\r\nETag: \"a\"\r\n\r\n"),
        ("/saved", "HTTP/1.1 204 No Content\r\nServer: x\r\n\r\n"),
    ])
    .await;
    let options = options_of(json!({"Compression": {}}));
    let wanted = EndpointSpec { options, ..EndpointSpec::any(Proto::Http) };
    let endpoint = edges.bind_endpoint(wanted, Direct::to(address)).await.unwrap();
    let ask = async |line: &str, fields: &str| {
        let mut visitor = Peer::to(&endpoint).await;
        visitor
            .say(&format!("{line} HTTP/1.1\r\nHost: a\r\nAccept-Encoding: gzip\r\n{fields}\r\n"))
            .await;
        visitor.head().await
    };

    let head = ask("HEAD /page", "").await;
    let fields = ["content-encoding", "etag", "vary", "content-length", "accept-ranges"];
    let expected = [Some("gzip"), Some("W/\"a\""), Some("Accept-Encoding"), None, None];
    assert_eq!(fields.map(|name| header(&head, name)), expected, "{head}");
    let known = ask("GET /known", "If-None-Match: W/\"a\"\r\n").await;
    assert_eq!(header(&known, "etag"), Some("W/\"a\""), "{known}");
    assert_eq!(header(&known, "vary"), Some("Accept-Encoding"), "{known}");
    let saved = ask("PUT /saved", "If-Match: W/\"a\"\r\nContent-Length: 0\r\n").await;
    assert_eq!(
        header(&saved, "x-if-match"),
        Some("W/\"a\", \"a\""),
        "the origin's own tag: {saved}"
    );
}

#[tokio::test]
async fn what_is_compressed_is_not_held_back() {
    let edges = edges().await;
    let address = upstream(|mut peer| async move {
        peer.head().await;
        peer.say("HTTP/1.1 200 OK\r\n\r\nfirst").await;
        std::future::pending().await
    })
    .await;
    let options = options_of(json!({"Compression": {}}));
    let wanted = EndpointSpec { options, ..EndpointSpec::any(Proto::Http) };
    let endpoint = edges.bind_endpoint(wanted, Direct::to(address)).await.unwrap();
    let mut visitor = Peer::to(&endpoint).await;

    visitor.say("GET / HTTP/1.0\r\nHost: a\r\nAccept-Encoding: gzip\r\n\r\n").await;
    visitor.head().await;
    let mut seen = Vec::new();
    let mut text = String::new();
    while text != "first" {
        let mut buffer = [0; 256];
        let length = super::support::soon(visitor.0.read(&mut buffer)).await.unwrap();
        seen.extend_from_slice(&buffer[..length]);
        let mut decoder = flate2::write::GzDecoder::new(Vec::new());
        std::io::Write::write_all(&mut decoder, &seen).unwrap();
        std::io::Write::flush(&mut decoder).unwrap();
        text = String::from_utf8(decoder.get_ref().clone()).unwrap();
    }
}

#[tokio::test]
async fn an_endpoint_has_the_same_modules() {
    let edges = edges().await;
    let options = options_of(json!({
        "BasicAuth": {"credentials": [{"username": "ada", "cleartext_password": "lovelace"}]},
        "IPRestriction": {"allow_cidrs": ["127.0.0.0/8"], "deny_cidrs": ["10.0.0.0/8"]},
        "UserAgentFilter": {"allow": ["test"], "deny": [".*"]},
        "RequestHeaders": {"add": ["x-in: 1"], "remove": ["authorization"]},
        "ResponseHeaders": {"add": ["x-out: 2"]},
        "CircuitBreaker": {"error_threshold": 0.5},
    }));
    let wanted = EndpointSpec { options, ..EndpointSpec::any(Proto::Http) };
    let endpoint = edges.bind_endpoint(wanted, Direct::to(mirror().await)).await.unwrap();
    let say = async |headers: String| {
        let mut visitor = Peer::to(&endpoint).await;
        visitor.say(&format!("GET / HTTP/1.1\r\nHost: a\r\n{headers}\r\n")).await;
        visitor.answer().await
    };
    let token = base64::engine::general_purpose::STANDARD.encode("ada:lovelace");

    let stranger = say("User-Agent: test\r\n".into()).await;
    assert_eq!((status(&stranger), code(&stranger)), ("401", ""));
    assert_eq!(header(&stranger.0, "www-authenticate"), Some("Basic realm=\"ginnel\""));
    assert_eq!(code(&say(format!("Authorization: Basic {token}\r\n")).await), "3211");
    let let_in = say(format!("User-Agent: test\r\nAuthorization: Basic {token}\r\n")).await;
    assert_eq!(status(&let_in), "200");
    assert_eq!(header(&let_in.0, "x-out"), Some("2"));
    let seen = &let_in.1;
    assert_eq!((header(seen, "x-in"), header(seen, "authorization")), (Some("1"), None), "{seen}");
    let refused = options_of(json!({"IPRestriction": {"allow_cidrs": ["x"]}}));
    let refused = EndpointSpec { options: refused, ..EndpointSpec::any(Proto::Http) };
    assert!(edges.bind_endpoint(refused, Direct::to(mirror().await)).await.is_err());
}

#[tokio::test]
async fn a_websocket_becomes_a_connection_of_bytes() {
    let edges = edges().await;
    let address = upstream(|mut peer| async move {
        let heard = peer.exactly(5).await;
        peer.say(&heard.to_uppercase()).await;
        peer.rest().await;
    })
    .await;
    let options = options_of(json!({"WebsocketTCPConverter": {}}));
    let wanted = EndpointSpec { options, ..EndpointSpec::any(Proto::Http) };
    let endpoint = edges.bind_endpoint(wanted, Direct::to(address)).await.unwrap();
    let mut visitor = Peer::to(&endpoint).await;
    visitor.say("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    let refused = visitor.answer().await;
    assert_eq!((status(&refused), code(&refused)), ("400", "3206"));

    visitor
        .say(
            "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
        )
        .await;
    let head = visitor.head().await;
    assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
    assert_eq!(header(&head, "sec-websocket-accept"), Some("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="));
    // With a mask of zeros the bytes are what they are: a text in two parts.
    visitor.say_bytes(b"\x01\x83\0\0\0\0hel\x80\x82\0\0\0\0lo").await;
    assert_eq!(visitor.exactly(7).await, "\u{fffd}\u{5}HELLO");
    visitor.say_bytes(b"\x89\x81\0\0\0\0?").await;
    assert_eq!(visitor.exactly(3).await, "\u{fffd}\u{1}?");
    visitor.say_bytes(b"\x88\x82\0\0\0\0\x03\xe8").await;
    assert_eq!(visitor.rest().await, "\u{fffd}\u{2}\u{3}\u{fffd}");
}

#[tokio::test]
async fn a_websocket_that_became_bytes_is_told_that_the_service_goes_away() {
    let edges = edges().await;
    let address = upstream(|mut peer| async move {
        peer.say("hello").await;
        peer.rest().await;
    })
    .await;
    let options = options_of(json!({"WebsocketTCPConverter": {}}));
    let wanted = EndpointSpec { options, ..EndpointSpec::any(Proto::Http) };
    let endpoint = edges.bind_endpoint(wanted, Direct::to(address)).await.unwrap();
    let mut visitor = Peer::to(&endpoint).await;
    visitor
        .say(
            "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
        )
        .await;
    visitor.head().await;
    assert_eq!(visitor.exactly(7).await, "\u{fffd}\u{5}hello");

    let stopping = tokio::spawn(async move { edges.stop(Duration::from_secs(60)).await });

    assert_eq!(visitor.exactly(4).await, "\u{fffd}\u{2}\u{3}\u{fffd}");
    visitor.say_bytes(b"\x88\x82\0\0\0\0\x03\xe9").await;
    assert_eq!(visitor.rest().await, "", "nothing follows a close");
    stopping.await.unwrap();
}
