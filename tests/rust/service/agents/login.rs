//! A peer that has not authenticated gets little, and whoever wants more is sent away.

use ginnel_mux::Code;
use ginnel_mux::LoginLimitError;
use ginnel_mux::SessionEnd;
use ginnel_mux::frame;

use tokio::io::AsyncReadExt;

use crate::mux::support::{EventDelivery, Raw, fin, soon};

const CALM: EventDelivery = EventDelivery::GoAway(Code::ENHANCE_YOUR_CALM);

#[tokio::test]
async fn a_third_stream_ends_the_session() {
    let (mut peer, session, _incoming) = Raw::unauthenticated();

    for stream in [3, 5, 7] {
        peer.data(stream, "syn", b"xxxx").await;
    }

    assert_eq!(peer.hear().await, CALM);
    assert_eq!(peer.hear().await, EventDelivery::Closed);
    let ended = soon(session.wait_until_ended()).await;
    assert!(matches!(ended, SessionEnd::BeforeLogin(LoginLimitError::Streams(2))), "{ended}");
    assert_eq!(ended.to_string(), "before authentication: more than 2 open streams");
}

#[tokio::test]
async fn streams_may_follow_each_other() {
    let (mut peer, session, mut incoming) = Raw::unauthenticated();

    for stream in (3..99).step_by(2) {
        peer.data(stream, "syn fin", b"xxxx").await;
        drop(soon(incoming.next()).await.unwrap());
        assert_eq!(peer.hear().await, fin(stream));
    }

    assert!(!session.is_ended());
}

#[tokio::test]
async fn a_frame_that_is_too_long_is_not_waited_for() {
    for length in [68 * 1024_u32, 262_144, (1 << 24) - 1] {
        let (mut peer, session, _incoming) = Raw::unauthenticated();
        let mut head = Vec::new();
        frame::put_data(&mut head, 3, true, false, &[]);
        head[..3].copy_from_slice(&length.to_be_bytes()[1..]);

        peer.send(&head).await;

        assert_eq!(peer.hear().await, CALM, "{length}");
        let ended = soon(session.wait_until_ended()).await;
        assert!(matches!(ended, SessionEnd::BeforeLogin(LoginLimitError::Bytes(_))), "{ended}");
    }
}

#[tokio::test]
async fn a_message_of_64_kib_may_be_sent_and_no_more() {
    let (mut peer, session, mut incoming) = Raw::unauthenticated();

    peer.data(3, "syn", &[b'x'; 64 * 1024]).await;
    let mut stream = soon(incoming.next()).await.unwrap();
    let mut message = vec![0; 64 * 1024];
    soon(stream.read_exact(&mut message)).await.unwrap();
    assert!(!session.is_ended());

    peer.data(3, "", &[b'x'; 8 * 1024]).await;

    // The window that was read is granted again before.
    while let heard = peer.hear().await
        && heard != CALM
    {
        assert!(matches!(heard, EventDelivery::Window(3, _)), "{heard:?}");
    }
    assert!(soon(stream.read_u8()).await.is_err());
}

#[tokio::test]
async fn frames_of_every_kind_count() {
    let mut floods: [Vec<u8>; 4] = Default::default();
    let [unknown, windows, resets, trickle] = &mut floods;
    unknown.extend([0, 0x20, 0, 0xf0, 0, 0, 0, 0]);
    unknown.extend([0; 0x2000]);
    frame::put_window(windows, 3, 1);
    frame::put_reset(resets, 9, Code::NONE);
    frame::put_data(trickle, 3, false, false, b"x");
    for flood in floods {
        let (mut peer, session, _incoming) = Raw::unauthenticated();
        peer.data(3, "syn", b"xxxx").await;

        for _ in 0..80 * 1024 / flood.len() {
            peer.send(&flood).await;
        }

        let ended = soon(session.wait_until_ended()).await;
        assert!(matches!(ended, SessionEnd::BeforeLogin(LoginLimitError::Bytes(_))), "{ended}");
    }
}

#[tokio::test]
async fn whoever_has_authenticated_may_do_more() {
    let (mut peer, session, mut incoming) = Raw::unauthenticated();
    peer.data(3, "syn", b"xxxx").await;
    let mut streams = vec![soon(incoming.next()).await.unwrap()];

    session.mark_authenticated();

    for stream in (5..105).step_by(2) {
        peer.data(stream, "syn", &[b'x'; 8 * 1024]).await;
        streams.push(soon(incoming.next()).await.unwrap());
    }
    assert_eq!(session.stream_count(), 51);
    assert!(!session.is_ended());
}
