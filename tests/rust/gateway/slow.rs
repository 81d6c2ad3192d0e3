//! Who takes too long, and who may take its time.

use std::time::{Duration, Instant};

use ginnel_gateway::{Gateway, GatewaySettings, Timeouts};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::sleep;

use super::support::{Direct, bound, edges_with, host_of, soon, upstream};

const TICK: Duration = Duration::from_millis(20);

/// A public side that is in a hurry: 80 ms for a head, 240 ms for a body that stalls on either side, 720 ms between
/// requests, and a second for an upstream to think.
async fn hurried() -> Gateway {
    let timeouts = Timeouts {
        head: 4 * TICK,
        stall: 12 * TICK,
        upstream_stall: 12 * TICK,
        idle: 36 * TICK,
        response: Some(Duration::from_secs(1)),
        ..Timeouts::default()
    };
    edges_with(GatewaySettings { timeouts, ..GatewaySettings::default() }).await
}

/// A visitor that says something and then only listens: what it hears, and for how many ticks.
async fn hear(host: &str, said: &[&str]) -> (String, u128) {
    let mut stream = TcpStream::connect(host).await.unwrap();
    let start = Instant::now();
    for text in said {
        stream.write_all(text.as_bytes()).await.unwrap();
        sleep(Duration::from_millis(5)).await;
    }
    let mut heard = String::new();
    // A reset is an end as well.
    let _ = soon(stream.read_to_string(&mut heard)).await;
    (heard, start.elapsed().as_millis() / TICK.as_millis())
}

#[tokio::test]
async fn who_sends_no_head_is_let_go() {
    let edges = hurried().await;
    let address = upstream(|_| async {}).await;
    let endpoint = bound(&edges, Direct::to(address)).await;
    let host = host_of(endpoint.url());

    for said in [&[][..], &["GET / HTTP/1.1\r\nHo"], &["GET / HTTP/1.1\r\n", "Host: a\r\n"]] {
        let (heard, ticks) = hear(&host, said).await;
        assert_eq!(heard, "", "{said:?}");
        assert!(ticks >= 3, "{said:?}: {ticks}");
    }
}

#[tokio::test]
async fn who_sends_no_body_is_let_go() {
    let edges = hurried().await;
    let address = upstream(|mut peer| async move {
        peer.head().await;
        std::future::pending().await
    })
    .await;
    let endpoint = bound(&edges, Direct::to(address)).await;

    let said = ["POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n", "abc"];
    let (heard, ticks) = hear(&host_of(endpoint.url()), &said).await;

    assert_eq!(heard, "");
    assert!(ticks >= 11, "{ticks}");
}

#[tokio::test]
async fn an_idle_connection_lives_for_a_while() {
    let edges = hurried().await;
    let address = upstream(|mut peer| async move {
        peer.head().await;
        peer.say("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await;
        std::future::pending().await
    })
    .await;
    let endpoint = bound(&edges, Direct::to(address)).await;

    let (heard, ticks) =
        hear(&host_of(endpoint.url()), &["GET / HTTP/1.1\r\nHost: a\r\n\r\n"]).await;

    assert!(heard.starts_with("HTTP/1.1 200 OK\r\n"), "{heard}");
    assert!(ticks >= 35, "{ticks}");
}

#[tokio::test]
async fn who_takes_no_answer_is_let_go() {
    let edges = hurried().await;
    let (gone, mut going) = tokio::sync::mpsc::unbounded_channel();
    let address = upstream(move |mut peer| {
        let gone = gone.clone();
        async move {
            peer.head().await;
            peer.say("HTTP/1.1 200 OK\r\n\r\n").await;
            while peer.0.write_all(&[0; 65536]).await.is_ok() {}
            gone.send(()).unwrap();
        }
    })
    .await;
    let endpoint = bound(&edges, Direct::to(address)).await;
    let mut stream = TcpStream::connect(host_of(endpoint.url())).await.unwrap();

    stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();

    soon(going.recv()).await.unwrap();
}

#[tokio::test]
async fn an_upstream_may_think_but_not_for_ever() {
    let edges = hurried().await;
    let address = upstream(|mut peer| async move {
        let head = peer.head().await;
        if head.starts_with("GET /slow") {
            sleep(30 * TICK).await;
            peer.say("HTTP/1.1 200 OK\r\n\r\nat ").await;
            // A body that ends with the connection may pause for as long as it likes.
            sleep(60 * TICK).await;
            peer.say("last").await;
        } else {
            std::future::pending().await
        }
    })
    .await;
    let endpoint = bound(&edges, Direct::to(address)).await;
    let host = host_of(endpoint.url());
    let request = |path: &str| format!("GET {path} HTTP/1.0\r\nHost: a\r\n\r\n");

    let (heard, _) = hear(&host, &[&request("/slow")]).await;
    assert!(heard.ends_with("\r\n\r\nat last"), "{heard}");
    let (heard, ticks) = hear(&host, &[&request("/never")]).await;
    assert!(heard.contains(" 504 ") && heard.contains("ERR_NGROK_3004"), "{heard}");
    assert!(ticks >= 49, "{ticks}");
}

/// Requests on the fast path, and on the full path because they ask for another protocol.
const PATHS: [&str; 2] = [
    "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
    "GET / HTTP/1.1\r\nHost: a\r\nConnection: close, upgrade\r\nUpgrade: other\r\n\r\n",
];

/// The response of an upstream that sends `head`, `start` and, after a pause, `rest`.
async fn paused_response(said: &str, head: &str, [start, rest]: [&'static str; 2]) -> String {
    let edges = hurried().await;
    let begin = format!("HTTP/1.1 200 OK\r\n{head}\r\n{start}");
    let address = upstream(move |mut peer| {
        let begin = begin.clone();
        async move {
            peer.head().await;
            peer.say(&begin).await;
            sleep(30 * TICK).await;
            peer.say(rest).await;
            // The visitor may have been given up.
            std::future::pending::<()>().await;
        }
    })
    .await;
    let endpoint = bound(&edges, Direct::to(address)).await;
    hear(&host_of(endpoint.url()), &[said]).await.0
}

#[tokio::test]
async fn a_response_body_that_stops_is_cut_off() {
    for said in PATHS {
        for (head, parts) in [
            ("Content-Length: 10\r\n", ["begun", "ended"]),
            ("Transfer-Encoding: chunked\r\n", ["5\r\nbegun\r\n", "5\r\nended\r\n0\r\n\r\n"]),
            // Not an event stream.
            ("Content-Type: text/event\r\nContent-Length: 10\r\n", ["begun", "ended"]),
        ] {
            let heard = paused_response(said, head, parts).await;

            assert!(heard.contains("begun") && !heard.contains("ended"), "{said}{head}{heard}");
            assert!(!heard.ends_with("0\r\n\r\n"), "{said}{head}{heard}");
        }
    }
}

#[tokio::test]
async fn event_streams_and_grpc_may_pause() {
    for said in PATHS {
        for media_type in
            ["text/event-stream", "Text/Event-Stream; charset=utf-8", "application/grpc+proto"]
        {
            let head = format!("Content-Type: {media_type}\r\nContent-Length: 10\r\n");
            let heard = paused_response(said, &head, ["begun", "ended"]).await;

            assert!(heard.ends_with("begunended"), "{said}{head}{heard}");
        }
    }
}
