//! Nodes that are lost with requests of visitors, whose agents have a session at another node as well.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use http::{Method, Request};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio_rustls::TlsConnector;

use ginnel_api::remote::edges::modules::TrafficPolicyDocument;
use ginnel_gateway::{BoxFuture, ConnectionReuse, DialError, Io, RouteRef, Visitor};

use super::*;

/// What a service behind an agent has seen.
struct CountingService {
    requests: Arc<AtomicUsize>,
    came: Arc<Semaphore>,
    target: Arc<dyn Target>,
}

/// A service that counts requests, and answers them or never does.
async fn upstream(answers: bool) -> CountingService {
    let (requests, came) = (Arc::new(AtomicUsize::new(0)), Arc::new(Semaphore::new(0)));
    let (counted, coming) = (requests.clone(), came.clone());
    let target = server(move |mut stream| {
        let (counted, coming) = (counted.clone(), coming.clone());
        Box::pin(async move {
            let mut read = Vec::new();
            while stream.read_buf(&mut read).await.is_ok_and(|more| more > 0) {
                if !read.windows(4).any(|four| four == b"\r\n\r\n") {
                    continue;
                }
                read.clear();
                counted.fetch_add(1, Ordering::SeqCst);
                coming.add_permits(1);
                let answer = format!("{VERSION} 204 No Content\r\n\r\n");
                if answers && stream.write_all(answer.as_bytes()).await.is_err() {
                    return;
                }
            }
        })
    });
    CountingService { requests, came, target: target.await }
}

/// Makes a host public at a node, and known to the others; of several nodes the last one is asked first.
async fn publish_at(nodes: &[Node; 3], at: usize, target: &Arc<dyn Target>) -> PublicEndpoint {
    let endpoint = nodes[at].gateway.bind_endpoint(http("app.test"), target.clone()).await.unwrap();
    note_at(nodes, at, &[0, 1, 2]);
    endpoint
}

/// The same with a policy.
async fn publish_with(
    nodes: &[Node; 3],
    at: usize,
    policy: &Value,
    target: &Arc<dyn Target>,
) -> PublicEndpoint {
    let endpoint = nodes[at].gateway.bind_endpoint(policed(policy), target.clone()).await.unwrap();
    note_at(nodes, at, &[0, 1, 2]);
    endpoint
}

/// An endpoint with a policy.
fn policed(policy: &Value) -> EndpointSpec {
    let value = Some(policy.to_string());
    let traffic_policy = Some(TrafficPolicyDocument { enabled: None, value });
    let options = EndpointOptions { traffic_policy, ..EndpointOptions::default() };
    EndpointSpec { options, ..http("app.test") }
}

/// Lets nodes know that another one has the host.
fn note_at(nodes: &[Node; 3], at: usize, knowing: &[usize]) {
    let key = EndpointKey::http("app.test", 80);
    let tunnel = TunnelDocument {
        id: format!("tn_{at}"),
        owner: RowOwner { node_id: id(at), epoch: 1 },
        endpoint: Some(EndpointRow { key, ..EndpointRow::default() }),
        ..TunnelDocument::default()
    };
    for node in knowing.iter().filter(|node| **node != at) {
        let row = (tunnel.id.clone(), Some(tunnel.clone()));
        nodes[*node].directory.record_rows([], [row], Instant::now(), 0);
    }
}

/// Lets a request in only once, and then does something.
fn once(action: &Value) -> Value {
    let config = json!({"name": "once", "algorithm": "sliding_window", "capacity": 1, "rate": "60s",
        "bucket_key": ["req.host"]});
    json!({"on_http_request": [{"actions": [{"type": "rate-limit", "config": config}, action]}]})
}

/// A page in place of the 404 of the service.
fn custom_page() -> Value {
    json!({"on_http_response": [{
        "expressions": ["res.status_code == 404"],
        "actions": [{"type": "custom-response", "config": {"status_code": 418}}],
    }]})
}

