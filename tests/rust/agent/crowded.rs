//! As many connections as the session of an agent carries, and one more.

use std::net::SocketAddr;
use std::time::Duration;

use ginnel_mux::Incoming;
use ginnel_mux::MuxSession;
use ginnel_mux::Side;
use ginnel_mux::Stream;
use ginnel_mux::heartbeat;
use ginnel_mux::protocol::message::Bind;
use ginnel_mux::protocol::message::BindOpts;
use ginnel_mux::protocol::proxy;
use ginnel_mux::protocol::read_kind;
use ginnel_mux::protocol::rpc;
use ginnel_mux::protocol::stream_kind;
use ginnel_service::{self as service, Service};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::support::{PATIENCE, dial, log_in, message};

/// More than a visitor's system holds of a response, in bytes.
const LENGTH: usize = 1_000_000_000;
/// How many connections a session carries.
const MOST: usize = 500;

/// An agent of another make: it breaks at 512 streams, and its program decides what is answered.
struct Foreign {
    session: MuxSession,
    place: String,
    /// The connections that visitors opened.
    visitors: mpsc::UnboundedReceiver<Stream>,
}

impl Foreign {
    async fn connect(service: &Service) -> Self {
        let (session, incoming) = MuxSession::start(dial(service).await, Side::Agent);
        log_in(service, &session).await;
        let bind = Bind { proto: "http".to_owned(), opts: BindOpts::default(), ..Bind::default() };
        let answer = rpc::call(&session, &bind, PATIENCE).await.unwrap();
        let place = answer.url.trim_start_matches("http://").to_owned();
        let (taken, visitors) = mpsc::unbounded_channel();
        tokio::spawn(take(incoming, taken));
        Self { session, place, visitors }
    }

    async fn visitor(&mut self) -> Stream {
        timeout(PATIENCE, self.visitors.recv()).await.expect("a visitor").unwrap()
    }
}

async fn take(mut incoming: Incoming, taken: mpsc::UnboundedSender<Stream>) {
    while let Some(mut stream) = incoming.next().await {
        match read_kind(&mut stream).await.unwrap() {
            stream_kind::HEARTBEAT => drop(tokio::spawn(heartbeat::echo_beats(stream))),
            stream_kind::PROXY => {
                proxy::read_header(&mut stream).await.unwrap();
                let _ = taken.send(stream);
            }
            other => panic!("a stream of kind {other}"),
        }
    }
}

/// Asks at this place; the status of the answer.
async fn ask(place: &str) -> u16 {
    status_of(&ask_from("127.0.0.1", place).await)
}

/// A visitor from an address, who has asked at this place.
async fn visitor_from(address: &str, place: &str) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(SocketAddr::new(address.parse().unwrap(), 0)).unwrap();
    let mut stream = socket.connect(place.parse().unwrap()).await.unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await.unwrap();
    stream
}

/// Asks at this place from an address; the answer, as far as there is one.
async fn ask_from(address: &str, place: &str) -> String {
    let mut stream = visitor_from(address, place).await;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    String::from_utf8_lossy(&answer).into_owned()
}

fn status_of(answer: &str) -> u16 {
    answer[9..12].parse().unwrap()
}

