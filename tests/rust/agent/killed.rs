//! A service that is killed again and again, while visitors come.

use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use ginnel_agent::definition::Definition;
use ginnel_agent::{Agent, AgentOptions, Trust, WebAddress};
use ginnel_api::Secret;

use reqwest::Client;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::alone;
use super::support::{PATIENCE, mirror, online};
use crate::service::support::{Folder, client};

const KILLS: usize = 50;
const VISITORS: usize = 4;
const SERVE: &str = "GINNEL_TEST_SERVE";

/// A service in a process of its own.
struct Served {
    process: Child,
    said: Value,
}

impl Served {
    /// Starts a service and waits until it is there.
    fn start(folder: &Folder, ports: Option<(&str, &str)>) -> Self {
        let (path, host) =
            (folder.file("service.db").display().to_string(), folder.host.to_string());
        let (port, agent_port) = ports.unwrap_or(("0", "0"));
        let arguments = [
            "ginnel",
            "serve",
            "--json",
            "--http-port",
            "none",
            "--https-port",
            "none",
            "--path",
            &path,
            "--host",
            &host,
            "--edge-host",
            &host,
            "--port",
            port,
            "--agent-port",
            agent_port,
        ];
        let mut command = alone::command("agent::killed::serves_until_it_is_killed");
        command.env(SERVE, arguments.join("\n")).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let mut lines = lines.map_while(Result::ok);
        let Some(line) = lines.find(|line| line.starts_with('{')) else {
            panic!("the service did not start: {}", complaints(&mut process));
        };
        Self { process, said: serde_json::from_str(&line).unwrap() }
    }

    fn text(&self, field: &str) -> String {
        self.said[field].as_str().unwrap().to_owned()
    }

    /// Ends it without a word.
    fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// What a process that ended has written to its standard error.
fn complaints(process: &mut Child) -> String {
    let stderr = process.stderr.take().unwrap();
    std::io::read_to_string(stderr).unwrap()
}

#[test]
#[ignore = "is a service for the test below"]
fn serves_until_it_is_killed() {
    let Ok(arguments) = std::env::var(SERVE) else { return };
    ginnel_cli::main(arguments.lines());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tunnels_are_back_at_their_addresses_whenever_the_service_is() {
    let folder = Folder::new();
    let mut served = Served::start(&folder, None);
    let agent = agent_of(&served).await;
    let local = mirror().await;
    let urls =
        [start(&agent, "web", "http", local).await, start(&agent, "raw", "tcp", local).await];
    let ports = [served.text("url"), served.text("agent_addr")];
    let ports = ports.each_ref().map(|at| at.rsplit_once(':').unwrap().1);
    let load = Load::start(&urls);
    let mut away = Vec::new();

    for kill in 0..KILLS {
        sleep(Duration::from_millis(20 + 13 * (kill as u64 % 5))).await;
        served.kill();
        served = Served::start(&folder, Some((ports[0], ports[1])));
        let returned = Instant::now();
        for url in &urls {
            back(&load.http, url).await;
        }
        away.push(returned.elapsed());
    }

    let answered = load.stop().await;
    assert!(answered > KILLS as u64, "{answered} visitors were served");
    let found: Vec<_> =
        agent.list_tunnels().iter().map(|tunnel| place(&tunnel.public_url)).collect();
    assert_eq!(found, urls);
    assert_eq!(agent.reconnect_count(), KILLS as u64);
    away.sort();
    let (half, most) = (away[KILLS / 2], away[KILLS - 1]);
    println!("back after {half:?}, at most {most:?}; {answered} visitors served");
    // The machine may be busy for a moment, but not half of the time.
    assert!(half < Duration::from_secs(10), "half of the returns took more than {half:?}");
}

/// Where a tunnel can be asked with HTTP.
fn place(url: &str) -> String {
    url.replace("tcp://", "http://")
}

async fn agent_of(served: &Served) -> Agent {
    let trust = Trust::from_file(served.text("ca_path").as_ref()).unwrap();
    let token = Secret(served.text("authtoken"));
    let mut options = AgentOptions::new(
        served.text("agent_addr").parse::<ginnel_base::address::HostPort>().unwrap(),
        token,
        trust,
    );
    options.web_addr = WebAddress::Off;
    let agent = Agent::start(options).await.unwrap();
    online(&agent).await;
    agent
}

/// Starts a tunnel, and says where it can be asked with HTTP.
async fn start(agent: &Agent, name: &str, proto: &str, local: u16) -> String {
    let definition = json!({"name": name, "proto": proto, "addr": format!("127.0.0.1:{local}")});
    let definition = Definition::from_document(definition.as_object().unwrap()).unwrap();
    place(&agent.start_tunnel(definition).await.unwrap().public_url)
}

/// Waits until a tunnel answers.
async fn back(http: &Client, url: &str) {
    let asked = Instant::now();
    loop {
        let answer = http.get(format!("{url}/back")).send().await;
        if answer.as_ref().is_ok_and(|answer| answer.status() == 200) {
            return;
        }
        assert!(asked.elapsed() < PATIENCE, "{url} is not back: {answer:?}");
        sleep(Duration::from_millis(5)).await;
    }
}

/// Visitors who come all the time.
struct Load {
    http: Client,
    visitors: JoinSet<()>,
    stopped: Arc<AtomicBool>,
    answered: Arc<AtomicU64>,
}

impl Load {
    fn start(urls: &[String]) -> Self {
        let (http, mut visitors) = (client(), JoinSet::new());
        let (stopped, answered) = (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default());
        for visitor in 0..VISITORS {
            let (http, url) = (http.clone(), urls[visitor % urls.len()].clone());
            let (stopped, answered) = (stopped.clone(), answered.clone());
            visitors.spawn(async move {
                for turn in 0_u64.. {
                    if stopped.load(Ordering::Relaxed) {
                        return;
                    }
                    let path = format!("/{visitor}-{turn}");
                    match visit(&http, &url, &path).await {
                        true => drop(answered.fetch_add(1, Ordering::Relaxed)),
                        false => sleep(Duration::from_millis(5)).await,
                    }
                }
            });
        }
        Self { http, visitors, stopped, answered }
    }

    /// How many visitors were served.
    async fn stop(mut self) -> u64 {
        self.stopped.store(true, Ordering::Relaxed);
        while let Some(done) = self.visitors.join_next().await {
            done.unwrap();
        }
        self.answered.load(Ordering::Relaxed)
    }
}

/// True for a right answer, false for none; anything else is wrong.
async fn visit(http: &Client, url: &str, path: &str) -> bool {
    let asked = http.get(format!("{url}{path}")).timeout(PATIENCE).send();
    let Ok(answer) = asked.await else { return false };
    match answer.status().as_u16() {
        200 => {}
        404 | 502 | 503 => return false,
        other => panic!("{path}: {other}"),
    }
    let Ok(text) = answer.text().await else { return false };
    assert!(text.starts_with(&format!("GET {path} HTTP/1.1\r\n")), "{path}: {text}");
    true
}
