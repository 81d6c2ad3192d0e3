//! Several services on one database: nodes that know each other's agents.

use std::time::{Duration, Instant};

use ginnel_agent::{Agent, AgentOptions, Trust, WebAddress};
use ginnel_base::address::HostPort;
use ginnel_gateway::GatewaySettings;
use ginnel_service::{ClusterSettings, Error, Options, Service, StoreSettings};
use ginnel_store::PostgresOptions;

use reqwest::{Client, Method};
use serde_json::{Value, json};

use super::support::{Reply, client};
use crate::agent::support::{mirror, online, options_of};
use crate::engines::{PostgresServer, new_database};

/// Longer than a lease, and than anything else here.
pub(super) const PATIENCE: Duration = Duration::from_secs(40);

/// Nodes on one database, `a`, `b` and so on.
pub(super) struct Nodes {
    pub nodes: Vec<Service>,
    pub key: String,
    pub http: Client,
}

pub(super) fn options(database: &PostgresOptions, name: &str) -> Options {
    let cluster = ClusterSettings {
        node_name: Some(name.to_owned()),
        peer_addr: HostPort::parse_to_listen("127.0.0.1:0").ok(),
        ..ClusterSettings::default()
    };
    let base_domain = Some("tunnels.test".to_owned());
    Options {
        store: StoreSettings { server: Some(database.clone()), ..StoreSettings::default() },
        cluster,
        gateway: GatewaySettings { base_domain, ..GatewaySettings::default() },
        ..Options::default()
    }
}

impl Nodes {
    pub async fn start(names: &[&str]) -> Self {
        Self::on(&new_database(), names).await
    }

    pub async fn on(database: &PostgresOptions, names: &[&str]) -> Self {
        Self::with(names.iter().map(|name| options(database, name))).await
    }

    /// Nodes with their ways to the database.
    pub async fn on_each(each: &[(&str, &PostgresOptions)]) -> Self {
        Self::with(each.iter().map(|(name, database)| options(database, name))).await
    }

    pub async fn with(all: impl IntoIterator<Item = Options>) -> Self {
        let mut nodes = Vec::new();
        for options in all {
            nodes.push(Service::start(options).await.unwrap());
        }
        let key = nodes[0].api_key().unwrap().0.clone();
        Self { nodes, key, http: client() }
    }

    async fn get(&self, node: usize, path: &str) -> Reply {
        get(&self.http, &self.nodes[node], &self.key, path).await
    }

    pub async fn call(&self, node: usize, method: Method, path: &str, body: Value) -> Reply {
        let url = format!("{}{path}", self.nodes[node].url());
        let request = self.http.request(method, url).bearer_auth(&self.key);
        let request = request.header("content-type", "application/json").body(body.to_string());
        let response = request.send().await.unwrap();
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        Reply { status, headers, json: body_of(response).await }
    }

    /// The members of a list of all items, as a node gives it.
    pub async fn list(&self, node: usize, path: &str, field: &str, member: &str) -> Vec<String> {
        let reply = self.get(node, path).await;
        assert_eq!(reply.status, 200, "{}", reply.json);
        let items = reply.json[field].as_array().unwrap().iter();
        items.map(|item| item[member].as_str().unwrap_or_default().to_owned()).collect()
    }

