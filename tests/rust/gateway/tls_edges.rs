//! TLS edges: found by name, TLS goes through them or ends there, and bytes go on.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ginnel_gateway::{EndpointSpec, EventDelivery, Proto};

use rcgen::{CertificateParams, KeyPair};
use rustls::pki_types::{PrivateKeyDer, ServerName};
use rustls::version::{TLS12, TLS13};
use rustls::{AlertDescription, ServerConfig};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::client_certificates::{Signer, Visit};
use super::configured::{EdgeFixture, Tunnels, code, status};
use super::support::{Direct, mirror, soon, upstream};
use super::tls::{trusting, trusting_pem};

const NAME: &str = "db.a.test";

/// A TLS edge with these modules; its identifier.
async fn edge(site: &EdgeFixture, modules: Value) -> String {
    let mut fields = json!({"hostports": [format!("{NAME}:443")]});
    fields.as_object_mut().unwrap().extend(modules.as_object().unwrap().clone());
    site.service.create("/edges/tls", fields).await
}

fn https_address(site: &EdgeFixture) -> SocketAddr {
    site.service.service.gateway().https_address().unwrap()
}

/// An upstream without TLS that says what it has heard, when the other side says no more.
async fn plain() -> SocketAddr {
    upstream(|mut peer| async move {
        let heard = peer.rest().await;
        peer.say(&format!("heard {heard}")).await;
    })
    .await
}

/// The same over TLS, with a certificate of its own; its address and what to trust.
async fn secure() -> (SocketAddr, String) {
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new([NAME.to_owned()]).unwrap();
    let certificate = params.self_signed(&key).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider);
    let builder = builder.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
    let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let config = builder.with_single_cert(vec![certificate.der().clone()], key).unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let Ok(mut stream) = acceptor.accept(stream).await else { return };
                let mut heard = Vec::new();
                stream.read_to_end(&mut heard).await.unwrap();
                let said = [b"heard over TLS ", &heard[..]].concat();
                stream.write_all(&said).await.unwrap();
                stream.shutdown().await.unwrap();
            });
        }
    });
    (address, certificate.pem())
}

/// Says something and no more; what comes back until the end.
async fn talk<S: AsyncRead + AsyncWrite + Unpin>(mut stream: S, text: &str) -> String {
    stream.write_all(text.as_bytes()).await.unwrap();
    stream.shutdown().await.unwrap();
    let mut heard = Vec::new();
    // Whoever is turned away may hear that as an error.
    let _ = soon(stream.read_to_end(&mut heard)).await;
    String::from_utf8(heard).unwrap()
}

/// What a visitor hears who asks for a name and trusts the authority of the service.
async fn visit(site: &EdgeFixture) -> String {
    match Visit::to(NAME, None).connect(site).await {
        Ok(stream) => talk(stream, "hello").await,
        Err(error) => error.to_string(),
    }
}

/// Connects to an address for the name.
async fn connect(
    connector: &TlsConnector,
    address: SocketAddr,
) -> std::io::Result<tokio_rustls::client::TlsStream<TcpStream>> {
    let name = ServerName::try_from(NAME).unwrap();
    soon(connector.connect(name, TcpStream::connect(address).await.unwrap())).await
}

#[tokio::test]
async fn tls_that_ends_at_the_edge_becomes_bytes() {
    let site = EdgeFixture::start().await;
    let backend = site.at(plain().await).await;
    edge(&site, json!({"backend": backend, "tls_termination": {"terminate_at": "edge"}})).await;

    assert_eq!(visit(&site).await, "heard hello", "each direction ends on its own");
    let stream = Visit { alpn: "h2", ..Visit::to(NAME, None) }.connect(&site).await.unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), None, "the edge speaks for no protocol");
}

#[tokio::test]
async fn tls_goes_through_to_a_server_with_a_certificate_of_its_own() {
    let site = EdgeFixture::start().await;
    let (address, pem) = secure().await;
    let backend = site.at(address).await;
    let edge = edge(&site, json!({"backend": backend})).await;
    let through = async || {
        let stream = connect(&trusting_pem(&pem, &["x"]), https_address(&site)).await.unwrap();
        talk(stream, "hello").await
    };

    assert_eq!(through().await, "heard over TLS hello");
    let module = format!("/edges/tls/{edge}/tls_termination");
    site.service.put(&module, json!({"terminate_at": "upstream"})).await;
    assert_eq!(through().await, "heard over TLS hello");

    site.service.put(&module, json!({})).await;
    let refused = connect(&trusting_pem(&pem, &[]), https_address(&site)).await;
    assert!(refused.is_err(), "TLS ends at the edge now, with another certificate");
    site.service.put(&module, json!({"enabled": false})).await;
    assert_eq!(through().await, "heard over TLS hello", "a module that is off does nothing");
}

