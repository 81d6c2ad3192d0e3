//! Sessions in memory and over real connections.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use ginnel_mux::Code;
use ginnel_mux::MuxSession;
use ginnel_mux::SessionEnd;
use ginnel_mux::Side;
use ginnel_mux::Stream;
use ginnel_mux::UnreadAccount;
use ginnel_mux::UnreadBacklog;
use ginnel_mux::heartbeat;
use ginnel_mux::protocol::read_kind;
use ginnel_mux::protocol::stream_kind;

use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::support::{Pair, pair, soon, until};

#[tokio::test]
async fn bytes_go_both_ways_and_each_side_ends_its_own() {
    let mut pair = pair();
    let (mut ours, mut theirs) = pair.stream().await;

    ours.write_all(b"question").await.unwrap();
    ours.shutdown().await.unwrap();
    let mut question = Vec::new();
    soon(theirs.read_to_end(&mut question)).await.unwrap();
    theirs.write_all(b"answer").await.unwrap();
    theirs.shutdown().await.unwrap();
    let mut answer = Vec::new();
    soon(ours.read_to_end(&mut answer)).await.unwrap();

    assert_eq!((question.as_slice(), answer.as_slice()), (&b"question"[..], &b"answer"[..]));
    assert_eq!((pair.agent.stream_count(), pair.service.stream_count()), (0, 0));
}

#[tokio::test]
async fn the_first_bytes_come_with_the_stream_and_ids_tell_the_sides() {
    let mut pair = pair();

    let first = pair
        .agent
        .open_stream(Bytes::copy_from_slice(&stream_kind::BIND.to_be_bytes()))
        .await
        .unwrap();
    let second = pair
        .agent
        .open_stream(Bytes::copy_from_slice(&stream_kind::AUTH.to_be_bytes()))
        .await
        .unwrap();
    let other = pair.service.open_stream(Bytes::from_static(&[0, 0, 0, 3, 7])).await.unwrap();

    assert_eq!((first.id(), second.id(), other.id()), (3, 5, 2));
    let mut arrived = soon(pair.service_incoming.next()).await.unwrap();
    assert_eq!(soon(read_kind(&mut arrived)).await.unwrap(), stream_kind::BIND);
    let mut arrived = soon(pair.agent_incoming.next()).await.unwrap();
    assert_eq!(soon(read_kind(&mut arrived)).await.unwrap(), stream_kind::PROXY);
    assert_eq!(soon(arrived.read_chunk()).await.unwrap().unwrap().as_ref(), [7]);
}

#[tokio::test]
async fn a_silent_stream_delays_nobody() {
    let mut pair = pair();
    let _silent = pair.service.open_stream(Bytes::new()).await.unwrap();
    let _loud = pair.service.open_stream(Bytes::from_static(b"\0\0\0\x03")).await.unwrap();

    let _first = soon(pair.agent_incoming.next()).await.unwrap();
    let mut second = soon(pair.agent_incoming.next()).await.unwrap();

    assert_eq!(soon(read_kind(&mut second)).await.unwrap(), stream_kind::PROXY);
}

#[tokio::test]
async fn a_reset_wakes_a_blocked_reader_and_a_blocked_writer() {
    let mut pair = pair();
    let (ours, theirs) = pair.stream().await;
    let (mut read, mut write) = theirs.into_split();
    let reader = tokio::spawn(async move { read.read(&mut [0; 8]).await });
    let writer = tokio::spawn(async move { write.write_all(&vec![0; 1 << 20]).await });
    // Half the window was certainly taken when so much arrived.
    let mut ours = ours;
    soon(ours.read_exact(&mut vec![0; 200_000])).await.unwrap();

    ours.reset(Code::CANCELLED);

    for error in [soon(reader).await.unwrap().err(), soon(writer).await.unwrap().err()] {
        let error = error.unwrap();
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
        assert_eq!(error.to_string(), "the stream was reset: stream cancelled");
    }
    assert_eq!((pair.agent.stream_count(), pair.service.stream_count()), (0, 0));
}

