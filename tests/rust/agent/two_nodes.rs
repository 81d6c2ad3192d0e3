//! An agent of a service with several nodes, which keeps sessions to two of them.
//!
//! Two services, each with a database of its own, stand for the nodes.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use ginnel_agent::definition::Definition;
use ginnel_agent::{Agent, AgentOptions, SessionState, Trust};
use ginnel_gateway::GatewaySettings;
use ginnel_service::{self as service, Service};

use reqwest::{Client, Method};
use serde_json::{Value, json};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::timeout;

use super::support::{PATIENCE, mirror, online, options_of};
use crate::service::support::client;

const DOMAIN: &str = "example.test";
const HOST: &str = "app.example.test";

/// What lies between an agent and nodes: connections go to one after another of `to`, and to the last of
/// it from then on.
pub struct Wire {
    pub address: SocketAddr,
    is_cut: Arc<watch::Sender<bool>>,
    connections: Arc<AtomicUsize>,
}

impl Wire {
    pub async fn to(to: &[SocketAddr]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (is_cut, connections) = (Arc::new(watch::Sender::new(false)), Arc::default());
        let (cut, count): (_, Arc<AtomicUsize>) = (is_cut.clone(), Arc::clone(&connections));
        let to = to.to_vec();
        tokio::spawn(async move {
            while let Ok((mut near, _)) = listener.accept().await {
                let number = count.fetch_add(1, Ordering::SeqCst);
                let target = to[number.min(to.len() - 1)];
                let mut cut = cut.subscribe();
                tokio::spawn(async move {
                    if *cut.borrow() {
                        return;
                    }
                    let Ok(mut far) = TcpStream::connect(target).await else { return };
                    tokio::select! {
                        _ = copy_bidirectional(&mut near, &mut far) => {}
                        _ = cut.wait_for(|is_cut| *is_cut) => {}
                    }
                });
            }
        });
        Self { address, is_cut, connections }
    }

    /// Ends all connections without a word, and brings none.
    pub fn cut(&self) {
        self.is_cut.send_replace(true);
    }

    pub fn mend(&self) {
        self.is_cut.send_replace(false);
    }
}

/// Two nodes, and a wire to each of them.
struct Nodes {
    a: Service,
    b: Service,
    wires: [Wire; 2],
    http: Client,
    local: u16,
}

impl Nodes {
    async fn start() -> Self {
        let a = Service::start(Self::options()).await.unwrap();
        let authtoken = a.authtoken().cloned();
        let mut b = Self::options();
        b.tokens.authtoken = authtoken;
        let b = Service::start(b).await.unwrap();
        assert!(a.name_node("a") && b.name_node("b"));
        let wires = [Self::wire(&a).await, Self::wire(&b).await];
        Self { a, b, wires, http: client(), local: mirror().await }
    }

    fn options() -> service::Options {
        let base_domain = Some(DOMAIN.to_owned());
        let gateway = GatewaySettings { base_domain, ..GatewaySettings::default() };
        service::Options { gateway, ..service::Options::default() }
    }

    async fn wire(node: &Service) -> Wire {
        Wire::to(&[node.agent_address().unwrap()]).await
    }

    fn agent_options(&self, addresses: &[SocketAddr]) -> AgentOptions {
        let mut options = options_of(&self.a);
        let pem = |node: &Service| node.gateway().authority().pem().as_bytes().to_vec();
        options.trust = Trust::Pem([pem(&self.a), pem(&self.b)].concat());
        options.server_addrs = addresses.iter().map(|address| (*address).into()).collect();
        options
    }

    /// An agent with sessions to both nodes.
    async fn agent(&self) -> Agent {
        let addresses = self.wires.each_ref().map(|wire| wire.address);
        let agent = Agent::start(self.agent_options(&addresses)).await.unwrap();
        has_sessions(&agent, "a b").await;
        agent
    }