#[tokio::test]
async fn a_visitor_who_ends_early_still_hears_the_upstream_and_the_other_way_round() {
    let site = EdgeFixture::start().await;
    let address = upstream(|mut peer| async move {
        peer.say("bye").await;
        tokio::io::AsyncWriteExt::shutdown(&mut peer.0).await.unwrap();
        let heard = peer.rest().await;
        assert_eq!(heard, "still here");
    })
    .await;
    let backend = site.at(address).await;
    edge(&site, json!({"backend": backend, "tls_termination": {"terminate_at": "edge"}})).await;

    let mut stream = Visit::to(NAME, None).connect(&site).await.unwrap();
    let mut heard = Vec::new();
    soon(stream.read_to_end(&mut heard)).await.unwrap();
    stream.write_all(b"still here").await.unwrap();
    soon(stream.shutdown()).await.unwrap();

    assert_eq!(heard, b"bye");
}

#[tokio::test]
async fn only_visitors_with_a_certificate_that_an_authority_signed_come_in() {
    let site = EdgeFixture::start().await;
    let (known, unknown) = (Signer::new("known"), Signer::new("unknown"));
    let mutual_tls = known.known_to(&site).await;
    let reached = Arc::new(AtomicUsize::new(0));
    let counted = reached.clone();
    let address = upstream(move |mut peer| {
        counted.fetch_add(1, Ordering::Relaxed);
        async move { peer.say("in").await }
    })
    .await;
    let backend = site.at(address).await;
    let termination = json!({"terminate_at": "edge"});
    let modules =
        json!({"backend": backend, "tls_termination": termination, "mutual_tls": mutual_tls});
    edge(&site, modules).await;
    let (friend, stranger) = (known.vouch(), unknown.vouch());

    for version in [&TLS13, &TLS12] {
        let visit = |shown| Visit { version, ..Visit::to(NAME, shown) };
        let stream = visit(Some(&friend)).connect(&site).await.unwrap();
        assert_eq!(talk(stream, "").await, "in");
        assert_eq!(visit(None).alert(&site).await, AlertDescription::CertificateRequired);
        assert_eq!(visit(Some(&stranger)).alert(&site).await, AlertDescription::UnknownCA);
    }
    assert_eq!(reached.load(Ordering::Relaxed), 2, "nobody else has come to the upstream");
}

#[tokio::test]
async fn certificates_are_asked_for_only_where_tls_ends_at_the_edge() {
    let site = EdgeFixture::start().await;
    let mutual_tls = Signer::new("known").known_to(&site).await;
    let refused = site.service.post("/edges/tls", json!({"mutual_tls": mutual_tls})).await;
    assert_eq!((refused.status, refused.code()), (400, 215), "{}", refused.json);
    assert!(refused.json["msg"].as_str().unwrap().contains("terminate_at edge"));

    let termination = json!({"terminate_at": "edge"});
    let both = json!({"mutual_tls": mutual_tls, "tls_termination": termination});
    let edge = edge(&site, both).await;

    let module = format!("/edges/tls/{edge}/tls_termination");
    for body in [json!({"terminate_at": "upstream"}), json!({"enabled": false})] {
        let refused = site.service.put(&module, body).await;
        assert_eq!((refused.status, refused.code()), (400, 215), "{}", refused.json);
    }
    let refused = site.service.delete(&module).await;
    assert_eq!(refused.status, 400, "{}", refused.json);
    site.service.delete(&format!("/edges/tls/{edge}/mutual_tls")).await;
    site.service.delete(&module).await;
}