#[tokio::test]
async fn a_writer_waits_for_its_reader() {
    let mut pair = pair();
    let (mut ours, mut theirs) = pair.stream().await;
    let text: Vec<u8> = (0..3_000_000_u32).map(|number| (number / 7) as u8).collect();
    let sent = text.clone();
    let writer = tokio::spawn(async move { ours.send_last(&sent).await });

    until(|| pair.agent.stream_count() == 1).await;
    assert!(!writer.is_finished());
    let mut read = Vec::new();
    soon(theirs.read_to_end(&mut read)).await.unwrap();

    assert_eq!(read, text);
    soon(writer).await.unwrap().unwrap();
}

#[tokio::test]
async fn more_first_bytes_than_a_window_are_sent_as_the_peer_reads() {
    let mut pair = pair();
    let first = Bytes::from(vec![7; 600_000]);
    let opener = pair.service.clone();
    let opened = tokio::spawn(async move { opener.open_stream(first).await });

    let mut theirs = soon(pair.agent_incoming.next()).await.unwrap();
    let mut read = vec![0; 600_000];
    soon(theirs.read_exact(&mut read)).await.unwrap();

    assert!(read.iter().all(|byte| *byte == 7));
    soon(opened).await.unwrap().unwrap();
}

#[tokio::test]
async fn going_away_says_why() {
    let pair = pair();

    pair.service.go_away(Code::ENHANCE_YOUR_CALM, "too much").await;

    let ended = soon(pair.agent.wait_until_ended()).await;
    let SessionEnd::GoneAway { code, text } = ended else { panic!("{ended}") };
    assert_eq!((code, text.as_str()), (Code::ENHANCE_YOUR_CALM, "too much"));
    assert!(matches!(pair.service.wait_until_ended().await, SessionEnd::Closed));
    assert!(pair.service.open_stream(Bytes::new()).await.is_err());
}

#[tokio::test]
async fn what_was_written_before_going_away_arrives() {
    let mut pair = pair();
    let (mut ours, mut theirs) = pair.stream().await;

    ours.write_all(b"last words").await.unwrap();
    pair.service.go_away(Code::NONE, "").await;

    let mut read = [0; 10];
    soon(theirs.read_exact(&mut read)).await.unwrap();
    assert_eq!(&read, b"last words");
    let error = soon(theirs.read(&mut read)).await.unwrap_err();
    assert_eq!(error.to_string(), "the peer closed the session");
    assert!(theirs.write_all(b"x").await.is_err());
}

#[tokio::test]
async fn closing_wakes_everybody() {
    let mut pair = pair();
    let (mut ours, mut theirs) = pair.stream().await;
    let reader = tokio::spawn(async move { theirs.read(&mut [0; 8]).await });

    pair.agent.close();

    assert!(soon(reader).await.unwrap().is_err());
    assert!(soon(ours.read(&mut [0; 8])).await.is_err());
    assert!(soon(pair.service_incoming.next()).await.is_none());
    assert!(pair.agent.is_ended());
    assert!(soon(pair.agent_incoming.next()).await.is_none());
}

#[tokio::test]
async fn a_session_lives_as_long_as_a_handle_or_a_stream() {
    let Pair { agent, agent_incoming: _kept, service, mut service_incoming } = pair();
    let clone = agent.clone();
    let mut stream = agent.open_stream(Bytes::new()).await.unwrap();
    drop((agent, clone));

    stream.write_all(b"still there").await.unwrap();
    let mut theirs = soon(service_incoming.next()).await.unwrap();
    soon(theirs.read_exact(&mut [0; 11])).await.unwrap();
    assert!(!service.is_ended());
    drop(stream);

    assert!(matches!(
        soon(service.wait_until_ended()).await,
        SessionEnd::GoneAway { code: Code::NONE, .. }
    ));
}

