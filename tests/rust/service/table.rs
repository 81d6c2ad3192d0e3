//! The service and the table of operations.

use std::collections::BTreeMap;

use ginnel_api::{Kind, encode_arguments, remote};
use ginnel_service::{decode_arguments, handlers};

use reqwest::Method;
use serde_json::{Map, Value, json};

use super::support::Running;
use crate::engines::{Engine, on_each_engine};

on_each_engine!(
    every_operation_asks_who_calls,
    a_trailing_slash_makes_no_difference,
    the_root_names_all_lists,
);

/// A value of each kind.
fn sample(kind: &Kind) -> Value {
    match kind {
        Kind::Text { .. } | Kind::TextOrNumber | Kind::Secret => json!("a/b c?é%&"),
        Kind::Time => json!("2026-01-02T03:04:05Z"),
        Kind::Bytes => json!("AAEC"),
        Kind::Bool => json!(false),
        Kind::Integer => json!(7),
        Kind::Number => json!(0.5),
        Kind::Json => json!([1, null]),
        Kind::Object => json!({"a": {"b": null}}),
        Kind::List(item) => json!([sample(item), sample(item)]),
        Kind::Map(item) => json!({"k": sample(item)}),
        Kind::Record(shape) => {
            shape.fields.iter().map(|f| (f.name.to_owned(), sample(&f.kind))).collect()
        }
    }
}

#[test]
fn every_operation_has_one_handler() {
    let mut handlers: BTreeMap<_, usize> = BTreeMap::new();
    for info in handlers::handled_operations() {
        *handlers.entry((info.resource, info.name)).or_default() += 1;
    }

    for info in remote::operations() {
        let number = handlers.remove(&(info.resource, info.name));
        assert_eq!(number, Some(1), "{}.{}", info.resource, info.name);
    }

    assert!(handlers.is_empty(), "{handlers:?}");
}

#[test]
fn what_is_encoded_is_decoded_to_itself() {
    for info in remote::operations() {
        let all: Map<String, Value> =
            info.parameters.iter().map(|p| (p.name.to_owned(), sample(&p.kind))).collect();
        let required = all.clone().into_iter().filter(|(name, _)| {
            // A change of nothing is refused.
            name == "description" || info.parameters.iter().any(|p| p.name == name && p.required)
        });

        for arguments in [required.collect(), all] {
            let call = encode_arguments(info, arguments.clone()).unwrap();
            let (path, query) = match call.target.split_once('?') {
                Some((path, query)) => (path, Some(query)),
                None => (call.target.as_str(), None),
            };
            let decoded = decode_arguments(info, path, query, call.body.as_deref());
            assert_eq!(decoded, Ok(arguments), "{}.{}", info.resource, info.name);
        }
    }
}

async fn every_operation_asks_who_calls(engine: Engine) {
    let service = Running::on(engine).await;

    for info in remote::operations() {
        let method: Method = info.method.as_str().parse().unwrap();
        let path = info.path.replace("{id}", "x").replace("{edge_id}", "y");
        let refused = service.call_as("", method, &path, None).await;
        assert_eq!((refused.status, refused.code()), (403, 201), "{} {path}", info.name);
    }
}

async fn a_trailing_slash_makes_no_difference(engine: Engine) {
    let service = Running::on(engine).await;
    let id = service.create("/api_keys/", json!({})).await;

    assert_eq!(service.get("/api_keys/").await.status, 200);
    assert_eq!(service.get(&format!("/api_keys/{id}/")).await.text("id"), id);
    assert_eq!(service.get("/api_keys//").await.status, 404);
}

async fn the_root_names_all_lists(engine: Engine) {
    let service = Running::on(engine).await;

    let root = service.get("/").await;

    assert_eq!(root.status, 200);
    for (name, uri) in root.json.as_object().unwrap() {
        let path = uri.as_str().unwrap().strip_prefix(service.service.url()).unwrap();
        assert_eq!(service.get(path).await.status, 200, "{name}");
    }
    assert_eq!(root.json.as_object().unwrap().len(), 31);
    assert_eq!(service.call_as("", Method::GET, "/", None).await.status, 403);
}

#[tokio::test]
async fn a_browser_is_shown_a_page_and_a_program_its_json() {
    let service = Running::start().await;
    let browser = "text/html,application/xhtml+xml;q=0.9,*/*;q=0.8";
    let visit = |accept: &'static str, key: Option<&str>| {
        let request =
            service.http.get(format!("{}/", service.service.url())).header("accept", accept);
        key.map_or(request.try_clone().unwrap(), |key| request.bearer_auth(key)).send()
    };

    let page = visit(browser, None).await.unwrap();
    assert_eq!(page.status(), 200);
    let policy = page.headers()["content-security-policy"].to_str().unwrap().to_owned();
    assert!(policy.starts_with("default-src 'none'"), "{policy}");
    assert!(page.headers().contains_key("x-request-id"));
    let text = page.text().await.unwrap();
    assert!(
        text.contains(env!("CARGO_PKG_VERSION")) && text.contains(service.service.url()),
        "{text}"
    );
    assert!(!text.contains(&service.key), "{text}");

    let lists = visit(browser, Some(&service.key)).await.unwrap();
    assert_eq!(lists.headers()["content-type"], "application/json");
    assert_eq!(visit("*/*", None).await.unwrap().status(), 403);
}