#[tokio::test]
async fn a_visitor_must_speak_the_oldest_version_or_a_newer_one() {
    let site = EdgeFixture::start().await;
    let backend = site.at(plain().await).await;
    let termination = json!({"terminate_at": "edge", "min_version": "1.3"});
    let edge = edge(&site, json!({"backend": backend, "tls_termination": termination})).await;
    let older = Visit { version: &TLS12, ..Visit::to(NAME, None) };

    assert_eq!(older.alert(&site).await, AlertDescription::ProtocolVersion);
    assert_eq!(visit(&site).await, "heard hello");

    let module = format!("/edges/tls/{edge}/tls_termination");
    site.service.put(&module, json!({"min_version": "1.2"})).await;
    assert_eq!(talk(older.connect(&site).await.unwrap(), "a").await, "heard a");
}

#[tokio::test]
async fn addresses_and_policies_decide_who_comes_in() {
    let site = EdgeFixture::start().await;
    let (address, pem) = secure().await;
    let backend = site.at(address).await;
    let policy = site.service.create("/ip_policies", json!({})).await;
    let restriction = json!({"ip_policy_ids": [policy]});
    let edge = edge(&site, json!({"backend": backend, "ip_restriction": restriction})).await;
    let comes_in = async || connect(&trusting_pem(&pem, &[]), https_address(&site)).await.is_ok();

    assert!(!comes_in().await, "no rules, nobody");
    let rule = json!({"cidr": "127.0.0.1/32", "action": "allow", "ip_policy_id": policy});
    site.service.create("/ip_policy_rules", rule).await;
    assert!(comes_in().await);

    let deny = json!({"inbound": [{"actions": [{"type": "deny"}]}]});
    site.service.put(&format!("/edges/tls/{edge}/policy"), deny.clone()).await;
    assert!(!comes_in().await);
    site.service.delete(&format!("/edges/tls/{edge}/policy")).await;
    let document = json!({"value": deny.to_string()});
    site.service.put(&format!("/edges/tls/{edge}/traffic_policy"), document).await;
    assert!(!comes_in().await);
    let termination = format!("/edges/tls/{edge}/tls_termination");
    site.service.put(&termination, json!({"terminate_at": "edge"})).await;
    assert_eq!(visit(&site).await, "", "nor where TLS ends at the edge");
    let other = json!({"value": json!({
        "inbound": [{"expressions": ["conn.client_ip == '192.0.2.1'"], "actions": [{"type": "deny"}]}]
    }).to_string()});
    site.service.put(&format!("/edges/tls/{edge}/traffic_policy"), other).await;
    site.service.delete(&termination).await;
    assert!(comes_in().await);
}

#[tokio::test]
async fn rules_see_the_name_of_tls_that_goes_through() {
    let site = EdgeFixture::start().await;
    let (address, pem) = secure().await;
    let rule = json!({"expressions": [format!("conn.tls.sni == '{NAME}' && endpoint.host == '{NAME}'")],
        "actions": [{"type": "deny"}]});
    let policy = json!({"inbound": [rule]});
    let edge = edge(&site, json!({"backend": site.at(address).await, "policy": policy})).await;
    let mut events = site.service.service.events();

    assert!(connect(&trusting_pem(&pem, &[]), https_address(&site)).await.is_err());

    let Some(EventDelivery::Event(event)) = soon(events.next()).await else { panic!("it ended") };
    assert_eq!(event.host.as_deref(), Some(NAME));
    site.service.delete(&format!("/edges/tls/{edge}/policy")).await;
    assert!(connect(&trusting_pem(&pem, &[]), https_address(&site)).await.is_ok());
}

