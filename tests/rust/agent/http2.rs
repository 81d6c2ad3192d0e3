//! Local services that speak HTTP/2.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ginnel_agent::Trust;
use ginnel_agent::relay::{
    AppProtocol, ForbiddenAddresses, HostHeader, HttpForwarder, LocalUpstream,
};
use ginnel_base::address::{Host, HostPort, UpstreamAddress};

use bytes::Bytes;
use h2::server::SendResponse;
use h2::{Reason, RecvStream};
use http::{HeaderMap, Request, Response};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::mpsc;

use super::relay::{Visit, front, visit_front};
use super::support::PATIENCE;
use crate::service::support::free_address;

/// A request that a local service has got, and the way to answer it.
type Call = (Request<RecvStream>, SendResponse<Bytes>);

/// A local service whose requests are answered by the test.
struct Local {
    port: u16,
    calls: mpsc::UnboundedReceiver<Call>,
    /// How many connections there were.
    connections: Arc<AtomicUsize>,
}

impl Local {
    async fn start() -> Self {
        Self::at(TcpListener::bind("127.0.0.1:0").await.unwrap())
    }

    fn at(listener: TcpListener) -> Self {
        let port = listener.local_addr().unwrap().port();
        let (tell, calls) = mpsc::unbounded_channel();
        let connections = Arc::new(AtomicUsize::new(0));
        let count = connections.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let is_first = count.fetch_add(1, Ordering::SeqCst) == 0;
                tokio::spawn(take_calls(stream, is_first, tell.clone()));
            }
        });
        Self { port, calls, connections }
    }

    fn front(&self) -> Arc<HttpForwarder> {
        front_to(self.port, HostHeader::Preserve)
    }

    /// The next request.
    async fn next(&mut self) -> Call {
        within(self.calls.recv()).await.unwrap()
    }
}

async fn take_calls(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    is_first: bool,
    tell: mpsc::UnboundedSender<Call>,
) {
    let mut builder = h2::server::Builder::new();
    let Ok(mut connection) = builder.enable_connect_protocol().handshake(stream).await else {
        return;
    };
    while let Some(Ok(call)) = connection.accept().await {
        if is_first && call.0.uri().path() == "/goodbye" {
            connection.abrupt_shutdown(Reason::NO_ERROR);
        }
        let _ = tell.send(call);
    }
}

async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.expect("in time")
}

fn address(port: u16) -> UpstreamAddress {
    UpstreamAddress::Tcp(HostPort { host: Host::parse("127.0.0.1").unwrap(), port })
}

fn front_to(port: u16, host_header: HostHeader) -> Arc<HttpForwarder> {
    front(speaks_http2(address(port)), host_header)
}

fn speaks_http2(address: UpstreamAddress) -> LocalUpstream {
    let tls = Trust::Anything.client_config().unwrap();
    LocalUpstream::new(address, tls, ForbiddenAddresses::default())
        .with_protocol(AppProtocol::Http2)
}

fn ok() -> Response<()> {
    Response::new(())
}

fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
    pairs.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
}

/// All of a body, with its trailers.
async fn whole(body: &mut RecvStream) -> (Vec<u8>, Option<HeaderMap>) {
    let mut bytes = Vec::new();
    while let Some(piece) = within(body.data()).await {
        let piece = piece.unwrap();
        body.flow_control().release_capacity(piece.len()).unwrap();
        bytes.extend_from_slice(&piece);
    }
    (bytes, body.trailers().await.unwrap())
}

/// Answers with this body.
fn answer(respond: &mut SendResponse<Bytes>, body: &'static str) {
    let mut stream = respond.send_response(ok(), false).unwrap();
    stream.send_data(body.into(), true).unwrap();
}

