//! Upstreams that speak HTTP/2, as agents may ask for.

use std::sync::Arc;

use ginnel_gateway::{
    BoxFuture, ConnectionReuse, DialError, Io, RouteRef, Target, UpstreamProtocol, Visitor,
};

use bytes::Bytes;
use h2::server::SendResponse;
use h2::{Reason, RecvStream};
use http::{HeaderMap, HeaderValue, Request, Response};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

use super::support::{Direct, Peer, bound, edges, header, soon, upstream};

type Call = (Request<RecvStream>, SendResponse<Bytes>);

/// A target that is spoken to with HTTP/2.
struct Http2(Arc<Direct>);

impl Target for Http2 {
    fn key(&self) -> &str {
        self.0.key()
    }

    fn reuse(&self) -> ConnectionReuse {
        self.0.reuse()
    }

    fn protocol(&self) -> UpstreamProtocol {
        UpstreamProtocol::Http2
    }

    fn is_agent(&self) -> bool {
        true
    }

    fn dial<'a>(
        &'a self,
        visitor: &'a Visitor,
        through: &'a RouteRef,
    ) -> BoxFuture<'a, Result<Io, DialError>> {
        self.0.dial(visitor, through)
    }
}

/// An upstream whose requests are answered by the test.
struct Upstream {
    direct: Arc<Direct>,
    calls: mpsc::UnboundedReceiver<Call>,
}

impl Upstream {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let direct = Direct::to(listener.local_addr().unwrap());
        let (tell, calls) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(take_calls(stream, tell.clone()));
            }
        });
        Self { direct, calls }
    }

    fn target(&self) -> Arc<Http2> {
        Arc::new(Http2(self.direct.clone()))
    }

    async fn next(&mut self) -> Call {
        soon(self.calls.recv()).await.unwrap()
    }
}

async fn take_calls(stream: TcpStream, tell: mpsc::UnboundedSender<Call>) {
    let mut connection = h2::server::handshake(stream).await.unwrap();
    while let Some(Ok(call)) = connection.accept().await {
        let ends = call.0.uri().path() == "/last";
        let _ = tell.send(call);
        if ends {
            connection.graceful_shutdown();
        }
    }
}

fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
    pairs
        .iter()
        .map(|(name, value)| (name.parse().unwrap(), HeaderValue::from_static(value)))
        .collect()
}

#[tokio::test]
async fn a_request_becomes_a_stream_and_its_trailers_pass() {
    let (edges, mut upstream) = (edges().await, Upstream::start().await);
    let endpoint = bound(&edges, upstream.target()).await;
    let mut visitor = Peer::to(&endpoint).await;

    visitor
        .say(
            "POST /a?b HTTP/1.1\r\nHost: shop.test\r\nTE: trailers\r\nTrailer: X-In\r\n\
             Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nX-In: 1\r\n\r\n",
        )
        .await;
    let (request, mut respond) = upstream.next().await;
    let (parts, mut body) = request.into_parts();
    let data = soon(body.data()).await.unwrap().unwrap();
    let trailers = loop {
        match soon(body.data()).await {
            Some(piece) => assert!(piece.unwrap().is_empty()),
            None => break soon(body.trailers()).await.unwrap(),
        }
    };
    let head = Response::builder().header("trailer", "x-sum").body(()).unwrap();
    let mut stream = respond.send_response(head, false).unwrap();
    stream.send_data("ok".into(), false).unwrap();
    stream.send_trailers(headers(&[("x-sum", "7")])).unwrap();
    let (_, answered) = visitor.answer().await;

    assert_eq!(parts.uri, "http://shop.test/a?b");
    assert_eq!(parts.headers["te"], "trailers");
    assert!(!parts.headers.contains_key("host"));
    assert_eq!((&data[..], trailers), (&b"abc"[..], Some(headers(&[("x-in", "1")]))));
    assert_eq!(answered, "2\r\nok\r\n0\r\nx-sum: 7\r\n\r\n");
}

#[tokio::test]
async fn a_connection_carries_one_request_after_the_other() {
    let (edges, mut upstream) = (edges().await, Upstream::start().await);
    let endpoint = bound(&edges, upstream.target()).await;
    let mut visitor = Peer::to(&endpoint).await;

    for path in ["/1", "/2", "/last", "/4"] {
        visitor.say(&format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n")).await;
        let (request, mut respond) = upstream.next().await;
        assert_eq!(request.uri().path(), path);
        let mut stream = respond.send_response(Response::new(()), false).unwrap();
        stream.send_data(path.into(), true).unwrap();
        let (head, body) = visitor.answer().await;
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
        assert!(body.contains(path), "{body}");
    }

    assert_eq!(upstream.direct.dialed(), 2);
}

#[tokio::test]
async fn a_stream_that_is_refused_on_a_kept_connection_is_tried_again() {
    let (edges, mut upstream) = (edges().await, Upstream::start().await);
    let endpoint = bound(&edges, upstream.target()).await;
    let mut visitor = Peer::to(&endpoint).await;
    let request = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";

    visitor.say(request).await;
    upstream.next().await.1.send_response(Response::new(()), true).unwrap();
    visitor.answer().await;
    // Only what has been idle for a moment may have been closed meanwhile.
    tokio::time::sleep(std::time::Duration::from_millis(60)).await;
    visitor.say(request).await;
    upstream.next().await.1.send_reset(Reason::REFUSED_STREAM);
    upstream.next().await.1.send_response(Response::new(()), true).unwrap();

    assert!(visitor.answer().await.0.starts_with("HTTP/1.1 200 OK\r\n"));
}

#[tokio::test]
async fn a_visitor_who_leaves_resets_the_stream() {
    let (edges, mut upstream) = (edges().await, Upstream::start().await);
    let endpoint = bound(&edges, upstream.target()).await;
    let mut visitor = Peer::to(&endpoint).await;

    visitor.say("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nabc").await;
    let (_request, mut respond) = upstream.next().await;
    drop(visitor);

    let reset = std::future::poll_fn(|cx| respond.poll_reset(cx));
    assert!(soon(reset).await.is_ok());
}

#[tokio::test]
async fn an_upstream_without_http2_is_a_502() {
    let edges = edges().await;
    let said = "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n";
    for (said, code) in [(said, "3004"), ("", "8012")] {
        let address = upstream(move |mut peer| async move {
            peer.exactly(24).await;
            peer.say(said).await;
            if !said.is_empty() {
                // Closing before all is read would take back what was said.
                peer.rest().await;
            }
        })
        .await;
        let target = Arc::new(Http2(Direct::to(address)));
        let endpoint = bound(&edges, target).await;
        let mut visitor = Peer::to(&endpoint).await;

        visitor.say("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
        let (head, _) = visitor.answer().await;

        assert!(head.starts_with("HTTP/1.1 502 Bad Gateway\r\n"), "{head}");
        assert!(header(&head, "ngrok-error-code").unwrap().ends_with(code), "{head}");
    }
}