#[tokio::test]
async fn other_names_and_requests_do_not_reach_a_tls_edge() {
    let site = EdgeFixture::start().await;
    let reached = Arc::new(AtomicUsize::new(0));
    let counted = reached.clone();
    let address = upstream(move |_| {
        counted.fetch_add(1, Ordering::Relaxed);
        async {}
    })
    .await;
    let backend = site.at(address).await;
    edge(&site, json!({"backend": backend, "tls_termination": {"terminate_at": "edge"}})).await;
    let https = site.edge("shop.a.test").await;
    site.route(&https, "/", json!({"backend": site.fixed("hello").await})).await;

    let ask = async |visit: Visit<'_>, host: &str| {
        let request = format!("GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        let stream = visit.connect(&site).await.unwrap();
        talk(stream, &request).await.get(9..12).map(str::to_owned)
    };
    let found = Some("202".to_owned());
    assert_eq!(ask(Visit::to("shop.a.test", None), "shop.a.test").await, found);
    let nowhere = Some("404".to_owned());
    assert_eq!(ask(Visit::to("nobody.test", None), "nobody.test").await, nowhere);
    let nameless = Visit { name: None, ..Visit::to("", None) };
    assert_eq!(ask(nameless, "shop.a.test").await, found);
    assert_eq!(ask(nameless, NAME).await, nowhere, "an edge for bytes takes no requests");
    let plain = site.get(NAME, "/").await;
    assert_eq!((status(&plain), code(&plain)), ("404", "3200"), "nor is one sent there");
    assert_eq!(reached.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn the_name_wins_then_the_longest_wildcard() {
    let site = EdgeFixture::start().await;
    let fields = json!({
        "hostports": ["*.a.test:443"],
        "backend": site.at(plain().await).await,
        "tls_termination": {"terminate_at": "edge"},
    });
    site.service.create("/edges/tls", fields).await;
    let https = site.edge("shop.a.test").await;
    site.route(&https, "/", json!({"backend": site.fixed("hello").await})).await;

    assert_eq!(visit(&site).await, "heard hello");
    assert_eq!(Visit::to("shop.a.test", None).ask(&site, "shop.a.test").await.unwrap(), "202");
}

/// Carries connections to an address; what visitors say first goes there in pieces.
async fn in_pieces(to: SocketAddr, first: usize, piece: usize) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut visitor, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut service = TcpStream::connect(to).await.unwrap();
                service.set_nodelay(true).unwrap();
                let mut said = vec![0; first];
                visitor.read_exact(&mut said).await.unwrap();
                for part in said.chunks(piece) {
                    service.write_all(part).await.unwrap();
                    tokio::time::sleep(Duration::from_millis(15)).await;
                }
                let _ = copy_bidirectional(&mut visitor, &mut service).await;
            });
        }
    });
    address
}

#[tokio::test]
async fn a_first_message_may_come_in_pieces() {
    let site = EdgeFixture::start().await;
    let (address, pem) = secure().await;
    let edge = edge(&site, json!({"backend": site.at(address).await})).await;
    let slow = in_pieces(https_address(&site), 100, 4).await;

    let stream = connect(&trusting_pem(&pem, &[]), slow).await.unwrap();
    assert_eq!(talk(stream, "hello").await, "heard over TLS hello");

    site.service.put(&format!("/edges/tls/{edge}/backend"), site.at(plain().await).await).await;
    site.service.put(&format!("/edges/tls/{edge}/tls_termination"), json!({})).await;
    let ending = trusting(site.service.service.gateway().authority(), &[]);
    let stream = connect(&ending, slow).await.unwrap();
    assert_eq!(talk(stream, "hello").await, "heard hello");
}

/// Protocols that make a first message of about so many bytes.
fn protocols(bytes: usize) -> Vec<String> {
    (0..bytes / 250).map(|number| format!("{number:0>249}")).collect()
}

#[tokio::test]
async fn a_first_message_may_be_larger_than_one_record() {
    let site = EdgeFixture::start().await;
    let edge = edge(&site, json!({"backend": site.at(plain().await).await})).await;
    site.service.put(&format!("/edges/tls/{edge}/tls_termination"), json!({})).await;
    let gateway = site.service.service.gateway();
    let large = |bytes| {
        let protocols = protocols(bytes);
        let protocols: Vec<_> = protocols.iter().map(String::as_str).collect();
        trusting(gateway.authority(), &protocols)
    };

    let stream = connect(&large(24 << 10), https_address(&site)).await.unwrap();
    assert_eq!(talk(stream, "hello").await, "heard hello");
    let (address, pem) = secure().await;
    site.service.put(&format!("/edges/tls/{edge}/backend"), site.at(address).await).await;
    site.service.delete(&format!("/edges/tls/{edge}/tls_termination")).await;
    let names = protocols(24 << 10);
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    let stream = connect(&trusting_pem(&pem, &names), https_address(&site)).await.unwrap();
    assert_eq!(talk(stream, "hello").await, "heard over TLS hello");

    let refused = connect(&large(48 << 10), https_address(&site)).await;
    assert!(refused.is_err(), "what is larger than is looked at goes nowhere");
}

