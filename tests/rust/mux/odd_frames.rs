//! How a session answers a peer that sends odd frames, or the right ones at odd times.

use std::io::ErrorKind;

use ginnel_mux::Code;
use ginnel_mux::SessionEnd;
use ginnel_mux::SessionLimits;
use ginnel_mux::frame;
use ginnel_mux::stream_state::WINDOW;

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::support::{EventDelivery, Raw, fin, soon, until};

#[tokio::test]
async fn data_beyond_the_window_is_refused_before_it_arrives() {
    let (mut peer, session, mut incoming) = Raw::start();
    peer.data(3, "syn", b"x").await;
    let mut stream = soon(incoming.next()).await.unwrap();

    // A head that announces one byte too many, and nothing of the body.
    peer.send(&[0x04, 0x00, 0x00, 0x10, 0, 0, 0, 3]).await;

    assert_eq!(peer.hear().await, EventDelivery::Reset(3, Code::FLOW_CONTROL));
    assert_eq!(session.stream_count(), 0);
    let error = soon(stream.read_to_end(&mut Vec::new())).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    // The body is passed over, and the session goes on.
    peer.send(&vec![0; 0x0004_0000]).await;
    peer.data(5, "syn fin", b"next").await;
    let mut text = String::new();
    soon(soon(incoming.next()).await.unwrap().read_to_string(&mut text)).await.unwrap();
    assert_eq!(text, "next");
}

#[tokio::test]
async fn the_whole_window_may_come_in_one_frame_and_is_granted_again_in_parts() {
    let (mut peer, _session, mut incoming) = Raw::start();
    peer.data(3, "syn", &vec![7; WINDOW]).await;
    let mut stream = soon(incoming.next()).await.unwrap();

    for _ in 0..4 {
        soon(stream.read_exact(&mut [0; 1000])).await.unwrap();
        assert!(peer.hears_nothing().await, "an increment for each read is too many");
        soon(stream.read_exact(&mut [0; 65_536 - 1000])).await.unwrap();
        assert_eq!(peer.hear().await, EventDelivery::Window(3, 65_536));
    }
}

#[tokio::test]
async fn a_writer_sends_a_window_and_then_what_is_granted() {
    let (mut peer, session, _incoming) = Raw::start();
    let mut stream = session.open_stream(bytes::Bytes::from_static(b"first")).await.unwrap();
    let writer = tokio::spawn(async move { stream.write_all(&vec![7; 2 * WINDOW]).await });

    assert_eq!(received(&mut peer, WINDOW).await, WINDOW);
    assert!(peer.hears_nothing().await);
    let mut increments = Vec::new();
    frame::put_window(&mut increments, 2, 0);
    frame::put_window(&mut increments, 2, 1000);
    peer.send(&increments).await;
    assert_eq!(received(&mut peer, 1000).await, 1000);
    assert!(peer.hears_nothing().await);
    let mut increments = Vec::new();
    frame::put_window(&mut increments, 2, u32::MAX);
    frame::put_window(&mut increments, 2, u32::MAX);
    peer.send(&increments).await;

    assert_eq!(received(&mut peer, WINDOW - 995).await, WINDOW - 995);
    soon(writer).await.unwrap().unwrap();
}

async fn received(peer: &mut Raw, wanted: usize) -> usize {
    let mut received = 0;
    while received < wanted {
        match peer.hear().await {
            EventDelivery::Data { body, .. } if body.len() <= 32 * 1024 => received += body.len(),
            other => panic!("{other:?}"),
        }
    }
    received
}

#[tokio::test]
async fn data_after_the_end_is_refused() {
    let (mut peer, session, mut incoming) = Raw::start();
    peer.data(3, "syn fin", b"all").await;
    let mut stream = soon(incoming.next()).await.unwrap();

    peer.data(3, "", b"more").await;

    assert_eq!(peer.hear().await, EventDelivery::Reset(3, Code::STREAM_CLOSED));
    assert_eq!(session.stream_count(), 0);
    let mut text = String::new();
    soon(stream.read_to_string(&mut text)).await.unwrap();
    assert_eq!(text, "all");
    assert!(stream.write_all(b"answer").await.is_err());
}

