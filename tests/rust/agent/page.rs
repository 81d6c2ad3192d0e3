//! The inspection page: what it answers, to whom, and what it keeps to itself.

use std::time::Duration;

use reqwest::{Method, Response};
use serde_json::{Value, json};

use super::support::Whole;

impl Whole {
    async fn fetch(&self, path: &str) -> Response {
        self.http.get(format!("{}{path}", self.agent.api_url().unwrap())).send().await.unwrap()
    }

    /// A visitor's request that carries secrets; the identifier of its record.
    async fn secretive(&self, url: &str) -> String {
        let request = self.http.post(format!("{url}/hook?token=abc&x=1"));
        let request = request.header("authorization", "Bearer abcdef");
        let request = request.header("content-type", "application/json");
        request.body(r#"{"password": "abc", "n": 1}"#).send().await.unwrap();
        self.newest().await
    }

    async fn newest(&self) -> String {
        let listed = self.get("/api/requests/http?limit=1").await;
        listed["requests"][0]["id"].as_str().unwrap().to_owned()
    }
}

/// The updates of a stream of events.
struct Events {
    response: Response,
    read: String,
}

impl Events {
    async fn of(whole: &Whole, query: &str, last: Option<&str>) -> Self {
        let url = format!("{}/inspect/data/events{query}", whole.agent.api_url().unwrap());
        let mut request = whole.http.get(url);
        if let Some(last) = last {
            request = request.header("last-event-id", last);
        }
        let response = request.send().await.unwrap();
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        Self { response, read: String::new() }
    }

    async fn next(&mut self) -> Value {
        let read = async {
            loop {
                if let Some((event, rest)) = self.read.split_once("\n\n") {
                    let data = event.lines().find_map(|line| line.strip_prefix("data: "));
                    let update = serde_json::from_str(data.unwrap()).unwrap();
                    self.read = rest.to_owned();
                    return update;
                }
                let chunk = self.response.chunk().await.unwrap().expect("the stream goes on");
                self.read.push_str(std::str::from_utf8(&chunk).unwrap());
            }
        };
        tokio::time::timeout(Duration::from_secs(20), read).await.expect("an update in time")
    }

