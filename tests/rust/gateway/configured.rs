//! Edges, routes and backends as the management API sets them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use ginnel_gateway::{EndpointSpec, EventDelivery, Proto, Target, TunnelGroups};

use serde_json::{Value, json};

use super::support::{Direct, Peer, header, mirror, soon, upstream};
use crate::service::support::{Folder, Running, free_address};

/// A service, and how requests reach its edges.
pub struct EdgeFixture {
    pub service: Running,
}

impl EdgeFixture {
    pub async fn start() -> Self {
        Self { service: Running::start().await }
    }

    /// An HTTPS edge for a host, served over plain HTTP as well; gives its identifier.
    pub async fn edge(&self, host: &str) -> String {
        let hostports = json!([format!("{host}:80"), format!("{host}:443")]);
        self.service.create("/edges/https", json!({"hostports": hostports})).await
    }

    pub async fn route(&self, edge: &str, path: &str, mut fields: Value) -> String {
        fields["match"] = path.into();
        let fallback = "path_prefix".into();
        let kind = fields["match_type"].as_str().map_or(fallback, Value::from);
        fields["match_type"] = kind;
        self.service.create(&format!("/edges/https/{edge}/routes"), fields).await
    }

    /// A backend that answers with a text; gives the module that names it.
    pub async fn fixed(&self, body: &str) -> Value {
        let backend = json!({"body": body, "headers": {"x-fixed": "yes"}, "status_code": 202});
        let id = self.service.create("/backends/http_response", backend).await;
        json!({"backend_id": id})
    }

    /// A backend at an address; gives the module that names it.
    pub async fn at(&self, address: impl ToString) -> Value {
        let backend = json!({"address": address.to_string()});
        json!({"backend_id": self.service.create("/backends/static", backend).await})
    }

    pub async fn visitor(&self) -> Peer {
        let address = self.service.service.gateway().http_address().unwrap();
        Peer::at(&address.to_string()).await
    }

