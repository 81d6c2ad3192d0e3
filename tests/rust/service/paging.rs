//! Lists: newest first, page by page, whatever happens meanwhile.

use std::sync::Arc;

use serde_json::{Value, json};

use super::support::{Folder, Running};
use crate::engines::{Engine, on_each_engine};

on_each_engine!(
    paging_stays_right_while_others_insert,
    pages_are_newest_first_and_end_with_null,
    a_page_may_start_after_what_is_gone,
);

fn ids(page: &Value, field: &str) -> Vec<String> {
    let items = page[field].as_array().unwrap();
    items.iter().map(|item| item["id"].as_str().unwrap().to_owned()).collect()
}

async fn pages_are_newest_first_and_end_with_null(engine: Engine) {
    let service = Running::on(engine).await;
    let mut made = Vec::new();
    for _ in 0..6 {
        made.push(service.create("/ip_policies", json!({})).await);
    }
    made.reverse();

    let first = service.get("/ip_policies?limit=4").await;
    let next = first.text("next_page_uri");
    let second = service.get(next.strip_prefix(service.service.url()).unwrap()).await;
    let exact = service.get("/ip_policies?limit=6").await;

    let uri = format!("{}/ip_policies", service.service.url());
    assert_eq!(ids(&first.json, "ip_policies"), made[..4]);
    assert_eq!(next, format!("{uri}?before_id={}&limit=4", made[3]));
    assert_eq!(ids(&second.json, "ip_policies"), made[4..]);
    assert_eq!((second.text("uri"), &second.json["next_page_uri"]), (uri, &Value::Null));
    assert_eq!(exact.json["next_page_uri"], Value::Null);
}

async fn a_page_may_start_after_what_is_gone(engine: Engine) {
    let service = Running::on(engine).await;
    let first = service.create("/ip_policies", json!({})).await;
    let second = service.create("/ip_policies", json!({})).await;
    service.delete(&format!("/ip_policies/{second}")).await;

    let page = service.get(&format!("/ip_policies?before_id={second}")).await;

    assert_eq!(ids(&page.json, "ip_policies"), [first]);
}

async fn paging_stays_right_while_others_insert(engine: Engine) {
    let service = Arc::new(Running::on(engine).await);
    let mut before = Vec::new();
    for _ in 0..50 {
        before.push(service.create("/ip_policies", json!({})).await);
    }
    before.reverse();
    let others = tokio::spawn({
        let service = service.clone();
        async move {
            for _ in 0..100 {
                service.create("/ip_policies", json!({})).await;
            }
        }
    });

    let mut seen = Vec::new();
    let mut path = format!("/ip_policies?limit=7&before_id={}z", before[0]);
    loop {
        let page = service.get(&path).await;
        seen.extend(ids(&page.json, "ip_policies"));
        match page.json["next_page_uri"].as_str() {
            Some(next) => path = next.strip_prefix(service.service.url()).unwrap().to_owned(),
            None => break,
        }
    }
    others.await.unwrap();

    assert_eq!(seen, before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_writers_at_once_lose_nothing() {
    let folder = Folder::new();
    let service = Arc::new(Running::with(folder.options("db")).await);
    let writers: Vec<_> = (0..64)
        .map(|_| {
            let service = service.clone();
            tokio::spawn(async move {
                let mut made = Vec::new();
                for _ in 0..5 {
                    made.push(service.create("/backends/failover", json!({})).await);
                }
                assert!(made.is_sorted_by(|earlier, later| earlier < later));
                made
            })
        })
        .collect();

    let mut made = Vec::new();
    for writer in writers {
        made.extend(writer.await.unwrap());
    }
    made.sort_by(|a, b| b.cmp(a));
    let mut stored = Vec::new();
    let mut path = "/backends/failover".to_owned();
    while !path.is_empty() {
        let page = service.get(&path).await;
        stored.extend(ids(&page.json, "backends"));
        path = page.text("next_page_uri").replace(service.service.url(), "");
    }

    assert_eq!(stored, made);
}
