//! Agents of a cluster of nodes that `bench/cluster/scale.py` has started: what they cost its nodes and its
//! database, and how soon a change is live at all nodes.

use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ginnel_agent::definition::Definition;
use ginnel_agent::{Agent, AgentOptions, SessionState, Trust, WebAddress};
use ginnel_api::Secret;
use ginnel_base::address::HostPort;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::agents::DOMAIN;
use crate::http::{Connection, get};
use crate::load::{self, percentile};
use crate::process;
use crate::report::{Goal, Part};
use crate::subject::Client;

/// The argument by which this program measures a cluster, which it reads in JSON.
pub const IN_CLUSTER: &str = "in-cluster";
const KIB: f64 = 1024.0;
/// How many agents connect at a time at first.
const CONNECTING: usize = 32;
const CONNECT_LIMIT: Duration = Duration::from_secs(300);
/// Every session has beaten, and every node has read what there is.
const SETTLING: Duration = Duration::from_secs(15);
const AT_REST: Duration = Duration::from_secs(20);
const STORM: Duration = Duration::from_secs(15);
const RECONNECTS_PER_SECOND: usize = 100;
/// How often it is measured how soon a change is live.
const CHANGES: usize = 100;
/// The host of visitors who come to an edge.
const EDGE_HOST: &str = "edge.example.com";

/// What was started, and how much is to be measured.
#[derive(Deserialize)]
struct Cluster {
    nodes: Vec<Node>,
    agents: usize,
    /// Of all agents together.
    endpoints: usize,
    /// What prints the number of statements that the database has run.
    statements: Vec<String>,
    authtoken: String,
    api_key: String,
}

/// What a node says of itself.
#[derive(Deserialize)]
struct Node {
    process: u32,
    url: String,
    agent_addr: String,
    http_url: String,
}

impl Node {
    fn memory(&self) -> f64 {
        process::memory(self.process)
    }

    async fn visitor(&self) -> Connection {
        let address = self.http_url.trim_start_matches("http://");
        Connection::new(address).await.expect("a connection")
    }
}

pub async fn measure() {
    let said = std::io::read_to_string(std::io::stdin()).expect("a cluster");
    let cluster: Arc<Cluster> = Arc::new(serde_json::from_str(&said).expect("a cluster"));
    let mut part = Part::new("nodes");
    let mut add = |name: &str, unit, goal, figure| {
        part.add(name, unit, goal, cluster.nodes.len(), figure);
    };
    let backend = load::backend(512, true).await;
    add("memory of a node without agents", "MiB", Goal::None, cluster.other().memory() / KIB / KIB);
    let agents = connected(&cluster, &mut add).await;
    bound(&cluster, &backend, &agents, &mut add).await;
    let rate = cluster.rate_during(sleep(AT_REST)).await;
    add("statements at rest", "1/s", Goal::None, rate);
    let tunnels = tunnels_live(&cluster, &agents[0], &backend).await;
    live("a new tunnel", tunnels, &mut add);
    live("a new edge", edges_live(&cluster, &backend).await, &mut add);
    live("a changed policy of an edge", policies_live(&cluster, &backend).await, &mut add);
    let rate = cluster.rate_during(reconnect(&cluster, &agents)).await;
    let name = format!("statements under {RECONNECTS_PER_SECOND} reconnects/s");
    add(&name, "1/s", Goal::None, rate);
    println!("{}", part.json());
}