    /// Starts a tunnel at the host, and waits until both nodes have it.
    async fn start_tunnel(&self, agent: &Agent) {
        start_tunnel(
            agent,
            json!({"name": "web", "proto": "http", "schemes": ["http"], "domain": HOST}),
            self.local,
        )
        .await;
        for node in [&self.a, &self.b] {
            self.answers(node, 200).await;
        }
    }

    /// What a visitor of a node gets.
    async fn visit(&self, node: &Service) -> u16 {
        let at = node.gateway().http_address().unwrap();
        let request = self.http.get(format!("http://{at}/")).header("host", HOST);
        request.send().await.map_or(0, |answer| answer.status().as_u16())
    }

    /// Waits until visitors of a node get this.
    async fn answers(&self, node: &Service, status: u16) {
        eventually(async || self.visit(node).await == status).await;
    }

    async fn call(&self, node: &Service, method: Method, path: &str) -> Value {
        let key = node.api_key().unwrap().0.clone();
        let request = self.http.request(method, format!("{}{path}", node.url()));
        let answer = request.bearer_auth(key).send().await.unwrap();
        assert!(answer.status().is_success(), "{path}: {}", answer.status());
        serde_json::from_slice(&answer.bytes().await.unwrap()).unwrap_or_default()
    }

    /// The identifiers of the sessions of a node.
    async fn sessions(&self, node: &Service) -> Vec<String> {
        let listed = self.call(node, Method::GET, "/tunnel_sessions").await;
        let sessions = listed["tunnel_sessions"].as_array().unwrap();
        sessions.iter().map(|session| session["id"].as_str().unwrap().to_owned()).collect()
    }
}

async fn start_tunnel(agent: &Agent, mut definition: Value, local: u16) {
    definition["addr"] = local.into();
    let definition = Definition::from_document(definition.as_object().unwrap()).unwrap();
    agent.start_tunnel(definition).await.unwrap();
}

