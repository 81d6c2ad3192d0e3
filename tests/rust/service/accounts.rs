//! Keys, owners, admins and bots.

use std::time::{Duration, Instant};

use reqwest::Method;
use serde_json::{Value, json};

use super::support::{Folder, Running};
use crate::engines::{Engine, on_each_engine};

on_each_engine!(a_key_shows_its_token_once, a_deleted_key_is_refused_on_its_next_use,);

async fn a_key_shows_its_token_once(engine: Engine) {
    let service = Running::on(engine).await;

    let made = service.post("/api_keys", json!({"description": "ci", "metadata": "{}"})).await;
    let read = service.get(&format!("/api_keys/{}", made.text("id"))).await;

    assert_eq!(made.status, 201);
    assert!(made.text("token").starts_with(made.text("id").trim_start_matches("ak_")));
    assert_eq!(made.text("uri"), format!("{}/api_keys/{}", service.service.url(), made.text("id")));
    assert_eq!((read.status, &read.json["token"]), (200, &Value::Null));
    assert_eq!(read.json["description"], "ci");
    assert!(read.text("created_at").ends_with('Z'));
}

async fn a_deleted_key_is_refused_on_its_next_use(engine: Engine) {
    let service = Running::on(engine).await;
    let made = service.post("/api_keys", json!({})).await;
    let (path, token) = (format!("/api_keys/{}", made.text("id")), made.text("token"));
    assert_eq!(service.call_as(&token, Method::GET, "/api_keys", None).await.status, 200);

    // A key may delete itself.
    let deleted = service.call_as(&token, Method::DELETE, &path, None).await;
    let refused = service.call_as(&token, Method::GET, "/api_keys", None).await;
    let again = service.delete(&path).await;

    assert_eq!((deleted.status, &deleted.json), (204, &Value::Null));
    assert_eq!((refused.status, refused.code()), (403, 203));
    assert!(!refused.json["msg"].as_str().unwrap().contains(&token[..6]));
    assert_eq!((again.status, again.text("msg").as_str()), (404, "Resource not found"));
    assert!(again.json["details"]["operation_id"].as_str().unwrap().starts_with("op_"));
    assert_eq!(again.json.get("error_code"), None);
}

#[tokio::test]
async fn a_service_keeps_its_keys_over_a_restart_and_their_tokens_nowhere() {
    let folder = Folder::new();
    let first = Running::with(folder.options("db")).await;
    let (key, made) = (first.key.clone(), first.post("/api_keys", json!({})).await);
    first.stop().await;
    let bytes = std::fs::read(folder.file("db")).unwrap();

    let mut second = Running::with(folder.options("db")).await;

    assert!(second.key.is_empty(), "the first key is shown once");
    second.key = key.clone();
    let read = second.get(&format!("/api_keys/{}", made.text("id"))).await;
    assert_eq!(read.status, 200);
    for token in [key, made.text("token")] {
        let secret = token.split_once('_').unwrap().1.as_bytes();
        assert!(!bytes.windows(secret.len()).any(|window| window == secret));
    }
}

#[tokio::test]
async fn an_idle_service_starts_and_stops_at_once() {
    let start = Instant::now();
    let service = Running::start().await;
    let started = start.elapsed();

    let start = Instant::now();
    service.service.stop(Duration::from_secs(60)).await;
    let stopped = start.elapsed();

    assert!(started < Duration::from_secs(10), "{started:?}");
    assert!(stopped < Duration::from_secs(10), "{stopped:?}");
}
