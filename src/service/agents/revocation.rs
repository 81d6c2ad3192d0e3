//! Ends what agents have as soon as nothing allows it any more.
//!
//! Nobody who changes an account has to think of sessions: every commit that stores or removes a
//! credential, a bot user or a user, by whatever operation, has the agents that depend on it looked at
//! again before the change is answered. What is bound while that happens is looked at once more after
//! it was noted, so that neither of the two can miss the other.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::runtime::Handle;

use crate::api::id::{has_prefix, prefix};
use crate::logging::or_debug;
use crate::mux::Code;
use crate::protocol::message::StopTunnel;
use crate::protocol::rpc;
use crate::service::accounts::{self, AuthenticatedAgent};
use crate::service::agents::access::AccessList;
use crate::service::agents::registry::{OnlineAgent, Registry};
use crate::service::agents::reservation::Reservation;
use crate::service::agents::state::{AgentRefusal, AgentsState};
use crate::service::agents::tunnel::OnlineTunnel;
use crate::service::store::{Changes, Store, StoreError};

/// How long an agent may take to be told of its tunnels before its session is closed.
const NOTICE_TIMEOUT: Duration = Duration::from_millis(200);

/// Looks at agents again from now on, whenever an account changes. Needs a tokio runtime.
pub(crate) fn follow(state: &AgentsState) {
    let (registry, store) = (Arc::downgrade(&state.registry), Arc::downgrade(&state.store));
    let notifier = Notifier::of(state);
    state.store.watch(move |changes| {
        if let Some(((registry, store), accounts)) =
            both(&registry, &store).zip(changes.select(is_account))
        {
            let _entered = notifier.runtime.enter();
            review_all(&registry, &store, &notifier, &accounts);
            // What nobody knows to have been revoked is given up by whoever revoked it.
            if let Changes::Of(accounts) = accounts {
                release_all(&store, &notifier, &accounts);
            }
        }
    });
}

/// Ends the tunnels of this node whose endpoints belong to agents of other nodes, from now on.
pub(crate) fn end_lost(state: &AgentsState) {
    let Some(cluster) = &state.cluster else { return };
    let (registry, notifier) = (Arc::downgrade(&state.registry), Notifier::of(state));
    cluster.on_lost(move |bind_id| {
        let Some(registry) = registry.upgrade() else { return };
        if let Some(tunnel) = registry.drop_bind(bind_id) {
            let problem = format!("{} is already online at another node", tunnel.public_name());
            notifier.stop(tunnel, &AgentRefusal(problem, 334));
        }
    });
}

/// Looks at an agent again whose session or tunnel has just been noted: what allowed it may be gone.
pub(crate) async fn review(state: &AgentsState, agent: &AuthenticatedAgent) {
    let looked_up = agent.clone();
    let access = state.store.read(move |view| accounts::access_list(view, &looked_up)).await;
    apply(&state.registry, &Notifier::of(state), agent, access);
}

fn is_account(id: &str) -> bool {
    [prefix::CREDENTIAL, prefix::BOT_USER, prefix::USER].iter().any(|kind| has_prefix(id, kind))
}

fn both(registry: &Weak<Registry>, store: &Weak<Store>) -> Option<(Arc<Registry>, Arc<Store>)> {
    registry.upgrade().zip(store.upgrade())
}

fn review_all(registry: &Registry, store: &Store, notifier: &Notifier, accounts: &Changes) {
    let depends = |agent: &AuthenticatedAgent| {
        accounts.includes(&agent.credential_id) || accounts.includes(&agent.owner_id)
    };
    let agents: Vec<_> = registry.agents().into_iter().filter(depends).collect();
    if agents.is_empty() {
        return;
    }
    // One read for all: with a server, each costs a round trip or more.
    let read = store.read_blocking::<_, StoreError>(|view| accounts::access_lists(view, &agents));
    match read {
        Ok(access) => {
            for (agent, access) in agents.iter().zip(access) {
                apply(registry, notifier, agent, Ok(access));
            }
        }
        Err(error) => {
            agents.iter().for_each(|agent| send_all_back(registry, notifier, agent, &error))
        }
    }
}