/// Adds a figure to the table.
type Add<'a> = &'a mut dyn FnMut(&str, &'static str, Goal, f64);

/// Has all agents connect, and measures what they cost where they are.
async fn connected(cluster: &Arc<Cluster>, add: Add<'_>) -> Arc<Vec<Agent>> {
    let (before, began) = (cluster.memory(), Instant::now());
    let agents = Arc::new(connect(cluster).await);
    add("all agents connected", "s", Goal::None, began.elapsed().as_secs_f64());
    sleep(SETTLING).await;
    let each = (cluster.memory() - before) / KIB / cluster.agents as f64;
    add("memory of an agent at its node", "KiB", Goal::AtMost(40.0), each);
    agents
}

/// Has all tunnels start, and measures what they cost where they are, and elsewhere: at the node without
/// agents.
async fn bound(cluster: &Cluster, backend: &str, agents: &Arc<Vec<Agent>>, add: Add<'_>) {
    let (all, other, began) = (cluster.memory(), cluster.other().memory(), Instant::now());
    start_tunnels(cluster, backend, agents).await;
    add("all tunnels started", "s", Goal::None, began.elapsed().as_secs_f64());
    sleep(SETTLING).await;
    let endpoints = cluster.endpoints as f64;
    let nodes = cluster.nodes.len() as f64;
    let (all, other) = (cluster.memory() - all, cluster.other().memory() - other);
    if cluster.nodes.len() == 1 {
        add("memory of an endpoint at its node", "KiB", Goal::AtMost(40.0), all / KIB / endpoints);
        return;
    }
    let remote = other / KIB / endpoints;
    // Each endpoint is remote at all nodes but one.
    let own = all / KIB / endpoints - remote * (nodes - 1.0);
    add("memory of an endpoint at its node", "KiB", Goal::AtMost(40.0), own);
    add("memory of an endpoint elsewhere", "KiB", Goal::AtMost(1.0), remote);
}

impl Cluster {
    /// Of all nodes together.
    fn memory(&self) -> f64 {
        self.nodes.iter().map(Node::memory).sum()
    }

    /// The node without agents, where there are several.
    fn other(&self) -> &Node {
        self.nodes.last().expect("a node")
    }

    /// The nodes that agents connect to.
    fn with_agents(&self) -> &[Node] {
        &self.nodes[..(self.nodes.len() - 1).max(1)]
    }

    fn statements(&self) -> f64 {
        let [program, arguments @ ..] = self.statements.as_slice() else { panic!("a command") };
        let said = Command::new(program).args(arguments).output().expect("it runs").stdout;
        String::from_utf8_lossy(&said).trim().parse().expect("a number")
    }

    /// How many statements a second the database runs meanwhile.
    async fn rate_during(&self, work: impl Future<Output = ()>) -> f64 {
        let (before, began) = (self.statements(), Instant::now());
        work.await;
        (self.statements() - before) / began.elapsed().as_secs_f64()
    }

    /// Those of an agent; they are spread evenly.
    fn options(&self, number: usize) -> AgentOptions {
        let nodes = self.with_agents();
        let address = &nodes[number % nodes.len()].agent_addr;
        let address = HostPort::parse(address).expect("an address");
        let mut options =
            AgentOptions::new(address, Secret(self.authtoken.clone()), Trust::Anything);
        options.web_addr = WebAddress::Off;
        options
    }

    fn client(&self) -> Client {
        let url = self.nodes[0].url.trim_start_matches("http://");
        Client::new(url.to_owned(), self.api_key.clone())
    }

    /// How long it takes until visitors get this status at each node, one node after the other.
    async fn seen_everywhere(&self, visitors: &mut [Connection], host: &str, status: u16) -> f64 {
        let began = Instant::now();
        let request = get(host, "/");
        for visitor in visitors {
            while visitor.call(&request).await.expect("a response").0 != status {
                sleep(Duration::from_millis(1)).await;
            }
        }
        began.elapsed().as_secs_f64() * 1e3
    }

    async fn visitors(&self) -> Vec<Connection> {
        let mut visitors = Vec::new();
        for node in &self.nodes {
            visitors.push(node.visitor().await);
        }
        visitors
    }
}

async fn connect(cluster: &Arc<Cluster>) -> Vec<Agent> {
    let turns = Arc::new(Semaphore::new(CONNECTING));
    let mut connecting = JoinSet::new();
    for number in 0..cluster.agents {
        let (cluster, turns) = (cluster.clone(), turns.clone());
        connecting.spawn(async move {
            let _turn = turns.acquire().await.expect("turns go on");
            let agent = Agent::start(cluster.options(number)).await.expect("an agent");
            let mut state = agent.watch_state();
            let online = state.wait_for(|state| matches!(state, SessionState::Online(_)));
            timeout(CONNECT_LIMIT, online).await.expect("it connects in time").expect("it runs");
            agent
        });
    }
    connecting.join_all().await
}

async fn start_tunnels(cluster: &Cluster, backend: &str, agents: &Arc<Vec<Agent>>) {
    let turns = Arc::new(Semaphore::new(CONNECTING));
    let mut starting = JoinSet::new();
    let each = cluster.endpoints / cluster.agents;
    for number in 0..agents.len() {
        let (agents, turns, backend) = (agents.clone(), turns.clone(), backend.to_owned());
        starting.spawn(async move {
            let _turn = turns.acquire().await.expect("turns go on");
            for tunnel in 0..each {
                start(&agents[number], &backend, &format!("a{number}-{tunnel}")).await;
            }
        });
    }
    starting.join_all().await;
}

async fn start(agent: &Agent, backend: &str, name: &str) {
    let Value::Object(definition) = json!({
        "addr": backend, "name": name, "proto": "http", "inspect": false, "schemes": ["http"],
        "domain": host(name),
    }) else {
        unreachable!("the macro makes an object")
    };
    let definition = Definition::from_document(&definition).expect("a definition");
    agent.start_tunnel(definition).await.expect("a tunnel");
}

fn host(name: &str) -> String {
    format!("{name}.{DOMAIN}")
}

fn live(what: &str, times: Vec<f64>, add: Add<'_>) {
    let name = |share| format!("{what} is live everywhere, {share}");
    add(&name("p50"), "ms", Goal::None, percentile(times.clone(), 50));
    add(&name("p99"), "ms", Goal::AtMost(1000.0), percentile(times, 99));
}

/// How soon after tunnels were acknowledged visitors reach them everywhere.
async fn tunnels_live(cluster: &Cluster, agent: &Agent, backend: &str) -> Vec<f64> {
    let (mut visitors, mut times) = (cluster.visitors().await, Vec::new());
    for number in 0..CHANGES {
        let name = format!("new{number}");
        start(agent, backend, &name).await;
        times.push(cluster.seen_everywhere(&mut visitors, &host(&name), 200).await);
    }
    times
}

/// How soon after edges were acknowledged visitors reach them everywhere.
async fn edges_live(cluster: &Cluster, backend: &str) -> Vec<f64> {
    let client = cluster.client();
    let backend = client.backend(backend).await;
    let (mut connection, mut visitors) = (client.connect().await, cluster.visitors().await);
    let mut times = Vec::new();
    for number in 0..CHANGES {
        let name = format!("{number}.{EDGE_HOST}");
        edge(&client, &mut connection, &backend, &name).await;
        times.push(cluster.seen_everywhere(&mut visitors, &name, 200).await);
    }
    times
}

/// Creates an edge with a route; gives the path of that.
async fn edge(client: &Client, connection: &mut Connection, backend: &str, host: &str) -> String {
    let body = json!({"hostports": [format!("{host}:80")]});
    let id = client.create(connection, "/edges/https", &body).await;
    let path = format!("/edges/https/{id}/routes");
    let body =
        json!({"match_type": "path_prefix", "match": "/", "backend": {"backend_id": backend}});
    let route = client.create(connection, &path, &body).await;
    format!("{path}/{route}")
}

/// How soon after the policy of a route was replaced visitors meet it everywhere.
async fn policies_live(cluster: &Cluster, backend: &str) -> Vec<f64> {
    let client = cluster.client();
    let backend = client.backend(backend).await;
    let (mut connection, mut visitors) = (client.connect().await, cluster.visitors().await);
    let route = edge(&client, &mut connection, &backend, EDGE_HOST).await;
    let mut times = Vec::new();
    for number in 0..CHANGES {
        let status = 400 + (number % 50) as u16;
        let config = json!({"status_code": status});
        let policy = json!({"inbound": [{"actions": [{"type": "deny", "config": config}]}]});
        let put = client.request("PUT", &format!("{route}/policy"), &policy);
        assert_eq!(connection.call(&put).await.expect("a response").0, 200);
        times.push(cluster.seen_everywhere(&mut visitors, EDGE_HOST, status).await);
    }
    times
}

/// Breaks so many connections of agents a second, of which each is made again at once; ends when all
/// agents are back with their tunnels.
async fn reconnect(cluster: &Cluster, agents: &[Agent]) {
    let ports = cluster.with_agents().iter().map(|node| {
        node.agent_addr.rsplit_once(':').and_then(|(_, port)| port.parse().ok()).expect("a port")
    });
    let count = RECONNECTS_PER_SECOND * STORM.as_secs() as usize;
    let mut sockets: Vec<_> = ports.flat_map(process::sockets_to).collect();
    // Those of all nodes, in turns.
    let step = (sockets.len() / count).max(1);
    sockets = sockets.into_iter().step_by(step).take(count).collect();
    let mut turns = tokio::time::interval(Duration::from_secs(1) / RECONNECTS_PER_SECOND as u32);
    for socket in &sockets {
        turns.tick().await;
        process::break_connection(*socket);
    }
    let all_back = async {
        let back = || agents.iter().filter(|agent| agent.reconnect_count() > 0 && is_online(agent));
        while back().count() < sockets.len() {
            sleep(Duration::from_millis(100)).await;
        }
    };
    timeout(CONNECT_LIMIT, all_back).await.expect("all agents come back");
}

fn is_online(agent: &Agent) -> bool {
    agent.list_tunnels().iter().all(|tunnel| tunnel.status.as_deref() == Some("online"))
}
