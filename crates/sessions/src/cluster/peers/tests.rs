//! Two nodes in one process, each with a gateway of its own, and visitors who come to the wrong one.

mod lost;

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use ginnel_api::EndpointOptions;
use ginnel_api::endpoint_options::{BasicAuth, BasicAuthCredential};
use ginnel_api::id::prefix;
use ginnel_base::address::HostPort;
use ginnel_gateway::tls::authority::LocalAuthority;
use ginnel_gateway::upstream::static_target::StaticTarget;
use ginnel_gateway::{
    EndpointSpec, EventDelivery, Gateway, GatewaySettings, Proto, PublicEndpoint, Target,
};
use ginnel_net::{
    ConnectionCaps, ConnectionLimit, ConnectionTask, Listener, ProxyProtocol, Shutdown,
};

use super::epochs::{EpochQuestion, EpochResponse, query_epoch};
use super::{BoundPeerListener, CommandFailure, PeerServices, Peers};
use crate::agents::{AgentCommand, Registry};
use crate::cluster::directory::Directory;
use crate::cluster::node::{NodeDocument, NodeRecord, NodeState, PROTOCOL_VERSION};
use crate::cluster::rows::{EndpointRow, RowOwner};
use crate::cluster::{EndpointKey, TunnelDocument};

/// How long the nodes may take to find each other.
const LINK_TIMEOUT: Duration = Duration::from_secs(10);

/// What servers speak.
const VERSION: &str = "HTTP/1.1";

struct Node {
    gateway: Gateway,
    directory: Arc<Directory>,
    peers: Peers,
}

/// Two nodes that are connected: visitors come to the first, agents are at the second.
async fn two_nodes() -> [Node; 2] {
    nodes_of([PROTOCOL_VERSION; 2]).await
}

/// Nodes that are connected, and say that they speak these versions.
async fn nodes_of<const N: usize>(versions: [u32; N]) -> [Node; N] {
    let authority = LocalAuthority::open(None).unwrap();
    let mut bound = Vec::new();
    for _ in versions {
        bound.push(
            BoundPeerListener::bind(&HostPort::parse_to_listen("127.0.0.1:0").unwrap())
                .await
                .unwrap(),
        );
    }
    let rows = bound.iter().zip(versions).enumerate();
    let rows: Vec<_> = rows.map(|(at, (it, version))| row(at, it, version)).collect();
    let mut nodes = Vec::new();
    for (at, listener) in bound.into_iter().enumerate() {
        let gateway = Gateway::start(GatewaySettings::default(), authority.clone()).await.unwrap();
        let directory = Arc::new(Directory::new(&id(at)));
        let known = rows.iter().map(|row| (row.id.clone(), Some(row.clone())));
        directory.record_rows(known, [], Instant::now(), 0);
        let services =
            PeerServices { gateway: gateway.clone(), registry: Arc::default(), cluster: None };
        let peers = listener.start_accepting(directory.clone(), &authority, services).unwrap();
        gateway.find_hosts_in(peers.routing());
        nodes.push(Node { gateway, directory, peers });
    }
    let nodes: [Node; N] = nodes.try_into().ok().unwrap();
    let linked = async {
        while nodes.iter().any(|node| node.peers.session_status().len() < N - 1) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(LINK_TIMEOUT, linked).await.unwrap();
    nodes
}

fn id(at: usize) -> String {
    format!("{}_{at}", prefix::NODE)
}

fn row(at: usize, listener: &BoundPeerListener, protocol_version: u32) -> NodeDocument {
    let record = NodeRecord {
        name: format!("node-{at}"),
        epoch: 1,
        peer_address: listener.public_address(),
        protocol_version,
        ..NodeRecord::default()
    };
    NodeDocument { id: id(at), record, ..NodeDocument::default() }
}

/// Makes a host public at the second node, and known to the first.
async fn publish(nodes: &[Node; 2], spec: EndpointSpec, target: Arc<dyn Target>) -> PublicEndpoint {
    let port = if spec.proto == Proto::Https { 443 } else { 80 };
    let key = EndpointKey::http(spec.host.as_deref().unwrap(), port);
    let endpoint = nodes[1].gateway.bind_endpoint(spec, target).await.unwrap();
    let tunnel = TunnelDocument {
        id: "tn_1".to_owned(),
        owner: RowOwner { node_id: id(1), epoch: 1 },
        endpoint: Some(EndpointRow { key, ..EndpointRow::default() }),
        ..TunnelDocument::default()
    };
    nodes[0].directory.record_rows([], [(tunnel.id.clone(), Some(tunnel))], Instant::now(), 0);
    endpoint
}

fn http(host: &str) -> EndpointSpec {
    EndpointSpec { host: Some(host.to_owned()), ..EndpointSpec::any(Proto::Http) }
}

/// A server of the process.
async fn server(
    serve: impl Fn(TcpStream) -> ConnectionTask + Send + Sync + 'static,
) -> Arc<dyn Target> {
    let socket = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let caps = ConnectionCaps { total: 99, per_address: 99, reserved: 0 };
    let limit = ConnectionLimit::new("nobody", caps, |_| false);
    let (shutdown, proxies) = (Shutdown::default(), ProxyProtocol::default());
    let accepting = Listener::serve(socket, limit, &shutdown, proxies, move |connection, _| {
        serve(connection.stream)
    });
    let listener = accepting.unwrap();
    let address = listener.address().to_string();
    // It ends with the process.
    std::mem::forget((listener, shutdown));
    Arc::new(StaticTarget::new(address.parse().unwrap(), None).unwrap())
}

/// Switches to another protocol, which repeats what it hears.
async fn echo(mut stream: TcpStream) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    let switch = format!("{VERSION} 101 Switching\r\nconnection: upgrade\r\nupgrade: echo\r\n\r\n");
    stream.write_all(switch.as_bytes()).await.unwrap();
    let (mut reading, mut writing) = stream.split();
    tokio::io::copy(&mut reading, &mut writing).await.unwrap();
}

