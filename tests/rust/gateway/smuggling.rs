//! Requests that two readers could understand differently are refused.

use super::support::{Direct, Peer, bound, edges, mirror};

/// What is sent after a request line and `Host: a`.
const AMBIGUOUS: &[&str] = &[
    "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
    "Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello",
    "Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
    "Content-Length: 5, 5\r\n\r\nhello",
    "Content-Length: +5\r\n\r\nhello",
    "Content-Length: -5\r\n\r\nhello",
    "Content-Length: 0x5\r\n\r\nhello",
    "Content-Length: 5 5\r\n\r\nhello",
    "Content-Length:\r\n\r\n",
    "Content-Length: 99999999999999999999\r\n\r\n",
    "Transfer-Encoding: gzip\r\n\r\n",
    "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
    "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    "Transfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n",
    "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
    "Transfer-Encoding\r\n : chunked\r\n\r\n0\r\n\r\n",
    " Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "X: y\r\n Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "X: y\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "X: y\r\nTransfer-Encoding: chunked\n\r\n0\r\n\r\n",
    "X: y\rTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "X: y\0z\r\n\r\n",
    "X y: z\r\n\r\n",
    ": z\r\n\r\n",
    "nothing\r\n\r\n",
    "Host: b\r\n\r\n",
    "X: y\n\n",
];

#[tokio::test]
async fn an_ambiguous_head_is_refused_and_the_connection_closed() {
    let edges = edges().await;
    let target = Direct::to(mirror().await);
    let endpoint = bound(&edges, target.clone()).await;
    for line in ["POST / HTTP/1.1\r\n", "GET / HTTP/1.1\r\n"] {
        for rest in AMBIGUOUS {
            let mut visitor = Peer::to(&endpoint).await;

            visitor.say(&format!("{line}Host: a\r\n{rest}GET /smuggled HTTP/1.1\r\n\r\n")).await;
            let answer = visitor.rest().await;

            assert!(answer.starts_with("HTTP/1.1 400 "), "{rest:?}: {answer}");
            assert_eq!(answer.matches("HTTP/1.1").count(), 1, "{rest:?}: {answer}");
        }
    }
    assert_eq!(target.dialed(), 0, "nothing of it went on");
}

#[tokio::test]
async fn a_body_with_bad_framing_reaches_nobody_whole() {
    let edges = edges().await;
    let endpoint = bound(&edges, Direct::to(mirror().await)).await;
    for chunks in [
        "5\r\nhello0\r\n\r\n",
        "5\nhello\r\n0\r\n\r\n",
        "5\rhello\r\n0\r\n\r\n",
        "0x5\r\nhello\r\n0\r\n\r\n",
        "+5\r\nhello\r\n0\r\n\r\n",
        "\r\nhello\r\n0\r\n\r\n",
        "5 x\r\nhello\r\n0\r\n\r\n",
        "5;\n\r\nhello\r\n0\r\n\r\n",
        "10000000000000005\r\nhello\r\n0\r\n\r\n",
        "5\r\nhello\n0\r\n\r\n",
        "5\r\nhello\r\n0\r\nno colon\r\n\r\n",
        "5\r\nhello\r\n0\r\nX: y\n\r\n",
    ] {
        let mut visitor = Peer::to(&endpoint).await;

        let head = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
        visitor.say(&format!("{head}{chunks}GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n")).await;
        let answer = visitor.rest().await;

        assert!(!answer.contains("200 OK"), "{chunks:?}: {answer}");
    }
}

#[tokio::test]
async fn a_head_that_turns_ambiguous_after_its_beginning_is_refused() {
    let edges = edges().await;
    let endpoint = bound(&edges, Direct::to(mirror().await)).await;
    for first in
        ["GET / HTTP/1.1\r\nHost: a\r\n", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n"]
    {
        let mut visitor = Peer::to(&endpoint).await;
        visitor.say(&format!("{first}\r\n")).await;
        assert!(visitor.answer().await.0.starts_with("HTTP/1.1 200 "), "{first}");

        visitor.say("GET / HTTP/1.1\r\nHost: a\r\nX: y").await;
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        visitor.say("z\r\nContent-Length: +5\r\n\r\nhello").await;

        let answer = visitor.rest().await;
        assert!(answer.starts_with("HTTP/1.1 400 "), "{first}: {answer}");
    }
}

#[tokio::test]
async fn what_comes_before_an_ambiguous_request_is_answered() {
    let edges = edges().await;
    let endpoint = bound(&edges, Direct::to(mirror().await)).await;
    let mut visitor = Peer::to(&endpoint).await;

    let good = "GET /good HTTP/1.1\r\nHost: a\r\n\r\n";
    visitor.say(&format!("{good}{good}GET / HTTP/1.1\nHost: a\r\n\r\n{good}")).await;
    let answers = visitor.rest().await;

    assert_eq!(answers.matches("HTTP/1.1 200 OK").count(), 2, "{answers}");
    assert_eq!(answers.matches("HTTP/1.1 400 ").count(), 1, "{answers}");
}

#[tokio::test]
async fn a_request_has_limits() {
    let edges = edges().await;
    let endpoint = bound(&edges, Direct::to(mirror().await)).await;
    let status = async |request: String| {
        let mut visitor = Peer::to(&endpoint).await;
        visitor.say(&request).await;
        visitor.head().await.split(' ').nth(1).unwrap_or_default().to_owned()
    };
    let headers = |count: usize| "X: y\r\n".repeat(count);

    let path = "x".repeat(8191);
    assert_eq!(status(format!("GET /{path} HTTP/1.1\r\nHost: a\r\n\r\n")).await, "200");
    assert_eq!(status(format!("GET /{path}x HTTP/1.1\r\nHost: a\r\n\r\n")).await, "414");
    assert_eq!(status(format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", headers(99))).await, "200");
    assert_eq!(status(format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", headers(100))).await, "431");
    let long = format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}\r\n\r\n", "y".repeat(65_600));
    assert_eq!(status(long).await, "431");
    assert_eq!(status("GET / HTTP/1.1\r\n\r\n".to_owned()).await, "400");
    assert_eq!(status("CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n\r\n".to_owned()).await, "405");
}
