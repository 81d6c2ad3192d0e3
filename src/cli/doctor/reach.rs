//! Whether a management API or an agent responds.

use std::time::Duration;

use serde_json::Value;

use super::finding::Finding;
use crate::api::local::status;
use crate::api::remote::api_keys;
use crate::api::{Operation, encode};
use crate::client::{Api, Client, ClientOptions, Error};

/// How long a response may take.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The management API, as far as the key in the environment goes.
pub(super) fn management_api(url: &str) -> Finding {
    let list = api_keys::List { limit: Some(1), ..api_keys::List::default() };
    match call(Api::Remote, url, &list) {
        Ok(_) => Finding::ok("management API", format!("{url} responds, and the key is valid")),
        Err(problem) => Finding::problem("management API", format!("{url}: {problem}"))
            .remedy("look whether the service runs, and set GINNEL_API_KEY to one of its keys"),
    }
}

/// An agent, and whether it is connected to its service.
pub(super) fn agent(url: &str) -> Finding {
    match call(Api::Agent, url, &status::Get::default()) {
        Ok(status) if status["status"] == "online" => {
            Finding::ok("agent", format!("{url} responds, and is connected to its service"))
        }
        Ok(status) => {
            let state = status["status"].as_str().unwrap_or("unknown").to_owned();
            Finding::problem("agent", format!("{url} responds, and its state is {state}")).remedy(
                "look at the log of the agent: the service may be away, or refuse its token",
            )
        }
        Err(problem) => Finding::problem("agent", format!("{url}: {problem}"))
            .remedy("look whether the agent runs: ginnel agent"),
    }
}

fn call<O: Operation>(api: Api, url: &str, operation: &O) -> Result<Value, String> {
    let options = ClientOptions {
        api,
        base_url: Some(url.to_owned()),
        timeout: Some(TIMEOUT),
        deadline: Some(TIMEOUT),
        max_retries: Some(0),
        ..ClientOptions::default()
    };
    let client = Client::new(options).map_err(|error| error.to_string())?;
    let call = encode(operation).map_err(|error| error.to_string())?;
    let response = client.send_blocking(call, None, || false).map_err(|error| error.to_string())?;
    let response = response.ok_or("interrupted")?;
    let accepted = response.accept().map_err(|error: Error| error.to_string())?;
    accepted.decode().map_err(|error| error.to_string())
}