/// A server that answers each request with its head.
async fn mirror() -> Arc<dyn Target> {
    server(|stream| Box::pin(reflect(stream))).await
}

async fn reflect(mut stream: TcpStream) {
    let mut read = Vec::new();
    while stream.read_buf(&mut read).await.is_ok_and(|more| more > 0) {
        let Some(end) = read.windows(4).position(|four| four == b"\r\n\r\n") else { continue };
        let head: Vec<u8> = read.drain(..end + 4).collect();
        let answer = format!("{VERSION} 200 OK\r\ncontent-length: {}\r\n\r\n", head.len());
        let written = stream.write_all(&[answer.into_bytes(), head].concat()).await;
        if written.is_err() {
            return;
        }
    }
}

/// What a visitor of a node gets.
async fn visit(node: &Node, request: &str) -> String {
    visit_gateway(&node.gateway, request).await
}

async fn visit_gateway(gateway: &Gateway, request: &str) -> String {
    let mut stream = TcpStream::connect(gateway.http_address().unwrap()).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    tokio::time::timeout(LINK_TIMEOUT, stream.read_to_end(&mut answer)).await.unwrap().unwrap();
    String::from_utf8(answer).unwrap()
}

fn get(host: &str, more: &str) -> String {
    format!("GET /a?b=c {VERSION}\r\nhost: {host}\r\n{more}connection: close\r\n\r\n")
}

/// The status of a response.
fn status(answer: &str) -> &str {
    answer.split(' ').nth(1).unwrap_or_default()
}

fn count(text: &str, part: &str) -> usize {
    text.to_ascii_lowercase().matches(part).count()
}

#[tokio::test]
async fn a_visitor_of_the_wrong_node_is_served_as_if_it_were_the_right_one() {
    let nodes = two_nodes().await;
    let _endpoint = publish(&nodes, http("app.test"), mirror().await).await;

    // The second takes the full path: visitors must not name another visitor.
    for more in ["", "x-forwarded-for: 192.0.2.66\r\n", "te: trailers\r\n"] {
        let there = visit(&nodes[1], &get("app.test", more)).await;
        let here = visit(&nodes[0], &get("app.test", more)).await;

        assert_eq!(status(&here), "200", "{here}");
        assert_eq!(count(&here, "x-forwarded-for: 127.0.0.1\r\n"), 1, "{here}");
        assert_eq!(count(&here, "192.0.2.66"), 0, "{here}");
        for name in ["x-forwarded-for", "x-forwarded-proto", "x-forwarded-host", "cdn-loop"] {
            assert_eq!(count(&here, name), count(&there, name), "{name}: {here}\n{there}");
        }
    }
    assert_eq!(status(&visit(&nodes[0], &get("other.test", "")).await), "404");
}

