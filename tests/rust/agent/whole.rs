//! Service and agent together, with real traffic.

use std::time::Duration;

use ginnel_agent::{Agent, AgentOptions, SessionState, Trust, WebAddress};
use ginnel_service::{self as service, Service};

use reqwest::Method;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::support::{PATIENCE, Whole};
use crate::service::support::{Folder, free_address};

#[tokio::test]
async fn a_request_is_carried_captured_and_replayed() {
    let whole = Whole::start().await;
    let url = whole.web().await;

    let answer = whole.http.post(format!("{url}/a?b")).body("hello").send().await.unwrap();
    let answer = answer.text().await.unwrap();

    assert!(answer.starts_with("POST /a?b HTTP/1.1\r\n"), "{answer}");
    assert!(answer.ends_with("\r\n\r\nhello"), "{answer}");
    let listed = whole.get("/api/requests/http").await;
    let first = &listed["requests"][0];
    assert_eq!(first["request"]["uri"], "/a?b");
    assert_eq!(
        (&first["tunnel_name"], &first["remote_addr"]),
        (&json!("web"), &json!("127.0.0.1"))
    );
    assert_eq!(first["response"]["status_code"], 200);
    let id = first["id"].as_str().unwrap();
    let replay = json!({"id": id, "tunnel_name": null});
    assert_eq!(whole.call(Method::POST, "/api/requests/http", Some(replay)).await.0, 204);
    let both = whole.get("/api/requests/http?tunnel_name=web").await;
    assert_eq!(both["requests"].as_array().unwrap().len(), 2);
    assert_eq!(both["requests"][0]["request"]["raw"], first["request"]["raw"]);
    assert_eq!(whole.get(&format!("/api/requests/http/{id}")).await["id"], id);
    let tunnel = whole.get("/api/tunnels/web").await;
    assert_eq!(tunnel["metrics"]["http"]["count"], 2);
    assert_eq!(
        tunnel["config"],
        json!({"addr": format!("localhost:{}", whole.local), "inspect": true})
    );
    assert_eq!(whole.call(Method::DELETE, "/api/requests/http", None).await.0, 204);
    assert_eq!(whole.get("/api/requests/http").await["requests"], json!([]));
}