#[tokio::test]
async fn frames_for_unknown_streams_are_refused_or_ignored() {
    let (mut peer, _session, mut incoming) = Raw::start();
    let mut frames = Vec::new();
    frame::put_reset(&mut frames, 9, Code::CANCELLED);
    frame::put_window(&mut frames, 9, 5);
    frame::put_data(&mut frames, 9, false, true, b"");
    frame::put_data(&mut frames, 11, false, false, b"lost");
    frame::put_data(&mut frames, 13, false, true, b"lost");
    frame::put_data(&mut frames, 2, false, false, b"");

    peer.send(&frames).await;

    for stream in [11, 13, 2] {
        assert_eq!(peer.hear().await, EventDelivery::Reset(stream, Code::STREAM_CLOSED));
    }
    peer.data(15, "syn", b"").await;
    assert_eq!(soon(incoming.next()).await.unwrap().id(), 15);
}

#[tokio::test]
async fn unknown_frames_are_passed_over() {
    let (mut peer, _session, mut incoming) = Raw::start();

    peer.send(&[0, 0, 3, 0x50, 0, 0, 0, 0, 1, 2, 3]).await;
    peer.send(&[0, 0, 0, 0xff, 0, 0, 0, 9]).await;
    peer.data(3, "syn", b"").await;

    let stream = soon(incoming.next()).await.unwrap();
    assert_eq!(stream.id(), 3);
    assert!(peer.hears_nothing().await);
}

#[tokio::test]
async fn what_breaks_the_protocol_ends_the_session() {
    let twice = [[0, 0, 0, 0x12, 0, 0, 0, 3]; 2].concat();
    let cases: [&[u8]; 6] = [
        &twice,
        &[0, 0, 0, 0x12, 0, 0, 0, 4],
        &[0, 0, 1, 0x10, 0, 0, 0, 0, 7],
        &[0, 0, 0, 0x20, 0, 0, 0, 3],
        &[0, 0, 4, 0x20, 0, 0, 0, 0, 0, 0, 0, 1],
        &[0, 0, 8, 0x00, 0, 0, 0, 3, 0, 0, 0, 1, 0, 0, 0, 1],
    ];
    for case in cases {
        let (mut peer, session, _incoming) = Raw::start();

        peer.send(case).await;

        assert_eq!(peer.hear().await, EventDelivery::GoAway(Code::PROTOCOL), "{case:?}");
        assert_eq!(peer.hear().await, EventDelivery::Closed);
        assert!(matches!(soon(session.wait_until_ended()).await, SessionEnd::Protocol(_)));
    }
}

#[tokio::test]
async fn ids_may_come_in_any_order() {
    let (mut peer, _session, mut incoming) = Raw::start();
    for id in [9, 3, 7, 5] {
        peer.data(id, "syn", b"").await;
        assert_eq!(soon(incoming.next()).await.unwrap().id(), id);
        assert_eq!(peer.hear().await, fin(id));
    }
}

#[tokio::test]
async fn a_goodbye_of_any_length_ends_the_session() {
    let short: &[u8] = &[0, 0, 0, 0x30, 0, 0, 0, 0];
    let forgotten: &[u8] = &[0, 0, 2, 0x30, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, b'h', b'i'];
    let right: &[u8] = &[0, 0, 10, 0x30, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, b'h', b'i'];
    for goodbye in [short, forgotten, right] {
        let (mut peer, session, mut incoming) = Raw::start();
        peer.data(3, "syn", b"").await;
        let mut stream = soon(incoming.next()).await.unwrap();

        peer.send(goodbye).await;
        // Nothing is read behind it.
        let _ = peer.io.write_all(&[0, 0, 0, 0x12, 0, 0, 0, 5]).await;

        let ended = soon(session.wait_until_ended()).await;
        assert!(matches!(ended, SessionEnd::GoneAway { .. }), "{ended}");
        assert!(soon(stream.read(&mut [0])).await.is_err());
        assert!(soon(incoming.next()).await.is_none());
        assert_eq!(peer.hear().await, EventDelivery::Closed);
    }
}