    /// What a request to a host and path is answered with: head and body.
    pub async fn get(&self, host: &str, path: &str) -> (String, String) {
        self.say(&format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: test\r\n\r\n")).await
    }

    /// The status and the body of a response over HTTP/2 and TLS.
    pub async fn send_http2(&self, request: http::Request<()>) -> String {
        use super::tls::{connect, trusting};
        let gateway = self.service.service.gateway();
        let port = gateway.https_address().unwrap().port();
        let trusting = trusting(gateway.authority(), &["h2"]);
        let stream = connect(&trusting, port, "a.test").await.unwrap();
        let (mut client, connection) = h2::client::handshake(stream).await.unwrap();
        let connection = tokio::spawn(connection);
        let (response, _) = client.send_request(request, true).unwrap();
        let mut response = soon(response).await.unwrap();
        let mut text = format!("{} ", response.status().as_u16());
        while let Some(part) = soon(response.body_mut().data()).await {
            text += &String::from_utf8_lossy(&part.unwrap());
        }
        connection.abort();
        text
    }

    pub async fn say(&self, request: &str) -> (String, String) {
        let mut visitor = self.visitor().await;
        visitor.say(request).await;
        visitor.answer().await
    }
}

pub fn status(answer: &(String, String)) -> &str {
    answer.0.split(' ').nth(1).unwrap_or_default()
}

pub fn code(answer: &(String, String)) -> &str {
    let code = header(&answer.0, "ngrok-error-code").unwrap_or_default();
    code.rsplit('_').next().unwrap_or_default()
}

/// Tunnels by label, as sessions would know them.
#[derive(Default)]
pub struct Tunnels(pub Mutex<Vec<(Labels, Arc<dyn Target>)>>);

type Labels = BTreeMap<String, String>;

impl TunnelGroups for Tunnels {
    fn matching_targets(
        &self,
        labels: &BTreeMap<String, String>,
        skipped: usize,
        most: usize,
    ) -> Vec<Arc<dyn Target>> {
        let tunnels = self.0.lock().unwrap();
        let has = |theirs: &BTreeMap<String, String>| {
            labels.iter().all(|(key, value)| theirs.get(key) == Some(value))
        };
        let matching = tunnels.iter().filter(|(theirs, _)| has(theirs));
        let mut matching: Vec<_> = matching.map(|(_, it)| it.clone()).collect();
        let first = skipped.checked_rem(matching.len()).unwrap_or(0);
        matching.rotate_left(first);
        matching.truncate(most);
        matching
    }
}

/// An upstream that answers with its name.
async fn named(name: &'static str) -> std::net::SocketAddr {
    upstream(move |mut peer| async move {
        while peer.request().await.is_some() {
            let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{name}", name.len());
            peer.say(&answer).await;
        }
    })
    .await
}

#[tokio::test]
async fn hosts_and_paths_choose_the_route() {
    let site = EdgeFixture::start().await;
    let [app, any] = [site.edge("app.a.test").await, site.edge("*.a.test").await];
    for (edge, path, kind, answer) in [
        (&app, "/", "path_prefix", "root"),
        (&app, "/api", "path_prefix", "api"),
        (&app, "/api/exact", "exact_path", "exact"),
        (&any, "/", "path_prefix", "any"),
    ] {
        let backend = site.fixed(answer).await;
        site.route(edge, path, json!({"match_type": kind, "backend": backend})).await;
    }

    for (host, path, expected) in [
        ("app.a.test", "/", "root"),
        ("APP.a.test:80", "/x?y", "root"),
        ("app.a.test", "/api/v1", "api"),
        ("app.a.test", "/api/exact?q", "exact"),
        ("app.a.test", "/api/exact/", "api"),
        ("b.a.test", "/api", "any"),
        ("c.b.a.test", "/", "any"),
    ] {
        let answer = site.get(host, path).await;
        assert_eq!((status(&answer), answer.1.as_str()), ("202", expected), "{host} {path}");
        assert_eq!(header(&answer.0, "x-fixed"), Some("yes"));
    }
    let nowhere = site.get("a.test", "/").await;
    assert_eq!((status(&nowhere), code(&nowhere)), ("404", "3200"));
}

#[tokio::test]
async fn changes_act_on_the_next_request() {
    let site = EdgeFixture::start().await;
    let edge = site.edge("a.test").await;
    let service = &site.service;
    let mut visitor = site.visitor().await;
    let mut get = async || {
        visitor.say("GET / HTTP/1.1\r\nHost: a.test\r\n\r\n").await;
        let answer = visitor.answer().await;
        format!("{} {}", status(&answer), code(&answer))
    };

    assert_eq!(get().await, "404 3200");
    let route = site.route(&edge, "/", json!({})).await;
    assert_eq!(get().await, "503 724");
    let backend = site.fixed("").await;
    let module = format!("/edges/https/{edge}/routes/{route}/backend");
    service.put(&module, backend.clone()).await;
    assert_eq!(get().await, "202 ");
    let id = backend["backend_id"].as_str().unwrap();
    service.patch(&format!("/backends/http_response/{id}"), json!({"status_code": 299})).await;
    assert_eq!(get().await, "299 ");
    let off = json!({"enabled": false, "backend_id": id});
    service.put(&module, off).await;
    assert_eq!(get().await, "503 724");
    service.patch(&format!("/edges/https/{edge}"), json!({"hostports": ["b.test:80"]})).await;
    assert_eq!(get().await, "404 3200");
    service.patch(&format!("/edges/https/{edge}"), json!({"hostports": ["a.test:80"]})).await;
    service.put(&module, backend).await;
    assert_eq!(get().await, "299 ");
    service.delete(&format!("/edges/https/{edge}/routes/{route}")).await;
    assert_eq!(get().await, "404 3200");
    service.delete(&format!("/edges/https/{edge}")).await;
    assert_eq!(get().await, "404 3200");
}

#[tokio::test]
async fn a_service_that_starts_again_serves_its_edges_again() {
    let folder = Folder::new();
    let site = EdgeFixture { service: Running::with(folder.options("db")).await };
    let edge = site.edge("a.test").await;
    let backend = site.fixed("still here").await;
    site.route(&edge, "/", json!({"backend": backend})).await;
    site.service.stop().await;

    let site = EdgeFixture { service: Running::with(folder.options("db")).await };

    assert_eq!(site.get("a.test", "/").await.1, "still here");
}

#[tokio::test]
async fn plain_http_is_sent_to_https_where_the_edge_has_only_that() {
    let site = EdgeFixture::start().await;
    let edge = json!({"hostports": ["only.test:443"]});
    let edge = site.service.create("/edges/https", edge).await;
    site.route(&edge, "/", json!({"backend": site.fixed("secure").await})).await;
    let port = site.service.service.gateway().https_address().unwrap().port();

    let answer = site.get("only.test", "/a?b=c").await;

    assert_eq!(status(&answer), "307");
    let url = format!("https://only.test:{port}/a?b=c");
    assert_eq!(header(&answer.0, "location"), Some(url.as_str()));
}

#[tokio::test]
async fn a_static_backend_is_an_address() {
    let site = EdgeFixture::start().await;
    let edge = site.edge("a.test").await;
    let (good, gone) = (site.at(mirror().await).await, site.at(free_address()).await);
    site.route(&edge, "/", json!({"backend": good})).await;
    site.route(&edge, "/gone", json!({"backend": gone})).await;

    let good = site.get("a.test", "/x").await;
    let gone = site.get("a.test", "/gone").await;

    assert!(good.1.starts_with("GET /x HTTP/1.1\r\n"), "{}", good.1);
    assert_eq!((status(&gone), code(&gone)), ("502", "8012"));
}

#[tokio::test]
async fn a_static_backend_may_be_reached_over_tls() {
    let (site, behind) = (EdgeFixture::start().await, EdgeFixture::start().await);
    for one in [&site, &behind] {
        let edge = one.edge("a.test").await;
        let address = behind.service.service.gateway().https_address().unwrap();
        let over =
            json!({"address": address.to_string(), "tls": {"enabled": true, "verify": false}});
        let over = site.service.create("/backends/static", over).await;
        let modules = match std::ptr::eq(one, &site) {
            true => json!({"backend": {"backend_id": over}}),
            false => json!({"backend": one.at(mirror().await).await}),
        };
        one.route(&edge, "/", modules).await;
    }

    let (_, seen) = site.get("a.test", "/x").await;

    assert!(seen.starts_with("GET /x HTTP/1.1\r\n"), "{seen}");
    assert_eq!(header(&seen, "x-forwarded-proto"), Some("https"), "{seen}");
}

#[tokio::test]
async fn a_change_leaves_what_is_under_way() {
    let site = EdgeFixture::start().await;
    let (said, mut saying) = tokio::sync::watch::channel(false);
    saying.mark_unchanged();
    let slow = upstream(move |mut peer| {
        let mut saying = saying.clone();
        async move {
            if peer.exactly(4).await == "GET " {
                peer.head().await;
                peer.say("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nfirst").await;
                saying.changed().await.unwrap();
                peer.say(" last").await;
            } else {
                peer.say("heard").await;
                let more = peer.exactly(4).await;
                peer.say(&more).await;
            }
        }
    })
    .await;
    let backend = site.at(slow).await;
    let https = site.edge("a.test").await;
    let route = site.route(&https, "/", json!({"backend": backend})).await;
    let port = free_address().port();
    let tcp = json!({"hostports": [format!("a.test:{port}")], "backend": backend});
    let tcp = site.service.create("/edges/tcp", tcp).await;
    let mut stream = Peer::at(&format!("127.0.0.1:{port}")).await;
    stream.say("hello").await;
    assert_eq!(stream.exactly(5).await, "heard");
    let mut visitor = site.visitor().await;
    visitor.say("GET / HTTP/1.1\r\nHost: a.test\r\n\r\n").await;
    visitor.head().await;
    assert_eq!(visitor.exactly(5).await, "first");

    let other = site.fixed("other").await;
    site.service.put(&format!("/edges/https/{https}/routes/{route}/backend"), other.clone()).await;
    site.service.put(&format!("/edges/tcp/{tcp}/backend"), other).await;
    let deny = json!({"inbound": [{"actions": [{"type": "deny"}]}]});
    site.service.put(&format!("/edges/tcp/{tcp}/policy"), deny).await;
    said.send(true).unwrap();

    assert_eq!(visitor.exactly(5).await, " last");
    visitor.say("GET / HTTP/1.1\r\nHost: a.test\r\n\r\n").await;
    assert_eq!(visitor.answer().await.1, "other", "the same connection, by the new route");
    stream.say("more").await;
    assert_eq!(stream.exactly(4).await, "omor");
    site.service.delete(&format!("/edges/tcp/{tcp}")).await;
    assert_eq!(stream.rest().await, "");
}

#[tokio::test]
async fn a_tunnel_group_takes_turns_and_skips_who_cannot_be_dialed() {
    let site = EdgeFixture::start().await;
    let tunnels = Arc::new(Tunnels::default());
    site.service.service.gateway().find_tunnels_in(tunnels.clone());
    let edge = site.edge("a.test").await;
    let group = json!({"labels": {"app": "web"}});
    let group = site.service.create("/backends/tunnel_group", group).await;
    site.route(&edge, "/", json!({"backend": {"backend_id": group}})).await;
    let none = site.get("a.test", "/").await;
    assert_eq!((status(&none), code(&none)), ("503", "6515"));

    let labels = |pairs: &[(&str, &str)]| {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    };
    let web = [("app", "web"), ("zone", "1")];
    for (labels, address) in [
        (labels(&web), named("one").await),
        (labels(&web), free_address()),
        (labels(&web), named("two").await),
        (labels(&[("app", "other")]), named("other").await),
    ] {
        tunnels.0.lock().unwrap().push((labels, Direct::to(address)));
    }
    let mut seen = BTreeMap::new();
    for _ in 0..12 {
        *seen.entry(site.get("a.test", "/").await.1).or_insert(0) += 1;
    }

    let seen: Vec<_> = seen.into_iter().collect();
    assert_eq!(seen, [("one".to_owned(), 4), ("two".to_owned(), 8)]);
}

#[tokio::test]
async fn a_failover_goes_on_only_when_nothing_was_sent() {
    let site = EdgeFixture::start().await;
    let edge = site.edge("a.test").await;
    let failing = upstream(|mut peer| async move {
        peer.request().await;
        peer.say("HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n").await;
    })
    .await;
    let silent = upstream(|mut peer| async move { drop(peer.request().await) }).await;
    let good = site.at(mirror().await).await;
    let failover = async |first: Value| {
        let children = json!([first["backend_id"], good["backend_id"]]);
        let made = site.service.create("/backends/failover", json!({"backends": children})).await;
        json!({"backend": {"backend_id": made}})
    };
    site.route(&edge, "/gone", failover(site.at(free_address()).await).await).await;
    site.route(&edge, "/failing", failover(site.at(failing).await).await).await;
    site.route(&edge, "/silent", failover(site.at(silent).await).await).await;
    let post = async |path: &str| {
        let request =
            format!("POST {path} HTTP/1.1\r\nHost: a.test\r\nContent-Length: 4\r\n\r\nbody");
        site.say(&request).await
    };

    assert_eq!(status(&site.get("a.test", "/gone").await), "200");
    assert!(post("/gone").await.1.ends_with("\r\n\r\nbody"));
    assert_eq!(status(&site.get("a.test", "/failing").await), "500");
    let silent = site.get("a.test", "/silent").await;
    assert_eq!((status(&silent), code(&silent)), ("502", "3004"));
}

#[tokio::test]
async fn an_agent_without_its_local_service_is_passed_over() {
    let site = EdgeFixture::start().await;
    let tunnels = Arc::new(Tunnels::default());
    site.service.service.gateway().find_tunnels_in(tunnels.clone());
    let edge = site.edge("a.test").await;
    let seen = Arc::new(Mutex::new(0));
    // Agents of several makers: one closes, one has a page for it.
    let page = "HTTP/1.1 502 Bad Gateway\r\nNgrok-Error-Code: ERR_NGROK_8012\r\nContent-Length: 4\r\n\r\ngone";
    let good = site.at(mirror().await).await;
    for (path, answer) in [("/closes", ""), ("/says", page)] {
        let counted = seen.clone();
        let agent = upstream(move |mut peer| {
            let counted = counted.clone();
            async move {
                peer.request().await;
                *counted.lock().unwrap() += 1;
                peer.say(answer).await;
            }
        });
        let labels = BTreeMap::from([("path".to_owned(), path.to_owned())]);
        let group = json!({"labels": labels});
        let agent = Direct::to(agent.await);
        tunnels.0.lock().unwrap().push((labels, agent));
        let group = site.service.create("/backends/tunnel_group", group).await;
        let children = json!({"backends": [group, good["backend_id"]]});
        let made = site.service.create("/backends/failover", children).await;
        site.route(&edge, path, json!({"backend": {"backend_id": made}})).await;
    }

    for path in ["/closes", "/says"] {
        assert_eq!(status(&site.get("a.test", path).await), "200", "{path}");
        let posted = site
            .say(&format!("POST {path} HTTP/1.1\r\nHost: a.test\r\nContent-Length: 4\r\n\r\nbody"))
            .await;
        assert_eq!((status(&posted), code(&posted)), ("502", "8012"), "{path} may have seen it");
    }
    // A session that ends closes without a byte as well, so that a GET is tried once more.
    assert_eq!(*seen.lock().unwrap(), 5, "each POST was seen once");
}

#[tokio::test]
async fn weights_decide_and_backends_nest() {
    let site = EdgeFixture::start().await;
    let edge = site.edge("a.test").await;
    let id = |module: Value| module["backend_id"].as_str().unwrap().to_owned();
    let (one, two) = (id(site.fixed("one").await), id(site.fixed("two").await));
    let weighted = async |weights: Value| {
        site.service.create("/backends/weighted", json!({"backends": weights})).await
    };
    let never = weighted(json!({&one: 0, &two: 0})).await;
    let second = weighted(json!({&one: 0, &two: 7})).await;
    let nested = json!({"backends": [never, second]});
    let nested = site.service.create("/backends/failover", nested).await;
    site.route(&edge, "/never", json!({"backend": {"backend_id": never}})).await;
    site.route(&edge, "/nested", json!({"backend": {"backend_id": nested}})).await;

    let none = site.get("a.test", "/never").await;
    assert_eq!((status(&none), code(&none)), ("503", "724"));
    for _ in 0..5 {
        assert_eq!(site.get("a.test", "/nested").await.1, "two");
    }
    let both = weighted(json!({&one: 1, &two: 1})).await;
    site.route(&edge, "/both", json!({"backend": {"backend_id": both}})).await;
    let mut seen = Vec::new();
    for _ in 0..64 {
        seen.push(site.get("a.test", "/both").await.1);
    }
    assert!(seen.contains(&"one".to_owned()) && seen.contains(&"two".to_owned()));
}

#[tokio::test]
async fn a_tcp_edge_carries_bytes_on_its_port() {
    let site = EdgeFixture::start().await;
    let address = upstream(|mut peer| async move {
        let heard = peer.rest().await;
        peer.say(&format!("heard {heard}")).await;
    })
    .await;
    let port = free_address().port();
    let edge =
        json!({"hostports": [format!("tcp.a.test:{port}")], "backend": site.at(address).await});
    let edge = site.service.create("/edges/tcp", edge).await;
    let talk = async || {
        let mut visitor = Peer::at(&format!("127.0.0.1:{port}")).await;
        visitor.say("hello").await;
        tokio::io::AsyncWriteExt::shutdown(&mut visitor.0).await.unwrap();
        visitor.rest().await
    };

    assert_eq!(talk().await, "heard hello");
    let module = format!("/edges/tcp/{edge}/backend");
    site.service.put(&module, site.fixed("http").await).await;
    assert_eq!(talk().await, "", "an HTTP response is nothing for TCP");
    let second = json!({"hostports": [format!("other.test:{port}")]});
    let second = site.service.post("/edges/tcp", second).await;
    assert_eq!((second.status, second.code()), (409, 7122), "{}", second.json);
    site.service.delete(&format!("/edges/tcp/{edge}")).await;
    let gone = tokio::net::TcpStream::connect(("127.0.0.1", port)).await;
    assert!(gone.is_err(), "the port is free as soon as that is answered");
}

#[tokio::test]
async fn an_edge_cannot_have_the_name_of_a_tunnel() {
    let site = EdgeFixture::start().await;
    let wanted = EndpointSpec { host: Some("mine.test".into()), ..EndpointSpec::any(Proto::Https) };
    let edges = site.service.service.gateway();
    let endpoint = edges.bind_endpoint(wanted.clone(), Direct::to(mirror().await)).await.unwrap();
    let edge = json!({"hostports": ["mine.test:443"]});

    let refused = site.service.post("/edges/https", edge.clone()).await;
    assert_eq!((refused.status, refused.code()), (409, 7132), "{}", refused.json);
    drop(endpoint);
    assert_eq!(site.service.post("/edges/https", edge).await.status, 201);
    let taken = edges.bind_endpoint(wanted, Direct::to(mirror().await)).await;

    assert_eq!(taken.err().unwrap().code(), 334);
}

#[tokio::test]
async fn every_decision_is_told() {
    let site = EdgeFixture::start().await;
    let edge = site.edge("a.test").await;
    let backend = site.fixed("hi").await;
    let filter = json!({"deny": ["bot"]});
    let modules = json!({"backend": backend, "user_agent_filter": filter});
    let route = site.route(&edge, "/", modules).await;
    site.get("a.test", "/before").await;

    let mut events = site.service.service.events();
    site.get("a.test", "/a?b").await;
    site.say("GET / HTTP/1.1\r\nHost: a.test\r\nUser-Agent: bot\r\n\r\n").await;
    let mut next = async || match events.next().await {
        Some(EventDelivery::Event(event)) => event,
        other => panic!("{other:?}"),
    };

    let passed = next().await;
    assert_eq!((passed.method.as_deref(), passed.path.as_deref()), (Some("GET"), Some("/a?b")));
    assert_eq!((passed.host.as_deref(), &*passed.proto), (Some("a.test"), "http"));
    assert_eq!((passed.status, passed.code.as_deref(), &passed.module), (Some(202), None, &None));
    assert_eq!(passed.edge_id, Some(edge));
    assert_eq!(passed.route_id, Some(route));
    assert_eq!(passed.backend_id.as_deref(), backend["backend_id"].as_str());
    let turned = next().await;
    assert_eq!((turned.status, turned.code.as_deref()), (Some(403), Some("ERR_NGROK_3211")));
    assert_eq!((turned.module.as_deref(), &turned.backend_id), (Some("user_agent_filter"), &None));
    site.service.service.gateway().stop(std::time::Duration::from_secs(1)).await;
    assert!(events.next().await.is_none());
}

#[tokio::test]
async fn a_connection_may_carry_requests_for_other_hosts() {
    use super::tls::{connect, trusting};
    let site = EdgeFixture::start().await;
    for host in ["a.test", "b.test"] {
        let edge = site.edge(host).await;
        site.route(&edge, "/", json!({"backend": site.fixed(host).await})).await;
    }
    let edges = site.service.service.gateway();
    let port = edges.https_address().unwrap().port();
    let mut stream = connect(&trusting(edges.authority(), &[]), port, "a.test").await.unwrap();
    let request =
        |host: &str| format!("GET / HTTP/1.0\r\nHost: {host}\r\nConnection: keep-alive\r\n\r\n");

    let mut seen = String::new();
    for host in ["a.test", "b.test", "c.test"] {
        tokio::io::AsyncWriteExt::write_all(&mut stream, request(host).as_bytes()).await.unwrap();
        let mut buffer = [0; 4096];
        let length = tokio::io::AsyncReadExt::read(&mut stream, &mut buffer).await.unwrap();
        seen += &String::from_utf8_lossy(&buffer[..length]);
    }

    assert_eq!(seen.matches(" 202 ").count(), 2, "{seen}");
    assert_eq!(seen.matches(" 404 ").count(), 1, "{seen}");
}

#[tokio::test]
async fn the_options_of_the_server_are_answered() {
    let site = EdgeFixture::start().await;
    let (whole, part) = (site.edge("whole.test").await, site.edge("part.test").await);
    let mirror = site.at(mirror().await).await;
    site.route(&whole, "/", json!({"backend": mirror})).await;
    site.route(&part, "/api", json!({"backend": mirror})).await;
    let ask = async |host: &str| {
        let (http1, body) = site.say(&format!("OPTIONS * HTTP/1.1\r\nHost: {host}\r\n\r\n")).await;
        let uri = http::uri::Builder::new().scheme("https").authority(host).path_and_query("*");
        let request = http::Request::options(uri.build().unwrap()).body(());
        (http1, body, site.send_http2(request.unwrap()).await)
    };

    let (head, body, http2) = ask("whole.test").await;
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    assert!(body.starts_with("OPTIONS * HTTP/1.1\r\n"), "{body}");
    assert!(http2.starts_with("200 OPTIONS * HTTP/1.1\r\n"), "{http2}");
    let (head, _, http2) = ask("part.test").await;
    assert!(head.starts_with("HTTP/1.1 204 "), "{head}");
    assert_eq!(http2, "204 ");
    let (head, _, http2) = ask("nobody.test").await;
    assert!(head.starts_with("HTTP/1.1 404 ") && http2.starts_with("404 "), "{head}{http2}");
}

#[tokio::test]
async fn a_circle_comes_to_an_end() {
    let site = EdgeFixture::start().await;
    let edge = site.edge("a.test").await;
    let own = site.service.service.gateway().http_address().unwrap();
    site.route(&edge, "/", json!({"backend": site.at(own).await})).await;

    let answer = site.get("a.test", "/").await;

    assert_eq!(status(&answer), "508");
}
