//! Sessions over connections in memory.

use std::time::Duration;

use bytes::Bytes;
use ginnel::tunnel::message::{Answer, ProxyHeader, Unbind, error_text};
use ginnel::tunnel::rpc::{self, Call};
use ginnel::tunnel::{
    Code, Ended, Incoming, Session, Side, Stream, heartbeat, kind, proxy, read_kind,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
use tokio::time::timeout;

const PATIENCE: Duration = Duration::from_secs(10);

/// A session with both of its sides.
fn pair() -> (Session, Incoming, Session, Incoming) {
    let (ours, theirs) = duplex(64 * 1024);
    let (agent, to_agent) = Session::start(ours, Side::Agent);
    let (service, to_service) = Session::start(theirs, Side::Service);
    (agent, to_agent, service, to_service)
}

async fn soon<T>(future: impl Future<Output = T>) -> T {
    timeout(PATIENCE, future).await.expect("in time")
}

/// Sends back what comes, then ends.
async fn echo(mut stream: Stream) {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).await.unwrap();
    stream.write_all(&bytes).await.unwrap();
    stream.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_stream_is_half_closed_and_answered() {
    let (agent, _to_agent, _service, mut to_service) = pair();
    tokio::spawn(async move { echo(to_service.next().await.unwrap()).await });

    let mut stream = agent.open(Bytes::from_static(b"he")).await.unwrap();
    stream.write_all(b"llo").await.unwrap();
    stream.shutdown().await.unwrap();
    let mut answer = String::new();
    soon(stream.read_to_string(&mut answer)).await.unwrap();

    assert_eq!(answer, "hello");
    assert_eq!(stream.id(), 3);
}

#[tokio::test]
async fn more_than_a_window_passes_both_ways() {
    let (agent, _to_agent, _service, mut to_service) = pair();
    let sent = (0..3_000_000_u32).map(|n| n as u8).collect::<Vec<_>>();
    tokio::spawn(async move { echo(to_service.next().await.unwrap()).await });

    let stream = agent.open(Bytes::from_static(b"\0")).await.unwrap();
    let (mut read, mut write) = stream.into_split();
    let body = sent.clone();
    tokio::spawn(async move {
        write.write_all(&body).await.unwrap();
        write.shutdown().await.unwrap();
    });
    let mut received = Vec::new();
    soon(read.read_to_end(&mut received)).await.unwrap();

    assert!(received[1..] == sent);
}

#[tokio::test]
async fn a_reader_who_stops_holds_up_the_writer_and_nobody_else() {
    let (agent, _to_agent, _service, mut to_service) = pair();
    let mut stuck = agent.open(Bytes::from_static(b"stuck")).await.unwrap();
    let _silent = to_service.next().await.unwrap();
    tokio::spawn(async move { echo(to_service.next().await.unwrap()).await });

    let full = timeout(Duration::from_millis(200), stuck.write_all(&vec![0; 1 << 20])).await;
    let mut other = agent.open(Bytes::from_static(b"other")).await.unwrap();
    other.shutdown().await.unwrap();
    let mut answer = String::new();
    soon(other.read_to_string(&mut answer)).await.unwrap();

    assert!(full.is_err(), "a write beyond the window must wait");
    assert_eq!(answer, "other");
}

#[tokio::test]
async fn a_reset_wakes_reader_and_writer() {
    let (agent, _to_agent, _service, mut to_service) = pair();
    let stream = agent.open(Bytes::from_static(b"x")).await.unwrap();
    let theirs = to_service.next().await.unwrap();
    let (mut read, mut write) = stream.into_split();
    let reading = tokio::spawn(async move { read.read(&mut [0; 8]).await });
    let writing = tokio::spawn(async move { write.write_all(&vec![0; 1 << 20]).await });

    tokio::time::sleep(Duration::from_millis(50)).await;
    theirs.reset(Code::CANCELLED);

    assert!(soon(reading).await.unwrap().is_err());
    assert!(soon(writing).await.unwrap().is_err());
}

#[tokio::test]
async fn ten_thousand_streams_leave_nothing_behind() {
    let (agent, _to_agent, service, mut to_service) = pair();
    tokio::spawn(async move {
        while let Some(stream) = to_service.next().await {
            tokio::spawn(echo(stream));
        }
    });

    for number in 0..10_000_u32 {
        let mut stream = agent.open(Bytes::copy_from_slice(&number.to_be_bytes())).await.unwrap();
        stream.shutdown().await.unwrap();
        assert_eq!(soon(stream.read_u32()).await.unwrap(), number);
    }

    soon(async {
        while agent.streams() + service.streams() > 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn the_end_of_the_connection_ends_streams() {
    let (agent, _to_agent, service, mut to_service) = pair();
    let mut stream = agent.open(Bytes::from_static(b"x")).await.unwrap();
    let _theirs = to_service.next().await.unwrap();

    service.close();

    assert!(soon(stream.read(&mut [0; 8])).await.is_err());
    assert!(matches!(soon(agent.ended()).await, Ended::PeerClosed | Ended::Broken(_)));
    assert!(agent.open(Bytes::new()).await.is_err());
}

#[tokio::test]
async fn a_goodbye_is_heard_with_its_reason() {
    let (agent, _to_agent, service, _to_service) = pair();

    soon(service.go_away(Code::NONE, "back in a minute")).await;

    let ended = soon(agent.ended()).await;
    assert!(
        matches!(&ended, Ended::GoneAway { text, .. } if text == "back in a minute"),
        "{ended}"
    );
}

#[tokio::test]
async fn calls_are_answered_and_refused() {
    let (agent, _to_agent, _service, mut to_service) = pair();
    tokio::spawn(async move {
        while let Some(mut stream) = to_service.next().await {
            let kind = read_kind(&mut stream).await.unwrap();
            let call = Call::read(kind, stream).await.unwrap();
            let unbind = call.decode::<Unbind>().unwrap();
            match (kind, unbind.id.as_str()) {
                (kind::UNBIND, "known") => call.answer(&Answer::default()).await.unwrap(),
                _ => call.refuse(error_text("no such id", Some("ERR_NGROK_1"))).await.unwrap(),
            }
        }
    });
    let unbind = |id: &str| Unbind { id: id.to_owned(), extra: None };

    let known = rpc::call(&agent, &unbind("known"), PATIENCE).await.unwrap();
    let unknown = rpc::call(&agent, &unbind("other"), PATIENCE).await.unwrap();

    assert_eq!(known.failure(), None);
    assert_eq!(unknown.failure().unwrap().to_string(), "no such id (ERR_NGROK_1)");
}

#[tokio::test]
async fn a_proxied_connection_tells_whose_it_is() {
    let (_agent, mut to_agent, service, _to_service) = pair();
    let header =
        ProxyHeader { id: "b".into(), client_addr: "192.0.2.1:5".into(), ..Default::default() };

    let mut visitor = proxy::open_proxy(&service, &header).await.unwrap();
    visitor.write_all(b"hello").await.unwrap();
    let mut stream = to_agent.next().await.unwrap();

    assert_eq!(read_kind(&mut stream).await.unwrap(), kind::PROXY);
    assert_eq!(proxy::read_header(&mut stream).await.unwrap(), header);
    let mut bytes = [0; 5];
    stream.read_exact(&mut bytes).await.unwrap();
    assert_eq!(&bytes, b"hello");
}

#[tokio::test]
async fn a_beat_that_does_not_come_back_ends_the_session() {
    let (agent, _to_agent, _service, mut to_service) = pair();
    let interval = Duration::from_millis(20);
    let beating = heartbeat::keep(&agent, interval, interval);
    let mut stream = to_service.next().await.unwrap();
    assert_eq!(read_kind(&mut stream).await.unwrap(), kind::HEARTBEAT);
    let answering = tokio::spawn(heartbeat::answer(stream));
    let mut latency = beating.watch();
    soon(latency.wait_for(Option::is_some)).await.unwrap();
    assert!(!agent.is_ended());

    answering.abort();

    assert!(matches!(soon(agent.ended()).await, Ended::Silent | Ended::HeartbeatEnded));
}
