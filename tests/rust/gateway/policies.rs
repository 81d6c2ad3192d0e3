//! Traffic policies of routes, TCP edges and endpoints, on real traffic.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ginnel_api::EndpointOptions;
use ginnel_api::Secret;
use ginnel_api::remote::edges::modules::WebhookVerification;
use ginnel_gateway::{EndpointSpec, EventDelivery, Proto};

use serde_json::{Value, json};
use tokio::sync::Notify;

use super::configured::{EdgeFixture, code, status};
use super::support::{Direct, Peer, document, edges, header, mirror, soon, upstream};
use crate::service::support::free_address;

/// A site whose only route has a policy, before an upstream that answers with what it was sent.
async fn policed(inbound: Value, outbound: Value) -> EdgeFixture {
    let site = EdgeFixture::start().await;
    let edge = site.edge("a.test").await;
    let policy = json!({"inbound": inbound, "outbound": outbound});
    let backend = site.at(mirror().await).await;
    site.route(&edge, "/", json!({"backend": backend, "policy": policy})).await;
    site
}

/// One rule with one action.
fn rule(expression: Option<&str>, action: &str, config: Value) -> Value {
    let expressions: Vec<_> = expression.into_iter().collect();
    json!({"name": action, "expressions": expressions, "actions": [{"type": action, "config": config}]})
}

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: a.test\r\nUser-Agent: test\r\n\r\n")
}

#[tokio::test]
async fn rules_turn_away_answer_and_let_pass() {
    let inbound = json!([
        rule(Some("req.url.path.startsWith('/admin')"), "deny", json!({"status_code": 404})),
        rule(
            Some("req.method == 'BREW'"),
            "custom-response",
            json!({"status_code": 418, "body": "from ${conn.client_ip}", "headers": {"x-tea": "yes"}})
        ),
        rule(Some("req.url.path == '/old'"), "redirect", json!({"from": "/old", "to": "/new"})),
    ]);
    let site = policed(inbound, json!(null)).await;

    let denied = site.say(&get("/admin/x")).await;
    assert_eq!((status(&denied), code(&denied), denied.1.as_str()), ("404", "", ""));
    let brewed = site.say("BREW / HTTP/1.1\r\nHost: a.test\r\n\r\n").await;
    assert_eq!((status(&brewed), brewed.1.as_str()), ("418", "from 127.0.0.1"));
    assert_eq!(header(&brewed.0, "x-tea"), Some("yes"));
    let moved = site.say(&get("/old?a=b")).await;
    assert_eq!(status(&moved), "302");
    assert!(header(&moved.0, "location").unwrap().ends_with("/new?a=b"), "{}", moved.0);
    assert_eq!(status(&site.say(&get("/fine")).await), "200");
}

#[tokio::test]
async fn requests_and_answers_are_changed() {
    let inbound = json!([
        rule(None, "add-headers", json!({"headers": {"x-in": "${req.headers['user-agent'][0]}"}})),
        rule(None, "remove-headers", json!({"headers": ["x-secret"]})),
        rule(None, "url-rewrite", json!({"from": "/v1/", "to": "/v2/"})),
    ]);
    let outbound = json!([
        rule(Some("res.status_code == 200"), "add-headers", json!({"headers": {"x-out": "1"}})),
        rule(
            Some("res.status_code >= 500"),
            "custom-response",
            json!({"status_code": 503, "body": "sorry"})
        ),
    ]);
    let site = policed(inbound, outbound).await;
    let gone = free_address();
    let edge = site.service.get("/edges/https").await.json["https_edges"][0].clone();
    let policy = edge["routes"][0]["policy"].clone();
    let modules = json!({"backend": site.at(gone).await, "policy": policy});
    site.route(edge["id"].as_str().unwrap(), "/gone", modules).await;

    let request = "GET /v1/x?q HTTP/1.1\r\nHost: a.test\r\nUser-Agent: me\r\nX-Secret: s\r\n\r\n";
    let (head, seen) = site.say(request).await;

    assert!(seen.starts_with("GET /v2/x?q HTTP/1.1\r\n"), "{seen}");
    assert_eq!((header(&seen, "x-in"), header(&seen, "x-secret")), (Some("me"), None));
    assert_eq!(header(&seen, "host"), Some("a.test"));
    assert_eq!(header(&head, "x-out"), Some("1"));
    let sorry = site.say(&get("/gone")).await;
    assert_eq!((status(&sorry), sorry.1.as_str()), ("503", "sorry"), "own answers are answers too");
}

