//! Requests that somebody makes: new ones, and captured ones sent again, several times or elsewhere.

use reqwest::Method;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;

use super::support::{Whole, mirror};

impl Whole {
    async fn records(&self) -> Vec<Value> {
        self.get("/api/requests/http").await["requests"].as_array().unwrap().clone()
    }

    async fn replay(&self, plan: Value) -> (u16, Value) {
        self.call(Method::POST, "/api/requests/http", Some(plan)).await
    }
}

#[tokio::test]
async fn a_new_request_is_sent_and_captured() {
    let whole = Whole::start().await;
    whole.web().await;
    let request = json!({
        "method": "PUT", "target": "/new?x=1", "headers": {"X-A": ["1", "2"]}, "body": "hello",
    });

    let (status, sent) = whole.call(Method::POST, "/api/requests/send", Some(request)).await;

    assert_eq!(status, 201, "{sent}");
    let record = whole.get(&format!("/api/requests/http/{}", sent["id"].as_str().unwrap())).await;
    assert_eq!(
        (&record["request"]["method"], &record["tunnel_name"]),
        (&json!("PUT"), &json!("web"))
    );
    assert_eq!(record["request"]["headers"]["X-A"], json!(["1", "2"]));
    assert_eq!((&record["response"]["status_code"], &record["error"]), (&json!(200), &Value::Null));
    let trailing = json!({
        "method": "POST", "target": "/t", "body": "a", "trailers": {"X-Sum": ["7"]}, "tunnel_name": "web",
    });
    let (status, sent) = whole.call(Method::POST, "/api/requests/send", Some(trailing)).await;
    assert_eq!(status, 201, "{sent}");
    let record = whole.get(&format!("/api/requests/http/{}", sent["id"].as_str().unwrap())).await;
    assert_eq!(record["request"]["trailers"]["X-Sum"], json!(["7"]));
    for (request, status) in [
        (json!({"method": "a b", "target": "/"}), 400),
        (json!({"method": "GET", "target": "x"}), 400),
        (json!({"method": "GET", "target": "/", "body": "a", "body_base64": "YQ=="}), 400),
        (json!({"method": "GET", "target": "/", "tunnel_name": "none"}), 404),
    ] {
        let refused = whole.call(Method::POST, "/api/requests/send", Some(request.clone())).await;
        assert_eq!(refused.0, status, "{request}: {}", refused.1);
    }
}

#[tokio::test]
async fn a_captured_request_is_sent_several_times_and_elsewhere() {
    let whole = Whole::start().await;
    let url = whole.web().await;
    assert_eq!(whole.visit(&url, "/first").await.0, 200);
    let id = whole.records().await[0]["id"].clone();
    let other = mirror().await;

    let plan = json!({"id": id, "times": 3, "interval": 1, "addr": format!("127.0.0.1:{other}")});
    assert_eq!(whole.replay(plan).await.0, 204);

    let records = whole.records().await;
    assert_eq!(records.len(), 4);
    assert!(records.iter().all(|record| record["response"]["status_code"] == 200), "{records:?}");
    for (plan, problem) in [
        (json!({"id": id, "times": 0}), "times: 0 is not from 1 to 100"),
        (json!({"id": id, "interval": 60_001}), "interval: 60001 is not from 0 to 60000"),
        (json!({"id": id, "addr": "192.0.2.1:80"}), "addr: 192.0.2.1:80 is not this machine"),
        (json!({"id": id, "addr": "file:///etc"}), "addr: file:///etc is a folder"),
        (json!({"id": id, "addr": "x:y"}), "addr: \"x:y\" is not a port"),
    ] {
        let (status, refused) = whole.replay(plan).await;
        assert_eq!((status, &refused["error_code"]), (400, &json!(105)), "{refused}");
        let told = refused["details"]["err"].as_str().unwrap();
        assert!(told.starts_with(problem), "{told}");
    }
    // The agent's own API is no target either.
    let own = whole.agent.api_url().unwrap();
    assert_eq!(whole.replay(json!({"id": id, "addr": own})).await.0, 204);
    assert_eq!(whole.records().await[0]["response"]["status_code"], 502);
}

#[tokio::test]
async fn a_replay_ends_with_its_tunnel() {
    let whole = Whole::start().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap().port();
    let (_, tunnel) =
        whole.start_tunnel(json!({"name": "web", "proto": "http", "addr": addr})).await;
    let url = tunnel["public_url"].as_str().unwrap();
    let _visitor = whole.raw_visit(url, "GET / HTTP/1.1\r\nHost: HOST\r\n\r\n").await;
    let (mut local, _) = listener.accept().await.unwrap();
    local.write_all(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n").await.unwrap();
    let id = whole.records().await[0]["id"].clone();
    whole.ended(&id).await;

    let stopping = async {
        let silent = listener.accept().await.unwrap();
        assert_eq!(whole.call(Method::DELETE, "/api/tunnels/web", None).await.0, 204);
        silent
    };
    let (replayed, _silent) = tokio::join!(whole.replay(json!({"id": id, "times": 9})), stopping);

    assert_eq!(replayed.0, 204);
    let records = whole.records().await;
    let record = whole.ended(&records[0]["id"]).await;
    let error = record["error"].as_str().unwrap();
    assert!(error.starts_with("the tunnel was stopped"), "{error}");
    assert_eq!(records.len(), 2);
}

#[tokio::test]
async fn a_request_without_any_tunnel_is_not_sent() {
    let whole = Whole::start().await;

    let request = json!({"method": "GET", "target": "/"});
    let (status, refused) = whole.call(Method::POST, "/api/requests/send", Some(request)).await;

    assert_eq!(status, 404);
    assert!(refused.to_string().contains("no HTTP tunnel is running"), "{refused}");
}