#[tokio::test]
async fn a_node_learns_from_another_that_its_epoch_and_its_endpoints_are_gone() {
    let nodes = two_nodes().await;
    let session = nodes[0].peers.linker.sessions.get(&id(1)).unwrap();
    let (kept, lost) = (EndpointKey::port(2000), EndpointKey::http("a.test", 443));
    let question = |version| EpochQuestion {
        owner: RowOwner { node_id: id(0), epoch: 1 },
        version,
        binds: vec![("mine".to_owned(), kept.clone()), ("gone".to_owned(), lost.clone())],
        ..EpochQuestion::default()
    };
    let note = |node: Option<NodeDocument>, version| {
        let tunnel = |id: &str, bind_id: &str, key: &EndpointKey| TunnelDocument {
            id: id.to_owned(),
            owner: RowOwner { node_id: format!("{}_2", prefix::NODE), epoch: 3 },
            bind_id: bind_id.to_owned(),
            endpoint: Some(EndpointRow { key: key.clone(), ..EndpointRow::default() }),
            ..TunnelDocument::default()
        };
        let record = NodeRecord { epoch: 3, ..NodeRecord::default() };
        let third = format!("{}_2", prefix::NODE);
        let third = NodeDocument { id: third, record, ..NodeDocument::default() };
        // The agent of `mine` has a second session, at that node.
        let tunnels = [tunnel("tn_1", "mine", &kept), tunnel("tn_2", "other", &lost)];
        let tunnels = tunnels.map(|row| (row.id.clone(), Some(row)));
        let nodes_of_database = [(id(0), node), (third.id.clone(), Some(third))];
        nodes[1].directory.record_rows(nodes_of_database, tunnels, Instant::now(), version);
    };
    let first = nodes[1].directory.find_node(&id(0)).unwrap();
    let row = |epoch, fenced| NodeDocument {
        id: id(0),
        record: NodeRecord { epoch, ..(*first.record).clone() },
        state: NodeState { fenced, ..first.state },
        ..NodeDocument::default()
    };
    let nothing = EpochResponse::default();

    note(Some(row(1, false)), 5);
    assert_eq!(query_epoch(&session, &question(5)).await.unwrap(), nothing, "it is in its epoch");
    for gone in [Some(row(2, true)), Some(row(4, false)), None] {
        note(gone, 6);
        let known = query_epoch(&session, &question(6)).await.unwrap();
        assert_eq!(known, EpochResponse { is_over: true, lost: vec!["gone".to_owned()] });
        let newer = query_epoch(&session, &question(7)).await.unwrap();
        assert_eq!(newer, nothing, "who knows less says nothing");
    }
}

#[tokio::test]
async fn a_visitor_who_comes_before_all_routes_are_known_waits() {
    let settings = GatewaySettings { opens_later: true, ..GatewaySettings::default() };
    let gateway = Gateway::start(settings, LocalAuthority::open(None).unwrap()).await.unwrap();
    let early = gateway.clone();
    let visitor = tokio::spawn(async move { visit_gateway(&early, &get("app.test", "")).await });
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(!visitor.is_finished());

    let _endpoint = gateway.bind_endpoint(http("app.test"), mirror().await).await.unwrap();
    gateway.open_to_visitors();

    assert_eq!(status(&visitor.await.unwrap()), "200");
}

#[tokio::test]
async fn a_visitor_waits_while_the_way_to_a_node_is_made_anew() {
    let nodes = two_nodes().await;
    let _endpoint = publish(&nodes, http("app.test"), mirror().await).await;
    let session = nodes[0].peers.linker.sessions.get(&id(1)).unwrap();

    session.mux.close();
    let answer = visit(&nodes[0], &get("app.test", "")).await;

    assert_eq!(status(&answer), "200", "{answer}");
    assert!(session.mux.is_ended());
}