#[tokio::test]
async fn tunnels_start_are_listed_and_stop() {
    let whole = Whole::start().await;
    let url = whole.web().await;

    let (taken, problem) = whole.start_tunnel(json!({"name": "web", "proto": "http"})).await;
    let both = json!({"name": "two", "proto": "http", "schemes": ["http", "https"]});
    let (made, https) = whole.start_tunnel(both).await;

    assert_eq!((taken, problem["error_code"].as_i64()), (400, Some(102)));
    assert!(problem["details"]["err"].as_str().unwrap().contains("already exists"));
    assert_eq!((made, &https["name"]), (201, &json!("two")));
    let names = |list: Value| {
        let list = list["tunnels"].as_array().unwrap().clone();
        list.iter().map(|it| it["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(names(whole.get("/api/tunnels").await), ["web", "two", "two (http)"]);
    assert_eq!(whole.get("/api/tunnels/two%20%28http%29").await["name"], "two (http)");
    assert_eq!(whole.call(Method::DELETE, "/api/tunnels/web", None).await.0, 204);
    assert_eq!(whole.call(Method::DELETE, "/api/tunnels/web", None).await.0, 404);
    assert!(whole.http.get(&url).send().await.is_err());
}

#[tokio::test]
async fn what_cannot_be_is_refused_in_the_words_of_the_sheet() {
    let whole = Whole::start().await;
    whole.web().await;

    for (method, path, body, status, code) in [
        (Method::POST, "/api/tunnels", Some(json!({})), 400, Some(102)),
        (Method::POST, "/api/tunnels", Some(json!([])), 400, Some(100)),
        (Method::POST, "/api/tunnels", Some(json!({"addr": 1, "proto": "https"})), 400, Some(102)),
        (Method::POST, "/api/requests/http", Some(json!({"id": "x"})), 404, None),
        (Method::POST, "/api/requests/http", Some(json!({})), 400, Some(100)),
        (Method::GET, "/api/requests/http?limit=0", None, 400, Some(106)),
        (Method::GET, "/api/requests/http/x", None, 404, None),
        (Method::GET, "/api/nowhere", None, 404, None),
        (Method::GET, "/elsewhere", None, 404, None),
        (Method::PUT, "/api/tunnels", None, 405, None),
        (Method::DELETE, "/api/status", None, 405, None),
    ] {
        let (found, body) = whole.call(method.clone(), path, body).await;
        assert_eq!((found, body["error_code"].as_i64()), (status, code), "{method} {path} {body}");
        assert_eq!(body["status_code"], status, "{body}");
    }
    let form = whole.http.post(format!("{}/api/tunnels", whole.agent.api_url().unwrap()));
    let form = form.header("content-type", "text/plain").body("{}").send().await.unwrap();
    assert_eq!(form.status(), 415);
    for path in ["/api/status", "/api/requests/http/x", "/inspect/data/status"] {
        let form = whole.http.post(format!("{}{path}", whole.agent.api_url().unwrap()));
        let form = form.header("content-type", "text/plain").body("{}").send().await.unwrap();
        assert_eq!(form.status(), 405, "{path}");
    }
}

#[tokio::test]
async fn pages_of_other_sites_are_refused() {
    let whole = Whole::start().await;
    let url = format!("{}/api/requests/http", whole.agent.api_url().unwrap());
    let own = whole.agent.api_url().unwrap();

    let status = async |headers: &[(&str, &str)]| {
        let mut request = whole.http.delete(&url);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.send().await.unwrap().status().as_u16()
    };

    assert_eq!(status(&[]).await, 204);
    assert_eq!(status(&[("origin", &own), ("sec-fetch-site", "same-origin")]).await, 204);
    assert_eq!(status(&[("origin", "https://evil.test")]).await, 403);
    assert_eq!(status(&[("origin", "null")]).await, 403);
    assert_eq!(status(&[("sec-fetch-site", "cross-site")]).await, 403);
    assert_eq!(status(&[("sec-fetch-site", "same-site")]).await, 403);
    assert_eq!(status(&[("host", "evil.test")]).await, 403);
    assert_eq!(status(&[("host", "127.0.0.1.nip.test")]).await, 403);
}

#[tokio::test]
async fn a_tcp_tunnel_carries_bytes() {
    let whole = Whole::start().await;
    let echo = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = echo.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        let (mut stream, _) = echo.accept().await.unwrap();
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).await.unwrap();
        stream.write_all(&bytes).await.unwrap();
    });

    let (status, tunnel) =
        whole.start_tunnel(json!({"name": "raw", "proto": "tcp", "addr": addr})).await;
    assert_eq!(status, 201, "{tunnel}");
    let place = tunnel["public_url"].as_str().unwrap().strip_prefix("tcp://").unwrap();
    let mut visitor = tokio::net::TcpStream::connect(place).await.unwrap();
    visitor.write_all(&vec![7; 1 << 20]).await.unwrap();
    visitor.shutdown().await.unwrap();
    let mut back = Vec::new();
    visitor.read_to_end(&mut back).await.unwrap();

    assert!(back == vec![7; 1 << 20]);
    let metrics = whole.get("/api/tunnels/raw").await["metrics"].clone();
    assert_eq!((&metrics["conns"]["count"], &metrics["http"]["count"]), (&json!(1), &json!(0)));
}

