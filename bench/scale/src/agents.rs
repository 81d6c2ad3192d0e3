//! Agents: what an idle session costs, and what becomes of visitors when all of them come back at once.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ginnel_agent::definition::Definition;
use ginnel_agent::{Agent, AgentOptions, SessionState, WebAddress};
use ginnel_base::address::HostPort;
use serde_json::{Map, Value, json};
use tokio::sync::{Semaphore, oneshot};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::http::get;
use crate::load::{self, Requests};
use crate::process;
use crate::report::{Goal, Part};
use crate::subject::Subject;

const KIB: f64 = 1024.0;
/// The domain of the tunnels.
pub const DOMAIN: &str = "scale.test";
/// Agents that stay connected while the others lose their connections.
const STEADY: usize = 20;
/// How many agents connect at a time at first.
const CONNECTING: usize = 64;
/// What a visitor gets from a tunnel.
const BODY_BYTES: usize = 16 * 1024;
/// Every session has beaten once.
const SETTLING: Duration = Duration::from_secs(12);
const AT_REST: Duration = Duration::from_secs(20);
/// No storm takes so long.
const STORM_LIMIT: Duration = Duration::from_secs(120);
/// Requests per second of the visitors of agents that stay.
const VISITOR_RATE: f64 = 200.0;

/// How to reach the service, and what its tunnels lead to.
struct Setting {
    options: AgentOptions,
    backend: String,
}

impl Setting {
    fn new(subject: &Subject, backend: String) -> Self {
        let address = HostPort::parse(&subject.agent_address()).expect("an address");
        let token = subject.authtoken();
        let mut options = AgentOptions::new(address, token, subject.trust());
        options.web_addr = WebAddress::Off;
        Self { options, backend }
    }
}

/// An agent with a tunnel to an address, at the first host of name `a`.
pub async fn with_tunnel(subject: &Subject, backend: &str) -> Agent {
    agent(&Setting::new(subject, backend.to_owned()), &host("a", 0)).await
}

pub async fn measure(part: &mut Part, folder: &Path, size: usize, is_short: bool) {
    let connections = (2 * (size + STEADY)).max(200).to_string();
    let flags = ["--base-domain", DOMAIN, "--max-agent-connections", &connections];
    let subject = Subject::new(folder, "agents", &flags.map(str::to_owned)).await;
    let setting = Arc::new(Setting::new(&subject, load::backend(BODY_BYTES, true).await));
    let steady = connect(&setting, "steady", STEADY).await;
    let address = subject.http_address();
    ask_each(&address, "steady", STEADY).await;
    let port = port_of(&subject.agent_address());
    let kept = process::sockets_to(port);

    let (empty, began) = (subject.memory(), Instant::now());
    let agents = connect(&setting, "a", size).await;
    let connected = began.elapsed().as_secs_f64();
    part.add("all connected, 64 at a time", "s", Goal::None, size, connected);
    sleep(if is_short { Duration::from_secs(1) } else { SETTLING }).await;
    let each = |now: f64| (now - empty) / KIB / size as f64;
    part.add("memory of an idle session", "KiB", Goal::AtMost(24.0), size, each(subject.memory()));
    let used = at_rest(&subject, is_short).await;
    part.add("processor at rest", "% of a core", Goal::AtMost(1.0), size, used);
    ask_each(&address, "a", size).await;
    let after = each(subject.memory());
    part.add("memory of a session after a response of 16 KiB", "KiB", Goal::None, size, after);
    storm(part, &subject, &agents, &kept, size).await;
    let after = each(subject.memory());
    part.add("memory of a session after the storm", "KiB", Goal::None, size, after);
    drop((agents, steady));
    subject.remove().await;
}

/// Starts agents with one tunnel each, whose host begins with `name`.
async fn connect(setting: &Arc<Setting>, name: &str, count: usize) -> Vec<Agent> {
    let turns = Arc::new(Semaphore::new(CONNECTING));
    let mut connecting = JoinSet::new();
    for number in 0..count {
        let (setting, turns) = (setting.clone(), turns.clone());
        let host = host(name, number);
        connecting.spawn(async move {
            let _turn = turns.acquire().await.expect("turns go on");
            agent(&setting, &host).await
        });
    }
    connecting.join_all().await
}