#[tokio::test]
async fn both_sides_end_in_either_order_with_and_without_data() {
    for peer_first in [true, false] {
        for body in [&b""[..], b"last"] {
            let (mut peer, session, mut incoming) = Raw::start();
            peer.data(3, "syn", b"").await;
            let mut stream = soon(incoming.next()).await.unwrap();
            let ours =
                EventDelivery::Data { stream: 3, syn: false, fin: true, body: body.to_vec() };

            if peer_first {
                peer.data(3, "fin", body).await;
            }
            stream.send_last(body).await.unwrap();
            assert_eq!(peer.hear().await, ours);
            if !peer_first {
                assert_eq!(session.stream_count(), 1);
                peer.data(3, "fin", body).await;
            }

            let mut read = Vec::new();
            soon(stream.read_to_end(&mut read)).await.unwrap();
            assert_eq!(read, body);
            assert_eq!(session.stream_count(), 0);
            assert_eq!(stream.write(b"x").await.unwrap_err().kind(), ErrorKind::BrokenPipe);
            drop(stream);
            assert!(peer.hears_nothing().await);
        }
    }
}

#[tokio::test]
async fn a_dropped_stream_counts_until_the_peer_knows() {
    let (mut peer, session, _incoming) = Raw::start();
    for id in [2, 4, 6] {
        drop(session.open_stream(bytes::Bytes::from_static(b"x")).await.unwrap());
        assert!(matches!(peer.hear().await, EventDelivery::Data { syn: true, fin: false, .. }));
        assert_eq!(peer.hear().await, fin(id));
    }
    assert_eq!(session.open_streams(), 3);

    peer.data(2, "fin", b"").await;
    peer.data(4, "", b"late").await;
    let mut reset = Vec::new();
    frame::put_reset(&mut reset, 6, Code::CANCELLED);
    peer.send(&reset).await;

    assert_eq!(peer.hear().await, EventDelivery::Reset(4, Code::STREAM_CLOSED));
    until(|| session.open_streams() == 0).await;
    assert!(peer.hears_nothing().await);
}

#[tokio::test]
async fn an_answer_survives_the_reset_that_follows_it() {
    let (mut peer, session, _incoming) = Raw::start();
    let mut stream = session.open_stream(bytes::Bytes::from_static(b"upload")).await.unwrap();

    peer.data(2, "fin", b"too large").await;
    let mut reset = Vec::new();
    frame::put_reset(&mut reset, 2, Code::STREAM_CLOSED);
    peer.send(&reset).await;

    until(|| session.stream_count() == 0).await;
    assert!(stream.write_all(b"more").await.is_err());
    let mut answer = String::new();
    soon(stream.read_to_string(&mut answer)).await.unwrap();
    assert_eq!(answer, "too large");
}

#[tokio::test]
async fn the_501st_open_stream_is_refused_until_one_is_gone() {
    let limits = SessionLimits { open: 500, waiting: 500 };
    let (mut peer, session, mut incoming) = Raw::start_with(limits);
    let mut streams = Vec::new();
    for number in 0..500 {
        peer.data(3 + 2 * number, "syn", b"").await;
        streams.push(soon(incoming.next()).await.unwrap());
    }

    peer.data(1003, "syn", b"refused").await;
    assert_eq!(peer.hear().await, EventDelivery::Reset(1003, Code::REFUSED));
    assert_eq!(session.stream_count(), 500);

    let mut first = streams.remove(0);
    first.shutdown().await.unwrap();
    peer.data(3, "fin", b"").await;
    assert_eq!(peer.hear().await, fin(3));
    until(|| session.stream_count() == 499).await;
    peer.data(1005, "syn", b"").await;
    assert_eq!(soon(incoming.next()).await.unwrap().id(), 1005);
}
