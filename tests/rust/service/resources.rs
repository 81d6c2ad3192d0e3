//! What resources remember, refer to and take with them.

use serde_json::{Value, json};

use super::support::{Folder, Running};
use crate::engines::{Engine, on_each_engine};

on_each_engine!(
    a_change_keeps_what_it_leaves_out_and_clears_what_is_empty,
    an_ip_policy_takes_its_rules_with_it_and_stays_referred_to,
    a_rule_shows_its_policy_and_frees_its_network,
    a_backend_can_be_deleted_once_nothing_refers_to_it,
    an_edge_takes_its_routes_and_hosts_with_it,
    a_module_is_replaced_as_a_whole_and_forgotten_without_complaint,
    a_policy_comes_back_as_it_was_given,
    a_backend_module_names_its_backend,
    defaults_are_shown,
    a_bot_takes_its_keys_with_it,
    changes_that_read_much_are_made,
    names_that_differ_in_a_byte_that_cannot_be_stored_are_one,
);

async fn route(service: &Running) -> (String, String) {
    let edge = service.create("/edges/https", json!({"hostports": ["a.example:443"]})).await;
    let path = format!("/edges/https/{edge}/routes");
    let id = service.create(&path, json!({"match_type": "path_prefix", "match": "/"})).await;
    (edge, format!("{path}/{id}"))
}

async fn a_change_keeps_what_it_leaves_out_and_clears_what_is_empty(engine: Engine) {
    let service = Running::on(engine).await;
    let child = service.create("/backends/http_response", json!({})).await;
    let body = json!({"description": "d", "metadata": "m", "backends": [child]});
    let path = format!("/backends/failover/{}", service.create("/backends/failover", body).await);

    let metadata = service.patch(&path, json!({"metadata": "n", "backends": null})).await;
    let nothing = service.patch(&path, json!({})).await;
    let cleared = service.patch(&path, json!({"description": "", "backends": []})).await;

    assert_eq!((metadata.status, &metadata.json["backends"]), (200, &json!([child])));
    assert_eq!(metadata.json["metadata"], "n");
    assert_eq!((nothing.status, &nothing.json), (200, &metadata.json));
    assert_eq!(cleared.json["description"], "");
    assert_eq!(cleared.json["backends"], json!([]));
    assert_eq!(cleared.json["metadata"], "n");
}

async fn an_ip_policy_takes_its_rules_with_it_and_stays_referred_to(engine: Engine) {
    let service = Running::on(engine).await;
    let policy = service.create("/ip_policies", json!({})).await;
    let rule = json!({"cidr": "10.0.0.0/8", "ip_policy_id": policy, "action": "allow"});
    let rule = service.create("/ip_policy_rules", rule).await;
    let (_, route) = route(&service).await;
    let restriction = format!("{route}/ip_restriction");
    service.put(&restriction, json!({"ip_policy_ids": [policy]})).await;

    let deleted = service.delete(&format!("/ip_policies/{policy}")).await;

    assert_eq!(deleted.status, 204);
    assert_eq!(service.get(&format!("/ip_policy_rules/{rule}")).await.status, 404);
    let kept = service.get(&restriction).await;
    assert_eq!(kept.json["ip_policies"][0]["id"], policy.as_str());
    assert_eq!(service.patch(&route, json!({"description": "still here"})).await.status, 200);
}

async fn a_rule_shows_its_policy_and_frees_its_network(engine: Engine) {
    let service = Running::on(engine).await;
    let policy = service.create("/ip_policies", json!({})).await;
    let body = json!({"cidr": "10.0.0.0/8", "ip_policy_id": policy, "action": "deny"});
    let made = service.post("/ip_policy_rules", body.clone()).await;
    let path = format!("/ip_policy_rules/{}", made.text("id"));

    let moved = service.patch(&path, json!({"cidr": "11.0.0.0/8"})).await;

    let uri = format!("{}/ip_policies/{policy}", service.service.url());
    assert_eq!(made.json["ip_policy"], json!({"id": policy, "uri": uri}));
    assert_eq!((moved.text("cidr"), moved.text("action")), ("11.0.0.0/8".into(), "deny".into()));
    assert_eq!(service.post("/ip_policy_rules", body).await.status, 201);
}

