//! Nodes that are lost with requests of visitors, whose agents have a session at another node as well.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use http::{Method, Request};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::sync::Semaphore;
use tokio_rustls::TlsConnector;

use super::*;
use crate::gateway::{BoxFuture, ConnectionReuse, DialError, Io, RouteRef, Visitor};

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

/// Makes a host public at a node, and known to the first; of several nodes the last one is asked first.
async fn publish_at(nodes: &[Node; 3], at: usize, target: &Arc<dyn Target>) -> PublicEndpoint {
    let endpoint = nodes[at].gateway.bind(http("app.test"), target.clone()).await.unwrap();
    let key = EndpointKey::http("app.test", 80);
    let tunnel = TunnelDocument {
        id: format!("tn_{at}"),
        owner: RowOwner { node_id: id(at), epoch: 1 },
        endpoint: Some(EndpointRow { key, ..EndpointRow::default() }),
        ..TunnelDocument::default()
    };
    for node in nodes.iter().enumerate().filter(|(other, _)| *other != at) {
        let row = (tunnel.id.clone(), Some(tunnel.clone()));
        node.1.directory.note([], [row], Instant::now(), 0);
    }
    endpoint
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
    // The second takes the long way.
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
            while nodes[0].peers.status().len() < 2 {
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
        let here = nodes[0].gateway.bind(http("app.test"), here.target.clone()).await.unwrap();
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

/// An agent's session that ends with its first request.
struct EndingSession {
    came: Arc<Semaphore>,
    ends: Arc<Semaphore>,
    is_dialed: AtomicBool,
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

    for way in 0..3 {
        let (came, ends) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
        let session = EndingSession {
            came: came.clone(),
            ends: ends.clone(),
            is_dialed: AtomicBool::new(false),
        };
        let here = nodes[0].gateway.bind(http("app.test"), Arc::new(session)).await.unwrap();
        let losing = async {
            came.acquire().await.unwrap().forget();
            here.retarget(None);
            ends.add_permits(1);
            Instant::now()
        };
        let (visited, lost) = tokio::join!(visits(&nodes[0], way, Method::GET), losing);

        assert_eq!(visited, "204", "way {way}");
        assert!(lost.elapsed() < Duration::from_secs(2), "nobody waits for the agent here");
        assert_eq!(stays.requests.load(Ordering::SeqCst), way + 1);
    }
}
