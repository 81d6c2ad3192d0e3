//! Requests that are only carried take a shorter way, which nobody can tell from the long one.

use std::sync::Arc;
use std::time::Duration;

use ginnel_gateway::{EventDelivery, PublicEndpoint};

use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::sync::mpsc;

use super::configured::{EdgeFixture, status};
use super::support::{Direct, Peer, bound, edges, header, mirror, soon, upstream};

/// A header that makes a request go the full path.
const LONG: &str = "CDN-Loop: other.test\r\n";

/// An endpoint whose upstream says the same to each request, and closes if `closes`.
async fn saying(said: &'static str, closes: bool) -> (ginnel_gateway::Gateway, PublicEndpoint) {
    let edges = edges().await;
    let address = upstream(move |mut peer| async move {
        while !peer.head().await.is_empty() {
            peer.say(said).await;
            if closes {
                let _ = peer.0.get_mut().shutdown().await;
                return;
            }
        }
    });
    let endpoint = bound(&edges, Direct::to(address.await)).await;
    (edges, endpoint)
}

/// What a visitor gets: the first line, the headers in order, the body without its framing, and
/// whether the body ended well.
async fn seen(
    endpoint: &PublicEndpoint,
    method: &str,
    more: &str,
) -> (String, Vec<String>, String, bool) {
    let mut visitor = Peer::to(endpoint).await;
    visitor.say(&format!("{method} / HTTP/1.1\r\nHost: a\r\n{more}\r\n")).await;
    let head = visitor.head().await;
    let bodiless = method == "HEAD" || head.contains(" 204 ") || head.contains(" 304 ");
    visitor.say("GET /after HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").await;
    let (body, whole) = if bodiless {
        (String::new(), visitor.head().await.starts_with("HTTP/1.1 "))
    } else if let Some(length) = header(&head, "content-length") {
        let mut rest = visitor.rest().await;
        let length: usize = length.parse().unwrap();
        let whole = rest.len() >= length;
        rest.truncate(length);
        (rest, whole)
    } else {
        unchunked(&visitor.rest().await)
    };
    let mut lines = head.lines().map(str::to_owned);
    let first = lines.next().unwrap_or_default();
    // The clock may tick between the two.
    let mut headers: Vec<_> =
        lines.filter(|line| !line.is_empty() && !line.starts_with("date:")).collect();
    headers.sort();
    (first, headers, body, whole)
}

/// A body in chunks without its framing, and whether it came to its end.
fn unchunked(text: &str) -> (String, bool) {
    let (mut body, mut rest) = (String::new(), text);
    loop {
        let Some((size, after)) = rest.split_once("\r\n") else { return (body, false) };
        let size = usize::from_str_radix(size.split(';').next().unwrap(), 16).unwrap();
        if size == 0 {
            return (body, true);
        }
        let Some(piece) = after.get(..size) else { return (body + after, false) };
        body += piece;
        rest = after.get(size + 2..).unwrap_or_default();
    }
}

#[tokio::test]
async fn both_ways_give_the_same_answers() {
    for (said, closes) in [
        ("HTTP/1.1 200 OK\r\nX-Two: a\r\nX-Two: b\r\nContent-Length: 5\r\n\r\nhello", false),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3;x\r\nllo\r\n0\r\n\r\n",
            false,
        ),
        ("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nuntil the end", true),
        ("HTTP/1.0 200 Fine\r\n\r\nold", true),
        ("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", false),
        ("HTTP/1.1 204 No Content\r\n\r\n", false),
        ("HTTP/1.1 304 Not Modified\r\nETag: \"1\"\r\n\r\n", false),
        (
            "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 201 Made\r\nContent-Length: 1\r\n\r\nx",
            false,
        ),
        ("HTTP/1.1 200 OK\r\nConnection: x-mine\r\nX-Mine: 1\r\nContent-Length: 0\r\n\r\n", false),
        ("HTTP/1.1 200 OK\r\nNgrok-Error-Code: ERR_1\r\nContent-Length: 0\r\n\r\n", false),
        (
            "HTTP/1.1 502 Bad\r\nNgrok-Error-Code: ERR_NGROK_8012\r\nContent-Length: 2\r\n\r\nno",
            false,
        ),
        (
            "HTTP/1.1 500 Oh\r\nDate: Sat, 21 Nov 2026 10:00:00 GMT\r\nContent-Length: 0\r\n\r\n",
            false,
        ),
        // What cannot be passed on.
        ("", true),
        ("HTTP/1.1 200 OK\r\nContent-", true),
        ("SSH-2.0-x\r\n", true),
        ("HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n", true),
        ("HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\ncut", true),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhe", true),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", true),
    ] {
        let (_edges, endpoint) = saying(said, closes).await;
        let has_body = closes || !said.ends_with("\r\n\r\n");
        let methods = if has_body { &["GET", "DELETE"][..] } else { &["GET", "DELETE", "HEAD"] };
        for method in methods {
            let short = seen(&endpoint, method, "").await;
            let long = seen(&endpoint, method, LONG).await;

            assert_eq!(short.3, long.3, "{method}: {said:?}");
            // How much of an answer goes on that breaks off is not the point.
            if !short.3 {
                continue;
            }
            assert_eq!(short.0, long.0, "{method}: {said:?}");
            assert_eq!(short.2, long.2, "{method}: {said:?}");
            let names = |headers: &[String]| -> Vec<String> {
                headers.iter().map(|line| line.to_ascii_lowercase()).collect()
            };
            assert_eq!(names(&short.1), names(&long.1), "{method}: {said:?}");
        }
    }
}