/// The status that a visitor of a node gets who speaks HTTP/2.
async fn visit_http2(node: &Node, method: Method) -> String {
    let mut roots = RootCertStore::empty();
    let authority = node.gateway.authority().pem();
    roots.add(CertificateDer::from_pem_slice(authority.as_bytes()).unwrap()).unwrap();
    let mut config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec()];
    let stream = TcpStream::connect(node.gateway.https_address().unwrap()).await.unwrap();
    let name = ServerName::try_from("app.test").unwrap();
    let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await.unwrap();
    let (mut client, connection) = h2::client::handshake(stream).await.unwrap();
    tokio::spawn(connection);
    let request = Request::builder().method(method).uri("https://app.test/a").body(()).unwrap();
    let (response, _) = client.send_request(request, true).unwrap();
    response.await.unwrap().status().as_str().to_owned()
}

/// The same for each way that a request goes.
async fn visits(node: &Node, way: usize, method: Method) -> String {
    // The second takes the full path.
    let more = match way {
        0 => "",
        1 => "te: trailers\r\n",
        _ => return visit_http2(node, method).await,
    };
    let request = format!("{method} /a {VERSION}\r\nhost: app.test\r\n{more}connection: close\r\n");
    let length = if method == Method::POST { "content-length: 0\r\n" } else { "" };
    status(&visit(node, &format!("{request}{length}\r\n")).await).to_owned()
}

#[tokio::test]
async fn what_may_be_repeated_goes_to_another_node_when_one_is_lost() {
    let nodes = nodes_of([PROTOCOL_VERSION; 3]).await;
    let (stays, lost) = (upstream(true).await, upstream(false).await);
    let _stays = publish_at(&nodes, 1, &stays.target).await;
    let _lost = publish_at(&nodes, 2, &lost.target).await;

    for way in 0..3 {
        for (method, expected) in [(Method::GET, "204"), (Method::POST, "502")] {
            let before = stays.requests.load(Ordering::SeqCst);
            while nodes[0].peers.session_status().len() < 2 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            let losing = async {
                lost.came.acquire().await.unwrap().forget();
                nodes[0].peers.linker.sessions.get(&id(2)).unwrap().mux.close();
            };
            let visiting = visits(&nodes[0], way, method.clone());
            let visited =
                tokio::time::timeout(LINK_TIMEOUT, async { tokio::join!(visiting, losing).0 });

            assert_eq!(visited.await.unwrap(), expected, "{method} by way {way}");
            let repeated = stays.requests.load(Ordering::SeqCst) - before;
            assert_eq!(repeated, usize::from(method == Method::GET), "{method} by way {way}");
        }
    }
    assert_eq!(lost.requests.load(Ordering::SeqCst), 6);
}