#[tokio::test]
async fn a_service_that_comes_back_finds_the_tunnels_at_their_addresses() {
    let folder = Folder::new();
    let whole = Whole::with(folder.options("service.db")).await;
    let url = whole.web().await;
    let port = whole.service.agent_address().unwrap().port();
    let (api_key, authtoken) =
        (whole.service.api_key().cloned(), whole.service.authtoken().cloned());

    whole.service.stop(Duration::ZERO).await;
    let mut options = folder.options("service.db");
    options.agents.port = Some(port);
    options.tokens = service::TokenSettings { admin_key: api_key, authtoken };
    let service = Service::start(options).await.unwrap();
    let mut state = whole.agent.watch_state();
    while !matches!(&*state.borrow_and_update(), SessionState::Online(_))
        || whole.agent.reconnect_count() == 0
    {
        tokio::time::timeout(PATIENCE, state.changed()).await.unwrap().unwrap();
    }

    let answer = whole.http.get(format!("{url}/back")).send().await.unwrap();
    assert!(answer.text().await.unwrap().starts_with("GET /back HTTP/1.1\r\n"));
    drop(service);
}

#[tokio::test]
async fn a_refused_agent_says_why_and_does_not_try_again() {
    let service = Service::start(service::Options::default()).await.unwrap();
    let trust = Trust::Pem(service.gateway().authority().pem().as_bytes().to_vec());
    let token = ginnel_api::Secret(format!("{}_{}", "0".repeat(27), "0".repeat(21)));
    let mut options = AgentOptions::new(
        service.agent_address().map(ginnel_base::address::HostPort::from),
        token,
        trust,
    );
    options.web_addr = WebAddress::Off;

    let mut agent = Agent::start(options).await.unwrap();
    tokio::time::timeout(PATIENCE, agent.wait_until_ended()).await.unwrap();

    assert!(matches!(agent.session_state(), SessionState::Offline));
    assert!(agent.last_error().unwrap().contains("ERR_NGROK_107"), "{:?}", agent.last_error());
}