#[tokio::test]
async fn what_is_no_tls_reaches_no_edge() {
    let site = EdgeFixture::start().await;
    edge(&site, json!({"backend": site.at(plain().await).await})).await;
    let mut visitor = TcpStream::connect(https_address(&site)).await.unwrap();

    visitor.write_all(b"GET / HTTP/1.1\r\nHost: db.a.test\r\n\r\n").await.unwrap();

    let mut heard = Vec::new();
    let _ = soon(visitor.read_to_end(&mut heard)).await;
    assert!(!heard.starts_with(b"heard"), "{}", String::from_utf8_lossy(&heard));
}

#[tokio::test]
async fn every_kind_of_backend_takes_connections_but_those_that_speak_http() {
    let site = EdgeFixture::start().await;
    let tunnels = Arc::new(Tunnels::default());
    site.service.service.gateway().find_tunnels_in(tunnels.clone());
    let edge = edge(&site, json!({"tls_termination": {"terminate_at": "edge"}})).await;
    let backend = format!("/edges/tls/{edge}/backend");
    let id = |module: Value| module["backend_id"].as_str().unwrap().to_owned();
    let group = json!({"labels": {"app": "db"}});
    let group = site.service.create("/backends/tunnel_group", group).await;
    let away = json!({"address": "127.0.0.1:1"});
    let away = site.service.create("/backends/static", away).await;
    let here = id(site.at(plain().await).await);
    let failover =
        site.service.create("/backends/failover", json!({"backends": [away, here]})).await;
    let weighted = json!({"backends": {here.as_str(): 1}});
    let weighted = site.service.create("/backends/weighted", weighted).await;
    assert_eq!(visit(&site).await, "", "without a backend");

    for chosen in [&here, &failover, &weighted] {
        site.service.put(&backend, json!({"backend_id": chosen})).await;
        assert_eq!(visit(&site).await, "heard hello", "{chosen}");
    }
    site.service.put(&backend, json!({"backend_id": group})).await;
    assert_eq!(visit(&site).await, "", "no tunnel is online");
    let labels = [("app".to_owned(), "db".to_owned())].into_iter().collect();
    let tunnel = Direct::to(plain().await);
    tunnels.0.lock().unwrap().push((labels, tunnel));
    assert_eq!(visit(&site).await, "heard hello");
    site.service.put(&backend, site.fixed("http").await).await;
    assert_eq!(visit(&site).await, "", "an HTTP response is nothing for bytes");
}

#[tokio::test]
async fn a_name_belongs_to_one_edge_endpoint_or_tunnel() {
    let site = EdgeFixture::start().await;
    let tls = edge(&site, json!({})).await;
    let hostports = json!({"hostports": [format!("{}:443", NAME.to_uppercase())]});
    for path in ["/edges/tls", "/edges/https", "/edges/tcp"] {
        let refused = site.service.post(path, hostports.clone()).await;
        assert_eq!((refused.status, refused.code()), (409, 7122), "{path} {}", refused.json);
    }
    let policy = json!({"on_http_request": [{"actions": [{"type": "deny"}]}]}).to_string();
    let cloud = |host: &str| json!({"url": format!("https://{host}"), "traffic_policy": policy});
    let refused = site.service.post("/endpoints", cloud(NAME)).await;
    assert!((400..410).contains(&refused.status), "{}", refused.json);
    let gateway = site.service.service.gateway();
    let spec = |host: &str| EndpointSpec {
        host: Some(host.to_owned()),
        ..EndpointSpec::any(Proto::Https)
    };
    let target = Direct::to(mirror().await);
    assert!(gateway.bind_endpoint(spec(NAME), target.clone()).await.is_err(), "an agent");

    site.edge("https.a.test").await;
    site.service.post("/endpoints", cloud("cloud.a.test")).await;
    let _agent = gateway.bind_endpoint(spec("agent.a.test"), target.clone()).await.unwrap();
    for (host, number) in [("https.a.test", 7122), ("cloud.a.test", 7122), ("agent.a.test", 7132)] {
        let hostports = json!({"hostports": [format!("{host}:443")]});
        let refused = site.service.post("/edges/tls", hostports).await;
        assert_eq!((refused.status, refused.code()), (409, number), "{host} {}", refused.json);
    }
    site.service.delete(&format!("/edges/tls/{tls}")).await;
    assert!(gateway.bind_endpoint(spec(NAME), target).await.is_ok(), "the name is free again");
}