#[tokio::test]
async fn bodies_are_looked_at_only_where_rules_want_to() {
    let replace = |from: &str, to: &str| json!({"replacements": [{"from": from, "to": to}]});
    let inbound = json!([
        rule(Some("req.method == 'POST'"), "request-body-find-replace", replace("a", "bb")),
        rule(Some("req.method == 'PATCH'"), "request-body-find-replace", replace("a+", "bb")),
    ]);
    let outbound = json!([rule(
        Some("req.method == 'POST'"),
        "response-body-find-replace",
        replace("HTTP/1.1", "HTTP")
    )]);
    let site = policed(inbound, outbound).await;
    let send = async |method: &str, body: &str| {
        let length = body.len();
        site.say(&format!(
            "{method} / HTTP/1.1\r\nHost: a.test\r\nContent-Length: {length}\r\n\r\n{body}"
        ))
        .await
    };

    let posted = send("POST", "banana").await;
    assert!(posted.1.starts_with("POST / HTTP\r\n"), "{}", posted.1);
    assert!(posted.1.ends_with("\r\n\r\nbbbnbbnbb"), "{}", posted.1);
    assert_eq!(header(&posted.1, "content-length"), Some("9"));
    assert_eq!(header(&posted.0, "content-length"), Some(posted.1.len().to_string().as_str()));
    let put = send("PUT", "banana").await;
    assert!(put.1.starts_with("PUT / HTTP/1.1\r\n") && put.1.ends_with("banana"), "{}", put.1);
    let long = "x".repeat((1 << 20) + 1) + "banana";
    let passed = send("POST", &long).await;
    assert_eq!(status(&passed), "200");
    assert_eq!(header(&passed.1, "content-length"), None);
    assert!(passed.1.contains("bbbnbbnbb") && !passed.1.contains("banana"));
    let too_long = send("PATCH", &long).await;
    assert_eq!(
        (status(&too_long), code(&too_long)),
        ("413", "2249"),
        "a match may have any length"
    );
}

#[tokio::test]
async fn limits_hold_over_changes_of_the_rest() {
    let config = json!({
        "name": "few", "algorithm": "sliding_window", "capacity": 2, "rate": "60s",
        "bucket_key": ["req.headers['x-user'][0]"],
    });
    let site = policed(json!([rule(None, "rate-limit", config)]), json!(null)).await;
    let get = async |user: &str| {
        let request = format!("GET / HTTP/1.1\r\nHost: a.test\r\nX-User: {user}\r\n\r\n");
        let answer = site.say(&request).await;
        let waits = header(&answer.0, "retry-after").is_some();
        format!("{} {waits}", status(&answer))
    };

    assert_eq!([get("ada").await, get("ada").await], ["200 false", "200 false"]);
    assert_eq!(get("ada").await, "429 true");
    assert_eq!(get("bob").await, "200 false");
    let edge = site.service.get("/edges/https").await.json["https_edges"][0].clone();
    let path = format!(
        "/edges/https/{}/routes/{}",
        edge["id"].as_str().unwrap(),
        edge["routes"][0]["id"].as_str().unwrap()
    );
    site.service.patch(&path, json!({"description": "changed"})).await;
    assert_eq!(get("ada").await, "429 true");
}

#[tokio::test]
async fn ip_policies_are_looked_up_when_a_request_comes() {
    let site = EdgeFixture::start().await;
    let policy = site.service.create("/ip_policies", json!({})).await;
    let edge = site.edge("a.test").await;
    let rules = json!([rule(None, "restrict-ips", json!({"ip_policies": [policy]}))]);
    let modules = json!({"backend": site.fixed("in").await, "policy": {"inbound": rules}});
    site.route(&edge, "/", modules).await;
    let get = async || {
        let answer = site.get("a.test", "/").await;
        format!("{} {}", status(&answer), code(&answer))
    };

    assert_eq!(get().await, "403 3205");
    let allow = json!({"cidr": "127.0.0.0/8", "action": "allow", "ip_policy_id": policy});
    site.service.create("/ip_policy_rules", allow).await;
    assert_eq!(get().await, "202 ");
    site.service.delete(&format!("/ip_policies/{policy}")).await;
    assert_eq!(get().await, "403 3205");
}