async fn agent(setting: &Setting, host: &str) -> Agent {
    let agent = Agent::start(setting.options.clone()).await.expect("an agent");
    let mut state = agent.watch_state();
    let online = state.wait_for(|state| matches!(state, SessionState::Online(_)));
    timeout(STORM_LIMIT, online).await.expect("it connects in time").expect("it runs");
    let Value::Object(definition) = json!({
        "addr": setting.backend, "name": "web", "proto": "http", "inspect": false,
        "schemes": ["http"], "domain": host,
    }) else {
        unreachable!("the macro makes an object")
    };
    agent.start_tunnel(read(&definition)).await.expect("a tunnel");
    agent
}

fn read(definition: &Map<String, Value>) -> Definition {
    Definition::from_document(definition).expect("a definition")
}

/// The host of a tunnel.
pub fn host(name: &str, number: usize) -> String {
    format!("{name}{number}.{DOMAIN}")
}

/// One visitor for each tunnel; all of them get a response.
async fn ask_each(address: &str, name: &'static str, count: usize) {
    let next = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let workers = (0..32.min(count)).map(|_| {
        let (address, next) = (address.to_owned(), next.clone());
        tokio::spawn(async move {
            let mut visitor = crate::http::Connection::new(&address).await.expect("a connection");
            loop {
                let number = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                if number >= count {
                    return;
                }
                let request = get(&host(name, number), "/");
                let (status, body) = visitor.call(&request).await.expect("a response");
                assert_eq!(status, 200, "{name}{number}: {}", String::from_utf8_lossy(body));
            }
        })
    });
    for worker in workers.collect::<Vec<_>>() {
        worker.await.expect("every tunnel responds");
    }
}

async fn at_rest(subject: &Subject, is_short: bool) -> f64 {
    let length = if is_short { AT_REST / 4 } else { AT_REST };
    let before = subject.processor_time();
    sleep(length).await;
    (subject.processor_time() - before).as_secs_f64() / length.as_secs_f64() * 100.0
}

/// Breaks all connections but those that are kept, and waits until every agent has come back.
async fn storm(part: &mut Part, subject: &Subject, agents: &[Agent], kept: &[i32], size: usize) {
    let (address, port) = (subject.http_address(), port_of(&subject.agent_address()));
    let (stop, stopped) = oneshot::channel::<()>();
    let requests: Requests = Arc::new(|number| get(&host("steady", number % STEADY), "/"));
    let asked = address.clone();
    // On a thread of their own, so that agents of this process which connect do not hold them up.
    let visitors = tokio::task::spawn_blocking(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let stop = async { drop(stopped.await) };
        let visiting = load::steadily(&asked, 8, VISITOR_RATE, requests, stop);
        runtime.expect("a runtime").block_on(visiting)
    });
    sleep(Duration::from_secs(1)).await;
    let (began, used) = (Instant::now(), subject.processor_time());
    let broken = process::sockets_to(port).into_iter().filter(|socket| !kept.contains(socket));
    broken.for_each(process::break_connection);
    timeout(STORM_LIMIT, all_back(agents)).await.expect("all agents come back");
    let (took, used) = (began.elapsed(), subject.processor_time() - used);
    part.add(
        "all back after their connections broke",
        "s",
        Goal::AtMost(30.0),
        size,
        took.as_secs_f64(),
    );
    part.add("processor of the service meanwhile", "s", Goal::None, size, used.as_secs_f64());
    drop(stop);
    let outcome = visitors.await.expect("visitors");
    part.add(
        "failed visitors of the others",
        "requests",
        Goal::AtMost(0.0),
        size,
        outcome.failed as f64,
    );
    part.add("p99 of the others meanwhile", "ms", Goal::None, size, outcome.percentile(99));
    ask_each(&address, "a", size).await;
}

async fn all_back(agents: &[Agent]) {
    for agent in agents {
        while agent.reconnect_count() == 0 || !is_online(agent) {
            sleep(Duration::from_millis(20)).await;
        }
    }
}

fn is_online(agent: &Agent) -> bool {
    agent.list_tunnels().iter().all(|tunnel| tunnel.status.as_deref() == Some("online"))
}

fn port_of(address: &str) -> u16 {
    address.rsplit_once(':').and_then(|(_, port)| port.parse().ok()).expect("a port")
}