#[tokio::test]
async fn heartbeats_measure_and_hold_no_session_open() {
    let Pair { agent, agent_incoming: _kept, service, mut service_incoming } = pair();
    let beat = heartbeat::start_steady(&agent, Duration::from_millis(5), Duration::from_secs(10));
    let mut stream = soon(service_incoming.next()).await.unwrap();
    assert_eq!(soon(read_kind(&mut stream)).await.unwrap(), stream_kind::HEARTBEAT);
    let answers = tokio::spawn(heartbeat::echo_beats(stream));

    let mut latency = beat.watch_latency();
    for _ in 0..3 {
        soon(latency.changed()).await.unwrap();
    }
    assert!(beat.latency().is_some());
    drop(agent);

    soon(service.wait_until_ended()).await;
    soon(answers).await.unwrap();
}

#[tokio::test]
async fn a_beat_that_does_not_come_back_ends_the_session_on_either_side() {
    for side in [Side::Agent, Side::Service] {
        let mut pair = pair();
        let keeper = if side == Side::Agent { &pair.agent } else { &pair.service };

        let _beat =
            heartbeat::start_steady(keeper, Duration::from_millis(20), Duration::from_millis(30));

        assert!(matches!(soon(keeper.wait_until_ended()).await, SessionEnd::Silent), "{side:?}");
        let other = if side == Side::Agent { &pair.service } else { &pair.agent };
        soon(other.wait_until_ended()).await;
        let silent = match side {
            Side::Agent => &mut pair.service_incoming,
            Side::Service => &mut pair.agent_incoming,
        };
        assert!(soon(silent.next()).await.is_some(), "the stream that nobody answered");
    }
}

#[tokio::test]
async fn a_peer_that_only_sends_is_given_up_when_it_does_not_answer() {
    let mut pair = pair();
    let (interval, tolerance) = (Duration::from_millis(20), Duration::from_millis(500));
    let _beat = heartbeat::start_when_silent(&pair.service, interval, tolerance);
    let mut stream = soon(pair.agent_incoming.next()).await.unwrap();
    assert_eq!(soon(read_kind(&mut stream)).await.unwrap(), stream_kind::HEARTBEAT);
    // The first beat goes out at once, and comes back.
    let mut beat = [0; 4];
    soon(stream.read_exact(&mut beat)).await.unwrap();
    stream.write_all(&beat).await.unwrap();
    let mut own = pair.agent.open_stream(Bytes::from_static(b"hello")).await.unwrap();
    let _heard = soon(pair.service_incoming.next()).await.unwrap();

    soon(async {
        while !pair.service.is_ended() && own.write_all(b"!").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    })
    .await;

    assert!(matches!(soon(pair.service.wait_until_ended()).await, SessionEnd::Silent));
}

#[tokio::test]
async fn a_peer_that_ends_the_heartbeat_ends_the_session() {
    let mut pair = pair();
    let _beat =
        heartbeat::start_steady(&pair.agent, Duration::from_secs(10), Duration::from_secs(10));

    drop(soon(pair.service_incoming.next()).await.unwrap());

    assert!(matches!(soon(pair.agent.wait_until_ended()).await, SessionEnd::HeartbeatEnded));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_streams_over_a_real_connection_keep_their_bytes_apart() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let dialled = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (accepted, _) = listener.accept().await.unwrap();
    let (service, _service_incoming) = MuxSession::start(accepted, Side::Service);
    let (agent, mut incoming) = MuxSession::start(dialled, Side::Agent);
    tokio::spawn(async move {
        while let Some(stream) = incoming.next().await {
            tokio::spawn(echo(stream));
        }
    });

    let visitors = (0..64_u8).map(|number| {
        let service = service.clone();
        tokio::spawn(async move {
            let stream = service.open_stream(Bytes::new()).await.unwrap();
            let (mut read, mut write) = stream.into_split();
            let text = vec![number; 300_000];
            let sent = text.clone();
            let writer = tokio::spawn(async move {
                write.write_all(&sent).await.unwrap();
                write.shutdown().await.unwrap();
            });
            let mut echo = Vec::new();
            read.read_to_end(&mut echo).await.unwrap();
            writer.await.unwrap();
            assert!(echo == text, "visitor {number} got other bytes");
        })
    });
    for visitor in visitors.collect::<Vec<_>>() {
        soon(visitor).await.unwrap();
    }

    until(|| service.stream_count() == 0 && agent.stream_count() == 0).await;
}