#[tokio::test]
async fn signed_webhooks_pass() {
    let site = EdgeFixture::start().await;
    let edge = site.edge("a.test").await;
    let webhook = json!({"provider": "gitlab", "secret": "s3cret-${x}"});
    let backend = site.at(mirror().await).await;
    site.route(&edge, "/", json!({"backend": backend, "webhook_verification": webhook})).await;
    let send = async |token: &str| {
        let request = format!(
            "POST / HTTP/1.1\r\nHost: a.test\r\nX-Gitlab-Token: {token}\r\nContent-Length: 5\r\n\r\nhello"
        );
        let answer = site.say(&request).await;
        (status(&answer).to_owned(), code(&answer).to_owned(), answer.1)
    };

    let (let_in, _, seen) = send("s3cret-${x}").await;
    assert_eq!(let_in, "200");
    assert!(seen.ends_with("\r\n\r\nhello"), "the body goes on: {seen}");
    let (refused, number, _) = send("wrong").await;
    assert_eq!((refused.as_str(), number.as_str()), ("403", "3204"));
}

#[tokio::test]
async fn keys_are_fetched_once() {
    let asked = Arc::new(AtomicUsize::default());
    let counted = asked.clone();
    let keys = upstream(move |mut peer| {
        let counted = counted.clone();
        async move {
            while peer.request().await.is_some() {
                counted.fetch_add(1, Ordering::Relaxed);
                let body = r#"{"keys": []}"#;
                let length = body.len();
                let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n");
                peer.say(&(head + body)).await;
            }
        }
    })
    .await;
    let config = json!({
        "issuer": {"allow_list": [{"value": "https://issuer.test"}]},
        "http": {"tokens": [{"type": "jwt", "method": "header", "name": "Authorization", "prefix": "Bearer "}]},
        "jws": {
            "allowed_algorithms": ["ES256"],
            "keys": {"sources": {"additional_jkus": [format!("http://{keys}/keys")]}},
        },
    });
    let site = policed(json!([rule(None, "jwt-validation", config)]), json!(null)).await;
    // {"alg":"ES256","kid":"k"} . {"iss":"https://issuer.test"} . nothing of worth
    let token = "eyJhbGciOiJFUzI1NiIsImtpZCI6ImsifQ.eyJpc3MiOiJodHRwczovL2lzc3Vlci50ZXN0In0.AAAA";
    let send = async |authorization: &str| {
        let request = format!("GET / HTTP/1.1\r\nHost: a.test\r\n{authorization}\r\n");
        status(&site.say(&request).await).to_owned()
    };

    assert_eq!(send("").await, "401");
    assert_eq!(asked.load(Ordering::Relaxed), 0);
    for _ in 0..3 {
        assert_eq!(send(&format!("Authorization: Bearer {token}\r\n")).await, "401");
    }
    assert_eq!(asked.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn a_closed_connection_gets_no_answer() {
    let site = policed(
        json!([rule(Some("req.url.path == '/x'"), "close-connection", json!(null))]),
        json!(null),
    )
    .await;
    let mut visitor = site.visitor().await;

    visitor.say(&format!("{}{}{}", get("/"), get("/x"), get("/"))).await;
    let answers = visitor.rest().await;

    assert_eq!(answers.matches("HTTP/1.1 200 OK").count(), 1, "{answers}");
    assert!(!answers.contains("HTTP/1.1 5"), "{answers}");
}

#[tokio::test]
async fn a_policy_leads_to_internal_endpoints_and_nothing_else_does() {
    let site = EdgeFixture::start().await;
    let edges = site.service.service.gateway();
    let edge = site.edge("a.test").await;
    let forward = |host: &str, on_error: &str| {
        rule(
            None,
            "forward-internal",
            json!({"url": format!("http://{host}"), "on_error": on_error}),
        )
    };
    let route = async |path: &str, rules: Value| {
        let modules = json!({"backend": site.fixed("public").await, "policy": {"inbound": rules}});
        site.route(&edge, path, modules).await
    };
    route("/in", json!([forward("x.internal", "halt")])).await;
    route("/gone", json!([forward("gone.internal", "halt")])).await;
    route("/on", json!([forward("gone.internal", "continue")])).await;
    route("/circle", json!([forward("circle.internal", "halt")])).await;
    let internal = |host: &str, policy: Option<&str>| EndpointSpec {
        host: Some(host.to_owned()),
        options: EndpointOptions {
            traffic_policy: policy.map(document),
            ..EndpointOptions::default()
        },
        ..EndpointSpec::any(Proto::Http)
    };
    let around = r#"{"on_http_request": [{"actions": [
        {"type": "forward-internal", "config": {"url": "http://circle.internal"}}]}]}"#;
    let target = Direct::to(mirror().await);
    let inside = edges.bind_endpoint(internal("x.internal", None), target.clone()).await.unwrap();
    let _circle =
        edges.bind_endpoint(internal("circle.internal", Some(around)), target).await.unwrap();

    assert_eq!(inside.url(), "http://x.internal");
    let seen = site.say(&get("/in/y")).await;
    assert!(seen.1.starts_with("GET /in/y HTTP/1.1\r\n"), "{}", seen.1);
    let gone = site.say(&get("/gone")).await;
    assert_eq!((status(&gone), code(&gone)), ("404", "3200"));
    assert_eq!(site.say(&get("/on")).await.1, "public");
    let circle = site.say(&get("/circle")).await;
    assert_eq!((status(&circle), code(&circle)), ("508", "3501"));
    let direct = site.get("x.internal", "/").await;
    assert_eq!((status(&direct), code(&direct)), ("404", "3200"));
}

