//! What all sessions with agents share, and how they are told no.

use std::sync::Arc;

use crate::api::id::Ids;
use crate::gateway::Gateway;
use crate::protocol::message::error_text;
use crate::service::accounts;
use crate::service::agents::Settings;
use crate::service::agents::access::AccessList;
use crate::service::agents::registry::{Online, Registry};
use crate::service::store::{self, Store};

/// What all sessions share.
pub(crate) struct House {
    pub settings: Settings,
    pub store: Arc<Store>,
    pub edges: Gateway,
    pub registry: Arc<Registry>,
    pub ids: Ids,
}

/// Why something is refused: words and the number of a code.
pub(crate) struct Refused(pub String, pub u16);

impl Refused {
    /// The token of an agent is good for nothing any more.
    pub fn revoked() -> Self {
        Self("authentication failed: the credential of this session was revoked".to_owned(), 107)
    }
}

impl From<store::Error> for Refused {
    fn from(error: store::Error) -> Self {
        let problem = match error.fault() {
            Some(fault) => {
                format!("the service cannot store this now, try again: {}", fault.description())
            }
            None => format!("the service failed: {error}"),
        };
        Self(problem, 722)
    }
}

impl From<getrandom::Error> for Refused {
    fn from(error: getrandom::Error) -> Self {
        Self(format!("the service failed: {error}"), 722)
    }
}

impl House {
    /// What an agent may bind now.
    pub(crate) fn access(&self, online: &Online) -> Result<AccessList, Refused> {
        let entries = self.store.read(|view| accounts::access_list(view, &online.agent))?;
        entries.map(AccessList).ok_or_else(Refused::revoked)
    }

    /// A refusal as agents are told it.
    pub(crate) fn text(&self, Refused(message, number): Refused) -> String {
        let code = format!("{}{number}", self.settings.code_prefix);
        error_text(&message, Some(&code))
    }
}
