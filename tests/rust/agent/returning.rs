//! Visitors who come while an agent is lost for a moment: they wait for it, whatever they speak.

use std::time::{Duration, Instant};

use ginnel_agent::{Agent, AgentOptions};
use ginnel_service::{Options, Service};

use rcgen::ExtendedKeyUsagePurpose;
use reqwest::{Client, Method};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::support::{PATIENCE, message, mirror, online, options_of};
use super::tls::{Identity, visit};
use super::two_nodes::Wire;
use crate::service::support::{Folder, client, free_address};

/// How long the agent is away: longer than any of its pauses before it tries again.
const AWAY: Duration = Duration::from_millis(600);
/// How long nobody waits who need not.
const AT_ONCE: Duration = Duration::from_millis(1500);

/// A service with an agent, and a wire between them that can be cut.
struct Outage {
    service: Service,
    agent: Agent,
    wire: Wire,
    http: Client,
    local: u16,
}

impl Outage {
    async fn start() -> Self {
        let service = Service::start(Options::default()).await.unwrap();
        let wire = Wire::to(&[service.agent_address().unwrap()]).await;
        let server_addrs = vec![wire.address.into()];
        let agent = Agent::start(AgentOptions { server_addrs, ..options_of(&service) });
        let agent = agent.await.unwrap();
        online(&agent).await;
        Self { service, agent, wire, http: client(), local: mirror().await }
    }

    async fn tunnel(&self, mut definition: Value) -> String {
        definition["addr"] = definition["addr"].as_u64().unwrap_or(self.local.into()).into();
        let url = format!("{}/api/tunnels", self.agent.api_url().unwrap());
        let request = self.http.post(url).header("content-type", "application/json");
        let response = request.body(definition.to_string()).send().await.unwrap();
        let (status, text) = (response.status(), response.text().await.unwrap());
        assert_eq!(status.as_u16(), 201, "{text}");
        let made: Value = serde_json::from_str(&text).unwrap();
        made["public_url"].as_str().unwrap().to_owned()
    }

    async fn create(&self, path: &str, body: Value) -> Value {
        let url = format!("{}{path}", self.service.url());
        let request = self.http.request(Method::POST, url);
        let request = request.bearer_auth(self.service.api_key().unwrap().0.clone());
        let request = request.header("content-type", "application/json").body(body.to_string());
        serde_json::from_str(&request.send().await.unwrap().text().await.unwrap()).unwrap()
    }

    /// The module of a backend that has a tunnel with labels.
    async fn group(&self) -> Value {
        self.tunnel(json!({"name": "it", "labels": ["app=it"]})).await;
        self.backend().await
    }

    async fn backend(&self) -> Value {
        let group = json!({"labels": {"app": "it"}});
        json!({"backend_id": self.create("/backends/tunnel_group", group).await["id"]})
    }

    /// Loses the agent; it is back in a while.
    async fn lose(&self) {
        self.wire.cut();
        let losing = async {
            loop {
                let request = self.http.get(format!("{}/tunnel_sessions", self.service.url()));
                let request = request.bearer_auth(self.service.api_key().unwrap().0.clone());
                let listed = request.send().await.unwrap().text().await.unwrap();
                let listed: Value = serde_json::from_str(&listed).unwrap();
                if listed["tunnel_sessions"] == json!([]) {
                    return;
                }
                sleep(Duration::from_millis(10)).await;
            }
        };
        timeout(PATIENCE, losing).await.unwrap();
    }

    /// The same, and mends the wire later; visitors come meanwhile.
    async fn while_away<T>(&self, visit: impl Future<Output = T>) -> T {
        self.lose().await;
        let mending = async {
            sleep(AWAY).await;
            self.wire.mend();
        };
        timeout(PATIENCE, async { tokio::join!(visit, mending).0 }).await.unwrap()
    }

    fn http_address(&self) -> String {
        self.service.gateway().http_address().unwrap().to_string()
    }

    fn https_address(&self) -> String {
        self.service.gateway().https_address().unwrap().to_string()
    }
}

