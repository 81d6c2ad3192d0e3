//! Rejections count in the phase that the request had entered.

use std::time::Duration;

use ginnel_api::EndpointOptions;
use ginnel_api::local::tunnels::IpRestriction;
use ginnel_gateway::{EndpointSpec, Gateway, GatewaySettings, Proto, PublicEndpoint, RequestPhase};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use super::support::{Direct, document, edges_with, host_of};

/// An HTTP endpoint with options whose target cannot be reached.
async fn endpoint(gateway: &Gateway, options: EndpointOptions) -> PublicEndpoint {
    endpoint_of(gateway, Proto::Http, options).await
}

async fn endpoint_of(gateway: &Gateway, proto: Proto, options: EndpointOptions) -> PublicEndpoint {
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let spec = EndpointSpec { options, ..EndpointSpec::any(proto) };
    gateway.bind_endpoint(spec, Direct::to(closed)).await.unwrap()
}

/// Sends bytes to an address and waits for the end of the connection.
async fn send(address: &str, bytes: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(bytes.as_bytes()).await.unwrap();
    let mut response = Vec::new();
    // The gateway may reset a connection that it does not understand.
    let _ = stream.read_to_end(&mut response).await;
    String::from_utf8_lossy(&response).into_owned()
}

#[tokio::test]
async fn a_rejection_counts_in_its_phase() {
    let settings = GatewaySettings { metrics: true, ..GatewaySettings::default() };
    let gateway = edges_with(settings).await;
    let plain = endpoint(&gateway, EndpointOptions::default()).await;
    let deny_cidrs = Some(vec!["127.0.0.0/8".to_owned()]);
    let restricted = IpRestriction { deny_cidrs, ..IpRestriction::default() };
    let restricted = EndpointOptions { ip_restriction: Some(restricted), ..Default::default() };
    let bytes = endpoint_of(&gateway, Proto::Tcp, EndpointOptions::default()).await;
    let restricted_bytes = endpoint_of(&gateway, Proto::Tcp, restricted.clone()).await;
    let restricted = endpoint(&gateway, restricted).await;
    let policy = r#"{"on_http_request": [{"expressions": ["req.url.path == '/x'"],
        "actions": [{"type": "deny"}]}]}"#;
    let policy = EndpointOptions { traffic_policy: Some(document(policy)), ..Default::default() };
    let policy = endpoint(&gateway, policy).await;
    let shared = gateway.http_address().unwrap().to_string();
    let tls = gateway.https_address().unwrap().to_string();
    let request = |path: &str| {
        format!(
            "POST {path} HTTP/1.1\r\nHost: nobody.test\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
        )
    };
    let cases = [
        (tls, "nonsense".repeat(4), RequestPhase::Accept, ""),
        (shared.clone(), "GET / HTTP/1.1\r\n\r\n".to_owned(), RequestPhase::ReadHead, "400"),
        (shared, request("/"), RequestPhase::SelectHost, "404"),
        (host_of(policy.url()), request("/a%00b"), RequestPhase::RouteRequest, "400"),
        (host_of(restricted.url()), request("/"), RequestPhase::RunModules, "403"),
        (host_of(plain.url()), request("/"), RequestPhase::SendUpstream, "502"),
        (host_of(policy.url()), request("/"), RequestPhase::SendUpstream, "502"),
        (host_of(restricted_bytes.url()), "bytes".to_owned(), RequestPhase::RunModules, ""),
        (host_of(bytes.url()), "bytes".to_owned(), RequestPhase::SendUpstream, ""),
    ];
    let counts = || {
        let metrics = gateway.metrics().unwrap();
        RequestPhase::ALL.map(|phase| metrics.rejections(phase))
    };
    for (address, bytes, phase, status) in cases {
        let mut expected = counts();
        expected[phase as usize] += 1;

        let response = send(&address, &bytes).await;

        let head = response.split("\r\n").next().unwrap();
        assert!(head.contains(status), "{phase:?}: {head}");
        let counted = async {
            while counts() != expected {
                tokio::task::yield_now().await;
            }
        };
        let counted = timeout(Duration::from_secs(5), counted).await;
        assert!(counted.is_ok(), "{phase:?}: {head}: {:?}", counts());
    }
}