#[tokio::test]
async fn the_management_api_stops_an_agent() {
    let mut whole = Whole::start().await;
    let url = format!("{}/tunnel_sessions", whole.service.url());
    let key = whole.service.api_key().cloned().unwrap().0;
    let sessions = whole.http.get(&url).bearer_auth(&key).send().await.unwrap();
    let sessions: Value = serde_json::from_slice(&sessions.bytes().await.unwrap()).unwrap();
    let id = sessions["tunnel_sessions"][0]["id"].as_str().unwrap();

    let stop = whole.http.post(format!("{url}/{id}/stop")).bearer_auth(&key);
    // There is nothing to say in a body.
    let stop = stop.send().await.unwrap();

    assert_eq!(stop.status(), 204);
    tokio::time::timeout(PATIENCE, whole.agent.wait_until_ended()).await.unwrap();
    assert!(matches!(whole.agent.session_state(), SessionState::Offline));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_requests_at_once_keep_their_answers() {
    let whole = Whole::start().await;
    let url = whole.web().await;
    let mut visitors = tokio::task::JoinSet::new();

    for visitor in 0..32 {
        let (http, url) = (whole.http.clone(), url.clone());
        visitors.spawn(async move {
            for turn in 0..64 {
                let id = format!("{visitor}-{turn}");
                let request = http.post(format!("{url}/{id}")).body(format!("body of {id}"));
                let answer = request.send().await.unwrap().text().await.unwrap();
                assert!(answer.starts_with(&format!("POST /{id} HTTP/1.1\r\n")), "{answer}");
                assert!(answer.ends_with(&format!("\r\n\r\nbody of {id}")), "{answer}");
            }
        });
    }
    while let Some(done) = visitors.join_next().await {
        done.unwrap();
    }

    let listed = whole.get("/api/requests/http?limit=5000").await;
    let listed = listed["requests"].as_array().unwrap();
    assert_eq!(listed.len(), 32 * 64);
    for captured in listed {
        let id = captured["request"]["uri"].as_str().unwrap().trim_start_matches('/');
        let bytes = |message: &str| {
            use base64::Engine;
            let raw = captured[message]["raw"].as_str().unwrap();
            base64::engine::general_purpose::STANDARD.decode(raw).unwrap()
        };
        let end = format!("body of {id}").into_bytes();
        assert!(bytes("request").ends_with(&end) && bytes("response").ends_with(&end), "{id}");
    }
}

#[tokio::test]
async fn tunnels_that_come_and_go_leave_nothing_behind() {
    let whole = Whole::start().await;
    let key = whole.service.api_key().cloned().unwrap().0;

    for round in 0..50 {
        let (status, tunnel) =
            whole.start_tunnel(json!({"name": format!("t{round}"), "proto": "http"})).await;
        assert_eq!(status, 201, "{tunnel}");
        let url = tunnel["public_url"].as_str().unwrap().to_owned();
        whole.http.get(&url).send().await.unwrap().bytes().await.unwrap();
        let path = format!("/api/tunnels/t{round}");
        assert_eq!(whole.call(Method::DELETE, &path, None).await.0, 204);
        assert!(whole.http.get(&url).send().await.is_err(), "{url} is still open");
    }

    let listed = whole.http.get(format!("{}/tunnels", whole.service.url()));
    let listed = listed.bearer_auth(key).send().await.unwrap().bytes().await.unwrap();
    let listed: Value = serde_json::from_slice(&listed).unwrap();
    assert_eq!(listed["tunnels"], json!([]));
    assert_eq!(whole.get("/api/tunnels").await["tunnels"], json!([]));
}

#[tokio::test]
async fn a_local_service_that_is_away_is_a_502_for_visitors() {
    let whole = Whole::start().await;
    let away = free_address().to_string();
    let definition = json!({"name": "away", "proto": "http", "addr": away});
    let (_, tunnel) = whole.start_tunnel(definition).await;

    let answer = whole.http.get(tunnel["public_url"].as_str().unwrap()).send().await.unwrap();

    assert_eq!(answer.status(), 502);
    let page = answer.text().await.unwrap();
    assert!(page.contains("ERR_NGROK_8012"), "{page}");
}

#[tokio::test]
async fn options_of_a_tunnel_are_enforced_by_the_service() {
    let whole = Whole::start().await;
    let definition = json!({
        "name": "guarded",
        "proto": "http",
        "basic_auth": ["user:password"],
        "request_header": {"add": ["X-From: tunnel"]},
        "response_header": {"add": ["X-To: visitor"]},
        "user_agent_filter": {"deny": ["(?i)bot"]},
    });
    let (status, tunnel) = whole.start_tunnel(definition).await;
    assert_eq!(status, 201, "{tunnel}");
    let url = tunnel["public_url"].as_str().unwrap();

    let visit = async |agent: &str, password: &str| {
        let request = whole.http.get(url).header("user-agent", agent);
        request.basic_auth("user", Some(password)).send().await.unwrap()
    };

    assert_eq!(visit("curl/8", "wrong-password").await.status(), 401);
    assert_eq!(visit("Bot/1", "password").await.status(), 403);
    let let_in = visit("curl/8", "password").await;
    assert_eq!(
        (let_in.status().as_u16(), &let_in.headers()["x-to"]),
        (200, &"visitor".parse().unwrap())
    );
    assert!(let_in.text().await.unwrap().to_lowercase().contains("x-from: tunnel\r\n"));
}

/// Other systems have one loopback address.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_record_names_its_own_visitor_and_not_the_one_before() {
    let whole = Whole::start().await;
    let url = whole.web().await;
    let addresses = ["127.0.0.1", "127.0.0.2", "127.0.0.1", "127.0.0.3"];

    for address in addresses {
        let from = Some(address.parse().unwrap());
        let visitor = reqwest::Client::builder().no_proxy().local_address(from);
        let answer = visitor.build().unwrap().get(&url).send().await.unwrap();
        answer.bytes().await.unwrap();
    }

    let listed = whole.get("/api/requests/http").await;
    let named = listed["requests"].as_array().unwrap().iter().rev();
    let named = named.map(|record| record["remote_addr"].as_str().unwrap()).collect::<Vec<_>>();
    assert_eq!(named, addresses);
}
