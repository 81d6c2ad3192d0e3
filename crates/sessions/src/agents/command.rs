//! What the service may tell an agent to do.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use ginnel_mux::protocol::message::{self, CommandResponse};
use ginnel_mux::protocol::rpc::{self, RpcRequest};

use crate::agents::online_agent::OnlineAgent;

/// How long an agent may take to obey.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(5);

/// What the service may tell an agent to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AgentCommand {
    /// To end.
    Stop,
    /// To start anew.
    Restart,
    /// To replace itself with a later version.
    Update,
}

impl AgentCommand {
    /// Has an agent obey.
    ///
    /// # Errors
    /// With why it does not.
    pub async fn send_to(self, online: &OnlineAgent) -> Result<(), String> {
        if let Some(reason) = &online.unsupported[self as usize] {
            return Err(reason.clone());
        }
        match self {
            Self::Stop => call_agent(online, &message::Stop {}).await,
            Self::Restart => call_agent(online, &message::Restart {}).await,
            Self::Update => call_agent(online, &message::Update::default()).await,
        }
    }
}

async fn call_agent<R: RpcRequest<Answer = CommandResponse>>(
    online: &OnlineAgent,
    request: &R,
) -> Result<(), String> {
    let answer = rpc::call(&online.session, request, COMMAND_TIMEOUT).await;
    let answer = answer.map_err(|error| error.to_string())?;
    answer.failure().map_or(Ok(()), |failure| Err(failure.to_string()))
}
