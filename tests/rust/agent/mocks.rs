//! Mocks: the agent responds to matching requests itself.

use std::time::{Duration, Instant};

use reqwest::Method;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;

use super::support::{PATIENCE, Whole};

impl Whole {
    pub async fn add_mock(&self, mock: Value) -> Value {
        let (status, added) = self.call(Method::POST, "/api/mocks", Some(mock)).await;
        assert_eq!(status, 201, "{added}");
        added
    }

    /// Status and body of a visit.
    pub async fn visit(&self, url: &str, path: &str) -> (u16, String) {
        let response = self.http.get(format!("{url}{path}")).send().await.unwrap();
        (response.status().as_u16(), response.text().await.unwrap())
    }

    async fn newest_record(&self) -> Value {
        self.get("/api/requests/http?limit=1").await["requests"][0].clone()
    }
}

#[tokio::test]
async fn a_mock_responds_in_place_of_the_local_service_and_is_marked() {
    let whole = Whole::start().await;
    let url = whole.web().await;
    let added = whole
        .add_mock(json!({
            "id": "paid", "method": "post", "path": "/hook/*", "status": 201,
            "headers": {"x-order": "{{ path.2 }}", "set-cookie": "a=1\nb=2"},
            "json": {"got": "{{ body.order }}", "for": "{{ query.who }}"},
        }))
        .await;
    assert_eq!(
        (&added["id"], &added["hits"], &added["enabled"]),
        (&json!("paid"), &json!(0), &json!(true))
    );

    let hook = whole.http.post(format!("{url}/hook/7?who=me")).body(r#"{"order": "tea"}"#);
    let response = hook.send().await.unwrap();

    assert_eq!(
        (response.status().as_u16(), &response.headers()["x-order"]),
        (201, &"7".parse().unwrap())
    );
    assert_eq!(response.headers().get_all("set-cookie").iter().count(), 2);
    assert_eq!(response.text().await.unwrap(), r#"{"got":"tea","for":"me"}"#);
    let record = whole.newest_record().await;
    assert_eq!((&record["mock_id"], &record["error"]), (&json!("paid"), &Value::Null));
    assert_eq!(record["response"]["status_code"], 201);
    let listed = whole.get("/inspect/data/requests?filter=is:mocked").await;
    assert_eq!(listed["requests"][0]["mock"], "paid");
    assert_eq!(whole.get("/api/mocks/paid").await["hits"], 1);
    // What does not match goes on, over the same connection.
    assert_eq!(whole.visit(&url, "/hook/7").await.0, 200);
    assert_eq!(whole.newest_record().await["mock_id"], Value::Null);
}

#[tokio::test]
async fn the_first_mock_that_is_on_and_left_responds() {
    let whole = Whole::start().await;
    let url = whole.web().await;
    whole.add_mock(json!({"id": "off", "enabled": false, "status": 500})).await;
    whole.add_mock(json!({"id": "twice", "times": 2, "status": 503})).await;
    whole.add_mock(json!({"id": "rest", "body": "the rest", "tunnel_name": "web"})).await;

    let mut statuses = Vec::new();
    for _ in 0..3 {
        statuses.push(whole.visit(&url, "/").await.0);
    }

    assert_eq!(statuses, [503, 503, 200]);
    let on = whole.call(Method::PATCH, "/api/mocks/off", Some(json!({"enabled": true}))).await;
    assert_eq!((on.0, &on.1["enabled"], &on.1["status"]), (200, &json!(true), &json!(500)));
    assert_eq!(whole.visit(&url, "/").await.0, 500);
    for id in ["off", "twice", "rest"] {
        let path = format!("/api/mocks/{id}");
        assert_eq!(whole.call(Method::DELETE, &path, None).await.0, 204);
        assert_eq!(whole.call(Method::DELETE, &path, None).await.0, 404);
    }
    let (status, mirrored) = whole.visit(&url, "/mirrored").await;
    assert!(status == 200 && mirrored.starts_with("GET /mirrored"), "{mirrored}");
}

#[tokio::test]
async fn a_captured_response_is_given_again() {
    let whole = Whole::start().await;
    let url = whole.web().await;
    let (_, mirrored) = whole.visit(&url, "/first").await;
    let id = whole.newest_record().await["id"].clone();

    let added = whole.add_mock(json!({"captured_id": id, "path": "/second"})).await;

    assert_eq!(added["id"], "mock-1");
    assert_eq!(whole.visit(&url, "/second").await, (200, mirrored));
    let gone = json!({"captured_id": "0000000000000000"});
    let (status, refused) = whole.call(Method::POST, "/api/mocks", Some(gone)).await;
    assert_eq!((status, &refused["error_code"]), (400, &json!(107)), "{refused}");
}

#[tokio::test]
async fn a_mock_is_late_or_breaks_off() {
    let whole = Whole::start().await;
    let url = whole.web().await;
    whole.add_mock(json!({"path": "/late", "delay": 300})).await;
    whole.add_mock(json!({"path": "/cut", "body": "0123456789", "fault": "truncate"})).await;
    whole.add_mock(json!({"path": "/reset", "body": "never", "fault": "reset"})).await;

    let began = Instant::now();
    assert_eq!(whole.visit(&url, "/late").await.0, 200);
    assert!(began.elapsed() >= Duration::from_millis(300));
    let cut = whole.http.get(format!("{url}/cut")).send().await.unwrap();
    assert_eq!(cut.content_length(), Some(10));
    assert!(cut.bytes().await.is_err());
    let record = whole.newest_record().await;
    assert_eq!(record["error"], "the mock truncated the response");
    let reset = whole.http.get(format!("{url}/reset")).send().await;
    assert!(reset.is_err() || reset.unwrap().status().as_u16() == 502);
    assert_eq!(whole.newest_record().await["error"], "the mock reset the connection");
}

#[tokio::test]
async fn a_change_of_a_mock_keeps_what_it_leaves_out() {
    let whole = Whole::start().await;
    whole.add_mock(json!({"id": "a", "path": "/a", "body": "x", "times": 1})).await;

    let changes = json!({"json": [1], "path": ""});
    let (status, changed) = whole.call(Method::PATCH, "/api/mocks/a", Some(changes)).await;

    assert_eq!(status, 200, "{changed}");
    assert_eq!((&changed["json"], &changed["times"]), (&json!([1]), &json!(1)));
    assert_eq!((changed.get("body"), changed.get("path")), (None, None));
    for (mock, problem) in [
        (json!({"id": "a"}), "id: mock \"a\" already exists"),
        (json!({"id": "a/b"}), "id: \"a/b\" is not 1 to 64"),
        (json!({"staus": 200}), "staus: is not a known field"),
        (json!({"body": "{{ x }}"}), "body: {{ x }} is none of"),
    ] {
        let (status, refused) = whole.call(Method::POST, "/api/mocks", Some(mock)).await;
        assert_eq!((status, &refused["error_code"]), (400, &json!(107)), "{refused}");
        let told = refused["details"]["err"].as_str().unwrap();
        assert!(told.starts_with(problem), "{told}");
    }
    for _ in 1..100 {
        whole.add_mock(json!({})).await;
    }
    let (status, refused) = whole.call(Method::POST, "/api/mocks", Some(json!({}))).await;
    assert_eq!(status, 400, "{refused}");
    assert_eq!(whole.call(Method::DELETE, "/api/mocks", None).await.0, 204);
    assert_eq!(whole.get("/api/mocks").await["mocks"], json!([]));
}

#[tokio::test]
async fn large_bodies_and_many_visitors_get_their_responses() {
    let whole = Whole::start().await;
    let url = whole.web().await;
    whole.add_mock(json!({"path": "/up", "body": "{{ query.n }}"})).await;

    let visits = (0..50).map(|n| {
        let request = whole.http.post(format!("{url}/up?n={n}")).body(vec![b'x'; 300_000]);
        async move { request.send().await.unwrap().text().await.unwrap() }
    });
    let tasks: Vec<_> = visits.map(tokio::spawn).collect();

    for (n, task) in tasks.into_iter().enumerate() {
        assert_eq!(task.await.unwrap(), n.to_string());
    }
    assert_eq!(whole.get("/api/mocks").await["mocks"][0]["hits"], 50);
}

#[tokio::test]
async fn an_empty_text_is_a_body_of_json() {
    let whole = Whole::start().await;
    let url = whole.web().await;

    let added = whole.add_mock(json!({"id": "a", "json": ""})).await;

    assert_eq!(added["json"], "");
    assert_eq!(whole.visit(&url, "/").await, (200, "\"\"".to_owned()));
    let changes = Some(json!({"json": "full"}));
    whole.call(Method::PATCH, "/api/mocks/a", changes).await;
    let changes = Some(json!({"json": ""}));
    assert_eq!(whole.call(Method::PATCH, "/api/mocks/a", changes).await.1["json"], "");
}

#[tokio::test]
async fn a_response_that_still_comes_is_no_mock_yet() {
    let whole = Whole::start().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap().port();
    let (_, tunnel) =
        whole.start_tunnel(json!({"name": "web", "proto": "http", "addr": addr})).await;
    let url = tunnel["public_url"].as_str().unwrap();
    let _visitor = whole.raw_visit(url, "GET / HTTP/1.1\r\nHost: HOST\r\n\r\n").await;
    let (mut local, _) = listener.accept().await.unwrap();
    let until = |is_reached: fn(&Value) -> bool| {
        let whole = &whole;
        let waiting = async move {
            while !is_reached(&whole.newest_record().await) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(PATIENCE, waiting)
    };

    local.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n01234").await.unwrap();
    until(|record| !record["response"].is_null()).await.unwrap();
    let mock = json!({"captured_id": whole.newest_record().await["id"]});
    let (status, refused) = whole.call(Method::POST, "/api/mocks", Some(mock.clone())).await;
    assert_eq!((status, &refused["error_code"]), (400, &json!(107)), "{refused}");

    local.write_all(b"56789").await.unwrap();
    until(|record| record["duration"] != 0).await.unwrap();
    whole.add_mock(mock).await;
}