/// Waits until something is so.
async fn eventually(is_so: impl AsyncFn() -> bool) {
    let looking = async {
        while !is_so().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(PATIENCE, looking).await.expect("in time");
}

fn nodes_of(state: &SessionState) -> String {
    let nodes: BTreeSet<_> = match state {
        SessionState::Online(sessions) => sessions.node_names().map(str::to_owned).collect(),
        _ => BTreeSet::new(),
    };
    nodes.into_iter().collect::<Vec<_>>().join(" ")
}

/// Waits until the agent has sessions with these nodes.
async fn has_sessions(agent: &Agent, nodes: &str) {
    let mut state = agent.watch_state();
    let so = timeout(PATIENCE, state.wait_for(|state| nodes_of(state) == nodes)).await;
    drop(so.expect("the sessions in time").unwrap());
}

/// Notes whether an agent is ever not online, until it is asked.
struct Gaps(tokio::task::JoinHandle<()>);

impl Gaps {
    fn watch(agent: &Agent) -> Self {
        let mut state = agent.watch_state();
        Self(tokio::spawn(async move {
            drop(state.wait_for(|state| !matches!(state, SessionState::Online(_))).await);
        }))
    }

    fn none(self) -> bool {
        let is_none = !self.0.is_finished();
        self.0.abort();
        is_none
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_node_takes_no_address_with_it() {
    let nodes = Nodes::start().await;
    let agent = nodes.agent().await;
    nodes.start_tunnel(&agent).await;
    let gaps = Gaps::watch(&agent);

    let all = [&nodes.a, &nodes.b];
    for (lost, stays) in [(0, 1), (1, 0), (0, 1)] {
        nodes.wires[lost].cut();
        let is_over = AtomicBool::new(false);
        let losing = async {
            has_sessions(&agent, ["a", "b"][stays]).await;
            assert_eq!(agent.list_tunnels()[0].status.as_deref(), Some("online"));
            nodes.wires[lost].mend();
            has_sessions(&agent, "a b").await;
            nodes.answers(all[lost], 200).await;
            is_over.store(true, Ordering::SeqCst);
        };
        let visiting = async {
            let mut visits = 0;
            while !is_over.load(Ordering::SeqCst) || visits < 50 {
                assert_eq!(nodes.visit(all[stays]).await, 200, "visit {visits}");
                visits += 1;
            }
        };
        tokio::join!(losing, visiting);
    }

    assert!(gaps.none(), "the agent was online all the time");
    assert_eq!(agent.reconnect_count(), 3);
    assert_eq!(agent.list_tunnels()[0].public_url.split(':').nth(1), Some("//app.example.test"));
}

#[tokio::test]
async fn behind_a_balancer_the_second_session_tries_until_it_is_at_another_node() {
    let nodes = Nodes::start().await;
    let [a, b] = [&nodes.a, &nodes.b].map(|node| node.agent_address().unwrap());
    let balancer = Wire::to(&[a, a, a, b]).await;

    let agent = Agent::start(nodes.agent_options(&[balancer.address])).await.unwrap();
    has_sessions(&agent, "a b").await;

    assert_eq!(balancer.connections.load(Ordering::SeqCst), 4);
    assert_eq!(nodes.sessions(&nodes.a).await.len(), 1);
    assert_eq!(agent.last_error(), None, "nothing went wrong");
}

#[tokio::test]
async fn a_service_that_is_one_place_gets_one_session() {
    let service = Service::start(service::Options::default()).await.unwrap();
    let address = service.agent_address().unwrap();
    let wires = [Wire::to(&[address]).await, Wire::to(&[address]).await];
    let mut options = options_of(&service);
    options.server_addrs = wires.each_ref().map(|wire| wire.address.into()).to_vec();
    let agent = Agent::start(options).await.unwrap();
    online(&agent).await;

    tokio::time::sleep(Duration::from_millis(500)).await;

    let connections = wires.each_ref().map(|wire| wire.connections.load(Ordering::SeqCst));
    assert_eq!(connections, [1, 0]);
    let SessionState::Online(sessions) = agent.session_state() else { panic!("not online") };
    assert_eq!((sessions.iter().count(), sessions.node_names().count()), (1, 0));

    // The next address is for when the first one is away.
    wires[0].cut();
    eventually(async || wires[1].connections.load(Ordering::SeqCst) == 1).await;
    online(&agent).await;
}

#[tokio::test]
async fn a_tunnel_starts_and_stops_at_both_nodes() {
    let nodes = Nodes::start().await;
    let agent = nodes.agent().await;

    nodes.start_tunnel(&agent).await;
    assert!(agent.stop_tunnel("web").await);

    for node in [&nodes.a, &nodes.b] {
        assert_eq!(nodes.visit(node).await, 404);
    }
    nodes.start_tunnel(&agent).await;
    agent.stop(Duration::from_secs(5)).await;
    for node in [&nodes.a, &nodes.b] {
        eventually(async || nodes.sessions(node).await.is_empty()).await;
    }
}

#[tokio::test]
async fn labeled_tunnels_are_bound_at_both_nodes() {
    let nodes = Nodes::start().await;
    let agent = nodes.agent().await;

    start_tunnel(&agent, json!({"name": "it", "labels": ["app=it"]}), nodes.local).await;

    let bound = async |node| {
        let listed = nodes.call(node, Method::GET, "/tunnels").await;
        let tunnels = listed["tunnels"].as_array().unwrap();
        tunnels.iter().filter(|tunnel| tunnel["labels"]["app"] == "it").count()
    };
    for node in [&nodes.a, &nodes.b] {
        eventually(async || bound(node).await == 1).await;
    }
    assert!(agent.stop_tunnel("it").await);
    for node in [&nodes.a, &nodes.b] {
        assert_eq!(bound(node).await, 0);
    }
}

#[tokio::test]
async fn a_node_that_stops_moves_its_session_alone() {
    let nodes = Nodes::start().await;
    let agent = nodes.agent().await;
    nodes.start_tunnel(&agent).await;
    let (gaps, before) = (Gaps::watch(&agent), nodes.sessions(&nodes.a).await);
    let Nodes { a, b, wires, http, local } = nodes;

    b.stop(Duration::from_secs(5)).await;

    has_sessions(&agent, "a").await;
    let b = Service::start(Nodes::options()).await.unwrap();
    let nodes = Nodes { a, b, wires, http, local };
    assert_eq!(nodes.sessions(&nodes.a).await, before);
    assert_eq!(nodes.visit(&nodes.a).await, 200);
    assert!(gaps.none());
}

#[tokio::test]
async fn a_node_that_knows_no_token_yet_does_not_end_the_agent() {
    let nodes = Nodes::start().await;
    let stranger = Service::start(Nodes::options()).await.unwrap();
    assert!(stranger.name_node("c"));
    let [first, second] = [&nodes.a, &stranger].map(|node| node.agent_address().unwrap());
    let mut options = nodes.agent_options(&[first, second]);
    options.trust = Trust::Anything;
    let wire = Wire::to(&[second]).await;
    options.server_addrs[1] = wire.address.into();
    let agent = Agent::start(options).await.unwrap();
    online(&agent).await;

    eventually(async || wire.connections.load(Ordering::SeqCst) > 2).await;

    assert_eq!(nodes_of(&agent.session_state()), "a");
    assert!(agent.last_error().unwrap().contains("authentication failed"));
    assert!(agent.refusal().is_none());
}

#[tokio::test]
async fn a_node_that_refuses_a_tunnel_does_not_take_it_offline() {
    let nodes = Nodes::start().await;
    let agent = nodes.agent().await;
    let address = nodes.b.agent_address().unwrap();
    let other = Agent::start(nodes.agent_options(&[address])).await.unwrap();
    online(&other).await;
    start_tunnel(
        &other,
        json!({"name": "it", "proto": "http", "schemes": ["http"], "domain": HOST}),
        9,
    )
    .await;

    let definition = json!({"name": "web", "proto": "http", "schemes": ["http"], "domain": HOST});
    start_tunnel(&agent, definition, nodes.local).await;
    eventually(async || agent.last_error().is_some()).await;

    assert!(agent.last_error().unwrap().starts_with("tunnel web: "), "{:?}", agent.last_error());
    assert_eq!(agent.list_tunnels()[0].status.as_deref(), Some("online"));
    assert_eq!(nodes.visit(&nodes.a).await, 200);

    other.stop(Duration::from_secs(1)).await;
    nodes.answers(&nodes.b, 200).await;
}

#[tokio::test]
async fn commands_work_from_either_node() {
    let nodes = Nodes::start().await;
    let mut agent = nodes.agent().await;
    let (gaps, kept) = (Gaps::watch(&agent), nodes.sessions(&nodes.a).await);
    let session = nodes.sessions(&nodes.b).await.remove(0);

    nodes.call(&nodes.b, Method::POST, &format!("/tunnel_sessions/{session}/restart")).await;
    eventually(async || {
        let now = nodes.sessions(&nodes.b).await;
        now.len() == 1 && now[0] != session
    })
    .await;
    assert_eq!(nodes.sessions(&nodes.a).await, kept, "the other session goes on");
    assert!(gaps.none());

    let session = nodes.sessions(&nodes.b).await.remove(0);
    nodes.call(&nodes.b, Method::POST, &format!("/tunnel_sessions/{session}/stop")).await;
    timeout(PATIENCE, agent.wait_until_ended()).await.unwrap();
    for node in [&nodes.a, &nodes.b] {
        eventually(async || nodes.sessions(node).await.is_empty()).await;
    }
}

#[tokio::test]
async fn the_status_shows_both_sessions() {
    let nodes = Nodes::start().await;
    let agent = nodes.agent().await;

    let status = nodes.http.get(format!("{}/api/status", agent.api_url().unwrap()));
    let status = status.send().await.unwrap().bytes().await.unwrap();
    let status: Value = serde_json::from_slice(&status).unwrap();

    assert_eq!(status["status"], "online");
    let legs = status["session"]["legs"].as_array().unwrap();
    assert_eq!(legs.iter().map(|leg| &leg["node"]).collect::<Vec<_>>(), ["a", "b"]);
}