#[tokio::test]
async fn what_the_endpoint_wants_done_is_done_where_the_agent_is() {
    let nodes = two_nodes().await;
    let credentials = vec![BasicAuthCredential::new("ali", "open sesame")];
    let basic_auth = Some(BasicAuth { credentials });
    let options = EndpointOptions { basic_auth, ..EndpointOptions::default() };
    let spec = EndpointSpec { options, ..http("app.test") };
    let _endpoint = publish(&nodes, spec, mirror().await).await;
    let mut events = nodes[0].gateway.subscribe_events();

    let there = visit(&nodes[1], &get("app.test", "")).await;
    let here = visit(&nodes[0], &get("app.test", "")).await;

    assert_eq!(status(&here), "401", "{here}");
    assert_eq!(count(&here, "www-authenticate"), 1, "{here}");
    assert_eq!(count(&here, "error-code"), count(&there, "error-code"), "{here}\n{there}");
    // The first node asks the second for its events a moment after somebody listens.
    let delivery = async {
        loop {
            visit(&nodes[0], &get("app.test", "")).await;
            let next = tokio::time::timeout(Duration::from_millis(50), events.next()).await;
            if let Ok(Some(EventDelivery::Event(event))) = next {
                return event;
            }
        }
    };
    let event = tokio::time::timeout(LINK_TIMEOUT, delivery).await.unwrap();
    assert_eq!(event.node.as_deref(), Some("node-1"), "one event, of whoever serves");
    assert_eq!((event.status, event.host.as_deref()), (Some(401), Some("app.test")));
}

#[tokio::test]
async fn a_visitor_is_led_on_once_at_most() {
    let nodes = two_nodes().await;
    let endpoint = publish(&nodes, http("app.test"), mirror().await).await;
    // Each node takes the other for the one that has the agent.
    let tunnel = TunnelDocument {
        id: "tn_2".to_owned(),
        owner: RowOwner { node_id: id(0), epoch: 1 },
        endpoint: Some(EndpointRow {
            key: EndpointKey::http("app.test", 80),
            ..EndpointRow::default()
        }),
        ..TunnelDocument::default()
    };
    nodes[1].directory.record_rows([], [(tunnel.id.clone(), Some(tunnel))], Instant::now(), 0);
    drop(endpoint);

    assert_eq!(status(&visit(&nodes[0], &get("app.test", "")).await), "404");
}

#[tokio::test]
async fn an_agent_that_is_gone_here_is_found_where_it_is_now() {
    let nodes = two_nodes().await;
    let endpoint = publish(&nodes, http("app.test"), mirror().await).await;
    let left = nodes[0].gateway.bind_endpoint(http("app.test"), mirror().await).await.unwrap();
    let is_from = |answer: &str| status(answer) == "200";

    assert!(is_from(&visit(&nodes[0], &get("app.test", "")).await));
    left.retarget(None);
    assert!(is_from(&visit(&nodes[0], &get("app.test", "")).await));
    endpoint.retarget(None);
    assert_eq!(status(&visit(&nodes[0], &get("app.test", "")).await), "404");
}

#[tokio::test]
async fn a_name_of_another_node_comes_before_a_wildcard_here() {
    let nodes = two_nodes().await;
    let _endpoint = publish(&nodes, http("app.test"), mirror().await).await;
    let nobody = server(|stream| Box::pin(async move { drop(stream) })).await;
    let wild = nodes[0].gateway.bind_endpoint(http("*.test"), nobody).await.unwrap();

    assert_eq!(status(&visit(&nodes[0], &get("app.test", "")).await), "200");
    assert_eq!(status(&visit(&nodes[0], &get("other.test", "")).await), "502", "its own");
    drop(wild);
    let exact = nodes[0].gateway.bind_offline(http("other.test")).await.unwrap();
    assert_eq!(status(&visit(&nodes[0], &get("other.test", "")).await), "404");
    drop(exact);
}

