//! How the service speaks HTTP, starts and stops.

use std::time::{Duration, Instant};

use ginnel_api::Secret;
use ginnel_gateway::GatewaySettings;
use ginnel_service::{Error, ManagementSettings, Options, Service, TokenSettings};

use reqwest::Method;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::support::{Folder, Running, client, free_address};

const GIVEN: &str = "0ujtsYcgvSTl8PAuAdqWYSMnLOv_123456789abcdefghijkl";

fn given(key: &str) -> Options {
    let tokens =
        TokenSettings { admin_key: Some(Secret(key.to_owned())), ..TokenSettings::default() };
    Options { tokens, ..Options::default() }
}

#[tokio::test]
async fn head_is_get_without_the_body() {
    let service = Running::start().await;

    let get = service.get("/api_keys").await;
    let head = service.call(Method::HEAD, "/api_keys", None).await;

    assert_eq!((head.status, head.json), (200, json!(null)));
    assert_eq!(head.headers["content-length"], get.headers["content-length"]);
    assert_eq!(head.headers["content-type"], "application/json");
}

#[tokio::test]
async fn a_deletion_answers_without_body_and_type() {
    let service = Running::start().await;
    let id = service.create("/ip_policies", json!({})).await;

    let deleted = service.delete(&format!("/ip_policies/{id}")).await;

    assert_eq!(deleted.status, 204);
    assert_eq!(deleted.headers.get("content-type"), None);
}

#[tokio::test]
async fn the_api_describes_itself_without_credentials() {
    let service = Running::start().await;

    let described = service.call_as("", Method::GET, "/openapi.json", None).await;

    assert_eq!((described.status, &described.json["openapi"]), (200, &json!("3.1.0")));
    assert_eq!(described.json["servers"][0]["url"], service.service.url());
    assert!(described.json["paths"]["/api_keys/{id}"]["patch"].is_object());
}

#[tokio::test]
async fn a_preflight_is_answered_without_credentials() {
    let service = Running::start().await;
    let url = format!("{}/api_keys", service.service.url());

    let preflight = client()
        .request(Method::OPTIONS, url)
        .header("origin", "https://page.example")
        .header("access-control-request-method", "POST")
        .header("access-control-request-headers", "authorization, content-type")
        .send()
        .await
        .unwrap();

    let header = |name: &str| preflight.headers()[name].to_str().unwrap().to_owned();
    assert_eq!(preflight.status(), 204);
    assert_eq!(header("access-control-allow-origin"), "https://page.example");
    assert_eq!(header("access-control-allow-methods"), "POST, GET, HEAD, OPTIONS");
    assert_eq!(header("access-control-allow-headers"), "authorization, content-type");
    assert_eq!(header("access-control-allow-credentials"), "true");
    assert_eq!(header("access-control-max-age"), "600");
    let plain = service.call(Method::OPTIONS, "/api_keys", None).await;
    assert_eq!(plain.status, 405);
}

#[tokio::test]
async fn both_version_headers_and_an_empty_object_on_get_are_fine() {
    let service = Running::start().await;
    let url = format!("{}/api_keys", service.service.url());

    let answer = client()
        .get(url)
        .header("authorization", format!("bEARER {}", service.key))
        .header("service-version", "2")
        .header("ngrok-version", "2")
        .header("content-type", "application/json; charset=UTF-8")
        .body("{}")
        .send()
        .await
        .unwrap();

    assert_eq!(answer.status(), 200);
}

#[tokio::test]
async fn a_connection_is_kept_over_refusals() {
    let service = Running::start().await;
    let host = service.service.url().trim_start_matches("http://");
    let mut stream = TcpStream::connect(host).await.unwrap();
    let request = |token: &str| {
        format!(
            "POST /api_keys HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\n\
             Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{{}}"
        )
    };

    let mut answers = Vec::new();
    for token in ["nonsense", &service.key] {
        stream.write_all(request(token).as_bytes()).await.unwrap();
        let mut buffer = vec![0; 4096];
        let length = stream.read(&mut buffer).await.unwrap();
        answers.push(String::from_utf8_lossy(&buffer[..length])[9..12].to_owned());
    }

    assert_eq!(answers, ["403", "201"]);
}