async fn a_backend_can_be_deleted_once_nothing_refers_to_it(engine: Engine) {
    let service = Running::on(engine).await;
    let backend = service.create("/backends/http_response", json!({})).await;
    let (_, route) = route(&service).await;
    service.put(&format!("{route}/backend"), json!({"backend_id": backend})).await;
    let path = format!("/backends/http_response/{backend}");

    let refused = service.delete(&path).await;
    let unset = service.delete(&format!("{route}/backend")).await;
    let deleted = service.delete(&path).await;

    assert_eq!((refused.status, refused.code()), (409, 6502));
    assert_eq!((unset.status, deleted.status), (204, 204));
}

async fn an_edge_takes_its_routes_and_hosts_with_it(engine: Engine) {
    let service = Running::on(engine).await;
    let backend = service.create("/backends/http_response", json!({})).await;
    let (edge, route) = route(&service).await;
    service.put(&format!("{route}/backend"), json!({"backend_id": backend})).await;
    let path = format!("/edges/https/{edge}");
    assert_eq!(service.get(&path).await.json["routes"].as_array().unwrap().len(), 1);
    assert_eq!(service.get("/edges/https").await.json["https_edges"][0]["routes"][0]["match"], "/");

    let deleted = service.delete(&path).await;

    assert_eq!(deleted.status, 204);
    assert_eq!(service.get(&route).await.status, 404);
    let again = service.post("/edges/https", json!({"hostports": ["A.EXAMPLE:443"]})).await;
    assert_eq!((again.status, &again.json["routes"]), (201, &json!([])));
    assert_eq!(service.delete(&format!("/backends/http_response/{backend}")).await.status, 204);
}

async fn a_module_is_replaced_as_a_whole_and_forgotten_without_complaint(engine: Engine) {
    let service = Running::on(engine).await;
    let (_, route) = route(&service).await;
    let path = format!("{route}/circuit_breaker");

    let first = service.put(&path, json!({"enabled": false, "num_buckets": 3})).await;
    let second = service.put(&path, json!({"volume_threshold": 5})).await;
    let shown = service.get(&route).await;
    let gone = [service.delete(&path).await.status, service.delete(&path).await.status];

    assert_eq!((first.status, &first.json["num_buckets"]), (200, &json!(3)));
    assert_eq!(second.json["enabled"], true);
    assert_eq!(second.json["num_buckets"], 10);
    assert_eq!(shown.json["circuit_breaker"], second.json);
    assert_eq!(gone, [204, 204]);
    assert_eq!(service.get(&path).await.status, 404);
    assert_eq!(service.get(&route).await.json["circuit_breaker"], Value::Null);
}

async fn a_policy_comes_back_as_it_was_given(engine: Engine) {
    let service = Running::on(engine).await;
    let edge = service.create("/edges/tcp", json!({})).await;
    let path = format!("/edges/tcp/{edge}/policy");
    let rule = json!({
        "name": "office",
        "expressions": ["conn.client_ip == '10.0.0.1'"],
        "actions": [{"type": "deny", "config": null}],
    });

    let put = service.put(&path, json!({"inbound": [rule]})).await;
    let empty = service.put(&path, json!({"outbound": []})).await;

    assert_eq!(put.status, 200, "{}", put.json);
    assert_eq!(put.json, json!({"enabled": true, "inbound": [rule], "outbound": null}));
    assert_eq!(empty.json, json!({"enabled": true, "inbound": null, "outbound": []}));
    assert_eq!(service.get(&format!("/edges/tcp/{edge}")).await.json["policy"], empty.json);
}

async fn a_backend_module_names_its_backend(engine: Engine) {
    let service = Running::on(engine).await;
    let backend = service.create("/backends/static", json!({"address": "localhost:80"})).await;
    let body = json!({"backend": {"backend_id": backend}});

    let edge = service.post("/edges/tcp", body).await;

    let uri = format!("{}/backends/static/{backend}", service.service.url());
    let backend = json!({"id": backend, "uri": uri});
    assert_eq!(edge.json["backend"], json!({"enabled": true, "backend": backend}));
    assert_eq!(edge.json["ip_restriction"], Value::Null);
}