#[tokio::test]
async fn upstreams_get_the_same_requests() {
    let edges = edges().await;
    let endpoint = bound(&edges, Direct::to(mirror().await)).await;
    let head = "GET /a?b=%20c HTTP/1.1\r\nHost: A.test:81\r\nX-MiXed: One\r\nx-mixed: Two\r\n";
    let mut told = Vec::new();
    // The second is for the full path, where TE is left out.
    for more in ["", "TE: gzip\r\n"] {
        let mut visitor = Peer::to(&endpoint).await;
        visitor.say(&format!("{head}{more}\r\n")).await;
        let (_, seen) = visitor.answer().await;
        let mut lines: Vec<_> = seen.lines().map(str::to_owned).collect();
        lines.sort();
        told.push(lines);
    }

    assert_eq!(told[0], told[1]);
    assert!(told[0].contains(&"X-MiXed: One".to_owned()), "{told:?}");
}

#[tokio::test]
async fn a_connection_changes_to_the_long_way_between_requests() {
    let edges = edges().await;
    let endpoint = bound(&edges, Direct::to(mirror().await)).await;
    let mut visitor = Peer::to(&endpoint).await;
    let plain = |number: u8| format!("GET /{number} HTTP/1.1\r\nHost: a\r\n\r\n");
    let full =
        |number: u8| format!("POST /{number} HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody");

    visitor.say(&[plain(0), plain(1), full(2), plain(3), full(4)].concat()).await;

    for (number, ending) in
        [(0, "\r\n\r\n"), (1, "\r\n\r\n"), (2, "body"), (3, "\r\n\r\n"), (4, "body")]
    {
        let (_, seen) = visitor.answer().await;
        assert!(
            seen.contains(&format!(" /{number} ")) && seen.ends_with(ending),
            "{number}: {seen}"
        );
    }
}

#[tokio::test]
async fn a_connection_returns_to_the_fast_path() {
    let edges = edges().await;
    let target = Direct::to(mirror().await);
    let endpoint = bound(&edges, target.clone()).await;
    let mut visitor = Peer::to(&endpoint).await;

    for more in ["", LONG, "", "Expect: x\r\nContent-Length: 0\r\n", "", LONG, LONG, ""] {
        visitor.say(&format!("GET / HTTP/1.1\r\nHost: a\r\nX-Odd:  two  \r\n{more}\r\n")).await;
        let (_, seen) = visitor.answer().await;

        // Only the fast path keeps the blanks.
        assert_eq!(seen.contains("X-Odd:  two  \r\n"), more.is_empty(), "{more:?}: {seen}");
        assert!(seen.contains("X-Odd: "), "{seen}");
    }
    assert_eq!(target.dialed(), 1, "both ways use the connections of the other");
}

#[tokio::test]
async fn a_visitor_of_the_old_version_is_answered_in_it() {
    let edges = edges().await;
    let endpoint = bound(&edges, Direct::to(mirror().await)).await;
    let mut visitor = Peer::to(&endpoint).await;

    visitor.say("GET /kept HTTP/1.0\r\nHost: a\r\nConnection: keep-alive\r\n\r\n").await;
    let (head, body) = visitor.answer().await;
    assert!(head.starts_with("HTTP/1.0 200 OK\r\n"), "{head}");
    assert_eq!(header(&head, "connection"), Some("keep-alive"));
    assert!(body.starts_with("GET /kept HTTP/1.1\r\n"), "{body}");

    visitor.say("GET /last HTTP/1.0\r\nHost: a\r\n\r\n").await;
    let rest = visitor.rest().await;
    assert!(rest.starts_with("HTTP/1.0 200 OK\r\n") && rest.contains("GET /last "), "{rest}");
}

