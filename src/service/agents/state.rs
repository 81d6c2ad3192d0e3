//! What all sessions with agents share, and how they are told no.

use std::sync::Arc;

use arc_swap::ArcSwap;

use super::settings::AgentSettings;
use crate::api::id::Ids;
use crate::gateway::Gateway;
use crate::protocol::message::error_text;
use crate::service::accounts;
use crate::service::agents::access::AccessList;
use crate::service::agents::registry::{OnlineAgent, Registry};
use crate::service::domains::{DomainClaim, DomainDenial};
use crate::service::store::{self, Store};

/// What all sessions share.
pub(crate) struct AgentsState {
    /// Replaced as a whole at a reload; the address stays.
    pub settings: Arc<ArcSwap<AgentSettings>>,
    pub store: Arc<Store>,
    pub gateway: Gateway,
    pub registry: Arc<Registry>,
    pub ids: Ids,
}

/// Why something is refused: words and the number of a code.
pub(crate) struct AgentRefusal(pub String, pub u16);

impl AgentRefusal {
    /// The token of an agent is good for nothing any more.
    pub fn revoked() -> Self {
        Self("authentication failed: the credential of this session was revoked".to_owned(), 107)
    }
}

impl From<store::StoreError> for AgentRefusal {
    fn from(error: store::StoreError) -> Self {
        let problem = match error.fault() {
            Some(fault) => {
                format!("the service cannot store this now, try again: {}", fault.description())
            }
            None => format!("the service failed: {error}"),
        };
        Self(problem, 722)
    }
}

impl From<getrandom::Error> for AgentRefusal {
    fn from(error: getrandom::Error) -> Self {
        Self(format!("the service failed: {error}"), 722)
    }
}

impl AgentsState {
    /// What an agent may bind now.
    pub(crate) async fn access(&self, online: &OnlineAgent) -> Result<AccessList, AgentRefusal> {
        let agent = online.agent.clone();
        let entries = self.store.read(move |view| accounts::access_list(view, &agent)).await?;
        entries.map(AccessList).ok_or_else(AgentRefusal::revoked)
    }

    /// Refuses a host name that belongs to another owner, or to nobody where only reserved ones may
    /// be used.
    pub(crate) async fn check_domain(
        &self,
        online: &OnlineAgent,
        host: Option<&str>,
    ) -> Result<(), AgentRefusal> {
        let Some(host) = host else { return Ok(()) };
        let (owner_id, name) = (online.agent.owner_id.clone(), host.to_owned());
        let only_reserved = self.settings.load().reserved_domains_only;
        let checked = self.store.read(move |view| {
            DomainClaim { owner_id: &owner_id, only_reserved }.check(view, &name)
        });
        match checked.await? {
            Ok(_) => Ok(()),
            Err(DomainDenial::Foreign) => {
                Err(AgentRefusal(format!("the domain {host:?} is reserved by another owner"), 320))
            }
            Err(DomainDenial::Unreserved) => {
                Err(AgentRefusal(format!("the domain {host:?} is not reserved"), 319))
            }
        }
    }

    /// A refusal as agents are told it.
    pub(crate) fn text(&self, AgentRefusal(message, number): AgentRefusal) -> String {
        let code = format!("{}{number}", self.settings.load().code_prefix);
        error_text(&message, Some(&code))
    }
}