async fn defaults_are_shown(engine: Engine) {
    let service = Running::on(engine).await;

    let response = service.post("/backends/http_response", json!({"headers": {"X-A": "1"}})).await;
    let group = service.post("/backends/tunnel_group", json!({"labels": {"a": "b"}})).await;
    let fixed = service.post("/backends/static", json!({"address": "[::1]:80"})).await;
    let bot = service.post("/bot_users", json!({"name": "ci"})).await;
    let credential = service.post("/credentials", json!({})).await;

    assert_eq!(response.json["status_code"], 200);
    assert_eq!(response.json["headers"], json!({"x-a": "1"}));
    assert_eq!((&group.json["tunnels"], &group.json["metadata"]), (&json!([]), &json!("")));
    let tls = json!({"enabled": false, "verify": true, "ca": "", "server_name": ""});
    assert_eq!(fixed.json["tls"], tls);
    assert_eq!(bot.json["active"], true);
    assert_eq!(credential.json["acl"], json!([]));
    assert_eq!(service.get("/tunnels").await.json["tunnels"], json!([]));
    assert_eq!(service.get("/tunnel_sessions").await.json["tunnel_sessions"], json!([]));
}

async fn a_bot_takes_its_keys_with_it(engine: Engine) {
    let service = Running::on(engine).await;
    let bot = service.create("/bot_users", json!({"name": "ci"})).await;
    let key = service.post("/api_keys", json!({"owner_id": bot})).await;
    let credential = service.create("/credentials", json!({"owner_id": bot})).await;
    let token = key.text("token");
    // What a bot makes belongs to the bot.
    let own = service.call_as(&token, reqwest::Method::POST, "/api_keys", Some(json!({}))).await;
    assert_eq!(own.text("owner_id"), bot);

    service.delete(&format!("/bot_users/{bot}")).await;

    let refused = service.call_as(&token, reqwest::Method::GET, "/api_keys", None).await;
    assert_eq!((refused.status, refused.code()), (403, 203));
    assert_eq!(service.get(&format!("/credentials/{credential}")).await.status, 404);
    assert_eq!(service.create("/bot_users", json!({"name": "ci"})).await.split('_').count(), 2);
}

#[tokio::test]
async fn a_restart_keeps_everything() {
    let folder = Folder::new();
    let mut service = Running::with(folder.options("db")).await;
    let key = service.key.clone();
    let (edge, route) = route(&service).await;
    service.put(&format!("{route}/compression"), json!({})).await;
    let path = format!("/edges/https/{edge}");
    let before = service.get(&path).await.json.to_string();
    let url = service.service.url().to_owned();
    service.stop().await;

    service = Running::with(folder.options("db")).await;
    service.key = key;

    let after = service.get(&path).await.json.to_string();
    assert_eq!(after.replace(service.service.url(), &url), before);
    let taken = service.post("/edges/https", json!({"hostports": ["a.example:443"]})).await;
    assert_eq!(taken.code(), 7122);
}

async fn changes_that_read_much_are_made(engine: Engine) {
    let service = Running::on(engine).await;
    let policy = service.create("/ip_policies", json!({})).await;
    for number in 0..150 {
        let cidr = format!("10.0.{number}.0/24");
        let rule = json!({"cidr": cidr, "ip_policy_id": policy, "action": "allow"});
        service.create("/ip_policy_rules", rule).await;
    }
    let hosts: Vec<_> = (0..100).map(|number| format!("h{number}.d{number}.example:443")).collect();

    let edge = service.post("/edges/https", json!({"hostports": hosts})).await;
    let deleted = service.delete(&format!("/ip_policies/{policy}")).await;

    assert_eq!((edge.status, deleted.status), (201, 204), "{}", edge.json);
    assert_eq!(service.get("/ip_policy_rules").await.json["ip_policy_rules"], json!([]));
    assert_eq!(edge.json["hostports"].as_array().unwrap().len(), 100);
}

async fn names_that_differ_in_a_byte_that_cannot_be_stored_are_one(engine: Engine) {
    let service = Running::on(engine).await;
    let name = json!({"name": "a\u{0}b"});
    let first = service.post("/bot_users", name.clone()).await;

    let second = service.post("/bot_users", name).await;

    assert_eq!((first.status, second.status), (201, 409), "{}", second.json);
}
