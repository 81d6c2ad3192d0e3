//! A link that takes bytes and brings none, without a word.

use std::net::SocketAddr;
use std::time::Duration;

use ginnel_agent::{Agent, SessionState};
use ginnel_service::{self as service, Service};

use serde_json::Value;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use super::support::{PATIENCE, mirror, online, options_of};
use crate::service::support::client;

const SHORT: Duration = Duration::from_millis(500);
const LONG: Duration = Duration::from_secs(600);

/// What lies between an agent and its service.
struct Wire {
    address: SocketAddr,
    /// How many connections there were when those became silent.
    silent: watch::Sender<usize>,
    connections: watch::Receiver<usize>,
}

impl Wire {
    async fn to(service: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (silent, hush) = watch::channel(0);
        let (count, connections) = watch::channel(0);
        tokio::spawn(async move {
            while let Ok((mut near, _)) = listener.accept().await {
                let mut hush = hush.clone();
                count.send_modify(|count| *count += 1);
                let number = *count.borrow();
                tokio::spawn(async move {
                    let mut far = TcpStream::connect(service).await.unwrap();
                    tokio::select! {
                        _ = copy_bidirectional(&mut near, &mut far) => return,
                        () = async { drop(hush.wait_for(|silent| *silent >= number).await) } => {}
                    }
                    // Nobody is told: both connections stay open.
                    std::future::pending::<()>().await;
                });
            }
        });
        Self { address, silent, connections }
    }

    /// Brings nothing any more over the connections that there are.
    fn swallow(&self) {
        self.silent.send_replace(*self.connections.borrow());
    }
}

/// A service and an agent with a wire between them, and a tunnel.
struct Linked {
    service: Service,
    agent: Agent,
    wire: Wire,
    url: String,
}

impl Linked {
    async fn with(service_beat: Duration, agent_beat: Duration) -> Self {
        let agents = service::AgentSettings {
            heartbeat_interval: service_beat,
            heartbeat_tolerance: service_beat * 2,
            ..service::AgentSettings::default()
        };
        let options = service::Options { agents, ..service::Options::default() };
        let service = Service::start(options).await.unwrap();
        let wire = Wire::to(service.agent_address().unwrap()).await;
        let mut options = options_of(&service);
        options.server_addrs = vec![wire.address.into()];
        options.heartbeat_interval = agent_beat;
        options.heartbeat_tolerance = agent_beat * 2;
        let agent = Agent::start(options).await.unwrap();
        online(&agent).await;
        let definition = serde_json::json!({
            "name": "web", "proto": "http", "addr": mirror().await
        });
        let definition = definition.as_object().unwrap();
        let definition = ginnel_agent::definition::Definition::from_document(definition).unwrap();
        let url = agent.start_tunnel(definition).await.unwrap().public_url;
        Self { service, agent, wire, url }
    }

    async fn sessions(&self) -> usize {
        let key = self.service.api_key().cloned().unwrap().0;
        let listed = client().get(format!("{}/tunnel_sessions", self.service.url()));
        let listed = listed.bearer_auth(key).send().await.unwrap().bytes().await.unwrap();
        let listed: Value = serde_json::from_slice(&listed).unwrap();
        listed["tunnel_sessions"].as_array().unwrap().len()
    }
}

#[tokio::test]
async fn an_agent_notices_a_black_hole_and_gets_its_address_back() {
    let linked = Linked::with(LONG, SHORT).await;
    let mut state = linked.agent.watch_state();

    linked.wire.swallow();
    let asleep = Instant::now();
    let lost = state.wait_for(|state| !matches!(state, SessionState::Online(_)));
    drop(timeout(PATIENCE, lost).await.expect("the loss to be noticed").unwrap());
    // Heartbeats that nobody has set need 25 s; what a busy machine adds is not ours.
    assert!(asleep.elapsed() < Duration::from_secs(20), "{:?}", asleep.elapsed());
    online(&linked.agent).await;

    // For the service the old session is still alive, and gives way.
    let answer = client().get(format!("{}/back", linked.url)).send().await.unwrap();
    assert!(answer.text().await.unwrap().starts_with("GET /back HTTP/1.1\r\n"));
    assert_eq!(linked.sessions().await, 1);
}

#[tokio::test]
async fn a_service_notices_a_black_hole_and_says_that_nobody_is_there() {
    let linked = Linked::with(SHORT, LONG).await;
    assert_eq!(linked.sessions().await, 1);

    linked.wire.swallow();
    let gone = async {
        while linked.sessions().await > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(PATIENCE, gone).await.expect("the loss to be noticed");

    assert_eq!(client().get(&linked.url).send().await.unwrap().status(), 404);
}

#[tokio::test]
async fn a_visitor_inside_a_black_hole_gets_an_answer() {
    let linked = Linked::with(SHORT, LONG).await;

    linked.wire.swallow();
    let (got, posted) = tokio::join!(
        timeout(PATIENCE, client().get(&linked.url).send()),
        timeout(PATIENCE, client().post(&linked.url).body("once").send()),
    );

    // What may be repeated is, and nobody is there any more.
    assert_eq!(got.expect("an answer").unwrap().status(), 404);
    assert_eq!(posted.expect("an answer").unwrap().status(), 502);
}