#[tokio::test]
async fn who_listens_hears_of_requests_on_connections_that_are_there() {
    let edges = edges().await;
    let endpoint = bound(&edges, Direct::to(mirror().await)).await;
    let mut visitor = Peer::to(&endpoint).await;
    visitor.say("GET /before HTTP/1.1\r\nHost: a\r\n\r\n").await;
    visitor.answer().await;

    let mut events = edges.subscribe_events();
    visitor.say("GET /after HTTP/1.1\r\nHost: a\r\n\r\n").await;
    visitor.answer().await;

    let Some(EventDelivery::Event(event)) = soon(events.next()).await else { panic!("it ended") };
    assert_eq!((event.path.as_deref(), event.status), (Some("/after"), Some(200)));
}

/// A policy of some rules for requests: expressions, type of action, configuration.
fn policy(rules: &[(&[&str], &str, Value)]) -> Value {
    let rules = rules.iter().map(|(expressions, kind, config)| {
        json!({"expressions": expressions, "actions": [{"type": kind, "config": config}]})
    });
    json!({"policy": {"inbound": rules.collect::<Vec<_>>()}})
}

/// Modules of a route, and whether requests that they let pass take the fast path.
fn modules() -> Vec<(Value, bool)> {
    let add = |headers: Value| json!({"headers": headers});
    let deny = || json!({"status_code": 403});
    let all = &[][..];
    vec![
        (json!({"user_agent_filter": {"deny": ["bad(bot|crawler)"]}}), true),
        (
            policy(&[
                (&["req.url.path.startsWith('/closed')"], "deny", deny()),
                (&["req.method == 'DELETE'", "conn.client_ip == '127.0.0.1'"], "deny", deny()),
                (all, "add-headers", add(json!({"x-via": "edge", "x-two": "2"}))),
                (
                    &["hasReqHeader('x-name')"],
                    "remove-headers",
                    json!({"headers": ["X-Name", "x-not-there"]}),
                ),
                (&["req.url.query == 'q=1'"], "add-headers", add(json!({"x-query": "yes"}))),
                (&["hasReqCookie('s')"], "add-headers", add(json!({"x-cookie": "yes"}))),
            ]),
            true,
        ),
        (
            policy(&[(
                &["req.content_length > 3"],
                "custom-response",
                json!({"status_code": 413, "body": "no"}),
            )]),
            true,
        ),
        // What only proxies may say, no rule sees of a visitor.
        (policy(&[(&["hasReqHeader('x-forwarded-for')"], "deny", deny())]), true),
        (policy(&[(&["!hasReqHeader('x-forwarded-for')"], "deny", deny())]), false),
        (policy(&[(&["!hasReqHeader('x_real_ip')"], "deny", deny())]), false),
        // What a rule reads, a rule before may have changed.
        (
            policy(&[
                (all, "add-headers", add(json!({"x-name": "rule"}))),
                (&["'rule' in req.headers['x-name']"], "deny", deny()),
            ]),
            false,
        ),
        (
            policy(&[
                (all, "remove-headers", json!({"headers": ["cookie"]})),
                (&["hasReqCookie('s')"], "deny", deny()),
            ]),
            false,
        ),
        (
            policy(&[
                (all, "add-headers", add(json!({"x-via": "edge"}))),
                (all, "remove-headers", json!({"headers": ["x-via"]})),
            ]),
            false,
        ),
        // Fields that the way itself has something to say to.
        (policy(&[(all, "add-headers", add(json!({"host": "other.test"})))]), false),
        (policy(&[(all, "add-headers", add(json!({"x-forwarded-for": "192.0.2.1"})))]), false),
        (policy(&[(all, "remove-headers", json!({"headers": ["x-forwarded-host"]}))]), false),
        (policy(&[(all, "remove-headers", json!({"headers": ["content-length"]}))]), false),
        // What counts, what asks, what is made of the request, and what looks at responses.
        (policy(&[(all, "add-headers", add(json!({"x-ip": "${conn.client_ip}"})))]), false),
        (
            policy(&[(
                &["endpoint.host == 'a.test'"],
                "add-headers",
                add(json!({"x-via": "edge"})),
            )]),
            false,
        ),
        (policy(&[(&["size(req.headers) > 100"], "deny", deny())]), false),
        (
            json!({"policy": {"inbound": [], "outbound": [{"actions": [{"type": "remove-headers", "config": {"headers": ["x"]}}]}]}}),
            false,
        ),
        (json!({"compression": {}}), false),
    ]
}

