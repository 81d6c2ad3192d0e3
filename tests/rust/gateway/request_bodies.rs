//! Requests with bodies are carried as they came, to agents and to addresses.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc;

use super::configured::EdgeFixture;
use super::support::{Direct, Peer, bound, edges, mirror, soon, upstream};

/// A header whose blanks go on only where the request goes on as it was written.
const BLANKS: &str = "X-Odd:  two  \r\n";

/// The fields and bodies of requests.
fn bodies() -> Vec<(String, String)> {
    let lengths = [0, 5, 300_000];
    let of_length =
        lengths.map(|length| (format!("Content-Length: {length}\r\n"), "x".repeat(length)));
    let chunked = [
        "0\r\n\r\n".to_owned(),
        format!("5\r\nhello\r\n40000\r\n{}\r\n0\r\n\r\n", "y".repeat(0x40000)),
    ];
    let of_chunks = chunked.map(|body| ("Transfer-Encoding: chunked\r\n".to_owned(), body));
    of_length.into_iter().chain(of_chunks).collect()
}

/// Sends requests with bodies, and one without after each, all on one connection.
async fn carries_bodies(visitor: &mut Peer, host: &str) {
    for method in ["POST", "PUT", "PATCH", "DELETE", "GET"] {
        for (fields, body) in bodies() {
            let head = format!("{method} /a HTTP/1.1\r\nHost: {host}\r\n{BLANKS}{fields}\r\n");
            let after = format!("GET /after HTTP/1.1\r\nHost: {host}\r\n\r\n");
            for cut in [0, head.len(), head.len() + body.len() / 2, head.len() + body.len()] {
                let request = format!("{head}{body}{after}");
                let (first, second) = request.split_at(cut);
                visitor.say(first).await;
                tokio::task::yield_now().await;
                visitor.say(second).await;

                let (_, seen) = visitor.answer().await;
                let (_, seen_after) = visitor.answer().await;
                let shown = seen.get(..seen.len().min(300)).unwrap_or_default();
                assert!(seen.starts_with(&format!("{method} /a HTTP/1.1\r\n")), "{shown}");
                assert!(seen.contains(BLANKS) && seen.contains(&fields), "{shown}");
                assert!(seen.ends_with(&format!("\r\n\r\n{body}")), "{shown}");
                assert!(seen_after.starts_with("GET /after HTTP/1.1\r\n"), "{seen_after}");
            }
        }
    }
}

#[tokio::test]
async fn an_agent_gets_bodies_as_they_came() {
    let edges = edges().await;
    let target = Direct::to(mirror().await);
    let endpoint = bound(&edges, target.clone()).await;
    let mut visitor = Peer::to(&endpoint).await;

    carries_bodies(&mut visitor, "a").await;

    assert_eq!(target.dialed(), 1, "one connection carries them all");
}

#[tokio::test]
async fn an_address_gets_bodies_as_they_came() {
    let site = EdgeFixture::start().await;
    let edge = site.edge("a.test").await;
    let backend = site.at(mirror().await).await;
    site.route(&edge, "/", json!({"backend": backend})).await;
    let mut visitor = site.visitor().await;

    carries_bodies(&mut visitor, "a.test").await;
}

#[tokio::test]
async fn an_early_answer_arrives_and_ends_the_connection() {
    let address = upstream(|mut peer| async move {
        peer.head().await;
        peer.say("HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\nno").await;
        std::future::pending().await
    });
    let edges = edges().await;
    let endpoint = bound(&edges, Direct::to(address.await)).await;
    let mut visitor = Peer::to(&endpoint).await;

    visitor.say("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\nbegun").await;

    let said = visitor.rest().await;
    assert!(said.starts_with("HTTP/1.1 413 ") && said.ends_with("\r\n\r\nno"), "{said}");
}

