//! Addresses that agents had before a restart: for whom they are kept, and for how long.

use std::time::{Duration, SystemTime};

use ginnel_agent::{Agent, AgentOptions};
use ginnel_api::Origin;
use ginnel_service::{self as service, Service};

use rusqlite::Connection;
use serde_json::json;

use super::support::{PATIENCE, online, options_of};
use crate::service::support::Folder;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// How many addresses a database keeps, and how many of them somebody serves.
fn kept(folder: &Folder) -> (i64, i64) {
    let database = Connection::open(folder.file("service.db")).unwrap();
    let count = "SELECT count(*), count(iif(body ->> 'idle' IS NULL, 1, NULL)) FROM resources
                 WHERE kind = 'bind'";
    database.query_row(count, (), |row| Ok((row.get(0)?, row.get(1)?))).unwrap()
}

/// Waits until it is so.
async fn becomes(folder: &Folder, expected: (i64, i64)) {
    let looking = async {
        while kept(folder) != expected {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let became = tokio::time::timeout(PATIENCE, looking).await;
    assert!(became.is_ok(), "{:?}", kept(folder));
}

/// A service that starts on some day.
fn on_day(folder: &Folder, day: u32) -> service::Options {
    let begin = SystemTime::UNIX_EPOCH + 20_000 * DAY + day * DAY;
    service::Options {
        origin: Origin::from_seed(day.into(), begin),
        ..folder.options("service.db")
    }
}

/// An agent with a tunnel; its address is the name of it.
async fn tunnel(options: AgentOptions) -> (Agent, String) {
    let agent = Agent::start(options).await.unwrap();
    online(&agent).await;
    let definition = json!({"name": "web", "proto": "tcp", "addr": 9});
    let url = format!("{}/api/tunnels", agent.api_url().unwrap());
    let request = crate::service::support::client().post(url);
    let request = request.header("content-type", "application/json").body(definition.to_string());
    let made: serde_json::Value =
        serde_json::from_str(&request.send().await.unwrap().text().await.unwrap()).unwrap();
    (agent, made["public_url"].as_str().unwrap().to_owned())
}

#[tokio::test]
async fn addresses_of_agents_that_never_return_are_given_up() {
    let folder = Folder::new();
    let first = Service::start(on_day(&folder, 0)).await.unwrap();
    let port = first.agent_address().unwrap().port();
    let options = options_of(&first);
    let (gone, _) = tunnel(options.clone()).await;
    let (back, address) = tunnel(options).await;
    assert_eq!(kept(&folder), (2, 2));

    // The service goes first, so that both addresses wait.
    first.stop(Duration::from_secs(5)).await;
    gone.stop(Duration::from_secs(5)).await;
    let mut again = on_day(&folder, 10);
    again.agents.port = Some(port);
    let second = Service::start(again).await.unwrap();
    becomes(&folder, (2, 1)).await;

    second.advance_clock(29 * DAY);
    tokio::time::sleep(Duration::from_millis(1200)).await;
    assert_eq!(kept(&folder), (2, 1), "it may still come back");
    second.advance_clock(2 * DAY);
    becomes(&folder, (1, 1)).await;

    // Who came back has its address over the next restart as well.
    second.stop(Duration::from_secs(5)).await;
    let mut again = on_day(&folder, 60);
    again.agents.port = Some(port);
    let third = Service::start(again).await.unwrap();
    becomes(&folder, (1, 1)).await;
    assert_eq!(address_of(&back).await, address);
    back.stop(Duration::from_secs(5)).await;
    third.stop(Duration::from_secs(5)).await;
}

async fn address_of(agent: &Agent) -> String {
    let url = format!("{}/api/tunnels/web", agent.api_url().unwrap());
    let shown = crate::service::support::client().get(url).send().await.unwrap();
    let shown: serde_json::Value = serde_json::from_str(&shown.text().await.unwrap()).unwrap();
    shown["public_url"].as_str().unwrap().to_owned()
}
