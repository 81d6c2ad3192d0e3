//! The relay between visitors and local services.

use std::sync::Arc;
use std::time::Instant;

use ginnel_agent::Trust;
use ginnel_agent::capture::{CaptureLimit, CaptureRecord, CaptureSource, CaptureStore};
use ginnel_agent::metrics::TunnelMetrics;
use ginnel_agent::relay::{self, ForbiddenAddresses, HostHeader, HttpForwarder, LocalUpstream};
use ginnel_base::address::{Host, HostPort, UpstreamAddress};

use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::net::{TcpListener, TcpStream};

use crate::service::support::free_address;

/// What a visitor of a tunnel has in hand.
pub struct Visit {
    pub visitor: DuplexStream,
    pub captures: Arc<CaptureStore>,
    pub metrics: Arc<TunnelMetrics>,
}

/// Visits a tunnel to this address.
fn visit_at(
    address: UpstreamAddress,
    host_header: HostHeader,
    closed: ForbiddenAddresses,
) -> Visit {
    visit_front(&front(
        LocalUpstream::new(address, Trust::Anything.client_config().unwrap(), closed),
        host_header,
    ))
}

/// A tunnel to this local service.
pub fn front(upstream: LocalUpstream, host_header: HostHeader) -> Arc<HttpForwarder> {
    Arc::new(HttpForwarder {
        tunnel_name: "web".to_owned(),
        upstream,
        host_header,
        scheme: "https",
        captures: Some(CaptureStore::new(CaptureLimit::default())),
        rules_header: None,
        metrics: Arc::new(TunnelMetrics::new(Instant::now())),
        responses: Arc::default(),
        interceptors: Arc::default(),
    })
}

/// Visits a tunnel.
pub fn visit_front(front: &Arc<HttpForwarder>) -> Visit {
    let front = front.clone();
    let (captures, metrics) = (front.captures.clone().unwrap(), front.metrics.clone());
    let (visitor, theirs) = tokio::io::duplex(64 * 1024);
    tokio::spawn(async move {
        let (read, write) = tokio::io::split(theirs);
        let remote_addr = "192.0.2.1".to_owned();
        let source = CaptureSource { remote_addr, ..CaptureSource::default() };
        relay::serve_connection(
            &front,
            (Box::pin(read), Box::pin(write)),
            source,
            &relay::Activity::default(),
        )
        .await;
    });
    Visit { visitor, captures, metrics }
}

/// Visits a tunnel to a local service that is played by the test.
async fn visit() -> (Visit, TcpListener) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let address = UpstreamAddress::Tcp(HostPort { host: Host::parse("localhost").unwrap(), port });
    (visit_at(address, HostHeader::Preserve, ForbiddenAddresses::default()), listener)
}

impl Visit {
    pub async fn send(&mut self, text: &str) {
        self.visitor.write_all(text.as_bytes()).await.unwrap();
    }

    pub async fn expect(&mut self, text: &str) {
        let mut bytes = vec![0; text.len()];
        self.visitor.read_exact(&mut bytes).await.unwrap();
        assert_eq!(String::from_utf8_lossy(&bytes), text);
    }

