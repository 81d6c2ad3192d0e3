//! Requests and answers on their way through an endpoint.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use ginnel_gateway::{EndpointSpec, GatewaySettings, Proto};

use tokio::io::AsyncWriteExt;
use tokio::sync::mpsc::UnboundedReceiver;

use super::support::{
    Direct, Peer, bound, edges, edges_with, header, host_of, mirror, soon, upstream,
};
use crate::service::support::free_address;

#[tokio::test]
async fn a_request_arrives_as_it_was_sent_with_the_visitor_named() {
    let edges = edges().await;
    let endpoint = bound(&edges, Direct::to(mirror().await)).await;
    let host = host_of(endpoint.url());
    let mut visitor = Peer::to(&endpoint).await;

    let said = format!(
        "POST /a/b?c=d%20e HTTP/1.1\r\nHost: {host}\r\nX-MiXed: One\r\nX-MiXed: Two\r\n\
         Content-Length: 5\r\n\r\nhello"
    );
    visitor.say(&said).await;
    let (head, seen) = visitor.answer().await;

    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    assert!(seen.starts_with("POST /a/b?c=d%20e HTTP/1.1\r\n"), "{seen}");
    assert!(seen.contains("\r\nX-MiXed: One\r\nX-MiXed: Two\r\n"), "{seen}");
    assert!(seen.ends_with("\r\n\r\nhello"), "{seen}");
    assert_eq!(header(&seen, "host"), Some(host.as_str()));
    assert_eq!(header(&seen, "x-forwarded-for"), Some("127.0.0.1"));
    assert_eq!(header(&seen, "x-forwarded-proto"), Some("http"));
    assert_eq!(header(&seen, "x-forwarded-host"), Some(host.as_str()));
}

#[tokio::test]
async fn connections_on_both_sides_are_used_again() {
    let edges = edges().await;
    let target = Direct::to(mirror().await);
    let endpoint = bound(&edges, target.clone()).await;
    let mut visitor = Peer::to(&endpoint).await;

    for number in 0..10 {
        visitor.say(&format!("GET /{number} HTTP/1.1\r\nHost: a\r\n\r\n")).await;
        let (_, seen) = visitor.answer().await;
        assert!(seen.starts_with(&format!("GET /{number} ")), "{seen}");
    }

    assert_eq!(target.dialed(), 1);
}