#[tokio::test]
async fn a_call_with_trailers_both_ways_passes_and_is_recorded() {
    let mut local = Local::start().await;
    let mut visit = visit_front(&local.front());

    visit
        .send(
            "POST /shop.Orders/Take HTTP/1.1\r\nHost: shop.test:8443\r\nTE: trailers\r\n\
             Content-Type: application/grpc\r\nConnection: x-mine\r\nX-Mine: 1\r\n\
             Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nx-sum: 7\r\n\r\n",
        )
        .await;
    let (request, mut respond) = local.next().await;
    let (parts, mut body) = request.into_parts();
    let mut stream = {
        let head = Response::builder().header("content-type", "application/grpc").body(()).unwrap();
        respond.send_response(head, false).unwrap()
    };
    stream.send_data("world".into(), false).unwrap();
    stream.send_trailers(headers(&[("grpc-status", "0"), ("grpc-message", "fine")])).unwrap();

    assert_eq!(parts.uri, "http://shop.test:8443/shop.Orders/Take");
    let expected = headers(&[("te", "trailers"), ("content-type", "application/grpc")]);
    assert_eq!(parts.headers, expected);
    let (sent, trailers) = whole(&mut body).await;
    assert_eq!((&sent[..], trailers.unwrap()), (&b"hello"[..], headers(&[("x-sum", "7")])));
    visit
        .expect(
            "HTTP/1.1 200 OK\r\ncontent-type: application/grpc\r\ntransfer-encoding: chunked\r\n\
             \r\n5\r\nworld\r\n0\r\ngrpc-status: 0\r\ngrpc-message: fine\r\n\r\n",
        )
        .await;
    let record = visit.ended().await.to_captured_request();
    assert!(record.request.raw.0.ends_with(b"\r\n\r\nhello"));
    assert_eq!(record.request.trailers.0["X-Sum"], ["7"]);
    assert_eq!(record.response.as_ref().unwrap().trailers.0["Grpc-Status"], ["0"]);
    assert!(record.response.unwrap().raw.0.ends_with(b"\r\n\r\nworld"));
}

#[tokio::test]
async fn both_sides_talk_at_the_same_time() {
    let mut local = Local::start().await;
    let mut visit = visit_front(&local.front());

    visit.send("POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n").await;
    let (request, mut respond) = local.next().await;
    let mut heard = request.into_body();
    let mut stream = respond.send_response(ok(), false).unwrap();
    visit.expect("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n").await;
    for word in ["one", "two", "six"] {
        visit.send(&format!("3\r\n{word}\r\n")).await;
        let piece = within(heard.data()).await.unwrap().unwrap();
        assert_eq!(piece, word);
        stream.send_data(piece, false).unwrap();
        visit.expect(&format!("3\r\n{word}\r\n")).await;
    }
    visit.send("0\r\n\r\n").await;
    assert!(within(heard.data()).await.is_none_or(|last| last.unwrap().is_empty()));
    stream.send_data(Bytes::new(), true).unwrap();

    visit.expect("0\r\n\r\n").await;
}

#[tokio::test]
async fn answers_without_a_body_have_none() {
    let mut local = Local::start().await;
    let mut visit = visit_front(&local.front());

    for (method, status, length, expected) in [
        ("HEAD", 200, Some("12"), "HTTP/1.1 200 OK\r\ncontent-length: 12\r\n\r\n"),
        ("GET", 204, None, "HTTP/1.1 204 No Content\r\n\r\n"),
        ("GET", 304, Some("9"), "HTTP/1.1 304 Not Modified\r\ncontent-length: 9\r\n\r\n"),
        ("GET", 200, None, "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"),
    ] {
        visit.send(&format!("{method} / HTTP/1.1\r\nHost: x\r\n\r\n")).await;
        let (request, mut respond) = local.next().await;
        assert_eq!((request.method().as_str(), request.body().is_end_stream()), (method, true));
        let mut head = Response::builder().status(status);
        if let Some(length) = length {
            head = head.header("content-length", length);
        }
        respond.send_response(head.body(()).unwrap(), true).unwrap();
        visit.expect(expected).await;
    }
}

