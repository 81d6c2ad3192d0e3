//! Holds: matching requests wait until somebody decides.

use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

use super::support::{PATIENCE, Whole};

impl Whole {
    async fn add_hold(&self, hold: Value) -> Value {
        let (status, added) = self.call(Method::POST, "/api/holds", Some(hold)).await;
        assert_eq!(status, 201, "{added}");
        added
    }

    /// The requests that wait, as soon as they are so many.
    async fn held(&self, count: usize) -> Vec<Value> {
        let waiting = async {
            loop {
                let listed = self.get("/api/requests/held").await;
                let held = listed["held_requests"].as_array().unwrap().clone();
                if held.len() == count {
                    return held;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(PATIENCE, waiting).await.expect("so many held in time")
    }

    fn visiting(&self, request: reqwest::RequestBuilder) -> JoinHandle<(u16, String)> {
        tokio::spawn(async move {
            let response = request.send().await.unwrap();
            (response.status().as_u16(), response.text().await.unwrap())
        })
    }

    /// A connection of a visitor, with what it sends first.
    pub async fn raw_visit(&self, url: &str, request: &str) -> TcpStream {
        let address = url.trim_start_matches("http://");
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(request.replace("HOST", address).as_bytes()).await.unwrap();
        stream
    }

    /// Waits until a hold has met so many requests.
    async fn met(&self, id: &str, hits: i64) {
        let waiting = async {
            while self.get(&format!("/api/holds/{id}")).await["hits"] != hits {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(PATIENCE, waiting).await.expect("so many hits in time");
    }

    /// The record with this identifier, as soon as it has ended.
    pub async fn ended(&self, id: &Value) -> Value {
        let path = format!("/api/requests/http/{}", id.as_str().unwrap());
        let waiting = async {
            loop {
                let record = self.get(&path).await;
                if record["duration"] != 0 {
                    return record;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(PATIENCE, waiting).await.expect("an end in time")
    }

    async fn replay_once(&self, id: &Value) -> (u16, Value) {
        self.call(Method::POST, "/api/requests/http", Some(json!({"id": id}))).await
    }

    async fn decide(&self, held: &Value, how: &str, body: Value) -> (u16, Value) {
        let path = format!("{}/{how}", held["uri"].as_str().unwrap());
        self.call(Method::POST, &path, Some(body)).await
    }
}

#[tokio::test]
async fn a_held_request_goes_on_as_it_was() {
    let whole = Whole::start().await;
    let url = whole.web().await;
    whole.add_hold(json!({"id": "h", "path": "/held"})).await;
    let visit = whole.visiting(whole.http.post(format!("{url}/held?x=1")).body("a body"));

    let held = whole.held(1).await.remove(0);

    assert_eq!((&held["hold_id"], &held["request"]["method"]), (&json!("h"), &json!("POST")));
    let record = whole.get(&format!("/api/requests/http/{}", held["id"].as_str().unwrap())).await;
    assert_eq!((&record["hold_id"], &record["response"]), (&json!("h"), &Value::Null));
    let shown = whole.get("/inspect/data/held").await;
    assert_eq!((&shown[0]["held"], &shown[0]["editable"]), (&json!(true), &json!(true)));
    assert_eq!(shown[0]["request"]["body"], "YSBib2R5");
    assert_eq!(whole.decide(&held, "release", json!({})).await.0, 204);
    let (status, mirrored) = visit.await.unwrap();
    assert_eq!(status, 200);
    assert!(mirrored.starts_with("POST /held?x=1") && mirrored.ends_with("a body"), "{mirrored}");
    assert_eq!(whole.decide(&held, "release", json!({})).await.0, 404);
    let record = whole.get(&format!("/api/requests/http/{}", held["id"].as_str().unwrap())).await;
    assert_eq!((record.get("edited"), &record["hold_id"]), (None, &json!("h")));
    assert_eq!(whole.get("/api/holds/h").await["hits"], 1);
}

#[tokio::test]
async fn a_held_request_is_changed_and_its_connection_carries_on() {
    let whole = Whole::start().await;
    let url = whole.web().await;
    whole.add_hold(json!({"method": "POST"})).await;
    let request = whole.http.post(format!("{url}/a?token=secret")).header("x-old", "1").body("old");
    let visit = whole.visiting(request.header("authorization", "Bearer abcdef"));
    let held = whole.held(1).await.remove(0);

    let refused = whole.decide(&held, "release", json!({"target": "no path"})).await;
    assert_eq!((refused.0, &refused.1["error_code"]), (400, &json!(109)), "{}", refused.1);
    let changes = json!({"method": "PUT", "target": "/b", "headers": {"X-New": ["1", "2"]}, "body": "new body"});
    assert_eq!(whole.decide(&held, "release", changes).await.0, 204);

    let (status, mirrored) = visit.await.unwrap();
    assert_eq!(status, 200);
    assert!(mirrored.starts_with("PUT /b HTTP/1.1\r\nhost: "), "{mirrored}");
    assert!(
        mirrored.contains("X-New: 1\r\nX-New: 2\r\n") && !mirrored.contains("x-old"),
        "{mirrored}"
    );
    assert!(mirrored.ends_with("Content-Length: 8\r\n\r\nnew body"), "{mirrored}");
    let record = whole.get(&format!("/api/requests/http/{}", held["id"].as_str().unwrap())).await;
    assert_eq!((&record["edited"], &record["request"]["uri"]), (&json!(true), &json!("/b")));
    assert_eq!(whole.visit(&url, "/next").await.0, 200);
    let edited = whole.get("/inspect/data/requests?filter=is:edited").await;
    assert_eq!(edited["requests"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn the_page_changes_a_held_request_without_its_secrets() {
    let whole = Whole::start().await;
    let url = whole.web().await;
    whole.add_hold(json!({})).await;
    let request = whole.http.get(format!("{url}/a?token=abc&x=1"));
    let visit = whole.visiting(request.header("authorization", "Bearer abcdef"));
    whole.held(1).await;

    let shown = whole.get("/inspect/data/held").await[0].clone();
    assert!(
        !shown.to_string().contains("abcdef") && !shown.to_string().contains("token=abc"),
        "{shown}"
    );
    let path = format!("/inspect/data/held/{}/release", shown["id"].as_str().unwrap());
    let headers = shown["request"]["headers"].as_array().unwrap().iter();
    let headers: Vec<_> = headers.map(|it| json!([it["name"], it["value"]])).collect();
    let edits = json!({"target": shown["target"], "headers": headers, "method": "DELETE"});
    assert_eq!(whole.call(Method::POST, &path, Some(edits)).await.0, 204);

    let (_, mirrored) = visit.await.unwrap();
    assert!(mirrored.starts_with("DELETE /a?token=abc&x=1 "), "{mirrored}");
    assert!(mirrored.contains("Bearer abcdef"), "{mirrored}");
}

#[tokio::test]
async fn a_held_request_is_refused() {
    let whole = Whole::start().await;
    let url = whole.web().await;
    whole.add_hold(json!({})).await;
    let visits = ["/1", "/2"].map(|path| whole.visiting(whole.http.get(format!("{url}{path}"))));
    let held = whole.held(2).await;

    assert_eq!(whole.decide(&held[0], "refuse", json!({"status": 200})).await.0, 400);
    assert_eq!(whole.decide(&held[0], "refuse", json!({"status": 418, "body": "no"})).await.0, 204);
    assert_eq!(whole.decide(&held[1], "refuse", json!({})).await.0, 204);

    let mut responses = Vec::new();
    for visit in visits {
        responses.push(visit.await.unwrap());
    }
    responses.sort();
    assert_eq!((responses[0].0, responses[1].0), (403, 418));
    assert_eq!(responses[1].1, "no");
    let record =
        whole.get(&format!("/api/requests/http/{}", held[0]["id"].as_str().unwrap())).await;
    assert_eq!(record["error"], "The request was refused while it was held.");
}

#[tokio::test]
async fn nobody_waits_for_ever() {
    let whole = Whole::start().await;
    let url = whole.web().await;

    // The time is over.
    whole.add_hold(json!({"id": "short", "max_wait": 200})).await;
    assert_eq!(whole.visit(&url, "/").await.0, 200);
    // The hold is switched off, and removed.
    for change in [(Method::PATCH, Some(json!({"enabled": false}))), (Method::DELETE, None)] {
        whole.add_hold(json!({"id": "long", "path": "/long"})).await;
        let visit = whole.visiting(whole.http.get(format!("{url}/long")));
        whole.call(Method::DELETE, "/api/holds/short", None).await;
        whole.held(1).await;
        whole.call(change.0, "/api/holds/long", change.1).await;
        assert_eq!(visit.await.unwrap().0, 200);
        whole.call(Method::DELETE, "/api/holds", None).await;
    }
    // All are let go at once.
    whole.add_hold(json!({})).await;
    let visit = whole.visiting(whole.http.get(format!("{url}/all")));
    whole.held(1).await;
    assert_eq!(whole.call(Method::POST, "/api/requests/held", Some(json!({}))).await.0, 204);
    assert_eq!(visit.await.unwrap().0, 200);
    // The visitor leaves.
    let visit = whole.visiting(whole.http.get(format!("{url}/gone")));
    let held = whole.held(1).await.remove(0);
    visit.abort();
    whole.held(0).await;
    let record = whole.get(&format!("/api/requests/http/{}", held["id"].as_str().unwrap())).await;
    assert!(record["error"].as_str().unwrap().starts_with("the visitor left"), "{record}");
    // The agent stops.
    let visit = whole.visiting(whole.http.get(format!("{url}/stop")));
    whole.held(1).await;
    let Whole { agent, .. } = whole;
    agent.stop(PATIENCE).await;
    assert_eq!(visit.await.unwrap().0, 200);
}

#[tokio::test]
async fn only_so_many_wait_and_none_is_lost() {
    let whole = Whole::start().await;
    let url = whole.web().await;
    whole.add_hold(json!({})).await;
    let visit = |n: usize| whole.visiting(whole.http.get(format!("{url}/{n}")));
    let visits: Vec<_> = (0..120).map(visit).collect();

    whole.held(100).await;
    whole.call(Method::DELETE, "/api/holds", None).await;

    for (n, visit) in visits.into_iter().enumerate() {
        let (status, mirrored) = visit.await.unwrap();
        assert!(status == 200 && mirrored.starts_with(&format!("GET /{n} ")), "{mirrored}");
    }
}

#[tokio::test]
async fn a_body_that_is_too_long_to_change_still_goes_on() {
    let whole = Whole::start().await;
    let url = whole.web().await;
    whole.add_hold(json!({})).await;
    let body = "x".repeat(3 << 20);
    let visit = whole.visiting(whole.http.post(format!("{url}/")).body(body.clone()));
    let held = whole.held(1).await.remove(0);

    assert_eq!(held["request"]["truncated"], true);
    let changed = whole.decide(&held, "release", json!({"method": "PUT"})).await;
    assert_eq!((changed.0, &changed.1["error_code"]), (400, &json!(109)));
    assert_eq!(whole.decide(&held, "release", json!({})).await.0, 204);

    assert!(visit.await.unwrap().1.ends_with(&body));
}

#[tokio::test]
async fn a_body_that_was_read_while_its_request_waited_is_captured() {
    let whole = Whole::start().await;
    let url = whole.web().await;
    whole.add_hold(json!({"id": "h"})).await;
    let request = "POST / HTTP/1.1\r\nHost: HOST\r\nContent-Length: 6\r\n\r\na body";

    let visitor = whole.raw_visit(&url, request).await;
    let left = whole.held(1).await[0]["id"].clone();
    let record = whole.get(&format!("/api/requests/http/{}", left.as_str().unwrap())).await;
    assert_eq!(record["request"].get("truncated"), None, "the record has it already: {record}");
    drop(visitor);
    let visitor = whole.raw_visit(&url, request).await;
    whole.ended(&left).await;
    let held = whole.held(1).await.remove(0);
    assert_eq!(whole.decide(&held, "refuse", json!({})).await.0, 204);
    drop(visitor);
    whole.call(Method::DELETE, "/api/holds", None).await;

    for id in [&left, &held["id"]] {
        let record = whole.ended(id).await;
        assert_eq!(record["request"].get("truncated"), None, "{record}");
        assert_eq!(whole.replay_once(id).await, (204, Value::Null));
        let replayed = &whole.get("/api/requests/http?limit=1").await["requests"][0];
        assert_eq!(replayed["request"]["raw"], record["request"]["raw"], "{replayed}");
        assert_eq!(replayed["response"]["status_code"], 200, "{replayed}");
    }
}

#[tokio::test]
async fn a_body_that_never_came_is_marked_and_not_replayed() {
    let whole = Whole::start().await;
    let url = whole.web().await;
    whole.add_hold(json!({"id": "h", "max_wait": 600_000})).await;
    let request = "POST / HTTP/1.1\r\nHost: HOST\r\nContent-Length: 600\r\n\r\nits beginning";
    let visitor = whole.raw_visit(&url, request).await;

    whole.met("h", 1).await;
    drop(visitor);

    let id = whole.get("/api/requests/http?limit=1").await["requests"][0]["id"].clone();
    let record = whole.ended(&id).await;
    assert_eq!(record["request"]["truncated"], true, "{record}");
    let (status, refused) = whole.replay_once(&id).await;
    assert_eq!((status, &refused["error_code"]), (400, &json!(105)), "{refused}");
}

#[tokio::test]
async fn a_hold_lets_requests_go_whose_bodies_still_come() {
    let whole = Whole::start().await;
    let url = whole.web().await;
    for (change, fields) in
        [(Method::PATCH, Some(json!({"enabled": false}))), (Method::DELETE, None)]
    {
        whole.add_hold(json!({"id": "h", "max_wait": 600_000})).await;
        let request =
            "POST / HTTP/1.1\r\nHost: HOST\r\nContent-Length: 6\r\nConnection: close\r\n\r\na b";
        let mut visitor = whole.raw_visit(&url, request).await;
        whole.met("h", 1).await;

        whole.call(change, "/api/holds/h", fields).await;
        visitor.write_all(b"ody").await.unwrap();

        let mut response = String::new();
        let read = visitor.read_to_string(&mut response);
        tokio::time::timeout(PATIENCE, read).await.expect("it is let go").unwrap();
        assert!(response.ends_with("a body"), "{response}");
        whole.call(Method::DELETE, "/api/holds", None).await;
    }
}

#[tokio::test]
async fn a_method_whose_response_has_no_body_stays_as_it_is() {
    let whole = Whole::start().await;
    let url = whole.web().await;
    whole.add_hold(json!({})).await;
    let visits = [Method::GET, Method::HEAD]
        .map(|method| whole.visiting(whole.http.request(method, format!("{url}/"))));

    for held in whole.held(2).await {
        let is_head = held["request"]["method"] == "HEAD";
        let other = if is_head { "GET" } else { "HEAD" };
        let (status, refused) = whole.decide(&held, "release", json!({"method": other})).await;
        assert_eq!((status, &refused["error_code"]), (400, &json!(109)), "{refused}");
        let problem = refused["details"]["err"].as_str().unwrap();
        assert!(problem.starts_with(&format!("method: \"{other}\" cannot")), "{problem}");
        assert_eq!(whole.decide(&held, "release", json!({"target": "/b"})).await.0, 204);
    }

    for visit in visits {
        assert_eq!(visit.await.unwrap().0, 200);
    }
}

#[tokio::test]
async fn a_held_handshake_that_is_changed_is_one_still() {
    let whole = Whole::start().await;
    let url = whole.web().await;
    whole.add_hold(json!({})).await;
    let request = whole.http.get(format!("{url}/a")).header("connection", "upgrade");
    let visit = whole.visiting(request.header("upgrade", "websocket"));
    let held = whole.held(1).await.remove(0);

    assert_eq!(whole.decide(&held, "release", json!({"target": "/b"})).await.0, 204);

    let (_, mirrored) = visit.await.unwrap();
    let mirrored = mirrored.to_lowercase();
    assert!(
        mirrored.starts_with("get /b ") && mirrored.contains("\r\nupgrade: websocket"),
        "{mirrored}"
    );
    assert!(mirrored.contains("\r\nconnection: upgrade"), "{mirrored}");
}