async fn answer(mut stream: Stream) {
    message(&mut stream, &mut Vec::new()).await.expect("a request");
    stream.send_last(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_hundred_connections_live_and_the_next_gets_503() {
    let service = Service::start(service::Options::default()).await.unwrap();
    let mut agent = Foreign::connect(&service).await;
    let mut asking = JoinSet::new();
    let ask_once = |asking: &mut JoinSet<u16>| {
        let place = agent.place.clone();
        asking.spawn(async move { ask(&place).await });
    };

    (0..MOST).for_each(|_| ask_once(&mut asking));
    let mut held = Vec::new();
    while held.len() < MOST {
        held.push(agent.visitor().await);
    }
    assert_eq!(ask(&agent.place).await, 503);
    assert!(agent.visitors.try_recv().is_err(), "no more streams than the agent can bear");
    assert!(agent.session.stream_count() < 512);

    // One that ends makes room for another, which waited for it.
    let place = agent.place.clone();
    let late = tokio::spawn(async move { ask(&place).await });
    tokio::time::sleep(Duration::from_millis(50)).await;
    answer(held.pop().unwrap()).await;
    answer(agent.visitor().await).await;
    assert_eq!(late.await.unwrap(), 200);
    for stream in held {
        answer(stream).await;
    }
    while let Some(status) = asking.join_next().await {
        assert_eq!(status.unwrap(), 200);
    }
    assert!(!agent.session.is_ended());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rush_never_takes_more_than_a_session_carries() {
    let service = Service::start(service::Options::default()).await.unwrap();
    let mut agent = Foreign::connect(&service).await;
    let mut asking = JoinSet::new();

    for _ in 0..MOST + 100 {
        let place = agent.place.clone();
        asking.spawn(async move { ask(&place).await });
    }
    let mut held = Vec::new();
    while held.len() < MOST {
        held.push(agent.visitor().await);
    }
    let mut refused = 0;
    while refused < 100 {
        assert_eq!(asking.join_next().await.unwrap().unwrap(), 503);
        refused += 1;
    }

    assert!(agent.visitors.try_recv().is_err());
    for stream in held {
        answer(stream).await;
    }
    while let Some(status) = asking.join_next().await {
        assert_eq!(status.unwrap(), 200);
    }
}

/// A service in which visitors wait for a stream for so long.
async fn service_with(queue_timeout: Duration) -> Service {
    let agents = service::AgentSettings { queue_timeout, ..service::AgentSettings::default() };
    let options = service::Options { agents, ..service::Options::default() };
    Service::start(options).await.unwrap()
}

// Other systems have no address of this machine beside 127.0.0.1.
#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_whose_response_is_pending_never_makes_room() {
    let service = service_with(Duration::from_secs(1)).await;
    let mut agent = Foreign::connect(&service).await;
    let mut asking = JoinSet::new();
    for _ in 0..MOST {
        let place = agent.place.clone();
        asking.spawn(async move { status_of(&ask_from("127.0.0.2", &place).await) });
    }
    let mut held = Vec::new();
    while held.len() < MOST {
        held.push(agent.visitor().await);
    }

    // Whoever comes from elsewhere waits as long as it may; the response says when to come again.
    for address in ["127.0.0.2", "127.0.0.3"] {
        let response = ask_from(address, &agent.place).await;
        assert_eq!(status_of(&response), 503);
        assert!(response.contains("retry-after: 1\r\n"), "{response}");
        assert!(response.ends_with("ERR_NGROK_724\n"), "{response}");
    }

    for stream in held {
        answer(stream).await;
    }
    while let Some(status) = asking.join_next().await {
        assert_eq!(status.unwrap(), 200);
    }
}

#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_address_with_few_connections_gets_the_next_that_ends() {
    let service = service_with(10 * PATIENCE).await;
    let mut agent = Foreign::connect(&service).await;
    let mut asking = JoinSet::new();
    for _ in 0..MOST + 50 {
        let place = agent.place.clone();
        asking.spawn(async move { status_of(&ask_from("127.0.0.2", &place).await) });
    }
    let mut held = Vec::new();
    while held.len() < MOST {
        held.push(agent.visitor().await);
    }
    // Fifty of them wait already when the others come.
    let mut others = JoinSet::new();
    for number in 3..9 {
        let place = agent.place.clone();
        others.spawn(async move { ask_from(&format!("127.0.0.{number}"), &place).await });
    }
    tokio::time::sleep(Duration::from_secs(3)).await;

    for _ in 3..9 {
        answer(held.pop().unwrap()).await;
        answer(agent.visitor().await).await;
        assert_eq!(status_of(&others.join_next().await.unwrap().unwrap()), 200);
    }

    for stream in held {
        answer(stream).await;
    }
    for _ in 0..50 {
        answer(agent.visitor().await).await;
    }
    while let Some(status) = asking.join_next().await {
        assert_eq!(status.unwrap(), 200);
    }
}

#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_visitor_who_does_not_read_makes_room() {
    let service = service_with(10 * PATIENCE).await;
    let mut agent = Foreign::connect(&service).await;
    let (mut visitors, mut held) = (Vec::new(), Vec::new());
    for _ in 0..MOST {
        visitors.push(visitor_from("127.0.0.2", &agent.place).await);
        held.push(agent.visitor().await);
    }
    // More than any buffer of the system holds, for the first alone.
    let mut first = held.remove(0);
    message(&mut first, &mut Vec::new()).await.expect("a request");
    let sending = tokio::spawn(async move {
        let head = b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n";
        first.write_all(head).await?;
        let mut sent = 0;
        while sent < LENGTH {
            first.write_all(&[0; 65536]).await?;
            sent += 65536;
        }
        Ok::<(), std::io::Error>(())
    });

    let place = agent.place.clone();
    let other = tokio::spawn(async move { ask_from("127.0.0.3", &place).await });
    answer(agent.visitor().await).await;

    assert_eq!(status_of(&other.await.unwrap()), 200);
    assert!(sending.await.unwrap().is_err(), "its visitor does not read");
    for stream in held {
        answer(stream).await;
    }
    for mut visitor in visitors.into_iter().skip(1) {
        let mut response = String::new();
        visitor.read_to_string(&mut response).await.unwrap();
        assert_eq!(status_of(&response), 200);
    }
}