#[tokio::test]
async fn modules_decide_alike_on_both_ways() {
    let requests = [
        "GET /a?q=1 HTTP/1.1\r\nHost: a.test\r\nUser-Agent: good\r\nX-Name: n\r\n",
        "GET /a HTTP/1.1\r\nHost: a.test\r\nUser-Agent: good\r\nUser-Agent: a badbot\r\n",
        "GET /a HTTP/1.1\r\nHost: a.test\r\n",
        "GET /closed HTTP/1.1\r\nHost: a.test\r\nUser-Agent: good\r\n",
        "GET //closed HTTP/1.1\r\nHost: a.test\r\nUser-Agent: good\r\n",
        "GET /%63losed HTTP/1.1\r\nHost: a.test\r\nUser-Agent: good\r\n",
        "GET /x/../closed HTTP/1.1\r\nHost: a.test\r\nUser-Agent: good\r\n",
        "DELETE /a HTTP/1.1\r\nHost: a.test\r\nUser-Agent: good\r\n",
        "GET /a HTTP/1.1\r\nHost: a.test\r\nUser-Agent: good\r\nX-Via: v\r\nx-name: a\r\nX-NAME: b\r\n",
        "GET /a HTTP/1.1\r\nHost: a.test\r\nUser-Agent: good\r\nCookie: r=1; s=v\r\n",
        "GET /a HTTP/1.1\r\nHost: a.test\r\nUser-Agent: good\r\nX-Forwarded-For: 192.0.2.9\r\n",
        "GET /a HTTP/1.1\r\nHost: a.test\r\nUser-Agent: good\r\nX_Real_IP: 1\r\n",
        "POST /a HTTP/1.1\r\nHost: a.test\r\nUser-Agent: good\r\nContent-Length: 0\r\n",
        "POST /a HTTP/1.1\r\nHost: a.test\r\nUser-Agent: good\r\nContent-Length: 4\r\n\r\nbody",
    ];
    let mut passed_fast = 0;
    for (modules, may_be_fast) in modules() {
        let site = EdgeFixture::start().await;
        let edge = site.edge("a.test").await;
        let mut route = modules.clone();
        route["backend"] = json!(site.at(mirror().await).await);
        site.route(&edge, "/", route).await;
        for request in requests {
            // Only the fast path keeps the blanks.
            let (head, body) = request.split_once("\r\n\r\n").unwrap_or((request.trim_end(), ""));
            let short = site.say(&format!("{head}\r\nX-Odd:  two  \r\n\r\n{body}")).await;
            let long = site.say(&format!("{head}\r\nX-Odd: two\r\n{LONG}\r\n{body}")).await;

            assert_eq!(status(&short), status(&long), "{modules}: {request}");
            assert_eq!(lines(&short.1), lines(&long.1), "{modules}: {request}");
            let is_fast = short.1.contains("X-Odd:  two  \r\n");
            assert!(may_be_fast || !is_fast, "{modules}: {request}");
            passed_fast += usize::from(is_fast);
        }
        let plain = site
            .say("GET /plain HTTP/1.1\r\nHost: a.test\r\nUser-Agent: good\r\nX-Odd:  two  \r\n\r\n")
            .await;
        assert_eq!(plain.1.contains("X-Odd:  two  \r\n"), may_be_fast, "{modules}: {}", plain.1);
    }
    assert!(passed_fast > 10, "{passed_fast}");
}

/// What an upstream was sent, in a form that does not depend on the way.
fn lines(seen: &str) -> Vec<String> {
    let lines = seen.lines().map(|line| match line.split_once(':') {
        Some((name, value)) => format!("{}:{}", name.to_ascii_lowercase(), value.trim()),
        None => line.to_owned(),
    });
    let mut lines: Vec<_> = lines.filter(|line| !line.starts_with("cdn-loop")).collect();
    lines.sort();
    lines
}

#[tokio::test]
async fn a_slow_visitor_holds_the_upstream_up() {
    let (count, mut counted) = mpsc::unbounded_channel();
    let count = Arc::new(count);
    let address = upstream(move |mut peer| {
        let count = count.clone();
        async move {
            peer.head().await;
            peer.say("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n").await;
            let piece = [b'x'; 64 << 10];
            while peer.0.write_all(&piece).await.is_ok() {
                let _ = count.send(piece.len());
            }
            let _ = count.send(0);
        }
    });
    let edges = edges().await;
    let endpoint = bound(&edges, Direct::to(address.await)).await;
    let mut visitor = Peer::to(&endpoint).await;
    visitor.say("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    visitor.head().await;

    let mut sent = 0;
    // What fits into the buffers of sockets goes, and then nothing more.
    while let Ok(Some(length)) =
        tokio::time::timeout(Duration::from_millis(500), counted.recv()).await
    {
        sent += length;
        assert!(sent < 64 << 20, "nobody is held up");
    }

    drop(visitor);
    while soon(counted.recv()).await != Some(0) {}
}
