//! Internal endpoints that carry bytes: policies lead TCP edges there.

use ginnel_api::EndpointOptions;
use ginnel_gateway::{EndpointSpec, Proto, PublicEndpoint};

use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;

use super::configured::{EdgeFixture, code, status};
use super::support::{Direct, Peer, document, mirror, options_of, upstream};
use crate::service::support::free_address;

/// An upstream that says its name and what it has heard.
async fn named(name: &'static str) -> std::net::SocketAddr {
    upstream(move |mut peer| async move {
        let heard = peer.rest().await;
        peer.say(&format!("{name} heard {heard}")).await;
    })
    .await
}

fn forward(url: &str, on_error: &str) -> Value {
    let config = json!({"url": url, "on_error": on_error});
    json!([{"actions": [{"type": "forward-internal", "config": config}]}])
}

/// A TCP edge, and what its visitors hear.
struct Edge {
    site: EdgeFixture,
    port: u16,
    path: String,
}

impl Edge {
    async fn start() -> Self {
        let site = EdgeFixture::start().await;
        let port = free_address().port();
        let hostports = json!([format!("a.test:{port}")]);
        let backend = site.at(named("public").await).await;
        let edge = json!({"hostports": hostports, "backend": backend});
        let id = site.service.create("/edges/tcp", edge).await;
        Self { site, port, path: format!("/edges/tcp/{id}/policy") }
    }

    /// What a visitor hears when the rules are these.
    async fn hear(&self, rules: Value) -> String {
        let put = self.site.service.put(&self.path, json!({"inbound": rules})).await;
        assert_eq!(put.status, 200, "{}", put.json);
        let mut visitor = Peer::at(&format!("127.0.0.1:{}", self.port)).await;
        visitor.say("hello").await;
        // It may have been closed already.
        let _ = visitor.0.shutdown().await;
        visitor.rest().await
    }

    async fn bind(&self, proto: Proto, name: &str, options: EndpointOptions) -> PublicEndpoint {
        let (host, addr) = match proto {
            Proto::Tcp => (None, Some(name.to_owned())),
            _ => (Some(name.to_owned()), None),
        };
        let wanted = EndpointSpec { host, addr, options, ..EndpointSpec::any(proto) };
        let target = Direct::to(named("internal").await);
        self.site.service.service.gateway().bind_endpoint(wanted, target).await.unwrap()
    }
}

fn policy(rules: Value) -> EndpointOptions {
    let policy = json!({"on_tcp_connect": rules}).to_string();
    EndpointOptions { traffic_policy: Some(document(&policy)), ..EndpointOptions::default() }
}

#[tokio::test]
async fn a_policy_leads_a_connection_to_an_internal_endpoint() {
    let edge = Edge::start().await;
    let plain = EndpointOptions::default;
    let tcp = edge.bind(Proto::Tcp, "db.internal:5432", plain()).await;
    let tls = edge.bind(Proto::Tls, "web.internal", plain()).await;

    assert_eq!((tcp.url(), tls.url()), ("tcp://db.internal:5432", "tls://web.internal"));
    assert_eq!((tcp.address(), tls.address()), (None, None), "nobody else reaches them");
    for url in ["tcp://db.internal:5432", "tcp://DB.internal:5432", "tls://web.internal"] {
        assert_eq!(edge.hear(forward(url, "halt")).await, "internal heard hello", "{url}");
    }
    let edges = edge.site.service.service.gateway();
    let again =
        EndpointSpec { addr: Some("db.internal:5432".into()), ..EndpointSpec::any(Proto::Tcp) };
    let taken = edges.bind_endpoint(again.clone(), Direct::to(named("second").await)).await;
    assert_eq!(taken.err().unwrap().code(), 334);
    drop(tcp);
    let _second = edges.bind_endpoint(again, Direct::to(named("second").await)).await.unwrap();
    let heard = edge.hear(forward("tcp://db.internal:5432", "halt")).await;
    assert_eq!(heard, "second heard hello");
}