#[tokio::test]
async fn a_visitor_may_send_all_before_it_takes_anything() {
    const LENGTH: usize = 24 << 20;
    let (sender, mut received) = mpsc::unbounded_channel();
    let sender = Arc::new(sender);
    let address = upstream(move |mut peer| {
        let sender = sender.clone();
        async move {
            peer.head().await;
            peer.say(&format!("HTTP/1.1 200 OK\r\nContent-Length: {LENGTH}\r\n\r\n")).await;
            let (read, mut write) = tokio::io::split(peer.0);
            let mut read = read.take(LENGTH as u64);
            let (answer, mut sink) = (vec![b'a'; LENGTH - 1], tokio::io::sink());
            let (copied, _) =
                tokio::join!(tokio::io::copy(&mut read, &mut sink), write.write_all(&answer));
            // The answer is not complete before the request is.
            let _ = write.write_all(b"z").await;
            let _ = sender.send(copied.unwrap_or_default());
        }
    });
    let edges = edges().await;
    let endpoint = bound(&edges, Direct::to(address.await)).await;
    let mut visitor = Peer::to(&endpoint).await;

    visitor.say(&format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {LENGTH}\r\n\r\n")).await;
    // Nothing of the answer is taken before all of the body is gone.
    soon(visitor.say_bytes(&vec![b'b'; LENGTH])).await;
    assert!(visitor.head().await.starts_with("HTTP/1.1 200 "));
    visitor.exactly(LENGTH).await;

    assert_eq!(soon(received.recv()).await, Some(LENGTH as u64));
}

#[tokio::test]
async fn a_body_that_was_begun_is_not_sent_again() {
    let requests = Arc::new(AtomicUsize::default());
    let counter = requests.clone();
    let address = upstream(move |mut peer| {
        let counter = counter.clone();
        async move {
            peer.request().await;
            peer.say("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await;
            if peer.request().await.is_some() {
                counter.fetch_add(1, Relaxed);
            }
        }
    });
    let edges = edges().await;
    let endpoint = bound(&edges, Direct::to(address.await)).await;
    let mut visitor = Peer::to(&endpoint).await;
    visitor.say("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    visitor.answer().await;

    visitor.say("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello").await;

    assert!(visitor.answer().await.0.starts_with("HTTP/1.1 502 "));
    assert_eq!(requests.load(Relaxed), 1);
}

#[tokio::test]
async fn fields_behind_a_body_that_nobody_announced_do_not_go_on() {
    let edges = edges().await;
    let endpoint = bound(&edges, Direct::to(mirror().await)).await;
    let mut visitor = Peer::to(&endpoint).await;
    let head = format!("POST / HTTP/1.1\r\nHost: a\r\n{BLANKS}Transfer-Encoding: chunked\r\n\r\n");
    let body = "5\r\nhello\r\n0\r\nX-Forwarded-For: 192.0.2.9\r\nX-More: 1\r\n\r\n";

    for cut in 0..=body.len() {
        let (first, second) = body.split_at(cut);
        visitor.say(&format!("{head}{first}")).await;
        tokio::task::yield_now().await;
        visitor.say(second).await;
        let (_, seen) = visitor.answer().await;

        assert!(seen.contains(BLANKS), "{seen}");
        assert!(seen.ends_with("\r\n\r\n5\r\nhello\r\n0\r\n\r\n"), "{cut}: {seen}");
    }
}

#[tokio::test]
async fn a_visitor_who_leaves_within_a_body_frees_the_upstream() {
    let (sender, mut ended) = mpsc::unbounded_channel();
    let sender = Arc::new(sender);
    let address = upstream(move |mut peer| {
        let sender = sender.clone();
        async move {
            peer.head().await;
            let _ = sender.send(peer.rest().await);
        }
    });
    let edges = edges().await;
    let endpoint = bound(&edges, Direct::to(address.await)).await;
    let mut visitor = Peer::to(&endpoint).await;
    visitor.say("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nhello").await;

    drop(visitor);

    assert_eq!(soon(ended.recv()).await.as_deref(), Some("hello"));
}
