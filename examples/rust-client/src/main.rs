//! Lists the API keys of a service and replays the last request that an agent has captured.
//!
//! ```text
//! GINNEL_API_KEY=… GINNEL_BASE_URL=https://api.example.com cargo run -p rust-client
//! ```
//!
//! The agent is the one at `GINNEL_AGENT_URL`, by default `http://127.0.0.1:4040`.

use std::error::Error;

use ginnel_api::local::requests;
use ginnel_api::remote::api_keys;
use ginnel_client::{Api, Client, ClientOptions};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    list_api_keys().await?;
    replay_last_request().await
}

/// Prints the first page of API keys.
async fn list_api_keys() -> Result<(), Box<dyn Error>> {
    let remote = Client::new(ClientOptions::default())?;
    let page = remote.call(&api_keys::List::default()).await?;
    for key in page.items {
        println!("{} {}", key.id, key.description.unwrap_or_default().0);
    }
    Ok(())
}

/// Sends the last captured request to the local service again.
async fn replay_last_request() -> Result<(), Box<dyn Error>> {
    let agent = Client::new(ClientOptions { api: Api::Agent, ..ClientOptions::default() })?;
    let last = requests::List { limit: Some(1), ..requests::List::default() };
    match agent.call(&last).await?.items.pop() {
        Some(captured) => {
            let replay = requests::Replay { id: captured.id.clone(), ..Default::default() };
            agent.call(&replay).await?;
            println!("replayed {} of {}", captured.id, captured.tunnel_name);
        }
        None => println!("the agent has captured no request"),
    }
    Ok(())
}