#[tokio::test]
async fn stopping_answers_what_is_in_flight() {
    let service = Running::start().await;
    let host = service.service.url().trim_start_matches("http://").to_owned();
    let mut stream = TcpStream::connect(&host).await.unwrap();
    let head = format!(
        "POST /api_keys HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {}\r\n\
         Content-Type: application/json\r\nContent-Length: 2\r\n\r\n",
        service.key
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    tokio::time::sleep(Duration::from_millis(500)).await;

    let stopping = tokio::spawn(async move { service.service.stop(Duration::from_secs(60)).await });
    let began = Instant::now();
    while TcpStream::connect(&host).await.is_ok() {
        assert!(began.elapsed() < Duration::from_secs(20), "no more connections are taken");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    stream.write_all(b"{}").await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    stopping.await.unwrap();

    assert!(answer.starts_with("HTTP/1.1 201"), "{answer}");
}

#[tokio::test]
async fn who_does_not_finish_within_the_grace_is_cut_off() {
    let service = Running::start().await;
    let host = service.service.url().trim_start_matches("http://").to_owned();
    let mut stream = TcpStream::connect(&host).await.unwrap();
    let head = format!(
        "POST /api_keys HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {}\r\n\
         Content-Type: application/json\r\nContent-Length: 2\r\n\r\n",
        service.key
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    tokio::time::sleep(Duration::from_millis(500)).await;

    let start = Instant::now();
    service.service.stop(Duration::from_millis(100)).await;

    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
}

#[tokio::test]
async fn idle_connections_do_not_delay_a_stop() {
    let service = Running::start().await;
    assert_eq!(service.get("/api_keys").await.status, 200);

    let start = Instant::now();
    service.service.stop(Duration::from_secs(60)).await;

    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
}

#[tokio::test]
async fn a_given_key_opens_a_new_database_and_its_own() {
    let folder = Folder::new();
    let mut options = given(GIVEN);
    options.store.path = Some(folder.file("db"));

    for _ in 0..2 {
        let service = Running::with(options.clone()).await;
        assert_eq!(service.key, GIVEN);
        assert_eq!(service.get("/api_keys").await.status, 200);
        service.stop().await;
    }
    let mut other = given(&GIVEN.replace("_1", "_2"));
    other.store.path = Some(folder.file("db"));
    let refused = Service::start(other).await;

    assert!(matches!(refused, Err(Error::UnknownAdminKey)));
    assert!(matches!(Service::start(given("ak_x")).await, Err(Error::MalformedAdminKey)));
}

#[tokio::test]
async fn a_port_in_use_is_told_apart() {
    let service = Running::start().await;
    let port = service.service.url().rsplit_once(':').unwrap().1.parse().unwrap();

    let at = |management| Options { management, ..Options::default() };
    let same = ManagementSettings { port, ..ManagementSettings::default() };
    let same = Service::start(at(same)).await;
    let nowhere =
        ManagementSettings { host: "192.0.2.1".to_owned(), ..ManagementSettings::default() };

    assert!(matches!(same, Err(Error::AddressInUse(_))));
    assert!(matches!(Service::start(at(nowhere)).await, Err(Error::Bind { .. })));
}

#[tokio::test]
async fn a_start_that_fails_closes_the_database_and_the_ports() {
    let folder = Folder::new();
    let other = Running::with(folder.options("other.db")).await;
    let mut options = folder.options("service.db");
    options.gateway.http_port = Some(free_address().port());
    options.agents.port = other.service.agent_address().map(|taken| taken.port());

    let failed = Service::start(options.clone()).await;
    options.agents.port = Some(0);
    let service = Running::with(options).await;

    assert!(matches!(failed, Err(Error::AddressInUse(_))));
    assert_eq!(service.get("/api_keys").await.status, 200);
}

#[tokio::test]
async fn addresses_follow_the_public_url_and_codes_their_prefix() {
    let at = |url: &str| ManagementSettings {
        public_url: Some(url.to_owned()),
        ..ManagementSettings::default()
    };
    let code_prefix = "ERR_OURS_".to_owned();
    let options = Options {
        management: at("https://api.example/"),
        gateway: GatewaySettings { code_prefix, ..GatewaySettings::default() },
        ..Options::default()
    };
    let service = Running::with(options).await;

    let made = service.post("/api_keys", json!({})).await;
    let refused = service.post("/api_keys", json!({"x": 1})).await;

    assert_eq!(made.text("uri"), format!("https://api.example/api_keys/{}", made.text("id")));
    assert_eq!(refused.text("error_code"), "ERR_OURS_214");
    let wrong = Options { management: at("api.example"), ..Options::default() };
    assert!(matches!(Service::start(wrong).await, Err(Error::Setting { key: "public_url", .. })));
}