/// Sends a request over a connection without TLS; the response, which is empty where it is closed.
async fn ask(address: &str, method: &str, host: &str) -> String {
    let mut visitor = TcpStream::connect(address).await.unwrap();
    let request = format!("{method} / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    visitor.write_all(request.as_bytes()).await.unwrap();
    String::from_utf8(message(&mut visitor, &mut Vec::new()).await.unwrap_or_default()).unwrap()
}

async fn edge(outage: &Outage, kind: &str, hostport: &str, more: Value) -> Value {
    let mut fields = json!({"hostports": [hostport]});
    fields.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let made = outage.create(&format!("/edges/{kind}"), fields).await;
    assert!(made["id"].is_string(), "{made}");
    made["id"].clone()
}

async fn https_edge(outage: &Outage, backend: Value) {
    let id = edge(outage, "https", "shop.test:80", json!({})).await;
    let route = json!({"match_type": "path_prefix", "match": "/", "backend": backend});
    outage.create(&format!("/edges/https/{}/routes", id.as_str().unwrap()), route).await;
}

#[tokio::test]
async fn a_request_waits_for_the_tunnel_of_its_edge() {
    let outage = Outage::start().await;
    https_edge(&outage, outage.group().await).await;
    let address = outage.http_address();

    // A request that must not be sent twice waits as well: it was not sent yet.
    let answer = outage.while_away(ask(&address, "DELETE", "shop.test")).await;

    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    assert!(answer.contains("DELETE / HTTP/1.1"), "{answer}");
}

#[tokio::test]
async fn a_request_waits_for_the_agent_of_an_endpoint() {
    let outage = Outage::start().await;
    let url = outage.tunnel(json!({"name": "web", "proto": "http", "schemes": ["http"]})).await;
    let address = url.strip_prefix("http://").unwrap();

    let answer = outage.while_away(ask(address, "GET", address)).await;

    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
}

#[tokio::test]
async fn a_connection_waits_for_the_agent_of_a_tcp_tunnel() {
    let outage = Outage::start().await;
    let url = outage.tunnel(json!({"name": "tcp", "proto": "tcp"})).await;
    let address = url.strip_prefix("tcp://").unwrap();

    let answer = outage.while_away(ask(address, "GET", "bytes.test")).await;

    assert!(answer.contains("Host: bytes.test\r\n"), "{answer}");
}

#[tokio::test]
async fn a_connection_waits_for_the_agent_of_a_tls_tunnel() {
    let (folder, outage) = (Folder::new(), Outage::start().await);
    let own = Identity::new(&folder, "shop.test", ExtendedKeyUsagePurpose::ServerAuth);
    let [crt, key] = &own.files;
    let definition = json!({"name": "tls", "proto": "tls", "crt": crt, "key": key});
    let url = outage.tunnel(definition).await;
    let place = url.strip_prefix("tls://").unwrap();

    let answer = outage.while_away(visit(place, &own.certificate, None, true)).await.unwrap();

    assert!(answer.contains("GET /secret HTTP/1.1\r\n"), "{answer}");
}

#[tokio::test]
async fn a_connection_waits_for_the_tunnel_of_its_tcp_edge() {
    let outage = Outage::start().await;
    let place = free_address().to_string();
    let backend = outage.group().await;
    edge(&outage, "tcp", &place, json!({"backend": backend})).await;

    let answer = outage.while_away(ask(&place, "GET", "bytes.test")).await;

    assert!(answer.contains("Host: bytes.test\r\n"), "{answer}");
}

#[tokio::test]
async fn a_connection_waits_for_the_tunnel_of_its_tls_edge() {
    let outage = Outage::start().await;
    let backend = outage.group().await;
    let ending = json!({"terminate_at": "edge"});
    let more = json!({"backend": backend, "tls_termination": ending});
    edge(&outage, "tls", "shop.test:443", more).await;
    let (place, gateway) = (outage.https_address(), outage.service.gateway());

    let visit = visit(&place, gateway.authority().pem(), None, true);
    let answer = outage.while_away(visit).await.unwrap();

    assert!(answer.contains("GET /secret HTTP/1.1\r\n"), "{answer}");
}

#[tokio::test]
async fn tls_that_goes_through_waits_as_well() {
    let (folder, outage) = (Folder::new(), Outage::start().await);
    let own = Identity::new(&folder, "shop.test", ExtendedKeyUsagePurpose::ServerAuth);
    let [crt, key] = &own.files;
    outage.tunnel(json!({"name": "it", "labels": ["app=it"], "crt": crt, "key": key})).await;
    let backend = outage.backend().await;
    edge(&outage, "tls", "shop.test:443", json!({"backend": backend})).await;
    let place = outage.https_address();

    let answer = outage.while_away(visit(&place, &own.certificate, None, true)).await.unwrap();

    assert!(answer.contains("GET /secret HTTP/1.1\r\n"), "{answer}");
}

#[tokio::test]
async fn nobody_waits_where_another_backend_is_there() {
    let outage = Outage::start().await;
    let group = outage.group().await["backend_id"].clone();
    let other = json!({"address": format!("127.0.0.1:{}", outage.local)});
    let other = outage.create("/backends/static", other).await["id"].clone();
    let failover = json!({"backends": [group, other]});
    let failover = outage.create("/backends/failover", failover).await["id"].clone();
    https_edge(&outage, json!({"backend_id": failover})).await;
    outage.lose().await;

    let began = Instant::now();
    let answer = ask(&outage.http_address(), "GET", "shop.test").await;

    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    assert!(began.elapsed() < AT_ONCE, "{:?}", began.elapsed());
}

#[tokio::test]
async fn nobody_waits_for_a_tunnel_that_was_stopped_or_never_was() {
    let outage = Outage::start().await;
    https_edge(&outage, outage.group().await).await;
    let tcp = outage.tunnel(json!({"name": "tcp", "proto": "tcp"})).await;
    let web = json!({"name": "web", "proto": "http", "schemes": ["http"]});
    let web = outage.tunnel(web).await;
    for name in ["it", "tcp", "web"] {
        assert!(outage.agent.stop_tunnel(name).await);
    }

    let began = Instant::now();
    let answer = ask(&outage.http_address(), "GET", "shop.test").await;

    assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
    assert!(began.elapsed() < AT_ONCE, "{:?}", began.elapsed());
    for url in [tcp, web] {
        let place = url.split_once("://").unwrap().1;
        assert!(TcpStream::connect(place).await.is_err(), "{url}");
    }
}

#[tokio::test]
async fn nobody_waits_for_ever() {
    let outage = Outage::start().await;
    https_edge(&outage, outage.group().await).await;
    let url = outage.tunnel(json!({"name": "tcp", "proto": "tcp"})).await;
    let place = url.strip_prefix("tcp://").unwrap().to_owned();
    outage.lose().await;

    let began = Instant::now();
    let (answer, closed) = tokio::join!(
        async { ask(&outage.http_address(), "GET", "shop.test").await },
        ask(&place, "GET", "bytes.test")
    );
    let took = began.elapsed();
    assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
    assert_eq!(closed, "");
    assert!(took > AT_ONCE && took < Duration::from_secs(8), "{took:?}");

    let began = Instant::now();
    assert!(ask(&outage.http_address(), "GET", "shop.test").await.starts_with("HTTP/1.1 503 "));
    assert!(began.elapsed() < AT_ONCE, "the agent has been away for too long to be waited for");
}

#[tokio::test]
async fn a_visitor_who_leaves_does_not_reach_the_agent_that_returns() {
    let outage = Outage::start().await;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let url = outage.tunnel(json!({"name": "tcp", "proto": "tcp", "addr": port})).await;
    let place = url.strip_prefix("tcp://").unwrap().to_owned();
    let reached: JoinHandle<_> = tokio::spawn(async move { listener.accept().await.map(drop) });

    let leave = async {
        let visitor = TcpStream::connect(&place).await.unwrap();
        sleep(Duration::from_millis(100)).await;
        // Without a goodbye, as programs do that are killed with something unread.
        visitor.set_zero_linger().unwrap();
        drop(visitor);
    };
    outage.while_away(leave).await;
    online(&outage.agent).await;
    sleep(Duration::from_millis(300)).await;

    assert!(!reached.is_finished());
    reached.abort();
}

/// A policy that leads to an internal endpoint.
fn forward_internal(url: &str) -> Value {
    let action = json!({"type": "forward-internal", "config": {"url": url}});
    json!([{"actions": [action]}])
}

#[tokio::test]
async fn a_request_waits_for_the_agent_of_the_internal_endpoint_it_is_forwarded_to() {
    let outage = Outage::start().await;
    let internal =
        json!({"name": "in", "proto": "http", "schemes": ["http"], "domain": "in.internal"});
    outage.tunnel(internal).await;
    let rules = forward_internal("http://in.internal");
    let policy = json!({"on_http_request": rules}).to_string();
    let cloud = json!({"url": "http://front.test", "traffic_policy": policy});
    let made = outage.create("/endpoints", cloud).await;
    assert!(made["id"].is_string(), "{made}");
    let address = outage.http_address();

    let answer = outage.while_away(ask(&address, "POST", "front.test")).await;

    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
}

#[tokio::test]
async fn a_connection_waits_for_the_agent_of_the_internal_endpoint_it_is_forwarded_to() {
    let outage = Outage::start().await;
    let internal = json!({"name": "in", "proto": "tcp", "remote_addr": "in.internal:5432"});
    outage.tunnel(internal).await;
    let place = free_address().to_string();
    let id = edge(&outage, "tcp", &place, json!({})).await;
    let rules = json!({"inbound": forward_internal("tcp://in.internal:5432")});
    let path = format!("/edges/tcp/{}/policy", id.as_str().unwrap());
    let url = format!("{}{path}", outage.service.url());
    let request = outage.http.put(url).bearer_auth(outage.service.api_key().unwrap().0.clone());
    let request = request.header("content-type", "application/json").body(rules.to_string());
    assert_eq!(request.send().await.unwrap().status().as_u16(), 200);

    let answer = outage.while_away(ask(&place, "GET", "bytes.test")).await;

    assert!(answer.contains("Host: bytes.test\r\n"), "{answer}");
}