    /// The next update that has requests.
    async fn next_requests(&mut self) -> Value {
        loop {
            let update = self.next().await;
            if update["requests"] != json!([]) {
                return update;
            }
        }
    }
}

/// What a page shows first.
fn first_view(page: &str) -> Value {
    assert_eq!(page.matches("<script").count(), 2, "{page}");
    let (_, rest) = page.split_once("<script type=\"application/json\" id=\"first\">").unwrap();
    serde_json::from_str(rest.split_once("</script>").unwrap().0).unwrap()
}

#[tokio::test]
async fn the_first_view_is_data_and_nothing_in_it_is_more() {
    let whole = Whole::start().await;
    let url = whole.web().await;
    let hostile = "</pre></script><script>alert('1')</script><!--\"";
    whole.http.post(format!("{url}/a'b")).body(hostile).send().await.unwrap();
    let id = whole.newest().await;

    let list = whole.fetch("/").await;

    assert!(list.url().path().ends_with("/inspect/http"), "{}", list.url());
    let list = first_view(&list.text().await.unwrap());
    let request = &list["update"]["requests"][0];
    assert_eq!((&request["id"], &request["target"]), (&json!(id), &json!("/a'b")));
    assert_eq!((&list["chosen"], &list["problem"]), (&Value::Null, &Value::Null));
    let one = whole.fetch(&format!("/inspect/http/{id}")).await.text().await.unwrap();
    assert_eq!(first_view(&one)["chosen"]["id"], id);
    let filtered = whole.fetch("/inspect/http?filter=status:5x\"></script>").await;
    let filtered = first_view(&filtered.text().await.unwrap());
    assert_eq!(filtered["filter"], "status:5x\"></script>");
    let problem = filtered["problem"].as_str().unwrap();
    assert!(problem.contains("status:5x\"></script>: must be a number"), "{problem}");
    assert_eq!(filtered["update"], Value::Null);
    let gone = whole.fetch("/inspect/http/0000000000000000").await.text().await.unwrap();
    assert_eq!(first_view(&gone)["chosen"], Value::Null);
    let status = first_view(&whole.fetch("/status").await.text().await.unwrap());
    assert_eq!(status["state"], "online");
}

#[tokio::test]
async fn every_answer_is_protected() {
    let whole = Whole::start().await;
    let url = whole.web().await;
    let id = whole.secretive(&url).await;

    for path in [
        "/inspect/http",
        "/status",
        "/inspect/assets/requests.js",
        "/inspect/data/requests",
        "/inspect/data/events",
        "/inspect/data/export.har",
        &format!("/inspect/http/{id}"),
        &format!("/inspect/data/requests/{id}"),
        &format!("/inspect/data/requests/{id}/copy?as=curl"),
    ] {
        let answer = whole.fetch(path).await;
        assert_eq!(answer.status(), 200, "{path}");
        let headers = answer.headers();
        let policy = headers["content-security-policy"].to_str().unwrap();
        assert!(policy.starts_with("default-src 'none'; script-src 'self'"), "{path}: {policy}");
        assert!(policy.ends_with("frame-ancestors 'none'"), "{path}: {policy}");
        for (name, value) in [
            ("x-content-type-options", "nosniff"),
            ("x-frame-options", "DENY"),
            ("referrer-policy", "no-referrer"),
            ("cross-origin-resource-policy", "same-origin"),
        ] {
            assert_eq!(headers[name], value, "{path}");
        }
        assert!(!headers.contains_key("access-control-allow-origin"), "{path}");
    }
}

#[tokio::test]
async fn pages_of_other_sites_get_nothing() {
    let whole = Whole::start().await;
    let url = whole.web().await;
    let id = whole.secretive(&url).await;
    let base = whole.agent.api_url().unwrap();
    let data = format!("{base}/inspect/data/requests/{id}");

    for (name, value) in
        [("sec-fetch-site", "cross-site"), ("sec-fetch-site", "same-site"), ("host", "evil.test")]
    {
        let answer = whole.http.get(&data).header(name, value).send().await.unwrap();
        assert_eq!(answer.status(), 403, "{name}: {value}");
    }
    let replay = whole.http.post(format!("{data}/replay")).body("{}");
    let answer = replay.header("content-type", "text/plain").send().await.unwrap();
    assert_eq!(answer.status(), 415);
    let replay = whole.http.post(format!("{data}/replay")).body("{}");
    let replay = replay.header("content-type", "application/json");
    let answer = replay.header("origin", "http://evil.test").send().await.unwrap();
    assert_eq!(answer.status(), 403);
    assert_eq!(whole.newest().await, id);
}

#[tokio::test]
async fn secrets_are_masked_until_they_are_asked_for() {
    let whole = Whole::start().await;
    // A local service that is away repeats nothing of what it was told.
    let away = json!({"name": "away", "proto": "http", "addr": 1});
    let (_, tunnel) = whole.call(Method::POST, "/api/tunnels", Some(away)).await;
    let url = tunnel["public_url"].as_str().unwrap().to_owned();
    let id = whole.secretive(&url).await;

    for path in [
        "/inspect/data/requests".to_owned(),
        format!("/inspect/data/requests/{id}"),
        format!("/inspect/http/{id}"),
        "/inspect/data/export.har".to_owned(),
        format!("/inspect/data/requests/{id}/copy?as=curl"),
        format!("/inspect/data/requests/{id}/copy?as=raw"),
        format!("/inspect/data/requests/{id}/copy?as=requests"),
    ] {
        let shown = whole.fetch(&path).await.text().await.unwrap();
        assert!(!shown.contains("abcdef") && !shown.contains("token=abc"), "{path}: {shown}");
    }
    let detail = whole.get(&format!("/inspect/data/requests/{id}")).await;
    assert_eq!(detail["request"]["masked"], true);
    let bare = whole.get(&format!("/inspect/data/requests/{id}?reveal=1")).await;
    assert_eq!(bare["target"], "/hook?token=abc&x=1");
    let har = whole.get(&format!("/inspect/data/export.har?id={id}&reveal=1")).await;
    let request = &har["log"]["entries"][0]["request"];
    assert_eq!(request["postData"]["text"], r#"{"password": "abc", "n": 1}"#);
    assert_eq!(request["queryString"][0], json!({"name": "token", "value": "abc"}));
    let exact = whole.get(&format!("/api/requests/http/{id}")).await;
    assert_eq!(exact["request"]["headers"]["Authorization"], json!(["Bearer abcdef"]));
}

#[tokio::test]
async fn the_filter_decides_in_list_stream_and_export() {
    let whole = Whole::start().await;
    let url = whole.web().await;
    for path in ["/one", "/two", "/hook/three"] {
        whole.http.get(format!("{url}{path}")).send().await.unwrap();
    }
    let targets = |found: &Value| {
        let requests = found["requests"].as_array().unwrap();
        requests.iter().map(|r| r["target"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };

    let listed = whole.get("/inspect/data/requests?filter=path:/*o*+status:2xx").await;
    assert_eq!(targets(&listed), ["/one", "/two", "/hook/three"]);
    let listed = whole.get("/inspect/data/requests?filter=path:/hook*").await;
    assert_eq!(
        (targets(&listed), &listed["usage"]["records"]),
        (vec!["/hook/three".into()], &3.into())
    );
    let mut events = Events::of(&whole, "?filter=path:/two", None).await;
    assert_eq!(targets(&events.next().await), ["/two"]);
    let har = whole.get("/inspect/data/export.har?filter=-path:/two").await;
    assert_eq!(har["log"]["entries"].as_array().unwrap().len(), 2);
    let (status, refusal) =
        whole.call(Method::GET, "/inspect/data/requests?filter=status:none", None).await;
    assert_eq!(status, 400);
    let told = refusal["details"]["err"].as_str().unwrap();
    assert!(told.starts_with("filter: status:none: must be a number"), "{told}");
}

#[tokio::test]
async fn a_stream_tells_what_is_new_and_goes_on_where_it_was_cut() {
    let whole = Whole::start().await;
    let url = whole.web().await;
    let visit = |path: &'static str| {
        let request = whole.http.get(format!("{url}{path}"));
        async move { request.send().await.unwrap() }
    };
    visit("/before").await;

    let mut events = Events::of(&whole, "", None).await;
    let first = events.next().await;
    assert_eq!(
        (&first["reset"], &first["requests"][0]["target"]),
        (&json!(true), &json!("/before"))
    );
    assert_eq!((&first["state"], &first["tunnels"]), (&json!("online"), &json!(1)));
    visit("/live").await;
    let live = events.next_requests().await;
    assert_eq!((&live["reset"], &live["requests"][0]["target"]), (&json!(false), &json!("/live")));
    drop(events);

    visit("/meanwhile").await;
    let last = first["cursor"].as_str().unwrap();
    let resumed = Events::of(&whole, "", Some(last)).await.next().await;
    let targets = resumed["requests"].as_array().unwrap();
    assert_eq!(resumed["reset"], false);
    assert_eq!(targets.iter().map(|r| &r["target"]).collect::<Vec<_>>(), ["/live", "/meanwhile"]);
    let other = Events::of(&whole, "", Some("12.3")).await.next().await;
    assert_eq!((&other["reset"], other["requests"].as_array().unwrap().len()), (&json!(true), 3));
    whole.call(Method::DELETE, "/api/requests/http", None).await;
    let cleared = Events::of(&whole, "", Some(last)).await.next().await;
    assert_eq!((&cleared["reset"], &cleared["requests"]), (&json!(true), &json!([])));
}

#[tokio::test]
async fn a_request_is_sent_again_with_changes() {
    let whole = Whole::start().await;
    let url = whole.web().await;
    let id = whole.secretive(&url).await;
    let path = format!("/inspect/data/requests/{id}/replay");

    let changes = json!({"method": "PUT", "target": "/new?x=2", "body": "Ynll"});
    let (status, sent) = whole.call(Method::POST, &path, Some(changes)).await;

    assert_eq!(status, 200, "{sent}");
    let new = sent["id"].as_str().unwrap();
    let shown = whole.get(&format!("/inspect/data/requests/{new}?reveal=1")).await;
    assert_eq!((&shown["replay_of"], &shown["method"]), (&json!(id), &json!("PUT")));
    assert_eq!(shown["via"], Value::Null);
    let raw = whole.fetch(&format!("/inspect/data/requests/{new}/copy?as=raw&reveal=1")).await;
    let raw = raw.text().await.unwrap();
    assert!(raw.starts_with("PUT /new?x=2 HTTP/1.1\r\n"), "{raw}");
    assert!(raw.contains("Bearer abcdef") && raw.ends_with("\r\n\r\nbye"), "{raw}");
    let original = whole.get(&format!("/inspect/data/requests/{id}")).await;
    assert_eq!(original["replays"], json!([new]));
    assert_eq!(original["via"], "endpoint");
    for (changes, status) in [
        (json!({"target": "//x y"}), 400),
        (json!({"nonsense": 1}), 400),
        (json!({"tunnel": "none"}), 404),
    ] {
        let (told, refusal) = whole.call(Method::POST, &path, Some(changes.clone())).await;
        assert_eq!(told, status, "{changes}: {refusal}");
    }
}

#[tokio::test]
async fn the_status_page_shows_what_is_in_effect_without_secrets() {
    let whole = Whole::start().await;
    let definition = json!({
        "name": "closed", "proto": "http", "addr": whole.local, "basic_auth": ["user:secret-word"],
    });
    let (status, _) = whole.call(Method::POST, "/api/tunnels", Some(definition)).await;
    assert_eq!(status, 201);

    let status = whole.get("/inspect/data/status").await;

    assert_eq!((&status["state"], &status["reconnects"]), (&json!("online"), &json!(0)));
    assert_eq!(status["options"]["authtoken"], "••••••");
    assert_eq!(
        status["options"]["server_addr"],
        whole.service.agent_address().unwrap().to_string()
    );
    assert_eq!(status["tunnels"][0]["definition"]["addr"], whole.local.to_string());
    assert_eq!(status["tunnels"][0]["metrics"]["http"]["count"], 0);
    assert!(!status.to_string().contains("secret-word"), "{status}");
    let page = first_view(&whole.fetch("/status").await.text().await.unwrap());
    assert_eq!(page["tunnels"][0]["name"], "closed");
    assert!(!page.to_string().contains("secret-word"), "{page}");
}
