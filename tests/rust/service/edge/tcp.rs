//! Connections that are bytes to the service.

use ginnel::service::edge::{Proto, Wanted};
use tokio::io::AsyncWriteExt;

use super::support::{Direct, Peer, edges, upstream};

#[tokio::test]
async fn bytes_pass_and_each_direction_ends_on_its_own() {
    let edges = edges().await;
    let address = upstream(|mut peer| async move {
        let heard = peer.rest().await;
        peer.say(&format!("heard {heard}")).await;
    })
    .await;

    let endpoint = edges.bind(Wanted::any(Proto::Tcp), Direct::to(address)).await.unwrap();
    let mut visitor = Peer::to(&endpoint).await;
    visitor.say("a\0b").await;
    visitor.0.shutdown().await.unwrap();

    assert!(endpoint.url().starts_with("tcp://127.0.0.1:"), "{}", endpoint.url());
    assert_eq!(visitor.rest().await, "heard a\0b");
}

#[tokio::test]
async fn a_visitor_of_nobody_is_let_go() {
    let edges = edges().await;
    let address = upstream(|mut peer| async move { peer.say("hello").await }).await;
    let endpoint = edges.bind(Wanted::any(Proto::Tcp), Direct::to(address)).await.unwrap();
    assert_eq!(Peer::to(&endpoint).await.rest().await, "hello");

    endpoint.retarget(None);

    assert_eq!(Peer::to(&endpoint).await.rest().await, "");
}

#[tokio::test]
async fn tls_that_does_not_end_here_passes_as_bytes() {
    let edges = edges().await;
    let address = upstream(|mut peer| async move {
        let heard = peer.exactly(3).await;
        peer.say(&heard).await;
    })
    .await;

    let endpoint = edges.bind(Wanted::any(Proto::Tls), Direct::to(address)).await.unwrap();
    let mut visitor = Peer::to(&endpoint).await;
    visitor.say("\u{16}\u{3}\u{1}").await;

    assert!(endpoint.url().starts_with("tls://127.0.0.1:"), "{}", endpoint.url());
    assert_eq!(visitor.exactly(3).await, "\u{16}\u{3}\u{1}");
}
