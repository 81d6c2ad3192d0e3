//! HTTP/2 with edges, in frames: what a connection may carry, and who is cut off.

use std::net::SocketAddr;
use std::time::Duration;

use ginnel_gateway::{EndpointSpec, Gateway, GatewaySettings, Proto, PublicEndpoint, Timeouts};

use ginnel_settings::ByteSize;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use super::configured::{EdgeFixture, status};
use super::support::{Direct, edges_with, header, mirror, soon, upstream};
use super::tls::{connect, trusting};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
/// How much of a flood is sent at most, in bytes.
const FLOOD: usize = 16 << 20;

type Mouth = WriteHalf<TlsStream<TcpStream>>;

/// The kinds of frames, in the order of their numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Data,
    Headers,
    Priority,
    Reset,
    Settings,
    Push,
    Ping,
    GoAway,
    Window,
    Continuation,
}

const KINDS: [Kind; 10] = [
    Kind::Data,
    Kind::Headers,
    Kind::Priority,
    Kind::Reset,
    Kind::Settings,
    Kind::Push,
    Kind::Ping,
    Kind::GoAway,
    Kind::Window,
    Kind::Continuation,
];

fn frame(kind: Kind, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut bytes = vec![length[1], length[2], length[3], kind as u8, flags];
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

/// A header that no table knows; its name and value are short.
fn field(name: &str, value: &str) -> Vec<u8> {
    let mut bytes = vec![0, u8::try_from(name.len()).unwrap()];
    bytes.extend(name.bytes());
    bytes.push(u8::try_from(value.len()).unwrap());
    bytes.extend(value.bytes());
    bytes
}

/// A request without a body, `more` being headers.
fn get(stream: u32, path: &str, more: &[(&str, &str)]) -> Vec<u8> {
    let block = [&[0x82, 0x87][..], &field(":path", path), &field(":authority", "a.test")];
    let more: Vec<u8> = more.iter().flat_map(|(name, value)| field(name, value)).collect();
    let block = [block.concat(), more].concat();
    frame(Kind::Headers, END_STREAM | END_HEADERS, stream, &block)
}

/// A frame as it came.
struct Came {
    kind: Kind,
    stream: u32,
    payload: Vec<u8>,
}

/// The listening half of a visitor.
struct Ear(ReadHalf<TlsStream<TcpStream>>);

impl Ear {
    /// The next frame; none when the other side has closed.
    async fn next(&mut self) -> Option<Came> {
        let mut head = [0; 9];
        soon(self.0.read_exact(&mut head)).await.ok()?;
        let mut payload = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
        soon(self.0.read_exact(&mut payload)).await.ok()?;
        let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
        Some(Came { kind: KINDS[head[3] as usize], stream, payload })
    }

    async fn rest(&mut self) -> Vec<Came> {
        let mut all = Vec::new();
        while let Some(came) = self.next().await {
            all.push(came);
        }
        all
    }

    /// What is answered on a stream, without its head.
    async fn body(&mut self, stream: u32) -> String {
        let mut body = Vec::new();
        while body.is_empty() {
            let came = self.next().await.expect("an answer");
            if came.stream == stream && came.kind == Kind::Data {
                body = came.payload;
            }
        }
        String::from_utf8_lossy(&body).into_owned()
    }
}

/// A visitor who speaks HTTP/2 on a port.
async fn visitor_of(edges: &Gateway, port: u16, name: &str) -> (Ear, Mouth) {
    let stream = connect(&trusting(edges.authority(), &["h2"]), port, name).await.unwrap();
    let (read, mut write) = tokio::io::split(stream);
    write.write_all(&[PREFACE, &frame(Kind::Settings, 0, 0, &[])].concat()).await.unwrap();
    (Ear(read), write)
}

/// A visitor who speaks HTTP/2 with a site.
async fn visitor(site: &EdgeFixture) -> (Ear, Mouth) {
    let edges = site.service.service.gateway();
    visitor_of(edges, edges.https_address().unwrap().port(), "a.test").await
}

async fn site_of(rules: serde_json::Value) -> EdgeFixture {
    let site = EdgeFixture::start().await;
    let edge = site.edge("a.test").await;
    let address = upstream(|mut peer| async move {
        while let Some((head, _)) = peer.request().await {
            if head.starts_with("GET /never") {
                std::future::pending::<()>().await;
            }
            let length = head.len();
            peer.say(&format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{head}")).await;
        }
    })
    .await;
    let modules = json!({"backend": site.at(address).await, "policy": {"inbound": rules}});
    site.route(&edge, "/", modules).await;
    site
}

#[tokio::test]
async fn a_closed_connection_takes_all_its_requests_with_it() {
    let site = site_of(json!([{
        "expressions": ["req.url.path == '/x'"],
        "actions": [{"type": "close-connection"}],
    }]))
    .await;
    let (mut ear, mut mouth) = visitor(&site).await;

    mouth.write_all(&get(1, "/", &[])).await.unwrap();
    assert!(ear.body(1).await.starts_with("GET / HTTP/1.1\r\n"));
    mouth.write_all(&[get(3, "/never", &[]), get(5, "/x", &[])].concat()).await.unwrap();
    let rest = ear.rest().await;

    let answered = rest.iter().any(|it| matches!(it.kind, Kind::Headers | Kind::Data));
    assert!(!answered, "nothing is answered any more");
}

#[tokio::test]
async fn cookies_arrive_as_one_header() {
    let site = site_of(json!([{
        "expressions": ["getReqCookie('b').value == '2'"],
        "actions": [{"type": "add-headers", "config": {"headers": {"x-b": "seen"}}}],
    }]))
    .await;
    let (mut ear, mut mouth) = visitor(&site).await;

    mouth.write_all(&get(1, "/", &[("cookie", "a=1"), ("cookie", "b=2")])).await.unwrap();

    let seen = ear.body(1).await;
    assert_eq!(header(&seen, "cookie"), Some("a=1; b=2"), "{seen}");
    assert_eq!(seen.matches("cookie:").count(), 1);
    assert_eq!(header(&seen, "x-b"), Some("seen"));
}

/// A request whose head does not end its stream.
fn begin_request(stream: u32, method: &str, more: &[(&str, &str)]) -> Vec<u8> {
    let block = [&[0x87][..], &field(":method", method), &field(":path", "/")];
    let block = [block.concat(), field(":authority", "a.test")].concat();
    let more: Vec<u8> = more.iter().flat_map(|(name, value)| field(name, value)).collect();
    frame(Kind::Headers, END_HEADERS, stream, &[block, more].concat())
}

#[tokio::test]
async fn a_request_that_ends_with_an_empty_frame_has_no_body() {
    let site = site_of(json!([])).await;
    let (mut ear, mut mouth) = visitor(&site).await;
    let empty = |flags, stream| frame(Kind::Data, flags, stream, &[]);

    for (at, method) in ["GET", "DELETE", "OPTIONS", "POST", "PUT", "PATCH"].iter().enumerate() {
        let stream = 2 * at as u32 + 1;
        let head = begin_request(stream, method, &[]);
        let frames = [head, empty(0, stream), empty(END_STREAM, stream)].concat();
        mouth.write_all(&frames).await.unwrap();

        let seen = ear.body(stream).await;
        assert_eq!(header(&seen, "transfer-encoding"), None, "{seen}");
        let length = matches!(*method, "POST" | "PUT" | "PATCH").then_some("0");
        assert_eq!(header(&seen, "content-length"), length, "{seen}");
    }
}

#[tokio::test]
async fn the_empty_frame_of_a_get_may_come_a_little_later() {
    let site = site_of(json!([])).await;
    let (mut ear, mut mouth) = visitor(&site).await;

    mouth.write_all(&begin_request(1, "GET", &[])).await.unwrap();
    mouth.flush().await.unwrap();
    tokio::time::sleep(Duration::from_millis(20)).await;
    mouth.write_all(&frame(Kind::Data, END_STREAM, 1, &[])).await.unwrap();

    let seen = ear.body(1).await;
    assert_eq!(header(&seen, "transfer-encoding"), None, "{seen}");
}

#[tokio::test]
async fn a_body_without_a_length_goes_on_in_chunks() {
    let site = site_of(json!([])).await;
    let (mut ear, mut mouth) = visitor(&site).await;

    for (stream, method, more, framing) in [
        (1, "GET", &[][..], ("transfer-encoding", "chunked")),
        (3, "POST", &[], ("transfer-encoding", "chunked")),
        (5, "GET", &[("content-length", "3")], ("content-length", "3")),
        (7, "POST", &[("content-length", "3")], ("content-length", "3")),
    ] {
        let head = begin_request(stream, method, more);
        let frames = [head, frame(Kind::Data, END_STREAM, stream, b"abc")].concat();
        mouth.write_all(&frames).await.unwrap();

        let seen = ear.body(stream).await;
        assert_eq!(header(&seen, framing.0), Some(framing.1), "{seen}");
    }
}

#[tokio::test]
async fn trailers_without_a_body_end_the_request() {
    let site = site_of(json!([])).await;
    let (mut ear, mut mouth) = visitor(&site).await;

    for (at, method) in ["GET", "POST", "DELETE"].iter().enumerate() {
        let stream = 2 * at as u32 + 1;
        let head = begin_request(stream, method, &[]);
        let flags = END_HEADERS | END_STREAM;
        let trailers = frame(Kind::Headers, flags, stream, &field("x-sum", "1"));
        mouth.write_all(&[head, trailers].concat()).await.unwrap();

        let seen = ear.body(stream).await;
        assert_eq!(header(&seen, "transfer-encoding"), Some("chunked"), "{seen}");
    }
}

#[tokio::test]
async fn many_requests_that_are_reset_at_once_do_not_end_the_connection() {
    let site = site_of(json!([])).await;
    let (mut ear, mut mouth) = visitor(&site).await;
    let pair = |number: u32| {
        let stream = 2 * number + 1;
        [get(stream, "/never", &[]), frame(Kind::Reset, 0, stream, &[0, 0, 0, 8])].concat()
    };

    let pairs: Vec<u8> = (0..400).flat_map(pair).collect();
    mouth.write_all(&[pairs, get(801, "/after", &[])].concat()).await.unwrap();

    assert!(ear.body(801).await.starts_with("GET /after"));
}

/// What is said next, and next, and next.
type Wave = Box<dyn Fn(u32) -> Vec<u8> + Send>;

/// Floods a site with what `wave` gives for 0, 1, 2, …, until the site cuts the connection; gives
/// how much could be said.
async fn flood(site: &EdgeFixture, wave: Wave) -> usize {
    let (mut ear, mut mouth) = visitor(site).await;
    let flooding = tokio::spawn(async move {
        let mut said = 0;
        for number in 0.. {
            // In pieces large enough for a busy machine.
            let piece: Vec<u8> = (number * 64..(number + 1) * 64).flat_map(&wave).collect();
            if mouth.write_all(&piece).await.is_err() || said > FLOOD {
                break;
            }
            said += piece.len();
        }
        said
    });
    ear.rest().await;
    soon(flooding).await.unwrap()
}

#[tokio::test]
async fn who_floods_is_cut_off_and_nobody_else() {
    let site = site_of(json!([])).await;
    let (mut bystander, mut speaking) = visitor(&site).await;
    let stream = |number: u32| 2 * number + 1;
    let never = get(1, "/never", &[]);
    let open = move |number| if number == 0 { never.clone() } else { Vec::new() };
    let unfinished = frame(Kind::Headers, 0, 1, &[0x82]);
    let posting = [&[0x83, 0x87][..], &field(":path", "/"), &field(":authority", "a.test")];
    let posting = frame(Kind::Headers, END_HEADERS, 1, &posting.concat());
    let resets = move |number| {
        let reset = frame(Kind::Reset, 0, stream(number), &[0, 0, 0, 8]);
        [get(stream(number), "/never", &[]), reset].concat()
    };
    let floods: [(&str, Wave); 8] = [
        ("resets", Box::new(resets)),
        (
            "continuations",
            Box::new(move |number| match number {
                0 => unfinished.clone(),
                _ => frame(Kind::Continuation, 0, 1, &field("x-a", "b")),
            }),
        ),
        ("settings", Box::new(|_| frame(Kind::Settings, 0, 0, &[]))),
        ("pings", Box::new(|_| frame(Kind::Ping, 0, 0, &[7; 8]))),
        ("priorities", Box::new(|_| frame(Kind::Priority, 0, 1, &[0, 0, 0, 0, 1]))),
        ("windows", Box::new(|_| frame(Kind::Window, 0, 0, &[0, 0, 0, 1]))),
        (
            "empty data",
            Box::new(move |number| match number {
                0 => posting.clone(),
                _ => frame(Kind::Data, 0, 1, &[]),
            }),
        ),
        (
            "pings beside a request",
            Box::new(move |number| [open(number), frame(Kind::Ping, 0, 0, &[7; 8])].concat()),
        ),
    ];

    for (name, wave) in floods {
        let said = flood(&site, wave).await;
        assert!(said < FLOOD, "{name} could go on");
    }

    speaking.write_all(&get(1, "/still-here", &[])).await.unwrap();
    assert!(bystander.body(1).await.starts_with("GET /still-here"));
    assert_eq!(status(&site.get("a.test", "/").await), "200");
}

/// An endpoint in a hurry, and somebody who visits it: it waits 720 ms between requests, and 240 ms
/// for somebody to take an answer, or for more of a body.
async fn hurried(upstream: SocketAddr) -> (Gateway, PublicEndpoint, Ear, Mouth) {
    let tick = Duration::from_millis(20);
    let timeouts = Timeouts {
        head: 4 * tick,
        stall: 12 * tick,
        upstream_stall: 12 * tick,
        idle: 36 * tick,
        response: Some(Duration::from_secs(1)),
        ..Timeouts::default()
    };
    let settings = GatewaySettings { timeouts, tls_endpoints: true, ..GatewaySettings::default() };
    let edges = edges_with(settings).await;
    let endpoint =
        edges.bind_endpoint(EndpointSpec::any(Proto::Https), Direct::to(upstream)).await.unwrap();
    let port = endpoint.address().unwrap().port();
    let (ear, mouth) = visitor_of(&edges, port, "127.0.0.1").await;
    (edges, endpoint, ear, mouth)
}

fn get_here(stream: u32, port: u16) -> Vec<u8> {
    let authority = format!("127.0.0.1:{port}");
    let block = [&[0x82, 0x87][..], &field(":path", "/"), &field(":authority", &authority)];
    frame(Kind::Headers, END_STREAM | END_HEADERS, stream, &block.concat())
}

#[tokio::test]
async fn a_connection_that_is_used_is_not_idle() {
    let (_edges, endpoint, mut ear, mut mouth) = hurried(mirror().await).await;
    let port = endpoint.address().unwrap().port();

    for number in 0..12 {
        mouth.write_all(&get_here(2 * number + 1, port)).await.unwrap();
        assert!(ear.body(2 * number + 1).await.starts_with("GET / "), "{number}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }

    assert!(!ear.rest().await.iter().any(|it| it.kind == Kind::Data), "then it ends");
}

#[tokio::test]
async fn an_answer_that_is_not_taken_is_given_up_beside_one_that_is() {
    let (gone, mut going) = tokio::sync::mpsc::unbounded_channel();
    let endless = upstream(move |mut peer| {
        let gone = gone.clone();
        async move {
            peer.head().await;
            peer.say("HTTP/1.1 200 OK\r\n\r\n").await;
            // Not as fast as it goes: the test shares the machine.
            while peer.0.write_all(&[0; 8192]).await.is_ok() {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
            gone.send(()).unwrap();
        }
    })
    .await;
    let (_edges, endpoint, mut ear, mut mouth) = hurried(endless).await;
    let port = endpoint.address().unwrap().port();
    let more = |stream: u32, bytes: u32| frame(Kind::Window, 0, stream, &bytes.to_be_bytes());
    mouth.write_all(&more(0, 1 << 30)).await.unwrap();
    mouth.write_all(&[get_here(1, port), get_here(3, port)].concat()).await.unwrap();

    // The window of the first stays shut; the second is taken as fast as it comes.
    let (mut reset, mut taken) = (false, 0);
    while !reset || going.is_empty() {
        let came = ear.next().await.expect("the connection goes on");
        match (came.kind, came.stream) {
            (Kind::Data, 3) if !came.payload.is_empty() => {
                let length = u32::try_from(came.payload.len()).unwrap();
                mouth.write_all(&more(3, length)).await.unwrap();
            }
            (Kind::Reset, stream) => {
                assert_eq!(stream, 1);
                reset = true;
            }
            _ => {}
        }
    }
    while taken < 1 << 16 {
        let came = ear.next().await.expect("the connection goes on");
        if came.kind == Kind::Data && came.stream == 3 {
            taken += came.payload.len();
            let length = u32::try_from(came.payload.len()).unwrap();
            mouth.write_all(&more(3, length)).await.unwrap();
        }
    }
    assert_eq!(soon(going.recv()).await, Some(()));
}

#[tokio::test]
async fn a_response_body_that_stops_is_given_up_beside_one_that_goes_on() {
    let pausing = upstream(|mut peer| async move {
        peer.head().await;
        peer.say("HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\nbegun").await;
        std::future::pending().await
    })
    .await;
    let (_edges, endpoint, mut ear, mut mouth) = hurried(pausing).await;
    let port = endpoint.address().unwrap().port();
    mouth.write_all(&get_here(1, port)).await.unwrap();

    let mut taken = Vec::new();
    let reset = loop {
        let came = ear.next().await.expect("the connection goes on");
        match came.kind {
            Kind::Data => taken.extend(came.payload),
            Kind::Reset => break came.stream,
            _ => {}
        }
    };

    assert_eq!((reset, taken.as_slice()), (1, &b"begun"[..]));
    // The connection carries other requests.
    mouth.write_all(&get_here(3, port)).await.unwrap();
    loop {
        let came = ear.next().await.expect("the connection goes on");
        if came.kind == Kind::Data && came.stream == 3 {
            break;
        }
    }
}

#[tokio::test]
async fn who_takes_no_answer_is_let_go() {
    let (gone, mut going) = tokio::sync::mpsc::unbounded_channel();
    let endless = upstream(move |mut peer| {
        let gone = gone.clone();
        async move {
            peer.head().await;
            peer.say("HTTP/1.1 200 OK\r\n\r\n").await;
            while peer.0.write_all(&[0; 65536]).await.is_ok() {}
            gone.send(()).unwrap();
        }
    })
    .await;
    let (_edges, endpoint, mut ear, mut mouth) = hurried(endless).await;

    // It listens, but its window stays shut.
    mouth.write_all(&get_here(1, endpoint.address().unwrap().port())).await.unwrap();
    ear.rest().await;

    soon(going.recv()).await.unwrap();
}

#[tokio::test]
async fn larger_heads_are_refused_and_the_connection_goes_on() {
    let settings = GatewaySettings {
        max_head: ByteSize(2048),
        max_header_fields: 20,
        tls_endpoints: true,
        ..GatewaySettings::default()
    };
    let edges = edges_with(settings).await;
    let target = Direct::to(mirror().await);
    let endpoint = edges.bind_endpoint(EndpointSpec::any(Proto::Https), target).await.unwrap();
    let port = endpoint.address().unwrap().port();
    let (mut ear, mut mouth) = visitor_of(&edges, port, "127.0.0.1").await;
    let authority = format!("127.0.0.1:{port}");
    let request = |stream, fields: &[(&str, &str)]| {
        let block = [&[0x82, 0x87][..], &field(":path", "/"), &field(":authority", &authority)];
        let fields: Vec<u8> = fields.iter().flat_map(|(name, value)| field(name, value)).collect();
        frame(Kind::Headers, END_STREAM | END_HEADERS, stream, &[block.concat(), fields].concat())
    };
    let value = "v".repeat(100);
    // By RFC 9113, section 10.5.1: 32 bytes more for each field.
    let large = (2048 - "/".len() - authority.len()) / ("x-a".len() + value.len() + 32);
    let x = |count: usize| vec![("x-a", value.as_str()); count];

    for (stream, fields, expected) in [
        (1, vec![("x-a", "b"); 20], "GET / HTTP/1.1\r\n"),
        (3, vec![("x-a", "b"); 21], "The request has too many headers."),
        (5, vec![("cookie", "a=b"); 40], "GET / HTTP/1.1\r\n"),
        (7, x(large), "GET / HTTP/1.1\r\n"),
        (9, x(large + 1), "The headers of the request are too large."),
        (11, vec![], "GET / HTTP/1.1\r\n"),
    ] {
        mouth.write_all(&request(stream, &fields)).await.unwrap();
        let body = ear.body(stream).await;
        assert!(body.starts_with(expected), "{stream}: {body}");
    }
}