#[tokio::test]
async fn what_a_node_is_lost_with_is_served_here_if_the_agent_has_come_here() {
    let nodes = nodes_of([PROTOCOL_VERSION; 3]).await;
    let (here, lost) = (upstream(true).await, upstream(false).await);
    let _lost = publish_at(&nodes, 2, &lost.target).await;

    let losing = async {
        lost.came.acquire().await.unwrap().forget();
        let here =
            nodes[0].gateway.bind_endpoint(http("app.test"), here.target.clone()).await.unwrap();
        nodes[0].peers.linker.sessions.get(&id(2)).unwrap().mux.close();
        here
    };
    let (visited, _endpoint) = tokio::join!(visits(&nodes[0], 0, Method::GET), losing);

    assert_eq!(visited, "204");
    assert_eq!(here.requests.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn an_agent_that_has_left_a_node_is_found_at_another() {
    let nodes = nodes_of([PROTOCOL_VERSION; 3]).await;
    let (stays, left) = (upstream(true).await, upstream(true).await);
    let _stays = publish_at(&nodes, 1, &stays.target).await;
    let endpoint = publish_at(&nodes, 2, &left.target).await;

    // The first node does not know it yet.
    endpoint.retarget(None);

    for way in 0..3 {
        let began = Instant::now();
        assert_eq!(visits(&nodes[0], way, Method::GET).await, "204", "way {way}");
        assert!(began.elapsed() < Duration::from_secs(2), "nobody waits for the agent there");
    }
    assert_eq!(left.requests.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn no_page_of_a_policy_hides_that_an_agent_has_left_a_node() {
    for is_known_there in [true, false] {
        let nodes = nodes_of([PROTOCOL_VERSION; 3]).await;
        let (stays, left) = (upstream(true).await, upstream(true).await);
        let _stays =
            nodes[1].gateway.bind_endpoint(http("app.test"), stays.target.clone()).await.unwrap();
        note_at(&nodes, 1, if is_known_there { &[0, 2] } else { &[0] });
        let endpoint = publish_with(&nodes, 2, &custom_page(), &left.target).await;

        endpoint.retarget(None);

        for way in 0..3 {
            assert_eq!(visits(&nodes[0], way, Method::GET).await, "204", "way {way}");
        }
        assert_eq!(visits(&nodes[0], 0, Method::POST).await, "418");
    }
}

#[tokio::test]
async fn the_page_of_a_policy_is_shown_if_no_node_has_the_agent() {
    let nodes = nodes_of([PROTOCOL_VERSION; 3]).await;
    let gone = upstream(true).await;
    let endpoint = publish_with(&nodes, 2, &custom_page(), &gone.target).await;

    endpoint.retarget(None);

    for way in 0..3 {
        assert_eq!(visits(&nodes[0], way, Method::GET).await, "418", "way {way}");
    }
}

#[tokio::test]
async fn rules_that_find_nothing_online_run_once_for_each_visit() {
    let missing = json!({"type": "forward-internal", "config": {"url": "https://no.internal"}});
    for way in 0..3 {
        let nodes = nodes_of([PROTOCOL_VERSION; 3]).await;
        let other = upstream(true).await;
        let _other = publish_at(&nodes, 1, &other.target).await;
        let _endpoint = publish_with(&nodes, 2, &once(&missing), &other.target).await;

        assert_eq!(visits(&nodes[0], way, Method::GET).await, "404", "way {way}");
        assert_eq!(other.requests.load(Ordering::SeqCst), 0, "way {way}");
    }
}

#[tokio::test]
async fn a_connection_that_a_policy_closes_is_closed_for_the_visitor_of_another_node() {
    let close = json!({"type": "close-connection"});
    let connect = json!({"on_tcp_connect": [{"actions": [{"type": "deny"}]}]});
    for policy in [once(&close), connect] {
        for method in [Method::GET, Method::POST] {
            for way in 0..2 {
                let nodes = nodes_of([PROTOCOL_VERSION; 3]).await;
                let other = upstream(true).await;
                let _other = publish_at(&nodes, 1, &other.target).await;
                let _endpoint = publish_with(&nodes, 2, &policy, &other.target).await;

                assert_eq!(visits(&nodes[0], way, method.clone()).await, "", "way {way}");
                assert_eq!(other.requests.load(Ordering::SeqCst), 0, "{method} by way {way}");
            }
        }
    }
}

#[tokio::test]
async fn rules_see_the_version_of_a_visitor_whose_request_a_node_was_lost_with() {
    let nodes = nodes_of([PROTOCOL_VERSION; 3]).await;
    let lost = upstream(false).await;
    let _lost = publish_at(&nodes, 2, &lost.target).await;
    let policy = json!({"on_http_request": [{
        "expressions": ["req.version == 'HTTP/2.0'"],
        "actions": [{"type": "custom-response", "config": {"status_code": 218}}],
    }]});

    let losing = async {
        lost.came.acquire().await.unwrap().forget();
        let here =
            nodes[0].gateway.bind_endpoint(policed(&policy), lost.target.clone()).await.unwrap();
        nodes[0].peers.linker.sessions.get(&id(2)).unwrap().mux.close();
        here
    };
    let (visited, _endpoint) = tokio::join!(visits(&nodes[0], 2, Method::GET), losing);

    assert_eq!(visited, "218");
}

/// An agent's session that ends with its first request.
struct EndingSession {
    came: Arc<Semaphore>,
    ends: Arc<Semaphore>,
    is_dialed: AtomicBool,
}

impl EndingSession {
    /// The session; who is told when its request has come, and what ends it.
    fn new() -> (Arc<Self>, Arc<Semaphore>, Arc<Semaphore>) {
        let (came, ends) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
        let is_dialed = AtomicBool::new(false);
        let session = Self { came: came.clone(), ends: ends.clone(), is_dialed };
        (Arc::new(session), came, ends)
    }
}

impl Target for EndingSession {
    fn key(&self) -> &str {
        "session"
    }

    fn reuse(&self) -> ConnectionReuse {
        ConnectionReuse::SameAddress
    }

    fn is_agent(&self) -> bool {
        true
    }

    fn dial<'a>(&'a self, _: &'a Visitor, _: &'a RouteRef) -> BoxFuture<'a, Result<Io, DialError>> {
        if self.is_dialed.swap(true, Ordering::SeqCst) {
            return Box::pin(std::future::ready(Err(DialError::Offline)));
        }
        let (near, mut far) = tokio::io::duplex(4096);
        let (came, ends) = (self.came.clone(), self.ends.clone());
        tokio::spawn(async move {
            far.read_buf(&mut Vec::new()).await.unwrap();
            came.add_permits(1);
            ends.acquire().await.unwrap().forget();
        });
        Box::pin(std::future::ready(Ok(Box::new(near) as Io)))
    }
}

#[tokio::test]
async fn a_request_whose_agent_is_lost_here_goes_to_the_node_that_has_it() {
    let nodes = nodes_of([PROTOCOL_VERSION; 3]).await;
    let stays = upstream(true).await;
    let _stays = publish_at(&nodes, 1, &stays.target).await;

    for (sent, (way, has_rules)) in
        [false, true].iter().flat_map(|rules| (0..3).map(move |way| (way, *rules))).enumerate()
    {
        let (session, came, ends) = EndingSession::new();
        let spec = if has_rules { policed(&custom_page()) } else { http("app.test") };
        let here = nodes[0].gateway.bind_endpoint(spec, session).await.unwrap();
        let losing = async {
            came.acquire().await.unwrap().forget();
            here.retarget(None);
            ends.add_permits(1);
            Instant::now()
        };
        let (visited, lost) = tokio::join!(visits(&nodes[0], way, Method::GET), losing);

        assert_eq!(visited, "204", "way {way}");
        assert!(lost.elapsed() < Duration::from_secs(2), "nobody waits for the agent here");
        assert_eq!(stays.requests.load(Ordering::SeqCst), sent + 1);
    }
}

#[tokio::test]
async fn an_agent_that_is_back_here_when_its_other_node_is_lost_gets_the_request() {
    let nodes = nodes_of([PROTOCOL_VERSION; 3]).await;
    let (back, lost) = (upstream(true).await, upstream(false).await);
    let _lost = publish_at(&nodes, 2, &lost.target).await;
    for way in 0..3 {
        while nodes[0].peers.session_status().len() < 2 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let (session, came, ends) = EndingSession::new();
        let here = nodes[0].gateway.bind_endpoint(http("app.test"), session).await.unwrap();
        let losing = async {
            came.acquire().await.unwrap().forget();
            here.retarget(None);
            ends.add_permits(1);
            lost.came.acquire().await.unwrap().forget();
            here.retarget(Some(back.target.clone()));
            nodes[0].peers.linker.sessions.get(&id(2)).unwrap().mux.close();
        };
        let (visited, ()) = tokio::join!(visits(&nodes[0], way, Method::GET), losing);

        assert_eq!(visited, "204", "way {way}");
        assert_eq!(back.requests.load(Ordering::SeqCst), way + 1);
    }
}