#[tokio::test]
async fn a_node_that_takes_no_visitors_serves_those_of_others_to_the_end() {
    let nodes = two_nodes().await;
    let _endpoint = publish(&nodes, http("app.test"), mirror().await).await;
    assert_eq!(status(&visit(&nodes[0], &get("app.test", "")).await), "200");

    nodes[1].gateway.stop(Duration::ZERO).await;
    for _ in 0..9 {
        assert_eq!(status(&visit(&nodes[0], &get("app.test", "")).await), "200");
    }

    nodes[1].gateway.end_relays().await;
    assert_ne!(status(&visit(&nodes[0], &get("app.test", "")).await), "200");
}

#[tokio::test]
async fn another_protocol_goes_on_through_both_nodes() {
    let nodes = two_nodes().await;
    let target = server(|stream| Box::pin(echo(stream))).await;
    let _endpoint = publish(&nodes, http("app.test"), target).await;
    let mut stream = TcpStream::connect(nodes[0].gateway.http_address().unwrap()).await.unwrap();
    let request = format!(
        "GET / {VERSION}\r\nhost: app.test\r\nconnection: upgrade\r\nupgrade: echo\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }

    stream.write_all(b"hello").await.unwrap();

    let mut echo = [0; 5];
    stream.read_exact(&mut echo).await.unwrap();
    assert_eq!(status(str::from_utf8(&head).unwrap()), "101");
    assert_eq!(&echo, b"hello");
}

#[tokio::test]
async fn a_command_for_an_agent_that_is_not_there_says_so() {
    let nodes = two_nodes().await;
    let send = |node_id: String| {
        let peers = &nodes[0].peers;
        async move { peers.send_command(&node_id, "ts_1", AgentCommand::Stop).await }
    };

    assert_eq!(send(id(1)).await, Err(CommandFailure::Gone));
    assert!(matches!(send(id(7)).await, Err(CommandFailure::Unreachable(_))));
}

#[tokio::test]
async fn nodes_of_two_versions_speak_the_lower_one() {
    let nodes = nodes_of([PROTOCOL_VERSION, PROTOCOL_VERSION + 1]).await;
    let _endpoint = publish(&nodes, http("app.test"), mirror().await).await;

    assert_eq!(status(&visit(&nodes[0], &get("app.test", "")).await), "200");
    assert_eq!(nodes[0].peers.session_status()[0].protocol_version, PROTOCOL_VERSION);
}

#[tokio::test]
async fn who_has_no_certificate_of_the_authority_is_not_let_in() {
    let authority = LocalAuthority::open(None).unwrap();
    let listener =
        BoundPeerListener::bind(&HostPort::parse_to_listen("127.0.0.1:0").unwrap()).await.unwrap();
    let (address, known) = (listener.public_address(), row(2, &listener, PROTOCOL_VERSION));
    let gateway = Gateway::start(GatewaySettings::default(), authority.clone()).await.unwrap();
    let directory = Arc::new(Directory::new(&id(2)));
    let services = PeerServices {
        gateway: gateway.clone(),
        registry: Arc::new(Registry::default()),
        cluster: None,
    };
    let peers = listener.start_accepting(directory, &authority, services).unwrap();

    let strangers = LocalAuthority::open(None).unwrap();
    let other =
        BoundPeerListener::bind(&HostPort::parse_to_listen("127.0.0.1:0").unwrap()).await.unwrap();
    let theirs = Arc::new(Directory::new(&id(1)));
    // It has the smaller identifier, so it is the one that connects.
    theirs.record_rows([(known.id.clone(), Some(known))], [], Instant::now(), 0);
    let services = PeerServices { gateway, registry: Arc::new(Registry::default()), cluster: None };
    let stranger = other.start_accepting(theirs, &strangers, services).unwrap();
    let mut plain = TcpStream::connect(address).await.unwrap();
    plain.write_all(get("app.test", "").as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    let read = plain.read_to_end(&mut answer).await;

    assert!(read.is_err() || !answer.starts_with(b"HTTP"));
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert!(peers.session_status().is_empty() && stranger.session_status().is_empty());
}
