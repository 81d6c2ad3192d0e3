//! `diagnose`: whether an agent can connect to its service.

use std::time::{Duration, Instant};

use clap::ArgMatches;

use super::run::options;
use crate::agent::{Agent, AgentOptions, SessionState, WebAddress};
use crate::cli::agent::online;
use crate::cli::error::{CliError, Exit};
use crate::cli::output::say;
use crate::cli::runtime;

/// How long the whole may take beyond the time for connecting.
const SPARE_TIME: Duration = Duration::from_secs(2);

pub(super) fn run(matches: &ArgMatches) -> Result<(), CliError> {
    let options = options(matches)?;
    let runtime = runtime::start()?;
    let done = runtime.block_on(connect(options));
    runtime.shutdown_background();
    done
}

async fn connect(options: AgentOptions) -> Result<(), CliError> {
    let addresses = options.server_addrs.join(", ");
    say(&format!("Connecting to {addresses} ..."));
    let limit = options.connect_timeout + SPARE_TIME;
    let options = AgentOptions { web_addr: WebAddress::Off, ..options };
    let began = Instant::now();
    let agent = Agent::start(options).await?;
    let is_online = tokio::time::timeout(limit, online(&agent)).await == Ok(true);
    let reason = agent.refusal().map(|refusal| refusal.to_string()).or_else(|| agent.last_error());
    if is_online {
        let took = began.elapsed().as_millis();
        say(&format!("The session was established after {took} ms"));
        if let SessionState::Online(sessions) = agent.state() {
            let regions = sessions.iter().map(|online| online.region.clone());
            say(&format!("Region: {}", regions.collect::<Vec<_>>().join(", ")));
        }
    }
    agent.stop(Duration::ZERO).await;
    match is_online {
        true => Ok(()),
        false => {
            let reason = reason.unwrap_or_else(|| "no response".to_owned());
            Err(CliError::new(Exit::Unreachable, format!("{addresses}: {reason}")))
        }
    }
}
