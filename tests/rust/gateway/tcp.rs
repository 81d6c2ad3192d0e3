//! Connections that are bytes to the service.

use std::io::ErrorKind;
use std::net::SocketAddr;

use ginnel_gateway::{EndpointSpec, Proto, PublicEndpoint};

use tokio::io::AsyncWriteExt;

use super::support::{Direct, Peer, edges, host_of, upstream};

#[tokio::test]
async fn bytes_pass_and_each_direction_ends_on_its_own() {
    let edges = edges().await;
    let address = upstream(|mut peer| async move {
        let heard = peer.rest().await;
        peer.say(&format!("heard {heard}")).await;
    })
    .await;

    let endpoint =
        edges.bind_endpoint(EndpointSpec::any(Proto::Tcp), Direct::to(address)).await.unwrap();
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
    let endpoint =
        edges.bind_endpoint(EndpointSpec::any(Proto::Tcp), Direct::to(address)).await.unwrap();
    assert_eq!(Peer::to(&endpoint).await.rest().await, "hello");

    endpoint.retarget(None);

    assert_eq!(Peer::to(&endpoint).await.rest().await, "");
}

/// Runs on the one thread of the test, so that no task does anything in the meantime.
#[cfg(target_os = "linux")]
fn assert_refused(address: SocketAddr) {
    let connection = std::net::TcpStream::connect(address);
    assert_eq!(connection.unwrap_err().kind(), ErrorKind::ConnectionRefused, "{address}");
}

fn address_of(endpoint: &PublicEndpoint) -> SocketAddr {
    host_of(endpoint.url()).parse().unwrap()
}

#[tokio::test]
#[cfg(target_os = "linux")]
async fn the_port_of_an_endpoint_that_goes_is_refused_and_free_at_once() {
    let edges = edges().await;
    let address = upstream(|mut peer| async move { peer.say("hello").await }).await;
    let target = Direct::to(address);
    for proto in [Proto::Tcp, Proto::Tls, Proto::Http] {
        let endpoint = edges.bind_endpoint(EndpointSpec::any(proto), target.clone()).await.unwrap();
        let address = address_of(&endpoint);
        assert!(std::net::TcpStream::connect(address).is_ok());

        drop(endpoint);

        assert_refused(address);
        let again = EndpointSpec { addr: Some(address.to_string()), ..EndpointSpec::any(proto) };
        let again = edges.bind_endpoint(again, target.clone()).await.unwrap();
        assert_eq!(address_of(&again), address);
    }
}

#[tokio::test]
#[cfg(target_os = "linux")]
async fn no_port_takes_connections_once_all_are_closed() {
    let edges = edges().await;
    let target = Direct::to(SocketAddr::from(([127, 0, 0, 1], 9)));
    let endpoint = edges.bind_endpoint(EndpointSpec::any(Proto::Tcp), target).await.unwrap();
    let shared = [edges.http_address().unwrap(), edges.https_address().unwrap()];
    let addresses = [shared.to_vec(), vec![address_of(&endpoint)]].concat();
    for address in &addresses {
        assert!(std::net::TcpStream::connect(address).is_ok(), "{address}");
    }

    edges.close();

    addresses.into_iter().for_each(assert_refused);
}

#[tokio::test]
async fn tls_that_does_not_end_here_passes_as_bytes() {
    let edges = edges().await;
    let address = upstream(|mut peer| async move {
        let heard = peer.exactly(3).await;
        peer.say(&heard).await;
    })
    .await;

    let endpoint =
        edges.bind_endpoint(EndpointSpec::any(Proto::Tls), Direct::to(address)).await.unwrap();
    let mut visitor = Peer::to(&endpoint).await;
    visitor.say("\u{16}\u{3}\u{1}").await;

    assert!(endpoint.url().starts_with("tls://127.0.0.1:"), "{}", endpoint.url());
    assert_eq!(visitor.exactly(3).await, "\u{16}\u{3}\u{1}");
}