#[tokio::test]
async fn provisional_answers_pass_before_the_body_is_sent() {
    let mut local = Local::start().await;
    let mut visit = visit_front(&local.front());

    let head = "PUT / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n";
    visit.send(head).await;
    let (request, mut respond) = local.next().await;
    assert_eq!(request.headers()["expect"], "100-continue");
    for status in [103, 100] {
        let provisional = Response::builder().status(status).body(()).unwrap();
        respond.send_informational(provisional).unwrap();
    }
    visit.expect("HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n").await;
    visit.send("body").await;
    assert_eq!(whole(&mut request.into_body()).await.0, b"body");
    answer(&mut respond, "ok");

    visit.expect("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n").await;
}

#[tokio::test]
async fn all_visitors_share_one_connection() {
    let mut local = Local::start().await;
    let front = local.front();
    let mut visits: Vec<Visit> = (0..20).map(|_| visit_front(&front)).collect();

    for (number, visit) in visits.iter_mut().enumerate() {
        visit.send(&format!("GET /{number} HTTP/1.1\r\nHost: x\r\n\r\n")).await;
    }
    let mut calls = Vec::new();
    while calls.len() < visits.len() {
        calls.push(local.next().await);
    }
    for (request, respond) in &mut calls {
        let path = request.uri().path().to_owned();
        let head = Response::builder().header("content-length", path.len()).body(()).unwrap();
        respond.send_response(head, false).unwrap().send_data(path.into(), true).unwrap();
    }

    for (number, visit) in visits.iter_mut().enumerate() {
        let path = format!("/{number}");
        let length = path.len();
        visit.expect(&format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n{path}")).await;
    }
    assert_eq!(local.connections.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_slow_visitor_holds_up_nobody_else() {
    let mut local = Local::start().await;
    let front = local.front();
    let mut slow = visit_front(&front);
    let mut quick = visit_front(&front);
    const LENGTH: usize = 8 << 20;

    slow.send("GET /slow HTTP/1.1\r\nHost: x\r\n\r\n").await;
    let (_, mut respond) = local.next().await;
    let head = Response::builder().header("content-length", LENGTH).body(()).unwrap();
    let mut stream = respond.send_response(head, false).unwrap();
    stream.reserve_capacity(LENGTH);
    let mut sent = 0;
    let sending = tokio::spawn(async move {
        while sent < LENGTH {
            let room = std::future::poll_fn(|cx| stream.poll_capacity(cx)).await.unwrap().unwrap();
            sent += room;
            stream.send_data(vec![b'x'; room].into(), sent == LENGTH).unwrap();
        }
    });
    for _ in 0..3 {
        quick.send("GET /quick HTTP/1.1\r\nHost: x\r\n\r\n").await;
        let (request, mut respond) = local.next().await;
        assert_eq!(request.uri().path(), "/quick");
        respond.send_response(ok(), true).unwrap();
        quick.expect("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await;
    }
    assert!(!sending.is_finished(), "nobody has read it");

    slow.expect(&format!("HTTP/1.1 200 OK\r\ncontent-length: {LENGTH}\r\n\r\n")).await;
    let mut left = LENGTH;
    let mut room = vec![0; 64 << 10];
    while left > 0 {
        left -= within(slow.visitor.read(&mut room)).await.unwrap();
    }
    sending.await.unwrap();
}

#[tokio::test]
async fn a_large_body_goes_up_as_fast_as_it_is_taken() {
    const LENGTH: usize = 4 << 20;
    let mut local = Local::start().await;
    let Visit { visitor, .. } = visit_front(&local.front());
    let (mut read, mut write) = tokio::io::split(visitor);

    let sending = tokio::spawn(async move {
        let head = format!("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: {LENGTH}\r\n\r\n");
        write.write_all(head.as_bytes()).await.unwrap();
        write.write_all(&vec![b'y'; LENGTH]).await.unwrap();
        write
    });
    let (request, mut respond) = local.next().await;
    tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    assert!(!sending.is_finished(), "nobody has taken it");
    assert_eq!(request.headers()["content-length"], LENGTH.to_string().as_str());
    let (body, _) = whole(&mut request.into_body()).await;
    assert_eq!(body.len(), LENGTH);
    respond.send_response(ok(), true).unwrap();

    let mut head = [0; 15];
    within(read.read_exact(&mut head)).await.unwrap();
    assert_eq!(&head, b"HTTP/1.1 200 OK");
    sending.await.unwrap();
}

#[tokio::test]
async fn a_visitor_who_leaves_resets_the_stream() {
    let mut local = Local::start().await;
    let front = local.front();
    let mut visit = visit_front(&front);

    visit.send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nabc").await;
    let (_request, mut respond) = local.next().await;
    drop(visit);

    let reset = std::future::poll_fn(|cx| respond.poll_reset(cx));
    assert_eq!(within(reset).await.unwrap(), Reason::CANCEL);
    let mut other = visit_front(&front);
    other.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n").await;
    local.next().await.1.send_response(ok(), true).unwrap();
    other.expect("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await;
    assert_eq!(local.connections.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn what_was_refused_is_sent_again() {
    let mut local = Local::start().await;
    let mut visit = visit_front(&local.front());

    visit.send("POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello").await;
    let (_request, mut respond) = local.next().await;
    respond.send_reset(Reason::REFUSED_STREAM);
    let (request, mut respond) = local.next().await;
    let (body, _) = whole(&mut request.into_body()).await;
    respond.send_response(ok(), true).unwrap();

    assert_eq!(body, b"hello");
    visit.expect("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await;
    visit.ended().await;
    assert_eq!(visit.captures.list(9, None).len(), 1);
}

#[tokio::test]
async fn what_is_refused_again_and_again_fails() {
    let mut local = Local::start().await;
    let mut visit = visit_front(&local.front());

    visit.send("GET /a HTTP/1.1\r\nHost: x\r\n\r\n").await;
    for _ in 0..3 {
        local.next().await.1.send_reset(Reason::REFUSED_STREAM);
    }

    let page = visit.rest().await;
    assert!(page.starts_with("HTTP/1.1 502 Bad Gateway\r\n"), "{page}");
    assert!(page.contains("refused stream"), "{page}");
}

#[tokio::test]
async fn another_failure_is_told_and_not_tried_again() {
    let mut local = Local::start().await;
    let mut visit = visit_front(&local.front());

    visit.send("GET /a HTTP/1.1\r\nHost: x\r\n\r\n").await;
    local.next().await.1.send_reset(Reason::INTERNAL_ERROR);

    let page = visit.rest().await;
    assert!(page.starts_with("HTTP/1.1 502 Bad Gateway\r\n"), "{page}");
    assert!(page.contains("internal error"), "{page}");
    assert_eq!(visit.ended().await.to_captured_request().response.unwrap().status_code, 502);
}

#[tokio::test]
async fn an_answer_that_breaks_off_ends_the_connection() {
    let mut local = Local::start().await;
    let mut visit = visit_front(&local.front());

    visit.send("GET /a HTTP/1.1\r\nHost: x\r\n\r\n").await;
    let (_request, mut respond) = local.next().await;
    let mut stream = respond.send_response(ok(), false).unwrap();
    stream.send_data("part".into(), false).unwrap();
    visit.expect("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\npart\r\n").await;
    stream.send_reset(Reason::INTERNAL_ERROR);

    assert_eq!(visit.rest().await, "");
    let shown = visit.ended().await.to_captured_request();
    assert!(shown.error.0.contains("internal error"), "{}", shown.error.0);
    assert!(shown.error.0.ends_with("after 4 bytes of a body in chunks"), "{}", shown.error.0);
    assert!(shown.response.unwrap().truncated.0);
}

#[tokio::test]
async fn a_local_service_that_says_goodbye_is_dialled_again() {
    let mut local = Local::start().await;
    let mut visit = visit_front(&local.front());

    visit.send("GET /a HTTP/1.1\r\nHost: x\r\n\r\n").await;
    local.next().await.1.send_response(ok(), true).unwrap();
    visit.expect("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await;
    visit.send("GET /goodbye HTTP/1.1\r\nHost: x\r\n\r\n").await;
    drop(local.next().await);
    let (request, mut respond) = local.next().await;
    respond.send_response(ok(), true).unwrap();

    assert_eq!(request.uri().path(), "/goodbye");
    visit.expect("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await;
    assert_eq!(local.connections.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn a_local_service_that_restarts_is_dialled_again() {
    let listener = TcpListener::bind(free_address()).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let front = front_to(port, HostHeader::Preserve);
    let mut visit = visit_front(&front);
    let request = "GET /a HTTP/1.1\r\nHost: x\r\n\r\n";

    let first = tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        let mut connection = h2::server::handshake(stream).await.unwrap();
        let (_, mut respond) = connection.accept().await.unwrap().unwrap();
        respond.send_response(ok(), true).unwrap();
        connection.graceful_shutdown();
        while connection.accept().await.is_some() {}
    });
    visit.send(request).await;
    visit.expect("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await;
    drop(visit);
    first.await.unwrap();
    let mut away = visit_front(&front);
    away.send(request).await;
    let page = away.rest().await;
    let again = TcpListener::bind(("127.0.0.1", port)).await.unwrap();
    let mut local = Local::at(again);
    let mut visit = visit_front(&front);
    visit.send(request).await;
    local.next().await.1.send_response(ok(), true).unwrap();

    assert!(page.starts_with("HTTP/1.1 502 Bad Gateway\r\n"), "{page}");
    assert!(page.contains("could not connect to the local service at 127.0.0.1"), "{page}");
    visit.expect("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await;
}

#[tokio::test]
async fn a_local_service_that_is_away_is_told_and_the_request_recorded() {
    let port = free_address().port();
    let mut visit = visit_front(&front_to(port, HostHeader::Preserve));

    visit.send("POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello").await;

    let page = visit.rest().await;
    assert!(page.starts_with("HTTP/1.1 502 Bad Gateway\r\n"), "{page}");
    assert!(page.contains("ERR_NGROK_8012"), "{page}");
    let record = visit.ended().await.to_captured_request();
    assert!(record.request.raw.0.ends_with(b"hello"));
    assert_eq!(record.response.unwrap().status_code, 502);
}

#[tokio::test]
async fn a_local_service_without_http2_is_told() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut preface = [0; 24];
        stream.read_exact(&mut preface).await.unwrap();
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n").await.unwrap();
        let _ = stream.read_to_end(&mut Vec::new()).await;
    });
    let mut visit = visit_front(&front_to(port, HostHeader::Preserve));

    visit.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n").await;

    let page = visit.rest().await;
    assert!(page.contains("it speaks HTTP/1.1, not HTTP/2"), "{page}");
}

/// A local service with TLS that agrees on one of these; it answers its first request.
async fn with_tls(protocols: &[&[u8]]) -> u16 {
    let config = tls_config(protocols);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
        let Ok(stream) = acceptor.accept(stream).await else { return };
        let Ok(mut connection) = h2::server::handshake(stream).await else { return };
        while let Some(Ok((request, mut respond))) = connection.accept().await {
            let head = Response::builder().header("x-scheme", request.uri().scheme_str().unwrap());
            respond.send_response(head.body(()).unwrap(), true).unwrap();
        }
    });
    port
}

fn tls_config(protocols: &[&[u8]]) -> rustls::ServerConfig {
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let key = rustls::pki_types::PrivateKeyDer::Pkcs8(made.signing_key.serialize_der().into());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .unwrap();
    config.alpn_protocols = protocols.iter().map(|it| it.to_vec()).collect();
    config
}

#[tokio::test]
async fn tls_agrees_on_http2() {
    let visited = async |protocols: &[&[u8]]| {
        let port = with_tls(protocols).await;
        let address =
            UpstreamAddress::Tls(HostPort { host: Host::parse("127.0.0.1").unwrap(), port });
        let mut visit = visit_front(&front(speaks_http2(address), HostHeader::Preserve));
        let request = "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
        visit.send(request).await;
        visit.rest().await
    };

    let expected = "HTTP/1.1 200 OK\r\nx-scheme: https\r\ncontent-length: 0\r\n\r\n";
    assert_eq!(visited(&[b"http/1.1", b"h2"]).await, expected);
    for others in [&[][..], &[&b"http/1.1"[..]]] {
        let page = visited(others).await;
        assert!(page.starts_with("HTTP/1.1 502 Bad Gateway\r\n"), "{page}");
        assert!(page.contains("does not agree on HTTP/2"), "{page}");
    }
}

#[tokio::test]
async fn the_host_is_the_one_that_the_tunnel_sets() {
    let mut local = Local::start().await;
    let mut visit = visit_front(&front_to(local.port, HostHeader::Rewrite));

    visit.send("GET / HTTP/1.1\r\nHost: shop.test\r\n\r\n").await;
    let (request, mut respond) = local.next().await;
    let place = format!("http://127.0.0.1:{}/there", local.port);
    let moved = Response::builder().status(302).header("location", place).body(()).unwrap();
    respond.send_response(moved, true).unwrap();

    assert_eq!(request.uri().authority().unwrap().port_u16(), Some(local.port));
    assert_eq!(request.headers()["x-forwarded-host"], "shop.test");
    assert!(!request.headers().contains_key("host"));
    visit.expect("HTTP/1.1 302 Found\r\nLocation: https://shop.test/there\r\n").await;
}

const UPGRADE: &str = "GET /chat HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\n\
    Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
    Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";

#[tokio::test]
async fn a_web_socket_passes_by_extended_connect() {
    let mut local = Local::start().await;
    let mut visit = visit_front(&local.front());

    visit.send(UPGRADE).await;
    let (request, mut respond) = local.next().await;
    let protocol = request.extensions().get::<h2::ext::Protocol>().unwrap();
    assert_eq!((request.method().as_str(), protocol.as_str()), ("CONNECT", "websocket"));
    assert_eq!(request.headers(), &headers(&[("sec-websocket-version", "13")]));
    let mut stream = respond.send_response(ok(), false).unwrap();
    visit
        .expect(
            "HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: upgrade\r\n\
             sec-websocket-accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n",
        )
        .await;
    visit.send("ping").await;
    let mut body = request.into_body();
    assert_eq!(within(body.data()).await.unwrap().unwrap(), "ping");
    stream.send_data("pong".into(), false).unwrap();
    visit.expect("pong").await;
    visit.visitor.shutdown().await.unwrap();
    assert!(within(body.data()).await.is_none_or(|last| last.unwrap().is_empty()));
    stream.send_data("bye".into(), true).unwrap();

    assert_eq!(visit.rest().await, "bye");
    assert_eq!(visit.ended().await.to_captured_request().response.unwrap().status_code, 101);
}

#[tokio::test]
async fn a_web_socket_is_refused_where_the_local_service_takes_none() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        let mut connection = h2::server::handshake(stream).await.unwrap();
        while connection.accept().await.is_some() {}
    });
    let mut visit = visit_front(&front_to(port, HostHeader::Preserve));

    visit.send(UPGRADE).await;

    let page = visit.rest().await;
    assert!(page.starts_with("HTTP/1.1 502 Bad Gateway\r\n"), "{page}");
    assert!(page.contains("extended CONNECT"), "{page}");
}