    /// Everything until the relay closes.
    pub async fn rest(&mut self) -> String {
        let mut bytes = Vec::new();
        self.visitor.read_to_end(&mut bytes).await.unwrap();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    pub fn record(&self) -> Arc<CaptureRecord> {
        self.captures.list(1, None).remove(0)
    }

    /// The newest record, once its exchange has ended.
    pub async fn ended(&self) -> Arc<CaptureRecord> {
        loop {
            let record = self.record();
            if record.lock_exchange().took.is_some() {
                return record;
            }
            tokio::task::yield_now().await;
        }
    }
}

async fn accept(listener: &TcpListener) -> TcpStream {
    listener.accept().await.unwrap().0
}

async fn hear(local: &mut TcpStream, text: &str) {
    let mut bytes = vec![0; text.len()];
    local.read_exact(&mut bytes).await.unwrap();
    assert_eq!(String::from_utf8_lossy(&bytes), text);
}

async fn say(local: &mut TcpStream, text: &str) {
    local.write_all(text.as_bytes()).await.unwrap();
}

#[tokio::test]
async fn requests_pass_byte_for_byte_over_one_local_connection() {
    let (mut visit, listener) = visit().await;
    let first = "POST /a?b HTTP/1.1\r\nhost: x\r\nX-odd:  y \r\ncontent-LENGTH: 5\r\n\r\nhello";
    let second = "GET /c HTTP/1.1\r\nHost: x\r\n\r\n";

    visit.send(first).await;
    let mut local = accept(&listener).await;
    hear(&mut local, first).await;
    say(&mut local, "HTTP/1.1 201 Made\r\nContent-Length: 2\r\n\r\nok").await;
    visit.expect("HTTP/1.1 201 Made\r\nContent-Length: 2\r\n\r\nok").await;
    visit.send(second).await;
    hear(&mut local, second).await;
    say(&mut local, "HTTP/1.1 204 No Content\r\n\r\n").await;
    visit.expect("HTTP/1.1 204 No Content\r\n\r\n").await;

    visit.ended().await;
    let record = visit.captures.list(9, None).remove(1).to_captured_request();
    assert_eq!(record.request.raw.0, first);
    assert_eq!(record.request.headers["X-Odd"], ["y"]);
    let response = record.response.unwrap();
    assert_eq!((response.status.as_str(), response.status_code), ("201 Made", 201));
    assert_eq!(visit.metrics.report(Instant::now()).http.count, 2);
}

#[tokio::test]
async fn pipelined_requests_are_answered_in_order() {
    let (mut visit, listener) = visit().await;

    visit.send("GET /1 HTTP/1.1\r\nHost: x\r\n\r\nGET /2 HTTP/1.1\r\nHost: x\r\n\r\n").await;
    let mut local = accept(&listener).await;
    for number in ["1", "2"] {
        hear(&mut local, &format!("GET /{number} HTTP/1.1\r\nHost: x\r\n\r\n")).await;
        say(&mut local, &format!("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n{number}")).await;
    }

    visit.expect("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n1").await;
    visit.expect("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n2").await;
}

#[tokio::test]
async fn chunks_and_trailers_pass_and_are_recorded_without_framing() {
    let (mut visit, listener) = visit().await;
    let answer = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\
        3\r\nabc\r\n2\r\nde\r\n0\r\nX-T: 1\r\n\r\n";

    visit.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n").await;
    let mut local = accept(&listener).await;
    for byte in answer.bytes() {
        local.write_all(&[byte]).await.unwrap();
    }

    visit.expect(answer).await;
    let response = visit.ended().await.to_captured_request().response.unwrap();
    assert_eq!(response.raw.0, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabcde");
}

#[tokio::test]
async fn an_interim_answer_passes_and_is_not_recorded() {
    let (mut visit, listener) = visit().await;

    visit
        .send("POST / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n")
        .await;
    let mut local = accept(&listener).await;
    say(&mut local, "HTTP/1.1 100 Continue\r\n\r\n").await;
    visit.expect("HTTP/1.1 100 Continue\r\n\r\n").await;
    assert!(visit.record().lock_exchange().response.is_none());
    visit.send("hi").await;
    say(&mut local, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await;
    visit.expect("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await;

    assert_eq!(visit.ended().await.to_captured_request().response.unwrap().status_code, 200);
}

#[tokio::test]
async fn an_upgrade_turns_into_a_plain_connection() {
    let (mut visit, listener) = visit().await;
    let switch = "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n";

    visit.send("GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n").await;
    let mut local = accept(&listener).await;
    say(&mut local, &format!("{switch}early")).await;
    visit.expect(&format!("{switch}early")).await;
    visit.send("\0\x01ping").await;
    let mut head = [0; 512];
    let mut heard = Vec::new();
    while !heard.ends_with(b"\0\x01ping") {
        let count = local.read(&mut head).await.unwrap();
        heard.extend_from_slice(&head[..count]);
    }
    say(&mut local, "pong").await;
    visit.expect("pong").await;
    drop(local);

    assert_eq!(visit.rest().await, "");
}

#[tokio::test]
async fn a_service_that_is_away_is_a_502_with_a_record() {
    let port = free_address().port();
    let address = UpstreamAddress::Tcp(HostPort { host: Host::parse("127.0.0.1").unwrap(), port });
    let mut visit = visit_at(address, HostHeader::Preserve, ForbiddenAddresses::default());

    visit.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n").await;

    let answer = visit.rest().await;
    assert!(answer.starts_with("HTTP/1.1 502 Bad Gateway\r\n"), "{answer}");
    assert!(answer.contains("Ngrok-Error-Code: ERR_NGROK_8012\r\n"), "{answer}");
    assert!(answer.contains(&format!("127.0.0.1:{port}")), "{answer}");
    assert_eq!(
        visit.ended().await.to_captured_request().response.unwrap().status,
        "502 Bad Gateway"
    );
}

#[tokio::test]
async fn a_service_that_spoils_its_head_is_a_502() {
    for spoiled in ["", "HTTP/1.1 200 OK\r\nContent-Le", "nonsense\r\n\r\n", "HTTP/1.1 200 OK\r\n"]
    {
        let (mut visit, listener) = visit().await;

        visit.send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n").await;
        let mut local = accept(&listener).await;
        say(&mut local, spoiled).await;
        drop(local);

        assert!(visit.rest().await.starts_with("HTTP/1.1 502 "), "{spoiled:?}");
    }
}

#[tokio::test]
async fn endless_headers_are_a_502() {
    let (mut visit, listener) = visit().await;

    visit.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n").await;
    let mut local = accept(&listener).await;
    say(&mut local, "HTTP/1.1 200 OK\r\n").await;
    let line = format!("X: {}\r\n", "y".repeat(1000));
    // The relay stops reading, so a write fails at some point.
    while local.write_all(line.as_bytes()).await.is_ok() {}

    assert!(visit.rest().await.starts_with("HTTP/1.1 502 "));
}

#[tokio::test]
async fn a_body_that_breaks_off_ends_the_connection_and_not_the_agent() {
    let chunked = "Transfer-Encoding: chunked\r\n\r\n2\r\nab";
    for (begun, more, error) in [
        ("Content-Length: 9\r\n\r\nab", "", "closed the connection after 2 of 9 bytes"),
        (chunked, "", "closed the connection after 2 bytes of a body in chunks"),
        (chunked, "X", "sent a chunk that is malformed after 2 bytes of a body in chunks"),
    ] {
        let (mut visit, listener) = visit().await;

        visit.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n").await;
        let mut local = accept(&listener).await;
        hear(&mut local, "GET / HTTP/1.1\r\nHost: x\r\n\r\n").await;
        let head = format!("HTTP/1.1 200 OK\r\n{begun}");
        say(&mut local, &head).await;
        visit.expect(&head).await;
        say(&mut local, more).await;
        drop(local);

        assert_eq!(visit.rest().await, "");
        let record = visit.ended().await;
        assert_eq!(record.lock_exchange().response.as_ref().unwrap().body, *b"ab");
        let shown = record.to_captured_request();
        assert_eq!(shown.error.0, format!("the local service {error}"));
        assert_eq!((shown.request.truncated.0, shown.response.unwrap().truncated.0), (false, true));
    }
}

#[tokio::test]
async fn a_body_that_is_malformed_from_the_start_is_a_502() {
    let (mut visit, listener) = visit().await;

    visit.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n").await;
    let mut local = accept(&listener).await;
    say(&mut local, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nabX").await;

    assert!(visit.rest().await.starts_with("HTTP/1.1 502 "));
    let shown = visit.ended().await.to_captured_request();
    assert!(shown.error.0.contains("ambiguous"), "{shown:?}");
    assert_eq!(shown.response.unwrap().status_code, 502);
}

#[tokio::test]
async fn a_visitor_who_leaves_is_named_in_the_record() {
    let head = "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n";
    for (body, answer, error, truncated) in [
        ("abc", "", "the visitor left after 3 of 9 bytes of the request", true),
        ("abcdefghi", "", "the visitor left before the response was complete", false),
        (
            "abcdefghi",
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab",
            "the visitor left before the response was complete",
            false,
        ),
    ] {
        let (mut visit, listener) = visit().await;
        visit.send(&format!("{head}{body}")).await;
        let mut local = accept(&listener).await;
        hear(&mut local, &format!("{head}{body}")).await;
        say(&mut local, answer).await;
        visit.expect(answer).await;

        let Visit { visitor, captures, .. } = visit;
        drop(visitor);
        assert_eq!(local.read(&mut [0]).await.unwrap(), 0);

        let record = captures.list(1, None).remove(0);
        while record.lock_exchange().took.is_none() {
            tokio::task::yield_now().await;
        }
        let shown = record.to_captured_request();
        assert_eq!((shown.error.0.as_str(), shown.request.truncated.0), (error, truncated));
        let cut_off = shown.response.map(|response| response.truncated.0);
        assert_eq!(cut_off, (!answer.is_empty()).then_some(true));
    }
}

#[tokio::test]
async fn what_goes_well_has_no_error() {
    let (mut visit, listener) = visit().await;
    let answer = "HTTP/1.0 200 OK\r\n\r\nuntil the close";

    visit.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n").await;
    let mut local = accept(&listener).await;
    hear(&mut local, "GET / HTTP/1.1\r\nHost: x\r\n\r\n").await;
    say(&mut local, answer).await;
    drop(local);

    assert_eq!(visit.rest().await, answer);
    let shown = visit.ended().await.to_captured_request();
    assert_eq!((shown.error.0.as_str(), shown.response.unwrap().truncated.0), ("", false));
    assert!(
        !serde_json::to_string(&visit.record().to_captured_request()).unwrap().contains("error")
    );
}

#[tokio::test]
async fn one_empty_line_before_a_request_is_neither_sent_on_nor_recorded() {
    let request = "POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nhi";
    let answer = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
    for piece in [1, 2, 3, 1000] {
        let (mut visit, listener) = visit().await;
        let twice = format!("\r\n{request}\r\n{request}");
        for piece in twice.as_bytes().chunks(piece) {
            visit.visitor.write_all(piece).await.unwrap();
            tokio::task::yield_now().await;
        }
        let mut local = accept(&listener).await;
        for _ in 0..2 {
            hear(&mut local, request).await;
            say(&mut local, answer).await;
            visit.expect(answer).await;
            let shown = visit.record().to_captured_request();
            assert_eq!(
                (shown.request.method.as_str(), shown.request.raw.0.as_ref()),
                ("POST", request.as_bytes())
            );
        }
    }
}

#[tokio::test]
async fn a_kept_connection_that_was_closed_is_replaced() {
    let (mut visit, listener) = visit().await;
    let request = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
    let answer = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";

    for _ in 0..3 {
        visit.send(request).await;
        let mut local = accept(&listener).await;
        hear(&mut local, request).await;
        say(&mut local, answer).await;
        visit.expect(answer).await;
    }
}

#[tokio::test]
async fn a_visitor_who_leaves_frees_the_local_service() {
    let (mut visit, listener) = visit().await;

    visit.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n").await;
    let mut local = accept(&listener).await;
    hear(&mut local, "GET / HTTP/1.1\r\nHost: x\r\n\r\n").await;
    drop(visit.visitor);

    assert_eq!(local.read(&mut [0]).await.unwrap(), 0);
}

#[tokio::test]
async fn smuggled_requests_are_refused_before_they_are_forwarded() {
    for head in [
        "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabc",
        "GET / HTTP/1.1\nHost: x\n\n",
        "GET / HTTP/1.1\r\nHost: x\r\nA: b\rc\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: x\r\n folded: y\r\n\r\n",
    ] {
        let (mut visit, _listener) = visit().await;

        visit.send(head).await;

        assert!(visit.rest().await.starts_with("HTTP/1.1 400 "), "{head:?}");
        assert!(visit.captures.list(1, None).is_empty());
    }
}

#[tokio::test]
async fn a_rewritten_host_and_its_redirects() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let address = UpstreamAddress::Tcp(HostPort { host: Host::parse("localhost").unwrap(), port });
    let mut visit = visit_at(address, HostHeader::Rewrite, ForbiddenAddresses::default());

    visit.send("GET / HTTP/1.1\r\nHost: shop.test\r\n\r\n").await;
    let mut local = accept(&listener).await;
    hear(
        &mut local,
        &format!(
            "GET / HTTP/1.1\r\nHost: localhost:{port}\r\nX-Forwarded-Host: shop.test\r\n\
             X-Original-Host: shop.test\r\n\r\n"
        ),
    )
    .await;
    say(
        &mut local,
        &format!(
            "HTTP/1.1 302 Found\r\nLocation: http://localhost:{port}/a\r\nContent-Length: 0\r\n\r\n"
        ),
    )
    .await;

    visit.expect("HTTP/1.1 302 Found\r\nLocation: https://shop.test/a\r\n").await;
}

#[tokio::test]
async fn a_tunnel_to_the_agents_own_api_is_refused() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let own = listener.local_addr().unwrap();
    let closed = ForbiddenAddresses::new(&[own]);
    let address = UpstreamAddress::Tcp(HostPort {
        host: Host::parse("localhost").unwrap(),
        port: own.port(),
    });
    let mut visit = visit_at(address, HostHeader::Preserve, closed);

    visit.send("GET /api/tunnels HTTP/1.1\r\nHost: x\r\n\r\n").await;

    let answer = visit.rest().await;
    assert!(answer.starts_with("HTTP/1.1 502 "), "{answer}");
    assert!(answer.contains("own API"), "{answer}");
}

#[tokio::test]
async fn a_folder_serves_its_files_and_nothing_else() {
    let folder = std::env::temp_dir().join(format!("ginnel-files-{}", std::process::id()));
    std::fs::create_dir_all(folder.join("sub")).unwrap();
    std::fs::write(folder.join("a b.txt"), "hello").unwrap();
    std::fs::write(folder.join("sub/index.html"), "<p>index").unwrap();
    let get = |path: &'static str| {
        let address = UpstreamAddress::Files(folder.clone());
        async move {
            let mut visit = visit_at(address, HostHeader::Preserve, ForbiddenAddresses::default());
            visit
                .send(&format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"))
                .await;
            visit.rest().await
        }
    };

    assert!(get("/a%20b.txt").await.ends_with("\r\n\r\nhello"));
    assert!(get("/").await.contains("a%20b.txt"));
    assert!(get("/sub").await.contains("Location: /sub/\r\n"));
    assert!(get("/sub/").await.ends_with("<p>index"));
    for outside in ["/../Cargo.toml", "/%2e%2e/etc/passwd", "/..%2f..%2fetc/passwd", "//etc/passwd"]
    {
        assert!(get(outside).await.starts_with("HTTP/1.1 404 "), "{outside}");
    }
    std::fs::remove_dir_all(folder).unwrap();
}

#[tokio::test]
async fn a_body_that_cannot_be_followed_gets_no_mock() {
    let address =
        UpstreamAddress::Tcp(HostPort { host: Host::parse("localhost").unwrap(), port: 1 });
    let tls = Trust::Anything.client_config().unwrap();
    let upstream = LocalUpstream::new(address, tls, ForbiddenAddresses::default());
    let front = front(upstream, HostHeader::Preserve);
    front.interceptors.add_mock(serde_json::Map::new(), false).unwrap();
    let mut visit = visit_front(&front);

    visit.send("POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nno size\r\n").await;

    let response = visit.rest().await;
    assert!(response.starts_with("HTTP/1.1 400 "), "{response}");
    let record = visit.captures.list(1, None).remove(0);
    assert_eq!(record.to_captured_request().response.unwrap().status_code, 400);
}
