//! In which order the modules of a route act (remote API sheet, section 6).

use std::io::Read;

use serde_json::{Value, json};
use tokio::io::AsyncReadExt;

use super::configured::{EdgeFixture, code, status};
use super::support::{header, mirror, soon};
use crate::service::support::free_address;

/// A request that says who asks, and how it is signed.
fn request(agent: &str, token: &str, path: &str) -> String {
    format!(
        "POST {path} HTTP/1.1\r\nHost: a.test\r\nUser-Agent: {agent}\r\nX-Gitlab-Token: {token}\r\n\
         Accept-Encoding: gzip\r\nContent-Length: 0\r\n\r\n"
    )
}

fn rule(expression: &str, action: &str, config: Value) -> Value {
    json!({"expressions": [expression], "actions": [{"type": action, "config": config}]})
}

#[tokio::test]
async fn whoever_comes_first_turns_a_request_away() {
    let site = EdgeFixture::start().await;
    let edge = site.edge("a.test").await;
    let policy = site.service.create("/ip_policies", json!({})).await;
    let modules = json!({
        "backend": site.at(mirror().await).await,
        "ip_restriction": {"ip_policy_ids": [policy]},
        "user_agent_filter": {"deny": ["bot"]},
        "webhook_verification": {"provider": "gitlab", "secret": "right"},
        "policy": {"inbound": [rule("req.url.path == '/no'", "deny", json!({"status_code": 499}))]},
    });
    site.route(&edge, "/", modules).await;
    let get = async |agent: &str, token: &str, path: &str| {
        let answer = site.say(&request(agent, token, path)).await;
        format!("{} {}", status(&answer), code(&answer))
    };

    assert_eq!(get("bot", "wrong", "/no").await, "403 3205", "the address");
    let allow = json!({"cidr": "127.0.0.0/8", "action": "allow", "ip_policy_id": policy});
    site.service.create("/ip_policy_rules", allow).await;
    assert_eq!(get("bot", "wrong", "/no").await, "403 3211", "then the user agent");
    assert_eq!(get("me", "wrong", "/no").await, "403 3204", "then the signature");
    assert_eq!(get("me", "right", "/no").await, "499 ", "then the policy");
    assert_eq!(get("me", "right", "/").await, "200 ");
}

#[tokio::test]
async fn rules_come_before_the_headers_of_requests_and_after_those_of_answers() {
    let site = EdgeFixture::start().await;
    let edge = site.edge("a.test").await;
    let add = |name: &str, value: &str| json!({"headers": {name: value}});
    let inbound = [
        rule("!hasReqHeader('x-module')", "add-headers", add("x-first", "rule")),
        rule("true", "add-headers", add("x-rule", "rule")),
    ];
    let outbound = [
        rule("hasResHeader('x-module')", "add-headers", add("x-last", "rule")),
        rule(
            "res.headers['x-module'] == ['yes']",
            "remove-headers",
            json!({"headers": ["x-gone"]}),
        ),
        // What is compressed could not be looked into.
        rule(
            "true",
            "response-body-find-replace",
            json!({"replacements": [{"from": "POST", "to": "Post"}]}),
        ),
    ];
    let modules = json!({
        "backend": site.at(mirror().await).await,
        "policy": {"inbound": inbound, "outbound": outbound},
        "request_headers": {"add": {"x-module": "yes"}, "remove": ["x-rule"]},
        "response_headers": {"add": {"x-module": "yes", "x-gone": "yes"}},
        "compression": {},
    });
    site.route(&edge, "/", modules).await;

    let plain = request("me", "", "/").replace("Accept-Encoding: gzip\r\n", "");
    let (head, seen) = site.say(&plain).await;
    assert_eq!(header(&seen, "x-first"), Some("rule"), "{seen}");
    assert_eq!((header(&seen, "x-rule"), header(&seen, "x-module")), (None, Some("yes")), "{seen}");
    assert_eq!(header(&head, "x-last"), Some("rule"), "{head}");
    assert_eq!((header(&head, "x-gone"), header(&head, "x-module")), (None, Some("yes")), "{head}");
    assert!(seen.starts_with("Post / HTTP/1.1\r\n"), "{seen}");
    let mut visitor = site.visitor().await;
    visitor.say(&request("me", "", "/").replace("HTTP/1.1", "HTTP/1.0")).await;
    let head = visitor.head().await;
    assert_eq!(header(&head, "content-encoding"), Some("gzip"), "{head}");
    let (mut zipped, mut seen) = (Vec::new(), String::new());
    soon(visitor.0.read_to_end(&mut zipped)).await.unwrap();
    flate2::read::GzDecoder::new(&zipped[..]).read_to_string(&mut seen).unwrap();
    assert!(seen.starts_with("Post / HTTP/1.1\r\n"), "{seen}");
}