/// Ends what an agent may not have any more.
fn apply(
    registry: &Registry,
    notifier: &Notifier,
    agent: &AuthenticatedAgent,
    access: Result<Option<Vec<String>>, StoreError>,
) {
    match access {
        Ok(None) => {
            for (online, tunnels) in registry.expel(agent) {
                notifier.dismiss(online, tunnels);
            }
        }
        Ok(Some(entries)) => {
            for tunnel in registry.narrow(agent, &AccessList(entries)) {
                let problem = format!(
                    "the access list of the authtoken does not allow {} any more",
                    tunnel.public_name()
                );
                notifier.stop(tunnel, &AgentRefusal(problem, 600));
            }
        }
        // Nobody knows what holds for the agent: it has to come back and be looked at then.
        Err(error) => send_all_back(registry, notifier, agent, &error),
    }
}

/// Ends the sessions of an agent, which may come back.
fn send_all_back(
    registry: &Registry,
    notifier: &Notifier,
    agent: &AuthenticatedAgent,
    error: &StoreError,
) {
    tracing::warn!(%error, "an agent is sent away: its access cannot be looked up");
    for online in registry.sessions().into_iter().filter(|it| it.agent == *agent) {
        notifier.send_back(online);
    }
}

/// Gives up the addresses that are kept for the agents of credentials that were revoked.
fn release_all(store: &Arc<Store>, notifier: &Notifier, accounts: &[String]) {
    let kept = store.read_blocking::<_, StoreError>(|view| {
        Reservation::of_revoked(view, accounts.iter().map(String::as_str))
    });
    // They are also given up when they have waited for too long.
    let kept = kept.unwrap_or_default();
    if !kept.is_empty() {
        let store = store.clone();
        notifier.runtime.spawn(async move {
            or_debug!(Reservation::drop(&store, kept).await, "reservations stay");
        });
    }
}

/// Tells agents what became of their sessions and tunnels.
struct Notifier {
    runtime: Handle,
    code_prefix: String,
}

impl Notifier {
    fn of(state: &AgentsState) -> Self {
        let code_prefix = state.settings.load().code_prefix.clone();
        Self { runtime: Handle::current(), code_prefix }
    }

    /// Ends a session, for good.
    fn dismiss(&self, online: Arc<OnlineAgent>, tunnels: Vec<Arc<OnlineTunnel>>) {
        let refused = AgentRefusal::revoked();
        let notices: Vec<_> = tunnels.iter().map(|tunnel| self.notice(tunnel, &refused)).collect();
        self.runtime.spawn(async move {
            let telling = async {
                for notice in &notices {
                    rpc::tell(&online.session, notice).await?;
                }
                Ok::<_, rpc::RpcError>(())
            };
            // The end of the session says it to those who did not listen.
            let notified = tokio::time::timeout(NOTICE_TIMEOUT, telling).await;
            or_debug!(notified, session = %online.id, "an agent takes no notice");
            online.session.go_away(Code::SESSION_CLOSED, &refused.0).await;
        });
    }

    /// Ends a tunnel; its session goes on.
    fn stop(&self, tunnel: Arc<OnlineTunnel>, reason: &AgentRefusal) {
        let notice = self.notice(&tunnel, reason);
        self.runtime.spawn(async move {
            let telling = rpc::tell(&tunnel.session.session, &notice);
            // The tunnel is over whether or not its agent listens.
            let notified = tokio::time::timeout(NOTICE_TIMEOUT, telling).await;
            or_debug!(notified, tunnel = %tunnel.id, "an agent takes no notice");
        });
    }

    /// Ends a session whose agent may come back.
    fn send_back(&self, online: Arc<OnlineAgent>) {
        self.runtime.spawn(async move {
            let text = "the service cannot check the credential of this session";
            online.session.go_away(Code::INTERNAL, text).await;
        });
    }

    fn notice(
        &self,
        tunnel: &OnlineTunnel,
        AgentRefusal(message, number): &AgentRefusal,
    ) -> StopTunnel {
        StopTunnel {
            id: tunnel.bind_id.clone(),
            message: message.clone(),
            error_code: Some(format!("{}{number}", self.code_prefix)),
        }
    }
}
