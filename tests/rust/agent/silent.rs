//! Local services that take a request and say nothing: the visitor gets an answer all the same.

use std::time::Duration;

use ginnel_gateway::{GatewaySettings, Timeouts};
use ginnel_service::Options;

use serde_json::{Value, json};
use tokio::io::AsyncReadExt;
use tokio::net::TcpListener;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::timeout;

use super::support::{PATIENCE, Whole};

/// A local service that listens and is silent; tells when somebody hangs up.
async fn silent() -> (u16, UnboundedReceiver<String>) {
    let (ended, ending) = unbounded_channel();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let ended = ended.clone();
            tokio::spawn(async move {
                let mut heard = Vec::new();
                // A reset is an end as well.
                let _ = stream.read_to_end(&mut heard).await;
                let _ = ended.send(String::from_utf8_lossy(&heard).into_owned());
            });
        }
    });
    (port, ending)
}

/// A service that lets upstreams think for a moment.
async fn hurried() -> Whole {
    let timeouts = Timeouts { response: Some(Duration::from_secs(2)), ..Timeouts::default() };
    let gateway = GatewaySettings { timeouts, ..GatewaySettings::default() };
    Whole::with(Options { gateway, ..Options::default() }).await
}

/// Asks, and is told that it takes too long.
async fn ask(whole: &Whole, url: &str, host: &str) {
    let asked = whole.http.get(url).header("host", host).send();
    let answer = timeout(PATIENCE, asked).await.unwrap().unwrap();

    assert_eq!(answer.status(), 504);
    assert_eq!(answer.headers()["ngrok-error-code"], "ERR_NGROK_3004");
    let text = answer.text().await.unwrap();
    assert!(text.starts_with("The upstream did not respond in time."), "{text}");
}

#[tokio::test]
async fn a_visitor_does_not_wait_for_ever_for_a_local_service() {
    let whole = hurried().await;
    let (port, mut ending) = silent().await;
    let definition = json!({"name": "silent", "proto": "http", "addr": port});
    let (_, tunnel) = whole.start_tunnel(definition).await;
    let url = tunnel["public_url"].as_str().unwrap();
    let host = url.split_once("://").unwrap().1;

    ask(&whole, &format!("{url}/hello"), host).await;

    // The stream is reset, so the agent hangs up as well.
    let heard = timeout(PATIENCE, ending.recv()).await.unwrap().unwrap();
    assert!(heard.starts_with("GET /hello HTTP/1.1\r\n"), "{heard}");
    let captured = whole.get("/api/requests/http").await;
    let [record] = &captured["requests"].as_array().unwrap()[..] else { panic!("{captured}") };
    assert_eq!((&record["request"]["uri"], &record["response"]), (&json!("/hello"), &Value::Null));
    // The session and other tunnels are as before.
    let other = whole.web().await;
    assert_eq!(whole.http.get(other).send().await.unwrap().status(), 200);
}

#[tokio::test]
async fn a_visitor_does_not_wait_for_ever_for_a_static_backend() {
    let whole = hurried().await;
    let (port, mut ending) = silent().await;
    let backend = json!({"address": format!("127.0.0.1:{port}")});
    let backend = whole.create("/backends/static", backend).await["id"].clone();
    let edge = whole.create("/edges/https", json!({"hostports": ["a.test:80"]})).await;
    let routes = format!("/edges/https/{}/routes", edge["id"].as_str().unwrap());
    let route =
        json!({"match_type": "path_prefix", "match": "/", "backend": {"backend_id": backend}});
    whole.create(&routes, route).await;
    let place = whole.service.gateway().http_address().unwrap();

    ask(&whole, &format!("http://{place}/hello"), "a.test").await;

    let heard = timeout(PATIENCE, ending.recv()).await.unwrap().unwrap();
    assert!(heard.starts_with("GET /hello HTTP/1.1\r\n"), "{heard}");
}