#[tokio::test]
async fn a_reader_who_stops_holds_up_its_writer_and_nobody_else() {
    let mut pair = pair();
    let (stuck, silent) = pair.stream().await;
    let (_unread, mut write) = stuck.into_split();
    let blocked = tokio::spawn(async move { write.write_all(&vec![0; 1 << 20]).await });
    let (mut other, theirs) = pair.stream().await;
    tokio::spawn(echo(theirs));

    for number in 0..100 {
        other.write_u32(number).await.unwrap();
        assert_eq!(soon(other.read_u32()).await.unwrap(), number);
    }

    assert!(!blocked.is_finished(), "a write beyond the window must wait");
    drop(silent);
    assert!(soon(blocked).await.unwrap().is_err(), "data for a dropped stream is answered");
}

#[tokio::test]
async fn ten_thousand_streams_in_a_row_leave_nothing_behind() {
    let Pair { agent, mut agent_incoming, service, .. } = pair();
    tokio::spawn(async move {
        while let Some(stream) = agent_incoming.next().await {
            tokio::spawn(echo(stream));
        }
    });

    for number in 0..10_000_u32 {
        let first = Bytes::copy_from_slice(&number.to_be_bytes());
        let mut stream = service.open_stream(first).await.unwrap();
        // Every third is dropped half-way, every third with its answer unread.
        if number % 3 < 2 {
            stream.shutdown().await.unwrap();
        }
        if number % 3 < 1 {
            assert_eq!(soon(stream.read_u32()).await.unwrap(), number);
        }
    }

    until(|| agent.stream_count() + service.stream_count() == 0).await;
    assert_eq!(service.open_streams(), 0);
}

async fn echo(stream: Stream) {
    let (mut read, mut write) = stream.into_split();
    let _ = tokio::io::copy(&mut read, &mut write).await;
    let _ = write.shutdown().await;
}

/// Writes as much as the window lets in, and waits until all of it has arrived.
async fn fill((ours, theirs): (&Stream, &mut Stream), account: &Arc<UnreadAccount>) {
    const WINDOW: usize = 256 << 10;
    ours.count_in(account.clone());
    // Who is cut off on the way has sent what matters.
    let _ = soon(theirs.write_all(&vec![0; WINDOW])).await;
}

#[tokio::test]
async fn what_nobody_reads_is_bounded_and_who_has_most_of_it_loses_it() {
    // A window of the modest one, and as much as the limit or a little more in all.
    bounded(UnreadBacklog::default(), 21..45).await;
    bounded(UnreadBacklog::new(2 << 20), 7..21).await;
}

/// Leaves more unread than a session may, so that so many streams are left.
async fn bounded(backlog: UnreadBacklog, left: Range<usize>) {
    let mut pair = pair();
    let backlog = Arc::new(backlog);
    let (greedy, modest) = (UnreadAccount::new(&backlog), UnreadAccount::new(&backlog));
    let mut kept = pair.stream().await;
    fill((&kept.0, &mut kept.1), &modest).await;

    let mut streams = Vec::new();
    for _ in 0..100 {
        let mut stream = pair.stream().await;
        fill((&stream.0, &mut stream.1), &greedy).await;
        streams.push(stream);
    }

    until(|| pair.service.stream_count() < left.end).await;
    assert!(pair.service.stream_count() >= left.start, "{}", pair.service.stream_count());
    soon(kept.0.read_exact(&mut vec![0; 256 << 10])).await.unwrap();

    // What is read, or given up, makes room for others.
    streams.clear();
    let mut late = pair.stream().await;
    fill((&late.0, &mut late.1), &greedy).await;
    soon(late.0.read_exact(&mut vec![0; 256 << 10])).await.unwrap();
}
