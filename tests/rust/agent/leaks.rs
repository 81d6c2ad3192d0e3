//! Five hundred tunnels over twenty sessions, and nothing left of them.
//!
//! Descriptors, and with them ports, belong to the process, so this test runs in one of its own.

use std::time::Duration;

use ginnel_agent::Agent;
use ginnel_agent::definition::Definition;
use ginnel_service::{self as service, Service};

use serde_json::json;
use tokio::runtime::Handle;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::alone;
use super::support::{PATIENCE, mirror, online, options_of};
use crate::service::support::client;

const SESSIONS: usize = 20;
const TUNNELS: usize = 25;

#[test]
fn tunnels_leave_no_port_task_or_descriptor() {
    let run = alone::command("agent::leaks::in_a_process_of_its_own").output().unwrap();

    let told = String::from_utf8_lossy(&run.stderr);
    assert!(run.status.success(), "{}{told}", String::from_utf8_lossy(&run.stdout));
}

#[test]
#[ignore = "is run by the test above"]
fn in_a_process_of_its_own() {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        // Addresses of agents that are gone are not kept for long.
        let reserve = Duration::from_millis(100);
        let agents = service::AgentSettings { reserve, ..service::AgentSettings::default() };
        let options = service::Options { agents, ..service::Options::default() };
        let service = Service::start(options).await.unwrap();
        let local = mirror().await;
        // What stays after first use, stays.
        sessions(&service, local, 1).await;
        let before = settled(|_| true).await;

        assert_eq!(sessions(&service, local, SESSIONS).await, SESSIONS * TUNNELS);

        let after = settled(|after| after.0 <= before.0 && after.1 <= before.1).await;
        assert!(after.0 <= before.0, "tasks: {} before, {} after", before.0, after.0);
        assert!(after.1 <= before.1, "descriptors: {} before, {} after", before.1, after.1);
    });
}

/// Tunnels of so many agents at once, started, used and stopped; how many there were.
async fn sessions(service: &Service, local: u16, count: usize) -> usize {
    let mut all = JoinSet::new();
    for number in 0..count {
        let options = options_of(service);
        all.spawn(async move {
            let agent = Agent::start(options).await.unwrap();
            online(&agent).await;
            tunnels(&agent, local).await;
            // Half of the agents leave their tunnels to their end.
            let mut stopped = 0;
            for tunnel in agent.list_tunnels().into_iter().filter(|_| number % 2 == 0) {
                assert!(agent.stop_tunnel(&tunnel.name).await);
                stopped += 1;
            }
            let started = agent.list_tunnels().len() + stopped;
            agent.stop(Duration::from_secs(5)).await;
            started
        });
    }
    all.join_all().await.into_iter().sum()
}

async fn tunnels(agent: &Agent, local: u16) {
    let http = client();
    for number in 0..TUNNELS {
        let proto = if number % 2 == 0 { "http" } else { "tcp" };
        let definition = json!({"name": format!("t{number}"), "proto": proto, "addr": format!("127.0.0.1:{local}")});
        let definition = Definition::from_document(definition.as_object().unwrap()).unwrap();
        let url = agent.start_tunnel(definition).await.unwrap().public_url;
        let place = url.split("://").nth(1).unwrap();
        let answer = http.get(format!("http://{place}/{number}")).send().await.unwrap();
        assert_eq!(answer.status(), 200);
    }
}

/// How many tasks and descriptors there are, once they are few enough or do not get fewer.
async fn settled(enough: impl Fn((usize, usize)) -> bool) -> (usize, usize) {
    let mut found = (usize::MAX, usize::MAX);
    let settle = async {
        loop {
            tokio::time::sleep(Duration::from_millis(500)).await;
            let now = (Handle::current().metrics().num_alive_tasks(), descriptors());
            let stays = now == found;
            found = now;
            if stays && enough(now) {
                return;
            }
        }
    };
    let _ = timeout(PATIENCE * 2, settle).await;
    found
}

fn descriptors() -> usize {
    // Elsewhere than on Linux only tasks and ports are counted.
    std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count)
}
