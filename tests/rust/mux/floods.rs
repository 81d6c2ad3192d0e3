//! A peer that sends too much, or reads too little, takes no more than its share.

use std::time::Duration;

use ginnel_mux::Code;
use ginnel_mux::SessionLimits;
use ginnel_mux::frame;
use ginnel_mux::stream_state::WINDOW;

use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use super::support::{EventDelivery, Raw, soon, until};

#[tokio::test]
async fn streams_that_nobody_accepts_are_refused() {
    let limits = SessionLimits { open: 100, waiting: 3 };
    let (mut peer, session, mut incoming) = Raw::start_with(limits);

    for number in 0..5 {
        peer.data(3 + 2 * number, "syn", b"x").await;
    }

    assert_eq!(peer.hear().await, EventDelivery::Reset(9, Code::ACCEPT_QUEUE_FULL));
    assert_eq!(peer.hear().await, EventDelivery::Reset(11, Code::ACCEPT_QUEUE_FULL));
    assert_eq!(session.stream_count(), 3);
    drop(soon(incoming.next()).await.unwrap());
    peer.data(13, "syn", b"x").await;
    until(|| session.stream_count() == 3).await;
}

#[tokio::test]
async fn streams_opened_and_reset_over_and_over_are_bounded() {
    let limits = SessionLimits { open: 100, waiting: 3 };
    let (mut peer, session, _incoming) = Raw::start_with(limits);
    let mut frames = Vec::new();
    for number in 0..1000 {
        frame::put_data(&mut frames, 3 + 2 * number, true, false, b"x");
        frame::put_reset(&mut frames, 3 + 2 * number, Code::CANCELLED);
    }

    peer.send(&frames).await;

    for number in 3..1000 {
        let refused = EventDelivery::Reset(3 + 2 * number, Code::ACCEPT_QUEUE_FULL);
        assert_eq!(peer.hear().await, refused);
    }
    assert_eq!(session.stream_count(), 0);
}

#[tokio::test]
async fn nobody_listens_to_a_peer_that_does_not() {
    const FRAMES: usize = 400_000;
    let (mut peer, _session, _incoming) = Raw::start();
    let mut frame = Vec::new();
    frame::put_data(&mut frame, 9, false, false, b"x");
    let flood = frame.repeat(FRAMES);

    // Each frame is owed an answer of twelve bytes: without a bound all would be taken.
    let mut sent = 0;
    let moment = Duration::from_millis(200);
    while let Ok(length) = timeout(moment, peer.io.write(&flood[sent..])).await {
        sent += length.unwrap();
        assert!(sent < flood.len(), "all of the flood was taken");
    }

    // Once it listens, it is answered.
    let mut answers = 0;
    while answers < sent / frame.len() {
        assert_eq!(peer.hear().await, EventDelivery::Reset(9, Code::STREAM_CLOSED));
        answers += 1;
    }
}

#[tokio::test]
async fn writers_wait_for_a_peer_that_does_not_read() {
    let (mut peer, session, _incoming) = Raw::start();
    let mut writers = Vec::new();
    for _ in 0..40 {
        let mut stream = session.open_stream(Bytes::from_static(b"first")).await.unwrap();
        writers.push(tokio::spawn(async move { stream.send_last(&vec![7; WINDOW - 5]).await }));
    }

    tokio::time::sleep(Duration::from_millis(50)).await;
    let written = writers.iter().filter(|writer| writer.is_finished()).count();
    assert!(written < 4, "{written} windows were queued");

    // Nothing was lost, and nobody forgotten.
    let mut ended = 0;
    while ended < 40 {
        if let EventDelivery::Data { fin: true, .. } = peer.hear().await {
            ended += 1;
        }
    }
    for writer in writers {
        soon(writer).await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn a_session_ends_although_the_peer_does_not_read() {
    let (mut peer, session, _incoming) = Raw::start();
    let mut stream = session.open_stream(Bytes::new()).await.unwrap();
    let writer = tokio::spawn(async move { stream.write_all(&vec![7; 2 * WINDOW]).await });
    tokio::time::sleep(Duration::from_millis(20)).await;

    soon(session.go_away(Code::NONE, "enough")).await;

    assert!(soon(writer).await.unwrap().is_err());
    let mut queued = Vec::new();
    soon(peer.io.read_to_end(&mut queued)).await.unwrap();
    assert!(queued.len() < WINDOW);
}