#[tokio::test]
async fn an_open_circuit_answers_after_the_rules_and_before_the_backend() {
    let site = EdgeFixture::start().await;
    let edge = site.edge("a.test").await;
    let gone = free_address();
    let breaker = json!({
        "tripped_duration": 600, "rolling_window": 600, "num_buckets": 1,
        "volume_threshold": 1, "error_threshold_percentage": 0.1,
    });
    let modules = json!({
        "backend": site.at(gone).await,
        "circuit_breaker": breaker,
        "policy": {
            "inbound": [rule("req.url.path == '/no'", "deny", json!({"status_code": 499}))],
            "outbound": [rule("res.status_code == 503", "add-headers", json!({"headers": {"x-open": "1"}}))],
        },
    });
    site.route(&edge, "/", modules).await;
    let get = async |path: &str| site.get("a.test", path).await;

    assert_eq!(status(&get("/no").await), "499");
    assert_eq!(status(&get("/").await), "502", "a denied request has not counted");
    let open = get("/").await;
    assert_eq!((status(&open), code(&open)), ("503", "3202"));
    assert_eq!(header(&open.0, "x-open"), Some("1"), "the rules for answers see it");
    assert_eq!(status(&get("/no").await), "499");
}

#[tokio::test]
async fn a_refused_webhook_passes_the_headers_and_the_rules_of_responses() {
    let site = EdgeFixture::start().await;
    let edge = site.edge("a.test").await;
    let webhook = json!({"provider": "gitlab", "secret": "right"});
    let headers = json!({"add": {"x-module": "yes"}});
    let backend = site.at(mirror().await).await;
    let outbound = [
        rule("res.status_code == 403", "add-headers", json!({"headers": {"x-rule": "yes"}})),
        rule("hasResHeader('x-module')", "add-headers", json!({"headers": {"x-last": "yes"}})),
    ];
    let alone =
        json!({"backend": backend, "webhook_verification": webhook, "response_headers": headers});
    let mut ruled = alone.clone();
    ruled["policy"] = json!({"outbound": outbound});
    let mut denied = ruled.clone();
    denied["webhook_verification"] = json!({"provider": "gitlab", "secret": "wrong"});
    denied["policy"]["inbound"] = json!([rule("true", "deny", json!({"status_code": 403}))]);
    site.route(&edge, "/alone", alone).await;
    site.route(&edge, "/ruled", ruled).await;
    site.route(&edge, "/denied", denied).await;

    for (path, number, rules) in
        [("/alone", "3204", None), ("/ruled", "3204", Some("yes")), ("/denied", "", Some("yes"))]
    {
        let answer = site.say(&request("me", "wrong", path)).await;
        assert_eq!((status(&answer), code(&answer)), ("403", number), "{path}");
        let of = |name| header(&answer.0, name);
        assert_eq!(
            (of("x-module"), of("x-rule"), of("x-last")),
            (Some("yes"), rules, rules),
            "{path}"
        );
    }
}

#[tokio::test]
async fn errors_of_the_gateway_pass_the_headers_of_responses() {
    let site = EdgeFixture::start().await;
    let edge = site.edge("a.test").await;
    let gone = free_address();
    let breaker = json!({
        "tripped_duration": 600, "rolling_window": 600, "num_buckets": 1,
        "volume_threshold": 1, "error_threshold_percentage": 0.1,
    });
    let alone = json!({
        "backend": site.at(gone).await,
        "circuit_breaker": breaker,
        "response_headers": {"add": {"x-module": "yes"}},
    });
    let mut ruled = alone.clone();
    ruled["policy"] =
        json!({"outbound": [rule("true", "add-headers", json!({"headers": {"x-rule": "yes"}}))]});
    site.route(&edge, "/alone", alone).await;
    site.route(&edge, "/ruled", ruled).await;

    for path in ["/alone", "/ruled"] {
        for expected in ["502", "503"] {
            let answer = site.get("a.test", path).await;
            assert_eq!(status(&answer), expected, "{path}");
            assert_eq!(header(&answer.0, "x-module"), Some("yes"), "{path} {expected}");
        }
    }
}