/// An upstream that answers each request with this status.
async fn always(status: &'static str) -> std::net::SocketAddr {
    upstream(move |mut peer| async move {
        while peer.request().await.is_some() {
            peer.say(&format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n")).await;
        }
    })
    .await
}

#[tokio::test]
async fn what_an_internal_endpoint_answers_counts_for_a_circuit_breaker() {
    let site = EdgeFixture::start().await;
    let edge = site.edge("a.test").await;
    let internal =
        |host: &str| EndpointSpec { host: Some(host.to_owned()), ..EndpointSpec::any(Proto::Http) };
    let breaker = || json!({"volume_threshold": 2, "error_threshold": 0.5});
    let gateway = site.service.service.gateway();
    let mut endpoints = Vec::new();
    for (name, target) in [
        ("fails", Direct::to(always("500 No").await)),
        ("works", Direct::to(always("200 Yes").await)),
        ("lost", Direct::to(upstream(|_| async {}).await)),
    ] {
        let bound =
            gateway.bind_endpoint(internal(&format!("{name}.internal")), target).await.unwrap();
        endpoints.push(bound);
        let url = format!("http://{name}.internal");
        let rules = json!([
            rule(None, "circuit-breaker", breaker()),
            rule(None, "forward-internal", json!({"url": url})),
        ]);
        let modules = json!({"backend": site.fixed("never").await, "policy": {"inbound": rules}});
        site.route(&edge, &format!("/{name}"), modules).await;
    }
    let statuses = async |path: &str| {
        let mut statuses = Vec::new();
        for _ in 0..4 {
            statuses.push(status(&site.say(&get(path)).await).to_owned());
        }
        statuses
    };

    assert_eq!(statuses("/fails").await, ["500", "500", "503", "503"]);
    assert_eq!(statuses("/lost").await, ["502", "502", "503", "503"]);
    assert_eq!(statuses("/works").await, ["200"; 4]);
}

#[tokio::test]
async fn rules_for_answers_see_that_nobody_is_at_an_internal_endpoint() {
    let site = EdgeFixture::start().await;
    let edge = site.edge("a.test").await;
    let lost =
        EndpointSpec { host: Some("lost.internal".to_owned()), ..EndpointSpec::any(Proto::Http) };
    let target = Direct::to(upstream(|_| async {}).await);
    let _lost = site.service.service.gateway().bind_endpoint(lost, target).await.unwrap();
    for name in ["gone", "lost"] {
        let forward = json!({"url": format!("http://{name}.internal")});
        let sorry = json!({"status_code": 299, "body": "sorry ${res.status_code}"});
        let policy = json!({
            "inbound": [rule(None, "forward-internal", forward)],
            "outbound": [rule(None, "custom-response", sorry)],
        });
        let modules = json!({"backend": site.fixed("never").await, "policy": policy});
        site.route(&edge, &format!("/{name}"), modules).await;
    }

    let gone = site.say(&get("/gone")).await;
    let lost = site.say(&get("/lost")).await;

    assert_eq!((status(&gone), gone.1.as_str()), ("299", "sorry 404"));
    assert_eq!((status(&lost), lost.1.as_str()), ("299", "sorry 502"));
}

#[tokio::test]
async fn rules_of_an_internal_endpoint_see_its_own_url() {
    let site = EdgeFixture::start().await;
    let edge = site.edge("a.test").await;
    let named = rule(
        None,
        "add-headers",
        json!({"headers": {"x-endpoint": "${endpoint.url} ${endpoint.host} ${endpoint.port} ${req.host}"}}),
    );
    let policy = json!({"on_http_request": [named]}).to_string();
    let target = Direct::to(mirror().await);
    let mut endpoints = Vec::new();
    for (proto, host) in [(Proto::Http, "http.internal"), (Proto::Https, "https.internal")] {
        let options = EndpointOptions {
            traffic_policy: Some(document(&policy)),
            ..EndpointOptions::default()
        };
        let spec =
            EndpointSpec { host: Some(host.to_owned()), options, ..EndpointSpec::any(proto) };
        endpoints.push(
            site.service.service.gateway().bind_endpoint(spec, target.clone()).await.unwrap(),
        );
        let url = format!("{}://{}", host.split('.').next().unwrap(), host.to_uppercase());
        let rules = json!([rule(None, "forward-internal", json!({"url": url}))]);
        let modules = json!({"backend": site.fixed("never").await, "policy": {"inbound": rules}});
        site.route(&edge, &format!("/{host}"), modules).await;
    }

    let seen = async |path: &str| {
        let answer = site.say(&get(path)).await;
        header(&answer.1, "x-endpoint").unwrap_or_default().to_owned()
    };

    assert_eq!(seen("/http.internal").await, "http://http.internal http.internal 80 a.test");
    assert_eq!(seen("/https.internal").await, "https://https.internal https.internal 443 a.test");
}

fn gzip(text: &str) -> Vec<u8> {
    use std::io::Write;
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(text.as_bytes()).unwrap();
    encoder.finish().unwrap()
}

#[tokio::test]
async fn nothing_passes_a_replacement_because_of_how_it_is_sent() {
    const LIMIT: usize = 1 << 20;
    let site = EdgeFixture::start().await;
    let edge = site.edge("a.test").await;
    let long = format!("SSN 123 {}", "x".repeat(LIMIT));
    let redact = json!({"replacements": [{"from": "[0-9]{3}", "to": "***"}]});
    let endless = json!({"replacements": [{"from": "[0-9]{3,}", "to": "***"}]});
    let policy = json!({"outbound": [
        rule(Some("!req.url.path.startsWith('/any')"), "response-body-find-replace", redact),
        rule(Some("req.url.path.startsWith('/any')"), "response-body-find-replace", endless),
    ]});
    let cases: [(&str, &str, Vec<u8>); 11] = [
        ("plain", "Content-Type: text/plain", b"SSN 123".to_vec()),
        ("gzip", "Content-Encoding: gzip\r\nETag: \"1\"", gzip("SSN 123")),
        ("clean", "Content-Encoding: gzip", gzip("SSN")),
        ("latin1", "Content-Type: text/html; charset=latin1", b"\xe9 SSN 123".to_vec()),
        ("unknown", "Content-Encoding: zstd", b"SSN 123".to_vec()),
        ("long", "Content-Type: text/plain", long.clone().into_bytes()),
        ("unfolds", "Content-Encoding: gzip", gzip(&long)),
        ("any-long", "Content-Type: text/plain", long.clone().into_bytes()),
        ("any-unfolds", "Content-Encoding: gzip", gzip(&long)),
        ("utf16", "Content-Type: text/plain; charset=UTF-16LE", b"1\x002\x003\0".to_vec()),
        ("part", "Content-Type: text/event-stream\r\nContent-Encoding: zstd", b"123".to_vec()),
    ];
    for (name, fields, body) in cases.clone() {
        let head = format!("HTTP/1.1 200 OK\r\n{fields}\r\nContent-Length: {}\r\n\r\n", body.len());
        let answer = Arc::new([head.as_bytes(), &body].concat());
        let address = upstream(move |mut peer| {
            let answer = answer.clone();
            async move {
                while peer.request().await.is_some() {
                    peer.say_bytes(&answer).await;
                }
            }
        })
        .await;
        let modules = json!({"backend": site.at(address).await, "policy": policy});
        site.route(&edge, &format!("/{name}"), modules).await;
    }
    let visit = async |path: &str| {
        let mut visitor = site.visitor().await;
        let host = "Host: a.test\r\nConnection: close\r\n\r\n";
        visitor.say(&format!("GET {path} HTTP/1.1\r\n{host}")).await;
        let head = visitor.head().await;
        let mut body = Vec::new();
        tokio::io::AsyncReadExt::read_to_end(&mut visitor.0, &mut body).await.unwrap();
        (head, body)
    };

    for (path, expected) in
        [("/plain", &b"SSN ***"[..]), ("/gzip", b"SSN ***"), ("/latin1", b"\xe9 SSN ***")]
    {
        let (head, body) = visit(path).await;
        assert_eq!(body, expected, "{path}: {head}");
        assert_eq!(header(&head, "content-length"), Some(body.len().to_string().as_str()));
        assert_eq!((header(&head, "content-encoding"), header(&head, "etag")), (None, None));
    }
    let (head, body) = visit("/clean").await;
    assert_eq!((header(&head, "content-encoding"), body), (Some("gzip"), gzip("SSN")));
    for path in ["/long", "/unfolds"] {
        let (head, body) = visit(path).await;
        let body = String::from_utf8_lossy(&body);
        assert!(body.contains("SSN ***") && !body.contains("123"), "{path}: {head}");
        assert!(body.len() > LIMIT, "{path}");
        assert_eq!(
            (header(&head, "content-encoding"), header(&head, "content-length")),
            (None, None)
        );
    }
    for (path, number) in [
        ("/unknown", "3904"),
        ("/any-long", "2249"),
        ("/any-unfolds", "2249"),
        ("/utf16", "3904"),
        ("/part", "3904"),
    ] {
        let (head, body) = visit(path).await;
        let refused = (head, String::from_utf8_lossy(&body).into_owned());
        assert_eq!(status(&refused), "502", "{path}: {refused:?}");
        assert!(!refused.1.contains("123"), "{path}");
        assert_eq!(code(&refused), number, "{path}");
    }
}

/// An upstream that sends two pieces of a body, the second after a word.
async fn in_two_pieces(fields: &'static str, pieces: [Vec<u8>; 2]) -> (SocketAddr, Arc<Notify>) {
    let (word, pieces) = (Arc::new(Notify::new()), Arc::new(pieces));
    let heard = word.clone();
    let address = upstream(move |mut peer| {
        let (heard, pieces) = (heard.clone(), pieces.clone());
        async move {
            while let Some((head, _)) = peer.request().await {
                peer.say(&format!(
                    "HTTP/1.1 200 OK\r\n{fields}\r\nTransfer-Encoding: chunked\r\n\r\n"
                ))
                .await;
                if head.starts_with("HEAD") {
                    continue;
                }
                for (number, piece) in pieces.iter().enumerate() {
                    if number == 1 {
                        heard.notified().await;
                    }
                    let size = format!("{:x}\r\n", piece.len());
                    peer.say_bytes(&[size.as_bytes(), piece, b"\r\n"].concat()).await;
                }
                peer.say("0\r\n\r\n").await;
            }
        }
    })
    .await;
    (address, word)
}

/// A body of gzip in two pieces that can be decoded one after the other.
fn gzip_pieces(first: &str, second: &str) -> [Vec<u8>; 2] {
    use std::io::Write;
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(first.as_bytes()).unwrap();
    encoder.flush().unwrap();
    let begun = std::mem::take(encoder.get_mut());
    encoder.write_all(second.as_bytes()).unwrap();
    [begun, encoder.finish().unwrap()]
}

#[tokio::test]
async fn streams_are_searched_piece_by_piece() {
    let site = EdgeFixture::start().await;
    let edge = site.edge("a.test").await;
    let replace = json!({"replacements": [{"from": "tick.*", "to": "tock"}]});
    let policy = json!({"outbound": [rule(None, "response-body-find-replace", replace)]});
    let events = ["data: tick 1\n\n", "data: tick 2\n\n"];
    let plain = |pieces: [&str; 2]| pieces.map(|piece| piece.as_bytes().to_vec());
    let replaced = ["data: tock\n\n", "data: tock\n\n"];
    let event_fields =
        "Content-Type: text/event-stream; charset=utf-8\r\nETag: \"a\"\r\nAccept-Ranges: bytes";
    let lines = ["{\"a\": 1}\n", "tick tick\n"];
    let call = ["\0\0\0\0\u{4}tick", "\0\0\0\0\u{4}tick"];
    for (path, fields, pieces, expected) in [
        ("/events", event_fields, plain(events), replaced),
        (
            "/gzip",
            "Content-Type: text/event-stream\r\nContent-Encoding: gzip",
            gzip_pieces(events[0], events[1]),
            replaced,
        ),
        ("/lines", "Content-Type: application/x-ndjson", plain(lines), [lines[0], "tock\n"]),
        ("/call", "Content-Type: application/grpc", plain(call), call),
    ] {
        let (address, word) = in_two_pieces(fields, pieces).await;
        let modules =
            json!({"backend": site.at(address).await, "policy": policy, "compression": {}});
        site.route(&edge, path, modules).await;
        let ask = async |method: &str| {
            let mut visitor = site.visitor().await;
            let fields = "Host: a.test\r\nAccept-Encoding: gzip\r\n\r\n";
            visitor.say(&format!("{method} {path} HTTP/1.1\r\n{fields}")).await;
            (visitor.head().await, visitor)
        };

        let (head, mut visitor) = ask("GET").await;
        assert_eq!(header(&head, "content-encoding"), None, "{path}: {head}");
        for piece in expected {
            let chunk = format!("{:x}\r\n{piece}\r\n", piece.len());
            assert_eq!(visitor.exactly(chunk.len()).await, chunk, "{path}");
            word.notify_one();
        }
        assert_eq!(visitor.exactly(5).await, "0\r\n\r\n", "{path}");
        let (of_head, _) = ask("HEAD").await;
        for name in ["etag", "accept-ranges", "content-encoding", "content-length", "content-type"]
        {
            assert_eq!(header(&of_head, name), header(&head, name), "{path}: {name}");
        }
        assert_eq!((header(&head, "etag"), header(&head, "accept-ranges")), (None, None), "{path}");
    }
}

/// What a visitor says, decoded, that would end a line.
const FORGED: &str = "a%0d%0ax-forged:%20yes%0d%0a%0d%0aHTTP/1.1%20200%20OK";

#[tokio::test]
async fn no_value_of_a_visitor_ends_a_line() {
    let value = "${getQueryParam('name')[0]}";
    let headers = json!({"headers": {"x-name": value}});
    let target = format!("http://a.test/{value}");
    let at = |path: &str, action: &str, config: Value| {
        rule(Some(&format!("req.url.path == '{path}'")), action, config)
    };
    let inbound = json!([
        at("/add", "add-headers", headers.clone()),
        at("/host", "add-headers", json!({"headers": {"host": value}})),
        at("/answer", "custom-response", json!({"body": value, "headers": {"x-name": value}})),
        at("/type", "custom-response", json!({"headers": {"content-type": value}})),
        at("/redirect", "redirect", json!({"to": target})),
        at("/redirect/headers", "redirect", json!({"to": "/", "headers": {"x-name": value}})),
        at("/rewrite", "url-rewrite", json!({"to": target})),
        at(
            "/nginx",
            "url-rewrite",
            json!({"from": "/nginx", "to": "/$arg_name", "format": "nginx"})
        ),
        at("/forward", "forward-internal", json!({"url": format!("http://{value}.internal")})),
        at("/log", "log", json!({"metadata": {"name": value}})),
        at("/vars", "set-vars", json!({"vars": [{"name": value}]})),
        at("/vars", "add-headers", json!({"headers": {"x-name": "${vars.name}"}})),
    ]);
    let outbound = json!([
        rule(Some("hasQueryParam('late')"), "add-headers", headers.clone()),
        rule(Some("hasQueryParam('other')"), "custom-response", headers),
    ]);
    let site = policed(inbound, outbound).await;
    let mut events = site.service.service.events();
    let paths = [
        "/add",
        "/host",
        "/answer",
        "/type",
        "/redirect",
        "/redirect/headers",
        "/rewrite",
        "/nginx",
        "/forward",
        "/log",
        "/vars",
        "/fine?late&",
        "/fine?other&",
    ];

    for path in paths {
        let start = if path.contains('?') { "" } else { "?" };
        let mut visitor = site.visitor().await;
        visitor.say(&get(&format!("{path}{start}name={FORGED}"))).await;
        let (head, body) = visitor.answer().await;
        // The next answer belongs to the next request.
        visitor.say("GET /next HTTP/1.0\r\nHost: a.test\r\nUser-Agent: test\r\n\r\n").await;
        let next = visitor.rest().await;

        assert_eq!(header(&head, "x-forged"), None, "{path}: {head}");
        assert_eq!(head.matches("HTTP/1.1 ").count(), 1, "{path}: {head}");
        let seen = body.starts_with("GET ");
        assert!(!seen || header(&body, "x-forged").is_none(), "{path}: {body}");
        assert_eq!(next.matches("\r\n\r\nGET /next HTTP/1.1\r\n").count(), 1, "{path}: {next}");
        let Some(EventDelivery::Event(event)) = soon(events.next()).await else {
            panic!("no event")
        };
        assert!(!serde_json::to_string(&*event).unwrap().contains('\n'), "{path}: {event:?}");
        soon(events.next()).await;
    }
}

#[tokio::test]
async fn decisions_and_logs_are_told() {
    let inbound = json!([
        rule(None, "log", json!({"metadata": {"path": "${req.url.path}"}})),
        rule(Some("req.url.path == '/no'"), "deny", json!(null)),
    ]);
    let site = policed(inbound, json!(null)).await;
    let mut events = site.service.service.events();

    site.say(&get("/yes")).await;
    site.say(&get("/no")).await;
    let mut next = async || match soon(events.next()).await {
        Some(EventDelivery::Event(event)) => event,
        other => panic!("{other:?}"),
    };

    let passed = next().await;
    assert_eq!((&passed.module, &passed.rule), (&None, &None));
    assert_eq!(passed.logs[0]["path"], "/yes", "{:?}", passed.logs);
    let denied = next().await;
    assert_eq!(denied.module.as_deref(), Some("policy"));
    assert_eq!((denied.rule.as_deref(), denied.action.as_deref()), (Some("deny"), Some("deny")));
    assert_eq!((denied.status, &denied.backend_id), (Some(403), &None));
}

#[tokio::test]
async fn a_tcp_edge_applies_its_policy() {
    let site = EdgeFixture::start().await;
    let address = upstream(|mut peer| async move {
        let heard = peer.rest().await;
        peer.say(&heard).await;
    })
    .await;
    let port = free_address().port();
    let policy = json!({
        "inbound": [rule(None, "log", json!({"metadata": {"came": "${conn.client_ip}"}}))],
        "outbound": [rule(None, "log", json!({"metadata": {"carried": "${conn.bytes_in}"}}))],
    });
    let edge = json!({
        "hostports": [format!("a.test:{port}")],
        "backend": site.at(address).await,
        "policy": policy,
    });
    let edge = site.service.create("/edges/tcp", edge).await;
    let mut events = site.service.service.events();
    let talk = async || {
        let mut visitor = Peer::at(&format!("127.0.0.1:{port}")).await;
        visitor.say("hello").await;
        tokio::io::AsyncWriteExt::shutdown(&mut visitor.0).await.unwrap();
        visitor.rest().await
    };

    assert_eq!(talk().await, "hello");
    let Some(EventDelivery::Event(event)) = soon(events.next()).await else { panic!("no event") };
    assert_eq!(event.logs[0]["came"], "127.0.0.1", "{:?}", event.logs);
    assert_eq!(event.logs[1]["carried"].to_string().trim_matches('"'), "5", "{:?}", event.logs);
    let deny = json!({"inbound": [rule(None, "deny", json!(null))]});
    site.service.put(&format!("/edges/tcp/{edge}/policy"), deny).await;
    assert_eq!(talk().await, "");
}

#[tokio::test]
async fn an_endpoint_has_a_policy_as_json_or_yaml() {
    let edges = edges().await;
    let bind = async |policy: &str, webhook: Option<WebhookVerification>| {
        let options = EndpointOptions {
            traffic_policy: Some(document(policy)),
            webhook,
            ..EndpointOptions::default()
        };
        let wanted = EndpointSpec { options, ..EndpointSpec::any(Proto::Http) };
        edges.bind_endpoint(wanted, Direct::to(mirror().await)).await
    };
    let yaml = "on_http_request:\n  - expressions: [\"req.url.path == '/x'\"]\n    actions:\n      - type: deny\n";

    let endpoint = bind(yaml, None).await.unwrap();
    let mut visitor = Peer::to(&endpoint).await;
    visitor.say(&get("/x")).await;
    assert_eq!(status(&visitor.answer().await), "403");
    visitor.say(&get("/")).await;
    assert_eq!(status(&visitor.answer().await), "200");

    let nobody = r#"{"on_tcp_connect": [{"actions": [{"type": "deny"}]}]}"#;
    let endpoint = bind(nobody, None).await.unwrap();
    let mut visitor = Peer::to(&endpoint).await;
    visitor.say(&get("/")).await;
    assert_eq!(visitor.rest().await, "");

    for wrong in ["{", "a: [", r#"{"on_http_request": [{"actions": [{"type": "nope"}]}]}"#, "3"] {
        assert!(bind(wrong, None).await.is_err(), "{wrong}");
    }
    let unknown = WebhookVerification {
        enabled: None,
        provider: Some("nobody".into()),
        secret: Some(Secret("x".into())),
    };
    assert!(bind(yaml, Some(unknown)).await.is_err());
}
