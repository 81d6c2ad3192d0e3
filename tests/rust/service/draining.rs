//! A service that is about to stop: whoever has a connection makes the next one elsewhere.

use std::time::{Duration, Instant};

use ginnel_gateway::GatewaySettings;
use ginnel_service::{MonitoringSettings, Options, Service};

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::agent::support::Whole;

const DELAY: Duration = Duration::from_secs(3);

/// Sends a request over a connection that is kept, and gives the head of its response.
async fn ask(stream: &mut TcpStream, host: &str) -> String {
    let request = format!("GET / HTTP/1.1\r\nhost: {host}\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut response = Vec::new();
    while !response.windows(4).any(|four| four == b"\r\n\r\n") {
        assert!(stream.read_buf(&mut response).await.unwrap() > 0, "it is closed");
    }
    let text = String::from_utf8(response).unwrap().to_ascii_lowercase();
    text.split_once("\r\n\r\n").unwrap().0.to_owned()
}

async fn connect(service: &Service, is_visitor: bool) -> TcpStream {
    let at = match is_visitor {
        true => service.gateway().http_address().unwrap().to_string(),
        false => service.url().trim_start_matches("http://").to_owned(),
    };
    TcpStream::connect(at).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_close_behind_a_response_that_says_so_before_the_service_stops() {
    let base_domain = Some("tunnels.test".to_owned());
    let options = Options {
        monitoring: MonitoringSettings { drain_delay: DELAY, ..MonitoringSettings::default() },
        gateway: GatewaySettings { base_domain, ..GatewaySettings::default() },
        ..Options::default()
    };
    let whole = Whole::with(options).await;
    let web = json!({"name": "web", "proto": "http", "schemes": ["http"],
        "hostname": "web.tunnels.test"});
    assert_eq!(whole.start_tunnel(web).await.0, 201);
    let mut kept = Vec::new();
    // The fast path has the host of the tunnel, the full path the one that there is none of.
    for (is_visitor, host) in [(true, "web.tunnels.test"), (true, "no.tunnels.test"), (false, "a")]
    {
        let mut stream = connect(&whole.service, is_visitor).await;
        let head = ask(&mut stream, host).await;
        assert!(!head.contains("connection: close"), "{head}");
        kept.push((stream, is_visitor, host));
    }
    // The bodies of the responses before.
    tokio::time::sleep(Duration::from_millis(300)).await;
    for (stream, ..) in &mut kept {
        let mut rest = [0; 4096];
        let _ = stream.try_read(&mut rest);
    }

    let Whole { service, agent: _agent, .. } = whole;
    let addresses: Vec<_> = [true, false]
        .map(|is_visitor| match is_visitor {
            true => service.gateway().http_address().unwrap().to_string(),
            false => service.url().trim_start_matches("http://").to_owned(),
        })
        .to_vec();
    let began = Instant::now();
    let stopping = tokio::spawn(service.stop(Duration::from_secs(5)));
    tokio::time::sleep(Duration::from_millis(300)).await;

    for (mut stream, is_visitor, host) in kept {
        let mut new = TcpStream::connect(&addresses[usize::from(!is_visitor)]).await.unwrap();
        for stream in [&mut stream, &mut new] {
            let head = ask(stream, host).await;
            assert!(head.starts_with("http/1.1"), "{head}");
            assert!(head.contains("connection: close"), "{host}: {head}");
            let mut rest = Vec::new();
            stream.read_to_end(&mut rest).await.unwrap();
        }
    }
    assert!(began.elapsed() < DELAY, "before the service stops");
    stopping.await.unwrap();
}