#[tokio::test]
async fn nobody_inside_ends_the_connection_unless_it_may_go_on() {
    let edge = Edge::start().await;
    let db = edge.bind(Proto::Tcp, "db.internal:5432", EndpointOptions::default()).await;
    let _http = edge.bind(Proto::Http, "site.internal", EndpointOptions::default()).await;

    for url in ["tcp://gone.internal:1", "tcp://db.internal:1", "tls://site.internal"] {
        assert_eq!(edge.hear(forward(url, "halt")).await, "", "{url}");
        assert_eq!(edge.hear(forward(url, "continue")).await, "public heard hello", "{url}");
    }
    db.retarget(None);
    let offline = edge.hear(forward("tcp://db.internal:5432", "continue")).await;
    assert_eq!(offline, "public heard hello");
}

#[tokio::test]
async fn rules_inside_hold_as_well() {
    let edge = Edge::start().await;
    let restricted = options_of(json!({"IPRestriction": {"allow_cidrs": ["192.0.2.0/24"]}}));
    let denied = policy(json!([{"actions": [{"type": "deny"}]}]));
    let _denied = edge.bind(Proto::Tcp, "denied.internal:1", denied).await;
    let _restricted = edge.bind(Proto::Tcp, "restricted.internal:1", restricted).await;
    let around = policy(forward("tcp://circle.internal:1", "halt"));
    let _circle = edge.bind(Proto::Tcp, "circle.internal:1", around).await;
    let last = edge.bind(Proto::Tcp, "last.internal:1", EndpointOptions::default()).await;
    let on = policy(forward(last.url(), "halt"));
    let _first = edge.bind(Proto::Tcp, "first.internal:1", on).await;

    for name in ["denied", "restricted", "circle"] {
        let url = format!("tcp://{name}.internal:1");
        assert_eq!(edge.hear(forward(&url, "halt")).await, "", "{name}");
    }
    let heard = edge.hear(forward("tcp://first.internal:1", "halt")).await;
    assert_eq!(heard, "internal heard hello");
}

#[tokio::test]
async fn rules_inside_see_the_address_of_their_own_endpoint() {
    let edge = Edge::start().await;
    let own = json!(["endpoint.url == 'tcp://own.internal:5432' && endpoint.protocol == 'tcp'"]);
    let deny = json!([{"expressions": own, "actions": [{"type": "deny"}]}]);
    let _own = edge.bind(Proto::Tcp, "own.internal:5432", policy(deny.clone())).await;
    let _other = edge.bind(Proto::Tcp, "other.internal:5432", policy(deny)).await;

    assert_eq!(edge.hear(forward("tcp://own.internal:5432", "halt")).await, "");
    let other = edge.hear(forward("tcp://other.internal:5432", "halt")).await;
    assert_eq!(other, "internal heard hello");
}

#[tokio::test]
async fn requests_do_not_reach_what_carries_bytes() {
    let edge = Edge::start().await;
    let _db = edge.bind(Proto::Tcp, "db.internal:80", EndpointOptions::default()).await;
    let site = &edge.site;
    let https = site.edge("a.test").await;
    let target = Direct::to(mirror().await);
    let wanted =
        EndpointSpec { host: Some("site.internal".into()), ..EndpointSpec::any(Proto::Http) };
    let offline = site.service.service.gateway().bind_endpoint(wanted, target).await.unwrap();
    for (path, url) in [("/db", "http://db.internal"), ("/site", "http://site.internal")] {
        for on_error in ["halt", "continue"] {
            let backend = site.fixed("public").await;
            let inbound = forward(url, on_error);
            let modules = json!({"backend": backend, "policy": {"inbound": inbound}});
            site.route(&https, &format!("{path}/{on_error}"), modules).await;
        }
    }
    offline.retarget(None);

    for path in ["/db", "/site"] {
        let halted = site.get("a.test", &format!("{path}/halt")).await;
        assert_eq!((status(&halted), code(&halted)), ("404", "3200"), "{path}");
        assert_eq!(site.get("a.test", &format!("{path}/continue")).await.1, "public", "{path}");
    }
}