#[tokio::test]
async fn a_target_may_want_a_connection_for_each_request() {
    let edges = edges().await;
    let target = Direct::to(mirror().await);
    let target = Arc::new(Direct { reusable: false, ..Arc::into_inner(target).unwrap() });
    let endpoint = bound(&edges, target.clone()).await;
    let mut visitor = Peer::to(&endpoint).await;

    for _ in 0..3 {
        visitor.say("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
        visitor.answer().await;
    }

    assert_eq!(target.dialed(), 3);
}

#[tokio::test]
async fn pipelined_requests_are_answered_in_order() {
    let edges = edges().await;
    let endpoint = bound(&edges, Direct::to(mirror().await)).await;
    let mut visitor = Peer::to(&endpoint).await;

    let one =
        "POST /1 HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n0\r\n\r\n";
    visitor.say(&format!("{one}GET /2 HTTP/1.1\r\nHost: a\r\n\r\n")).await;

    assert!(visitor.answer().await.1.starts_with("POST /1 "));
    assert!(visitor.answer().await.1.starts_with("GET /2 "));
}

#[tokio::test]
async fn an_answer_streams_while_it_is_made() {
    let edges = edges().await;
    let (next, wait) = tokio::sync::mpsc::unbounded_channel::<()>();
    let wait = Arc::new(tokio::sync::Mutex::new(wait));
    let address = upstream(move |mut peer| {
        let wait = wait.clone();
        async move {
            peer.head().await;
            peer.say("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n").await;
            for number in 0..3 {
                peer.say(&format!("data: {number}\n\n")).await;
                wait.lock().await.recv().await;
            }
        }
    })
    .await;
    let endpoint = bound(&edges, Direct::to(address)).await;
    let mut visitor = Peer::to(&endpoint).await;

    visitor.say("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    let head = visitor.head().await;
    for number in 0..3 {
        // A chunk of 9 bytes; the upstream sends the next one only after this one came through.
        assert_eq!(visitor.exactly(14).await, format!("9\r\ndata: {number}\n\n\r\n"));
        next.send(()).unwrap();
    }

    assert_eq!(header(&head, "transfer-encoding"), Some("chunked"));
    assert_eq!(visitor.exactly(5).await, "0\r\n\r\n");
}

#[tokio::test]
async fn large_bodies_pass_both_ways() {
    let edges = edges().await;
    let address = upstream(|peer| async move {
        let mut peer = peer;
        let head = peer.head().await;
        let length: usize = header(&head, "content-length").unwrap().parse().unwrap();
        peer.say(&format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n")).await;
        let (mut reads, mut writes) = tokio::io::split(peer.0);
        let mut body = tokio::io::AsyncReadExt::take(&mut reads, length as u64);
        tokio::io::copy(&mut body, &mut writes).await.unwrap();
        writes.flush().await.unwrap();
        std::future::pending().await
    })
    .await;
    let endpoint = bound(&edges, Direct::to(address)).await;
    let body: Vec<u8> = (0..5_000_000_u32).map(|number| (number % 251) as u8).collect();
    let client = reqwest_client();

    let answer = soon(client.post(endpoint.url()).body(body.clone()).send()).await.unwrap();
    let echoed = soon(answer.bytes()).await.unwrap();

    assert!(echoed == body, "{} bytes", echoed.len());
}

fn reqwest_client() -> reqwest::Client {
    crate::service::support::client()
}

#[tokio::test]
async fn trailers_pass_both_ways() {
    let edges = edges().await;
    let (told, heard) = tokio::sync::mpsc::unbounded_channel();
    let heard = Arc::new(tokio::sync::Mutex::new(heard));
    let address = upstream(move |mut peer| {
        let told = told.clone();
        async move {
            told.send(peer.request().await.unwrap()).unwrap();
            peer.say(
                "HTTP/1.1 200 OK\r\nTrailer: X-Sum\r\nTransfer-Encoding: chunked\r\n\r\n\
                 2\r\nok\r\n0\r\nX-Sum: 7\r\n\r\n",
            )
            .await;
        }
    })
    .await;
    let endpoint = bound(&edges, Direct::to(address)).await;
    let mut visitor = Peer::to(&endpoint).await;

    visitor
        .say(
            "POST / HTTP/1.1\r\nHost: a\r\nTE: trailers\r\nConnection: TE\r\nTrailer: X-In\r\n\
             Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nX-In: 1\r\n\r\n",
        )
        .await;
    let (_, answered) = visitor.answer().await;
    let (head, body) = heard.lock().await.recv().await.unwrap();

    assert_eq!(answered, "2\r\nok\r\n0\r\nX-Sum: 7\r\n\r\n".replace("X-Sum", "x-sum"));
    assert_eq!(body.to_ascii_lowercase(), "3\r\nabc\r\n0\r\nx-in: 1\r\n\r\n");
    assert_eq!(header(&head, "te"), Some("trailers"));
}

#[tokio::test]
async fn a_body_waits_for_the_word_of_the_upstream() {
    let edges = edges().await;
    let address = upstream(|mut peer| async move {
        let head = peer.head().await;
        assert_eq!(header(&head, "expect"), Some("100-continue"));
        if head.starts_with("POST /no") {
            peer.say("HTTP/1.1 417 Expectation Failed\r\nContent-Length: 0\r\n\r\n").await;
            return;
        }
        peer.say("HTTP/1.1 100 Continue\r\n\r\n").await;
        assert_eq!(peer.exactly(4).await, "body");
        peer.say("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await;
    })
    .await;
    let endpoint = bound(&edges, Direct::to(address)).await;
    let head = |path: &str| {
        format!(
            "POST {path} HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n"
        )
    };

    let mut wanted = Peer::to(&endpoint).await;
    wanted.say(&head("/yes")).await;
    assert!(wanted.head().await.starts_with("HTTP/1.1 100 Continue"));
    wanted.say("body").await;
    assert!(wanted.head().await.starts_with("HTTP/1.1 200 OK"));

    let mut refused = Peer::to(&endpoint).await;
    refused.say(&head("/no")).await;
    assert!(refused.head().await.starts_with("HTTP/1.1 417 "));
}

#[tokio::test]
async fn a_websocket_talks_both_ways_until_one_side_ends() {
    let edges = edges().await;
    let address = upstream(|mut peer| async move {
        let head = peer.head().await;
        assert_eq!(header(&head, "connection"), Some("upgrade"));
        assert_eq!(header(&head, "upgrade"), Some("websocket"));
        // The first message comes with the head.
        peer.say(
            "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Accept: x\r\n\r\nfirst",
        )
        .await;
        let heard = peer.exactly(5).await;
        peer.say(&heard.to_uppercase()).await;
        assert_eq!(peer.rest().await, "");
        peer.say("last").await;
    })
    .await;
    let endpoint = bound(&edges, Direct::to(address)).await;
    let mut visitor = Peer::to(&endpoint).await;

    visitor
        .say("GET /ws HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n\r\n")
        .await;
    let head = visitor.head().await;
    assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
    assert_eq!(header(&head, "sec-websocket-accept"), Some("x"));
    assert_eq!(visitor.exactly(5).await, "first");
    // What is no HTTP at all passes as it is.
    visitor.say("a\n\0\r\r").await;
    assert_eq!(visitor.exactly(5).await, "A\n\0\r\r");
    visitor.0.shutdown().await.unwrap();

    assert_eq!(visitor.rest().await, "last");
}

#[tokio::test]
async fn an_answer_without_a_body_stays_without() {
    let edges = edges().await;
    let address = upstream(|mut peer| async move {
        while let Some((head, _)) = peer.request().await {
            peer.say(match &head[..4] {
                "HEAD" => "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n",
                "PUT " => "HTTP/1.1 204 No Content\r\n\r\n",
                _ => "HTTP/1.1 304 Not Modified\r\nETag: \"x\"\r\n\r\n",
            })
            .await;
        }
    })
    .await;
    let endpoint = bound(&edges, Direct::to(address)).await;
    let mut visitor = Peer::to(&endpoint).await;

    visitor.say("HEAD / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    assert_eq!(header(&visitor.head().await, "content-length"), Some("100"));
    visitor.say("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n").await;
    assert!(visitor.head().await.starts_with("HTTP/1.1 204 "));
    visitor.say("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    assert!(visitor.head().await.starts_with("HTTP/1.1 304 "));
}

#[tokio::test]
async fn only_the_service_sets_the_error_header() {
    let edges = edges().await;
    let address = upstream(|mut peer| async move {
        peer.head().await;
        peer.say(
            "HTTP/1.1 500 Oops\r\nNgrok-Error-Code: ERR_NGROK_1\r\nConnection: close, x-hop\r\n\
             X-Hop: 1\r\nKeep-Alive: timeout=5\r\nContent-Length: 0\r\n\r\n",
        )
        .await;
    })
    .await;
    let endpoint = bound(&edges, Direct::to(address)).await;
    let mut visitor = Peer::to(&endpoint).await;

    visitor.say("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    let head = visitor.head().await;

    assert!(head.starts_with("HTTP/1.1 500 "), "{head}");
    for name in ["ngrok-error-code", "x-hop", "keep-alive", "connection"] {
        assert_eq!(header(&head, name), None, "{name}");
    }
}

/// What a visitor is told when an upstream does this.
async fn told(said: &'static str) -> (String, String) {
    let edges = edges().await;
    let address = upstream(move |mut peer| async move {
        peer.head().await;
        peer.say(said).await;
    })
    .await;
    let endpoint = bound(&edges, Direct::to(address)).await;
    let mut visitor = Peer::to(&endpoint).await;
    visitor.say("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    let (head, body) = visitor.answer().await;
    let status = head.split(' ').nth(1).unwrap_or_default().to_owned();
    let code = header(&head, "ngrok-error-code").unwrap_or_default().to_owned();
    assert!(code.is_empty() || body.contains(&code), "{body}");
    (status, code)
}

#[tokio::test]
async fn an_upstream_that_fails_is_told_apart() {
    let told = async |said| {
        let (status, code) = told(said).await;
        format!("{status} {code}")
    };

    assert_eq!(told("").await, "502 ERR_NGROK_8012");
    assert_eq!(told("HTTP/1.1 200 OK\r\nContent-").await, "502 ERR_NGROK_3004");
    assert_eq!(told("SSH-2.0-x\r\n\r\n").await, "502 ERR_NGROK_3004");
    assert_eq!(told("HTTP/1.1 101 Switching Protocols\r\n\r\n").await, "502 ERR_NGROK_3004");
    assert_eq!(
        told("HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab").await,
        "502 ERR_NGROK_3004"
    );
}

#[tokio::test]
async fn an_upstream_that_is_gone_is_named() {
    let options =
        GatewaySettings { code_prefix: "ERR_OURS_".to_owned(), ..GatewaySettings::default() };
    let edges = edges_with(options).await;
    let endpoint = bound(&edges, Direct::to(free_address())).await;
    let mut visitor = Peer::to(&endpoint).await;

    visitor.say("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    let (head, body) = visitor.answer().await;

    assert!(head.starts_with("HTTP/1.1 502 "), "{head}");
    assert_eq!(header(&head, "ngrok-error-code"), Some("ERR_OURS_8012"));
    assert!(body.ends_with("\nERR_OURS_8012\n"), "{body}");
    endpoint.retarget(None);
    visitor.say("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    let (head, _) = visitor.answer().await;
    assert!(head.starts_with("HTTP/1.1 404 "), "{head}");
    assert_eq!(header(&head, "ngrok-error-code"), Some("ERR_OURS_3200"));
}

#[tokio::test]
async fn a_connection_that_closed_while_idle_costs_no_request() {
    let edges = edges().await;
    // Closes every connection after one answer, without saying so.
    let address = upstream(|mut peer| async move {
        peer.request().await;
        peer.say("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await;
        tokio::time::sleep(Duration::from_millis(1)).await;
    })
    .await;
    let endpoint = bound(&edges, Direct::to(address)).await;
    let mut visitor = Peer::to(&endpoint).await;

    for _ in 0..20 {
        visitor.say("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
        let head = visitor.head().await;
        assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Longer than the time in which a FIN only ends the requests of a visitor.
const LATE: Duration = Duration::from_millis(400);

/// An upstream that notes when its connection ends. It responds to requests for `/begun` with the beginning of a body.
async fn upstream_that_waits() -> (SocketAddr, UnboundedReceiver<()>) {
    let (left, leaving) = tokio::sync::mpsc::unbounded_channel();
    let address = upstream(move |mut peer| {
        let left = left.clone();
        async move {
            if peer.head().await.starts_with("GET /begun") {
                peer.say("HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nabc").await;
            }
            peer.rest().await;
            left.send(()).unwrap();
        }
    })
    .await;
    (address, leaving)
}

/// Nothing, and what makes a request take the full path.
const WAYS: [&str; 2] = ["", "TE: trailers\r\n"];

#[tokio::test]
async fn a_visitor_who_leaves_frees_the_upstream() {
    let edges = edges().await;
    let (address, mut leaving) = upstream_that_waits().await;
    let endpoint = bound(&edges, Direct::to(address)).await;
    for way in WAYS {
        let mut visitor = Peer::to(&endpoint).await;

        visitor.say(&format!("GET / HTTP/1.1\r\nHost: a\r\n{way}\r\n")).await;
        tokio::time::sleep(LATE).await;
        drop(visitor);

        soon(leaving.recv()).await.unwrap();
    }
}

#[tokio::test]
async fn a_reset_frees_the_upstream_at_any_time() {
    let edges = edges().await;
    let (address, mut leaving) = upstream_that_waits().await;
    let endpoint = bound(&edges, Direct::to(address)).await;
    for way in WAYS {
        for path in ["/", "/begun"] {
            let mut visitor = Peer::to(&endpoint).await;

            visitor.say(&format!("GET {path} HTTP/1.1\r\nHost: a\r\n{way}\r\n")).await;
            if path == "/begun" {
                visitor.head().await;
            }
            visitor.reset();

            soon(leaving.recv()).await.unwrap();
        }
    }
}

#[tokio::test]
async fn a_visitor_who_only_ends_its_requests_gets_all_responses() {
    let edges = edges().await;
    let address = upstream(|mut peer| async move {
        while let Some((head, body)) = peer.request().await {
            tokio::time::sleep(LATE).await;
            let seen = format!("{}{body}", head.split(' ').nth(1).unwrap());
            let length = seen.len();
            peer.say(&format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{seen}")).await;
        }
    })
    .await;
    let endpoint = bound(&edges, Direct::to(address)).await;
    for way in WAYS {
        for (requests, bodies) in [
            (format!("GET /a HTTP/1.1\r\nHost: a\r\n{way}\r\n"), &["/a"][..]),
            (format!("GET /a HTTP/1.0\r\nHost: a\r\n{way}\r\n"), &["/a"]),
            (
                format!("POST /p HTTP/1.1\r\nHost: a\r\n{way}Content-Length: 4\r\n\r\nbody"),
                &["/pbody"],
            ),
            (
                format!(
                    "POST /c HTTP/1.1\r\nHost: a\r\n{way}Transfer-Encoding: chunked\r\n\r\n\
                     4\r\nbody\r\n0\r\n\r\n"
                ),
                &["/c4\r\nbody\r\n0\r\n"],
            ),
            (
                format!(
                    "GET /a HTTP/1.1\r\nHost: a\r\n{way}\r\nGET /b HTTP/1.1\r\nHost: a\r\n{way}\r\n"
                ),
                &["/a", "/b"],
            ),
        ] {
            let mut visitor = Peer::to(&endpoint).await;

            visitor.say(&requests).await;
            visitor.end_requests().await;

            let seen = soon(visitor.rest()).await;
            assert_eq!(seen.matches(" 200 OK").count(), bodies.len(), "{seen}");
            assert!(bodies.iter().all(|body| seen.contains(&format!("\r\n\r\n{body}"))), "{seen}");
        }
    }
}

#[tokio::test]
async fn a_visitor_may_end_its_requests_once_the_response_has_begun() {
    let edges = edges().await;
    let (go_on, going_on) = tokio::sync::watch::channel(0);
    let address = upstream(move |mut peer| {
        let mut going_on = going_on.clone();
        async move {
            peer.request().await;
            peer.say("HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nabc").await;
            going_on.mark_unchanged();
            going_on.changed().await.unwrap();
            peer.say("def").await;
        }
    })
    .await;
    let endpoint = bound(&edges, Direct::to(address)).await;
    for way in WAYS {
        let mut visitor = Peer::to(&endpoint).await;
        visitor.say(&format!("GET / HTTP/1.1\r\nHost: a\r\n{way}\r\n")).await;
        visitor.head().await;
        assert_eq!(visitor.exactly(3).await, "abc");

        tokio::time::sleep(LATE).await;
        visitor.end_requests().await;
        tokio::time::sleep(Duration::from_millis(20)).await;
        go_on.send_modify(|times| *times += 1);

        assert_eq!(soon(visitor.rest()).await, "def");
    }
}

#[tokio::test]
async fn the_target_may_see_another_host() {
    let edges = edges().await;
    let host_header = Some("inside.test".into());
    let wanted = EndpointSpec { host_header, ..EndpointSpec::any(Proto::Http) };
    let endpoint = edges.bind_endpoint(wanted, Direct::to(mirror().await)).await.unwrap();
    let mut visitor = Peer::to(&endpoint).await;

    visitor.say("GET / HTTP/1.1\r\nHost: outside.test\r\n\r\n").await;
    let (_, seen) = visitor.answer().await;

    assert_eq!(header(&seen, "host"), Some("inside.test"));
    assert_eq!(header(&seen, "x-forwarded-host"), Some("outside.test"));
}

#[tokio::test]
async fn names_share_a_port_below_a_base_domain() {
    let settings =
        GatewaySettings { base_domain: Some("tunnels.test".into()), ..GatewaySettings::default() };
    let edges = edges_with(settings).await;
    let port = edges.http_address().unwrap().port();
    let shared = format!("127.0.0.1:{port}");
    let named = EndpointSpec { subdomain: Some("Web".into()), ..EndpointSpec::any(Proto::Http) };
    let star =
        EndpointSpec { host: Some("*.web.tunnels.test".into()), ..EndpointSpec::any(Proto::Http) };

    let one = edges.bind_endpoint(named.clone(), Direct::to(mirror().await)).await.unwrap();
    let any = edges.bind_endpoint(star, Direct::to(mirror().await)).await.unwrap();
    let other = edges
        .bind_endpoint(EndpointSpec::any(Proto::Http), Direct::to(mirror().await))
        .await
        .unwrap();

    assert_eq!(one.url(), format!("http://web.tunnels.test:{port}"));
    assert_eq!(any.host(), Some("*.web.tunnels.test"));
    assert!(other.host().unwrap().ends_with(".tunnels.test"));
    let status = async |host: &str| {
        let mut visitor = Peer::at(&shared).await;
        visitor.say(&format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n")).await;
        visitor.answer().await.0.split(' ').nth(1).unwrap().to_owned()
    };
    assert_eq!(status(&format!("WEB.tunnels.test:{port}")).await, "200");
    assert_eq!(status("a.b.web.tunnels.test").await, "200");
    assert_eq!(status("nobody.tunnels.test").await, "404");
    let taken = edges.bind_endpoint(named.clone(), Direct::to(mirror().await)).await;
    assert_eq!(taken.err().unwrap().code(), 334);
    drop(one);
    assert_eq!(status("web.tunnels.test").await, "404");
    assert!(edges.bind_endpoint(named, Direct::to(mirror().await)).await.is_ok());
}

#[tokio::test]
async fn a_subdomain_is_one_label_below_a_base_domain() {
    let settings =
        GatewaySettings { base_domain: Some("tunnels.test".into()), ..GatewaySettings::default() };
    let named = |label: &str| EndpointSpec {
        subdomain: Some(label.into()),
        ..EndpointSpec::any(Proto::Http)
    };
    let refused = async |edges: &ginnel_gateway::Gateway, label: &str| {
        let bound = edges.bind_endpoint(named(label), Direct::to(mirror().await)).await;
        bound.err().unwrap().to_string()
    };

    let with = edges_with(settings).await;
    for label in ["../x", "a.b", "a b", &"x".repeat(64)] {
        let told = refused(&with, label).await;
        assert!(told.starts_with("subdomain: ") && told.contains("label"), "{told}");
    }
    let told = refused(&edges().await, "web").await;
    assert!(told.starts_with("subdomain: the service has no base domain"), "{told}");
}

#[tokio::test]
async fn an_endpoint_gets_its_port_back() {
    let edges = edges().await;
    let target = Direct::to(mirror().await);
    let first = bound(&edges, target.clone()).await;
    let (url, address) = (first.url().to_owned(), first.address().unwrap());
    let again =
        || EndpointSpec { addr: Some(address.to_string()), ..EndpointSpec::any(Proto::Http) };

    let taken = edges.bind_endpoint(again(), target.clone()).await;
    assert_eq!(taken.err().unwrap().code(), 334);
    drop(first);
    // The listener closes when its task sees that the endpoint is gone.
    let second = soon(async {
        loop {
            match edges.bind_endpoint(again(), target.clone()).await {
                Ok(second) => return second,
                Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
            }
        }
    })
    .await;

    assert_eq!(second.url(), url);
}

#[tokio::test]
async fn stopping_finishes_what_is_in_flight() {
    let edges = edges().await;
    let address = upstream(|mut peer| async move {
        peer.head().await;
        tokio::time::sleep(Duration::from_millis(200)).await;
        peer.say("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await;
    })
    .await;
    let endpoint = bound(&edges, Direct::to(address)).await;
    let mut busy = Peer::to(&endpoint).await;
    let mut idle = Peer::to(&endpoint).await;
    busy.say("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    tokio::time::sleep(Duration::from_millis(50)).await;

    let stopping = tokio::spawn(async move { edges.stop(Duration::from_secs(10)).await });
    let (head, body) = busy.answer().await;

    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    assert_eq!(body, "ok");
    assert_eq!(idle.rest().await, "");
    soon(stopping).await.unwrap();
}
