//! The audit trail: every call that changes something, or was to.

use std::time::{Duration, Instant};

use ginnel_api::Origin;
use ginnel_gateway::GatewaySettings;
use ginnel_service::{AuditSettings, Options, new_admin_key};
use ginnel_store::{DatabaseLocation, EventQuery, Store, StoreError, StoredEvent};

use reqwest::Method;
use serde_json::{Value, json};

use super::support::{Folder, Running};
use crate::engines::{Engine, on_each_engine};

on_each_engine!(
    a_change_has_an_event_that_says_who_from_where_and_what,
    an_event_names_all_that_a_change_took_with_it,
    what_is_refused_has_an_event_with_its_code,
    a_call_that_only_reads_has_no_event,
    events_hold_no_secrets_and_no_bodies,
    pages_keep_the_question,
    only_admins_read_events,
);

async fn events(service: &Running, query: &str) -> Vec<Value> {
    let page = service.get(&format!("/audit_events{query}")).await;
    assert_eq!(page.status, 200, "{}", page.json);
    page.json["audit_events"].as_array().unwrap().clone()
}

/// The events that a question leads to, once there are as many: those of refused calls come later.
async fn awaited(service: &Running, query: &str, number: usize) -> Vec<Value> {
    for _ in 0..400 {
        let found = events(service, query).await;
        if found.len() >= number {
            return found;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("{query} has only {:#?}", events(service, query).await);
}

fn operations(events: &[Value]) -> Vec<&str> {
    events.iter().map(|event| event["operation"].as_str().unwrap()).collect()
}

async fn a_change_has_an_event_that_says_who_from_where_and_what(engine: Engine) {
    let service = Running::on(engine).await;
    let made = service.post("/ip_policies", json!({"description": "office"})).await;
    let key = service.get("/api_keys").await.json["keys"][0].clone();

    let [event] = &events(&service, "").await[..] else { panic!("one change, one event") };

    let id = event["id"].as_str().unwrap();
    assert!(id.starts_with("aev_"), "{id}");
    assert_eq!(event["uri"], format!("{}/audit_events/{id}", service.service.url()));
    assert_eq!(event["operation"], "ip_policies.create");
    assert_eq!(event["operation_id"], made.headers["x-request-id"].to_str().unwrap());
    assert_eq!((&event["key_id"], &event["owner_id"]), (&key["id"], &key["owner_id"]));
    assert_eq!((&event["admin"], &event["address"]), (&json!(true), &json!("127.0.0.1")));
    assert_eq!(event["resource_ids"], json!([made.text("id")]));
    assert_eq!((&event["outcome"], &event["status_code"]), (&json!("success"), &json!(201)));
    assert_eq!(event["created_at"], made.json["created_at"]);
    assert_eq!(service.get(&format!("/audit_events/{id}")).await.json, *event);
}

async fn an_event_names_all_that_a_change_took_with_it(engine: Engine) {
    let service = Running::on(engine).await;
    let policy = service.create("/ip_policies", json!({})).await;
    let rule = json!({"cidr": "192.0.2.0/24", "ip_policy_id": policy, "action": "allow"});
    let rule = service.create("/ip_policy_rules", rule).await;

    service.delete(&format!("/ip_policies/{policy}")).await;

    let events = events(&service, &format!("?resource_id={rule}")).await;
    assert_eq!(operations(&events), ["ip_policies.delete", "ip_policy_rules.create"]);
    assert_eq!(events[0]["resource_ids"], json!([policy, rule]));
}

async fn what_is_refused_has_an_event_with_its_code(engine: Engine) {
    let service = Running::on(engine).await;
    let policy = service.create("/ip_policies", json!({})).await;

    let gone = format!("ipp_{}", "0".repeat(27));
    service.delete(&format!("/ip_policies/{gone}")).await;
    service.patch(&format!("/ip_policies/{policy}"), json!({"wrong": 1})).await;
    service.call_as("nonsense", Method::POST, "/ip_policies", Some(json!({}))).await;

    let refused = awaited(&service, "", 4).await;
    let find = |operation: &str, status: i64| {
        let found = refused
            .iter()
            .find(|event| event["operation"] == operation && event["status_code"] == status);
        found.unwrap_or_else(|| panic!("{operation} {status}: {refused:#?}")).clone()
    };
    let deleted = find("ip_policies.delete", 404);
    assert_eq!(
        (&deleted["outcome"], &deleted["resource_ids"]),
        (&json!("refused"), &json!([gone]))
    );
    assert_eq!(deleted["error_code"], Value::Null);
    let changed = find("ip_policies.update", 400);
    assert_eq!(changed["error_code"], "ERR_NGROK_214");
    assert_eq!(changed["resource_ids"], json!([policy]));
    let anonymous = find("ip_policies.create", 403);
    assert_eq!((&anonymous["key_id"], &anonymous["admin"]), (&Value::Null, &Value::Null));
    assert_eq!(anonymous["address"], "127.0.0.1");
}

async fn a_call_that_only_reads_has_no_event(engine: Engine) {
    let service = Running::on(engine).await;

    service.get("/ip_policies").await;
    service.get("/ip_policies/ipp_none").await;
    service.create("/ip_policies", json!({})).await;
    tokio::time::sleep(Duration::from_millis(1500)).await;

    assert_eq!(operations(&awaited(&service, "", 1).await), ["ip_policies.create"]);
}

async fn events_hold_no_secrets_and_no_bodies(engine: Engine) {
    let service = Running::on(engine).await;
    let body = json!({"description": "very-private", "metadata": "very-private"});
    let key = service.post("/api_keys", body.clone()).await;
    let credential = service.post("/credentials", body.clone()).await;
    let token = key.text("token");
    service.delete(&format!("/api_keys/{token}")).await;
    service.call_as("very-private", Method::POST, "/api_keys?token=very-private", Some(body)).await;

    let found = awaited(&service, "", 4).await;

    let text = json!(found).to_string();
    for secret in [&service.key, &token, &credential.text("token"), "very-private"] {
        assert!(!text.contains(secret), "{secret}: {text}");
    }
}

#[tokio::test]
async fn events_are_found_by_operation_principal_resource_and_time() {
    let origin = Origin::from_seed(7, std::time::UNIX_EPOCH + Duration::from_secs(1_800_000_000));
    let service = Running::with(Options { origin, ..Options::default() }).await;
    let first = service.create("/ip_policies", json!({})).await;
    service.service.advance_clock(Duration::from_secs(60));
    let second = service.create("/ip_policies", json!({})).await;
    service.create("/api_keys", json!({})).await;
    service.service.advance_clock(Duration::from_secs(60));
    service.delete(&format!("/ip_policies/{first}")).await;
    let all = events(&service, "").await;
    let owner = all[0]["owner_id"].as_str().unwrap();
    let key = all[0]["key_id"].as_str().unwrap();

    let of = async |query: &str| {
        let found = events(&service, query).await;
        operations(&found).into_iter().map(ToOwned::to_owned).collect::<Vec<_>>()
    };
    let [create, keys, delete] = ["ip_policies.create", "api_keys.create", "ip_policies.delete"];

    assert_eq!(operations(&all), [delete, keys, create, create]);
    assert_eq!(of(&format!("?operation={create}")).await, [create, create]);
    assert_eq!(of(&format!("?principal={owner}")).await.len(), 4);
    assert_eq!(of(&format!("?principal={key}&operation={keys}")).await, [keys]);
    assert_eq!(of("?principal=ak_other").await, [""; 0]);
    assert_eq!(of(&format!("?resource_id={first}")).await, [delete, create]);
    assert_eq!(of(&format!("?resource_id={second}&operation={delete}")).await, [""; 0]);
    assert_eq!(of("?created_after=2027-01-15T08:01:00Z").await, [delete, keys, create]);
    assert_eq!(of("?created_before=2027-01-15T08:01:00Z").await, [create]);
    let hour_ahead =
        "?created_after=2027-01-15T09:01:00%2B01:00&created_before=2027-01-15T08:02:00Z";
    assert_eq!(of(hour_ahead).await, [keys, create]);
    assert_eq!(
        of(&format!("?resource_id={first}&created_after=2027-01-15T08:01:00Z")).await,
        [delete]
    );
    let refused = service.get("/audit_events?created_after=yesterday").await;
    assert_eq!((refused.status, refused.code()), (400, 215));
}

async fn pages_keep_the_question(engine: Engine) {
    let service = Running::on(engine).await;
    let mut made = Vec::new();
    for _ in 0..5 {
        made.push(service.create("/ip_policies", json!({})).await);
        service.create("/api_keys", json!({})).await;
    }
    made.reverse();

    let mut path = "/audit_events?limit=2&operation=ip_policies.create".to_owned();
    let mut seen = Vec::new();
    loop {
        let page = service.get(&path).await;
        let events = page.json["audit_events"].as_array().unwrap().clone();
        assert!(events.len() <= 2);
        let ids = events.iter().map(|event| event["resource_ids"][0].as_str().unwrap().to_owned());
        seen.extend(ids);
        match page.json["next_page_uri"].as_str() {
            Some(next) => path = next.strip_prefix(service.service.url()).unwrap().to_owned(),
            None => break,
        }
    }

    assert_eq!(seen, made);
}

async fn only_admins_read_events(engine: Engine) {
    let service = Running::on(engine).await;
    let bot = service.create("/bot_users", json!({"name": "robot"})).await;
    let key = service.post("/api_keys", json!({"owner_id": bot})).await.text("token");

    for path in ["/audit_events", "/audit_events/aev_1"] {
        let refused = service.call_as(&key, Method::GET, path, None).await;
        assert_eq!((refused.status, refused.code()), (403, 9730));
    }
    service.call_as(&key, Method::POST, "/ip_policies", Some(json!({}))).await;
    let by_bot = events(&service, &format!("?principal={bot}")).await;
    assert_eq!(
        (operations(&by_bot), &by_bot[0]["admin"]),
        (vec!["ip_policies.create"], &json!(false))
    );
}

#[tokio::test]
async fn the_word_of_a_trusted_proxy_is_taken_for_the_address() {
    let untrusting = Running::start().await;
    let trusted_proxies = ginnel_service::TrustedProxies::parse(["127.0.0.0/8"]).unwrap();
    let gateway = GatewaySettings { trusted_proxies, ..GatewaySettings::default() };
    let trusting = Running::with(Options { gateway, ..Options::default() }).await;

    for (service, address) in [(&untrusting, "127.0.0.1"), (&trusting, "192.0.2.9")] {
        let request =
            super::support::client().post(format!("{}/ip_policies", service.service.url()));
        let request = request.bearer_auth(&service.key).header("x-forwarded-for", "192.0.2.9");
        let sent = request.header("content-type", "application/json").body("{}").send().await;
        assert_eq!(sent.unwrap().status(), 201);
        assert_eq!(events(service, "").await[0]["address"], address);
    }
}

#[tokio::test]
async fn events_outlive_a_restart_and_stay_in_order() {
    let folder = Folder::new();
    let service = Running::with(folder.options("db")).await;
    let key = service.key.clone();
    service.create("/ip_policies", json!({})).await;
    service.delete("/ip_policies/ipp_none").await;
    service.stop().await;
    new_admin_key(&DatabaseLocation::File(folder.file("db")), None).await.unwrap();

    let mut service = Running::with(folder.options("db")).await;
    service.key = key;
    service.create("/bot_users", json!({"name": "robot"})).await;

    let events = events(&service, "").await;
    let expected =
        ["bot_users.create", "admin_key.new", "ip_policies.delete", "ip_policies.create"];
    assert_eq!(operations(&events), expected);
    let ids: Vec<_> = events.iter().map(|event| event["id"].as_str().unwrap()).collect();
    assert!(ids.is_sorted_by(|newer, older| newer > older), "{ids:?}");
    let made = events[1]["resource_ids"][0].as_str().unwrap();
    assert!(made.starts_with("ak_"), "{made}");
}

#[tokio::test]
async fn old_events_are_removed() {
    let retention = Duration::from_secs(10);
    let audit = AuditSettings { retention };
    let service = Running::with(Options { audit, ..Options::default() }).await;
    let policy = service.create("/ip_policies", json!({})).await;
    assert_eq!(events(&service, "").await.len(), 1);

    let began = Instant::now();
    while !events(&service, "").await.is_empty() {
        assert!(began.elapsed() < Duration::from_secs(60), "they are removed");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }

    assert_eq!(events(&service, "").await, [""; 0]);
    assert_eq!(events(&service, &format!("?resource_id={policy}")).await, [""; 0]);
    assert_eq!(service.get(&format!("/ip_policies/{policy}")).await.status, 200);
}

fn event(number: i64) -> StoredEvent {
    let id = format!("aev_{number:03}");
    StoredEvent { body: id.clone(), id, at: number / 2, terms: vec!["even".to_owned()] }
}

#[tokio::test]
async fn events_are_removed_a_few_at_a_time_the_oldest_first() {
    let store = Store::open(None).unwrap();
    for number in 0..10 {
        let appended = store.write(move |change| change.append_event(&event(number))).await;
        appended.unwrap();
    }

    let pruned =
        |most| store.write(move |change| change.prune_events(4, most, |_| vec!["even".to_owned()]));
    assert_eq!(pruned(3).await.unwrap(), 3);
    assert_eq!(pruned(100).await.unwrap(), 5);
    assert_eq!(pruned(100).await.unwrap(), 0);

    let left = |terms: &[&str]| {
        let terms = terms.iter().map(|term| (*term).to_owned()).collect();
        let query = EventQuery { terms, limit: 100, ..EventQuery::default() };
        store.read_blocking(|view| view.audit_events(&query)).unwrap()
    };
    assert_eq!(left(&[]), ["aev_009", "aev_008"]);
    assert_eq!(left(&["even"]), ["aev_009", "aev_008"]);
}

#[tokio::test]
async fn a_change_that_is_undone_leaves_no_event() {
    let store = Store::open(None).unwrap();

    let failed = store.write(|change| {
        change.append_event(&event(1))?;
        Err::<(), _>(StoreError::Panicked)
    });

    assert!(failed.await.is_err());
    assert_eq!(store.read_blocking(|view| view.audit_event("aev_001")).unwrap(), None);
}
