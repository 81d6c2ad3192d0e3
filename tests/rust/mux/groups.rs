//! Streams that are reset together.

use ginnel_mux::Code;

use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::support::{EventDelivery, Raw, fin, pair, soon};

#[tokio::test]
async fn a_group_is_reset_at_both_sides_and_nothing_else_is() {
    let mut pair = pair();
    let (one, other) = (pair.service.new_group(), pair.service.new_group());
    let mut streams = Vec::new();
    for group in [Some(one), Some(other), None, Some(one)] {
        let ours = pair.service.open_below(9, group, Bytes::from_static(b"x")).await.unwrap();
        let theirs = soon(pair.agent_incoming.next()).await.unwrap();
        streams.push((ours.unwrap(), theirs));
    }

    pair.service.reset_group(one, Code::CANCELLED);

    let [first, second, third, fourth] = &mut streams[..] else { unreachable!() };
    for (ours, theirs) in [first, fourth] {
        assert!(soon(ours.read_u8()).await.is_err());
        assert!(ours.write_all(b"x").await.is_err());
        let mut rest = Vec::new();
        let _ = soon(theirs.read_to_end(&mut rest)).await;
        assert!(theirs.write_all(b"x").await.is_err());
    }
    for (ours, theirs) in [second, third] {
        ours.write_all(b"y").await.unwrap();
        assert_eq!([theirs.read_u8().await.unwrap(), theirs.read_u8().await.unwrap()], *b"xy");
    }
    assert_eq!(pair.service.open_streams(), 2);
}

#[tokio::test]
async fn the_end_of_a_stream_comes_before_its_reset() {
    let (mut peer, session, _incoming) = Raw::start();
    let group = session.new_group();
    let stream = session.open_below(9, Some(group), Bytes::from_static(b"x")).await.unwrap();
    assert!(matches!(peer.hear().await, EventDelivery::Data { stream: 2, syn: true, .. }));

    session.reset_group(group, Code::CANCELLED);

    assert_eq!(peer.hear().await, fin(2));
    assert_eq!(peer.hear().await, EventDelivery::Reset(2, Code::CANCELLED));
    drop(stream);
    assert!(peer.hears_nothing().await);
}