    /// Waits until a list of a node has these members.
    pub async fn until(
        &self,
        node: usize,
        (path, field, member): (&str, &str, &str),
        all: &[&str],
    ) {
        let began = Instant::now();
        loop {
            let mut found = self.list(node, path, field, member).await;
            found.sort();
            if found == all {
                return;
            }
            assert!(began.elapsed() < PATIENCE, "{path} of node {node} has {found:?}, not {all:?}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    pub async fn agent(&self, node: usize) -> Agent {
        let token = self.nodes[0].authtoken().cloned().unwrap();
        let trust = Trust::Pem(self.nodes[node].gateway().authority().pem().as_bytes().to_vec());
        let server = self.nodes[node].agent_address().map(ginnel_base::address::HostPort::from);
        let mut options = AgentOptions::new(server, token, trust);
        options.web_addr =
            WebAddress::At(ginnel_base::address::HostPort::parse_to_listen("127.0.0.1:0").unwrap());
        let agent = Agent::start(options).await.unwrap();
        online(&agent).await;
        agent
    }

    /// Asks an agent to start a tunnel; gives the status and what it says.
    pub async fn tunnel(&self, agent: &Agent, definition: Value) -> (u16, Value) {
        let url = format!("{}/api/tunnels", agent.api_url().unwrap());
        let request = self.http.post(url).header("content-type", "application/json");
        let response = request.body(definition.to_string()).send().await.unwrap();
        (response.status().as_u16(), body_of(response).await)
    }

    /// What a visitor of a node gets.
    pub async fn visit(&self, node: usize, host: &str) -> u16 {
        let at = self.nodes[node].gateway().http_address().unwrap();
        let request = self.http.get(format!("http://{at}/")).header("host", host);
        request.send().await.unwrap().status().as_u16()
    }

    pub async fn stop(self) {
        for node in self.nodes {
            node.stop(Duration::ZERO).await;
        }
    }
}

async fn get(http: &Client, node: &Service, key: &str, path: &str) -> Reply {
    let request = http.get(format!("{}{path}", node.url())).bearer_auth(key);
    let response = request.send().await.unwrap();
    let (status, headers) = (response.status().as_u16(), response.headers().clone());
    Reply { status, headers, json: body_of(response).await }
}

async fn body_of(response: reqwest::Response) -> Value {
    serde_json::from_slice(&response.bytes().await.unwrap()).unwrap_or_default()
}

const NODES: (&str, &str, &str) = ("/nodes", "nodes", "name");
const STATES: (&str, &str, &str) = ("/nodes", "nodes", "state");
pub(super) const TUNNELS: (&str, &str, &str) = ("/tunnels", "tunnels", "public_url");

#[tokio::test]
async fn every_node_shows_the_nodes_sessions_and_tunnels_of_all() {
    let nodes = Nodes::start(&["a", "b", "c"]).await;
    let agent = nodes.agent(0).await;
    let definition = json!({"name": "web", "addr": 9, "proto": "http", "schemes": ["http"],
        "hostname": "web.tunnels.test", "metadata": "mine"});
    let (status, tunnel) = nodes.tunnel(&agent, definition).await;
    assert_eq!(status, 201, "{tunnel}");
    let labeled = json!({"name": "group", "addr": 9, "labels": ["app=shop"]});
    assert_eq!(nodes.tunnel(&agent, labeled).await.0, 201);

    for node in 0..3 {
        nodes.until(node, NODES, &["a", "b", "c"]).await;
        nodes.until(node, STATES, &["alive"; 3]).await;
        let urls = nodes.list(node, "/tunnels", "tunnels", "public_url").await;
        assert_eq!(urls, ["", tunnel["public_url"].as_str().unwrap()], "newest first");
        let page = nodes.get(node, "/tunnels?limit=1").await;
        assert_eq!(page.json["tunnels"][0]["labels"], json!({"app": "shop"}));
        assert!(page.json["next_page_uri"].is_string());
        let [id] = &nodes.list(node, "/tunnel_sessions", "tunnel_sessions", "id").await[..] else {
            panic!("one session")
        };
        let session = nodes.get(node, &format!("/tunnel_sessions/{id}")).await;
        assert_eq!(session.json["ip"], "127.0.0.1");
        let ids = nodes.list(node, "/tunnels", "tunnels", "id").await;
        let shown = nodes.get(node, &format!("/tunnels/{}", ids[1])).await.json;
        assert_eq!((&shown["metadata"], &shown["proto"]), (&json!("mine"), &json!("http")));
    }
    let own = nodes.get(1, "/nodes").await.json["nodes"].as_array().unwrap().clone();
    let own: Vec<_> = own.iter().filter(|node| node["own"] == true).collect();
    assert_eq!((own.len(), &own[0]["name"]), (1, &json!("b")));
    assert!(own[0]["peer_address"].as_str().unwrap().starts_with("127.0.0.1:"), "{own:?}");

    agent.stop(Duration::ZERO).await;
    for node in 0..3 {
        nodes.until(node, TUNNELS, &[]).await;
        nodes.until(node, ("/tunnel_sessions", "tunnel_sessions", "id"), &[]).await;
    }
    nodes.stop().await;
}

#[tokio::test]
async fn a_node_may_be_reached_at_another_address_than_it_listens_on() {
    let database = new_database();
    let mut options = options(&database, "a");
    options.cluster.peer_addr = "node-a.internal:4400".parse().ok();
    options.cluster.peer_listen_addr = HostPort::parse_to_listen("127.0.0.1:0").ok();
    let service = Service::start(options).await.unwrap();
    let key = service.api_key().unwrap().0.clone();

    let nodes = get(&client(), &service, &key, "/nodes").await;

    assert_eq!(nodes.json["nodes"][0]["peer_address"], "node-a.internal:4400");
    service.stop(Duration::ZERO).await;
}

#[tokio::test]
async fn of_two_agents_on_two_nodes_one_gets_a_name() {
    let nodes = Nodes::start(&["a", "b"]).await;
    let agents = [nodes.agent(0).await, nodes.agent(1).await];
    for round in 0..50 {
        let name = format!("race-{round}");
        let definition = json!({"name": name, "addr": 9, "proto": "http", "schemes": ["http"],
            "hostname": format!("{name}.tunnels.test")});

        let (one, other) = tokio::join!(
            nodes.tunnel(&agents[0], definition.clone()),
            nodes.tunnel(&agents[1], definition.clone()),
        );

        let mut statuses = [one.0, other.0];
        statuses.sort_unstable();
        assert!(statuses[0] == 201 && statuses[1] >= 400, "{round}: {one:?} {other:?}");
        let refused = if one.0 == 201 { other.1 } else { one.1 };
        assert!(refused.to_string().contains("already online"), "{refused}");
        let (late, text) = nodes.tunnel(&agents[usize::from(one.0 == 201)], definition).await;
        assert!(late >= 400 && text.to_string().contains("already online"), "{text}");
    }
    let mut names = nodes.list(0, "/tunnels", "tunnels", "public_url").await;
    names.sort();
    names.dedup();
    assert_eq!(names.len(), 50);
    nodes.stop().await;
}

#[tokio::test]
async fn a_name_is_free_for_others_when_its_tunnel_ends() {
    let nodes = Nodes::start(&["a", "b"]).await;
    let (one, other) = (nodes.agent(0).await, nodes.agent(1).await);
    let definition = json!({"name": "web", "addr": 9, "proto": "http", "schemes": ["http"],
        "hostname": "web.tunnels.test"});
    assert_eq!(nodes.tunnel(&one, definition.clone()).await.0, 201);
    assert!(nodes.tunnel(&other, definition.clone()).await.0 >= 400);

    let url = format!("{}/api/tunnels/web", one.api_url().unwrap());
    assert_eq!(nodes.http.delete(url).send().await.unwrap().status().as_u16(), 204);

    let began = Instant::now();
    while nodes.tunnel(&other, definition.clone()).await.0 != 201 {
        assert!(began.elapsed() < PATIENCE);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    nodes.stop().await;
}

#[tokio::test]
async fn an_edge_gets_no_name_that_an_agent_of_another_node_has() {
    let nodes = Nodes::start(&["a", "b"]).await;
    let agent = nodes.agent(0).await;
    let definition = json!({"name": "web", "addr": 9, "proto": "http", "schemes": ["http"],
        "hostname": "web.tunnels.test"});
    assert_eq!(nodes.tunnel(&agent, definition).await.0, 201);

    let began = Instant::now();
    loop {
        let body = json!({"hostports": ["web.tunnels.test:80"]}).to_string();
        let url = format!("{}/edges/https", nodes.nodes[1].url());
        let request = nodes.http.post(url).bearer_auth(&nodes.key);
        let response =
            request.header("content-type", "application/json").body(body).send().await.unwrap();
        let (status, made): (_, Value) = (response.status().as_u16(), body_of(response).await);
        if made["error_code"] == "ERR_NGROK_7132" {
            break;
        }
        // What other nodes have is known a moment later.
        assert_eq!(status, 201, "{made}");
        assert!(began.elapsed() < PATIENCE, "{made}");
        let url = format!("{}/edges/https/{}", nodes.nodes[1].url(), made["id"].as_str().unwrap());
        nodes.http.delete(url).bearer_auth(&nodes.key).send().await.unwrap();
    }
    nodes.stop().await;
}

#[tokio::test]
async fn a_name_of_a_living_node_is_refused() {
    let database = new_database();
    let nodes = Nodes::on(&database, &["a"]).await;

    let refused = Service::start(options(&database, "a")).await.err().unwrap();

    assert!(matches!(&refused, Error::NodeNameTaken { name, .. } if name == "a"), "{refused}");
    assert!(refused.to_string().contains("--node-name"), "{refused}");
    nodes.stop().await;
}

#[tokio::test]
async fn a_node_that_has_stopped_gives_its_name_at_once() {
    let database = new_database();
    let nodes = Nodes::on(&database, &["a", "b"]).await;
    let agent = nodes.agent(0).await;
    let definition = json!({"name": "web", "addr": 9, "proto": "http", "schemes": ["http"]});
    assert_eq!(nodes.tunnel(&agent, definition).await.0, 201);
    let Nodes { mut nodes, key, http } = nodes;

    nodes.remove(0).stop(Duration::ZERO).await;
    let began = Instant::now();
    let again = Service::start(options(&database, "a")).await.unwrap();
    assert!(began.elapsed() < Duration::from_secs(10), "it does not wait for a lease");

    nodes.insert(0, again);
    let nodes = Nodes { nodes, key, http };
    for node in 0..2 {
        nodes.until(node, NODES, &["a", "b"]).await;
        nodes.until(node, STATES, &["alive"; 2]).await;
        nodes.until(node, TUNNELS, &[]).await;
    }
    nodes.stop().await;
}

#[tokio::test]
async fn a_node_that_ends_without_a_word_is_fenced_when_its_lease_is_over() {
    let database = new_database();
    let nodes = Nodes::on(&database, &["a", "b"]).await;
    let agent = nodes.agent(1).await;
    let definition = json!({"name": "web", "addr": 9, "proto": "http", "schemes": ["http"],
        "hostname": "web.tunnels.test"});
    assert_eq!(nodes.tunnel(&agent, definition).await.0, 201);
    let urls = nodes.list(0, "/tunnels", "tunnels", "public_url").await;
    assert_eq!(urls.len(), 1, "{urls:?}");
    let Nodes { mut nodes, key, http } = nodes;
    agent.stop(Duration::ZERO).await;

    // As after a crash: nothing is announced any more.
    drop(nodes.pop());
    let nodes = Nodes { nodes, key, http };

    nodes.until(0, STATES, &["alive", "lapsed"]).await;
    nodes.until(0, TUNNELS, &[]).await;
    nodes.stop().await;
}

#[tokio::test]
async fn a_node_that_was_fenced_announces_itself_in_a_new_epoch() {
    let database = new_database();
    let nodes = Nodes::on(&database, &["a", "b"]).await;
    let agent = nodes.agent(1).await;
    let definition = json!({"name": "web", "addr": 9, "proto": "http", "schemes": ["http"],
        "hostname": "web.tunnels.test"});
    let (_, tunnel) = nodes.tunnel(&agent, definition).await;
    let url = tunnel["public_url"].as_str().unwrap();
    let epoch = |reply: &Reply| {
        let all = reply.json["nodes"].as_array().unwrap();
        all.iter().find(|node| node["name"] == "b").map(|node| node["epoch"].as_i64().unwrap())
    };
    nodes.until(0, TUNNELS, &[url]).await;
    nodes.until(0, NODES, &["a", "b"]).await;
    let before = epoch(&nodes.get(0, "/nodes").await).unwrap();

    // As when another node took it for gone.
    let server = crate::engines::server();
    let fence =
        "UPDATE ginnel.resources SET body = replace(body, '\"fenced\":false', '\"fenced\":true')
        WHERE kind = 'node' AND body LIKE '%\"name\":\"b\"%'";
    let text = database.to_string();
    server.psql(text.rsplit('/').next().unwrap(), fence);
    assert_eq!(nodes.list(0, "/tunnels", "tunnels", "id").await, [""; 0], "its rows are void");

    nodes.until(0, TUNNELS, &[url]).await;
    let began = Instant::now();
    while epoch(&nodes.get(0, "/nodes").await).is_none_or(|epoch| epoch <= before) {
        assert!(began.elapsed() < PATIENCE);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    nodes.until(1, STATES, &["alive"; 2]).await;
    nodes.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_news_the_api_refuses_and_traffic_goes_on() {
    let server = PostgresServer::start(&["-c", "fsync=off"]);
    let database: PostgresOptions = server.address(&server.new_database()).parse().unwrap();
    let nodes = Nodes::on(&database, &["a"]).await;
    let agent = nodes.agent(0).await;
    let definition = json!({"name": "web", "addr": mirror().await, "proto": "http",
        "schemes": ["http"], "hostname": "web.tunnels.test"});
    assert_eq!(nodes.tunnel(&agent, definition).await.0, 201);
    assert_eq!(nodes.get(0, "/ip_policies").await.status, 200);

    server.kill();
    let began = Instant::now();
    let refused = loop {
        let reply = nodes.get(0, "/ip_policies").await;
        if reply.status == 503 && reply.json["msg"].as_str().unwrap_or_default().contains("news") {
            break reply;
        }
        assert!(began.elapsed() < PATIENCE, "{reply:?}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    };
    assert_eq!(refused.code(), 9728);
    assert_eq!(refused.headers["retry-after"], "2");
    let address = nodes.nodes[0].gateway().http_address().unwrap();
    let visitor = nodes.http.get(format!("http://{address}/x")).header("host", "web.tunnels.test");
    assert_eq!(visitor.send().await.unwrap().status().as_u16(), 200, "traffic goes on");

    tokio::task::block_in_place(|| server.run(&["-c", "fsync=off"]));
    let began = Instant::now();
    while nodes.get(0, "/ip_policies").await.status != 200 {
        assert!(began.elapsed() < PATIENCE);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    nodes.until(0, STATES, &["alive"]).await;
    nodes.stop().await;
}

#[tokio::test]
async fn an_agent_of_ours_has_its_tunnels_at_two_nodes() {
    let mut nodes = Nodes::start(&["a", "b"]).await;
    let addresses = nodes.nodes.iter().map(|node| node.agent_address().unwrap().into());
    let mut options = options_of(&nodes.nodes[0]);
    options.server_addrs = addresses.collect();
    let agent = Agent::start(options).await.unwrap();
    online(&agent).await;
    let definition = json!({"name": "web", "addr": mirror().await, "proto": "http",
        "schemes": ["http"], "hostname": "web.tunnels.test"});
    assert_eq!(nodes.tunnel(&agent, definition).await.0, 201);
    let labeled = json!({"name": "group", "addr": 9, "labels": ["app=shop"]});
    assert_eq!(nodes.tunnel(&agent, labeled).await.0, 201);
    let began = Instant::now();
    while nodes.list(0, "/tunnels", "tunnels", "id").await.len() != 4 {
        assert!(began.elapsed() < PATIENCE, "each tunnel at each node");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    for node in [0, 1] {
        assert_eq!(nodes.visit(node, "web.tunnels.test").await, 200);
    }

    let lost = nodes.nodes.remove(0);
    let (mut state, stopping) = (agent.watch_state(), lost.stop(Duration::ZERO));
    let visiting = async {
        for _ in 0..100 {
            assert_eq!(nodes.visit(0, "web.tunnels.test").await, 200);
        }
    };
    tokio::join!(stopping, visiting);
    let one = state.wait_for(|state| state.sessions().count() == 1);
    drop(tokio::time::timeout(PATIENCE, one).await.unwrap().unwrap());
    assert_eq!(agent.list_tunnels()[0].status.as_deref(), Some("online"));

    agent.stop(Duration::ZERO).await;
    nodes.until(0, TUNNELS, &[]).await;
    nodes.stop().await;
}

#[tokio::test]
async fn a_service_on_sqlite_is_no_node() {
    let service = Service::start(Options::default()).await.unwrap();
    let key = service.api_key().unwrap().0.clone();

    let reply = get(&client(), &service, &key, "/nodes").await;

    assert_eq!((reply.status, &reply.json["nodes"]), (200, &json!([])));
    service.stop(Duration::ZERO).await;
}

#[tokio::test]
async fn a_visitor_and_a_command_reach_an_agent_through_another_node() {
    let nodes = Nodes::start(&["a", "b"]).await;
    let agent = nodes.agent(0).await;
    let definition = json!({"name": "web", "addr": mirror().await, "proto": "http",
        "schemes": ["http"], "hostname": "web.tunnels.test"});
    assert_eq!(nodes.tunnel(&agent, definition).await.0, 201);

    let address = nodes.nodes[1].gateway().http_address().unwrap();
    let began = Instant::now();
    loop {
        let visitor =
            nodes.http.get(format!("http://{address}/")).header("host", "web.tunnels.test");
        if visitor.send().await.unwrap().status().as_u16() == 200 {
            break;
        }
        assert!(began.elapsed() < PATIENCE, "the nodes are not connected");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }

    let [id] = &nodes.list(1, "/tunnel_sessions", "tunnel_sessions", "id").await[..] else {
        panic!("one session")
    };
    let url = format!("{}/tunnel_sessions/{id}/stop", nodes.nodes[1].url());
    let stop = nodes.http.post(url).bearer_auth(&nodes.key);
    let stopped = stop.header("content-type", "application/json").body("{}").send().await.unwrap();
    let (status, said) = (stopped.status().as_u16(), body_of(stopped).await);
    assert!(status == 204 || said["error_code"] == "ERR_NGROK_804", "{status} {said}");
    nodes.stop().await;
}
